#ifndef EDIT_WORKER_THREADS_H
#define EDIT_WORKER_THREADS_H

/* How many threads the process may keep busy: never more than its share, whatever the host has. */

/* At least 1: the processors of the affinity mask, and no more than the quotas of the control groups that the process
 * is in. */
unsigned threads_allowed(void);
/* The same with the folder of all control groups and the file that says in which of them we are. What is missing or cannot be
 * read sets no limit. */
unsigned threads_allowed_by(const char *groups, const char *membership);

#endif

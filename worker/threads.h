#ifndef EDIT_WORKER_THREADS_H
#define EDIT_WORKER_THREADS_H

/* How many threads the process may keep busy: never more than its share, whatever the host has. */

/* At least 1: the processors of the affinity mask, and no more than the quotas of the control groups that the process
 * is in. */
unsigned threads_allowed(void);

#endif

#ifndef EDIT_WORKER_SAY_H
#define EDIT_WORKER_SAY_H

/* Lines to stderr, for a person or the journal: "edit-worker: text", or with a priority in front if the journal
 * reads. */

enum say_level { SAY_ERROR = 3, SAY_WARNING = 4, SAY_NOTICE = 5, SAY_INFO = 6 };

/* Prints one line; format without newline. */
__attribute__((format(printf, 2, 3))) void say(enum say_level level, const char *format, ...);

#endif

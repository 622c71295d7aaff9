#ifndef EDIT_WORKER_COMPLAIN_H
#define EDIT_WORKER_COMPLAIN_H

/* One line about bad input: what, where, what was expected. */

#include <stddef.h>

enum { COMPLAINT_MAX = 1024 }; /* bytes that a caller has ready, with the final 0 */

/* Prints the line into error [error_size], control characters (file contents can hold any) as '?', and returns code. */
__attribute__((format(printf, 4, 5))) int complain(char *error, size_t error_size, int code, const char *format, ...);

#endif

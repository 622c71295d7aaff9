#ifndef EDIT_WORKER_CMDLINE_H
#define EDIT_WORKER_CMDLINE_H

/* Values on the command line. What cannot be read is told in one line with the option and the range, and the program
 * ends with status 2. */

#include <argp.h>
#include <stdint.h>

/* A whole number in [low, high]. */
uint64_t cmdline_count(const struct argp_state *state, const char *option, const char *text, uint64_t low,
			uint64_t high);
/* A number in [low, high]; "inf" if high is infinity. */
double cmdline_real(const struct argp_state *state, const char *option, const char *text, double low, double high);

/* Ends the program because arguments do not fit together or one is missing; the text is one line. */
_Noreturn __attribute__((format(printf, 2, 3))) void cmdline_fail(const struct argp_state *state, const char *format,
								   ...);

#endif

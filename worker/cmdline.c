/* Values on the command line. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/cmdline.h"

void cmdline_fail(const struct argp_state *state, const char *format, ...)
{
	char text[1024];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s: %s\n", state->name, text);
	exit(2);
}

uint64_t cmdline_count(
		const struct argp_state *state, const char *option, const char *text, uint64_t low, uint64_t high)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	/* strtoull takes blanks and signs, which no count has. */
	if (!isdigit((unsigned char)*text) || *end || errno || number < low || number > high)
		cmdline_fail(state, "%s: '%s', expected a whole number from %" PRIu64 " to %" PRIu64, option, text, low, high);
	return number;
}

double cmdline_real(const struct argp_state *state, const char *option, const char *text, double low, double high)
{
	char *end;
	double number = strtod(text, &end);
	if (end == text || *end || isspace((unsigned char)*text) || !(number >= low && number <= high))
		cmdline_fail(state, "%s: '%s', expected a number from %g to %g", option, text, low, high);
	return number;
}

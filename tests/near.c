/* Comparing numbers with those of a reference, in words that tell which one differs and by what. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/near.h"

float largest(const double *x, size_t count)
{
	double max = 0;
	for (size_t i = 0; i < count; i++)
		max = fmax(max, fabs(x[i]));
	return (float)max;
}

void assert_near(const char *what, const float *x, const double *expected, size_t count, double relative,
		 double scale)
{
	for (size_t i = 0; i < count; i++) {
		double allowed = relative * (fabs(expected[i]) + scale / 100);
		if (!(fabs((double)x[i] - expected[i]) <= allowed))
			fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, (double)x[i], expected[i]);
	}
}

void assert_relative(const char *what, unsigned step, double x, double expected, double relative)
{
	if (!(fabs(x - expected) <= relative * fabs(expected)))
		fail_msg("step %u: %s is %.12g, expected %.12g", step, what, x, expected);
}

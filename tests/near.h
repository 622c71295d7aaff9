#ifndef EDIT_TESTS_NEAR_H
#define EDIT_TESTS_NEAR_H

/* Comparing numbers with those of a reference; a difference fails the cmocka test that runs. */

#include <stddef.h>

/* Largest |x[i]| of x[count]; 0 for none. */
float largest(const double *x, size_t count);

/* Every x[i] within relative of expected[i], or within relative / 100 of scale where expected[i] is far below it. */
void assert_near(const char *what, const float *x, const double *expected, size_t count, double relative, double scale);

/* x within relative of expected; step is told on failure. */
void assert_relative(const char *what, unsigned step, double x, double expected, double relative);

#endif

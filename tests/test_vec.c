/* Loops of core/vec.c against plain scalar code in the stated order, to the bit, at both register widths. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/vec.h"

/* tests/vec_narrow.c */
double narrow_vec_delta(float *ret_delta, const float *anchor, const float *theta, size_t count);
double narrow_vec_square_sum(const float *x, size_t count);
void narrow_vec_scale(float *x, float weight, size_t count);
void narrow_vec_accumulate(float *x, const void *partial, float weight, size_t count);

enum { MOST = 4099, LANES = 16 };

static const size_t counts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 127, 1000, 4096, MOST};
#define COUNTS (sizeof counts / sizeof counts[0])

static uint64_t random_state = 12345;

static float random_float(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (float)((double)(random_state >> 11) / 9007199254740992.0 - 0.5);
}

static void fill(float *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] = random_float();
}

/* The order that the contract fixes: element i into lane i % 16, then the lanes by halves. */
static double plain_square_sum(const float *x, size_t count)
{
	double lanes[LANES] = {0};
	for (size_t i = 0; i < count; i++)
		lanes[i % LANES] += (double)x[i] * (double)x[i];
	for (size_t half = LANES / 2; half > 0; half /= 2)
		for (size_t i = 0; i < half; i++)
			lanes[i] += lanes[i + half];
	return lanes[0];
}

static void assert_same_bits(const void *a, const void *b, size_t size_bytes)
{
	assert_memory_equal(a, b, size_bytes);
}

static void delta_and_its_sum_equal_the_plain_order(void **state)
{
	(void)state;
	static float anchor[MOST], theta[MOST], plain[MOST], wide[MOST], narrow[MOST];
	for (size_t k = 0; k < COUNTS; k++) {
		const size_t n = counts[k];
		fill(anchor, n);
		fill(theta, n);
		for (size_t i = 0; i < n; i++)
			plain[i] = anchor[i] - theta[i];
		double sums[] = {plain_square_sum(plain, n), vec_delta(wide, anchor, theta, n),
				 narrow_vec_delta(narrow, anchor, theta, n), vec_square_sum(plain, n),
				 narrow_vec_square_sum(plain, n)};
		assert_same_bits(plain, wide, n * sizeof(float));
		assert_same_bits(plain, narrow, n * sizeof(float));
		for (size_t i = 1; i < sizeof sums / sizeof sums[0]; i++)
			assert_same_bits(&sums[0], &sums[i], sizeof sums[0]);
	}
}

static void scale_equals_the_plain_product(void **state)
{
	(void)state;
	static float x[MOST], plain[MOST], narrow[MOST];
	for (size_t k = 0; k < COUNTS; k++) {
		const size_t n = counts[k];
		fill(x, n);
		memcpy(narrow, x, n * sizeof(float));
		for (size_t i = 0; i < n; i++)
			plain[i] = 0.3f * x[i];
		vec_scale(x, 0.3f, n);
		narrow_vec_scale(narrow, 0.3f, n);
		assert_same_bits(plain, x, n * sizeof(float));
		assert_same_bits(plain, narrow, n * sizeof(float));
	}
}

static void accumulate_takes_a_partial_at_any_alignment(void **state)
{
	(void)state;
	static float before[MOST], x[MOST], partial[MOST], plain[MOST], narrow[MOST];
	static unsigned char wire[MOST * sizeof(float) + 64];
	for (size_t offset = 0; offset < 64; offset++) {
		const size_t n = counts[offset % COUNTS];
		fill(before, n);
		fill(partial, n);
		memcpy(wire + offset, partial, n * sizeof(float));
		memcpy(x, before, n * sizeof(float));
		memcpy(narrow, before, n * sizeof(float));
		for (size_t i = 0; i < n; i++) {
			float weighted = 0.7f * before[i];
			plain[i] = partial[i] + weighted;
		}
		vec_accumulate(x, wire + offset, 0.7f, n);
		narrow_vec_accumulate(narrow, wire + offset, 0.7f, n);
		assert_same_bits(plain, x, n * sizeof(float));
		assert_same_bits(plain, narrow, n * sizeof(float));
	}
}

/* x + (to - from): the difference is rounded first. */
static void move_adds_the_difference_of_two_places(void **state)
{
	(void)state;
	static float x[MOST + 1], to[MOST], from[MOST], plain[MOST];
	float one[] = {1.0f}, large[] = {16777218.0f}, near[] = {16777216.0f};
	vec_move(one, large, near, 1);
	assert_true(one[0] == 3.0f); /* 1 + 16777218 first would be 16777220 */
	for (size_t k = 0; k < COUNTS; k++) {
		const size_t n = counts[k];
		fill(x, n + 1);
		fill(to, n);
		fill(from, n);
		const float beyond = x[n];
		for (size_t i = 0; i < n; i++) {
			float way = to[i] - from[i];
			plain[i] = x[i] + way;
		}
		vec_move(x, to, from, n);
		assert_same_bits(plain, x, n * sizeof(float));
		assert_true(x[n] == beyond);
	}
}

static void move_keeps_what_is_not_finite_in_its_place(void **state)
{
	(void)state;
	float x[] = {1.0f, NAN, INFINITY, 1.0f, 1.0f, 1.0f}, to[] = {2.0f, 2.0f, 2.0f, NAN, INFINITY, INFINITY},
	      from[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, INFINITY};
	vec_move(x, to, from, 6);
	assert_true(x[0] == 2.0f);
	assert_true(isnan(x[1]) != 0);
	assert_true(isinf(x[2]) != 0);
	assert_true(isnan(x[3]) != 0);
	assert_true(isinf(x[4]) != 0);
	assert_true(isnan(x[5]) != 0);
}

static void loops_touch_nothing_beyond_count(void **state)
{
	(void)state;
	for (size_t n = 0; n < 70; n++) {
		float a[80], t[80], d[80], partial[80];
		for (size_t i = 0; i < 80; i++)
			a[i] = t[i] = d[i] = partial[i] = 5.0f;
		vec_delta(d, a, t, n);
		vec_scale(a, 2.0f, n);
		vec_accumulate(t, partial, 2.0f, n);
		for (size_t i = 0; i < 80; i++) {
			assert_true(d[i] == (i < n ? 0.0f : 5.0f));
			assert_true(a[i] == (i < n ? 10.0f : 5.0f));
			assert_true(t[i] == (i < n ? 15.0f : 5.0f));
		}
	}
}

static void weight_zero_never_looks_at_nan_or_infinity(void **state)
{
	(void)state;
	for (size_t n = 1; n < 40; n++) {
		float x[40], y[40], partial[40];
		for (size_t i = 0; i < n; i++) {
			x[i] = y[i] = i % 2 == 0 ? NAN : INFINITY;
			partial[i] = (float)i;
		}
		vec_scale(x, 0.0f, n);
		vec_accumulate(y, partial, 0.0f, n);
		for (size_t i = 0; i < n; i++) {
			assert_true(x[i] == 0.0f);
			assert_true(y[i] == (float)i);
		}
	}
}

static void one_bad_element_anywhere_makes_the_sum_nonfinite(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY};
	for (size_t where = 0; where < 37; where++)
		for (size_t b = 0; b < 3; b++) {
			float anchor[37] = {0}, theta[37] = {0}, delta[37];
			theta[where] = bad[b];
			double sum = vec_delta(delta, anchor, theta, 37);
			assert_true(!isfinite(sum));
			assert_true(!isfinite(vec_square_sum(delta, 37)));
			assert_true((isnan(sum) != 0) == (b == 0));
		}
}

static void largest_floats_and_denormals_have_exact_finite_sums(void **state)
{
	(void)state;
	const float largest = 3.4028234663852886e38f, smallest = 1.401298464324817e-45f;
	float anchor[48], theta[48] = {0}, delta[48];
	for (size_t i = 0; i < 48; i++)
		anchor[i] = largest;
	double sum = vec_delta(delta, anchor, theta, 48);
	assert_true(isfinite(sum) != 0);
	assert_true(sum == 48.0 * (double)largest * (double)largest);
	for (size_t i = 0; i < 48; i++) {
		anchor[i] = largest;
		theta[i] = -largest; /* the difference is beyond float32: infinity, so the verdict is nonfinite */
	}
	assert_true(isinf(vec_delta(delta, anchor, theta, 48)) != 0);
	for (size_t i = 0; i < 48; i++) {
		anchor[i] = 3.0f * smallest;
		theta[i] = smallest;
	}
	sum = vec_delta(delta, anchor, theta, 48);
	assert_true(delta[0] == 2.0f * smallest);
	assert_true(sum > 0.0);
	assert_true(sum == 48.0 * 4.0 * (double)smallest * (double)smallest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(delta_and_its_sum_equal_the_plain_order),
		cmocka_unit_test(scale_equals_the_plain_product),
		cmocka_unit_test(accumulate_takes_a_partial_at_any_alignment),
		cmocka_unit_test(move_adds_the_difference_of_two_places),
		cmocka_unit_test(move_keeps_what_is_not_finite_in_its_place),
		cmocka_unit_test(loops_touch_nothing_beyond_count),
		cmocka_unit_test(weight_zero_never_looks_at_nan_or_infinity),
		cmocka_unit_test(one_bad_element_anywhere_makes_the_sum_nonfinite),
		cmocka_unit_test(largest_floats_and_denormals_have_exact_finite_sums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

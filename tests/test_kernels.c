/* The row kernels against the same in double precision, at widths below, at and beyond the 16 lanes; and the
 * generator of random numbers. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/draw.h"
#include "worker/kernels.h"

enum { WIDTH_MAX = 53 };

static const size_t WIDTHS[] = {1, 2, 15, 16, 17, 32, 48, WIDTH_MAX};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof *WIDTHS };

/* Normal numbers, scaled. */
static void fill(float *x, size_t count, uint64_t stream, double deviation)
{
	draw_normals(99, stream, deviation, x, count);
}

static void assert_close(double x, double expected, double absolute)
{
	if (!(fabs(x - expected) <= absolute))
		fail_msg("%.9g, expected %.9g", x, expected);
}

static void exp_is_within_two_ulp(void **state)
{
	enum { COUNT = 64 };
	float x[COUNT], y[COUNT];
	double worst = 0;
	(void)state;
	for (uint32_t bits = 0; bits < 0x42ae9999u; bits += COUNT * 499) { /* magnitudes up to 87.3 */
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t magnitude = bits + i * 499 > 0x42ae9999u ? 0x42ae9999u : bits + i * 499;
			memcpy(&x[i], &magnitude, sizeof x[i]);
			if (i % 2)
				x[i] = -x[i];
		}
		memcpy(y, x, sizeof y);
		row_exp(y, COUNT);
		for (size_t i = 0; i < COUNT; i++) {
			double exact = exp((double)x[i]);
			double ulp = (double)nextafterf((float)exact, INFINITY) - (double)(float)exact;
			worst = fmax(worst, fabs((double)y[i] - exact) / ulp);
		}
	}
	printf("largest error: %.2f ulp\n", worst);
	assert_true(worst < 2);
}

static void exp_of_extremes_is_clamped_and_nan_stays(void **state)
{
	float x[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 0, -0.0f};
	(void)state;
	row_exp(x, sizeof x / sizeof *x);
	assert_true(isnan(x[0]));
	assert_true(x[1] > 2e38f);
	assert_true(x[2] >= 0 && x[2] < 1.3e-38f);
	assert_true(x[3] > 2e38f);
	assert_true(x[4] >= 0 && x[4] < 1.3e-38f);
	assert_true(x[5] == 1);
	assert_true(x[6] == 1);
}

static void softmax_is_normalised_and_zero_beyond_valid(void **state)
{
	(void)state;
	for (size_t w = 0; w < WIDTH_COUNT; w++) {
		float x[WIDTH_MAX], first[WIDTH_MAX], again[WIDTH_MAX], sum;
		size_t count = WIDTHS[w], valid = (count + 1) / 2;
		double exact = 0;
		fill(x, count, w, 10);
		for (size_t i = 0; i < valid; i++)
			exact += exp((double)x[i]);
		memcpy(first, x, sizeof x);
		memcpy(again, x, sizeof x);
		float log_sum = row_softmax(first, valid, count, &sum);
		assert_close((double)log_sum, log(exact), 1e-5);
		row_softmax_again(again, log_sum, valid, count);
		for (size_t i = 0; i < count; i++) {
			double expected = i < valid ? exp((double)x[i]) / exact : 0;
			assert_close((double)(first[i] / sum), expected, 1e-6);
			assert_close((double)again[i], expected, 1e-5);
		}
	}
}

static void cross_entropy_matches_definition(void **state)
{
	(void)state;
	for (size_t w = 0; w < WIDTH_COUNT; w++) {
		float x[WIDTH_MAX], g[WIDTH_MAX];
		size_t count = WIDTHS[w];
		uint32_t target = (uint32_t)count / 2;
		double sum = 0;
		fill(x, count, w, 30);
		for (size_t i = 0; i < count; i++)
			sum += exp((double)x[i]);
		memcpy(g, x, sizeof g);
		assert_close(row_cross_entropy(g, count, target, 0.5f), log(sum) - (double)x[target], 1e-5);
		for (size_t i = 0; i < count; i++)
			assert_close((double)g[i], 0.5 * (exp((double)x[i]) / sum - (i == target)), 1e-6);
	}
}

static void cross_entropy_of_nan_is_nan(void **state)
{
	float x[20] = {0};
	(void)state;
	x[13] = NAN;
	assert_true(isnan(row_cross_entropy(x, 20, 2, 1)));
}

static void swiglu_and_gradient_match_definition(void **state)
{
	(void)state;
	for (size_t w = 0; w < WIDTH_COUNT; w++) {
		float gate_up[2 * 2 * WIDTH_MAX], d[2 * 2 * WIDTH_MAX], h[2 * WIDTH_MAX], again[2 * WIDTH_MAX];
		float dh[2 * WIDTH_MAX];
		size_t width = WIDTHS[w];
		fill(gate_up, 4 * width, w, 4);
		fill(dh, 2 * width, w + 50, 1);
		memcpy(d, gate_up, sizeof d);
		memcpy(again, dh, sizeof again);
		swiglu(h, gate_up, 2, width);
		swiglu_backward(again, d, 2, width);
		for (size_t i = 0; i < 2 * width; i++) {
			size_t at = i / width * 2 * width + i % width;
			double a = (double)gate_up[at], b = (double)gate_up[at + width], s = 1 / (1 + exp(-a));
			double up = (double)dh[i];
			assert_close((double)h[i], a * s * b, 2e-6 * (1 + fabs(a * b)));
			assert_close((double)again[i], (double)h[i], 0);
			assert_close((double)d[at], up * b * (s + a * s * (1 - s)), 3e-6 * (1 + fabs(up * a * b)));
			assert_close((double)d[at + width], up * a * s, 2e-6 * (1 + fabs(up * a)));
		}
	}
}

static void dot_and_norm_match_definition(void **state)
{
	(void)state;
	for (size_t w = 0; w < WIDTH_COUNT; w++) {
		float x[WIDTH_MAX], weight[WIDTH_MAX], y[WIDTH_MAX], rstd;
		size_t width = WIDTHS[w];
		double squares = 0, product = 0;
		fill(x, width, w, 3);
		fill(weight, width, w + 50, 1);
		for (size_t i = 0; i < width; i++) {
			squares += (double)x[i] * (double)x[i];
			product += (double)x[i] * (double)weight[i];
		}
		assert_close((double)row_dot(x, weight, width), product, 1e-6 * squares);
		rms_norm(y, &rstd, x, weight, 1, width, 1e-5);
		double expected = 1 / sqrt(squares / (double)width + 1e-5);
		assert_close((double)rstd, expected, 1e-6 * expected);
		for (size_t i = 0; i < width; i++)
			assert_close((double)y[i], (double)x[i] * expected * (double)weight[i], 1e-5);
	}
}

static void rope_turns_pairs_and_back(void **state)
{
	float x[2 * 20], begin[2 * 20], cosine[4], sine[4];
	const double angles[4] = {0.3, 1.2, 2.5, -0.7};
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		cosine[i] = (float)cos(angles[i]);
		sine[i] = (float)sin(angles[i]);
	}
	fill(x, 40, 1, 1);
	memcpy(begin, x, sizeof x);
	rope(matrix(x, 20), cosine, sine, 2, 3, 2, 1); /* 2 rows, 3 heads of 4; the last 8 columns stay */
	for (size_t row = 0; row < 2; row++) {
		const float *from = begin + row * 20, *to = x + row * 20;
		for (size_t at = 0; at < 12; at++) {
			size_t pair = at % 2, head = at / 4 * 4;
			double a = (double)from[head + pair], b = (double)from[head + 2 + pair];
			double c = cos(angles[row * 2 + pair]), s = sin(angles[row * 2 + pair]);
			assert_close((double)to[at], at % 4 < 2 ? a * c - b * s : b * c + a * s, 1e-6);
		}
		assert_memory_equal(from + 12, to + 12, 8 * sizeof(float));
	}
	rope(matrix(x, 20), cosine, sine, 2, 3, 2, -1);
	for (size_t i = 0; i < 40; i++)
		assert_close((double)x[i], (double)begin[i], 1e-6);
}

/* tests/kernels_narrow.c */
float narrow_row_dot(const float *x, const float *y, size_t count);
float narrow_row_softmax(float *x, size_t valid, size_t count, float *ret_sum);
double narrow_row_cross_entropy(float *logits, size_t vocab_size, uint32_t target, float scale);
void narrow_rms_norm_backward(float *dx, float *dw, const float *dy, const float *rstd, const float *x, const float *w,
			      size_t rows, size_t width);
void narrow_swiglu_backward(float *h, float *gate_up, size_t rows, size_t width);
void narrow_adamw_update(float *theta, float *m, float *v, const float *gradient, size_t count,
			 const struct adamw_update *update);

/* Two copies of the same numbers, one for each width of registers. */
struct twice {
	float wide[4 * WIDTH_MAX], narrow[4 * WIDTH_MAX];
};

static void fill_twice(struct twice *t, size_t count, uint64_t stream)
{
	fill(t->wide, count, stream, 5);
	memcpy(t->narrow, t->wide, count * sizeof(float));
}

static void assert_same(const struct twice *t, size_t count)
{
	assert_memory_equal(t->wide, t->narrow, count * sizeof(float));
}

static void all_widths_give_equal_bits(void **state)
{
	(void)state;
	for (size_t w = 0; w < WIDTH_COUNT; w++) {
		struct twice a, b, c, d;
		size_t n = WIDTHS[w];
		float sums[2], rstd = 0.7f;
		fill_twice(&a, 2 * n, w);
		fill_twice(&b, n, w + 20);
		fill_twice(&c, n, w + 40);
		fill_twice(&d, n, w + 60);
		assert_true(row_dot(a.wide, b.wide, n) == narrow_row_dot(a.wide, b.wide, n));
		rms_norm_backward(b.wide, c.wide, d.wide, &rstd, a.wide, a.wide + n, 1, n);
		narrow_rms_norm_backward(b.narrow, c.narrow, d.narrow, &rstd, a.narrow, a.narrow + n, 1, n);
		assert_same(&b, n);
		assert_same(&c, n);
		swiglu_backward(d.wide, a.wide, 1, n);
		narrow_swiglu_backward(d.narrow, a.narrow, 1, n);
		assert_same(&a, 2 * n);
		assert_same(&d, n);
		assert_true(row_cross_entropy(b.wide, n, 0, 1) == narrow_row_cross_entropy(b.narrow, n, 0, 1));
		assert_same(&b, n);
		assert_true(row_softmax(c.wide, n, n, &sums[0]) == narrow_row_softmax(c.narrow, n, n, &sums[1]));
		assert_true(sums[0] == sums[1]);
		assert_same(&c, n);
		const struct adamw_update u = {0.3f, 0.999f, 0.9f, 0.95f, 0.1f, 0.05f, 0.01f, 4.2f, 1e-8f};
		adamw_update(a.wide, b.wide, c.wide, d.wide, n, &u);
		narrow_adamw_update(a.narrow, b.narrow, c.narrow, d.narrow, n, &u);
		assert_same(&a, n);
		assert_same(&b, n);
		assert_same(&c, n);
	}
}

/* Bits of the first numbers, so that a change of generator, compiler or machine shows. */
static void draws_are_the_same_everywhere(void **state)
{
	float x[7];
	const uint32_t expected[7] = {0xbfaa1094, 0xbf11a7a1, 0x3f9905b4, 0xbf07fb09, 0xbf10da1b, 0x3ed4ab02,
				      0x3ee38d24};
	uint32_t bits[7];
	(void)state;
	draw_normals(1, 2, 1, x, 7);
	memcpy(bits, x, sizeof bits);
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(bits[i], expected[i]);
}

static void normals_have_their_moments(void **state)
{
	enum { COUNT = 200001 };
	float *x = calloc(COUNT, sizeof *x);
	double moments[4] = {0};
	(void)state;
	assert_non_null(x);
	draw_normals(5, 0, 2, x, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		for (unsigned k = 0; k < 4; k++)
			moments[k] += pow((double)x[i] / 2, k + 1) / COUNT;
	assert_close(moments[0], 0, 0.01); /* four standard errors and more */
	assert_close(moments[1], 1, 0.015);
	assert_close(moments[2], 0, 0.04);
	assert_close(moments[3], 3, 0.1);
	free(x);
}

static void uniforms_fill_their_interval(void **state)
{
	enum { BINS = 16, COUNT = 160000 };
	unsigned bins[BINS] = {0};
	(void)state;
	for (uint64_t i = 0; i < COUNT; i++) {
		double u = draw_uniform(3, 4, i);
		assert_true(u >= 0 && u < 1);
		bins[(size_t)(u * BINS)]++;
	}
	for (size_t i = 0; i < BINS; i++)
		assert_close(bins[i], COUNT / BINS, 500); /* five standard deviations */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exp_is_within_two_ulp),
		cmocka_unit_test(exp_of_extremes_is_clamped_and_nan_stays),
		cmocka_unit_test(softmax_is_normalised_and_zero_beyond_valid),
		cmocka_unit_test(cross_entropy_matches_definition),
		cmocka_unit_test(cross_entropy_of_nan_is_nan),
		cmocka_unit_test(swiglu_and_gradient_match_definition),
		cmocka_unit_test(dot_and_norm_match_definition),
		cmocka_unit_test(rope_turns_pairs_and_back),
		cmocka_unit_test(all_widths_give_equal_bits),
		cmocka_unit_test(draws_are_the_same_everywhere),
		cmocka_unit_test(normals_have_their_moments),
		cmocka_unit_test(uniforms_fill_their_interval),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Loops over float32 arrays, written in blocks with the compilers' vector types.
 *
 * These loops wait for memory. To keep up with it each is compiled twice, for the baseline of the machine and, on x86, for
 * AVX2, and picked at the call; wider registers gain nothing. A sum has LANES lanes at any width, folded in one fixed order,
 * so the width never shows in a result. Loads go through memcpy, which costs nothing and allows any alignment. */

#include <string.h>

#include "core/vec.h"
#include "core/width.h"

enum {
	QUAD = 4,
	LANES = 4 * QUAD, /* of a sum: part of the result */
	BLOCK = 8         /* of the loops without a sum: free */
};

typedef float quad_float __attribute__((vector_size(QUAD * sizeof(float))));
typedef double quad_double __attribute__((vector_size(QUAD * sizeof(double))));
typedef float block_float __attribute__((vector_size(BLOCK * sizeof(float))));

/* Four quads, each a register (two on the baseline): one vector of LANES doubles would live in memory. */
struct lanes_sum {
	quad_double a, b, c, d;
};

INLINE void quad_add_squares(quad_double *sum, const float *x)
{
	quad_double wide = {(double)x[0], (double)x[1], (double)x[2], (double)x[3]};
	*sum += wide * wide;
}

INLINE void quad_delta_add_squares(quad_double *sum, float *ret_delta, const float *anchor, const float *theta)
{
	quad_float a, t;
	memcpy(&a, anchor, sizeof a);
	memcpy(&t, theta, sizeof t);
	a -= t;
	memcpy(ret_delta, &a, sizeof a);
	quad_double wide = {(double)a[0], (double)a[1], (double)a[2], (double)a[3]};
	*sum += wide * wide;
}

/* The sum of all lanes; the rest x [count < LANES] goes into the first lanes. */
INLINE double lanes_fold(const struct lanes_sum *sum, const float *x, size_t count)
{
	double lanes[LANES];
	memcpy(lanes, sum, sizeof lanes);
	for (size_t i = 0; i < count; i++)
		lanes[i] += (double)x[i] * (double)x[i];
	for (size_t half = LANES / 2; half > 0; half /= 2)
		for (size_t i = 0; i < half; i++)
			lanes[i] += lanes[i + half];
	return lanes[0];
}

INLINE double delta_loop(float *ret_delta, const float *anchor, const float *theta, size_t count)
{
	struct lanes_sum sum = {0};
	size_t i = 0;
	for (; i + LANES <= count; i += LANES) {
		quad_delta_add_squares(&sum.a, ret_delta + i, anchor + i, theta + i);
		quad_delta_add_squares(&sum.b, ret_delta + i + QUAD, anchor + i + QUAD, theta + i + QUAD);
		quad_delta_add_squares(&sum.c, ret_delta + i + 2 * QUAD, anchor + i + 2 * QUAD, theta + i + 2 * QUAD);
		quad_delta_add_squares(&sum.d, ret_delta + i + 3 * QUAD, anchor + i + 3 * QUAD, theta + i + 3 * QUAD);
	}
	for (size_t k = i; k < count; k++)
		ret_delta[k] = anchor[k] - theta[k];
	return lanes_fold(&sum, ret_delta + i, count - i);
}

INLINE double square_sum_loop(const float *x, size_t count)
{
	struct lanes_sum sum = {0};
	size_t i = 0;
	for (; i + LANES <= count; i += LANES) {
		quad_add_squares(&sum.a, x + i);
		quad_add_squares(&sum.b, x + i + QUAD);
		quad_add_squares(&sum.c, x + i + 2 * QUAD);
		quad_add_squares(&sum.d, x + i + 3 * QUAD);
	}
	return lanes_fold(&sum, x + i, count - i);
}

INLINE void scale_loop(float *x, float weight, size_t count)
{
	block_float block;
	size_t i = 0;
	for (; i + BLOCK <= count; i += BLOCK) {
		memcpy(&block, x + i, sizeof block);
		block *= weight;
		memcpy(x + i, &block, sizeof block);
	}
	for (; i < count; i++)
		x[i] *= weight;
}

INLINE void accumulate_loop(float *x, const unsigned char *from, float weight, size_t count)
{
	block_float block, sum;
	size_t i = 0;
	for (; i + BLOCK <= count; i += BLOCK) {
		memcpy(&block, x + i, sizeof block);
		memcpy(&sum, from + i * sizeof(float), sizeof sum);
		sum += block * weight;
		memcpy(x + i, &sum, sizeof sum);
	}
	for (; i < count; i++) {
		float before;
		memcpy(&before, from + i * sizeof(float), sizeof before);
		x[i] = before + weight * x[i];
	}
}

/* ---- At the width of this machine ---- */

WIDE static double delta_wide(float *ret_delta, const float *anchor, const float *theta, size_t count)
{
	return delta_loop(ret_delta, anchor, theta, count);
}

WIDE static double square_sum_wide(const float *x, size_t count)
{
	return square_sum_loop(x, count);
}

WIDE static void scale_wide(float *x, float weight, size_t count)
{
	scale_loop(x, weight, count);
}

WIDE static void accumulate_wide(float *x, const unsigned char *from, float weight, size_t count)
{
	accumulate_loop(x, from, weight, count);
}

double vec_delta(float *ret_delta, const float *anchor, const float *theta, size_t count)
{
	if (count == 0)
		return 0.0;
	return machine_is_wide() ? delta_wide(ret_delta, anchor, theta, count) : delta_loop(ret_delta, anchor, theta, count);
}

double vec_square_sum(const float *x, size_t count)
{
	if (count == 0)
		return 0.0;
	return machine_is_wide() ? square_sum_wide(x, count) : square_sum_loop(x, count);
}

void vec_scale(float *x, float weight, size_t count)
{
	if (count == 0)
		return;
	if (weight == 0.0f)
		memset(x, 0, count * sizeof(float));
	else if (machine_is_wide())
		scale_wide(x, weight, count);
	else
		scale_loop(x, weight, count);
}

void vec_accumulate(float *x, const void *partial, float weight, size_t count)
{
	if (count == 0)
		return;
	if (weight == 0.0f)
		memcpy(x, partial, count * sizeof(float));
	else if (machine_is_wide())
		accumulate_wide(x, partial, weight, count);
	else
		accumulate_loop(x, partial, weight, count);
}

void vec_move(float *x, const float *to, const float *from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] += to[i] - from[i];
}

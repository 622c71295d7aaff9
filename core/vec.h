#ifndef EDIT_CORE_VEC_H
#define EDIT_CORE_VEC_H

/* Loops over float32 arrays. Every result is the same to the bit on every machine: fixed summation order with a fixed
 * number of lanes on all instruction sets, no fused multiply-add, sums in double. Owns nothing. */

#include "core/base.h"

/* ret_delta[i] = anchor[i] - theta[i]; returns the sum of squares of ret_delta in double (NaN or infinity if any element
 * is). All arrays [count]; ret_delta overlaps neither. */
double vec_delta(float *ret_delta, const float *anchor, const float *theta, size_t count);

/* Sum of squares in double, in the same order as vec_delta. */
double vec_square_sum(const float *x, size_t count);

/* x[i] = weight * x[i]; weight 0 writes zeros, whatever x holds (0 x NaN never happens). */
void vec_scale(float *x, float weight, size_t count);

/* x[i] = partial[i] + weight * x[i]; weight 0 copies partial and does not look at x. partial: float32 [count] at any
 * alignment. */
void vec_accumulate(float *x, const void *partial, float weight, size_t count);

/* x[i] = x[i] + (to[i] - from[i]), in float32; no overlap. */
void vec_move(float *x, const float *to, const float *from, size_t count);

#endif

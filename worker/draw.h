#ifndef EDIT_WORKER_DRAW_H
#define EDIT_WORKER_DRAW_H

/* Random numbers as a function of (seed, stream, index): no state, any part can be made on its own, and the results
 * are the same to the bit on every machine, because only exactly rounded operations of IEEE 754 are used (no log,
 * sin or cos of a C library). */

#include "core/base.h"

/* 64 random bits. */
uint64_t draw_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1), 53 bits. */
double draw_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* ret_x[i], 0 <= i < count, normal with mean 0 and the deviation given (Box-Muller). */
void draw_normals(uint64_t seed, uint64_t stream, double deviation, float *ret_x, size_t count);

#endif

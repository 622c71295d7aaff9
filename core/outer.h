#ifndef EDIT_CORE_OUTER_H
#define EDIT_CORE_OUTER_H

/* The outer optimiser: clip, then SGD with Nesterov momentum in the form of torch.optim.SGD (first step: v = g). All
 * members run it on all shards with equal inputs, so anchor and momentum stay equal to the bit. */

#include "core/base.h"

/* min(1, clip / (sqrt(square_norm) + 1e-6)). */
double outer_clip_scale(double square_norm, double clip);

/* g = scale * mean;  v = momentum_factor * v + g;  anchor -= lr * (g + momentum_factor * v), all in float32, arrays
 * [count]. */
void outer_step(float *anchor, float *momentum, const float *mean, double scale, double lr, double momentum_factor,
		size_t count);

#endif

/* The outer optimiser's step, one pass over three arrays. Elements do not depend on each other, so the width at which the
 * loop runs never shows in a result. Keeps nothing between calls. */

#include <math.h>
#include <string.h>

#include "core/outer.h"
#include "core/width.h"

enum { BLOCK = 8 };

typedef float block_float __attribute__((vector_size(BLOCK * sizeof(float))));

double outer_clip_scale(double square_norm, double clip)
{
	double scale = clip / (sqrt(square_norm) + 1e-6);
	return scale < 1.0 ? scale : 1.0;
}

INLINE void step_loop(float *anchor, float *momentum, const float *mean, float scale, float rate, float factor,
		      size_t count)
{
	block_float a, v, g;
	size_t i = 0;

	for (; i + BLOCK <= count; i += BLOCK) {
		memcpy(&a, anchor + i, sizeof a);
		memcpy(&v, momentum + i, sizeof v);
		memcpy(&g, mean + i, sizeof g);
		g *= scale;
		v = factor * v + g;
		a -= rate * (g + factor * v);
		memcpy(anchor + i, &a, sizeof a);
		memcpy(momentum + i, &v, sizeof v);
	}
	for (; i < count; i++) {
		float gradient = scale * mean[i];
		momentum[i] = factor * momentum[i] + gradient;
		anchor[i] -= rate * (gradient + factor * momentum[i]);
	}
}

WIDE static void step_wide(float *anchor, float *momentum, const float *mean, float scale, float rate,
			   float factor, size_t count)
{
	step_loop(anchor, momentum, mean, scale, rate, factor, count);
}

void outer_step(float *anchor, float *momentum, const float *mean, double scale, double lr,
		double momentum_factor, size_t count)
{
	if (machine_is_wide())
		step_wide(anchor, momentum, mean, (float)scale, (float)lr, (float)momentum_factor, count);
	else
		step_loop(anchor, momentum, mean, (float)scale, (float)lr, (float)momentum_factor, count);
}

/* The outer step against hand-computed rounds, the reference's vectors, and plain scalar code to the bit. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/outer.h"
#include "core/vec.h"
#include "tests/reference_edit.h"

/* tests/outer_narrow.c */
void narrow_outer_step(float *anchor, float *momentum, const float *mean, double scale, double lr, double momentum_factor,
		       size_t count);
double narrow_outer_clip_scale(double square_norm, double clip);

enum { MOST = 1031 };

/* lr 0.5, momentum 0.5, numbers that float32 holds exactly. The workers move by theta - anchor = -1, -1, +2 (mean over the
 * ring), so the pseudo-gradient is 1, 1, -2:
 *   round 1: v = 1               step = 0.5 (1 + 0.5 x 1)      = 0.75     8 -> 7.25
 *   round 2: v = 0.5 + 1 = 1.5   step = 0.5 (1 + 0.5 x 1.5)    = 0.875    7.25 -> 6.375
 *   round 3: v = 0.75 - 2        step = 0.5 (-2 + 0.5 x -1.25) = -1.3125  6.375 -> 7.6875
 * With the sign turned round the anchor would run away from the workers; with plain momentum round 1 would give 7.5. */
static void three_rounds_by_hand_move_the_anchor_with_the_workers(void **state)
{
	(void)state;
	const float moves[] = {-1.0f, -1.0f, 2.0f};
	const float anchors[] = {7.25f, 6.375f, 7.6875f}, momenta[] = {1.0f, 1.5f, -1.25f};
	float anchor = 8.0f, momentum = 0.0f, theta, delta;
	for (size_t r = 0; r < 3; r++) {
		theta = anchor + moves[r];
		vec_delta(&delta, &anchor, &theta, 1);
		outer_step(&anchor, &momentum, &delta, 1.0, 0.5, 0.5, 1);
		assert_true(anchor == anchors[r]);
		assert_true(momentum == momenta[r]);
	}
}

static void step_equals_plain_code_at_both_widths(void **state)
{
	(void)state;
	static float mean[MOST], anchor[3][MOST], momentum[3][MOST];
	const float scale = (float)0.3, lr = (float)0.8, factor = (float)0.85;
	for (size_t count = 0; count <= MOST; count += count < 40 ? 1 : 991) {
		for (size_t i = 0; i < count; i++) {
			mean[i] = (float)sin((double)(i + count));
			for (size_t k = 0; k < 3; k++) {
				anchor[k][i] = (float)cos((double)i);
				momentum[k][i] = (float)sin(3.0 * (double)i);
			}
		}
		for (size_t i = 0; i < count; i++) {
			float g = scale * mean[i];
			float kept = factor * momentum[0][i];
			momentum[0][i] = kept + g;
			float ahead = factor * momentum[0][i];
			float step = lr * (g + ahead);
			anchor[0][i] -= step;
		}
		outer_step(anchor[1], momentum[1], mean, 0.3, 0.8, 0.85, count);
		narrow_outer_step(anchor[2], momentum[2], mean, 0.3, 0.8, 0.85, count);
		for (size_t k = 1; k < 3; k++) {
			assert_memory_equal(anchor[0], anchor[k], count * sizeof(float));
			assert_memory_equal(momentum[0], momentum[k], count * sizeof(float));
		}
	}
}

static void clip_leaves_small_norms_and_cuts_large_ones(void **state)
{
	(void)state;
	assert_true(outer_clip_scale(0.0, 10.0) == 1.0);
	assert_true(outer_clip_scale(99.0, 10.0) == 1.0);
	assert_true(fabs(outer_clip_scale(400.0, 10.0) - 10.0 / (20.0 + 1e-6)) < 1e-15);
	assert_true(outer_clip_scale(1e300, 1e30) == 1e30 / (1e150 + 1e-6));
	assert_true(narrow_outer_clip_scale(400.0, 10.0) == outer_clip_scale(400.0, 10.0));
}

/* Mean and step of the reference's thetas and weights in float32: what the ring adds up, without the ring. */
static void step_layer(const struct reference_case *history, const struct reference_layer *expected, size_t size,
		       float *anchor, float *momentum)
{
	float theta[16], delta[16], mean[16] = {0};
	assert_in_range(size, 1, 16);
	for (size_t n = 0; n < history->peers; n++) {
		reference_floats(theta, expected->theta[n], size);
		double norm = sqrt(vec_delta(delta, anchor, theta, size));
		if (isfinite(expected->norm[n]))
			assert_true(fabs(norm - expected->norm[n]) <= 1e-6 * fmax(1.0, expected->norm[n]));
		else
			assert_true(!isfinite(norm));
		vec_accumulate(delta, mean, (float)expected->weight[n], size);
		memcpy(mean, delta, size * sizeof(float));
	}
	double square_norm = vec_square_sum(mean, size);
	double scale = outer_clip_scale(square_norm, history->settings.value[PENALTY_CLIP]);
	assert_true(fabs(sqrt(square_norm) - expected->mean_norm) <= 1e-6 * fmax(1.0, expected->mean_norm));
	assert_true(fabs(scale - expected->scale) <= 1e-6);
	if (expected->stepped)
		outer_step(anchor, momentum, mean, scale, history->settings.value[OUTER_LR],
			   history->settings.value[OUTER_MOMENTUM], size);
	assert_true(reference_error(anchor, expected->anchor, size, 1e-3) <= 2e-6);
	assert_true(reference_error(momentum, expected->momentum, size, 1.0) <= 2e-6);
}

static void every_step_of_the_reference_is_reproduced(void **state)
{
	(void)state;
	struct reference_edit *reference = reference_edit_load(REFERENCE_EDIT_PATH);
	for (size_t c = 0; c < reference->case_count; c++) {
		const struct reference_case *history = &reference->cases[c];
		for (size_t l = 0; l < history->layer_count; l++) {
			float anchor[16], momentum[16] = {0};
			reference_floats(anchor, history->anchor0[l], history->sizes[l]);
			for (size_t r = 0; r < history->round_count; r++)
				step_layer(history, reference_layer_at(history, r, l), history->sizes[l], anchor, momentum);
		}
	}
	reference_edit_free(reference);
}

static void largest_means_are_clipped_to_finite_steps(void **state)
{
	(void)state;
	float anchor[20] = {0}, momentum[20] = {0}, mean[20];
	for (size_t i = 0; i < 20; i++)
		mean[i] = 3.4028234663852886e38f;
	double scale = outer_clip_scale(vec_square_sum(mean, 20), 10.0);
	outer_step(anchor, momentum, mean, scale, 0.8, 0.85, 20);
	assert_true(fabs(sqrt(vec_square_sum(momentum, 20)) - 10.0) < 1e-5);
	for (size_t i = 0; i < 20; i++)
		assert_true(isfinite(anchor[i]) != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(three_rounds_by_hand_move_the_anchor_with_the_workers),
		cmocka_unit_test(step_equals_plain_code_at_both_widths),
		cmocka_unit_test(clip_leaves_small_norms_and_cuts_large_ones),
		cmocka_unit_test(every_step_of_the_reference_is_reproduced),
		cmocka_unit_test(largest_means_are_clipped_to_finite_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

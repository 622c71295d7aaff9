/* Detector and weights against every number of tests/vectors/edit.json, and the faults that detectors have had. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/reference_edit.h"

static const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

static void assert_near(double x, double expected, double relative)
{
	if (fabs(x - expected) > relative * fmax(fabs(expected), 1e-300))
		fail_msg("%.17g, expected %.17g", x, expected);
}

static void judge_layer(const struct reference_case *history, const struct reference_layer *expected,
			struct detector *detectors)
{
	double weights[8];
	size_t accepted = 0;
	assert_in_range(history->peers, 1, 8);
	for (size_t n = 0; n < history->peers; n++) {
		struct detector next;
		double z;
		enum verdict verdict = penalty_judge(&detectors[n], &history->settings, expected->norm[n], &next, &z);
		assert_int_equal(verdict, expected->verdict[n]);
		if (isnan(expected->z[n])) {
			assert_int_equal(verdict, VERDICT_NONFINITE);
			assert_true(z == 0.0);
			assert_memory_equal(&next, &detectors[n], sizeof next);
		} else {
			assert_near(z, expected->z[n], 1e-12);
		}
		detectors[n] = next;
		assert_int_equal(next.count, expected->detector[n].count);
		assert_int_equal(next.streak, expected->detector[n].streak);
		assert_near(next.mean, expected->detector[n].mean, 1e-12);
		assert_near(next.var, expected->detector[n].var, 1e-12);
		accepted += verdict == VERDICT_ACCEPTED;
	}
	size_t counted = penalty_weights(expected->norm, expected->verdict, ones, history->peers,
					 history->settings.value[PENALTY_TEMPERATURE], weights);
	assert_int_equal(counted, accepted);
	assert_int_equal(counted > 0, expected->stepped);
	for (size_t n = 0; n < history->peers; n++)
		assert_near(weights[n], expected->weight[n], 1e-12);
}

static void every_number_of_the_reference_is_reproduced(void **state)
{
	(void)state;
	struct reference_edit *reference = reference_edit_load(REFERENCE_EDIT_PATH);
	assert_int_equal(reference->case_count, 15);
	for (size_t c = 0; c < reference->case_count; c++) {
		const struct reference_case *history = &reference->cases[c];
		for (size_t l = 0; l < history->layer_count; l++) {
			struct detector detectors[8] = {{0}};
			for (size_t r = 0; r < history->round_count; r++)
				judge_layer(history, reference_layer_at(history, r, l), detectors);
		}
	}
	reference_edit_free(reference);
}

static uint64_t random_state = 20251202;

static double random_unit(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(random_state >> 11) + 0.5) / 9007199254740992.0;
}

/* Box and Muller. */
static double random_normal(void)
{
	double radius = sqrt(-2.0 * log(random_unit()));
	return radius * cos(6.283185307179586 * random_unit());
}

static bool is_spike(unsigned round)
{
	return round == 600 || round == 900 || round == 1200 || round == 1500;
}

/* Even noise of the same variance as random_normal: no tail. */
static double random_even(void)
{
	return (random_unit() - 0.5) * sqrt(12.0);
}

/* 20 runs of norms that fall slowly, as in training, with 5 % of noise. A detector that takes in its own outliers sees the
 * first spike only: its variance is blown up for the others. */
static void watch_spikes(double threshold, double (*noise)(void))
{
	struct ring_settings settings = ring_settings_standard();
	settings.value[PENALTY_THRESHOLD] = threshold;
	for (unsigned run = 0; run < 20; run++) {
		struct detector detector = {0};
		unsigned false_alarms = 0;
		for (unsigned round = 0; round < 2000; round++) {
			double norm = (1.0 + exp(-(double)round / 1000.0)) * (1.0 + 0.05 * noise());
			double z;
			enum verdict verdict = penalty_judge(&detector, &settings, is_spike(round) ? 3.0 * norm : norm,
							     &detector, &z);
			if (is_spike(round))
				assert_int_equal(verdict, VERDICT_OUTLIER);
			else
				false_alarms += verdict != VERDICT_ACCEPTED;
		}
		assert_in_range(false_alarms, 0, 1);
	}
}

static void detector_sees_every_spike_and_hardly_anything_else(void **state)
{
	(void)state;
	watch_spikes(ring_settings_standard().value[PENALTY_THRESHOLD], random_even);
	/* Of 2,000 normal numbers three lie above 3 sd by right; hardly one above 4.5. */
	watch_spikes(4.5, random_normal);
}

static void judging_changes_nothing_until_it_is_stored(void **state)
{
	(void)state;
	const struct ring_settings settings = ring_settings_standard();
	const struct detector before = {.count = 30, .mean = 1.0, .var = 0.01, .streak = 1};
	struct detector detector = before, first, second;
	double z_first, z_second;
	enum verdict verdict = penalty_judge(&detector, &settings, 1.1, &first, &z_first);
	assert_memory_equal(&detector, &before, sizeof before);
	assert_int_equal(penalty_judge(&detector, &settings, 1.1, &second, &z_second), verdict);
	assert_memory_equal(&first, &second, sizeof first);
	assert_true(z_first == z_second);
	assert_near(penalty_sd(&before), 0.1, 1e-12);
}

static void nonfinite_norms_leave_the_detector_and_its_streak(void **state)
{
	(void)state;
	const struct ring_settings settings = ring_settings_standard();
	const struct detector before = {.count = 30, .mean = 1.0, .var = 0.01, .streak = 2};
	const double norms[] = {NAN, -NAN, INFINITY};
	for (size_t i = 0; i < 3; i++) {
		struct detector next;
		double z = 7.0;
		assert_int_equal(penalty_judge(&before, &settings, norms[i], &next, &z), VERDICT_NONFINITE);
		assert_memory_equal(&next, &before, sizeof before);
		assert_true(z == 0.0);
	}
}

static void only_norms_above_the_mean_are_outliers(void **state)
{
	(void)state;
	const struct ring_settings settings = ring_settings_standard();
	const struct detector before = {.count = 30, .mean = 1.0, .var = 0.01};
	struct detector next;
	double z;
	assert_int_equal(penalty_judge(&before, &settings, 0.0, &next, &z), VERDICT_ACCEPTED);
	assert_near(z, -10.0, 1e-12);
	assert_int_equal(penalty_judge(&before, &settings, 1.31, &next, &z), VERDICT_OUTLIER);
	assert_int_equal(next.streak, 1);
	assert_int_equal(next.count, 30);
}

static void another_interval_is_another_level_of_norms(void **state)
{
	(void)state;
	struct ring_settings settings = ring_settings_standard();
	const struct detector learned = {.count = 30, .mean = 1.0, .var = 0.01, .streak = 1,
					 .interval = settings.value[SYNC_INTERVAL]};
	struct detector detector = penalty_begin(&learned, &settings), next;
	double z;
	assert_memory_equal(&detector, &learned, sizeof learned);
	assert_int_equal(penalty_judge(&detector, &settings, 2.0, &next, &z), VERDICT_OUTLIER);

	settings.value[SYNC_INTERVAL] *= 4;
	detector = penalty_begin(&learned, &settings);
	assert_int_equal(detector.count, 0);
	assert_int_equal(penalty_judge(&detector, &settings, 2.0, &next, &z), VERDICT_ACCEPTED);
	assert_int_equal(next.count, 1);
	assert_near(next.mean, 2.0, 1e-15);
	detector = penalty_begin(&next, &settings);
	assert_memory_equal(&detector, &next, sizeof next); /* once */
}

static void weights_skip_the_rejected_even_if_their_norm_is_nan(void **state)
{
	(void)state;
	const double norms[] = {NAN, 2.0, 0.001, 3.0, INFINITY};
	const enum verdict verdicts[] = {VERDICT_NONFINITE, VERDICT_ACCEPTED, VERDICT_OUTLIER, VERDICT_ACCEPTED,
					 VERDICT_ABSENT};
	double weights[5];
	assert_int_equal(penalty_weights(norms, verdicts, ones, 5, 1.0, weights), 2);
	assert_true(weights[0] == 0.0);
	assert_true(weights[2] == 0.0);
	assert_true(weights[4] == 0.0);
	assert_near(weights[1], 1.0 / (1.0 + exp(-1.0)), 1e-15);
	assert_near(weights[1] + weights[3], 1.0, 1e-15);
}

static void weights_by_steps_are_in_their_proportion(void **state)
{
	(void)state;
	const double norms[] = {2.0, 2.0, 3.0, NAN}, steps[] = {10, 40, 40, 1000};
	const enum verdict verdicts[] = {VERDICT_ACCEPTED, VERDICT_ACCEPTED, VERDICT_ACCEPTED, VERDICT_NONFINITE};
	double weights[4];
	assert_int_equal(penalty_weights(norms, verdicts, steps, 4, 1.0, weights), 3);
	assert_near(weights[1], 4 * weights[0], 1e-15);
	assert_near(weights[2], exp(-1.0) * weights[1], 1e-15);
	assert_near(weights[0] + weights[1] + weights[2], 1.0, 1e-15);
	assert_true(weights[3] == 0.0);
}

static void weights_of_huge_norms_are_finite_and_sum_to_one(void **state)
{
	(void)state;
	const double norms[] = {1e300, 1e300, 1.7e308};
	const enum verdict verdicts[] = {VERDICT_ACCEPTED, VERDICT_ACCEPTED, VERDICT_ACCEPTED};
	double weights[3];
	assert_int_equal(penalty_weights(norms, verdicts, ones, 3, 1e-6, weights), 3);
	assert_true(weights[0] == 0.5);
	assert_true(weights[1] == 0.5);
	assert_true(weights[2] == 0.0);
}

static void weights_are_zero_when_nobody_is_accepted(void **state)
{
	(void)state;
	const double norms[] = {1.0, NAN};
	const enum verdict verdicts[] = {VERDICT_OUTLIER, VERDICT_NONFINITE};
	double weights[] = {5.0, 5.0};
	assert_int_equal(penalty_weights(norms, verdicts, ones, 2, 1.0, weights), 0);
	assert_true(weights[0] == 0.0);
	assert_true(weights[1] == 0.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_of_the_reference_is_reproduced),
		cmocka_unit_test(detector_sees_every_spike_and_hardly_anything_else),
		cmocka_unit_test(judging_changes_nothing_until_it_is_stored),
		cmocka_unit_test(nonfinite_norms_leave_the_detector_and_its_streak),
		cmocka_unit_test(only_norms_above_the_mean_are_outliers),
		cmocka_unit_test(another_interval_is_another_level_of_norms),
		cmocka_unit_test(weights_skip_the_rejected_even_if_their_norm_is_nan),
		cmocka_unit_test(weights_by_steps_are_in_their_proportion),
		cmocka_unit_test(weights_of_huge_norms_are_finite_and_sum_to_one),
		cmocka_unit_test(weights_are_zero_when_nobody_is_accepted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

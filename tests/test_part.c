/* What a member's worker brings to a round of parameters and gets back, method by method, on tiny rings: each rule against a
 * case computed by hand. That all members stay equal in any weather is the simulator's to show. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/tiny.h"

enum { SECOND_US = 1000000 };

/* ---- Means of parameters ---- */

static const size_t two_layers[] = {3, 1};

static void local_sgd_is_the_mean_of_the_parameters_whatever_their_norms(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_LOCAL_SGD, 3, two_layers, 2);
	for (int round = 0; round < 30; round++) {
		const float before = lab->members[0].layers[0].anchor[0];
		tiny_offer(lab, (const float[]){before + 1.0f, before + 2.0f, before + 600.0f});
		tiny_assert_anchors(lab, (double)before + 201.0);
		for (size_t n = 0; n < 3; n++) {
			tiny_assert_theta(lab, n, (double)before + 201.0);
			assert_true(node_weight(lab->members[n].node, 0, 2) == 1.0 / 3.0);
		}
	}
	lab_free(lab);
}

/* Learning rate 0.7, momentum 0.9. Pseudo-gradients 1 and 3, mean 2: v = 2, step 0.7 (2 + 0.9 x 2) = 2.66. Then 1 and -3,
 * mean -1: v = 1.8 - 1 = 0.8, step 0.7 (-1 + 0.72) = -0.196. */
static void diloco_is_the_uniform_mean_with_nesterov_momentum(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DILOCO, 2, two_layers, 2);
	tiny_offer(lab, (const float[]){-1.0f, -3.0f});
	tiny_assert_anchors(lab, -2.66);
	tiny_offer(lab, (const float[]){-2.66f - 1.0f, -2.66f + 3.0f});
	tiny_assert_anchors(lab, -2.464);
	tiny_assert_all(lab->members[1].layers[0].momentum, 3, 0.8);
	tiny_assert_theta(lab, 1, -2.464);
	lab_free(lab);
}

/* Norms 1, 2, 3: weights 1, 1/e, 1/e^2 over their sum 1.50321472. Mean of the pseudo-gradients 1, 2, 3 with them:
 * 1.42478961, and v = mean, step 0.8 (1 + 0.85) of it = 2.10868862. */
static void edit_weighs_by_the_exponential_of_the_norm(void **state)
{
	(void)state;
	const size_t one = 1;
	struct lab *lab = tiny_ring(METHOD_EDIT, 3, &one, 1);
	tiny_offer(lab, (const float[]){-1.0f, -2.0f, -3.0f});
	const double weights[] = {0.66524096, 0.24472847, 0.09003057};
	for (uint32_t n = 0; n < 3; n++)
		assert_true(fabs(node_weight(lab->members[0].node, 0, n) - weights[n]) < 1e-8);
	tiny_assert_anchors(lab, -2.10868862);
	lab_free(lab);
}

/* ---- Rounds behind the worker's steps ---- */

static void co2_gives_layers_back_at_the_offer_and_the_result_a_round_late(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_CO2, 2, two_layers, 2);
	tiny_set_theta(lab, 0, -1.0f);
	tiny_set_theta(lab, 1, -3.0f);
	lab_offer(lab, 0, false);
	assert_int_equal(lab->members[0].published, 2);
	tiny_assert_rounds(lab, 0);
	tiny_assert_theta(lab, 0, -1.0);
	tiny_set_theta(lab, 0, -2.0f); /* steps on during the round */
	lab_offer(lab, 1, false);
	tiny_set_theta(lab, 1, -3.5f);
	tiny_settle(lab);
	/* as diloco, of theta at the offer */
	tiny_assert_rounds(lab, 1);
	tiny_assert_anchors(lab, -2.66);
	tiny_assert_theta(lab, 0, -2.0);
	tiny_assert_theta(lab, 1, -3.5);
	/* theta + anchor - snapshot: -2 + (-2.66 + 1), -3.5 + (-2.66 + 3) */
	lab_offer(lab, 0, false);
	assert_int_equal(lab->members[0].published, 2);
	tiny_assert_theta(lab, 0, -3.66);
	lab_offer(lab, 1, false);
	tiny_assert_theta(lab, 1, -3.16);
	tiny_settle(lab);
	/* pseudo-gradients 1 and 0.5: v = 1.8 + 0.75, step 0.7 (0.75 + 0.9 x 2.55) = 2.1315 */
	tiny_assert_rounds(lab, 2);
	tiny_assert_anchors(lab, -2.66 - 2.1315);
	/* the last offer waits for its round */
	lab_offer(lab, 0, true);
	assert_int_equal(lab->members[0].published, 0);
	lab_offer(lab, 1, false);
	tiny_settle(lab);
	assert_int_equal(lab->members[0].published, 2);
	assert_memory_equal(lab->members[0].layers[0].theta, lab->members[0].layers[0].anchor, 3 * sizeof(float));
	lab_free(lab);
}

static void co2_begins_anew_with_the_anchor_who_was_left_out(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_CO2, 2, two_layers, 2);
	tiny_offer(lab, (const float[]){-1.0f, NAN});
	assert_int_equal(tiny_verdict(lab, 1), VERDICT_NONFINITE);
	tiny_assert_anchors(lab, -1.33); /* of member 0 alone: 0.7 x 1.9 x 1 */
	tiny_offer(lab, (const float[]){-1.5f, NAN});
	assert_int_equal(lab->members[1].verdict, VERDICT_NONFINITE); /* the worker is told, with the layers of the next offer */
	assert_int_equal(tiny_verdict(lab, 1), VERDICT_ABSENT);
	tiny_assert_theta(lab, 1, -1.33);
	tiny_assert_theta(lab, 0, -1.83);
	/* pseudo-gradient of member 0 alone: 0.5; v = 0.9 + 0.5, step 0.7 (0.5 + 0.9 x 1.4) = 1.232 */
	tiny_assert_anchors(lab, -2.562);
	tiny_offer(lab, (const float[]){-1.83f, -1.33f - 1.0f});
	assert_int_equal(tiny_verdict(lab, 1), VERDICT_ACCEPTED);
	tiny_assert_theta(lab, 1, -2.562 - 1.0);
	lab_free(lab);
}

/* ---- Late ---- */

/* Means of parameters, to make numbers plain, with a grace of two median intervals. The first round ends at anchor 3; its
 * intervals are of 1, 1 and 4 seconds. */
static struct lab *lab_with_grace(double max_stale)
{
	struct ring_settings settings = tiny_settings(METHOD_LOCAL_SGD);
	settings.value[STRAGGLER_GRACE] = 2;
	settings.value[STRAGGLER_MAX_STALE] = max_stale;
	struct lab *lab = lab_new(3, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 3; n++)
		tiny_set_theta(lab, n, 3.0f);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, false);
	lab_pass(lab, 3 * SECOND_US);
	tiny_assert_rounds(lab, 0); /* no interval is known yet: nobody is late in the first round */
	lab_offer(lab, 2, false);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 1);
	tiny_assert_anchors(lab, 3.0);
	return lab;
}

/* A round without member 2: the others offer these parameters a second after the round before. */
static void go_on_without_2(struct lab *lab, float first, float second)
{
	uint64_t round = tiny_round(lab, 0);
	lab_pass(lab, SECOND_US);
	tiny_set_theta(lab, 0, first);
	tiny_set_theta(lab, 1, second);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, false);
	lab_pass(lab, SECOND_US * 8 / 10);
	tiny_assert_rounds(lab, round);
	lab_pass(lab, SECOND_US * 3 / 10);
	tiny_assert_rounds(lab, round + 1);
	assert_int_equal(tiny_verdict(lab, 2), VERDICT_LATE);
	assert_true(node_weight(lab->members[2].node, 0, 2) == 0);
	assert_true(node_weight(lab->members[2].node, 0, 0) == 0.5);
}

static void ring_goes_on_without_a_late_member_whose_progress_counts_later(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(8);
	uint64_t told = lab->members[2].scheduled_count;
	lab->members[2].published = 0;
	tiny_set_theta(lab, 2, 4.0f);
	go_on_without_2(lab, 5.0f, 7.0f);
	tiny_assert_anchors(lab, 6.0);
	tiny_set_theta(lab, 2, 5.0f); /* steps on where it was */
	go_on_without_2(lab, 7.0f, 7.0f);
	tiny_assert_anchors(lab, 7.0);
	tiny_assert_theta(lab, 2, 5.0);
	assert_int_equal(lab->members[2].published, 0);
	assert_int_equal(lab->members[2].scheduled_count, told); /* its interval goes on */
	/* Against the anchor that it began from: 3 - 9 = -6; the others -2 and -4; the mean is -4. */
	tiny_offer(lab, (const float[]){9.0f, 11.0f, 9.0f});
	tiny_assert_rounds(lab, 4);
	assert_int_equal(tiny_verdict(lab, 2), VERDICT_ACCEPTED);
	tiny_assert_anchors(lab, 11.0);
	for (size_t n = 0; n < 3; n++)
		tiny_assert_theta(lab, n, 11.0);
	/* and from then on against the same as the others */
	tiny_offer(lab, (const float[]){12.0f, 12.0f, 15.0f});
	tiny_assert_anchors(lab, 13.0);
	lab_free(lab);
}

static void nobody_is_late_before_more_than_half_have_offered(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(8);
	lab_pass(lab, SECOND_US);
	lab_offer(lab, 0, false);
	lab_pass(lab, 20 * SECOND_US);
	tiny_assert_rounds(lab, 1);
	lab_offer(lab, 1, false);
	lab_pass(lab, 10000);
	tiny_assert_rounds(lab, 2);
	assert_int_equal(tiny_verdict(lab, 2), VERDICT_LATE);
	lab_free(lab);
}

static void two_members_wait_for_each_other(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_LOCAL_SGD);
	settings.value[STRAGGLER_GRACE] = 2;
	struct lab *lab = lab_new(2, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	tiny_offer(lab, (const float[]){1.0f, 1.0f});
	lab_offer(lab, 0, false);
	lab_pass(lab, 100 * SECOND_US);
	tiny_assert_rounds(lab, 1);
	lab_offer(lab, 1, false);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 2);
	assert_int_equal(tiny_verdict(lab, 1), VERDICT_ACCEPTED);
	lab_free(lab);
}

static void member_that_is_late_too_often_begins_anew_with_the_anchor(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(2);
	tiny_set_theta(lab, 2, 100.0f);
	go_on_without_2(lab, 5.0f, 7.0f);
	assert_int_equal(lab->members[2].schedule, 128);
	go_on_without_2(lab, 7.0f, 7.0f);
	assert_int_equal(lab->members[2].schedule, 1); /* at its next boundary */
	tiny_offer(lab, (const float[]){9.0f, 11.0f, 100.0f});
	tiny_assert_rounds(lab, 4);
	assert_int_equal(tiny_verdict(lab, 2), VERDICT_LATE);
	assert_int_equal(lab->members[2].verdict, VERDICT_LATE);
	assert_int_equal(lab->members[2].published, 2);
	tiny_assert_anchors(lab, 10.0);
	tiny_assert_theta(lab, 2, 10.0);
	tiny_offer(lab, (const float[]){10.0f, 10.0f, 13.0f});
	tiny_assert_anchors(lab, 11.0);
	lab_free(lab);
}

static void member_whose_base_was_lost_in_a_restart_is_late_and_gets_the_anchor(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_LOCAL_SGD, 2, two_layers, 2);
	tiny_offer(lab, (const float[]){3.0f, 5.0f});
	lab_restart(lab, (const bool[]){false, true});
	lab_gather(lab);
	tiny_offer(lab, (const float[]){6.0f, 50.0f});
	tiny_assert_rounds(lab, 2);
	assert_int_equal(tiny_verdict(lab, 1), VERDICT_LATE);
	tiny_assert_anchors(lab, 6.0);
	tiny_assert_theta(lab, 1, 6.0);
	tiny_offer(lab, (const float[]){7.0f, 9.0f});
	tiny_assert_anchors(lab, 8.0);
	lab_free(lab);
}

/* ---- By time ---- */

static void first_to_end_its_period_begins_the_round_for_all(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_A_EDIT);
	settings.value[SYNC_PERIOD] = 10;
	settings.value[SYNC_MIN_STEPS] = 3;
	struct lab *lab = lab_new(3, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	lab_pass(lab, 4 * SECOND_US);
	for (size_t n = 0; n < 3; n++)
		assert_true(lab->members[n].schedule == SCHEDULE_LATER);
	lab_offer(lab, 1, false); /* by a clock that is ahead of the others' */
	assert_int_equal(lab->members[0].schedule, 3);
	assert_int_equal(lab->members[2].schedule, 3);
	lab_offer(lab, 0, false);
	lab_offer(lab, 2, false);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 1);
	for (size_t n = 0; n < 3; n++)
		assert_true(lab->members[n].schedule == SCHEDULE_LATER);
	lab_pass(lab, 9 * SECOND_US);
	assert_true(lab->members[1].schedule == SCHEDULE_LATER);
	lab_pass(lab, 2 * SECOND_US);
	assert_int_equal(lab->members[1].schedule, 3);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_sgd_is_the_mean_of_the_parameters_whatever_their_norms),
		cmocka_unit_test(diloco_is_the_uniform_mean_with_nesterov_momentum),
		cmocka_unit_test(edit_weighs_by_the_exponential_of_the_norm),
		cmocka_unit_test(co2_gives_layers_back_at_the_offer_and_the_result_a_round_late),
		cmocka_unit_test(co2_begins_anew_with_the_anchor_who_was_left_out),
		cmocka_unit_test(ring_goes_on_without_a_late_member_whose_progress_counts_later),
		cmocka_unit_test(nobody_is_late_before_more_than_half_have_offered),
		cmocka_unit_test(two_members_wait_for_each_other),
		cmocka_unit_test(member_that_is_late_too_often_begins_anew_with_the_anchor),
		cmocka_unit_test(member_whose_base_was_lost_in_a_restart_is_late_and_gets_the_anchor),
		cmocka_unit_test(first_to_end_its_period_begins_the_round_for_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

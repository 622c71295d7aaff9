/* What a member's worker brings to a round and gets back, method by method, on tiny rings: each rule against a case computed by
 * hand. That all members stay equal in any weather is the simulator's to show. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lab.h"

enum { SECOND_US = 1000000 };

static struct ring_settings settings_of(enum method method)
{
	struct ring_settings settings = ring_settings_standard();
	settings.value[METHOD] = method;
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++)
		method_presets(method, i, &settings.value[i]);
	return settings;
}

static struct lab *lab_of(enum method method, size_t count, const size_t *sizes, size_t layer_count)
{
	struct ring_settings settings = settings_of(method);
	struct lab *lab = lab_new(count, sizes, layer_count, &settings, NULL, 0);
	lab_gather(lab);
	return lab;
}

static void fill(float *numbers, size_t size, float value)
{
	for (size_t i = 0; i < size; i++)
		numbers[i] = value;
}

/* All numbers of a member's theta. */
static void set_theta(struct lab *lab, size_t n, float value)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		fill(lab->members[n].layers[l].theta, lab->members[n].layers[l].size, value);
}

static void assert_all(const float *numbers, size_t size, double expected)
{
	for (size_t i = 0; i < size; i++)
		if (!(fabs((double)numbers[i] - expected) <= 1e-6 * fmax(1.0, fabs(expected))))
			fail_msg("%.9g, expected %.9g", (double)numbers[i], expected);
}

static void assert_theta(const struct lab *lab, size_t n, double expected)
{
	for (size_t l = 0; l < lab->layer_count; l++)
		assert_all(lab->members[n].layers[l].theta, lab->members[n].layers[l].size, expected);
}

static void assert_anchors(const struct lab *lab, double expected)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < lab->layer_count; l++)
			assert_all(lab->members[n].layers[l].anchor, lab->members[n].layers[l].size, expected);
}

static uint64_t round_of(const struct lab *lab, size_t n)
{
	struct node_status status;
	node_status(lab->members[n].node, lab->now_us, &status);
	return status.round;
}

static void assert_rounds(const struct lab *lab, uint64_t round)
{
	for (size_t n = 0; n < lab->count; n++)
		assert_int_equal(round_of(lab, n), round);
}

static enum verdict verdict_on(const struct lab *lab, uint32_t n)
{
	return node_record(lab->members[0].node, 0, n)->verdict;
}

/* Time for acknowledgements, without which nothing new is sent. */
static void settle(struct lab *lab)
{
	lab_pass(lab, 10000);
}

/* Everybody offers these parameters. */
static void offer_thetas(struct lab *lab, const float *thetas)
{
	for (size_t n = 0; n < lab->count; n++)
		set_theta(lab, n, thetas[n]);
	for (size_t n = 0; n < lab->count; n++)
		lab_offer(lab, n, false);
	settle(lab);
}

static void change(struct lab *lab, enum ring_setting setting, double value)
{
	lab_event(lab, 0, (struct event){.kind = EVENT_CHANGE,
					 .change = {.kind = CHANGE_SET, .setting = setting, .value = value}});
}

/* ---- Means of parameters ---- */

static const size_t two_layers[] = {3, 1};

static void local_sgd_is_the_mean_of_the_parameters_whatever_their_norms(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_LOCAL_SGD, 3, two_layers, 2);
	for (int round = 0; round < 30; round++) {
		const float before = lab->members[0].layers[0].anchor[0];
		offer_thetas(lab, (const float[]){before + 1.0f, before + 2.0f, before + 600.0f});
		assert_anchors(lab, (double)before + 201.0);
		for (size_t n = 0; n < 3; n++) {
			assert_theta(lab, n, (double)before + 201.0);
			assert_true(node_weight(lab->members[n].node, 0, 2) == 1.0 / 3.0);
		}
	}
	lab_free(lab);
}

/* Learning rate 0.7, momentum 0.9. Pseudo-gradients 1 and 3, mean 2: v = 2, step 0.7 (2 + 0.9 x 2) = 2.66. Then 1 and -3, mean -1:
 * v = 1.8 - 1 = 0.8, step 0.7 (-1 + 0.72) = -0.196. */
static void diloco_is_the_uniform_mean_with_nesterov_momentum(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DILOCO, 2, two_layers, 2);
	offer_thetas(lab, (const float[]){-1.0f, -3.0f});
	assert_anchors(lab, -2.66);
	offer_thetas(lab, (const float[]){-2.66f - 1.0f, -2.66f + 3.0f});
	assert_anchors(lab, -2.464);
	assert_all(lab->members[1].layers[0].momentum, 3, 0.8);
	assert_theta(lab, 1, -2.464);
	lab_free(lab);
}

/* Norms 1, 2, 3: weights 1, 1/e, 1/e^2 over their sum 1.50321472. Mean of the pseudo-gradients 1, 2, 3 with them: 1.42478961, and
 * v = mean, step 0.8 (1 + 0.85) of it = 2.10868862. */
static void edit_weighs_by_the_exponential_of_the_norm(void **state)
{
	(void)state;
	const size_t one = 1;
	struct lab *lab = lab_of(METHOD_EDIT, 3, &one, 1);
	offer_thetas(lab, (const float[]){-1.0f, -2.0f, -3.0f});
	const double weights[] = {0.66524096, 0.24472847, 0.09003057};
	for (uint32_t n = 0; n < 3; n++)
		assert_true(fabs(node_weight(lab->members[0].node, 0, n) - weights[n]) < 1e-8);
	assert_anchors(lab, -2.10868862);
	lab_free(lab);
}

/* ---- Rounds behind the worker's steps ---- */

static void co2_gives_layers_back_at_the_offer_and_the_result_a_round_late(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_CO2, 2, two_layers, 2);
	set_theta(lab, 0, -1.0f);
	set_theta(lab, 1, -3.0f);
	lab_offer(lab, 0, false);
	assert_int_equal(lab->members[0].published, 2);
	assert_rounds(lab, 0);
	assert_theta(lab, 0, -1.0);
	set_theta(lab, 0, -2.0f); /* steps on during the round */
	lab_offer(lab, 1, false);
	set_theta(lab, 1, -3.5f);
	settle(lab);
	/* as diloco, of theta at the offer */
	assert_rounds(lab, 1);
	assert_anchors(lab, -2.66);
	assert_theta(lab, 0, -2.0);
	assert_theta(lab, 1, -3.5);
	/* theta + anchor - snapshot: -2 + (-2.66 + 1), -3.5 + (-2.66 + 3) */
	lab_offer(lab, 0, false);
	assert_int_equal(lab->members[0].published, 2);
	assert_theta(lab, 0, -3.66);
	lab_offer(lab, 1, false);
	assert_theta(lab, 1, -3.16);
	settle(lab);
	/* pseudo-gradients 1 and 0.5: v = 1.8 + 0.75, step 0.7 (0.75 + 0.9 x 2.55) = 2.1315 */
	assert_rounds(lab, 2);
	assert_anchors(lab, -2.66 - 2.1315);
	/* the last offer waits for its round */
	lab_offer(lab, 0, true);
	assert_int_equal(lab->members[0].published, 0);
	lab_offer(lab, 1, false);
	settle(lab);
	assert_int_equal(lab->members[0].published, 2);
	assert_memory_equal(lab->members[0].layers[0].theta, lab->members[0].layers[0].anchor, 3 * sizeof(float));
	lab_free(lab);
}

static void co2_begins_anew_with_the_anchor_who_was_left_out(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_CO2, 2, two_layers, 2);
	offer_thetas(lab, (const float[]){-1.0f, NAN});
	assert_int_equal(verdict_on(lab, 1), VERDICT_NONFINITE);
	assert_anchors(lab, -1.33); /* of member 0 alone: 0.7 x 1.9 x 1 */
	offer_thetas(lab, (const float[]){-1.5f, NAN});
	assert_int_equal(lab->members[1].verdict, VERDICT_NONFINITE); /* the worker is told, with the layers of the next offer */
	assert_int_equal(verdict_on(lab, 1), VERDICT_ABSENT);
	assert_theta(lab, 1, -1.33);
	assert_theta(lab, 0, -1.83);
	/* pseudo-gradient of member 0 alone: 0.5; v = 0.9 + 0.5, step 0.7 (0.5 + 0.9 x 1.4) = 1.232 */
	assert_anchors(lab, -2.562);
	offer_thetas(lab, (const float[]){-1.83f, -1.33f - 1.0f});
	assert_int_equal(verdict_on(lab, 1), VERDICT_ACCEPTED);
	assert_theta(lab, 1, -2.562 - 1.0);
	lab_free(lab);
}

/* ---- Late ---- */

/* Means of parameters, to make numbers plain, with a grace of two median intervals. The first round ends at anchor 3; its intervals
 * are of 1, 1 and 4 seconds. */
static struct lab *lab_with_grace(double max_stale)
{
	struct ring_settings settings = settings_of(METHOD_LOCAL_SGD);
	settings.value[STRAGGLER_GRACE] = 2;
	settings.value[STRAGGLER_MAX_STALE] = max_stale;
	struct lab *lab = lab_new(3, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 3; n++)
		set_theta(lab, n, 3.0f);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, false);
	lab_pass(lab, 3 * SECOND_US);
	assert_rounds(lab, 0); /* no interval is known yet: nobody is late in the first round */
	lab_offer(lab, 2, false);
	settle(lab);
	assert_rounds(lab, 1);
	assert_anchors(lab, 3.0);
	return lab;
}

/* A round without member 2: the others offer these parameters a second after the round before. */
static void go_on_without_2(struct lab *lab, float first, float second)
{
	uint64_t round = round_of(lab, 0);
	lab_pass(lab, SECOND_US);
	set_theta(lab, 0, first);
	set_theta(lab, 1, second);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, false);
	lab_pass(lab, SECOND_US * 8 / 10);
	assert_rounds(lab, round);
	lab_pass(lab, SECOND_US * 3 / 10);
	assert_rounds(lab, round + 1);
	assert_int_equal(verdict_on(lab, 2), VERDICT_LATE);
	assert_true(node_weight(lab->members[2].node, 0, 2) == 0);
	assert_true(node_weight(lab->members[2].node, 0, 0) == 0.5);
}

static void ring_goes_on_without_a_late_member_whose_progress_counts_later(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(8);
	uint64_t told = lab->members[2].scheduled_count;
	lab->members[2].published = 0;
	set_theta(lab, 2, 4.0f);
	go_on_without_2(lab, 5.0f, 7.0f);
	assert_anchors(lab, 6.0);
	set_theta(lab, 2, 5.0f); /* steps on where it was */
	go_on_without_2(lab, 7.0f, 7.0f);
	assert_anchors(lab, 7.0);
	assert_theta(lab, 2, 5.0);
	assert_int_equal(lab->members[2].published, 0);
	assert_int_equal(lab->members[2].scheduled_count, told); /* its interval goes on */
	/* Against the anchor that it began from: 3 - 9 = -6; the others -2 and -4; the mean is -4. */
	offer_thetas(lab, (const float[]){9.0f, 11.0f, 9.0f});
	assert_rounds(lab, 4);
	assert_int_equal(verdict_on(lab, 2), VERDICT_ACCEPTED);
	assert_anchors(lab, 11.0);
	for (size_t n = 0; n < 3; n++)
		assert_theta(lab, n, 11.0);
	/* and from then on against the same as the others */
	offer_thetas(lab, (const float[]){12.0f, 12.0f, 15.0f});
	assert_anchors(lab, 13.0);
	lab_free(lab);
}

static void nobody_is_late_before_more_than_half_have_offered(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(8);
	lab_pass(lab, SECOND_US);
	lab_offer(lab, 0, false);
	lab_pass(lab, 20 * SECOND_US);
	assert_rounds(lab, 1);
	lab_offer(lab, 1, false);
	lab_pass(lab, 10000);
	assert_rounds(lab, 2);
	assert_int_equal(verdict_on(lab, 2), VERDICT_LATE);
	lab_free(lab);
}

static void two_members_wait_for_each_other(void **state)
{
	(void)state;
	struct ring_settings settings = settings_of(METHOD_LOCAL_SGD);
	settings.value[STRAGGLER_GRACE] = 2;
	struct lab *lab = lab_new(2, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	offer_thetas(lab, (const float[]){1.0f, 1.0f});
	lab_offer(lab, 0, false);
	lab_pass(lab, 100 * SECOND_US);
	assert_rounds(lab, 1);
	lab_offer(lab, 1, false);
	settle(lab);
	assert_rounds(lab, 2);
	assert_int_equal(verdict_on(lab, 1), VERDICT_ACCEPTED);
	lab_free(lab);
}

static void member_that_is_late_too_often_begins_anew_with_the_anchor(void **state)
{
	(void)state;
	struct lab *lab = lab_with_grace(2);
	set_theta(lab, 2, 100.0f);
	go_on_without_2(lab, 5.0f, 7.0f);
	assert_int_equal(lab->members[2].schedule, 128);
	go_on_without_2(lab, 7.0f, 7.0f);
	assert_int_equal(lab->members[2].schedule, 1); /* at its next boundary */
	offer_thetas(lab, (const float[]){9.0f, 11.0f, 100.0f});
	assert_rounds(lab, 4);
	assert_int_equal(verdict_on(lab, 2), VERDICT_LATE);
	assert_int_equal(lab->members[2].verdict, VERDICT_LATE);
	assert_int_equal(lab->members[2].published, 2);
	assert_anchors(lab, 10.0);
	assert_theta(lab, 2, 10.0);
	offer_thetas(lab, (const float[]){10.0f, 10.0f, 13.0f});
	assert_anchors(lab, 11.0);
	lab_free(lab);
}

static void member_whose_base_was_lost_in_a_restart_is_late_and_gets_the_anchor(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_LOCAL_SGD, 2, two_layers, 2);
	offer_thetas(lab, (const float[]){3.0f, 5.0f});
	lab_restart(lab, (const bool[]){false, true});
	lab_gather(lab);
	offer_thetas(lab, (const float[]){6.0f, 50.0f});
	assert_rounds(lab, 2);
	assert_int_equal(verdict_on(lab, 1), VERDICT_LATE);
	assert_anchors(lab, 6.0);
	assert_theta(lab, 1, 6.0);
	offer_thetas(lab, (const float[]){7.0f, 9.0f});
	assert_anchors(lab, 8.0);
	lab_free(lab);
}

/* ---- Gradients ---- */

enum { LAYERS = 3 };

static const size_t three_layers[LAYERS] = {4, 0, 2};

static void begin_step(struct lab *lab, size_t n, struct offer offer)
{
	offer.gradients = true;
	offer.steps = 1;
	lab->members[n].published = 0;
	lab_event(lab, n, (struct event){.kind = EVENT_OFFER, .offer = offer});
}

static void give(struct lab *lab, size_t n, uint32_t l, float value, bool is_absent)
{
	fill(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, value);
	lab_event(lab, n, (struct event){.kind = EVENT_GRADIENT, .gradient = {.layer_index = l, .absent = is_absent}});
}

/* A step of all members; infinite: it has no gradient. */
static void step_with(struct lab *lab, const float *gradients)
{
	for (size_t n = 0; n < lab->count; n++)
		begin_step(lab, n, (struct offer){0});
	for (uint32_t l = (uint32_t)lab->layer_count; l-- > 0;)
		for (size_t n = 0; n < lab->count; n++)
			give(lab, n, l, gradients[n], isinf(gradients[n]) != 0);
	settle(lab);
}

/* What the workers do with the mean. */
static void apply_means(struct lab *lab)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < lab->layer_count; l++)
			for (size_t i = 0; i < lab->members[n].layers[l].size; i++)
				lab->members[n].layers[l].theta[i] -= lab->members[n].layers[l].gradient[i];
}

static void assert_means(const struct lab *lab, double expected)
{
	for (size_t n = 0; n < lab->count; n++) {
		assert_int_equal(lab->members[n].published, lab->layer_count);
		assert_int_equal(lab->members[n].verdict, VERDICT_ACCEPTED);
		for (size_t l = 0; l < lab->layer_count; l++)
			assert_all(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, expected);
	}
}

static void assert_all_told(const struct lab *lab, uint64_t steps, bool gradients)
{
	for (size_t n = 0; n < lab->count; n++) {
		assert_true(lab->members[n].schedule == steps);
		assert_int_equal(lab->members[n].gradients, gradients);
		assert_int_equal(node_averages_gradients(lab->members[n].node), gradients);
	}
}

/* Layers in the order in which member 1's own records leave it. */
struct order {
	size_t count;
	uint32_t layers[LAYERS];
};

static bool note_order(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct order *order = arg;
	(void)to;
	if (message->kind == MESSAGE_RECORD && from == 1 && message->record.origin == 1 && order->count < LAYERS)
		order->layers[order->count++] = message->record.layer_index;
	return true;
}

static void ddp_is_the_mean_of_the_gradients_in_backward_order(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 3, three_layers, LAYERS);
	struct order order = {0};
	lab->filter = note_order;
	lab->filter_arg = &order;
	assert_all_told(lab, SCHEDULE_LATER, true);
	for (size_t n = 0; n < 3; n++)
		set_theta(lab, n, 20.0f);
	step_with(lab, (const float[]){1.0f, 2.0f, 6.0f});
	for (uint32_t l = 0; l < LAYERS; l++)
		assert_int_equal(order.layers[l], LAYERS - 1 - l);
	assert_rounds(lab, 1);
	assert_means(lab, 3.0);
	assert_anchors(lab, 20.0); /* before the step, which is the workers' */
	assert_theta(lab, 2, 20.0);
	apply_means(lab);
	step_with(lab, (const float[]){-3.0f, 0.0f, 0.0f});
	assert_means(lab, -1.0);
	assert_anchors(lab, 17.0);
	for (size_t n = 0; n < 3; n++)
		assert_all(lab->members[n].layers[0].momentum, 4, 0.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	lab_free(lab);
}

static void layer_is_averaged_while_the_backward_pass_goes_on(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 2, three_layers, LAYERS);
	for (size_t n = 0; n < 2; n++)
		begin_step(lab, n, (struct offer){0});
	for (size_t n = 0; n < 2; n++)
		give(lab, n, 2, (float)n, false);
	for (size_t n = 0; n < 2; n++) {
		assert_int_equal(lab->members[n].published, 1);
		assert_int_equal(node_layer_round(lab->members[n].node, 2), 1);
		assert_int_equal(node_layer_round(lab->members[n].node, 0), 0);
		assert_all(lab->members[n].layers[2].gradient, 2, 0.5);
	}
	lab_free(lab);
}

static void mean_is_of_those_that_have_a_finite_gradient(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 3, three_layers, LAYERS);
	step_with(lab, (const float[]){1.0f, 2.0f, INFINITY}); /* none */
	assert_int_equal(verdict_on(lab, 2), VERDICT_ABSENT);
	assert_means(lab, 1.5);
	step_with(lab, (const float[]){NAN, 2.0f, 4.0f});
	assert_int_equal(node_record(lab->members[2].node, 0, 0)->verdict, VERDICT_NONFINITE);
	assert_means(lab, 3.0);
	for (size_t n = 0; n < 3; n++)
		set_theta(lab, n, 8.0f);
	step_with(lab, (const float[]){NAN, INFINITY, NAN});
	assert_rounds(lab, 3);
	assert_anchors(lab, 8.0);
	for (size_t n = 0; n < 3; n++) {
		assert_int_equal(lab->members[n].published, LAYERS);
		assert_int_equal(lab->members[n].verdict, VERDICT_NONFINITE); /* so no worker steps */
		assert_theta(lab, n, 8.0);
		assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), 0);
	}
	step_with(lab, (const float[]){1.0f, 1.0f, 4.0f});
	assert_means(lab, 2.0);
	lab_free(lab);
}

/* ---- From one kind of round to another ---- */

static void one_round_of_equal_weights_comes_before_gradients_and_none_after(void **state)
{
	(void)state;
	const size_t one = 1;
	struct lab *lab = lab_of(METHOD_EDIT, 2, &one, 1);
	assert_all_told(lab, 128, false);
	change(lab, METHOD, METHOD_DDP);
	offer_thetas(lab, (const float[]){0.0f, 0.0f});
	assert_all_told(lab, 1, false);
	offer_thetas(lab, (const float[]){1.0f, 3.0f}); /* by their norms: 0.88 and 0.12 */
	assert_true(node_weight(lab->members[0].node, 0, 0) == 0.5);
	assert_anchors(lab, 2.0);
	assert_theta(lab, 1, 2.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 0.0f});
	assert_means(lab, 0.5);
	apply_means(lab);
	change(lab, METHOD, METHOD_EDIT);
	step_with(lab, (const float[]){0.0f, 0.0f});
	assert_all_told(lab, 129, false);
	assert_anchors(lab, 1.5);
	offer_thetas(lab, (const float[]){0.5f, -0.5f}); /* norms 1 and 2: weights by them */
	assert_true(fabs(node_weight(lab->members[0].node, 0, 0) - 0.7310585786) < 1e-8);
	assert_all_told(lab, 128, false);
	lab_free(lab);
}

static void worker_that_died_in_its_step_is_aligned_with_the_others(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 2, three_layers, LAYERS);
	set_theta(lab, 0, 4.0f);
	set_theta(lab, 1, 4.0f);
	step_with(lab, (const float[]){1.0f, 1.0f});
	assert_anchors(lab, 4.0);
	set_theta(lab, 0, 3.0f); /* has stepped; the other has not */
	begin_step(lab, 0, (struct offer){0});
	begin_step(lab, 1, (struct offer){.realign = true});
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t n = 0; n < 2; n++)
			give(lab, n, l, 0.0f, n == 1);
	settle(lab);
	assert_rounds(lab, 2);
	assert_anchors(lab, 4.0); /* the last one that all shared */
	assert_int_equal(lab_notes(lab, 0, NOTE_HASH_DIFFERS), 0);
	assert_all_told(lab, 1, false);
	offer_thetas(lab, (const float[]){3.0f, 4.0f});
	assert_anchors(lab, 3.5);
	assert_theta(lab, 1, 3.5);
	assert_all_told(lab, SCHEDULE_LATER, true);
	lab_free(lab);
}

static void last_step_of_gradients_is_followed_by_a_round_of_parameters(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 2, three_layers, LAYERS);
	set_theta(lab, 0, 4.0f);
	set_theta(lab, 1, 4.0f);
	begin_step(lab, 0, (struct offer){0});
	begin_step(lab, 1, (struct offer){.final = true});
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t n = 0; n < 2; n++)
			give(lab, n, l, 1.0f, false);
	settle(lab);
	assert_all_told(lab, 1, false);
	apply_means(lab);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, true);
	settle(lab);
	assert_rounds(lab, 2);
	assert_anchors(lab, 3.0);
	for (size_t n = 0; n < 2; n++) {
		assert_int_equal(lab->members[n].schedule, 0);
		assert_int_equal(lab_notes(lab, n, NOTE_FINISHED), 1);
	}
	lab_free(lab);
}

static void first_rounds_of_a_warm_up_are_of_gradients(void **state)
{
	(void)state;
	struct ring_settings settings = settings_of(METHOD_DILOCO);
	settings.value[SYNC_WARMUP_STEPS] = 2;
	struct lab *lab = lab_new(2, two_layers, 2, &settings, NULL, 0);
	lab_gather(lab);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 3.0f});
	assert_means(lab, 2.0);
	apply_means(lab);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){0.0f, 0.0f});
	assert_anchors(lab, -2.0);
	assert_all_told(lab, 129, false);
	offer_thetas(lab, (const float[]){-3.0f, -5.0f}); /* pseudo-gradients 1 and 3: as diloco's first round */
	assert_anchors(lab, -2.0 - 2.66);
	lab_free(lab);
}

static void gradients_go_on_after_a_restart_with_a_round_of_alignment(void **state)
{
	(void)state;
	struct lab *lab = lab_of(METHOD_DDP, 2, three_layers, LAYERS);
	step_with(lab, (const float[]){1.0f, 3.0f});
	lab_restart(lab, (const bool[]){false, false});
	lab_gather(lab);
	assert_all_told(lab, 1, false);
	offer_thetas(lab, (const float[]){-2.0f, 0.0f}); /* one had stepped */
	assert_rounds(lab, 2);
	assert_anchors(lab, -1.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 3.0f});
	assert_means(lab, 2.0);
	lab_free(lab);
}

/* ---- By time ---- */

static void first_to_end_its_period_begins_the_round_for_all(void **state)
{
	(void)state;
	struct ring_settings settings = settings_of(METHOD_A_EDIT);
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
	settle(lab);
	assert_rounds(lab, 1);
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
		cmocka_unit_test(ddp_is_the_mean_of_the_gradients_in_backward_order),
		cmocka_unit_test(layer_is_averaged_while_the_backward_pass_goes_on),
		cmocka_unit_test(mean_is_of_those_that_have_a_finite_gradient),
		cmocka_unit_test(one_round_of_equal_weights_comes_before_gradients_and_none_after),
		cmocka_unit_test(worker_that_died_in_its_step_is_aligned_with_the_others),
		cmocka_unit_test(last_step_of_gradients_is_followed_by_a_round_of_parameters),
		cmocka_unit_test(first_rounds_of_a_warm_up_are_of_gradients),
		cmocka_unit_test(gradients_go_on_after_a_restart_with_a_round_of_alignment),
		cmocka_unit_test(first_to_end_its_period_begins_the_round_for_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Rounds of gradients on tiny rings, and the ways into them and out: each rule against a case computed by hand. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/tiny.h"

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
	tiny_fill(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, value);
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
	tiny_settle(lab);
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
			tiny_assert_all(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, expected);
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
	struct lab *lab = tiny_ring(METHOD_DDP, 3, three_layers, LAYERS);
	struct order order = {0};
	lab->filter = note_order;
	lab->filter_arg = &order;
	assert_all_told(lab, SCHEDULE_LATER, true);
	for (size_t n = 0; n < 3; n++)
		tiny_set_theta(lab, n, 20.0f);
	step_with(lab, (const float[]){1.0f, 2.0f, 6.0f});
	for (uint32_t l = 0; l < LAYERS; l++)
		assert_int_equal(order.layers[l], LAYERS - 1 - l);
	tiny_assert_rounds(lab, 1);
	assert_means(lab, 3.0);
	tiny_assert_anchors(lab, 20.0); /* before the step, which is the workers' */
	tiny_assert_theta(lab, 2, 20.0);
	apply_means(lab);
	step_with(lab, (const float[]){-3.0f, 0.0f, 0.0f});
	assert_means(lab, -1.0);
	tiny_assert_anchors(lab, 17.0);
	for (size_t n = 0; n < 3; n++)
		tiny_assert_all(lab->members[n].layers[0].momentum, 4, 0.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	lab_free(lab);
}

static void layer_is_averaged_while_the_backward_pass_goes_on(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DDP, 2, three_layers, LAYERS);
	for (size_t n = 0; n < 2; n++)
		begin_step(lab, n, (struct offer){0});
	for (size_t n = 0; n < 2; n++)
		give(lab, n, 2, (float)n, false);
	for (size_t n = 0; n < 2; n++) {
		assert_int_equal(lab->members[n].published, 1);
		assert_int_equal(node_layer_round(lab->members[n].node, 2), 1);
		assert_int_equal(node_layer_round(lab->members[n].node, 0), 0);
		tiny_assert_all(lab->members[n].layers[2].gradient, 2, 0.5);
	}
	lab_free(lab);
}

static void mean_is_of_those_that_have_a_finite_gradient(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DDP, 3, three_layers, LAYERS);
	step_with(lab, (const float[]){1.0f, 2.0f, INFINITY}); /* none */
	assert_int_equal(tiny_verdict(lab, 2), VERDICT_ABSENT);
	assert_means(lab, 1.5);
	step_with(lab, (const float[]){NAN, 2.0f, 4.0f});
	assert_int_equal(node_record(lab->members[2].node, 0, 0)->verdict, VERDICT_NONFINITE);
	assert_means(lab, 3.0);
	for (size_t n = 0; n < 3; n++)
		tiny_set_theta(lab, n, 8.0f);
	step_with(lab, (const float[]){NAN, INFINITY, NAN});
	tiny_assert_rounds(lab, 3);
	tiny_assert_anchors(lab, 8.0);
	for (size_t n = 0; n < 3; n++) {
		assert_int_equal(lab->members[n].published, LAYERS);
		assert_int_equal(lab->members[n].verdict, VERDICT_NONFINITE); /* so no worker steps */
		tiny_assert_theta(lab, n, 8.0);
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
	struct lab *lab = tiny_ring(METHOD_EDIT, 2, &one, 1);
	assert_all_told(lab, 128, false);
	tiny_change(lab, METHOD, METHOD_DDP);
	tiny_offer(lab, (const float[]){0.0f, 0.0f});
	assert_all_told(lab, 1, false);
	tiny_offer(lab, (const float[]){1.0f, 3.0f}); /* by their norms: 0.88 and 0.12 */
	assert_true(node_weight(lab->members[0].node, 0, 0) == 0.5);
	tiny_assert_anchors(lab, 2.0);
	tiny_assert_theta(lab, 1, 2.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 0.0f});
	assert_means(lab, 0.5);
	apply_means(lab);
	tiny_change(lab, METHOD, METHOD_EDIT);
	step_with(lab, (const float[]){0.0f, 0.0f});
	assert_all_told(lab, 129, false);
	tiny_assert_anchors(lab, 1.5);
	tiny_offer(lab, (const float[]){0.5f, -0.5f}); /* norms 1 and 2: weights by them */
	assert_true(fabs(node_weight(lab->members[0].node, 0, 0) - 0.7310585786) < 1e-8);
	assert_all_told(lab, 128, false);
	lab_free(lab);
}

static void worker_that_died_in_its_step_is_aligned_with_the_others(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DDP, 2, three_layers, LAYERS);
	tiny_set_theta(lab, 0, 4.0f);
	tiny_set_theta(lab, 1, 4.0f);
	step_with(lab, (const float[]){1.0f, 1.0f});
	tiny_assert_anchors(lab, 4.0);
	tiny_set_theta(lab, 0, 3.0f); /* has stepped; the other has not */
	begin_step(lab, 0, (struct offer){0});
	begin_step(lab, 1, (struct offer){.realign = true});
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t n = 0; n < 2; n++)
			give(lab, n, l, 0.0f, n == 1);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 2);
	tiny_assert_anchors(lab, 4.0); /* the last one that all shared */
	assert_int_equal(lab_notes(lab, 0, NOTE_HASH_DIFFERS), 0);
	assert_all_told(lab, 1, false);
	tiny_offer(lab, (const float[]){3.0f, 4.0f});
	tiny_assert_anchors(lab, 3.5);
	tiny_assert_theta(lab, 1, 3.5);
	assert_all_told(lab, SCHEDULE_LATER, true);
	lab_free(lab);
}

static void last_step_of_gradients_is_followed_by_a_round_of_parameters(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DDP, 2, three_layers, LAYERS);
	tiny_set_theta(lab, 0, 4.0f);
	tiny_set_theta(lab, 1, 4.0f);
	begin_step(lab, 0, (struct offer){0});
	begin_step(lab, 1, (struct offer){.final = true});
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t n = 0; n < 2; n++)
			give(lab, n, l, 1.0f, false);
	tiny_settle(lab);
	assert_all_told(lab, 1, false);
	apply_means(lab);
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, true);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 2);
	tiny_assert_anchors(lab, 3.0);
	for (size_t n = 0; n < 2; n++) {
		assert_int_equal(lab->members[n].schedule, 0);
		assert_int_equal(lab_notes(lab, n, NOTE_FINISHED), 1);
	}
	lab_free(lab);
}

static void first_rounds_of_a_warm_up_are_of_gradients(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_DILOCO);
	settings.value[SYNC_WARMUP_STEPS] = 2;
	struct lab *lab = lab_new(2, three_layers, LAYERS, &settings, NULL, 0);
	lab_gather(lab);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 3.0f});
	assert_means(lab, 2.0);
	apply_means(lab);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){0.0f, 0.0f});
	tiny_assert_anchors(lab, -2.0);
	assert_all_told(lab, 129, false);
	tiny_offer(lab, (const float[]){-3.0f, -5.0f}); /* pseudo-gradients 1 and 3: as diloco's first round */
	tiny_assert_anchors(lab, -2.0 - 2.66);
	lab_free(lab);
}

static void gradients_go_on_after_a_restart_with_a_round_of_alignment(void **state)
{
	(void)state;
	struct lab *lab = tiny_ring(METHOD_DDP, 2, three_layers, LAYERS);
	step_with(lab, (const float[]){1.0f, 3.0f});
	lab_restart(lab, (const bool[]){false, false});
	lab_gather(lab);
	assert_all_told(lab, 1, false);
	lab->members[0].done = 7;
	lab->members[1].done = 32;
	tiny_offer(lab, (const float[]){-2.0f, 0.0f}); /* one had stepped */
	for (size_t n = 0; n < 2; n++)
		assert_int_equal(lab->members[n].step, 42); /* both, at one learning rate */
	tiny_assert_rounds(lab, 2);
	tiny_assert_anchors(lab, -1.0);
	assert_all_told(lab, SCHEDULE_LATER, true);
	step_with(lab, (const float[]){1.0f, 3.0f});
	assert_means(lab, 2.0);
	lab_free(lab);
}

/* ---- Deaths of a daemon whose worker lives ---- */

struct silence {
	struct lab *lab;
	size_t after, sent;
};

/* Member 2's daemon dies when it has sent so many frames of rounds. */
static bool fall_silent(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct silence *silence = arg;
	(void)to;
	bool counts = message->kind == MESSAGE_CHUNK || message->kind == MESSAGE_RECORD || message->kind == MESSAGE_CONFIRM;
	if (from != 2 || !counts || silence->sent++ < silence->after)
		return true;
	silence->lab->members[2].dead = true;
	return false;
}

/* A worker does what it has been told: hands over a step's gradients, or offers. It has back all that it has handed over before. */
static void go_on(struct lab *lab, size_t n, bool is_final)
{
	if (!lab->members[n].gradients) {
		lab_offer(lab, n, false);
		return;
	}
	begin_step(lab, n, (struct offer){.step = lab->members[n].done, .final = is_final});
	for (uint32_t l = LAYERS; l-- > 0;)
		give(lab, n, l, 1.0f, false);
}

/* A daemon dies amid a round of gradients after so many frames and starts again; its worker's step is taken by nobody. takes_more: it has
 * begun another one, its last, before it has heard that there is an alignment first. False: it has sent fewer frames. */
static bool outlive_once(size_t after, bool takes_more)
{
	struct lab *lab = tiny_ring(METHOD_DDP, 3, three_layers, LAYERS);
	struct silence silence = {.lab = lab, .after = after};
	static const size_t order[] = {0, 1, 2};
	uint64_t rounds[LAYERS], since[LAYERS];
	step_with(lab, (const float[]){1.0f, 1.0f, 1.0f});
	apply_means(lab);
	lab->filter = fall_silent;
	lab->filter_arg = &silence;
	step_with(lab, (const float[]){1.0f, 2.0f, 3.0f});
	lab_pass(lab, 1000000);
	lab->filter = NULL;
	const bool has_died = lab->members[2].dead;
	for (size_t l = 0; l < LAYERS; l++) {
		rounds[l] = node_layer_round(lab->members[2].node, l);
		since[l] = node_layer_since(lab->members[2].node, l);
	}
	const struct node_config before = {.layer_rounds = rounds, .layer_since = since, .round = tiny_round(lab, 2), .since = 1,
					   .settings = *node_settings(lab->members[2].node)};
	for (size_t n = 0; n < 3 && has_died; n++)
		lab_enter(lab, n, 2, order, 3, n == 2 ? &before : NULL);
	lab->members[2].published = LAYERS; /* its daemon gives the step back */
	lab->members[2].gradients = false;
	if (takes_more) {
		lab->members[2].gradients = true;
		go_on(lab, 2, true);
	}
	lab_pass(lab, 2000000);
	uint64_t round = tiny_round(lab, 0);
	for (size_t turn = 0; turn < 12 && tiny_round(lab, 0) < round + 3; turn++) {
		for (size_t n = 0; n < 3; n++)
			if (lab->members[n].published == LAYERS)
				go_on(lab, n, false);
		lab_pass(lab, 2000000);
	}
	tiny_assert_rounds(lab, tiny_round(lab, 0));
	assert_true(tiny_round(lab, 0) >= round + 3);
	for (size_t n = 0; n < 3; n++) {
		assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), 0);
		for (size_t l = 0; l < LAYERS; l++)
			assert_memory_equal(lab->members[n].layers[l].anchor, lab->members[0].layers[l].anchor,
					    three_layers[l] * sizeof(float));
	}
	lab_free(lab);
	return has_died;
}

static void daemon_that_dies_amid_gradients_goes_on_with_its_worker(void **state)
{
	size_t after = 0;
	(void)state;
	while (outlive_once(after, false))
		after++;
	assert_true(after > 4 * LAYERS);
}

static void gradients_for_which_there_is_no_round_come_back(void **state)
{
	size_t after = 0;
	(void)state;
	while (outlive_once(after, true))
		after++;
	assert_true(after > 4 * LAYERS);
}

/* Two of three members have brought all gradients of step 2. The daemon of the third died when it had done the first layer of that round; its
 * next one has entered view 2, the others have not, and its worker begins the step. */
static struct lab *come_back_amid_a_round(struct offer offer)
{
	struct lab *lab = tiny_ring(METHOD_DDP, 3, three_layers, LAYERS);
	const uint64_t rounds[LAYERS] = {2, 1, 1}, since[LAYERS] = {1, 1, 1};
	const struct node_config before = {.layer_rounds = rounds, .layer_since = since, .round = 1, .since = 1,
					   .settings = *node_settings(lab->members[2].node)};
	step_with(lab, (const float[]){1.0f, 1.0f, 1.0f});
	apply_means(lab);
	for (size_t n = 0; n < 2; n++) {
		begin_step(lab, n, (struct offer){0});
		for (uint32_t l = LAYERS; l-- > 0;)
			give(lab, n, l, 1.0f, false);
	}
	lab_enter(lab, 2, 2, (const size_t[]){0, 1, 2}, 3, &before);
	begin_step(lab, 2, offer);
	return lab;
}

/* The others enter the view of that one. */
static void follow(struct lab *lab)
{
	for (size_t n = 0; n < 2; n++)
		lab_enter(lab, n, 2, (const size_t[]){0, 1, 2}, 3, NULL);
	lab_pass(lab, 2000000);
}

/* The others have agreed upon the round and cannot hear in it that the step is the last: it is no step of the next round, which aligns. */
static void gradients_of_a_last_step_come_back_whole(void **state)
{
	struct lab *lab = come_back_amid_a_round((struct offer){.final = true});
	(void)state;
	for (uint32_t l = LAYERS; l-- > 0;)
		give(lab, 2, l, 1.0f, false);
	follow(lab);
	tiny_assert_rounds(lab, 2);
	assert_int_equal(node_record(lab->members[0].node, 1, 2)->verdict, VERDICT_LATE);
	assert_int_equal(lab->members[2].published, LAYERS);
	assert_int_equal(lab->members[2].verdict, VERDICT_NONFINITE);
	lab_free(lab);
}

/* What is left of the round is over while the worker is still in its backward pass. */
static void gradient_that_is_handed_over_after_its_round_comes_back(void **state)
{
	struct lab *lab = come_back_amid_a_round((struct offer){0});
	(void)state;
	follow(lab);
	give(lab, 2, 2, 1.0f, false);
	give(lab, 2, 1, 1.0f, false);
	lab_pass(lab, 2000000);
	tiny_assert_rounds(lab, 2);
	assert_int_equal(node_record(lab->members[0].node, 2, 2)->verdict, VERDICT_ACCEPTED);
	give(lab, 2, 0, 1.0f, false);
	assert_int_equal(lab->members[2].published, LAYERS);
	assert_int_equal(lab->members[2].verdict, VERDICT_NONFINITE);
	lab_free(lab);
}

/* Its worker waits for theta, and is further than the others all the same. */
static void member_that_brings_nothing_to_an_alignment_counts_for_the_step(void **state)
{
	struct lab *lab = tiny_ring(METHOD_DDP, 3, three_layers, LAYERS);
	const size_t order[] = {0, 1, 2};
	const uint64_t nothing[LAYERS] = {LAYER_NOTHING, LAYER_NOTHING, LAYER_NOTHING};
	const struct node_config before = {.layer_rounds = nothing, .is_outdated = true, .step = 77,
					   .settings = *node_settings(lab->members[2].node)};
	(void)state;
	step_with(lab, (const float[]){1.0f, 2.0f, 3.0f});
	lab->members[2].dead = true;
	lab_view(lab, 2, order, 2);
	for (size_t n = 0; n < 2; n++)
		begin_step(lab, n, (struct offer){.realign = n == 0});
	for (uint32_t l = LAYERS; l-- > 0;)
		for (size_t n = 0; n < 2; n++)
			give(lab, n, l, 1.0f, false);
	lab_pass(lab, 1000000);
	assert_int_equal(lab->members[0].schedule, 1);
	lab_offer(lab, 0, false); /* the alignment has begun */
	for (size_t n = 0; n < 3; n++)
		lab_enter(lab, n, 3, order, 3, n == 2 ? &before : NULL);
	lab_pass(lab, 1000000);
	lab_offer(lab, 1, false);
	lab_pass(lab, 1000000);
	tiny_assert_rounds(lab, 3);
	for (size_t n = 0; n < 3; n++)
		assert_int_equal(lab->members[n].step, 77);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ddp_is_the_mean_of_the_gradients_in_backward_order),
		cmocka_unit_test(layer_is_averaged_while_the_backward_pass_goes_on),
		cmocka_unit_test(mean_is_of_those_that_have_a_finite_gradient),
		cmocka_unit_test(one_round_of_equal_weights_comes_before_gradients_and_none_after),
		cmocka_unit_test(worker_that_died_in_its_step_is_aligned_with_the_others),
		cmocka_unit_test(last_step_of_gradients_is_followed_by_a_round_of_parameters),
		cmocka_unit_test(first_rounds_of_a_warm_up_are_of_gradients),
		cmocka_unit_test(gradients_go_on_after_a_restart_with_a_round_of_alignment),
		cmocka_unit_test(daemon_that_dies_amid_gradients_goes_on_with_its_worker),
		cmocka_unit_test(gradients_for_which_there_is_no_round_come_back),
		cmocka_unit_test(gradients_of_a_last_step_come_back_whole),
		cmocka_unit_test(gradient_that_is_handed_over_after_its_round_comes_back),
		cmocka_unit_test(member_that_brings_nothing_to_an_alignment_counts_for_the_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

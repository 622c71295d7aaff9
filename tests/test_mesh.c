/* Replicas cut over several nodes: what they must do as one, each rule against a case computed by hand on meshes of 2 x 2 (rank =
 * 2 x replica + column), and whole rounds against a ring of undivided replicas. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/ring.h"
#include "sim/dice.h"
#include "tests/tiny.h"

enum { SECOND_US = 1000000, SIZES = 5 };

static const size_t two = 2, two_layers[] = {4, 3}, many_layers[SIZES] = {0, 1, 5, 101, 1000};

static struct lab *mesh(const struct ring_settings *settings, size_t rows, size_t shards, const size_t *sizes, size_t layer_count)
{
	struct lab *lab = lab_mesh(rows, shards, sizes, layer_count, settings);
	lab_gather(lab);
	return lab;
}

static void offer_all(struct lab *lab)
{
	for (size_t n = 0; n < lab->count; n++)
		lab_offer(lab, n, false);
	tiny_settle(lab);
}

/* A replica's theta of a layer. */
static void set_row(struct lab *lab, size_t row, size_t l, const float *theta)
{
	for (size_t n = row * lab->shards; n < (row + 1) * lab->shards; n++) {
		const struct layer *piece = &lab->members[n].layers[l];
		memcpy(piece->theta, theta, piece->size * sizeof *theta);
		theta += piece->size;
	}
}

static void get_row_anchor(const struct lab *lab, size_t row, size_t l, float *ret_anchor)
{
	for (size_t n = row * lab->shards; n < (row + 1) * lab->shards; n++) {
		const struct layer *piece = &lab->members[n].layers[l];
		memcpy(ret_anchor, piece->anchor, piece->size * sizeof *ret_anchor);
		ret_anchor += piece->size;
	}
}

/* ---- Norms of the whole ---- */

/* Weights 2/3 and 1/3 at norms 5 and 10; the mean's norm is 20/3, so that it is halved; anchor -= the mean. */
static struct ring_settings settings_by_hand(void)
{
	struct ring_settings settings = tiny_settings(METHOD_EDIT);
	settings.value[PENALTY_BY_STEPS] = 0;
	settings.value[PENALTY_TEMPERATURE] = 5 / log(2);
	settings.value[PENALTY_CLIP] = 10.0 / 3;
	settings.value[OUTER_LR] = 1;
	settings.value[OUTER_MOMENTUM] = 0;
	return settings;
}

/* Pseudo-gradients (3, 4) and (6, 8): each node alone sees 3, 4, 6 or 8, of a mean (4, 16/3). */
static void norms_of_pieces_make_one_weight_and_one_clip(void **state)
{
	(void)state;
	const struct ring_settings settings = settings_by_hand();
	float anchors[2][2];
	for (size_t shards = 1; shards <= 2; shards++) {
		struct lab *lab = mesh(&settings, 2, shards, &two, 1);
		set_row(lab, 0, 0, (const float[]){-3, -4});
		set_row(lab, 1, 0, (const float[]){-6, -8});
		offer_all(lab);
		tiny_assert_rounds(lab, 1);
		for (size_t n = 0; n < lab->count; n++) {
			assert_true(node_record(lab->members[n].node, 0, 0)->norm == 5);
			assert_true(node_record(lab->members[n].node, 0, 1)->norm == 10);
			assert_true(fabs(node_weight(lab->members[n].node, 0, 0) - 2.0 / 3) < 1e-12);
			assert_true(fabs(node_weight(lab->members[n].node, 0, 1) - 1.0 / 3) < 1e-12);
			assert_int_equal(lab->members[n].published, 1);
		}
		for (size_t row = 0; row < 2; row++) {
			float anchor[2];
			get_row_anchor(lab, row, 0, anchor);
			assert_true(fabsf(anchor[0] + 2) < 2e-6F);
			assert_true(fabsf(anchor[1] + 8.0F / 3) < 2e-6F);
			memcpy(anchors[shards - 1], anchor, sizeof anchor);
		}
		lab_free(lab);
	}
	assert_memory_equal(anchors[0], anchors[1], sizeof anchors[0]);
}

/* Norms 1 and 2 teach the detector mean 1.5 and deviation 0.5; of 1.9 x sqrt(2) = 2.69 only the whole is beyond 1.5 + 2 x 0.5. */
static void outlier_is_judged_by_the_norm_of_the_whole(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_EDIT);
	settings.value[PENALTY_WARMUP] = 2;
	settings.value[PENALTY_THRESHOLD] = 2;
	settings.value[OUTER_LR] = 0; /* the anchor stays at 0 */
	struct lab *lab = mesh(&settings, 2, 2, &two, 1);
	for (int norm = 1; norm <= 2; norm++) {
		set_row(lab, 0, 0, (const float[]){(float)norm, 0});
		set_row(lab, 1, 0, (const float[]){0, (float)norm});
		offer_all(lab);
	}
	set_row(lab, 0, 0, (const float[]){1.9F, 1.9F});
	set_row(lab, 1, 0, (const float[]){1.9F, 0});
	offer_all(lab);
	tiny_assert_rounds(lab, 3);
	for (size_t n = 0; n < 4; n++) {
		assert_true(node_record(lab->members[n].node, 0, 0)->mean == 1.5);
		assert_true(node_record(lab->members[n].node, 0, 0)->sd == 0.5);
		assert_int_equal(node_record(lab->members[n].node, 0, 0)->verdict, VERDICT_OUTLIER);
		assert_int_equal(node_record(lab->members[n].node, 0, 1)->verdict, VERDICT_ACCEPTED);
		assert_int_equal(lab->members[n].verdict, n < 2 ? VERDICT_OUTLIER : VERDICT_ACCEPTED);
	}
	lab_free(lab);
}

static void nonfinite_piece_leaves_the_whole_replica_out(void **state)
{
	(void)state;
	const struct ring_settings settings = settings_by_hand();
	struct lab *lab = mesh(&settings, 2, 2, &two, 1);
	set_row(lab, 0, 0, (const float[]){-0.5F, -0.25F});
	set_row(lab, 1, 0, (const float[]){-8, NAN}); /* its first piece is sound */
	offer_all(lab);
	tiny_assert_rounds(lab, 1);
	for (size_t n = 0; n < 4; n++) {
		assert_int_equal(node_record(lab->members[n].node, 0, 1)->verdict, VERDICT_NONFINITE);
		assert_true(node_weight(lab->members[n].node, 0, 1) == 0);
		assert_true(node_weight(lab->members[n].node, 0, 0) == 1);
		assert_true(lab->members[n].layers[0].anchor[0] == (n % 2 == 0 ? -0.5F : -0.25F));
		assert_true(lab->members[n].layers[0].theta[0] == lab->members[n].layers[0].anchor[0]);
	}
	lab_free(lab);
}

/* Random numbers, three rounds, also with pieces that are empty: as a ring of undivided replicas, but for rounding. */
static void rounds_are_those_of_a_ring(void **state)
{
	(void)state;
	static float ring_anchors[SIZES][1000], anchors[1000], theta[1000];
	for (size_t shards = 1; shards <= 4; shards++) {
		struct dice dice = {5};
		struct ring_settings settings = tiny_settings(METHOD_EDIT);
		struct lab *lab = mesh(&settings, 3, shards, many_layers, SIZES);
		for (uint64_t round = 1; round <= 3; round++) {
			for (size_t row = 0; row < 3; row++)
				for (size_t l = 0; l < SIZES; l++) {
					for (size_t i = 0; i < many_layers[l]; i++)
						theta[i] = (float)dice_bell(&dice);
					set_row(lab, row, l, theta);
				}
			offer_all(lab);
			tiny_assert_rounds(lab, round);
		}
		for (size_t row = 0; row < 3; row++)
			for (size_t l = 0; l < SIZES; l++) {
				float *expected = ring_anchors[l];
				get_row_anchor(lab, row, l, shards == 1 ? expected : anchors);
				for (size_t i = 0; i < many_layers[l] && shards > 1; i++)
					assert_true(fabsf(anchors[i] - expected[i]) < 1e-5F);
			}
		for (size_t n = 0; n < lab->count; n++) /* equal bits within a column */
			for (size_t l = 0; l < SIZES; l++)
				assert_memory_equal(lab->members[n].layers[l].anchor, lab->members[n % shards].layers[l].anchor,
						    lab->members[n].layers[l].size * sizeof(float));
		lab_free(lab);
	}
}

/* ---- Late as a whole ---- */

/* Replica 2 is cut in two: its first node's worker has offered, its second one's has not. */
static void replica_is_late_if_one_of_its_nodes_is(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_LOCAL_SGD);
	settings.value[STRAGGLER_GRACE] = 2;
	struct lab *lab = mesh(&settings, 3, 2, two_layers, 2);
	lab_pass(lab, SECOND_US);
	tiny_offer(lab, (const float[]){3, 3, 3, 3, 3, 3});
	tiny_assert_anchors(lab, 3);
	lab_pass(lab, SECOND_US);
	for (size_t n = 0; n < 4; n++)
		tiny_set_theta(lab, n, n < 2 ? 5 : 7);
	tiny_set_theta(lab, 4, 9);
	for (size_t n = 0; n < 5; n++)
		lab_offer(lab, n, false);
	tiny_settle(lab);
	tiny_assert_rounds(lab, 1);
	lab_pass(lab, 4 * SECOND_US); /* all intervals known are of two seconds */
	tiny_assert_rounds(lab, 2);
	for (size_t n = 0; n < 6; n++) {
		assert_int_equal(node_record(lab->members[n].node, 0, 2)->verdict, VERDICT_LATE);
		assert_true(node_weight(lab->members[n].node, 0, 2) == 0);
	}
	tiny_assert_anchors(lab, 6);
	assert_int_equal(lab->members[4].published, 0); /* its offer waits */
	tiny_assert_theta(lab, 4, 9);
	/* With the second one's offer the replica is in the next round; against 3, where it began: -6; the others: -2 and -1. */
	tiny_set_theta(lab, 5, 9);
	lab_offer(lab, 5, false);
	for (size_t n = 0; n < 4; n++) {
		tiny_set_theta(lab, n, n < 2 ? 8 : 7);
		lab_offer(lab, n, false);
	}
	tiny_settle(lab);
	tiny_assert_rounds(lab, 3);
	assert_int_equal(node_record(lab->members[1].node, 0, 2)->verdict, VERDICT_ACCEPTED);
	tiny_assert_anchors(lab, 9);
	tiny_assert_theta(lab, 4, 9);
	lab_free(lab);
}

/* ---- Changes ---- */

static struct event change_event(enum change_kind kind)
{
	return (struct event){.kind = EVENT_CHANGE, .change = {.kind = kind, .setting = OUTER_LR, .value = kind == CHANGE_SET ? 0.5 : 0}};
}

static void assert_outer_lr(const struct lab *lab, double expected)
{
	for (size_t n = 0; n < lab->count; n++)
		assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == expected);
}

/* Every member may propose; three replicas of three, so that changes go on for more than one hop each way. */
static void change_of_one_node_is_taken_by_all_after_the_same_round(void **state)
{
	(void)state;
	for (size_t proposer = 0; proposer < 9; proposer++) {
		struct ring_settings settings = tiny_settings(METHOD_EDIT);
		struct lab *lab = mesh(&settings, 3, 3, two_layers, 2);
		lab_event(lab, proposer, change_event(CHANGE_SET));
		assert_outer_lr(lab, 0.8);
		offer_all(lab);
		assert_outer_lr(lab, 0.5);
		for (size_t n = 0; n < 9; n++) {
			assert_int_equal(lab_notes(lab, n, NOTE_CHANGE_TAKEN), 1);
			assert_int_equal(lab_note(lab, n, NOTE_CHANGE_TAKEN)->round, 1);
			assert_int_equal(lab_note(lab, n, NOTE_CHANGE_TAKEN)->peer, proposer);
		}
		assert_int_equal(lab_notes(lab, proposer, NOTE_CHANGE_HELD), 1);
		lab_free(lab);
	}
}

static bool drop_scalars_from_1_to_0(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	(void)arg;
	return from != 1 || to != 0 || message->kind != MESSAGE_SCALAR;
}

/* All hold the change when their first layer begins, but node 1, whose mate says for itself that it does: their replica does not. */
static void change_that_one_node_of_a_replica_lacks_is_taken_by_none(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_EDIT);
	struct lab *lab = mesh(&settings, 2, 2, two_layers, 2);
	lab->filter = drop_scalars_from_1_to_0; /* so that node 1 begins and node 0 does not */
	lab_offer(lab, 0, false);
	lab_offer(lab, 1, false);
	lab_event(lab, 0, change_event(CHANGE_SET));
	lab_offer(lab, 2, false);
	lab_offer(lab, 3, false);
	lab->filter = NULL;
	lab_pass(lab, 2 * SECOND_US);
	tiny_assert_rounds(lab, 1);
	for (size_t n = 0; n < 4; n++)
		assert_int_equal(lab_notes(lab, n, NOTE_CHANGE_TAKEN), 0);
	assert_outer_lr(lab, 0.8);
	offer_all(lab);
	assert_outer_lr(lab, 0.5);
	lab_free(lab);
}

static bool drop_records_of_column_1(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	(void)arg;
	return from % 2 == 0 || to % 2 == 0 || message->kind != MESSAGE_RECORD;
}

/* Column 0 has agreed on the pause; to column 1, which has not, the resume comes along the replicas. */
static void resume_that_overtakes_its_pause_ends_it(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_EDIT);
	struct lab *lab = mesh(&settings, 2, 2, two_layers, 2);
	lab_event(lab, 1, change_event(CHANGE_PAUSE));
	lab->filter = drop_records_of_column_1;
	for (size_t n = 0; n < 4; n++)
		lab_offer(lab, n, false);
	for (size_t n = 0; n < 4; n++)
		assert_int_equal(lab->members[n].paused, n % 2 == 0);
	lab_event(lab, 0, change_event(CHANGE_RESUME));
	for (size_t n = 0; n < 4; n++) {
		assert_false(lab->members[n].paused);
		assert_int_equal(lab_note(lab, n, NOTE_CHANGE_TAKEN)->peer, 0);
	}
	lab->filter = NULL;
	lab_pass(lab, 2 * SECOND_US);
	tiny_assert_rounds(lab, 1);
	for (size_t n = 0; n < 4; n++) {
		struct node_status status;
		node_status(lab->members[n].node, lab->now_us, &status);
		assert_int_equal(status.phase, NODE_TRAINING);
		assert_false(lab->members[n].paused);
	}
	/* A later pause is one again: that resume was of the first. */
	lab_event(lab, 3, change_event(CHANGE_PAUSE));
	offer_all(lab);
	for (size_t n = 0; n < 4; n++)
		assert_true(lab->members[n].paused);
	lab_event(lab, 2, change_event(CHANGE_RESUME));
	for (size_t n = 0; n < 4; n++)
		assert_false(lab->members[n].paused);
	lab_free(lab);
}

/* ---- Gradients ---- */

static void begin_step(struct lab *lab, size_t n)
{
	lab_event(lab, n, (struct event){.kind = EVENT_OFFER, .offer = {.gradients = true, .steps = 1}});
}

static void give(struct lab *lab, size_t n, uint32_t l, float value)
{
	tiny_fill(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, value);
	lab_event(lab, n, (struct event){.kind = EVENT_GRADIENT, .gradient = {.layer_index = l}});
}

/* Node 0's worker hands over its whole backward pass before its mate's worker has so much as begun. */
static void gradients_that_come_before_the_mates_begin_count(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_DDP);
	struct lab *lab = mesh(&settings, 2, 2, two_layers, 2);
	for (uint64_t round = 1; round <= 2; round++) {
		for (size_t n = 0; n < 4; n++) {
			lab->members[n].published = 0;
			begin_step(lab, n);
			for (uint32_t l = 2; l-- > 0;) {
				give(lab, n, l, n < 2 ? 2 : 5);
				assert_int_equal(lab->members[0].published, n < 3 ? 0 : 2 - l);
			}
		}
		tiny_settle(lab);
		tiny_assert_rounds(lab, round);
		for (size_t n = 0; n < 4; n++) {
			assert_int_equal(lab->members[n].published, 2);
			for (size_t l = 0; l < 2; l++)
				tiny_assert_all(lab->members[n].layers[l].gradient, lab->members[n].layers[l].size, 3.5);
		}
	}
	lab_free(lab);
}

/* ---- Silence ---- */

static uint32_t waits_for(const struct lab *lab, size_t n)
{
	struct node_status status;
	node_status(lab->members[n].node, lab->now_us, &status);
	assert_true(status.stalled_us >= 3 * SECOND_US);
	return status.waiting_for;
}

/* Node 3 dies: its mate and its neighbour in the ring name it; node 0 names who waits for it. Nobody commits anything. */
static void death_of_a_node_stops_the_mesh_and_all_say_for_whom(void **state)
{
	(void)state;
	struct ring_settings settings = tiny_settings(METHOD_EDIT);
	struct lab *lab = mesh(&settings, 2, 2, two_layers, 2);
	lab->members[3].dead = true;
	for (size_t n = 0; n < 3; n++)
		lab_offer(lab, n, false);
	lab_pass(lab, 10 * SECOND_US);
	assert_int_equal(waits_for(lab, 1), 3);
	assert_int_equal(waits_for(lab, 2), 3);
	assert_int_equal(waits_for(lab, 0), 2);
	for (size_t n = 0; n < 3; n++) {
		assert_int_equal(tiny_round(lab, n), 0);
		assert_int_equal(lab->members[n].published, 0);
		assert_int_equal(lab_notes(lab, n, NOTE_PEER_DOWN), n > 0);
	}
	assert_int_equal(lab_note(lab, 1, NOTE_STALLED)->peer, 3);
	assert_int_equal(lab_note(lab, 2, NOTE_STALLED)->peer, 3);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norms_of_pieces_make_one_weight_and_one_clip),
		cmocka_unit_test(outlier_is_judged_by_the_norm_of_the_whole),
		cmocka_unit_test(nonfinite_piece_leaves_the_whole_replica_out),
		cmocka_unit_test(rounds_are_those_of_a_ring),
		cmocka_unit_test(replica_is_late_if_one_of_its_nodes_is),
		cmocka_unit_test(change_of_one_node_is_taken_by_all_after_the_same_round),
		cmocka_unit_test(change_that_one_node_of_a_replica_lacks_is_taken_by_none),
		cmocka_unit_test(resume_that_overtakes_its_pause_ends_it),
		cmocka_unit_test(gradients_that_come_before_the_mates_begin_count),
		cmocka_unit_test(death_of_a_node_stops_the_mesh_and_all_say_for_whom),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Members that are behind, over a perfect wire: what they fetch leaves what is their own alone, what began from something else is
 * never averaged, and a view that ends amid it leaves everybody where it was. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/vec.h"
#include "tests/crew.h"

/* ---- Detectors ---- */

enum { LOST = 2 /* who dies */, LEFT = 2 };

struct past {
	struct detector detectors[CREW_MAX][LAYERS];
	double norms[CREW_MAX][LAYERS];
};

static void remember(const struct lab *lab, struct past *past)
{
	float delta[SIZE];
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < LAYERS; l++) {
			const struct layer *layer = &lab->members[n].layers[l];
			past->detectors[n][l] = *node_detector(lab->members[n].node, l);
			past->norms[n][l] = sqrt(vec_delta(delta, layer->anchor, layer->theta, layer->size));
		}
}

/* Each detector has taken in the norm of one round, and nothing else. */
static void assert_judged_once(const struct lab *lab, const size_t *order, size_t count, const struct past *past)
{
	const struct ring_settings settings = small_chunks();
	for (size_t r = 0; r < count; r++)
		for (size_t l = 0; l < LAYERS; l++) {
			const size_t n = order[r];
			const struct detector before = penalty_begin(&past->detectors[n][l], &settings);
			struct detector after;
			double z;
			penalty_judge(&before, &settings, past->norms[n][l], &after, &z);
			assert_memory_equal(node_detector(lab->members[n].node, l), &after, sizeof after);
		}
}

struct death {
	struct lab *lab;
	size_t after, sent;
};

static bool die_after_frames(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct death *death = arg;
	(void)to;
	if (from != LOST || (message->kind != MESSAGE_CHUNK && message->kind != MESSAGE_RECORD))
		return true;
	if (death->sent++ < death->after)
		return true;
	death->lab->members[from].dead = true;
	return false;
}

/* A lab of three amid round 3, in which LOST has died after so many frames; NULL: it has sent fewer. */
static struct lab *lab_with_death(struct death *death, struct past *past)
{
	struct lab *lab = lab_of(3);
	work(lab, all, 3, 1);
	work(lab, all, 3, 2);
	for (size_t n = 0; n < 3; n++)
		move_member(lab, n, 30 + (unsigned)n);
	remember(lab, past);
	death->lab = lab;
	lab->filter = die_after_frames;
	lab->filter_arg = death;
	for (size_t n = 0; n < 3; n++)
		lab_offer(lab, n, false);
	lab_pass(lab, 1000000);
	lab->filter = NULL;
	if (lab->members[LOST].dead)
		return lab;
	lab_free(lab);
	return NULL;
}

static void round_that_is_done_again_is_judged_once(void **state)
{
	size_t redone = 0, fetched = 0;
	struct lab *lab;
	struct past past;
	(void)state;
	for (size_t after = 0; (lab = lab_with_death(&(struct death){.after = after}, &past)) != NULL; after++) {
		redone += node_layer_state(lab->members[0].node, 0) >= NODE_LAYER_SCALARS;
		lab_view(lab, 2, all, LEFT);
		assert_equal_members(lab, all, LEFT, 3);
		assert_judged_once(lab, all, LEFT, &past);
		fetched += lab->members[0].fetched + lab->members[1].fetched;
		lab_free(lab);
	}
	assert_true(redone > 0);
	assert_true(fetched > 0);
}

static bool count_other_heals(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	size_t *others = arg;
	(void)from;
	*others += message->kind == MESSAGE_CHUNK && message->chunk.phase == PHASE_HEAL && (to != 1 || message->chunk.layer_index != 0);
	return true;
}

/* It fetches what it held damaged, and nothing else is sent; its own detector has seen its own norms, others have seen others. */
static void what_is_fetched_leaves_the_own_detector_alone(void **state)
{
	struct lab *lab = lab_of(3);
	struct detector before;
	size_t others = 0;
	(void)state;
	work(lab, all, 3, 1);
	work(lab, all, 3, 2);
	before = *node_detector(lab->members[1].node, 0);
	assert_true(before.count == 2);
	assert_memory_not_equal(&before, node_detector(lab->members[0].node, 0), sizeof before);
	lab->members[1].layers[0].momentum[5] += 1;
	lab->members[1].fetched = 0;
	lab->filter = count_other_heals;
	lab->filter_arg = &others;
	lab_view(lab, 2, all, 3);
	assert_equal_members(lab, all, 3, 2);
	assert_int_equal(lab->members[1].fetched, 1);
	assert_int_equal(others, 0);
	assert_memory_equal(node_detector(lab->members[1].node, 0), &before, sizeof before);
	lab_free(lab);
}

static void joiner_begins_with_a_fresh_detector(void **state)
{
	static const struct detector fresh;
	struct lab *lab = lab_that_lost(3, 2);
	const struct node_config before = joiner();
	(void)state;
	spoil(lab, 2);
	enter_all(lab, 3, all, 3, 2, &before);
	assert_equal_members(lab, all, 3, 2);
	for (size_t l = 0; l < LAYERS; l++)
		assert_memory_equal(node_detector(lab->members[2].node, l), &fresh, sizeof fresh);
	lab_free(lab);
}

/* ---- Ahead, and from elsewhere ---- */

/* Nobody hears what LOST knows of the means. */
static bool keep_means(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	(void)arg;
	(void)to;
	return from != LOST || message->kind != MESSAGE_CHUNK || message->chunk.phase != PHASE_GATHER;
}

/* Whoever has committed a layer as the only one, and comes back with it, gives it to the others. */
static void member_that_comes_back_ahead_gives_its_layer_to_the_others(void **state)
{
	struct lab *lab = lab_of(3);
	struct past past;
	(void)state;
	work(lab, all, 3, 1);
	work(lab, all, 3, 2);
	for (size_t n = 0; n < 3; n++)
		move_member(lab, n, 30 + (unsigned)n);
	remember(lab, &past);
	lab->filter = keep_means;
	for (size_t n = 0; n < 3; n++)
		lab_offer(lab, n, false);
	lab->filter = NULL;
	const struct node *dead = lab->members[LOST].node;
	const uint64_t rounds[LAYERS] = {node_layer_round(dead, 0), node_layer_round(dead, 1), node_layer_round(dead, 2)};
	const uint64_t since[LAYERS] = {node_layer_since(dead, 0), node_layer_since(dead, 1), node_layer_since(dead, 2)};
	const struct node_config before = {.layer_rounds = rounds, .layer_since = since, .round = 2, .since = node_since(dead),
					   .is_outdated = true, .settings = small_chunks()};
	uint64_t hash = lab_hash(&lab->members[LOST].layers[0]);
	assert_int_equal(rounds[0], 3);
	for (size_t n = 0; n < LEFT; n++)
		assert_int_equal(node_layer_round(lab->members[n].node, 0), 2);
	for (size_t l = 0; l < LAYERS; l++)
		memset(lab->members[LOST].layers[l].theta, 0x7f, crew_sizes[l] * sizeof(float)); /* a new worker has none */
	enter_all(lab, 2, all, 3, LOST, &before);
	assert_equal_members(lab, all, 3, 3);
	assert_int_equal(lab_hash(&lab->members[0].layers[0]), hash);
	assert_judged_once(lab, all, LEFT, &past);
	work(lab, all, 3, 50);
	assert_equal_members(lab, all, 3, 4);
	lab_free(lab);
}

static void assert_verdicts(const struct lab *lab, uint32_t rank, enum verdict first, enum verdict second)
{
	for (size_t n = 0; n < lab->count; n++) {
		assert_int_equal(node_record(lab->members[n].node, 0, rank)->verdict, first);
		assert_int_equal(node_record(lab->members[n].node, 1, rank)->verdict, second);
		assert_true((node_weight(lab->members[n].node, 1, rank) > 0) == (second == VERDICT_ACCEPTED));
	}
}

/* Theta has moved from an anchor that turns out to be wrong. Not offered yet: nothing of it counts, because it is computed as a whole. */
static void theta_from_a_wrong_anchor_is_never_averaged(void **state)
{
	struct lab *lab = lab_of(3);
	(void)state;
	work(lab, all, 3, 1);
	lab->members[1].layers[1].anchor[3] += 1;
	lab->members[1].layers[1].theta[3] += 1;
	lab_view(lab, 2, all, 3);
	assert_equal_members(lab, all, 3, 1);
	work(lab, all, 3, 7);
	assert_equal_members(lab, all, 3, 2);
	assert_verdicts(lab, 1, VERDICT_LATE, VERDICT_LATE);
	for (size_t l = 0; l < LAYERS; l++)
		assert_memory_equal(lab->members[1].layers[l].theta, lab->members[0].layers[l].anchor, crew_sizes[l] * sizeof(float));
	work(lab, all, 3, 8);
	assert_equal_members(lab, all, 3, 3);
	assert_verdicts(lab, 1, VERDICT_ACCEPTED, VERDICT_ACCEPTED);
	lab_free(lab);
}

/* The same once it has been offered: its other layers are there and count. */
static void offered_theta_from_a_wrong_anchor_is_left_out_by_layer(void **state)
{
	struct lab *lab = lab_of(3);
	(void)state;
	work(lab, all, 3, 1);
	lab->members[1].layers[1].anchor[3] += 1;
	lab->members[1].layers[1].theta[3] += 1;
	for (size_t n = 0; n < 2; n++) {
		move_member(lab, n, 20 + (unsigned)n);
		lab_offer(lab, n, false);
	}
	lab_view(lab, 2, all, 3);
	work(lab, all + 2, 1, 22);
	assert_equal_members(lab, all, 3, 2);
	assert_verdicts(lab, 1, VERDICT_ACCEPTED, VERDICT_ABSENT);
	assert_memory_equal(lab->members[1].layers[1].theta, lab->members[0].layers[1].anchor, crew_sizes[1] * sizeof(float));
	lab_free(lab);
}

/* ---- Views that end amid it ---- */

/* Chunks of layers that do not get to this member: of layers from this one on. */
struct gap {
	uint32_t to, first_layer;
};

static bool leave_gap(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	const struct gap *gap = arg;
	(void)from;
	return message->kind != MESSAGE_CHUNK || message->chunk.phase != PHASE_HEAL || to != gap->to ||
	       message->chunk.layer_index < gap->first_layer;
}

/* Of four members 2 and 3 begin anew in view 2; what 3 gets comes from 2. */
static struct lab *lab_amid_heal(struct gap gap)
{
	struct lab *lab = lab_of(4);
	const struct node_config before = joiner();
	work(lab, all, 4, 1);
	lab->filter = leave_gap;
	lab->filter_arg = &gap;
	for (size_t n = 2; n < 4; n++) {
		spoil(lab, n);
		lab->members[n].published = lab->members[n].fetched = 0;
	}
	for (size_t n = 0; n < 4; n++)
		lab_enter(lab, n, 2, all, 4, n < 2 ? NULL : &before);
	lab_pass(lab, 1000000);
	lab->filter = NULL;
	for (size_t n = 0; n < 4; n++)
		assert_false(node_is_ready(lab->members[n].node));
	return lab;
}

static void member_amid_a_heal_claims_no_more_than_it_holds(void **state)
{
	struct lab *lab = lab_amid_heal((struct gap){.to = 3, .first_layer = 1});
	const struct node *node = lab->members[3].node;
	(void)state;
	assert_int_equal(node_layer_round(node, 0), 1);
	assert_int_equal(node_layer_since(node, 0), 1);
	assert_true(node_layer_round(node, 1) == LAYER_NOTHING);
	assert_int_equal(status_of(lab, 3).round, 0);
	assert_int_equal(node_since(node), 0);
	assert_int_equal(lab->members[3].published, 0);
	/* What it has got by then is not sent again. */
	lab->members[3].fetched = 0;
	lab_view(lab, 3, all, 4);
	assert_equal_members(lab, all, 4, 1);
	assert_int_equal(lab->members[3].fetched, 1); /* and the empty layer it had at once */
	assert_int_equal(lab->members[3].published, LAYERS);
	work(lab, all, 4, 60);
	assert_equal_members(lab, all, 4, 2);
	lab_free(lab);
}

/* 2 holds everything while 3 still lacks something, and then is the only one left. */
static void member_that_has_got_everything_goes_on_alone(void **state)
{
	struct lab *lab = lab_amid_heal((struct gap){.to = 3, .first_layer = 1});
	const size_t left[] = {2, 3};
	(void)state;
	assert_int_equal(status_of(lab, 2).round, 1);
	assert_int_equal(node_since(lab->members[2].node), 1);
	lab->members[0].dead = lab->members[1].dead = true;
	lab_view(lab, 3, left, 2);
	assert_equal_members(lab, left, 2, 1);
	assert_int_equal(lab->members[2].published, LAYERS);
	work(lab, left, 2, 61);
	assert_equal_members(lab, left, 2, 2);
	lab_free(lab);
}

/* ---- Frames ---- */

static void frames_of_another_view_are_dropped_and_counted(void **state)
{
	struct lab *lab = lab_of(2);
	(void)state;
	work(lab, all, 2, 1);
	lab_enter(lab, 0, 2, all, 2, NULL);
	uint64_t dropped = status_of(lab, 0).frames_dropped, round = status_of(lab, 0).round;
	move_member(lab, 1, 70);
	lab_offer(lab, 1, false); /* its record goes to a member of view 2 */
	lab_pass(lab, 100000);
	assert_true(status_of(lab, 0).frames_dropped > dropped);
	lab_enter(lab, 1, 2, all, 2, NULL);
	lab_pass(lab, 1000000);
	assert_equal_members(lab, all, 2, round);
	work(lab, all, 1, 71);
	assert_equal_members(lab, all, 2, 2);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_that_is_done_again_is_judged_once),
		cmocka_unit_test(what_is_fetched_leaves_the_own_detector_alone),
		cmocka_unit_test(joiner_begins_with_a_fresh_detector),
		cmocka_unit_test(member_that_comes_back_ahead_gives_its_layer_to_the_others),
		cmocka_unit_test(theta_from_a_wrong_anchor_is_never_averaged),
		cmocka_unit_test(offered_theta_from_a_wrong_anchor_is_left_out_by_layer),
		cmocka_unit_test(member_amid_a_heal_claims_no_more_than_it_holds),
		cmocka_unit_test(member_that_has_got_everything_goes_on_alone),
		cmocka_unit_test(frames_of_another_view_are_dropped_and_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

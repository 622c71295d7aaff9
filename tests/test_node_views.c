/* Members that change, over a perfect wire: whoever dies at whatever moment, the others lose nothing, do nothing by halves and nothing
 * twice, and whoever is behind gets what it lacks. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/outer.h"
#include "core/vec.h"
#include "tests/crew.h"

/* ---- Deaths ---- */

/* What each member's layers were at the offer, to compare with. */
struct memory {
	float theta[8][LAYERS][SIZE], anchor[8][LAYERS][SIZE];
};

static void remember(const struct lab *lab, struct memory *memory)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < LAYERS; l++) {
			memcpy(memory->theta[n][l], lab->members[n].layers[l].theta, crew_sizes[l] * sizeof(float));
			memcpy(memory->anchor[n][l], lab->members[n].layers[l].anchor, crew_sizes[l] * sizeof(float));
		}
}

static void assert_sources_are_untouched(const struct lab *lab, const struct memory *memory)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < LAYERS; l++) {
			if (lab->members[n].dead || node_layer_round(lab->members[n].node, l) > 1)
				continue;
			assert_memory_equal(lab->members[n].layers[l].theta, memory->theta[n][l], crew_sizes[l] * sizeof(float));
			assert_memory_equal(lab->members[n].layers[l].anchor, memory->anchor[n][l], crew_sizes[l] * sizeof(float));
		}
}

/* One member dies amid round 2, after so many frames; the others end it and do two more. False: it has sent fewer. */
static bool die_once(size_t count, uint32_t rank, size_t after, size_t *fetched)
{
	struct lab *lab = lab_of(count);
	struct crew_death death = {.lab = lab, .rank = rank, .after = after};
	struct memory *memory = malloc(sizeof *memory);
	size_t left[8], left_count = 0;
	for (size_t n = 0; n < count; n++)
		if (n != rank)
			left[left_count++] = n;
	work(lab, all, count, 1);
	assert_equal_members(lab, all, count, 1);
	for (size_t n = 0; n < count; n++)
		move_member(lab, n, 17 + (unsigned)n);
	remember(lab, memory);
	lab->filter = crew_die_after_frames;
	lab->filter_arg = &death;
	for (size_t n = 0; n < count; n++)
		lab_offer(lab, n, false);
	lab_pass(lab, 1000000);
	assert_sources_are_untouched(lab, memory);
	free(memory);
	bool has_died = lab->members[rank].dead;
	uint64_t done[LAYERS] = {0}, hash[LAYERS] = {0};
	for (size_t r = 0; r < left_count; r++)
		for (size_t l = 0; l < LAYERS; l++)
			if (node_layer_round(lab->members[left[r]].node, l) == 2) {
				done[l]++;
				hash[l] = lab_hash(&lab->members[left[r]].layers[l]);
			}
	if (has_died)
		lab_view(lab, 2, left, left_count);
	assert_equal_members(lab, left, left_count, 2);
	for (size_t l = 0; l < LAYERS; l++)
		if (done[l] > 0)
			assert_int_equal(lab_hash(&lab->members[left[0]].layers[l]), hash[l]);
	for (size_t r = 0; r < left_count; r++) {
		*fetched += lab->members[left[r]].fetched;
		assert_int_equal(lab->members[left[r]].published, LAYERS);
	}
	work(lab, left, has_died ? left_count : 0, 33);
	work(lab, left, has_died ? left_count : 0, 34);
	assert_equal_members(lab, left, left_count, has_died ? 4 : 2);
	lab_free(lab);
	return has_died;
}

static void death_at_any_frame_leaves_sources_and_the_others_go_on(void **state)
{
	size_t fetched = 0;
	(void)state;
	for (size_t count = 2; count <= 4; count++)
		for (uint32_t rank = 0; rank < count; rank++) {
			size_t after = 0;
			while (die_once(count, rank, after, &fetched))
				after++;
			assert_true(after >= 2 * (LAYERS - 1) * (count - 1)); /* each hop of both phases */
		}
	assert_true(fetched > 0); /* a layer that one had committed before the others */
}

/* ---- Meeting ---- */

static void joiner_takes_part_in_the_next_round(void **state)
{
	struct lab *lab = lab_that_lost(4, 3);
	const struct node_config before = joiner();
	(void)state;
	spoil(lab, 3);
	lab->members[3].published = lab->members[3].fetched = 0;
	enter_all(lab, 3, all, 4, 3, &before);
	assert_equal_members(lab, all, 4, 2);
	assert_int_equal(lab->members[3].fetched, LAYERS);
	assert_int_equal(lab->members[3].published, LAYERS);
	for (size_t l = 0; l < LAYERS; l++)
		assert_memory_equal(lab->members[3].layers[l].theta, lab->members[0].layers[l].anchor, crew_sizes[l] * sizeof(float));
	assert_int_equal(lab->members[3].schedule, 128);
	work(lab, all, 4, 9);
	assert_equal_members(lab, all, 4, 3);
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_int_equal(node_record(lab->members[0].node, 0, rank)->verdict, VERDICT_ACCEPTED);
	lab_free(lab);
}

/* Once as one that fetches all, once as one that holds all but has missed that it was the end. */
static void member_that_was_away_at_the_end_of_the_run_has_finished_too(void **state)
{
	(void)state;
	for (int is_behind = 0; is_behind <= 1; is_behind++) {
		struct lab *lab = lab_that_lost(3, 0);
		const size_t left[] = {1, 2};
		struct node_config before = joiner();
		for (size_t r = 0; r < 2; r++) {
			move_member(lab, left[r], 50 + (unsigned)r);
			lab_offer(lab, left[r], true);
		}
		assert_equal_members(lab, left, 2, 3);
		assert_int_equal(status_of(lab, 1).phase, NODE_FINISHED);
		const uint64_t rounds[LAYERS] = {3, 3, 3};
		spoil(lab, 0);
		if (!is_behind) {
			for (size_t l = 0; l < LAYERS; l++) {
				memcpy(lab->members[0].layers[l].anchor, lab->members[1].layers[l].anchor, crew_sizes[l] * sizeof(float));
				memcpy(lab->members[0].layers[l].momentum, lab->members[1].layers[l].momentum, crew_sizes[l] * sizeof(float));
			}
			before = (struct node_config){.round = 3, .since = 2, .layer_rounds = rounds,
						      .settings = *node_settings(lab->members[1].node)};
		}
		enter_all(lab, 3, all, 3, 0, &before);
		assert_equal_members(lab, all, 3, 3);
		for (size_t n = 0; n < 3; n++) {
			assert_int_equal(status_of(lab, n).phase, NODE_FINISHED);
			assert_int_equal(lab_notes(lab, n, NOTE_FINISHED), 1);
		}
		assert_int_equal(lab->members[0].schedule, 0);
		lab_free(lab);
	}
}

static void joiner_amid_a_round_is_absent_from_it_and_in_the_next(void **state)
{
	struct lab *lab = lab_that_lost(4, 3);
	const struct node_config before = joiner();
	const size_t left[] = {0, 1, 2};
	(void)state;
	spoil(lab, 3);
	/* The others wait for the last of them. */
	for (size_t n = 0; n < 2; n++) {
		move_member(lab, n, 50 + (unsigned)n);
		lab_offer(lab, n, false);
	}
	lab->members[3].published = 0;
	enter_all(lab, 3, all, 4, 3, &before);
	assert_int_equal(lab->members[3].published, 0);
	work(lab, left + 2, 1, 60);
	assert_equal_members(lab, all, 4, 3);
	assert_int_equal(lab->members[3].published, LAYERS);
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_int_equal(node_record(lab->members[0].node, 0, rank)->verdict, rank == 3 ? VERDICT_ABSENT : VERDICT_ACCEPTED);
	assert_true(node_weight(lab->members[0].node, 0, 3) == 0);
	work(lab, all, 4, 70);
	assert_equal_members(lab, all, 4, 4);
	assert_int_equal(node_record(lab->members[0].node, 0, 3)->verdict, VERDICT_ACCEPTED);
	lab_free(lab);
}

static void stale_member_is_healed_never_averaged(void **state)
{
	struct lab *lab = lab_that_lost(4, 3);
	const uint64_t rounds[LAYERS] = {1, 1, 1};
	struct node_config before = joiner();
	(void)state;
	before.layer_rounds = rounds;
	before.round = before.since = 1;
	uint64_t hash = lab_hash(&lab->members[0].layers[0]);
	enter_all(lab, 3, all, 4, 3, &before);
	assert_equal_members(lab, all, 4, 2);
	assert_int_equal(lab_hash(&lab->members[3].layers[0]), hash);
	lab_free(lab);
}

/* It was cut off, not dead: its worker has gone on, and has offered. */
static void live_member_that_was_left_out_gets_the_anchor(void **state)
{
	struct lab *lab = lab_of(4);
	const size_t left[] = {0, 1, 2};
	(void)state;
	work(lab, all, 4, 1);
	for (size_t r = 0; r < 3; r++)
		lab_enter(lab, left[r], 2, left, 3, NULL);
	work(lab, left, 3, 5);
	assert_equal_members(lab, left, 3, 2);
	move_member(lab, 3, 6);
	lab_offer(lab, 3, false);
	lab_pass(lab, 1000000);
	lab_view(lab, 3, all, 4);
	assert_equal_members(lab, all, 4, 2);
	assert_int_equal(lab->members[3].published, LAYERS);
	assert_memory_equal(lab->members[3].layers[0].theta, lab->members[0].layers[0].anchor, sizeof(float) * SIZE);
	work(lab, all, 4, 9);
	assert_equal_members(lab, all, 4, 3);
	lab_free(lab);
}

/* Nothing arrives any more once somebody has done the first layer of round 3. */
static bool stop_after_the_first_layer(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	const struct lab *lab = arg;
	(void)from;
	(void)to;
	(void)message;
	for (size_t n = 0; n < 3; n++)
		if (node_layer_round(lab->members[n].node, 0) == 3)
			return false;
	return true;
}

/* The first layer, with whose records the next offer is agreed on, was done before it came. */
static void live_member_that_comes_when_the_first_layer_is_done_is_told_when_to_offer_next(void **state)
{
	struct lab *lab = lab_of(4);
	const size_t left[] = {0, 1, 2};
	(void)state;
	work(lab, all, 4, 1);
	for (size_t r = 0; r < 3; r++)
		lab_enter(lab, left[r], 2, left, 3, NULL);
	work(lab, left, 3, 5);
	lab->filter = stop_after_the_first_layer;
	lab->filter_arg = lab;
	work(lab, left, 3, 6);
	for (size_t n = 0; n < 3; n++)
		assert_int_equal(status_of(lab, n).round, 2);
	lab->filter = NULL;
	lab_view(lab, 3, all, 4);
	uint64_t told = lab->members[3].scheduled_count;
	move_member(lab, 3, 7);
	lab_offer(lab, 3, false);
	lab_pass(lab, 1000000);
	assert_equal_members(lab, all, 4, 3);
	assert_true(lab->members[3].scheduled_count > told);
	work(lab, all, 4, 9);
	assert_equal_members(lab, all, 4, 4);
	lab_free(lab);
}

static void wrong_hash_heals_that_layer_only(void **state)
{
	struct lab *lab = lab_of(4);
	(void)state;
	work(lab, all, 4, 1);
	lab->members[2].layers[1].momentum[3] += 1;
	for (size_t n = 0; n < 4; n++)
		lab->members[n].fetched = 0;
	lab_view(lab, 2, all, 4);
	assert_equal_members(lab, all, 4, 1);
	for (size_t n = 0; n < 4; n++)
		assert_int_equal(lab->members[n].fetched, n == 2);
	work(lab, all, 4, 2);
	assert_equal_members(lab, all, 4, 2);
	lab_free(lab);
}

static void torn_layer_is_fetched_and_what_was_torn_is_not_missed(void **state)
{
	struct lab *lab = lab_of(3);
	const uint64_t rounds[LAYERS] = {LAYER_NOTHING, 1, 1};
	struct node_config before = joiner();
	(void)state;
	work(lab, all, 3, 1);
	lab->members[1].layers[0].anchor[0] = 7;
	lab->members[1].fetched = 0;
	before.layer_rounds = rounds;
	before.round = before.since = 1;
	enter_all(lab, 2, all, 3, 1, &before);
	assert_equal_members(lab, all, 3, 1);
	assert_int_equal(lab->members[1].fetched, 1);
	lab_free(lab);
}

/* ---- Nobody has it ---- */

static void members_that_lack_what_nobody_has_wait_for_who_does(void **state)
{
	struct lab *lab = lab_of(3);
	const size_t two[] = {0, 1};
	const struct node_config before = joiner();
	(void)state;
	work(lab, all, 3, 1);
	lab->members[2].dead = true;
	for (size_t r = 0; r < 2; r++) {
		spoil(lab, r);
		lab_enter(lab, r, 2, two, 2, &before);
	}
	lab_pass(lab, 1000000);
	for (size_t r = 0; r < 2; r++) {
		assert_false(node_is_ready(lab->members[r].node));
		assert_int_equal(lab_notes(lab, r, NOTE_LAYER_MISSING), 1);
	}
	lab->members[2].dead = false;
	lab_view(lab, 3, all, 3);
	assert_equal_members(lab, all, 3, 1);
	lab_free(lab);
}

/* ---- Deaths while layers are fetched ---- */

static bool die_after_heals(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	struct crew_death *death = arg;
	(void)to;
	if (from != death->rank || (message->kind != MESSAGE_STANDING && message->kind != MESSAGE_HOLDING &&
				    message->kind != MESSAGE_CHUNK))
		return true;
	if (death->sent++ < death->after)
		return true;
	death->lab->members[from].dead = true;
	return false;
}

/* Of four members one joins; rank dies at the begin of that view, after so many frames. */
static bool die_at_the_begin(uint32_t rank, size_t after)
{
	struct lab *lab = lab_that_lost(4, 3);
	struct crew_death death = {.lab = lab, .rank = rank, .after = after};
	const struct node_config before = joiner();
	size_t left[4], left_count = 0;
	for (size_t n = 0; n < 4; n++)
		if (n != rank)
			left[left_count++] = n;
	spoil(lab, 3);
	lab->filter = die_after_heals;
	lab->filter_arg = &death;
	enter_all(lab, 3, all, 4, 3, &before);
	bool has_died = lab->members[rank].dead;
	if (has_died) {
		lab_view(lab, 4, left, left_count);
		assert_equal_members(lab, left, left_count, 2);
		work(lab, left, left_count, 3);
		assert_equal_members(lab, left, left_count, 3);
	}
	lab_free(lab);
	return has_died;
}

static void death_at_any_frame_of_a_heal_is_another_view(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 4; rank++) {
		size_t after = 0;
		while (die_at_the_begin(rank, after))
			after++;
		assert_true(after > 4);
	}
}

/* ---- Alone ---- */

static void lone_survivor_steps_by_its_own_pseudo_gradient(void **state)
{
	struct lab *lab = lab_of(2);
	const size_t one[] = {1};
	float anchor[SIZE], momentum[SIZE], delta[SIZE];
	const struct ring_settings settings = small_chunks();
	const struct layer *layer = &lab->members[1].layers[0];
	(void)state;
	work(lab, all, 2, 1);
	lab->members[0].dead = true;
	lab_view(lab, 2, one, 1);
	for (unsigned r = 0; r < 3; r++) {
		memcpy(anchor, layer->anchor, sizeof anchor);
		memcpy(momentum, layer->momentum, sizeof momentum);
		move_member(lab, 1, 90 + r);
		double square = vec_delta(delta, layer->anchor, layer->theta, SIZE);
		double clip = outer_clip_scale(square, settings.value[PENALTY_CLIP]);
		outer_step(anchor, momentum, delta, clip, settings.value[OUTER_LR], settings.value[OUTER_MOMENTUM], SIZE);
		lab_offer(lab, 1, false);
		lab_pass(lab, 1000000);
		assert_int_equal(status_of(lab, 1).round, 2 + r);
		assert_memory_equal(layer->anchor, anchor, sizeof anchor);
		assert_memory_equal(layer->momentum, momentum, sizeof momentum);
		assert_memory_equal(layer->theta, anchor, sizeof anchor);
	}
	lab_free(lab);
}

/* ---- Rings of rings, changes ---- */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joiner_takes_part_in_the_next_round),
		cmocka_unit_test(member_that_was_away_at_the_end_of_the_run_has_finished_too),
		cmocka_unit_test(joiner_amid_a_round_is_absent_from_it_and_in_the_next),
		cmocka_unit_test(stale_member_is_healed_never_averaged),
		cmocka_unit_test(live_member_that_was_left_out_gets_the_anchor),
		cmocka_unit_test(live_member_that_comes_when_the_first_layer_is_done_is_told_when_to_offer_next),
		cmocka_unit_test(wrong_hash_heals_that_layer_only),
		cmocka_unit_test(torn_layer_is_fetched_and_what_was_torn_is_not_missed),
		cmocka_unit_test(members_that_lack_what_nobody_has_wait_for_who_does),
		cmocka_unit_test(lone_survivor_steps_by_its_own_pseudo_gradient),
		cmocka_unit_test(death_at_any_frame_of_a_heal_is_another_view),
		cmocka_unit_test(death_at_any_frame_leaves_sources_and_the_others_go_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

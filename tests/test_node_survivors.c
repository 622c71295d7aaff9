/* A daemon that dies and starts again while its worker lives on, over a perfect wire: what the worker has done counts, unless it began from
 * what nobody knows any more, and the worker is always told what comes next. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/crew.h"

/* What the next daemon finds of the last one's state; rounds, since [LAYERS]. */
static struct node_config state_of(const struct lab *lab, size_t n, uint64_t *rounds, uint64_t *since)
{
	for (size_t l = 0; l < LAYERS; l++) {
		rounds[l] = node_layer_round(lab->members[n].node, l);
		since[l] = node_layer_since(lab->members[n].node, l);
	}
	return (struct node_config){.layer_rounds = rounds, .layer_since = since, .round = status_of(lab, n).round,
				    .since = node_since(lab->members[n].node), .settings = *node_settings(lab->members[n].node)};
}

static void worker_that_outlives_its_daemon_counts_with_what_it_has_done(void **state)
{
	struct lab *lab = lab_of(3);
	uint64_t rounds[LAYERS], since[LAYERS];
	(void)state;
	work(lab, all, 3, 1);
	move_member(lab, 2, 5); /* and then its daemon dies */
	const struct node_config before = state_of(lab, 2, rounds, since);
	enter_all(lab, 2, all, 3, 2, &before);
	work(lab, all, 3, 9);
	assert_equal_members(lab, all, 3, 2);
	assert_int_equal(node_record(lab->members[0].node, 0, 2)->verdict, VERDICT_ACCEPTED);
	lab_free(lab);
}

/* The layer may have been torn by its next commit, from which theta has begun then. */
static void theta_beside_a_torn_layer_is_not_counted(void **state)
{
	struct lab *lab = lab_of(3);
	uint64_t rounds[LAYERS], since[LAYERS];
	(void)state;
	work(lab, all, 3, 1);
	struct node_config before = state_of(lab, 2, rounds, since);
	rounds[1] = LAYER_NOTHING;
	since[1] = 0;
	enter_all(lab, 2, all, 3, 2, &before);
	work(lab, all, 3, 9);
	assert_equal_members(lab, all, 3, 2);
	for (size_t l = 0; l < LAYERS; l++) {
		assert_int_equal(node_record(lab->members[0].node, l, 2)->verdict, VERDICT_LATE);
		assert_memory_equal(lab->members[2].layers[l].theta, lab->members[2].layers[l].anchor, crew_sizes[l] * sizeof(float));
	}
	work(lab, all, 3, 17);
	assert_int_equal(node_record(lab->members[0].node, 0, 2)->verdict, VERDICT_ACCEPTED);
	lab_free(lab);
}

/* A daemon dies amid round 2 after so many frames and starts again; its worker has nothing back and offers again, or has some layers back
 * and offers after its next step (is_final: then for the last time). False: it has sent fewer. */
static bool outlive_once(size_t after, bool is_final, size_t *again, size_t *void_offers)
{
	struct lab *lab = lab_of(3);
	struct lab_member *member = &lab->members[2];
	struct crew_death death = {.lab = lab, .rank = 2, .after = after};
	uint64_t rounds[LAYERS], since[LAYERS];
	work(lab, all, 3, 1);
	for (size_t n = 0; n < 3; n++)
		move_member(lab, n, 17 + (unsigned)n);
	lab->filter = crew_die_after_frames;
	lab->filter_arg = &death;
	for (size_t n = 0; n < 3; n++)
		lab_offer(lab, n, false);
	lab_pass(lab, 1000000);
	lab->filter = NULL;
	const bool has_died = member->dead;
	const struct node_config before = state_of(lab, 2, rounds, since);
	if (has_died)
		enter_all(lab, 2, all, 3, 2, &before);
	if (has_died && before.round == 1 && rounds[0] == 2)
		assert_int_equal(member->schedule, 1); /* the others wait for it */
	if (before.round == 1) {
		*again += member->published == 0;
		*void_offers += member->published > 0;
		if (member->published > 0)
			move_member(lab, 2, 23);
		const uint64_t scheduled_count = member->scheduled_count;
		lab_offer(lab, 2, is_final);
		lab_pass(lab, 1000000);
		assert_true(is_final || member->scheduled_count > scheduled_count); /* what comes after that offer */
	}
	if (before.round == 1 && is_final) {
		/* The last round is this one, or the next if the others had agreed upon this one. */
		if (lab_notes(lab, 0, NOTE_FINISHED) == 0)
			work(lab, all, 2, 33);
		for (size_t n = 0; n < 3; n++)
			assert_int_equal(lab_notes(lab, n, NOTE_FINISHED), 1);
		assert_equal_members(lab, all, 3, status_of(lab, 0).round);
	} else {
		assert_equal_members(lab, all, 3, 2);
		assert_int_equal(member->published, LAYERS);
		work(lab, all, 3, 33);
		assert_equal_members(lab, all, 3, 3);
		assert_int_equal(node_record(lab->members[0].node, 0, 2)->verdict, VERDICT_ACCEPTED);
	}
	lab_free(lab);
	return has_died;
}

static void daemon_that_dies_at_any_frame_goes_on_with_its_worker(void **state)
{
	size_t again = 0, void_offers = 0, after = 0;
	(void)state;
	while (outlive_once(after, false, &again, &void_offers))
		after++;
	assert_true(again > 0);
	assert_true(void_offers > 0);
}

/* Its run had ended, but that was of others than those who are there. */
static void offer_before_a_view_begins_counts_though_the_run_had_ended(void **state)
{
	struct lab *lab = lab_of(3);
	uint64_t rounds[LAYERS] = {0}, since[LAYERS] = {0};
	(void)state;
	work(lab, all, 3, 1);
	struct node_config before = state_of(lab, 2, rounds, since);
	memset(rounds, 0, sizeof rounds);
	memset(since, 0, sizeof since);
	before.round = before.since = 0;
	before.finished = true;
	lab_enter(lab, 2, 2, all, 3, &before);
	lab_offer(lab, 2, false);
	lab_enter(lab, 0, 2, all, 3, NULL);
	lab_enter(lab, 1, 2, all, 3, NULL);
	work(lab, all, 2, 9);
	assert_equal_members(lab, all, 3, 2);
	lab_free(lab);
}

static void last_offer_is_heard_whenever_a_daemon_has_died(void **state)
{
	size_t again = 0, void_offers = 0, after = 0;
	(void)state;
	while (outlive_once(after, true, &again, &void_offers))
		after++;
	assert_true(void_offers > 0);
}

/* Whoever fetches the layer from it must know: theta that ran behind that round becomes the anchor. */
static void round_that_was_rolled_back_is_known_to_the_next_daemon(void **state)
{
	struct lab *lab = lab_of(2);
	uint64_t rounds[LAYERS], since[LAYERS];
	bool rolled_back[LAYERS];
	const struct node_config nothing = joiner();
	(void)state;
	work(lab, all, 2, 1);
	for (size_t n = 0; n < 2; n++) {
		lab->members[n].layers[0].theta[0] = NAN;
		lab_offer(lab, n, false);
	}
	lab_pass(lab, 1000000);
	assert_equal_members(lab, all, 2, 2);
	struct node_config before = state_of(lab, 0, rounds, since);
	for (size_t l = 0; l < LAYERS; l++)
		rolled_back[l] = node_layer_is_rolled_back(lab->members[0].node, l);
	assert_true(rolled_back[0]);
	assert_false(rolled_back[1]);
	before.layer_rolled_back = rolled_back;
	spoil(lab, 1);
	lab_enter(lab, 0, 2, all, 2, &before);
	lab_enter(lab, 1, 2, all, 2, &nothing);
	lab_pass(lab, 1000000);
	for (size_t n = 0; n < 2; n++) {
		assert_true(node_layer_is_rolled_back(lab->members[n].node, 0));
		assert_false(node_layer_is_rolled_back(lab->members[n].node, 1));
	}
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(worker_that_outlives_its_daemon_counts_with_what_it_has_done),
		cmocka_unit_test(theta_beside_a_torn_layer_is_not_counted),
		cmocka_unit_test(daemon_that_dies_at_any_frame_goes_on_with_its_worker),
		cmocka_unit_test(offer_before_a_view_begins_counts_though_the_run_had_ended),
		cmocka_unit_test(last_offer_is_heard_whenever_a_daemon_has_died),
		cmocka_unit_test(round_that_was_rolled_back_is_known_to_the_next_daemon),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

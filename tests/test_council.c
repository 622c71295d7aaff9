/* Views decided by councils, one condition each. Drawn worlds: tests/test_council_seeds.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/convene.h"

/* The name of a member, as in a roster. */
static const char *name_of(uint32_t member)
{
	static char names[ASSEMBLY_MAX][SEAT_NAME_BYTES];
	names[member][0] = (char)('a' + member);
	return names[member];
}

static struct decree word(const struct assembly *world, uint32_t from, enum decree_kind kind, uint64_t view, uint64_t ballot)
{
	return (struct decree){.kind = kind, .sender = name_of(from),
			.incarnation = world->delegates[from].council.config.self.incarnation, .disk = 9000 + from, .fingerprint = 1,
			       .view = view, .ballot = ballot};
}

static uint64_t promised(const struct assembly *world, uint32_t member)
{
	return world->delegates[member].council.vote.promised;
}

/* ---- Who goes on ---- */

static void holder_of_a_pair_goes_on_alone(void **state)
{
	(void)state;
	struct assembly *world = convene(2);
	convene_assert_views(world, "Ab Ab");
	assembly_crash(world, B);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "A -");
	assert_int_equal(world->highest, 2);
	assembly_start(world, B);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Ab Ab");
	convene_end(world);
}

static void other_of_a_pair_does_not(void **state)
{
	(void)state;
	struct assembly *world = convene(2);
	assembly_crash(world, A);
	convene_run(world, 30 * SECOND);
	convene_assert_views(world, "- Ab");
	assert_int_equal(world->highest, 1);
	assert_true(assembly_counts(world).attempts >= 3); /* it has tried */
	assert_true(assembly_counts(world).attempts <= 30);
	convene_end(world);
}

static void cut_pair_goes_on_as_its_holder_only(void **state)
{
	(void)state;
	struct assembly *world = convene(2);
	assembly_cut(world, A, B, true);
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "A Ab");
	assembly_cut(world, A, B, false);
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "Ab Ab");
	convene_end(world);
}

static void three_of_four_go_on(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	assembly_crash(world, C);
	convene_run(world, 3 * SECOND);
	convene_assert_views(world, "Abd Abd - Abd");
	assert_int_equal(world->highest, 2);
	assembly_crash(world, A); /* the tie-holder: the first who is left is the next one */
	convene_run(world, 3 * SECOND);
	convene_assert_views(world, "- Bd - Bd");
	convene_end(world);
}

static void of_two_halves_only_that_with_the_holder_goes_on(void **state)
{
	(void)state;
	for (uint32_t mate = B; mate <= D; mate++) {
		struct assembly *world = convene(4);
		for (uint32_t other = B; other <= D; other++)
			if (other != mate)
				for (uint32_t one = A; one <= D; one++)
					if (one == A || one == mate)
						assembly_cut(world, one, other, true);
		convene_run(world, 20 * SECOND);
		char view[ASSEMBLY_MAX + 1];
		const char half[3] = {'A', (char)('a' + mate), 0};
		for (uint32_t member = A; member <= D; member++)
			assert_string_equal(assembly_view(world, member, view), member == A || member == mate ? half : "Abcd");
		assert_int_equal(world->highest, 2);
		memset(world->cut, 0, sizeof world->cut);
		convene_run(world, 20 * SECOND);
		convene_assert_all_together(world, 4);
		convene_end(world);
	}
}

static void three_of_six_without_the_holder_do_not_go_on(void **state)
{
	(void)state;
	struct assembly *world = convene(6);
	assembly_crash(world, A);
	assembly_crash(world, C);
	assembly_crash(world, E);
	convene_run(world, 20 * SECOND);
	assert_int_equal(world->highest, 1);
	assembly_start(world, E);
	convene_run(world, 20 * SECOND);
	convene_assert_views(world, "- Bdef - Bdef Bdef Bdef");
	convene_end(world);
}

/* ---- Ballots and disks ---- */

static void two_proposers_at_once_end_in_one_view(void **state)
{
	(void)state;
	struct assembly *world = convene(5);
	for (uint32_t member = A; member <= E; member++)
		world->delegates[member].council.config.rank_us = 0;
	assembly_crash(world, C);
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "Abde Abde - Abde Abde");
	assert_int_equal(world->highest, 2);
	assert_true(assembly_counts(world).attempts > 1);
	assert_true(assembly_counts(world).given_way > 0);
	convene_end(world);
}

static void nothing_is_answered_before_the_disk_has_it(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	struct decree prepare = word(world, B, DECREE_PREPARE, 1, ballot_make(5, B));
	struct council *council = &world->delegates[A].council;
	struct council_event event = {.kind = COUNCIL_EVENT_DECREE, .now_us = world->now_us, .decree = &prepare};
	council_step(council, &event, &world->actions);
	assert_int_equal(world->actions.count, 1);
	assert_int_equal(world->actions.list[0].kind, COUNCIL_ACTION_PERSIST);
	assert_int_equal(world->actions.list[0].vote->promised, prepare.ballot);
	council_step(council, &event, &world->actions); /* said again while the disk is at it */
	assert_int_equal(world->actions.count, 0);
	event.kind = COUNCIL_EVENT_PERSISTED;
	council_step(council, &event, &world->actions);
	assert_int_equal(world->actions.count, 1);
	assert_int_equal(world->actions.list[0].kind, COUNCIL_ACTION_SEND);
	assert_int_equal(world->actions.list[0].decree.kind, DECREE_PROMISE);
	event.kind = COUNCIL_EVENT_DECREE; /* and now it is answered without the disk */
	council_step(council, &event, &world->actions);
	assert_int_equal(world->actions.count, 1);
	assert_int_equal(world->actions.list[0].decree.kind, DECREE_PROMISE);
	convene_end(world);
}

static void promise_survives_a_restart(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	struct decree high = word(world, B, DECREE_PREPARE, 1, ballot_make(5, B)), low = word(world, C, DECREE_PREPARE, 1,
			ballot_make(4, C));
	assembly_deliver(world, B, A, &high);
	convene_run(world, 50000);
	assert_int_equal(world->sent[DECREE_PROMISE], 1);
	assembly_crash(world, A);
	world->delegates[A].has_begun = false; /* its driver says nothing yet */
	assembly_start(world, A);
	assert_int_equal(promised(world, A), high.ballot);
	uint64_t promises = world->sent[DECREE_PROMISE];
	assembly_deliver(world, C, A, &low);
	assert_int_equal(world->sent[DECREE_NACK], 1);
	assert_int_equal(world->sent[DECREE_PROMISE], promises);
	assert_int_equal(world->delegates[A].file.promised, high.ballot);
	convene_end(world);
}

static void accepted_value_is_adopted_by_a_later_proposer(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	world->muted[DECREE_ACCEPTED] = world->muted[DECREE_NACK] = true;
	assembly_crash(world, C);
	for (int i = 0; i < 500 && world->delegates[B].file.accepted_ballot == 0; i++)
		convene_run(world, 10000);
	assert_true(world->delegates[B].file.accepted_ballot != 0); /* the view of a and b, which nobody knows to be decided */
	assembly_crash(world, A);
	assembly_start(world, C);
	memset(world->muted, 0, sizeof world->muted);
	convene_run(world, 10 * SECOND);
	assert_true(assembly_counts(world).adopted > 0);
	assert_int_equal(world->decided[2].count, 2);
	assert_true(seat_is_of(&world->decided[2].seats[0], name_of(A)));
	assert_int_equal(world->highest, 2); /* in which b is not the holder */
	assembly_start(world, A); /* the seat is that of an earlier start, the disk is the same: it votes, and lets itself in */
	convene_run(world, 20 * SECOND);
	convene_assert_views(world, "Abc Abc Abc");
	convene_end(world);
}

static void decided_that_was_lost_is_asked_for(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	world->muted[DECREE_DECIDED] = true;
	assembly_crash(world, C);
	convene_run(world, SECOND * 3 / 2);
	uint32_t known = 0;
	for (uint32_t member = A; member <= D; member++)
		known += world->delegates[member].is_live && world->delegates[member].installed == 2;
	assert_int_equal(known, 1);
	memset(world->muted, 0, sizeof world->muted);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abd Abd - Abd");
	assert_int_equal(world->highest, 2);
	convene_end(world);
}

static void member_beyond_a_view_answers_with_its_roster(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	assembly_crash(world, C);
	convene_run(world, 3 * SECOND);
	uint64_t at = world->delegates[A].council.vote.promised;
	for (enum decree_kind kind = DECREE_PREPARE; kind <= DECREE_ASK; kind++) {
		struct decree decree = word(world, D, kind, 1, ballot_make(900, D));
		decree.roster = world->decided[kind == DECREE_DECIDED ? 1 : 2];
		uint64_t answers = world->sent[DECREE_DECIDED];
		assembly_deliver(world, D, A, &decree);
		assert_int_equal(world->sent[DECREE_DECIDED], answers + 1);
	}
	assert_int_equal(promised(world, A), at);
	assert_int_equal(assembly_counts(world).dropped, 0);
	convene_end(world);
}

static void member_that_is_behind_asks(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	struct decree decree = word(world, B, DECREE_PREPARE, 9, ballot_make(1, B));
	uint64_t asked = world->sent[DECREE_ASK];
	assembly_deliver(world, B, A, &decree);
	assert_int_equal(world->sent[DECREE_ASK], asked + 1);
	assert_int_equal(promised(world, A), 0);
	convene_end(world);
}

static void view_that_was_missed_is_asked_for_without_a_doubt(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	world->is_trusting = true;
	assembly_cut(world, A, B, true);
	assembly_cut(world, C, B, true);
	assembly_start(world, D);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Acd Abc Acd Acd");
	memset(world->cut, 0, sizeof world->cut);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Acdb Acdb Acdb Acdb");
	convene_end(world);
}

static void ring_in_which_nothing_happens_is_nearly_silent(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	convene_run(world, 100 * SECOND);
	for (enum decree_kind kind = DECREE_PREPARE; kind < DECREE_KIND_END; kind++)
		assert_true(kind == DECREE_ASK ? world->sent[kind] > 0 && world->sent[kind] <= 4 * 51 : world->sent[kind] == 0);
	convene_end(world);
}

/* ---- Restarts ---- */

/* ---- Order ---- */

static void cut_between_two_ring_neighbours_gives_another_order(void **state)
{
	(void)state;
	for (uint32_t ways = 1; ways <= 3; ways++) {
		for (uint32_t one = A; one <= D; one++) {
			struct assembly *world = convene(4);
			uint32_t other = (one + 1) % 4;
			world->cut[one][other] = ways & 1;
			world->cut[other][one] = ways & 2;
			convene_run(world, 10 * SECOND);
			convene_assert_all_together(world, 4);
			const struct roster *roster = &world->decided[2];
			assert_int_equal(world->highest, 2);
			assert_false(roster_is_next(roster, roster_find(roster, name_of(one)), roster_find(roster, name_of(other))));
			assert_true(seat_is_of(&roster->seats[roster->holder], name_of(A)));
			convene_end(world);
		}
	}
}

static void where_no_order_helps_the_last_of_a_bad_pair_goes(void **state)
{
	(void)state;
	static const char *const left[3] = {"Ab", "Ab", "Ac"}; /* of three, all are neighbours: cut b-c, c-a, a-b */
	for (uint32_t one = A; one <= C; one++) {
		struct assembly *world = convene(3);
		world->delegates[B].leaves = world->delegates[C].leaves = true; /* or it would come back and be dropped again */
		assembly_cut(world, (one + 1) % 3, (one + 2) % 3, true);
		convene_run(world, 5 * SECOND);
		char view[ASSEMBLY_MAX + 1];
		assert_string_equal(assembly_view(world, A, view), left[one]);
		assert_int_equal(world->decided[2].count, 2);
		convene_end(world);
	}
}

static void order_that_has_failed_is_not_tried_again_at_once(void **state)
{
	(void)state;
	struct assembly *world = convene(4); /* a hears d alone: with three others no order helps, one has to go */
	world->delegates[B].leaves = world->delegates[C].leaves = true;
	assembly_cut(world, A, B, true);
	assembly_cut(world, A, C, true);
	convene_run(world, 20 * SECOND);
	assert_true(world->highest <= 4);
	assert_true(world->decided[world->highest].count < 4);
	assert_int_equal(world->delegates[A].installed, world->highest);
	assert_int_equal(world->delegates[D].installed, world->highest);
	convene_end(world);
}

static void groups_are_made_where_the_fanout_divides(void **state)
{
	(void)state;
	struct assembly *world = assembly_open(7, 4, 2);
	assembly_begin(world);
	assert_int_equal(world->delegates[A].council.vote.roster.fanout, 2);
	assembly_crash(world, D);
	convene_run(world, 3 * SECOND);
	assert_int_equal(world->delegates[A].council.vote.roster.fanout, 3);
	assembly_start(world, D);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abcd Abcd Abcd Abcd");
	assert_int_equal(world->delegates[A].council.vote.roster.fanout, 2);
	convene_end(world);
}

/* ---- Leaving, joining, force ---- */

static void leaver_is_out_at_once(void **state)
{
	(void)state;
	for (uint32_t member = A; member <= D; member++) {
		static const char *const left[4] = {"- Bcd Bcd Bcd", "Acd - Acd Acd", "Abd Abd - Abd", "Abc Abc Abc -"};
		struct assembly *world = convene(4);
		assembly_leave(world, member);
		convene_run(world, SECOND);
		convene_assert_views(world, left[member]);
		assert_true(world->delegates[member].is_out);
		convene_end(world);
	}
}

static void last_member_may_go_without_a_view(void **state)
{
	(void)state;
	struct assembly *world = convene(1);
	assembly_leave(world, A);
	assert_true(world->delegates[A].is_out);
	assert_int_equal(world->highest, 1);
	convene_end(world);
	world = convene(2); /* both at once: nobody would be left, nothing is decided */
	assembly_leave(world, A);
	assembly_leave(world, B);
	convene_run(world, 20 * SECOND);
	assert_true(world->highest <= 2);
	assert_true(assembly_counts(world).attempts < 50);
	convene_end(world);
}

static void joiners_are_appended(void **state)
{
	(void)state;
	struct assembly *world = convene(1);
	for (uint32_t member = B; member <= E; member++) {
		assembly_start(world, member);
		convene_run(world, 3 * SECOND);
	}
	convene_assert_views(world, "Abcde Abcde Abcde Abcde Abcde");
	convene_end(world);
}

static void operator_forces_a_view_without_a_majority(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	assembly_crash(world, A);
	assembly_crash(world, B);
	convene_run(world, 20 * SECOND);
	assert_int_equal(world->highest, 1);
	assert_int_equal(assembly_force(world, C, "cx"), EDIT_ERROR_UNKNOWN);
	assert_int_equal(assembly_force(world, C, "cdc"), EDIT_ERROR_INVALID);
	assert_int_equal(assembly_force(world, C, "d"), EDIT_ERROR_INVALID);
	assert_int_equal(world->delegates[C].council.vote.roster.number, 1);
	assert_int_equal(assembly_force(world, C, "cd"), 0);
	assert_int_equal(assembly_force(world, C, "cd"), EDIT_ERROR_BUSY); /* the disk is at it */
	convene_run(world, SECOND);
	convene_assert_views(world, "- - Cd Cd");
	assembly_start(world, A);
	assembly_start(world, B);
	convene_run(world, 10 * SECOND);
	convene_assert_all_together(world, 4);
	convene_end(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holder_of_a_pair_goes_on_alone),
		cmocka_unit_test(other_of_a_pair_does_not),
		cmocka_unit_test(cut_pair_goes_on_as_its_holder_only),
		cmocka_unit_test(three_of_four_go_on),
		cmocka_unit_test(of_two_halves_only_that_with_the_holder_goes_on),
		cmocka_unit_test(three_of_six_without_the_holder_do_not_go_on),
		cmocka_unit_test(two_proposers_at_once_end_in_one_view),
		cmocka_unit_test(nothing_is_answered_before_the_disk_has_it),
		cmocka_unit_test(promise_survives_a_restart),
		cmocka_unit_test(accepted_value_is_adopted_by_a_later_proposer),
		cmocka_unit_test(decided_that_was_lost_is_asked_for),
		cmocka_unit_test(member_beyond_a_view_answers_with_its_roster),
		cmocka_unit_test(member_that_is_behind_asks),
		cmocka_unit_test(view_that_was_missed_is_asked_for_without_a_doubt),
		cmocka_unit_test(ring_in_which_nothing_happens_is_nearly_silent),
		cmocka_unit_test(cut_between_two_ring_neighbours_gives_another_order),
		cmocka_unit_test(where_no_order_helps_the_last_of_a_bad_pair_goes),
		cmocka_unit_test(order_that_has_failed_is_not_tried_again_at_once),
		cmocka_unit_test(groups_are_made_where_the_fanout_divides),
		cmocka_unit_test(leaver_is_out_at_once),
		cmocka_unit_test(last_member_may_go_without_a_view),
		cmocka_unit_test(joiners_are_appended),
		cmocka_unit_test(operator_forces_a_view_without_a_majority),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

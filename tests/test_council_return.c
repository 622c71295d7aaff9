/* Who comes back, or comes first: votes, seats and workers. One condition each. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/convene.h"

static void member_without_a_worker_votes_and_is_not_seated(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	assembly_crash(world, C);
	assembly_ready(world, C, 0);
	assembly_start(world, C);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abd Abd - Abd");
	assembly_crash(world, D); /* a majority of three */
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Ab Ab - -");
	assembly_ready(world, C, 1);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abc Abc Abc -");
	convene_end(world);
}

static void vote_of_a_member_without_a_worker_counts(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	assembly_crash(world, B);
	assembly_crash(world, C);
	assembly_ready(world, B, 0);
	assembly_start(world, B);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "A - -");
	convene_end(world);
}

static void who_trains_something_else_is_refused(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	assembly_ready(world, D, 2);
	assembly_start(world, D);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abc Abc Abc -");
	assert_int_equal(world->highest, 1);
	assert_int_equal(world->delegates[D].last_refusal, DECREE_REFUSAL_OTHER);
	convene_end(world);
}

static void all_that_restart_come_together_in_one_view(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	for (uint32_t member = A; member <= D; member++) {
		assembly_crash(world, member);
		assembly_ready(world, member, 0);
	}
	for (uint32_t member = A; member <= D; member++)
		assembly_start(world, member);
	for (uint32_t member = A; member <= D; member++) {
		convene_run(world, SECOND / 4); /* their workers come one after the other */
		assembly_ready(world, member, 1);
	}
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "Abcd Abcd Abcd Abcd");
	assert_int_equal(world->highest, 2);
	convene_end(world);
}

static void joiner_without_its_vote_file_cannot_vote(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	assembly_crash(world, B);
	assembly_crash(world, C);
	assembly_lose_disk(world, B);
	assembly_start(world, B);
	convene_run(world, 20 * SECOND);
	assert_int_equal(world->highest, 1);
	assert_false(world->delegates[B].council.vote.is_voter);
	assembly_start(world, C); /* with its file: two of three */
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "Abc Abc Abc");
	assert_true(world->delegates[B].council.vote.is_voter);
	assert_int_equal(world->decided[world->highest].seats[B].incarnation, world->delegates[B].council.config.self.incarnation);
	convene_end(world);
}

static void all_may_die_amid_a_change(void **state)
{
	(void)state;
	uint32_t amid = 0;
	for (uint64_t us = 0; us < SECOND * 4 / 10; us += 997) {
		struct assembly *world = convene(3);
		assembly_crash(world, C);
		convene_run(world, SECOND * 4 / 10 + us);
		amid += world->highest == 1 && world->delegates[B].file.accepted_ballot != 0;
		assembly_crash(world, A);
		assembly_crash(world, B);
		for (uint32_t member = A; member <= C; member++)
			assembly_start(world, member);
		convene_run(world, 20 * SECOND);
		convene_assert_all_together(world, 3);
		convene_end(world);
	}
	assert_true(amid > 0);
}

static void restart_before_view_1_is_complete_is_no_change(void **state)
{
	(void)state;
	struct assembly *world = assembly_open(7, 3, 0);
	for (uint32_t member = A; member <= C; member++)
		assembly_start(world, member);
	convene_run(world, SECOND);
	assembly_crash(world, B);
	assembly_start(world, B);
	for (uint32_t member = A; member <= C; member++)
		assembly_complete(world, member);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abc Abc Abc");
	assert_int_equal(world->highest, 1);
	convene_end(world);
}

static void restart_after_view_1_was_complete_takes_the_same_seat_in_a_new_view(void **state)
{
	(void)state;
	for (int is_lost = 0; is_lost <= 1; is_lost++) {
		struct assembly *world = convene(3);
		assembly_crash(world, B);
		if (is_lost)
			assembly_lose_disk(world, B);
		assembly_start(world, B);
		convene_run(world, 5 * SECOND);
		convene_assert_views(world, "Abc Abc Abc");
		assert_int_equal(world->highest, 2);
		convene_end(world);
	}
}

static void member_that_was_dropped_comes_back_at_the_end(void **state)
{
	(void)state;
	struct assembly *world = convene(4);
	assembly_cut(world, B, A, true);
	assembly_cut(world, B, C, true);
	assembly_cut(world, B, D, true);
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Acd Abcd Acd Acd");
	memset(world->cut, 0, sizeof world->cut);
	convene_run(world, 10 * SECOND);
	convene_assert_views(world, "Acdb Acdb Acdb Acdb");
	convene_end(world);
}

static void renewal_is_a_view_with_the_same_members(void **state)
{
	(void)state;
	struct assembly *world = convene(3);
	for (uint32_t member = B; member <= C; member++)
		assembly_renew(world, member); /* more than one has seen it */
	convene_run(world, 5 * SECOND);
	convene_assert_views(world, "Abc Abc Abc");
	assert_int_equal(world->highest, 2);
	convene_end(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(member_without_a_worker_votes_and_is_not_seated),
		cmocka_unit_test(vote_of_a_member_without_a_worker_counts),
		cmocka_unit_test(who_trains_something_else_is_refused),
		cmocka_unit_test(all_that_restart_come_together_in_one_view),
		cmocka_unit_test(joiner_without_its_vote_file_cannot_vote),
		cmocka_unit_test(all_may_die_amid_a_change),
		cmocka_unit_test(restart_before_view_1_is_complete_is_no_change),
		cmocka_unit_test(restart_after_view_1_was_complete_takes_the_same_seat_in_a_new_view),
		cmocka_unit_test(member_that_was_dropped_comes_back_at_the_end),
		cmocka_unit_test(renewal_is_a_view_with_the_same_members),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Hello, silence and rumours in a static view; proposals. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/proposal.h"
#include "core/view.h"

static const char *const names[] = {"a", "b", "c", "d"};
static const struct fact facts[] = {{"layers", "6"}, {"run", "x"}};

struct fixture {
	struct view view;
	bool block[8];
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	view_init(&fixture->view, fixture->block, 1, 4, names, 1, facts, 2, 3000);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static int say_hello(struct view *view, uint32_t from, const char *name, uint64_t incarnation, uint64_t now_us,
		     const struct fact *theirs, size_t count, struct refuse *ret_refuse)
{
	struct message message = {.kind = MESSAGE_HELLO, .from = from, .incarnation = incarnation,
				  .hello = {.name = name, .facts = theirs, .fact_count = count}};
	bool is_new;
	return view_hello(view, message.from, &message, now_us, &is_new, ret_refuse);
}

static void hello_of_a_stranger_or_under_a_wrong_name_is_refused(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	assert_int_equal(say_hello(&f->view, 3, "d", 7, 0, facts, 2, &refuse), EDIT_ERROR_REFUSED); /* no neighbour */
	assert_int_equal(refuse.reason, REFUSAL_STRANGER);
	assert_int_equal(say_hello(&f->view, 0, "z", 7, 0, facts, 2, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.reason, REFUSAL_STRANGER);
	assert_int_equal(say_hello(&f->view, 0, "a", 7, 0, facts, 2, &refuse), 0);
}

static void hello_with_missing_or_further_facts_is_refused(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	const struct fact more[] = {{"layers", "6"}, {"run", "x"}, {"heads", "4"}};
	const struct fact prefix[] = {{"layers", "60"}, {"run", "x"}};
	assert_int_equal(say_hello(&f->view, 0, "a", 7, 0, facts, 1, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.reason, REFUSAL_FACT);
	assert_int_equal(refuse.fact_index, 1);
	assert_int_equal(say_hello(&f->view, 0, "a", 7, 0, more, 3, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.fact_index, 2);
	assert_int_equal(say_hello(&f->view, 0, "a", 7, 0, prefix, 2, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.fact_index, 0);
}

static void second_live_daemon_of_one_name_is_refused_and_the_first_unaffected(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	assert_int_equal(say_hello(&f->view, 0, "a", 7, 1000, facts, 2, &refuse), 0);
	assert_int_equal(say_hello(&f->view, 0, "a", 8, 1500, facts, 2, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.reason, REFUSAL_DUPLICATE);
	assert_true(view_is_known(view_neighbour(&f->view, 0), 7));
	/* silent for long enough: it was a restart */
	assert_int_equal(say_hello(&f->view, 0, "a", 8, 4001, facts, 2, &refuse), 0);
	assert_true(view_is_known(view_neighbour(&f->view, 0), 8));
	assert_false(view_is_known(view_neighbour(&f->view, 0), 7));
}

static void five_starts_of_one_name_are_one_neighbour(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	uint64_t now_us = 0;
	for (uint64_t incarnation = 10; incarnation < 15; incarnation++, now_us += 4000) {
		assert_int_equal(say_hello(&f->view, 0, "a", incarnation, now_us, facts, 2, &refuse), 0);
		assert_int_equal(f->view.side_count, 2);
		for (uint64_t other = 10; other < 15; other++)
			assert_int_equal(view_is_known(view_neighbour(&f->view, 0), other), other == incarnation);
		assert_int_equal(say_hello(&f->view, 0, "a", incarnation - 1, now_us + 1, facts, 2, &refuse), EDIT_ERROR_REFUSED);
	}
	assert_int_equal(say_hello(&f->view, 2, "c", 20, now_us, facts, 2, &refuse), 0);
	view_neighbour(&f->view, 0)->accepts_us = view_neighbour(&f->view, 2)->accepts_us = true;
	assert_true(view_is_joined(&f->view));
}

static void restart_in_mid_run_is_not_taken_back(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	assert_int_equal(say_hello(&f->view, 2, "c", 7, 0, facts, 2, &refuse), 0);
	f->view.complete = true;
	assert_int_equal(say_hello(&f->view, 2, "c", 9, 9000, facts, 2, &refuse), EDIT_ERROR_REFUSED);
	assert_int_equal(refuse.reason, REFUSAL_RESTARTED);
}

static void rumour_of_a_death_is_told_to_the_other_side_only(void **state)
{
	struct fixture *f = *state;
	struct refuse refuse;
	uint32_t told[SUSPECT_COUNT_MAX];
	say_hello(&f->view, 0, "a", 7, 0, facts, 2, &refuse);
	say_hello(&f->view, 2, "c", 8, 0, facts, 2, &refuse);
	struct neighbour *left = view_side(&f->view, VIEW_LEFT), *right = view_side(&f->view, VIEW_RIGHT);
	right->suspects[0] = 3;
	right->suspect_count = 1;
	assert_int_equal(view_suspects(&f->view, right, told), 0);
	assert_int_equal(view_suspects(&f->view, left, told), 1);
	assert_int_equal(told[0], 3);
	assert_true(view_is_down(&f->view, 3));
	view_heard(left, 2500);
	assert_true(view_check_silence(&f->view, right, 3000));
	assert_false(view_check_silence(&f->view, right, 3100)); /* said once */
	assert_false(view_check_silence(&f->view, left, 3000));
	assert_int_equal(view_suspects(&f->view, left, told), 1); /* it is the dead one itself; its rumours are forgotten */
	assert_int_equal(told[0], 2);
	assert_int_equal(view_first_down(&f->view), 2);
	assert_int_equal(view_heard(right, 9000), 9000);
	assert_int_equal(view_first_down(&f->view), 4);
}

static void proposals_digest_ignores_order_and_names_the_set(void **state)
{
	(void)state;
	struct proposals x, y;
	void *bx = malloc(proposals_size(4)), *by = malloc(proposals_size(4));
	proposals_init(&x, bx, 0, 4, VIEW_FIRST);
	proposals_init(&y, by, 1, 4, VIEW_FIRST);
	struct change one = {.id = UINT64_C(1) << 32 | 1, .kind = CHANGE_PAUSE}, two = {.id = UINT64_C(2) << 32 | 1, .kind = CHANGE_PAUSE};
	struct change bound = {.id = UINT64_C(3) << 32 | 1, .kind = CHANGE_PAUSE, .at_round = 9};
	assert_int_equal(proposals_digest(&x, 5), 0);
	proposals_hold(&x, &one);
	proposals_hold(&x, &two);
	proposals_hold(&y, &two);
	assert_true(proposals_digest(&x, 5) != proposals_digest(&y, 5));
	proposals_hold(&y, &one);
	proposals_hold(&y, &one); /* twice is once */
	proposals_hold(&y, &bound);
	assert_true(proposals_digest(&x, 5) == proposals_digest(&y, 5));
	struct change got;
	bool taken;
	assert_false(proposals_next(&x, 5, false, &got, &taken));
	assert_true(proposals_next(&y, 5, true, &got, &taken));
	assert_true(taken && got.id == one.id);
	assert_true(proposals_next(&y, 5, true, &got, &taken));
	assert_true(taken && got.id == two.id);
	assert_false(proposals_next(&y, 5, true, &got, &taken));
	assert_true(proposals_next(&y, 9, false, &got, &taken)); /* its round has come without agreement */
	assert_true(!taken && got.id == bound.id);
	free(bx);
	free(by);
}

static void member_may_have_only_so_many_open_proposals(void **state)
{
	(void)state;
	struct proposals p;
	void *block = malloc(proposals_size(2));
	proposals_init(&p, block, 1, 2, VIEW_FIRST);
	for (int i = 0; i <= PROPOSAL_EACH_MAX; i++) {
		struct change change = {.id = proposals_next_id(&p), .kind = CHANGE_PAUSE};
		assert_int_equal(proposal_origin(&change), 1);
		assert_int_equal(proposals_propose(&p, &change), i < PROPOSAL_EACH_MAX ? 0 : EDIT_ERROR_BUSY);
	}
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(hello_of_a_stranger_or_under_a_wrong_name_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hello_with_missing_or_further_facts_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(second_live_daemon_of_one_name_is_refused_and_the_first_unaffected, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(five_starts_of_one_name_are_one_neighbour, set_up, tear_down),
		cmocka_unit_test_setup_teardown(restart_in_mid_run_is_not_taken_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(rumour_of_a_death_is_told_to_the_other_side_only, set_up, tear_down),
		cmocka_unit_test(proposals_digest_ignores_order_and_names_the_set),
		cmocka_unit_test(member_may_have_only_so_many_open_proposals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

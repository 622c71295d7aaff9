/* How a view begins: entering at different times, settings, rings of rings. One condition each. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/outer.h"
#include "core/vec.h"
#include "tests/crew.h"

/* Three members enter view 2, one tenth of a second after the other. */
static struct lab *lab_that_enters_one_by_one(bool (*filter)(void *, uint32_t, uint32_t, const struct message *), void *arg)
{
	struct lab *lab = lab_of(3);
	lab->filter = filter;
	lab->filter_arg = arg;
	for (size_t n = 0; n < 3; n++) {
		lab_pass(lab, 100000);
		lab_enter(lab, n, 2, all, 3, NULL);
	}
	return lab;
}

static void members_that_enter_one_by_one_go_on_at_once(void **state)
{
	struct lab *lab = lab_that_enters_one_by_one(NULL, NULL);
	(void)state;
	lab_pass(lab, 30000); /* heartbeats are a second apart */
	assert_equal_members(lab, all, 3, 0);
	lab_free(lab);
}

/* While *arg, heartbeats of view 2 to member 0 are lost. */
static bool lose_heartbeats(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	const bool *is_losing = arg;
	(void)from;
	return !*is_losing || to != 0 || message->kind != MESSAGE_HEARTBEAT || message->view != 2;
}

static void heartbeat_that_says_welcome_and_is_lost_is_said_again_with_the_next_hello(void **state)
{
	bool is_losing = true;
	struct lab *lab = lab_that_enters_one_by_one(lose_heartbeats, &is_losing);
	(void)state;
	lab_pass(lab, 30000);
	assert_false(node_is_ready(lab->members[0].node));
	is_losing = false;
	lab_pass(lab, 270000); /* four hellos to a heartbeat */
	assert_equal_members(lab, all, 3, 0);
	lab_free(lab);
}

/* ---- Joining ---- */

static void joiners_of_a_ring_of_rings_get_their_layers_along_either_ring(void **state)
{
	struct lab *lab = lab_of(6);
	const struct node_config before = joiner();
	(void)state;
	work(lab, all, 6, 1);
	lab->fanout = 3;
	for (size_t n = 0; n < 6; n++) {
		bool is_new = n != 4; /* one member has all that there is */
		if (is_new)
			spoil(lab, n);
		lab_enter(lab, n, 2, all, 6, is_new ? &before : NULL);
	}
	lab_pass(lab, 1000000);
	assert_equal_members(lab, all, 6, 1);
	work(lab, all, 6, 2);
	assert_equal_members(lab, all, 6, 2);
	lab_free(lab);
}

static void open_changes_are_dropped_and_those_in_force_are_taken_over(void **state)
{
	struct lab *lab = lab_of(3);
	const size_t two[] = {0, 2};
	struct event set = {.kind = EVENT_CHANGE, .change = {.kind = CHANGE_SET, .setting = SYNC_INTERVAL, .value = 5}};
	const struct node_config before = joiner();
	(void)state;
	lab_event(lab, 1, set);
	work(lab, all, 3, 1);
	assert_true(node_settings(lab->members[0].node)->value[SYNC_INTERVAL] == 5);
	set.change.value = 6;
	lab_event(lab, 0, set);
	lab->members[1].dead = true;
	lab_view(lab, 2, two, 2);
	for (size_t r = 0; r < 2; r++)
		assert_int_equal(lab_notes(lab, two[r], NOTE_CHANGE_DROPPED), 1);
	work(lab, two, 2, 2);
	assert_true(node_settings(lab->members[0].node)->value[SYNC_INTERVAL] == 5);
	spoil(lab, 1);
	enter_all(lab, 3, all, 3, 1, &before);
	assert_true(node_settings(lab->members[1].node)->value[SYNC_INTERVAL] == 5);
	assert_int_equal(node_setting_round(lab->members[1].node, SYNC_INTERVAL), 1);
	assert_int_equal(lab->members[1].schedule, 5);
	lab_free(lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_that_enter_one_by_one_go_on_at_once),
		cmocka_unit_test(heartbeat_that_says_welcome_and_is_lost_is_said_again_with_the_next_hello),
		cmocka_unit_test(open_changes_are_dropped_and_those_in_force_are_taken_over),
		cmocka_unit_test(joiners_of_a_ring_of_rings_get_their_layers_along_either_ring),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

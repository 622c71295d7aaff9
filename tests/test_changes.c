/* daemon/changes.c: which settings will hold by when, as far as changes under way tell. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/changes.h"
#include "proto/setting.h"

static struct changes changes;

static int changes_empty(void **state)
{
	(void)state;
	changes = (struct changes){0};
	return 0;
}

static void put(uint64_t id, uint64_t at_round, enum ring_setting setting, double value)
{
	struct change change = {.kind = CHANGE_SET, .id = id, .at_round = at_round, .setting = setting, .value = value};
	changes_add(&changes, &change, 0);
}

static double foresee(uint64_t at_round, enum ring_setting setting)
{
	struct ring_settings settings = ring_settings_standard();
	changes_foresee(&changes, at_round, &settings);
	return settings.value[setting];
}

static void change_of_a_later_round_does_not_count_before_it(void **state)
{
	(void)state;
	put(1, 100, METHOD, METHOD_DDP);
	assert_true(foresee(0, SYNC_EXCHANGE) == EXCHANGE_PARAMETERS);
	assert_true(foresee(99, SYNC_EXCHANGE) == EXCHANGE_PARAMETERS);
	assert_true(foresee(100, SYNC_EXCHANGE) == EXCHANGE_GRADIENTS);
	assert_true(foresee(101, SYNC_EXCHANGE) == EXCHANGE_GRADIENTS);
}

static void changes_are_foreseen_in_the_order_of_their_effect(void **state)
{
	(void)state;
	put(2, 200, SYNC_INTERVAL, 20);
	put(3, 100, SYNC_INTERVAL, 10);
	put(5, 0, SYNC_INTERVAL, 6);
	put(4, 0, SYNC_INTERVAL, 5);
	assert_true(foresee(0, SYNC_INTERVAL) == 6);
	assert_true(foresee(150, SYNC_INTERVAL) == 10);
	assert_true(foresee(300, SYNC_INTERVAL) == 20);
}

static void change_that_is_taken_or_dropped_is_not_ahead(void **state)
{
	(void)state;
	put(1, 0, SYNC_INTERVAL, 10);
	put(2, 0, SYNC_MIN_STEPS, 3);
	put(3, 0, SYNC_PERIOD, 5);
	changes_note(&changes, &(struct note){.code = NOTE_CHANGE_TAKEN, .a = 1});
	changes_note(&changes, &(struct note){.code = NOTE_CHANGE_DROPPED, .a = 2});
	changes_note(&changes, &(struct note){.code = NOTE_CHANGE_HELD, .a = 3});
	assert_true(foresee(0, SYNC_INTERVAL) == 128);
	assert_true(foresee(0, SYNC_MIN_STEPS) == 1);
	assert_true(foresee(0, SYNC_PERIOD) == 5);
}

static void change_that_is_no_setting_sets_nothing(void **state)
{
	(void)state;
	struct change change = {.kind = CHANGE_PAUSE, .id = 1, .setting = SYNC_INTERVAL, .value = 9};
	changes_add(&changes, &change, 0);
	assert_true(foresee(0, SYNC_INTERVAL) == 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(change_of_a_later_round_does_not_count_before_it, changes_empty),
		cmocka_unit_test_setup(changes_are_foreseen_in_the_order_of_their_effect, changes_empty),
		cmocka_unit_test_setup(change_that_is_taken_or_dropped_is_not_ahead, changes_empty),
		cmocka_unit_test_setup(change_that_is_no_setting_sets_nothing, changes_empty),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

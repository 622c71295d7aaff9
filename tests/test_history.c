/* The history of rounds: what is kept, what makes room, how much memory it takes. What its rows say: tests/system/test_trace.py. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/history.h"

static void rounds_are_found_until_newer_ones_need_their_row(void **state)
{
	struct history history = {0};
	(void)state;
	assert_null(history_find(&history, 0));
	assert_true(history_open(&history, 2, 3));
	assert_int_equal(history.capacity, HISTORY_ROUNDS_MAX);
	assert_null(history_find(&history, 0));
	assert_null(history_find(&history, 1));
	for (uint64_t round = 1; round <= 3 * HISTORY_ROUNDS_MAX / 2; round++) {
		struct history_round *row = history_add(&history, round);
		assert_int_equal(row->members[1].verdicts[VERDICT_COUNT - 1], 0);
		row->end_us = 1000 * round;
		row->members[1].verdicts[VERDICT_COUNT - 1] = (uint32_t)round;
		row->layers[2].gather_us = round + 1;
	}
	assert_int_equal(history.first, HISTORY_ROUNDS_MAX / 2 + 1);
	assert_int_equal(history.last, 3 * HISTORY_ROUNDS_MAX / 2);
	for (uint64_t round = 0; round <= history.last + 2; round++) {
		const struct history_round *row = history_find(&history, round);
		if (round < history.first || round > history.last) {
			assert_null(row);
			continue;
		}
		assert_int_equal(row->round, round);
		assert_int_equal(row->end_us, 1000 * round);
		assert_int_equal(row->members[1].verdicts[VERDICT_COUNT - 1], round);
		assert_int_equal(row->layers[2].gather_us, round + 1);
	}
	history_close(&history);
	assert_null(history_find(&history, 1000));
}

static void history_begins_at_the_round_that_is_added_first_and_after_a_gap_anew(void **state)
{
	struct history history;
	(void)state;
	assert_true(history_open(&history, 1, 1));
	history_add(&history, 5000);
	history_add(&history, 5001);
	assert_int_equal(history.first, 5000);
	history_add(&history, 6000);
	assert_int_equal(history.first, 6000);
	assert_null(history_find(&history, 5001));
	assert_non_null(history_find(&history, 6000));
	history_close(&history);
}

static void memory_is_bounded_for_the_largest_ring(void **state)
{
	static const struct {
		uint32_t members;
		size_t layers;
	} rings[] = {{1, 1}, {4, 8}, {MEMBER_COUNT_MAX, 30}, {2, LAYER_COUNT_MAX}, {MEMBER_COUNT_MAX, LAYER_COUNT_MAX}};
	(void)state;
	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		struct history history;
		assert_true(history_open(&history, rings[i].members, rings[i].layers));
		assert_true(history.capacity * history.row_bytes <= HISTORY_BYTES_MAX);
		assert_in_range(history.capacity, 20, HISTORY_ROUNDS_MAX);
		for (uint64_t round = 1; round <= 2 * history.capacity; round++) { /* within the block: the sanitizer looks */
			struct history_round *row = history_add(&history, round);
			row->members[rings[i].members - 1].steps = round;
			row->layers[rings[i].layers - 1].gather_us = round;
		}
		for (uint64_t round = history.first; round <= history.last; round++) {
			assert_int_equal(history_find(&history, round)->members[rings[i].members - 1].steps, round);
			assert_int_equal(history_find(&history, round)->layers[rings[i].layers - 1].gather_us, round);
		}
		history_close(&history);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_are_found_until_newer_ones_need_their_row),
		cmocka_unit_test(history_begins_at_the_round_that_is_added_first_and_after_a_gap_anew),
		cmocka_unit_test(memory_is_bounded_for_the_largest_ring),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Members whose memory is gone agree on one checkpoint: in whatever order they hear each other, it is the newest that all hold; what
 * not all hold is told by the name of who lacks it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/consent.h"

enum { MEMBERS_MAX = 12, TRIES = 400 };

static const char *const names[MEMBERS_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};
static struct consent members[MEMBERS_MAX];
static uint32_t count;

static void begin(uint32_t rank, const struct consent_entry *held, size_t held_count, bool is_last_word)
{
	const uint32_t ranks[2] = {(rank + count - 1) % count, (rank + 1) % count};
	consent_init(&members[rank], count, ranks, count == 1 ? 0 : count == 2 ? 1 : 2, held, held_count, is_last_word);
}

/* What `from` says comes to `to`, as a hello would carry it. */
static void tell(uint32_t from, uint32_t to)
{
	static char texts[CONSENT_FACTS_MAX][2][FACT_TEXT_MAX + 1];
	struct fact facts[CONSENT_FACTS_MAX];
	struct consent_list list;
	struct line why;
	struct hello hello = {.name = names[from], .facts = facts};
	hello.fact_count = consent_facts(&members[from].own, "run", texts, facts);
	assert_true(consent_is_hello(&hello));
	assert_int_equal(consent_read(&hello, "run", &list, &why), 0);
	consent_hear(&members[to], from, names[from], &list);
}

/* Everybody says everything to both neighbours, in an order of dice, so often that all have heard it. */
static void talk(unsigned *dice)
{
	for (uint32_t i = 0; i < 40 * count * count; i++) {
		uint32_t from = (uint32_t)rand_r(dice) % count;
		tell(from, (from + (rand_r(dice) % 2 ? 1 : count - 1)) % count);
	}
}

static uint64_t agreed(uint32_t rank)
{
	struct consent_entry entry = {0, 0};
	return consent_is_agreed(&members[rank], &entry) ? entry.round : 0;
}

static void whatever_the_order_all_take_the_newest_that_all_hold(void **state)
{
	(void)state;
	unsigned dice = 7;
	print_message("seed %u\n", dice);
	for (int i = 0; i < TRIES; i++) {
		uint64_t common[64] = {0};
		count = 1 + (uint32_t)rand_r(&dice) % MEMBERS_MAX;
		for (uint32_t rank = 0; rank < count; rank++) {
			struct consent_entry held[CONSENT_HELD_MAX];
			size_t held_count = 0;
			for (uint64_t round = 1; round < 12; round++)
				if (round == 3 || rand_r(&dice) % 8 != 0)
					held[held_count++] = (struct consent_entry){round, 100 + round};
			for (size_t k = 0; k < held_count; k++)
				common[held[k].round]++;
			begin(rank, held, held_count, false);
		}
		uint64_t newest = 11;
		while (common[newest] < count)
			newest--;
		talk(&dice);
		for (uint32_t rank = 0; rank < count; rank++) {
			assert_int_equal(agreed(rank), newest);
			assert_null(consent_failure(&members[rank]));
		}
	}
}

static void nobody_agrees_before_everybody_has_been_heard(void **state)
{
	(void)state;
	const struct consent_entry held[] = {{5, 1}, {4, 1}};
	unsigned dice = 3;
	count = 6;
	for (uint32_t rank = 0; rank < count; rank++)
		begin(rank, held, 2, false);
	for (uint32_t i = 0; i < 500; i++) { /* the fourth is silent */
		uint32_t from = (uint32_t)rand_r(&dice) % count, to = (from + (i % 2 ? 1 : count - 1)) % count;
		if (from != 3)
			tell(from, to);
	}
	for (uint32_t rank = 0; rank < count; rank++)
		assert_int_equal(agreed(rank), 0);
	assert_int_equal(consent_waits_for(&members[2]), 3);
	begin(3, &held[1], 1, false);
	talk(&dice);
	for (uint32_t rank = 0; rank < count; rank++)
		assert_int_equal(agreed(rank), 4);
}

static void same_round_with_another_anchor_is_another_checkpoint(void **state)
{
	(void)state;
	const struct consent_entry here[] = {{9, 1}, {6, 1}}, there[] = {{9, 2}, {6, 1}};
	unsigned dice = 5;
	count = 2;
	begin(0, here, 2, false);
	begin(1, there, 2, false);
	talk(&dice);
	assert_int_equal(agreed(0), 6);
	assert_int_equal(agreed(1), 6);
}

/* One member begins anew; then it comes back with a copy of a checkpoint. */
static void member_without_a_checkpoint_is_named_everywhere_until_it_has_one(void **state)
{
	(void)state;
	const struct consent_entry held[] = {{8, 1}, {6, 1}}, anew = {0, 0};
	unsigned dice = 11;
	count = 5;
	for (uint32_t rank = 0; rank < count; rank++)
		begin(rank, rank == 2 ? &anew : held, rank == 2 ? 1 : 2, rank == 2);
	talk(&dice);
	for (uint32_t rank = 0; rank < count; rank++)
		if (rank != 2) {
			assert_int_equal(agreed(rank), 0);
			assert_string_equal(consent_failure(&members[rank]),
					    "c begins anew, without a checkpoint; up to there, everybody holds round 8, 6");
		}
	begin(2, &held[1], 1, false);
	for (int i = 0; i < 3; i++) { /* one after the other, as their clocks say */
		for (uint32_t rank = 0; rank < count; rank++)
			if (consent_failure(&members[rank]))
				consent_restart(&members[rank]);
		talk(&dice);
	}
	for (uint32_t rank = 0; rank < count; rank++)
		assert_int_equal(agreed(rank), 6);
}

static void member_that_has_its_memory_has_the_last_word(void **state)
{
	(void)state;
	const struct consent_entry held[] = {{8, 1}, {6, 1}};
	unsigned dice = 13;
	count = 4;
	for (uint32_t rank = 0; rank < count; rank++)
		begin(rank, rank == 1 ? &held[1] : held, rank == 1 ? 1 : 2, rank == 1);
	talk(&dice);
	for (uint32_t rank = 0; rank < count; rank++)
		assert_int_equal(agreed(rank), 6);
}

static void hello_that_is_damaged_is_refused(void **state)
{
	(void)state;
	struct consent_list list;
	struct line why = {""};
	struct fact facts[CONSENT_FACTS_MAX + 1];
	struct hello hello = {.name = "a", .facts = facts};
	const struct {
		const char *key, *value;
	} bad[] = {{"restart round", ""},     {"restart round", "5"},           {"restart round", "5 1"},
		   {"restart round", "-5 0000000000000001"}, {"restart round", "5 000000000000000g"}, {"restart round", "1234567890123456 0000000000000001"},
		   {"restart round", "5  000000000000001"},  {"else", "5 0000000000000001"}};
	facts[0] = (struct fact){"restart of run", "run"};
	facts[1] = (struct fact){"restart stage", "2"};
	facts[2] = (struct fact){"restart round", "5 0000000000000001"};
	hello.fact_count = 3;
	assert_int_equal(consent_read(&hello, "run", &list, &why), 0);
	assert_int_equal(list.held[0].round, 5);
	assert_int_equal(consent_read(&hello, "other", &list, &why), EDIT_ERROR_REFUSED);
	assert_string_equal(why.text, "it restarts run run, here is run other");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		facts[2] = (struct fact){bad[i].key, bad[i].value};
		assert_int_equal(consent_read(&hello, "run", &list, &why), EDIT_ERROR_MALFORMED);
	}
	for (size_t i = 2; i <= CONSENT_FACTS_MAX; i++)
		facts[i] = (struct fact){"restart round", "5 0000000000000001"};
	hello.fact_count = 2 + CONSENT_HELD_MAX + 1;
	assert_int_equal(consent_read(&hello, "run", &list, &why), EDIT_ERROR_MALFORMED);
	hello.fact_count = 1;
	assert_int_equal(consent_read(&hello, "run", &list, &why), EDIT_ERROR_MALFORMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_the_order_all_take_the_newest_that_all_hold),
		cmocka_unit_test(nobody_agrees_before_everybody_has_been_heard),
		cmocka_unit_test(same_round_with_another_anchor_is_another_checkpoint),
		cmocka_unit_test(member_without_a_checkpoint_is_named_everywhere_until_it_has_one),
		cmocka_unit_test(member_that_has_its_memory_has_the_last_word),
		cmocka_unit_test(hello_that_is_damaged_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a council is given from outside: messages, vote files, joiners without end; and the choice of a roster by itself. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/council.h"

enum { CAPACITY = 40, SEATS = 40 };

struct fixture {
	struct council council;
	struct council_actions actions;
	struct seat seats[SEATS], other_seats[SEATS];
	struct roster list, next;
	void *block;
	void *seating;
};

static struct seat seat(const char *name, uint64_t incarnation)
{
	struct seat made;
	assert_int_equal(seat_make(name, "tcp://10.0.0.1:7700", incarnation, 1000 + incarnation, &made), 0);
	return made;
}

static void step(struct fixture *f, enum council_event_kind kind, const struct decree *decree)
{
	const struct council_event event = {.kind = kind, .now_us = f->council.now_us, .decree = decree};
	council_step(&f->council, &event, &f->actions);
}

/* Member b of four, in a complete view 1. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	static const char *const names[] = {"a", "b", "c", "d"};
	for (int i = 0; i < 4; i++)
		f->seats[i] = seat(names[i], 0);
	f->list = (struct roster){.number = 1, .count = 4, .fanout = 4, .seats = f->seats};
	memcpy(f->other_seats, f->seats, sizeof f->seats);
	f->next = (struct roster){.number = 2, .count = 3, .fanout = 3, .seats = f->other_seats};
	const struct council_config config = {.self = seat("b", 77), .list = &f->list, .capacity = CAPACITY, .patience_us = 1000,
					      .gather_us = 500000, .rank_us = 50000, .fingerprint = 1};
	f->block = aligned_alloc(64, council_size(CAPACITY));
	f->seating = aligned_alloc(64, seating_size(CAPACITY));
	council_init(&f->council, f->block, &config);
	step(f, COUNCIL_EVENT_BEGIN, NULL);
	step(f, COUNCIL_EVENT_PERSISTED, NULL);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	free(f->block);
	free(f->seating);
	free(f);
	return 0;
}

/* ---- Messages ---- */

static struct decree good(struct fixture *f, enum decree_kind kind)
{
	struct decree decree = {.kind = kind, .sender = f->seats[0].name, .incarnation = 9, .disk = 8,
			.view = kind == DECREE_DECIDED ? 2 : 1,
				.ballot = ballot_make(3, 0), .roster = f->next, .address = f->seats[0].address, .refusal = DECREE_REFUSAL_FULL};
	return decree;
}

/* It is refused, and nothing has changed. */
static void assert_refused(struct fixture *f, const struct decree *decree)
{
	static char before[1 << 20];
	const size_t bytes = council_size(CAPACITY);
	assert_true(bytes < sizeof before);
	memcpy(before, f->block, bytes);
	struct council council = f->council;
	step(f, COUNCIL_EVENT_DECREE, decree);
	assert_int_equal(f->actions.count, 0);
	assert_int_equal(f->council.counts.dropped, council.counts.dropped + 1);
	council.counts.dropped++;
	assert_memory_equal(&council, &f->council, sizeof council);
	assert_memory_equal(before, f->block, bytes);
}

static void malformed_message_is_refused_and_changes_nothing(void **state)
{
	struct fixture *f = *state;
	char bad_name[SEAT_NAME_BYTES] = "No Name", unpadded[SEAT_NAME_BYTES] = "a";
	unpadded[5] = 'x';
	for (enum decree_kind kind = DECREE_PREPARE; kind < DECREE_KIND_END; kind++) {
		struct decree bad = good(f, kind);
		assert_int_equal(decree_check(&bad, CAPACITY), 0);
#define WITH(field, value) (bad = good(f, kind), bad.field = (value), &bad)
		assert_refused(f, WITH(kind, (enum decree_kind)0));
		assert_refused(f, WITH(kind, DECREE_KIND_END));
		assert_refused(f, WITH(sender, NULL));
		assert_refused(f, WITH(sender, bad_name));
		assert_refused(f, WITH(sender, unpadded));
		assert_refused(f, WITH(incarnation, 0));
		assert_refused(f, WITH(disk, 0));
		assert_refused(f, WITH(view, 0));
		assert_refused(f, WITH(view, UINT64_MAX));
		assert_refused(f, WITH(receiver, bad_name));
		assert_refused(f, WITH(relay, f->seats[1].name)); /* passed on, but for nobody */
		assert_refused(f, WITH(receiver, f->seats[2].name)); /* for somebody else, but not to be passed on by this one */
		if (kind <= DECREE_NACK) {
			assert_refused(f, WITH(ballot, 0));
			assert_refused(f, WITH(ballot, ballot_make(0, 1)));
			assert_refused(f, WITH(ballot, ballot_make(3, 4))); /* of a fifth member */
			assert_refused(f, WITH(ballot, ballot_make(BALLOT_COUNTER_MAX + 1, 0)));
			assert_refused(f, WITH(sender, seat("stranger", 0).name));
		}
		if (kind == DECREE_PREPARE || kind == DECREE_ACCEPT)
			assert_refused(f, WITH(ballot, ballot_make(3, 2))); /* of another than the sender */
		if (kind == DECREE_JOIN)
			assert_refused(f, WITH(address, NULL));
		if (kind == DECREE_REFUSED)
			assert_refused(f, WITH(refusal, DECREE_REFUSAL_END));
	}
}

static void malformed_roster_is_refused_and_changes_nothing(void **state)
{
	struct fixture *f = *state;
	static const enum decree_kind kinds[] = {DECREE_ACCEPT, DECREE_DECIDED, DECREE_PROMISE};
	for (size_t i = 0; i < 3; i++) {
		const enum decree_kind kind = kinds[i];
		struct decree bad = good(f, kind);
		uint64_t before = kind == DECREE_PROMISE ? ballot_make(2, 2) : 0;
#define ROSTER(field, value) (bad = good(f, kind), bad.accepted_ballot = before, bad.roster.field = (value), &bad)
		assert_refused(f, ROSTER(number, 1));
		assert_refused(f, ROSTER(number, 3));
		assert_refused(f, ROSTER(count, 0));
		assert_refused(f, ROSTER(count, CAPACITY + 1));
		assert_refused(f, ROSTER(holder, 3));
		assert_refused(f, ROSTER(fanout, 0));
		assert_refused(f, ROSTER(fanout, 2));
		struct seat kept = f->other_seats[1];
		f->other_seats[1] = f->other_seats[0]; /* a name twice */
		assert_refused(f, ROSTER(holder, 0));
		f->other_seats[1] = kept;
		memset(f->other_seats[1].address, 0, SEAT_ADDRESS_BYTES);
		assert_refused(f, ROSTER(holder, 0));
		f->other_seats[1] = kept;
	}
	struct decree bad = good(f, DECREE_PROMISE);
	bad.doubt_count = DOUBT_COUNT_MAX + 1;
	assert_refused(f, &bad);
	bad.doubt_count = 1;
	bad.doubts[0] = 4;
	assert_refused(f, &bad);
}

static void seat_is_made_of_good_texts_only(void **state)
{
	(void)state;
	char long_name[80], long_address[300];
	memset(long_name, 'a', sizeof long_name);
	memset(long_address, 'a', sizeof long_address);
	struct seat made = {.incarnation = 1};
	const struct seat before = made;
	long_name[64] = long_address[256] = 0;
	assert_int_equal(seat_make(long_name, "x", 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_int_equal(seat_make("a", long_address, 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_int_equal(seat_make("", "x", 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_int_equal(seat_make("A", "x", 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_int_equal(seat_make("a", "", 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_int_equal(seat_make("a", "x y", 2, 3, &made), EDIT_ERROR_MALFORMED);
	assert_memory_equal(&made, &before, sizeof made);
	long_name[63] = long_address[255] = 0;
	assert_int_equal(seat_make(long_name, long_address, 2, 3, &made), 0);
}

static void vote_that_cannot_be_is_refused(void **state)
{
	struct fixture *f = *state;
	struct vote vote = {.roster = f->list, .accepted = f->next, .disk = 1, .is_voter = true, .promised = ballot_make(4,
			1), .accepted_ballot = ballot_make(3, 2)};
	assert_int_equal(vote_check(&vote, CAPACITY), 0);
	struct vote bad = vote;
	bad.promised = ballot_make(2, 1); /* less than what was accepted */
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad.promised = ballot_make(4, 9);
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad = vote;
	bad.accepted_ballot = 0; /* accepted with no ballot */
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad = vote;
	bad.disk = 0;
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad = vote;
	bad.accepted.number = 3;
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad = vote;
	bad.accepted.holder = 3;
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_MALFORMED);
	bad = vote;
	bad.roster.count = 0;
	assert_int_equal(vote_check(&bad, CAPACITY), EDIT_ERROR_RANGE);
}

/* ---- Bounds ---- */

static void say_join(struct fixture *f, const char *name)
{
	const struct seat joiner = seat(name, 5);
	struct decree join = {.kind = DECREE_JOIN, .sender = joiner.name, .incarnation = 5, .disk = 6, .view = 1, .fingerprint = 1,
			.address = joiner.address};
	step(f, COUNCIL_EVENT_DECREE, &join);
}

static void joiners_beyond_what_can_be_kept_are_refused(void **state)
{
	struct fixture *f = *state;
	char name[16];
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "joiner-%d", i);
		say_join(f, name);
		assert_int_equal(f->actions.count, i < JOIN_COUNT_MAX ? 0 : 1);
		if (i >= JOIN_COUNT_MAX)
			assert_int_equal(f->actions.list[0].decree.refusal, DECREE_REFUSAL_FULL);
	}
	say_join(f, "joiner-3"); /* it is kept in mind already */
	assert_int_equal(f->actions.count, 0);
	say_join(f, "c"); /* a restart: no more room for that either */
	assert_int_equal(f->actions.list[0].decree.refusal, DECREE_REFUSAL_FULL);
	assert_int_equal(f->council.join_count, JOIN_COUNT_MAX);
}

static void joiners_beyond_the_size_of_a_view_are_refused(void **state)
{
	struct fixture *f = *state;
	f->council.config.capacity = 6;
	say_join(f, "c"); /* takes a seat that there is */
	say_join(f, "e");
	say_join(f, "f");
	assert_int_equal(f->actions.count, 0);
	say_join(f, "g");
	assert_int_equal(f->actions.list[0].decree.refusal, DECREE_REFUSAL_FULL);
	assert_int_equal(f->council.join_count, 3);
	f->council.config.capacity = CAPACITY;
}

static void joiner_that_says_no_more_is_forgotten(void **state)
{
	struct fixture *f = *state;
	say_join(f, "e");
	assert_int_equal(f->council.join_count, 1);
	f->council.now_us += 8 * f->council.config.gather_us;
	step(f, COUNCIL_EVENT_TICK, NULL);
	assert_int_equal(f->council.join_count, 0);
	assert_int_equal(f->council.counts.attempts, 0);
}

static void joiner_with_the_name_of_who_is_asked_is_refused(void **state)
{
	struct fixture *f = *state;
	say_join(f, "b");
	assert_int_equal(f->actions.count, 1);
	assert_int_equal(f->actions.list[0].decree.refusal, DECREE_REFUSAL_TAKEN);
	assert_int_equal(f->council.join_count, 0);
}

/* Its disk is full when it starts: the debt of a joiner is not paid yet when the ring of view 1 is complete. */
static void view_1_that_is_complete_before_the_disk_answers_begins_after_it(void **state)
{
	struct fixture *f = *state;
	struct council_config config = f->council.config;
	config.list = &f->list;
	council_init(&f->council, f->block, &config);
	step(f, COUNCIL_EVENT_JOIN, NULL);
	assert_int_equal(f->council.debt, COUNCIL_DEBT_DISK);
	step(f, COUNCIL_EVENT_BEGIN, NULL);
	assert_false(f->council.vote.is_voter);
	assert_int_equal(f->council.debt, COUNCIL_DEBT_DISK);
	step(f, COUNCIL_EVENT_PERSISTED, NULL);
	step(f, COUNCIL_EVENT_BEGIN, NULL);
	assert_int_equal(f->council.debt, COUNCIL_DEBT_INSTALL);
	step(f, COUNCIL_EVENT_PERSISTED, NULL);
	assert_true(f->council.vote.is_voter);
	assert_int_equal(f->actions.list[0].kind, COUNCIL_ACTION_INSTALL);
}

static void doubts_about_strangers_and_oneself_are_ignored(void **state)
{
	struct fixture *f = *state;
	const struct seat stranger = seat("z", 0);
	struct council_event event = {.kind = COUNCIL_EVENT_DOUBT, .now_us = 10, .name = stranger.name};
	council_step(&f->council, &event, &f->actions);
	event.name = f->seats[1].name;
	council_step(&f->council, &event, &f->actions);
	uint32_t doubts[DOUBT_COUNT_MAX];
	assert_int_equal(councillor_list_doubts(&f->council, doubts), 0);
	event.name = f->seats[2].name;
	council_step(&f->council, &event, &f->actions);
	assert_int_equal(councillor_list_doubts(&f->council, doubts), 1);
	event.kind = COUNCIL_EVENT_HEARD; /* before it was a reason: nothing is proposed */
	event.now_us = 900;
	council_step(&f->council, &event, &f->actions);
	event.kind = COUNCIL_EVENT_TICK;
	event.now_us = 400000;
	council_step(&f->council, &event, &f->actions);
	assert_int_equal(f->council.counts.attempts, 0);
}

/* ---- The choice by itself ---- */

static struct opinion present(uint64_t incarnation)
{
	return (struct opinion){.is_present = true, .is_ready = true, .incarnation = incarnation};
}

static void doubt(struct opinion *opinions, uint32_t one, uint32_t other)
{
	opinions[one].doubts[opinions[one].doubt_count++] = other;
}

static void value_is_who_promised_without_leavers_and_with_joiners(void **state)
{
	struct fixture *f = *state;
	struct opinion opinions[SEATS] = {present(1), present(2), {.is_present = false}, present(4)};
	bool leaving[SEATS] = {false};
	struct seat joins[2] = {seat("e", 8), seat("c", 9)};
	struct seating seating = {.now = &f->list, .opinions = opinions, .leaving = leaving, .capacity = CAPACITY,
			.block = f->seating};
	assert_true(seating_choose(&seating, &f->next));
	assert_int_equal(f->next.count, 3);
	assert_int_equal(f->next.number, 2);
	assert_int_equal(f->next.seats[2].incarnation, 4);
	seating.joins = joins;
	seating.join_count = 2;
	leaving[0] = true;
	assert_true(seating_choose(&seating, &f->next));
	assert_int_equal(f->next.count, 4);
	assert_int_equal(f->next.holder, 0); /* a was it, and leaves */
	assert_true(seat_is_of(&f->next.seats[0], f->seats[1].name));
	assert_int_equal(f->next.seats[1].incarnation, 9); /* c's new start sits where the old one did */
	assert_int_equal(f->next.seats[3].incarnation, 8);
	assert_int_equal(roster_check(&f->next, CAPACITY), 0);
}

static void view_in_which_nothing_changes_is_not_proposed(void **state)
{
	struct fixture *f = *state;
	struct opinion opinions[SEATS] = {present(1), present(2), present(3), present(4)};
	bool leaving[SEATS] = {false};
	struct seating seating = {.now = &f->list, .opinions = opinions, .leaving = leaving, .capacity = CAPACITY,
			.block = f->seating};
	assert_false(seating_choose(&seating, &f->next));
	for (int i = 0; i < 4; i++)
		f->seats[i].incarnation = opinions[i].incarnation;
	assert_false(seating_choose(&seating, &f->next));
	opinions[1].incarnation = 20;
	assert_true(seating_choose(&seating, &f->next));
	memset(leaving, true, sizeof leaving);
	assert_false(seating_choose(&seating, &f->next));
	assert_int_equal(f->next.count, 0);
}

static void doubts_about_an_earlier_start_do_not_count(void **state)
{
	struct fixture *f = *state;
	struct opinion opinions[SEATS] = {present(1), present(2), present(3), present(4)};
	bool leaving[SEATS] = {false};
	struct seat join = seat("c", 9);
	struct seating seating = {.now = &f->list, .opinions = opinions, .leaving = leaving, .joins = &join,
			.join_count = 1, .capacity = CAPACITY, .block = f->seating};
	doubt(opinions, 1, 2);
	doubt(opinions, 3, 2);
	assert_true(seating_choose(&seating, &f->next));
	assert_int_equal(f->next.count, 4);
	for (uint32_t rank = 0; rank < 4; rank++)
		assert_true(seat_is_of(&f->next.seats[rank], f->seats[rank].name));
}

/* In rings and rings of rings of all sizes, with random doubts: what comes out has no bad pair as neighbours, and nobody
 * is dropped if a full order exists (small ones: all are tried here, too). */
static bool is_good(const struct roster *roster, const struct roster *now, const struct opinion *opinions)
{
	for (uint32_t i = 0; i < roster->count; i++)
		for (uint32_t j = 0; j < roster->count; j++) {
			const struct opinion *opinion = &opinions[roster_find(now, roster->seats[i].name)];
			uint32_t other = roster_find(now, roster->seats[j].name);
			for (uint32_t k = 0; i != j && roster_is_next(roster, i, j) && k < opinion->doubt_count; k++)
				if (opinion->doubts[k] == other)
					return false;
		}
	return true;
}

static bool some_order_is_good(struct roster *roster, uint32_t from, const struct roster *now, const struct opinion *opinions)
{
	if (from == roster->count)
		return is_good(roster, now, opinions);
	for (uint32_t i = from; i < roster->count; i++) {
		struct seat kept = roster->seats[from];
		roster->seats[from] = roster->seats[i];
		roster->seats[i] = kept;
		bool is_found = some_order_is_good(roster, from + 1, now, opinions);
		roster->seats[i] = roster->seats[from];
		roster->seats[from] = kept;
		if (is_found)
			return true;
	}
	return false;
}

static void order_without_bad_neighbours_is_found_if_there_is_one(void **state)
{
	struct fixture *f = *state;
	uint32_t dropped = 0, moved = 0;
	uint64_t random = 1;
	for (int run = 0; run < 3000; run++) {
		const uint32_t count = run % 50 == 0 ? SEATS : 2 + (uint32_t)run % 5, fanout = run % 3 == 0 ? 2 : 0;
		struct opinion opinions[SEATS];
		bool leaving[SEATS] = {false};
		for (uint32_t rank = 0; rank < count; rank++) {
			const char name[3] = {(char)('a' + rank % 26), rank < 26 ? 0 : '2', 0};
			f->seats[rank] = seat(name, rank + 1);
			opinions[rank] = present(rank + 1);
		}
		f->list = (struct roster){.number = 1, .count = count, .holder = (uint32_t)run % count,
				.fanout = roster_fanout(count, fanout), .seats = f->seats};
		for (uint32_t i = 0; i < 1 + count / 3; i++) {
			random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
			uint32_t one = (uint32_t)(random >> 33) % count, other = (uint32_t)(random >> 48) % count;
			if (one != other && opinions[one].doubt_count < DOUBT_COUNT_MAX)
				doubt(opinions, one, other);
		}
		const struct seating seating = {.now = &f->list, .opinions = opinions, .leaving = leaving, .fanout = fanout,
				.capacity = CAPACITY, .block = f->seating};
		bool is_other = seating_choose(&seating, &f->next);
		assert_int_equal(roster_check(&f->next, CAPACITY), 0);
		assert_true(is_good(&f->next, &f->list, opinions));
		assert_int_equal(is_other, !roster_has_same_seats(&f->next, &f->list));
		assert_true(seat_is_of(&f->next.seats[f->next.holder], f->seats[f->list.holder].name));
		if (is_good(&f->list, &f->list, opinions))
			assert_false(is_other); /* what need not move stays */
		if (f->next.count < count) {
			assert_true(count < SEATS); /* few doubts among many */
			roster_copy(&f->next, &f->list);
			assert_false(some_order_is_good(&f->next, 0, &f->list, opinions));
			dropped++;
		}
		moved += is_other;
	}
	assert_true(dropped > 100);
	assert_true(moved - dropped > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(malformed_message_is_refused_and_changes_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(malformed_roster_is_refused_and_changes_nothing, set_up, tear_down),
		cmocka_unit_test(seat_is_made_of_good_texts_only),
		cmocka_unit_test_setup_teardown(vote_that_cannot_be_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(joiners_beyond_what_can_be_kept_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(joiners_beyond_the_size_of_a_view_are_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(joiner_that_says_no_more_is_forgotten, set_up, tear_down),
		cmocka_unit_test_setup_teardown(joiner_with_the_name_of_who_is_asked_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(view_1_that_is_complete_before_the_disk_answers_begins_after_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(doubts_about_strangers_and_oneself_are_ignored, set_up, tear_down),
		cmocka_unit_test_setup_teardown(value_is_who_promised_without_leavers_and_with_joiners, set_up, tear_down),
		cmocka_unit_test_setup_teardown(view_in_which_nothing_changes_is_not_proposed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(doubts_about_an_earlier_start_do_not_count, set_up, tear_down),
		cmocka_unit_test_setup_teardown(order_without_bad_neighbours_is_found_if_there_is_one, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

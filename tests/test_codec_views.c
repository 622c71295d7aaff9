/* Messages by which members change as bytes: what is written reads back the same, and what cannot be is refused by name. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/decree.h"
#include "proto/codec.h"
#include "proto/peer.pb-c.h"
#include "tests/codecs.h"

static unsigned char frame[CODEC_FRAME_MAX];
static struct seat seats[MEMBER_COUNT_MAX];
static char sender[SEAT_NAME_BYTES] = "node-a", receiver[SEAT_NAME_BYTES] = "node-b", relay[SEAT_NAME_BYTES] = "node-c";
static char address[SEAT_ADDRESS_BYTES] = "tcp://10.0.0.1:4711";

/* ---- What is written reads back ---- */

static size_t pass(const struct message *message, struct message *ret_message)
{
	size_t bytes;
	const char *what = "";
	assert_int_equal(codec_encode(codec, message, frame, sizeof frame, &bytes), 0);
	int error = codec_decode(other, frame, bytes, NULL, 0, ret_message, &what);
	if (error)
		fail_msg("refused: %s", what);
	assert_int_equal(ret_message->kind, message->kind);
	assert_true(ret_message->incarnation == message->incarnation);
	return bytes;
}

/* A roster with texts of the longest kind. */
static struct roster roster_of(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		char name[SEAT_NAME_BYTES], where[SEAT_ADDRESS_BYTES];
		snprintf(name, sizeof name, "n%062u", i);
		snprintf(where, sizeof where, "tcp://h%0248u", i);
		assert_int_equal(seat_make(name, where, UINT64_MAX - i, UINT64_MAX / 2 + i, &seats[i]), 0);
	}
	return (struct roster){.number = 8, .count = count, .holder = count - 1, .fanout = count, .seats = seats};
}

static const uint32_t facts[3] = {0, 1, UINT32_MAX};

static struct decree decree_of(enum decree_kind kind)
{
	struct decree decree = {.kind = kind, .sender = sender, .incarnation = UINT64_MAX, .disk = UINT64_MAX - 1,
				.receiver = receiver, .view = 7};
	if (kind <= DECREE_NACK)
		decree.ballot = ballot_make(BALLOT_COUNTER_MAX, 3);
	switch (kind) {
	case DECREE_PROMISE:
		decree.accepted_ballot = ballot_make(9, 1);
		decree.roster = roster_of(5);
		decree.doubt_count = DOUBT_COUNT_MAX;
		for (uint32_t i = 0; i < DOUBT_COUNT_MAX; i++)
			decree.doubts[i] = i;
		break;
	case DECREE_ACCEPT: decree.roster = roster_of(5); break;
	case DECREE_DECIDED:
		decree.roster = roster_of(5);
		decree.view = 8;
		break;
	case DECREE_JOIN:
		decree.address = address;
		decree.facts = facts;
		decree.fact_count = 3;
		break;
	case DECREE_REFUSED:
		decree.refusal = DECREE_REFUSAL_OTHER;
		decree.detail = "hidden_size: 64";
		break;
	default: break;
	}
	return decree;
}

static void assert_text(const char *got, const char *text, size_t size)
{
	assert_int_equal(got != NULL, text != NULL);
	if (text)
		assert_memory_equal(got, text, size);
}

static void assert_decree(const struct decree *got, const struct decree *decree)
{
	assert_int_equal(got->kind, decree->kind);
	assert_text(got->sender, decree->sender, SEAT_NAME_BYTES);
	assert_true(got->incarnation == decree->incarnation);
	assert_true(got->disk == decree->disk);
	assert_text(got->receiver, decree->receiver, SEAT_NAME_BYTES);
	assert_text(got->relay, decree->relay, SEAT_NAME_BYTES);
	assert_true(got->view == decree->view);
	assert_true(got->ballot == decree->ballot);
	assert_true(got->accepted_ballot == decree->accepted_ballot);
	assert_int_equal(got->doubt_count, decree->doubt_count);
	assert_memory_equal(got->doubts, decree->doubts, sizeof got->doubts);
	assert_text(got->address, decree->address, SEAT_ADDRESS_BYTES);
	assert_int_equal(got->refusal, decree->refusal);
	assert_int_equal(got->fact_count, decree->fact_count);
	for (uint32_t i = 0; i < decree->fact_count; i++)
		assert_true(got->facts[i] == decree->facts[i]);
	assert_int_equal(got->detail != NULL, decree->detail != NULL);
	if (decree->detail)
		assert_string_equal(got->detail, decree->detail);
	assert_int_equal(got->roster.count, decree->roster.count);
	if (decree->roster.count > 0)
		assert_true(roster_is_equal(&got->roster, &decree->roster));
	assert_int_equal(decree_check(got, MEMBER_COUNT_MAX), 0);
}

static void decree_of_every_kind_reads_back_and_passes_the_council(void **state)
{
	(void)state;
	for (int kind = DECREE_PREPARE; kind < DECREE_KIND_END; kind++)
		for (int passed_on = 0; passed_on < 2; passed_on++) {
			struct decree decree = decree_of((enum decree_kind)kind);
			struct message message = {.kind = MESSAGE_DECREE, .incarnation = 5, .decree = &decree}, got;
			decree.relay = passed_on ? relay : NULL;
			size_t bytes = pass(&message, &got);
			assert_true(decree.roster.count > 0 || bytes <= CODEC_SMALL_MAX);
			assert_decree(got.decree, &decree);
			assert_int_equal(got.from, 0);
			assert_true(got.view == 0);
		}
	struct decree decree = decree_of(DECREE_ASK);
	struct message message = {.kind = MESSAGE_DECREE, .incarnation = 5, .decree = &decree}, got;
	decree.receiver = NULL;
	pass(&message, &got);
	assert_decree(got.decree, &decree);
}

static void roster_of_the_most_members_with_the_longest_texts_reads_back(void **state)
{
	(void)state;
	struct decree decree = decree_of(DECREE_DECIDED);
	struct message message = {.kind = MESSAGE_DECREE, .incarnation = 5, .decree = &decree}, got;
	decree.roster = roster_of(MEMBER_COUNT_MAX);
	assert_true(pass(&message, &got) <= CODEC_DECREE_MAX);
	assert_true(roster_is_equal(&got.decree->roster, &decree.roster));
}

static void standing_and_holding_read_back(void **state)
{
	(void)state;
	struct standing standing = {.origin = 3, .since = 2, .ready_in = UINT64_MAX, .round = 9, .settings = ring_settings_standard(),
				    .next_settings = ring_settings_standard(), .taken = 77, .taken_round = 8, .has_agreed = true,
				    .has_offered = true, .is_final = true};
	struct message message = {.kind = MESSAGE_STANDING, .from = 1, .incarnation = 5, .view = 4, .standing = &standing}, got;
	standing.setting_round[SYNC_INTERVAL] = standing.next_setting_round[SYNC_INTERVAL] = 6;
	pass(&message, &got);
	assert_memory_equal(&got.standing->settings, &standing.settings, sizeof standing.settings);
	assert_memory_equal(&got.standing->next_settings, &standing.next_settings, sizeof standing.settings);
	assert_memory_equal(got.standing->setting_round, standing.setting_round, sizeof standing.setting_round);
	assert_memory_equal(got.standing->next_setting_round, standing.next_setting_round, sizeof standing.setting_round);
	assert_true(got.standing->since == 2 && got.standing->ready_in == UINT64_MAX && got.standing->round == 9);
	assert_true(got.standing->taken == 77 && got.standing->taken_round == 8 && got.standing->has_agreed);
	assert_true(got.standing->has_offered && got.standing->is_final && !got.standing->finished);
	message = (struct message){.kind = MESSAGE_HOLDING, .from = 1, .incarnation = 5, .view = 4,
				   .holding = {.origin = 3, .layer_index = 2, .number = 7, .since = 1, .round = 5, .hash = UINT64_MAX,
					       .is_rolled_back = true}};
	pass(&message, &got);
	assert_true(got.holding.number == 7 && got.holding.since == 1 && got.holding.round == 5 && got.holding.hash == UINT64_MAX);
	assert_true(got.holding.origin == 3 && got.holding.layer_index == 2 && got.holding.is_rolled_back && !got.holding.is_nothing);
}

/* ---- What cannot be is refused ---- */

enum { WIRE_SEATS = MEMBER_COUNT_MAX + 1 };

static struct {
	Edit__Peer__Message message;
	Edit__Peer__Decree decree;
	Edit__Peer__Roster roster;
	Edit__Peer__Seat seat;
	Edit__Peer__Seat *seats[WIRE_SEATS];
	uint32_t doubts[DOUBT_COUNT_MAX + 1];
} w;

/* A good one, for a test to spoil. */
static void wire_make(void)
{
	memset(&w, 0, sizeof w);
	edit__peer__message__init(&w.message);
	edit__peer__decree__init(&w.decree);
	edit__peer__roster__init(&w.roster);
	edit__peer__seat__init(&w.seat);
	w.seat.name = (char *)"node-a";
	w.seat.address = (char *)"tcp://10.0.0.1:1";
	for (size_t i = 0; i < WIRE_SEATS; i++)
		w.seats[i] = &w.seat;
	w.roster.number = 8;
	w.roster.fanout = 1;
	w.roster.n_seats = 1;
	w.roster.seats = w.seats;
	w.decree.kind = DECREE_DECIDED;
	w.decree.sender = (char *)"node-a";
	w.decree.address = (char *)"tcp://10.0.0.1:1";
	w.decree.incarnation = w.decree.disk = 1;
	w.decree.view = 8;
	w.decree.doubts = w.doubts;
	w.decree.n_doubts = 1;
	w.decree.roster = &w.roster;
	w.message.version = PROTOCOL_VERSION;
	w.message.incarnation = 99;
	w.message.body_case = EDIT__PEER__MESSAGE__BODY_DECREE;
	w.message.decree = &w.decree;
}

static const char *wire_verdict(size_t payload_bytes)
{
	static unsigned char bytes[2 << 20];
	static const char payload[4];
	const char *what = NULL;
	struct message got = {.kind = MESSAGE_KIND_END};
	assert_true(edit__peer__message__get_packed_size(&w.message) <= sizeof bytes);
	size_t size = edit__peer__message__pack(&w.message, bytes);
	int error = codec_decode(codec, bytes, size, payload_bytes ? payload : NULL, payload_bytes, &got, &what);
	assert_true(error == 0 || error == EDIT_ERROR_MALFORMED);
	assert_true(error == 0 || got.kind == MESSAGE_KIND_END);
	return error ? what : NULL;
}

/* The good one passes; with the spoiling statement it is refused because of field. */
#define SPOIL(field, statement)                                                                                        \
	do {                                                                                                           \
		wire_make();                                                                                           \
		assert_null(wire_verdict(0));                                                                          \
		statement;                                                                                             \
		const char *what_ = wire_verdict(0);                                                                   \
		if (!what_)                                                                                            \
			fail_msg("accepted: %s", #statement);                                                          \
		assert_string_equal(what_, field);                                                                     \
	} while (0)

static char name_64[65], address_256[257];

static void decree_out_of_bounds_is_refused(void **state)
{
	(void)state;
	memset(name_64, 'a', 64);
	memset(address_256, 'a', 256);
	SPOIL("decree header", w.message.from = 1);
	SPOIL("decree header", w.message.receiver = 1);
	SPOIL("decree header", w.message.view = 1);
	SPOIL("decree header", w.message.sequence = 1);
	SPOIL("incarnation", w.message.incarnation = 0);
	SPOIL("decree.kind", w.decree.kind = 0);
	SPOIL("decree.kind", w.decree.kind = DECREE_KIND_END);
	SPOIL("decree.sender", w.decree.sender = (char *)"");
	SPOIL("decree.sender", w.decree.sender = (char *)"Node");
	SPOIL("decree.sender", w.decree.sender = name_64);
	SPOIL("decree.receiver", w.decree.receiver = (char *)"a/b");
	SPOIL("decree.relay", w.decree.relay = name_64);
	SPOIL("decree.address", w.decree.address = (char *)"tcp://a b");
	SPOIL("decree.address", w.decree.address = address_256);
	SPOIL("decree.incarnation", w.decree.incarnation = 0);
	SPOIL("decree.disk", w.decree.disk = 0);
	SPOIL("decree.view", w.decree.view = 0);
	SPOIL("decree.view", w.decree.view = CODEC_NUMBER_END);
	SPOIL("decree.ballot", w.decree.ballot = 1);
	SPOIL("decree.ballot", w.decree.ballot = ballot_make(1, MEMBER_COUNT_MAX));
	SPOIL("decree.ballot", w.decree.ballot = ballot_make(BALLOT_COUNTER_MAX + 1, 0));
	SPOIL("decree.accepted_ballot", w.decree.accepted_ballot = UINT64_MAX);
	SPOIL("decree.doubts", w.decree.n_doubts = DOUBT_COUNT_MAX + 1);
	SPOIL("decree.doubts", w.doubts[0] = MEMBER_COUNT_MAX);
	SPOIL("decree.refusal", w.decree.refusal = DECREE_REFUSAL_END);
	wire_make();
	assert_string_equal(wire_verdict(4), "payload");
}

static void roster_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL("roster.number", w.roster.number = 0);
	SPOIL("roster.number", w.roster.number = CODEC_NUMBER_END);
	SPOIL("roster.seats", w.roster.n_seats = 0);
	SPOIL("roster.seats", w.roster.n_seats = MEMBER_COUNT_MAX + 1);
	SPOIL("roster.holder", w.roster.holder = 1);
	SPOIL("roster.fanout", w.roster.fanout = 0);
	SPOIL("roster.fanout", w.roster.fanout = 2);
	SPOIL("roster.seats", w.seat.name = (char *)"");
	SPOIL("roster.seats", w.seat.name = name_64);
	SPOIL("roster.seats", w.seat.address = (char *)"");
	SPOIL("roster.seats", w.seat.address = address_256);
	SPOIL("frame", w.seat.address = (char *)"tcp://\x1b[2J");
}

static void decree_larger_than_any_can_be_is_refused(void **state)
{
	(void)state;
	struct decree decree = decree_of(DECREE_LEAVE);
	struct message message = {.kind = MESSAGE_DECREE, .incarnation = 5, .decree = &decree}, got;
	size_t bytes;
	const char *what = "";
	assert_int_equal(codec_encode(codec, &message, frame, sizeof frame, &bytes), 0);
	memset(frame + bytes, 0, CODEC_DECREE_MAX + 8);
	memcpy(frame + bytes, "\xfa\x07\x80\x80\x18", 5); /* an unknown field of CODEC_DECREE_MAX bytes */
	assert_int_equal(codec_decode(other, frame, bytes + 5 + CODEC_DECREE_MAX, NULL, 0, &got, &what), EDIT_ERROR_MALFORMED);
	assert_string_equal(what, "frame size");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decree_of_every_kind_reads_back_and_passes_the_council),
		cmocka_unit_test(roster_of_the_most_members_with_the_longest_texts_reads_back),
		cmocka_unit_test(standing_and_holding_read_back),
		cmocka_unit_test(decree_out_of_bounds_is_refused),
		cmocka_unit_test(roster_out_of_bounds_is_refused),
		cmocka_unit_test(decree_larger_than_any_can_be_is_refused),
	};
	return cmocka_run_group_tests(tests, codecs_make, codecs_free);
}

/* Messages as bytes: every field that is not as it must be is refused by name, and crafted frames cost nothing. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/layer.h"
#include "proto/codec.h"
#include "proto/peer.pb-c.h"
#include "tests/codecs.h"

static unsigned char frame[CODEC_FRAME_MAX + 1];
static float payload[CODEC_PAYLOAD_MAX / sizeof(float) + 1];

/* ---- Good messages to begin with ---- */

static struct message message_of(enum message_kind kind)
{
	return (struct message){.kind = kind, .from = 3, .incarnation = 0xfedcba9876543210, .receiver = 0x1234567890abcdef,
				.view = 1, .sequence = 77};
}

static struct record record_good(void)
{
	return (struct record){.round = 9, .layer_index = 4095, .origin = 1023, .verdict = VERDICT_OUTLIER, .norm = 12.5,
			       .z = 4.5, .mean = 3, .sd = 0.1, .steps = 128, .tokens = 131072, .loss = 2.5, .interval_us = 999,
			       .exposed_us = 17, .change = UINT64_MAX, .final = true};
}

/* ---- Bad fields ---- */

/* All bodies of the generated types, good ones, for a test to spoil. */
static struct {
	Edit__Peer__Message message;
	Edit__Peer__Hello hello;
	Edit__Peer__Fact fact;
	Edit__Peer__Fact *facts[FACT_COUNT_MAX + 1];
	Edit__Peer__Refuse refuse;
	Edit__Peer__Heartbeat heartbeat;
	uint32_t suspects[SUSPECT_COUNT_MAX + 1];
	Edit__Peer__Roll roll;
	Edit__Peer__Record record;
	Edit__Peer__Chunk chunk;
	Edit__Peer__Confirm confirm;
	Edit__Peer__Change change;
	Edit__Peer__Scalar scalar;
	Edit__Peer__Standing standing;
	double values[RING_SETTING_COUNT + 1], next_values[RING_SETTING_COUNT + 1];
	uint64_t rounds[RING_SETTING_COUNT + 1], next_rounds[RING_SETTING_COUNT + 1];
	Edit__Peer__Holding holding;
} w;
static size_t wire_payload_bytes;

static void wire_make_standing(void)
{
	const struct ring_settings settings = ring_settings_standard();
	memcpy(w.values, settings.value, sizeof(settings.value));
	memcpy(w.next_values, settings.value, sizeof(settings.value));
	edit__peer__standing__init(&w.standing);
	w.standing.settings = w.values;
	w.standing.setting_rounds = w.rounds;
	w.standing.next_settings = w.next_values;
	w.standing.next_setting_rounds = w.next_rounds;
	w.standing.n_settings = w.standing.n_setting_rounds = RING_SETTING_COUNT;
	w.standing.n_next_settings = w.standing.n_next_setting_rounds = RING_SETTING_COUNT;
	w.standing.has_agreed = true;
	edit__peer__holding__init(&w.holding);
	w.holding.number = 1;
}

/* Fills w with a good message of a kind. */
static void wire_make(Edit__Peer__Message__BodyCase kind)
{
	memset(&w, 0, sizeof(w));
	edit__peer__message__init(&w.message);
	w.message.version = PROTOCOL_VERSION;
	w.message.from = 1;
	w.message.incarnation = 99;
	w.message.view = 1;
	w.message.body_case = kind;
	edit__peer__hello__init(&w.hello);
	edit__peer__fact__init(&w.fact);
	w.fact.key = (char *)"k";
	w.fact.value = (char *)"v";
	for (size_t i = 0; i <= FACT_COUNT_MAX; i++)
		w.facts[i] = &w.fact;
	w.hello.name = (char *)"node-a";
	w.hello.facts = w.facts;
	w.hello.n_facts = 2;
	edit__peer__refuse__init(&w.refuse);
	w.refuse.reason = REFUSAL_FACT;
	edit__peer__heartbeat__init(&w.heartbeat);
	w.heartbeat.suspects = w.suspects;
	w.heartbeat.n_suspects = 1;
	edit__peer__roll__init(&w.roll);
	edit__peer__record__init(&w.record);
	w.record.round = 1;
	w.record.verdict = VERDICT_ACCEPTED;
	edit__peer__chunk__init(&w.chunk);
	w.chunk.round = 1;
	w.chunk.phase = PHASE_REDUCE;
	w.chunk.count = 16;
	edit__peer__confirm__init(&w.confirm);
	w.confirm.round = 1;
	edit__peer__change__init(&w.change);
	w.change.id = UINT64_C(1) << 32;
	w.change.kind = CHANGE_SET;
	w.change.setting = SYNC_INTERVAL;
	w.change.value = 20;
	edit__peer__scalar__init(&w.scalar);
	w.scalar.kind = SCALAR_NORM;
	w.scalar.number = 1;
	w.scalar.verdict = VERDICT_ACCEPTED;
	wire_make_standing();
	wire_payload_bytes = kind == EDIT__PEER__MESSAGE__BODY_CHUNK ? 64 : 0;
	switch (kind) {
	case EDIT__PEER__MESSAGE__BODY_HELLO: w.message.hello = &w.hello; break;
	case EDIT__PEER__MESSAGE__BODY_REFUSE: w.message.refuse = &w.refuse; break;
	case EDIT__PEER__MESSAGE__BODY_HEARTBEAT: w.message.heartbeat = &w.heartbeat; break;
	case EDIT__PEER__MESSAGE__BODY_ROLL: w.message.roll = &w.roll; break;
	case EDIT__PEER__MESSAGE__BODY_RECORD: w.message.record = &w.record; break;
	case EDIT__PEER__MESSAGE__BODY_CHUNK: w.message.chunk = &w.chunk; break;
	case EDIT__PEER__MESSAGE__BODY_CONFIRM: w.message.confirm = &w.confirm; break;
	case EDIT__PEER__MESSAGE__BODY_CHANGE: w.message.change = &w.change; break;
	case EDIT__PEER__MESSAGE__BODY_SCALAR: w.message.scalar = &w.scalar; break;
	case EDIT__PEER__MESSAGE__BODY_STANDING: w.message.standing = &w.standing; break;
	case EDIT__PEER__MESSAGE__BODY_HOLDING: w.message.holding = &w.holding; break;
	default: break;
	}
}

/* Decodes w; returns the name of the field that is refused, NULL if none is. */
static const char *wire_verdict(struct message *ret_message)
{
	static unsigned char bytes[2 << 20];
	const char *what = NULL;
	assert_true(edit__peer__message__get_packed_size(&w.message) <= sizeof(bytes));
	size_t size = edit__peer__message__pack(&w.message, bytes);
	int error = codec_decode(codec, bytes, size, payload, wire_payload_bytes, ret_message, &what);
	assert_true(error == 0 || error == EDIT_ERROR_MALFORMED);
	return error ? what : NULL;
}

/* The good message passes; with the spoiling statement it is refused because of field. */
#define SPOIL(KIND, field, statement)                                                                                  \
	do {                                                                                                               \
		struct message got_ = {.kind = MESSAGE_KIND_END};                                                              \
		wire_make(EDIT__PEER__MESSAGE__BODY_##KIND);                                                                   \
		assert_null(wire_verdict(&got_));                                                                              \
		got_.kind = MESSAGE_KIND_END;                                                                                  \
		statement;                                                                                                     \
		const char *what_ = wire_verdict(&got_);                                                                       \
		if (!what_)                                                                                                    \
			fail_msg("accepted: %s", #statement);                                                                      \
		assert_string_equal(what_, field);                                                                             \
		assert_int_equal(got_.kind, MESSAGE_KIND_END);                                                                 \
	} while (0)

static char long_text[FACT_TEXT_MAX + 2];

static void envelope_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(ROLL, "version", w.message.version = 0);
	SPOIL(ROLL, "from", w.message.from = MEMBER_COUNT_MAX);
	SPOIL(ROLL, "incarnation", w.message.incarnation = 0);
	SPOIL(ROLL, "view", w.message.view = CODEC_NUMBER_END);
	SPOIL(ROLL, "sequence", w.message.sequence = UINT64_MAX);
	SPOIL(ROLL, "body", w.message.body_case = EDIT__PEER__MESSAGE__BODY__NOT_SET);
	SPOIL(ROLL, "payload", wire_payload_bytes = 4);
	SPOIL(ROLL, "roll.origin", w.roll.origin = MEMBER_COUNT_MAX);
}

static void hello_out_of_bounds_is_refused(void **state)
{
	(void)state;
	memset(long_text, 'x', FACT_TEXT_MAX + 1);
	SPOIL(HELLO, "hello.name", w.hello.name = (char *)"");
	SPOIL(HELLO, "hello.name", w.hello.name = (char *)"Node");
	SPOIL(HELLO, "hello.name",
	      w.hello.name = (char *)"a234567890123456789012345678901234567890123456789012345678901234");
	SPOIL(HELLO, "hello.facts", w.hello.n_facts = FACT_COUNT_MAX + 1);
	SPOIL(HELLO, "hello.facts.key", w.fact.key = (char *)"");
	SPOIL(HELLO, "hello.facts.key", w.fact.key = long_text);
	SPOIL(HELLO, "hello.facts.value", w.fact.value = long_text);
	/* Text that is not plain falls with the frame: newline, escape sequence, broken UTF-8, C1 control. */
	SPOIL(HELLO, "frame", w.fact.value = (char *)"a\nb");
	SPOIL(HELLO, "frame", w.fact.key = (char *)"\x1b[2J");
	SPOIL(HELLO, "frame", w.fact.value = (char *)"\xc3");
	SPOIL(HELLO, "frame", w.fact.value = (char *)"\xc2\x9b");
}

static void refuse_and_heartbeat_out_of_bounds_are_refused(void **state)
{
	(void)state;
	SPOIL(REFUSE, "refuse.reason", w.refuse.reason = 0);
	SPOIL(REFUSE, "refuse.reason", w.refuse.reason = REFUSAL_END);
	SPOIL(REFUSE, "refuse.fact_index", w.refuse.fact_index = FACT_COUNT_MAX + 1);
	SPOIL(HEARTBEAT, "heartbeat.round", w.heartbeat.round = CODEC_NUMBER_END);
	SPOIL(HEARTBEAT, "heartbeat.received", w.heartbeat.received = CODEC_NUMBER_END);
	SPOIL(HEARTBEAT, "heartbeat.collectives", w.heartbeat.collectives = CODEC_NUMBER_END);
	SPOIL(HEARTBEAT, "heartbeat.suspects", w.heartbeat.n_suspects = SUSPECT_COUNT_MAX + 1);
	SPOIL(HEARTBEAT, "heartbeat.suspects", w.suspects[0] = MEMBER_COUNT_MAX);
}

static void record_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(RECORD, "record.round", w.record.round = 0);
	SPOIL(RECORD, "record.round", w.record.round = CODEC_NUMBER_END);
	SPOIL(RECORD, "record.layer_index", w.record.layer_index = LAYER_COUNT_MAX);
	SPOIL(RECORD, "record.origin", w.record.origin = MEMBER_COUNT_MAX);
	SPOIL(RECORD, "record.verdict", w.record.verdict = VERDICT_COUNT);
	SPOIL(RECORD, "record.norm", w.record.norm = NAN);
	SPOIL(RECORD, "record.norm", w.record.norm = INFINITY);
	SPOIL(RECORD, "record.norm", w.record.norm = -1);
	SPOIL(RECORD, "record.z", w.record.z = NAN);
	SPOIL(RECORD, "record.mean", w.record.mean = NAN);
	SPOIL(RECORD, "record.mean", w.record.mean = -1);
	SPOIL(RECORD, "record.mean", w.record.mean = INFINITY);
	SPOIL(RECORD, "record.sd", w.record.sd = INFINITY);
	SPOIL(RECORD, "record.sd", w.record.sd = NAN);
	SPOIL(RECORD, "record.sd", w.record.sd = -1);
	SPOIL(RECORD, "record.step", w.record.step = CODEC_NUMBER_END);
	SPOIL(RECORD, "record.steps", w.record.steps = CODEC_NUMBER_END);
	SPOIL(RECORD, "record.tokens", w.record.tokens = CODEC_NUMBER_END);
	SPOIL(RECORD, "record.interval_us", w.record.interval_us = CODEC_NUMBER_END);
	SPOIL(RECORD, "record.exposed_us", w.record.exposed_us = CODEC_NUMBER_END);
}

static void scalar_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(SCALAR, "scalar.kind", w.scalar.kind = SCALAR_KIND_COUNT);
	SPOIL(SCALAR, "scalar.layer_index", w.scalar.layer_index = LAYER_COUNT_MAX);
	SPOIL(SCALAR, "scalar.origin", w.scalar.origin = MEMBER_COUNT_MAX);
	SPOIL(SCALAR, "scalar.number", w.scalar.number = 0);
	SPOIL(SCALAR, "scalar.number", w.scalar.number = CODEC_NUMBER_END);
	SPOIL(SCALAR, "scalar.value", w.scalar.value = -1); /* a sum of squares; that of a step may be */
	SPOIL(SCALAR, "scalar.value", (w.scalar.kind = SCALAR_MEAN, w.scalar.value = -INFINITY));
	SPOIL(SCALAR, "scalar.verdict", w.scalar.verdict = VERDICT_COUNT);
}

static void chunk_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(CHUNK, "chunk.round", w.chunk.round = 0);
	SPOIL(CHUNK, "chunk.round", w.chunk.round = CODEC_NUMBER_END);
	SPOIL(CHUNK, "chunk.layer_index", w.chunk.layer_index = LAYER_COUNT_MAX);
	SPOIL(CHUNK, "chunk.phase", w.chunk.phase = 0);
	SPOIL(CHUNK, "chunk.phase", w.chunk.phase = PHASE_END);
	SPOIL(CHUNK, "chunk.shard", w.chunk.shard = MEMBER_COUNT_MAX);
	SPOIL(CHUNK, "chunk.offset", w.chunk.offset = CODEC_NUMBER_END);
	SPOIL(CHUNK, "chunk.count", w.chunk.count = 15);
	SPOIL(CHUNK, "chunk.count", w.chunk.count = UINT64_MAX);
	SPOIL(CHUNK, "chunk.count", w.chunk.count = UINT64_C(1) << 62 | 16); /* times 4 would wrap round to 64 */
	SPOIL(CHUNK, "chunk.count", wire_payload_bytes = 63);
	SPOIL(CHUNK, "chunk.payload", (w.chunk.count = CODEC_PAYLOAD_MAX / 4 + 1, wire_payload_bytes = CODEC_PAYLOAD_MAX + 4));
	SPOIL(CHUNK, "chunk.square_norm", w.chunk.square_norm = 1);
	SPOIL(CHUNK, "chunk.square_norm", w.chunk.square_norm = NAN);
	SPOIL(CHUNK, "chunk.square_norm", (w.chunk.phase = PHASE_GATHER, w.chunk.square_norm = -1));
	SPOIL(CHUNK, "chunk.square_norm", (w.chunk.phase = PHASE_HEAL, w.chunk.square_norm = 1));
	SPOIL(CHUNK, "chunk.shard", (w.chunk.phase = PHASE_HEAL, w.chunk.shard = HEAL_PART_COUNT));
	SPOIL(CHUNK, "chunk.round", (w.chunk.phase = PHASE_HEAL, w.chunk.round = CODEC_NUMBER_END));
}

static void confirm_and_change_out_of_bounds_are_refused(void **state)
{
	(void)state;
	SPOIL(CONFIRM, "confirm.round", w.confirm.round = 0);
	SPOIL(CONFIRM, "confirm.round", w.confirm.round = CODEC_NUMBER_END);
	SPOIL(CONFIRM, "confirm.layer_index", w.confirm.layer_index = LAYER_COUNT_MAX);
	SPOIL(CONFIRM, "confirm.origin", w.confirm.origin = UINT32_MAX);
	SPOIL(CHANGE, "change.id", w.change.id = 5);
	SPOIL(CHANGE, "change.id", w.change.id = (uint64_t)(MEMBER_COUNT_MAX + 1) << 32);
	SPOIL(CHANGE, "change.kind", w.change.kind = 0);
	SPOIL(CHANGE, "change.kind", w.change.kind = CHANGE_KIND_END);
	SPOIL(CHANGE, "change.setting", w.change.setting = RING_SETTING_COUNT);
	SPOIL(CHANGE, "change.value", w.change.value = NAN);
	SPOIL(CHANGE, "change.value", w.change.value = 0);
	SPOIL(CHANGE, "change.value", w.change.value = 1e9 + 1);
	SPOIL(CHANGE, "change.value", w.change.value = 1.5);
	SPOIL(CHANGE, "change.value", (w.change.kind = CHANGE_PAUSE, w.change.value = INFINITY));
	SPOIL(CHANGE, "change.at_round", w.change.at_round = CODEC_NUMBER_END);
}

static void standing_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(STANDING, "standing.origin", w.standing.origin = MEMBER_COUNT_MAX);
	SPOIL(STANDING, "standing.since", w.standing.since = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.round", w.standing.round = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.pause_round", w.standing.pause_round = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.resume_round", w.standing.resume_round = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.checkpoint_round", w.standing.checkpoint_round = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.taken_round", w.standing.taken_round = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.settings", w.standing.n_settings--);
	SPOIL(STANDING, "standing.settings", w.standing.n_settings++);
	SPOIL(STANDING, "standing.settings", w.standing.n_settings = 0);
	SPOIL(STANDING, "standing.settings", w.standing.n_setting_rounds--);
	SPOIL(STANDING, "standing.settings", w.values[SYNC_INTERVAL] = 0);
	SPOIL(STANDING, "standing.settings", w.values[OUTER_LR] = NAN);
	SPOIL(STANDING, "standing.settings", w.values[WIRE_CHUNK] = 66); /* no multiple of 4 */
	SPOIL(STANDING, "standing.setting_rounds", w.rounds[RING_SETTING_COUNT - 1] = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.settings", w.standing.n_next_settings--);
	SPOIL(STANDING, "standing.settings", w.standing.n_next_setting_rounds++);
	SPOIL(STANDING, "standing.settings", w.next_values[METHOD] = METHOD_COUNT);
	SPOIL(STANDING, "standing.setting_rounds", w.next_rounds[0] = CODEC_NUMBER_END);
	SPOIL(STANDING, "standing.next_settings", w.standing.has_agreed = false);
	SPOIL(STANDING, "payload", wire_payload_bytes = 4);
}

static void holding_out_of_bounds_is_refused(void **state)
{
	(void)state;
	SPOIL(HOLDING, "holding.origin", w.holding.origin = MEMBER_COUNT_MAX);
	SPOIL(HOLDING, "holding.layer_index", w.holding.layer_index = LAYER_COUNT_MAX);
	SPOIL(HOLDING, "holding.number", w.holding.number = 0);
	SPOIL(HOLDING, "holding.number", w.holding.number = CODEC_NUMBER_END);
	SPOIL(HOLDING, "holding.since", w.holding.since = CODEC_NUMBER_END);
	SPOIL(HOLDING, "holding.round", w.holding.round = CODEC_NUMBER_END);
	SPOIL(HOLDING, "holding.is_nothing", (w.holding.is_nothing = true, w.holding.round = 1));
	SPOIL(HOLDING, "holding.is_nothing", (w.holding.is_nothing = true, w.holding.since = 1));
	SPOIL(HOLDING, "holding.is_nothing", (w.holding.is_nothing = true, w.holding.hash = 1));
}

/* ---- Whole frames ---- */

static void another_version_reads_as_a_refusal(void **state)
{
	(void)state;
	struct message got;
	wire_make(EDIT__PEER__MESSAGE__BODY_RECORD);
	w.message.version = PROTOCOL_VERSION + 1;
	w.record.verdict = 4711; /* whatever the body has become */
	assert_null(wire_verdict(&got));
	assert_int_equal(got.kind, MESSAGE_REFUSE);
	assert_int_equal(got.refuse.reason, REFUSAL_VERSION);
	assert_int_equal(got.from, 1);
	assert_true(got.incarnation == 99);
	assert_null(got.payload);
}

static const char *frame_verdict(const void *bytes, size_t size)
{
	const char *what = NULL;
	struct message got;
	int error = codec_decode(codec, bytes, size, NULL, 0, &got, &what);
	assert_int_equal(error, EDIT_ERROR_MALFORMED);
	return what;
}

static void every_cut_of_a_frame_is_refused(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_RECORD), got;
	message.record = record_good();
	size_t bytes;
	assert_int_equal(codec_encode(codec, &message, frame, sizeof(frame), &bytes), 0);
	for (size_t cut = 0; cut < bytes; cut++)
		assert_int_equal(codec_decode(other, frame, cut, NULL, 0, &got, NULL), EDIT_ERROR_MALFORMED);
}

static void frames_larger_than_their_kind_are_refused(void **state)
{
	(void)state;
	/* A good roll and an unknown text field behind it that makes it large. */
	struct message message = message_of(MESSAGE_ROLL), got;
	message.roll_origin = 1;
	size_t bytes;
	assert_int_equal(codec_encode(codec, &message, frame, sizeof(frame), &bytes), 0);
	memset(frame + bytes, 0, sizeof(frame) - bytes);
	memcpy(frame + bytes, "\xfa\x07\xf0\x03", 4); /* field 127, 496 bytes */
	assert_int_equal(codec_decode(other, frame, bytes + 4 + 496, NULL, 0, &got, NULL), EDIT_ERROR_MALFORMED);
	memcpy(frame + bytes, "\xfa\x07\x90\x03", 4); /* 400 bytes: still small; unknown fields are passed over */
	assert_int_equal(codec_decode(other, frame, bytes + 4 + 400, NULL, 0, &got, NULL), 0);
	assert_string_equal(frame_verdict(frame, CODEC_FRAME_MAX + 1), "frame size");
}

static void a_million_repeated_fields_are_refused(void **state)
{
	(void)state;
	/* Half a million empty facts in a frame of the largest size: field 2, length 0, inside hello (field 10). */
	size_t body = CODEC_FRAME_MAX - 4, at = 0;
	frame[at++] = 0x52;
	frame[at++] = (unsigned char)(0x80 | (body & 0x7f));
	frame[at++] = (unsigned char)(0x80 | (body >> 7 & 0x7f));
	frame[at++] = (unsigned char)(body >> 14);
	for (; at < CODEC_FRAME_MAX; at += 2)
		memcpy(frame + at, "\x12\x00", 2);
	assert_string_equal(frame_verdict(frame, CODEC_FRAME_MAX), "frame");
	/* As many varints at the top, and of an unknown field. */
	for (at = 0; at < CODEC_FRAME_MAX; at += 2)
		memcpy(frame + at, "\x08\x01", 2);
	assert_string_equal(frame_verdict(frame, CODEC_FRAME_MAX), "frame");
	for (at = 0; at < CODEC_FRAME_MAX; at += 2)
		memcpy(frame + at, "\x78\x01", 2);
	assert_string_equal(frame_verdict(frame, CODEC_FRAME_MAX), "frame");
	/* A packed list that fills the frame. */
	memset(frame, 1, CODEC_FRAME_MAX);
	frame[0] = 0x62; /* heartbeat */
	frame[4] = 0x2a; /* suspects, packed */
	size_t list = body - 4;
	frame[1] = (unsigned char)(0x80 | (body & 0x7f));
	frame[2] = (unsigned char)(0x80 | (body >> 7 & 0x7f));
	frame[3] = (unsigned char)(body >> 14);
	frame[5] = (unsigned char)(0x80 | (list & 0x7f));
	frame[6] = (unsigned char)(0x80 | (list >> 7 & 0x7f));
	frame[7] = (unsigned char)(list >> 14);
	frame_verdict(frame, CODEC_FRAME_MAX);
}

static void crafted_lengths_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t size;
	} bad[] = {
		{"", 0},
		{"\x52\xff\xff\xff\xff\x0f", 6},                 /* a hello of 4 GiB */
		{"\x52\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* of 2^64 - 1 */
		{"\x52\x05\x12\xff\xff\xff\x7f", 7},             /* a fact larger than its hello */
		{"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12}, /* a number of eleven bytes */
		{"\x0b\x0b\x0b\x0b\x0c", 5},                     /* groups in groups */
		{"\x0f\x01", 2},                                 /* a wire type that there is not */
		{"\x00\x01", 2},                                 /* field 0 */
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		frame_verdict(bad[i].bytes, bad[i].size);
}

static void deep_nesting_is_refused(void **state)
{
	(void)state;
	/* Hello in hello in hello: each level claims the rest of the frame. */
	size_t at = 0, size = 60000;
	while (at + 4 <= size) {
		size_t rest = size - at - 4;
		frame[at++] = 0x52;
		frame[at++] = (unsigned char)(0x80 | (rest & 0x7f));
		frame[at++] = (unsigned char)(0x80 | (rest >> 7 & 0x7f));
		frame[at++] = (unsigned char)(rest >> 14);
	}
	frame_verdict(frame, size);
}

static void noise_is_refused_or_reads_back_as_itself(void **state)
{
	(void)state;
	unsigned short seed[3] = {(unsigned short)time(NULL), 1, 2};
	print_message("seed %u\n", seed[0]);
	struct message message = message_of(MESSAGE_RECORD), got, again;
	message.record = record_good();
	for (int i = 0; i < 20000; i++) {
		size_t bytes, bytes_again;
		assert_int_equal(codec_encode(codec, &message, frame, sizeof(frame), &bytes), 0);
		for (long flips = 1 + nrand48(seed) % 3; flips > 0; flips--)
			frame[(size_t)nrand48(seed) % bytes] ^= (unsigned char)(1u << nrand48(seed) % 8);
		if (codec_decode(other, frame, bytes, NULL, 0, &got, NULL))
			continue;
		assert_int_equal(codec_encode(codec, &got, frame, sizeof(frame), &bytes_again), 0);
		assert_int_equal(codec_decode(codec, frame, bytes_again, NULL, 0, &again, NULL), 0);
		assert_int_equal(again.kind, got.kind);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(envelope_out_of_bounds_is_refused),
		cmocka_unit_test(hello_out_of_bounds_is_refused),
		cmocka_unit_test(refuse_and_heartbeat_out_of_bounds_are_refused),
		cmocka_unit_test(record_out_of_bounds_is_refused),
		cmocka_unit_test(scalar_out_of_bounds_is_refused),
		cmocka_unit_test(chunk_out_of_bounds_is_refused),
		cmocka_unit_test(confirm_and_change_out_of_bounds_are_refused),
		cmocka_unit_test(standing_out_of_bounds_is_refused),
		cmocka_unit_test(holding_out_of_bounds_is_refused),
		cmocka_unit_test(another_version_reads_as_a_refusal),
		cmocka_unit_test(every_cut_of_a_frame_is_refused),
		cmocka_unit_test(frames_larger_than_their_kind_are_refused),
		cmocka_unit_test(a_million_repeated_fields_are_refused),
		cmocka_unit_test(crafted_lengths_are_refused),
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(noise_is_refused_or_reads_back_as_itself),
	};
	return cmocka_run_group_tests(tests, codecs_make, codecs_free);
}

/* Messages as bytes: what is written reads back the same, to the bit. */

#include <float.h>
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
#include "tests/codecs.h"

static unsigned char frame[CODEC_FRAME_MAX + 1];
static float payload[CODEC_PAYLOAD_MAX / sizeof(float) + 1];

/* ---- Good messages ---- */

static struct message message_of(enum message_kind kind)
{
	return (struct message){.kind = kind, .from = 3, .incarnation = 0xfedcba9876543210, .receiver = 0x1234567890abcdef,
				.view = 1, .sequence = 77};
}

static struct message chunk_message(uint64_t count)
{
	struct message message = message_of(MESSAGE_CHUNK);
	message.chunk = (struct chunk){.round = 5, .layer_index = 7, .phase = PHASE_GATHER, .shard = 2, .offset = 1234567,
				       .count = count, .square_norm = 0.125};
	message.payload = payload;
	message.payload_bytes = count * sizeof(float);
	return message;
}

static struct record record_good(void)
{
	return (struct record){.round = 9, .layer_index = 4095, .origin = 1023, .verdict = VERDICT_OUTLIER, .norm = 12.5,
			       .z = 4.5, .mean = 3, .sd = 0.1, .step = 4096, .steps = 128, .tokens = 131072, .loss = 2.5, .interval_us = 999,
			       .exposed_us = 17, .change = UINT64_MAX, .final = true, .realign = true};
}

/* Sends a message through bytes; returns their count. */
static size_t pass(const struct message *message, struct message *ret_message)
{
	size_t bytes;
	const char *what = "";
	assert_int_equal(codec_encode(codec, message, frame, sizeof(frame), &bytes), 0);
	int error = codec_decode(other, frame, bytes, message->payload, message->payload_bytes, ret_message, &what);
	if (error)
		fail_msg("refused: %s", what);
	assert_int_equal(ret_message->kind, message->kind);
	assert_int_equal(ret_message->from, message->from);
	assert_true(ret_message->incarnation == message->incarnation);
	assert_true(ret_message->receiver == message->receiver);
	assert_true(ret_message->view == message->view);
	assert_true(ret_message->sequence == message->sequence);
	assert_ptr_equal(ret_message->payload, message->payload);
	assert_int_equal(ret_message->payload_bytes, message->payload_bytes);
	return bytes;
}

static void hello_reads_back(void **state)
{
	(void)state;
	static const struct fact facts[] = {{"hidden_size", "128"}, {"layer 3", "blocks.2 147712"}, {"empty", ""}};
	struct message message = message_of(MESSAGE_HELLO), got;
	message.hello = (struct hello){.name = "node-a", .facts = facts, .fact_count = 3};
	pass(&message, &got);
	assert_string_equal(got.hello.name, "node-a");
	assert_int_equal(got.hello.fact_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_string_equal(got.hello.facts[i].key, facts[i].key);
		assert_string_equal(got.hello.facts[i].value, facts[i].value);
	}
	message.hello.fact_count = 0;
	pass(&message, &got);
	assert_int_equal(got.hello.fact_count, 0);
}

/* The most facts, and the most text that a frame can hold, fit the codec's block. */
static void largest_hello_reads_back(void **state)
{
	(void)state;
	static struct fact facts[FACT_COUNT_MAX];
	static char keys[FACT_COUNT_MAX][16], value[118];
	memset(value, 'v', sizeof(value) - 1);
	for (size_t i = 0; i < FACT_COUNT_MAX; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%zu", i);
		facts[i] = (struct fact){keys[i], value};
	}
	struct message message = message_of(MESSAGE_HELLO), got;
	message.hello = (struct hello){.name = "a", .facts = facts, .fact_count = FACT_COUNT_MAX};
	size_t bytes = pass(&message, &got);
	assert_true(bytes > CODEC_FRAME_MAX * 95 / 100);
	assert_int_equal(got.hello.fact_count, FACT_COUNT_MAX);
	assert_string_equal(got.hello.facts[FACT_COUNT_MAX - 1].key, keys[FACT_COUNT_MAX - 1]);
	static char longer[FACT_TEXT_MAX + 1];
	memset(longer, 'w', FACT_TEXT_MAX);
	for (size_t i = 0; i < FACT_COUNT_MAX; i++)
		facts[i].value = longer;
	size_t untouched = 4711;
	assert_int_equal(codec_encode(codec, &message, frame, sizeof(frame), &untouched), EDIT_ERROR_FULL);
	assert_int_equal(untouched, 4711);
}

static void refuse_reads_back(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_REFUSE), got;
	for (int reason = REFUSAL_DUPLICATE; reason < REFUSAL_END; reason++) {
		message.refuse = (struct refuse){.reason = (enum refusal)reason, .fact_index = FACT_COUNT_MAX};
		pass(&message, &got);
		assert_int_equal(got.refuse.reason, reason);
		assert_int_equal(got.refuse.fact_index, FACT_COUNT_MAX);
	}
}

static void heartbeat_reads_back(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_HEARTBEAT), got;
	message.heartbeat = (struct heartbeat){.round = CODEC_NUMBER_END - 1, .received = 12, .resend = true,
					       .waiting_for_worker = true, .collectives = CODEC_NUMBER_END - 2,
					       .suspect_count = SUSPECT_COUNT_MAX,
					       .suspects = {0, 1, 2, 3, 4, 5, 6, MEMBER_COUNT_MAX - 1}};
	pass(&message, &got);
	assert_true(got.heartbeat.round == CODEC_NUMBER_END - 1);
	assert_true(got.heartbeat.received == 12);
	assert_true(got.heartbeat.resend);
	assert_true(got.heartbeat.waiting_for_worker);
	assert_true(got.heartbeat.collectives == CODEC_NUMBER_END - 2);
	assert_int_equal(got.heartbeat.suspect_count, SUSPECT_COUNT_MAX);
	assert_memory_equal(got.heartbeat.suspects, message.heartbeat.suspects, sizeof(got.heartbeat.suspects));
}

/* Every kind, with every value that its sender may have: sums of squares may overflow, what a worker sums up may be anything. */
static void scalar_reads_back_to_the_bit(void **state)
{
	(void)state;
	static const double values[] = {0.1, 0, DBL_MAX, INFINITY, NAN, -0.1, -INFINITY};
	struct message message = message_of(MESSAGE_SCALAR), got;
	for (unsigned kind = 0; kind < SCALAR_KIND_COUNT; kind++)
		for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
			if (values[i] < 0 && kind != SCALAR_STEP)
				continue;
			message.scalar = (struct scalar){.kind = (enum scalar_kind)kind, .layer_index = LAYER_COUNT_MAX - 1,
							 .origin = MEMBER_COUNT_MAX - 1, .number = CODEC_NUMBER_END - 1,
							 .value = values[i], .word = UINT64_MAX - 1, .verdict = VERDICT_LATE,
							 .final = i % 2, .realign = !(i % 2)};
			assert_true(pass(&message, &got) <= CODEC_SMALL_MAX);
			assert_int_equal(got.scalar.kind, kind);
			assert_int_equal(got.scalar.layer_index, LAYER_COUNT_MAX - 1);
			assert_int_equal(got.scalar.origin, MEMBER_COUNT_MAX - 1);
			assert_true(got.scalar.number == CODEC_NUMBER_END - 1);
			assert_memory_equal(&got.scalar.value, &message.scalar.value, sizeof(double));
			assert_true(got.scalar.word == UINT64_MAX - 1);
			assert_int_equal(got.scalar.verdict, VERDICT_LATE);
			assert_int_equal(got.scalar.final, i % 2);
			assert_int_equal(got.scalar.realign, !(i % 2));
		}
}

static void roll_reads_back(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_ROLL), got;
	message.roll_origin = MEMBER_COUNT_MAX - 1;
	pass(&message, &got);
	assert_int_equal(got.roll_origin, MEMBER_COUNT_MAX - 1);
}

static void record_compare(const struct record *a, const struct record *b)
{
	assert_true(a->round == b->round);
	assert_int_equal(a->layer_index, b->layer_index);
	assert_int_equal(a->origin, b->origin);
	assert_int_equal(a->verdict, b->verdict);
	assert_memory_equal(&a->norm, &b->norm, sizeof(double));
	assert_memory_equal(&a->z, &b->z, sizeof(double));
	assert_memory_equal(&a->mean, &b->mean, sizeof(double));
	assert_memory_equal(&a->sd, &b->sd, sizeof(double));
	assert_true(a->step == b->step);
	assert_true(a->steps == b->steps);
	assert_true(a->tokens == b->tokens);
	assert_memory_equal(&a->loss, &b->loss, sizeof(double));
	assert_true(a->interval_us == b->interval_us);
	assert_true(a->exposed_us == b->exposed_us);
	assert_true(a->change == b->change);
	assert_int_equal(a->final, b->final);
	assert_int_equal(a->realign, b->realign);
}

static void record_reads_back_to_the_bit(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_RECORD), got;
	message.record = record_good();
	assert_true(pass(&message, &got) <= CODEC_SMALL_MAX);
	record_compare(&got.record, &message.record);
	message.record.verdict = VERDICT_LATE;
	message.record.realign = false;
	pass(&message, &got);
	record_compare(&got.record, &message.record);
	message.record.verdict = VERDICT_NONFINITE;
	message.record.norm = NAN;
	message.record.loss = NAN;
	message.record.z = 0;
	pass(&message, &got);
	record_compare(&got.record, &message.record);
	message.record.norm = INFINITY;
	pass(&message, &got);
	record_compare(&got.record, &message.record);
}

static void random_records_read_back_to_the_bit(void **state)
{
	(void)state;
	unsigned short seed[3] = {(unsigned short)time(NULL), 0x1234, 0x5678};
	print_message("seed %u\n", seed[0]);
	for (int i = 0; i < 2000; i++) {
		struct message message = message_of(MESSAGE_RECORD), got;
		message.record = (struct record){
			.round = 1 + (uint64_t)(erand48(seed) * 9e15), .layer_index = (uint32_t)(nrand48(seed) % LAYER_COUNT_MAX),
			.origin = (uint32_t)(nrand48(seed) % MEMBER_COUNT_MAX), .verdict = (enum verdict)(nrand48(seed) % VERDICT_COUNT),
			.norm = exp(200 * erand48(seed) - 100), .z = 1e6 * (erand48(seed) - 0.5), .mean = erand48(seed),
			.sd = erand48(seed), .step = (uint64_t)nrand48(seed) << 9, .steps = (uint64_t)nrand48(seed), .tokens = (uint64_t)nrand48(seed) << 20,
			.loss = erand48(seed), .interval_us = (uint64_t)nrand48(seed), .exposed_us = (uint64_t)nrand48(seed),
			.change = (uint64_t)nrand48(seed) << 33, .final = nrand48(seed) & 1,
			.realign = nrand48(seed) & 1};
		pass(&message, &got);
		record_compare(&got.record, &message.record);
	}
}

static void chunk_reads_back_with_its_payload_in_place(void **state)
{
	(void)state;
	static const uint64_t counts[] = {0, 1, 65536, CODEC_PAYLOAD_MAX / sizeof(float)};
	for (size_t i = 0; i < 4; i++) {
		struct message message = chunk_message(counts[i]), got;
		assert_true(pass(&message, &got) <= CODEC_SMALL_MAX);
		assert_true(got.chunk.round == 5);
		assert_int_equal(got.chunk.layer_index, 7);
		assert_int_equal(got.chunk.phase, PHASE_GATHER);
		assert_int_equal(got.chunk.shard, 2);
		assert_true(got.chunk.offset == 1234567);
		assert_true(got.chunk.count == counts[i]);
		assert_true(got.chunk.square_norm == 0.125);
	}
	struct message message = chunk_message(1), got;
	message.chunk.square_norm = NAN;
	pass(&message, &got);
	assert_true(isnan(got.chunk.square_norm));
}

static void confirm_reads_back(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_CONFIRM), got;
	message.confirm = (struct confirm){.round = 1, .layer_index = 2, .origin = 3, .hash = UINT64_MAX};
	pass(&message, &got);
	assert_true(got.confirm.round == 1);
	assert_int_equal(got.confirm.layer_index, 2);
	assert_int_equal(got.confirm.origin, 3);
	assert_true(got.confirm.hash == UINT64_MAX);
}

static void change_of_every_setting_reads_back(void **state)
{
	(void)state;
	struct ring_settings standard = ring_settings_standard();
	struct message message = message_of(MESSAGE_CHANGE), got;
	for (uint32_t setting = 0; setting < RING_SETTING_COUNT; setting++) {
		message.change = (struct change){.id = UINT64_C(1) << 32 | setting, .kind = CHANGE_SET, .setting = setting,
						 .value = standard.value[setting], .at_round = 10};
		pass(&message, &got);
		assert_true(got.change.id == message.change.id);
		assert_int_equal(got.change.kind, CHANGE_SET);
		assert_int_equal(got.change.setting, setting);
		assert_true(got.change.value == standard.value[setting]);
		assert_true(got.change.at_round == 10);
	}
	for (int kind = CHANGE_PAUSE; kind < CHANGE_KIND_END; kind++) {
		message.change = (struct change){.id = (uint64_t)MEMBER_COUNT_MAX << 32 | UINT32_MAX, .kind = (enum change_kind)kind};
		pass(&message, &got);
		assert_int_equal(got.change.kind, kind);
	}
}

/* ---- The begin of a view ---- */

/* Each field another number, the largest there are. */
static struct standing standing_full(void)
{
	struct standing standing = {
		.origin = MEMBER_COUNT_MAX - 1, .since = CODEC_NUMBER_END - 1, .ready_in = UINT64_MAX, .round = CODEC_NUMBER_END - 2,
		.settings = ring_settings_standard(), .next_settings = ring_settings_standard(), .pause_round = CODEC_NUMBER_END - 3,
		.resume_round = CODEC_NUMBER_END - 4, .checkpoint_round = CODEC_NUMBER_END - 5, .taken_round = CODEC_NUMBER_END - 6,
		.taken = UINT64_MAX - 1, .is_new = true, .is_outdated = true, .has_offered = true, .is_final = true, .gradients = true,
		.aligns = true, .has_agreed = true, .next_gradients = true, .next_aligns = true, .finishing = true, .finished = true};
	standing.next_settings.value[SYNC_INTERVAL] = 77;
	for (uint32_t id = 0; id < RING_SETTING_COUNT; id++) {
		standing.setting_round[id] = CODEC_NUMBER_END - 10 - id;
		standing.next_setting_round[id] = CODEC_NUMBER_END - 100 - id;
	}
	return standing;
}

static void standing_compare(const struct standing *a, const struct standing *b)
{
	assert_int_equal(a->origin, b->origin);
	assert_true(a->since == b->since);
	assert_true(a->ready_in == b->ready_in);
	assert_true(a->round == b->round);
	assert_memory_equal(&a->settings, &b->settings, sizeof a->settings);
	assert_memory_equal(a->setting_round, b->setting_round, sizeof a->setting_round);
	assert_true(a->pause_round == b->pause_round);
	assert_true(a->resume_round == b->resume_round);
	assert_true(a->checkpoint_round == b->checkpoint_round);
	assert_true(a->taken_round == b->taken_round);
	assert_true(a->taken == b->taken);
	assert_int_equal(a->is_new, b->is_new);
	assert_int_equal(a->is_outdated, b->is_outdated);
	assert_int_equal(a->has_offered, b->has_offered);
	assert_int_equal(a->is_final, b->is_final);
	assert_int_equal(a->gradients, b->gradients);
	assert_int_equal(a->aligns, b->aligns);
	assert_int_equal(a->has_agreed, b->has_agreed);
	assert_int_equal(a->next_gradients, b->next_gradients);
	assert_int_equal(a->next_aligns, b->next_aligns);
	assert_int_equal(a->finishing, b->finishing);
	assert_int_equal(a->finished, b->finished);
	if (!a->has_agreed)
		return;
	assert_memory_equal(&a->next_settings, &b->next_settings, sizeof a->next_settings);
	assert_memory_equal(a->next_setting_round, b->next_setting_round, sizeof a->next_setting_round);
}

/* The largest there is has room in its frame. */
static void largest_standing_reads_back(void **state)
{
	(void)state;
	const struct standing standing = standing_full();
	struct message message = message_of(MESSAGE_STANDING), got;
	message.from = MEMBER_COUNT_MAX - 1;
	message.view = message.sequence = CODEC_NUMBER_END - 1;
	message.standing = &standing;
	assert_true(pass(&message, &got) <= CODEC_STANDING_MAX);
	standing_compare(got.standing, &standing);
}

/* One flag at a time, so that none stands for another. */
static void each_flag_of_a_standing_reads_back(void **state)
{
	(void)state;
	static const size_t flags[] = {
		offsetof(struct standing, is_new), offsetof(struct standing, is_outdated), offsetof(struct standing, has_offered),
		offsetof(struct standing, is_final), offsetof(struct standing, gradients), offsetof(struct standing, aligns),
		offsetof(struct standing, has_agreed), offsetof(struct standing, next_gradients), offsetof(struct standing, next_aligns),
		offsetof(struct standing, finishing), offsetof(struct standing, finished)};
	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
		struct standing standing = {.settings = ring_settings_standard(), .next_settings = ring_settings_standard()};
		struct message message = message_of(MESSAGE_STANDING), got;
		((bool *)&standing)[flags[i]] = true;
		message.standing = &standing;
		pass(&message, &got);
		standing_compare(got.standing, &standing);
	}
}

static void holding_reads_back(void **state)
{
	(void)state;
	const struct holding holdings[] = {
		{.origin = 3, .layer_index = 2, .number = 1, .since = 4, .round = 5, .hash = UINT64_MAX, .is_rolled_back = true},
		{.origin = MEMBER_COUNT_MAX - 1, .layer_index = LAYER_COUNT_MAX - 1, .number = CODEC_NUMBER_END - 1, .is_nothing = true},
		{.number = 1, .hash = 7}, /* that of a run in which no round is complete */
	};
	for (size_t i = 0; i < sizeof holdings / sizeof holdings[0]; i++) {
		struct message message = message_of(MESSAGE_HOLDING), got;
		message.holding = holdings[i];
		assert_true(pass(&message, &got) <= CODEC_SMALL_MAX);
		assert_int_equal(got.holding.origin, holdings[i].origin);
		assert_int_equal(got.holding.layer_index, holdings[i].layer_index);
		assert_true(got.holding.number == holdings[i].number);
		assert_true(got.holding.since == holdings[i].since);
		assert_true(got.holding.round == holdings[i].round);
		assert_true(got.holding.hash == holdings[i].hash);
		assert_int_equal(got.holding.is_nothing, holdings[i].is_nothing);
		assert_int_equal(got.holding.is_rolled_back, holdings[i].is_rolled_back);
	}
}

/* Of a layer that no round has changed yet, too. */
static void chunk_of_what_is_held_reads_back(void **state)
{
	(void)state;
	struct message message = chunk_message(16), got;
	message.chunk.phase = PHASE_HEAL;
	message.chunk.round = 0;
	message.chunk.shard = HEAL_MOMENTUM;
	message.chunk.square_norm = 0;
	pass(&message, &got);
	assert_int_equal(got.chunk.phase, PHASE_HEAL);
	assert_true(got.chunk.round == 0);
	assert_int_equal(got.chunk.shard, HEAL_MOMENTUM);
}

static void encode_refuses_a_buffer_that_is_one_byte_short(void **state)
{
	(void)state;
	struct message message = message_of(MESSAGE_RECORD);
	message.record = record_good();
	size_t bytes, same;
	assert_int_equal(codec_encode(codec, &message, frame, CODEC_SMALL_MAX, &bytes), 0);
	assert_int_equal(codec_encode(codec, &message, frame, bytes - 1, &same), EDIT_ERROR_FULL);
	assert_int_equal(codec_encode(codec, &message, frame, bytes, &same), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_reads_back),
		cmocka_unit_test(largest_hello_reads_back),
		cmocka_unit_test(refuse_reads_back),
		cmocka_unit_test(heartbeat_reads_back),
		cmocka_unit_test(scalar_reads_back_to_the_bit),
		cmocka_unit_test(roll_reads_back),
		cmocka_unit_test(record_reads_back_to_the_bit),
		cmocka_unit_test(random_records_read_back_to_the_bit),
		cmocka_unit_test(chunk_reads_back_with_its_payload_in_place),
		cmocka_unit_test(confirm_reads_back),
		cmocka_unit_test(change_of_every_setting_reads_back),
		cmocka_unit_test(largest_standing_reads_back),
		cmocka_unit_test(each_flag_of_a_standing_reads_back),
		cmocka_unit_test(holding_reads_back),
		cmocka_unit_test(chunk_of_what_is_held_reads_back),
		cmocka_unit_test(encode_refuses_a_buffer_that_is_one_byte_short),
	};
	return cmocka_run_group_tests(tests, codecs_make, codecs_free);
}

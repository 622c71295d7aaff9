/* Writes the corpus anew: FOLDER/TARGET/NAME, from real messages and from crafted bytes. `make corpus` runs it when a format has
 * changed. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/decree.h"
#include "proto/codec.h"
#include "proto/control.pb-c.h"
#include "proto/control_codec.h"
#include "proto/safetensors.h"
#include "proto/segment.h"

static const char *folder;

static void file_write(const char *target, const char *name, const void *bytes, size_t size)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", folder, target);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
	FILE *file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
		perror(path);
		exit(1);
	}
}

static void frame_write(const char *name, const struct message *message)
{
	static unsigned char frame[CODEC_FRAME_MAX];
	static struct codec *codec;
	size_t size;
	codec = codec ? codec : codec_init(aligned_alloc(16, codec_size()));
	CHECK(codec_encode(codec, message, frame, sizeof(frame), &size) == 0);
	file_write("codec", name, frame, size);
}

static void message_write(const char *name, struct message message)
{
	message.from = 1;
	message.incarnation = 0x1234567890abcdef;
	message.receiver = 0xfedcba0987654321;
	message.view = 1;
	message.sequence = 300;
	frame_write(name, &message);
}

static void decrees_write(void)
{
	static const char *const names[DECREE_KIND_END] = {
		[DECREE_PREPARE] = "decree-prepare", [DECREE_PROMISE] = "decree-promise", [DECREE_DECIDED] = "decree-decided",
		[DECREE_JOIN] = "decree-join", [DECREE_REFUSED] = "decree-refused"};
	static struct seat seats[3];
	CHECK(seat_make("node-a", "tcp://10.0.0.1:4711", 11, 21, &seats[0]) == 0);
	CHECK(seat_make("node-b", "tcp://10.0.0.2:4711", 12, 22, &seats[1]) == 0);
	CHECK(seat_make("node-c", "tcp://[fd00::3]:4711", 0, 0, &seats[2]) == 0);
	for (int kind = 0; kind < DECREE_KIND_END; kind++) {
		struct decree decree = {.kind = (enum decree_kind)kind, .sender = seats[0].name, .incarnation = 11, .disk = 21,
					.receiver = seats[1].name, .view = 4, .ballot = ballot_make(3, 0)};
		struct message message = {.kind = MESSAGE_DECREE, .incarnation = 0x1234567890abcdef, .decree = &decree};
		if (kind == DECREE_PROMISE || kind == DECREE_DECIDED)
			decree.roster = (struct roster){.number = 5, .count = 3, .holder = 1, .fanout = 3, .seats = seats};
		decree.view += kind == DECREE_DECIDED;
		decree.accepted_ballot = kind == DECREE_PROMISE ? ballot_make(2, 1) : 0;
		decree.doubt_count = kind == DECREE_PROMISE ? 2 : 0;
		decree.relay = kind == DECREE_PROMISE ? seats[2].name : NULL;
		decree.address = kind == DECREE_JOIN ? seats[0].address : NULL;
		decree.refusal = kind == DECREE_REFUSED ? DECREE_REFUSAL_FULL : 0;
		if (names[kind])
			frame_write(names[kind], &message);
	}
}

static void messages_write(void)
{
	static const struct fact facts[] = {{"hidden_size", "128"}, {"layer 0", "embedding 32768"}, {"run", "demo"}};
	static const float payload[16];
	struct standing standing = {.origin = 1, .since = 4, .ready_in = 0x16, .round = 6, .settings = ring_settings_standard(),
				    .next_settings = ring_settings_standard(), .pause_round = 2, .resume_round = 2,
				    .checkpoint_round = 5, .taken_round = 7, .taken = 77, .has_offered = true, .has_agreed = true};
	message_write("hello", (struct message){.kind = MESSAGE_HELLO,
						.hello = {.name = "node-a", .facts = facts, .fact_count = 3}});
	message_write("refuse", (struct message){.kind = MESSAGE_REFUSE, .refuse = {.reason = REFUSAL_FACT, .fact_index = 2}});
	message_write("heartbeat",
		      (struct message){.kind = MESSAGE_HEARTBEAT,
				       .heartbeat = {.round = 5, .received = 900, .collectives = 40, .suspect_count = 2,
						     .suspects = {1, 2}}});
	message_write("roll", (struct message){.kind = MESSAGE_ROLL, .roll_origin = 3});
	message_write("record", (struct message){.kind = MESSAGE_RECORD,
						 .record = {.round = 6, .layer_index = 2, .origin = 1,
							    .verdict = VERDICT_OUTLIER, .norm = 12.5, .z = 4, .mean = 3, .sd = 0.5,
							    .steps = 128, .tokens = 131072, .loss = 2.5, .interval_us = 8000000,
							    .exposed_us = 1200, .change = 77, .final = true}});
	message_write("scalar", (struct message){.kind = MESSAGE_SCALAR,
						 .scalar = {.kind = SCALAR_NORM, .layer_index = 2, .origin = 1, .number = 6,
							    .value = 12.5, .word = 77, .verdict = VERDICT_ACCEPTED, .final = true}});
	message_write("chunk", (struct message){.kind = MESSAGE_CHUNK, .payload = payload, .payload_bytes = sizeof(payload),
						.chunk = {.round = 6, .layer_index = 2, .phase = PHASE_GATHER, .shard = 1,
							  .offset = 65536, .count = 16, .square_norm = 0.25}});
	message_write("heal", (struct message){.kind = MESSAGE_CHUNK, .payload = payload, .payload_bytes = sizeof(payload),
					       .chunk = {.round = 6, .layer_index = 2, .phase = PHASE_HEAL, .shard = HEAL_MOMENTUM,
							 .offset = 65536, .count = 16}});
	standing.next_settings.value[SYNC_INTERVAL] = 20;
	message_write("standing", (struct message){.kind = MESSAGE_STANDING, .standing = &standing});
	message_write("holding", (struct message){.kind = MESSAGE_HOLDING,
						  .holding = {.origin = 1, .layer_index = 2, .number = 3, .since = 4, .round = 6,
							      .hash = 99, .is_rolled_back = true}});
	message_write("holding-nothing", (struct message){.kind = MESSAGE_HOLDING,
							  .holding = {.origin = 1, .layer_index = 2, .number = 1, .is_nothing = true}});
	message_write("confirm", (struct message){.kind = MESSAGE_CONFIRM,
						  .confirm = {.round = 6, .layer_index = 2, .origin = 1, .hash = 99}});
	message_write("change", (struct message){.kind = MESSAGE_CHANGE,
						 .change = {.id = UINT64_C(2) << 32 | 1, .kind = CHANGE_SET,
							    .setting = SYNC_INTERVAL, .value = 20, .at_round = 10}});
}

/* Bytes that a friend would never send. */
static void crafted_write(void)
{
	static const struct {
		const char *name, *bytes;
		size_t size;
	} crafted[] = {
		{"empty", "", 0},
		{"version-2", "\x08\x02\x10\x01\x19\x01\x00\x00\x00\x00\x00\x00\x00", 13},
		{"length-4-gib", "\x52\xff\xff\xff\xff\x0f", 6},
		{"length-2-64", "\x52\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
		{"inner-length", "\x52\x05\x12\xff\xff\xff\x7f", 7},
		{"long-number", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 13},
		{"groups", "\x0b\x13\x1b\x1c\x14\x0c", 6},
		{"field-0", "\x00\x01", 2},
		{"two-bodies", "\x08\x01\x10\x01\x19\x01\x00\x00\x00\x00\x00\x00\x00\x52\x03\x0a\x01\x61\x6a\x02\x08\x01\x52\x03\x0a\x01\x62",
		 27},
		{"escape-in-text", "\x08\x01\x52\x0a\x12\x08\x0a\x03\x1b[J\x12\x01x", 14},
	};
	for (size_t i = 0; i < sizeof(crafted) / sizeof(crafted[0]); i++) {
		file_write("codec", crafted[i].name, crafted[i].bytes, crafted[i].size);
		file_write("control", crafted[i].name, crafted[i].bytes, crafted[i].size);
	}
	char repeated[2000], nested[2000];
	for (size_t i = 0; i < sizeof(repeated); i += 2)
		memcpy(repeated + i, i < 4 ? "\x08\x01" : "\x78\x01", 2);
	for (size_t i = 0; i < sizeof(nested); i += 4) {
		size_t rest = sizeof(nested) - i - 4;
		memcpy(nested + i, (const char[4]){0x52, (char)(0x80 | (rest & 0x7f)), (char)(0x80 | (rest >> 7 & 0x7f)), 0}, 4);
	}
	file_write("codec", "repeated", repeated, sizeof(repeated));
	file_write("codec", "nested", nested, sizeof(nested));
	file_write("control", "repeated", repeated, sizeof(repeated));
}

static void request_write(enum command command, const char *name)
{
	struct control_request request = {.command = command, .setting = "sync.interval", .value = "20", .at_round = 7};
	if (command == COMMAND_FORCE)
		request = (struct control_request){.command = command, .value = "node-a node-c", .force = true};
	unsigned char frame[CONTROL_REQUEST_MAX];
	size_t size;
	CHECK(control_request_encode(&request, frame, sizeof(frame), &size) == 0);
	file_write("control", name, frame, size);
}

/* A reply, of which clients must make no more than it is. */
static void view_write(void)
{
	Edit__Control__Reply reply = EDIT__CONTROL__REPLY__INIT;
	Edit__Control__View view = EDIT__CONTROL__VIEW__INIT;
	Edit__Control__ViewMember member = EDIT__CONTROL__VIEW_MEMBER__INIT, *members[2] = {&member, &member};
	char *joiner = (char *)"node-c";
	unsigned char frame[256];
	member.name = (char *)"node-a";
	member.state = (char *)"live";
	member.holder = true;
	view.number = 3;
	view.members = members;
	view.n_members = 2;
	view.joiners = &joiner;
	view.n_joiners = 1;
	reply.version = CONTROL_VERSION;
	reply.body_case = EDIT__CONTROL__REPLY__BODY_VIEW;
	reply.view = &view;
	size_t size = edit__control__reply__get_packed_size(&reply);
	CHECK(size <= sizeof(frame));
	edit__control__reply__pack(&reply, frame);
	file_write("control", "view-reply", frame, size);
	file_write("control", "view-reply-cut", frame, size - 3);
}

static void description_write(void)
{
	static const uint64_t dims[2] = {16, 8}, none[1] = {0};
	static const uint32_t many = UINT32_MAX;
	struct description description;
	description_init(&description);
	CHECK(description_add_layer(&description, "embedding", NULL) == 0);
	CHECK(description_add_tensor(&description, "model.embed_tokens.weight", dims, 2, NULL) == 0);
	CHECK(description_add_layer(&description, "head", NULL) == 0);
	CHECK(description_add_tensor(&description, "scalar", NULL, 0, NULL) == 0);
	CHECK(description_add_tensor(&description, "none", none, 1, NULL) == 0);
	CHECK(description_add_fact(&description, "hidden_size", "8", NULL) == 0);
	CHECK(description_set_config(&description, "{\"hidden_size\": 8}\n", NULL) == 0);
	CHECK(description_set_inner(&description, 2, NULL) == 0);
	char bytes[1024];
	size_t size = description_bytes(&description);
	CHECK(size <= sizeof(bytes));
	description_encode(&description, bytes);
	file_write("description", "llama", bytes, size);
	file_write("description", "cut", bytes, size / 2);
	memcpy(bytes + 16, &many, sizeof(many)); /* layers */
	file_write("description", "many-layers", bytes, size);
	description_fini(&description);
}

/* Header and layer table of a segment as target_segment lays them: 192 bytes each. */
static void segment_write(void)
{
	static const uint64_t dims[1] = {100};
	struct description description;
	struct segment segment;
	char path[4096], bytes[384];
	description_init(&description);
	for (int i = 0; i < 3; i++) {
		const char name[2] = {(char)('a' + i), 0};
		CHECK(description_add_layer(&description, name, NULL) == 0);
		CHECK(description_add_tensor(&description, name, dims, 1, NULL) == 0);
	}
	CHECK(description_set_inner(&description, 2, NULL) == 0);
	snprintf(path, sizeof(path), "%s/segment.made", folder);
	CHECK(segment_create(path, &description, 1, &(struct segment_seat){.rank = 0, .count = 1, .shards = 1}, &segment, NULL) == 0);
	memcpy(bytes, segment.mapping.base, 192);
	memcpy(bytes + 192, (char *)segment.mapping.base + SEGMENT_PAGE, 192);
	file_write("segment", "good", bytes, sizeof(bytes));
	bytes[12] = 2; /* layer_count */
	file_write("segment", "fewer-layers", bytes, sizeof(bytes));
	bytes[12] = 3;
	memset(bytes + 192 + 32, 0xff, 8); /* size of the first layer */
	file_write("segment", "huge-layer", bytes, sizeof(bytes));
	segment_close(&segment);
	unlink(path);
	description_fini(&description);
}

/* Files that a worker reads: good ones, from which the fuzzer makes bad ones. */
static void files_write(void)
{
	static const uint64_t dims[] = {2, 3};
	static const float values[6] = {1, -2, 0.5f, 4, 5, 6};
	static const uint64_t number = 7;
	const struct safetensors_tensor tensors[] = {
		{.name = "model.norm.weight", .type = SAFETENSORS_F32, .dims = dims, .rank = 2, .data = values},
		{.name = "round", .type = SAFETENSORS_U64, .data = &number},
	};
	struct safetensors_writer writer;
	char path[4096];
	file_write("weights", "empty", "", 0);
	snprintf(path, sizeof(path), "%s/weights/ours", folder);
	CHECK(safetensors_write(&writer, path, tensors, 2) == 0);
	static const char halves[] = "\x6b\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,6]},"
				     "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[6,8]}}01234567";
	file_write("weights", "halves", halves, sizeof(halves) - 1);

	static const char config[] =
		"{\"model_type\":\"llama\",\"vocab_size\":256,\"hidden_size\":24,\"intermediate_size\":40,"
		"\"num_hidden_layers\":3,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":4,"
		"\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,\"rope_scaling\":null,"
		"\"rope_parameters\":{\"rope_type\":\"default\"},\"attention_bias\":false,\"attention_dropout\":0,"
		"\"tie_word_embeddings\":true,\"max_position_embeddings\":64}";
	file_write("config", "good", config, sizeof(config) - 1);

	uint32_t llmc[1 + 256 + 10] = {4 | 4 << 8 | 3 << 16, 20240520, 1, 20};
	file_write("tokens", "llmc", llmc, sizeof(llmc));
	file_write("tokens", "text", "\1\1\3\0some text of bytes", 22);
	file_write("tokens", "u16", "\2\1\3\20\0\0\1\0\2\0\3\0\4\0\5\0\6\0\7\0", 20);
	file_write("tokens", "u32", "\3\1\1\0\0\0\0\0\1\0\0\0\2\0\0\0", 16);
}

/* Texts that a daemon reads in a checkpoint, of one layer. */
static void checkpoint_write(void)
{
	static const char manifest[] =
		"{\"format\": 1, \"run\": \"run\", \"member\": \"a\", \"view\": 1, \"round\": 4, \"column\": 1, \"shards\": 2, \"files\": "
		"{\"piece-2-of-2.safetensors\": {\"bytes\": 168, \"xxh3\": \"00e5e37fa4bfb72d\"}, \"state.safetensors\": {\"bytes\": 5000, "
		"\"xxh3\": \"0123456789abcdef\"}}, \"layers\": [{\"name\": \"block 0\", \"elements\": 4, \"xxh3\": \"00e5e37fa4bfb72d\"}]}";
	static const char state[] =
		"{\"format\":1,\"run\":\"run\",\"member\":\"a\",\"round\":4,\"since\":1,\"step\":20,\"tokens\":2000,\"wait_us\":7,\"lead\":0,\"inner_step\":0,"
		"\"worker_restarts\":0,\"sync_us\":9,\"has_inner\":true,\"finished\":false,\"is_averaging\":false,\"settings\":"
		"{\"sync.interval\":5.0,\"outer.lr\":0.80000000000000004},\"layers\":[{\"elements\":4,\"xxh3\":\"00e5e37fa4bfb72d\",\"count\":4,"
		"\"mean\":0.25,\"var\":0.001,\"streak\":0,\"interval\":5.0}]}   ";
	file_write("manifest", "good", manifest, sizeof(manifest) - 1);
	file_write("snapshot", "good", state, sizeof(state) - 1);
}

int main(int count, char **words)
{
	if (count != 2) {
		fprintf(stderr, "usage: corpus FOLDER\n");
		return 2;
	}
	folder = words[1];
	mkdir(folder, 0777);
	messages_write();
	decrees_write();
	crafted_write();
#define X(id, number, name, right, function, help) request_write(id, name);
	COMMANDS(X)
#undef X
	view_write();
	description_write();
	segment_write();
	files_write();
	checkpoint_write();
	return 0;
}

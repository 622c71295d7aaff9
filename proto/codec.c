/* struct message <-> peer.proto. Writing builds the generated structs on the stack (a hello's facts in the codec's
 * block); reading unpacks into the block and checks field by field. */

#include <string.h>

#include "core/layer.h"
#include "proto/codec.h"
#include "proto/codec_views.h"
#include "proto/setting.h"

enum {
	/* What a hello of CODEC_FRAME_MAX bytes can need: its texts, protobuf-c's structs and lists, our own list of
	 * facts. A decree needs less. */
	BLOCK_BYTES = 6 << 20
};

struct codec {
	_Alignas(16) struct arena arena;
};

_Static_assert(sizeof(struct codec) % 16 == 0, "the block begins behind it");

size_t codec_size(void)
{
	return sizeof(struct codec) + BLOCK_BYTES;
}

struct codec *codec_init(void *block)
{
	CHECK((uintptr_t)block % 16 == 0);
	struct codec *codec = block;
	codec->arena = (struct arena){.base = (unsigned char *)(codec + 1), .size_bytes = BLOCK_BYTES};
	return codec;
}

/* ---- Writing ---- */

/* The generated structs of all kinds but hello's facts. */
union body {
	Edit__Peer__Hello hello;
	Edit__Peer__Refuse refuse;
	Edit__Peer__Heartbeat heartbeat;
	Edit__Peer__Roll roll;
	Edit__Peer__Record record;
	Edit__Peer__Chunk chunk;
	Edit__Peer__Confirm confirm;
	Edit__Peer__Change change;
	Edit__Peer__Scalar scalar;
	Edit__Peer__Standing standing;
	Edit__Peer__Holding holding;
	struct decree_wire decree;
};

static void hello_fill(struct arena *arena, const struct hello *hello, Edit__Peer__Hello *wire)
{
	CHECK(hello->fact_count <= FACT_COUNT_MAX);
	edit__peer__hello__init(wire);
	Edit__Peer__Fact **list = arena_take(arena, hello->fact_count * sizeof(*list));
	Edit__Peer__Fact *facts = arena_take(arena, hello->fact_count * sizeof(*facts));
	CHECK(list);
	CHECK(facts);
	for (size_t i = 0; i < hello->fact_count; i++) {
		edit__peer__fact__init(&facts[i]);
		facts[i].key = (char *)hello->facts[i].key;
		facts[i].value = (char *)hello->facts[i].value;
		list[i] = &facts[i];
	}
	wire->name = (char *)hello->name;
	wire->facts = list;
	wire->n_facts = hello->fact_count;
}

static void heartbeat_fill(const struct heartbeat *heartbeat, Edit__Peer__Heartbeat *wire)
{
	CHECK(heartbeat->suspect_count <= SUSPECT_COUNT_MAX);
	edit__peer__heartbeat__init(wire);
	wire->round = heartbeat->round;
	wire->received = heartbeat->received;
	wire->resend = heartbeat->resend;
	wire->waiting_for_worker = heartbeat->waiting_for_worker;
	wire->collectives = heartbeat->collectives;
	wire->suspects = (uint32_t *)heartbeat->suspects;
	wire->n_suspects = heartbeat->suspect_count;
}

static void record_fill(const struct record *record, Edit__Peer__Record *wire)
{
	edit__peer__record__init(wire);
	wire->round = record->round;
	wire->layer_index = record->layer_index;
	wire->origin = record->origin;
	wire->verdict = record->verdict;
	wire->norm = record->norm;
	wire->z = record->z;
	wire->mean = record->mean;
	wire->sd = record->sd;
	wire->step = record->step;
	wire->steps = record->steps;
	wire->tokens = record->tokens;
	wire->loss = record->loss;
	wire->interval_us = record->interval_us;
	wire->exposed_us = record->exposed_us;
	wire->change = record->change;
	wire->final = record->final;
	wire->realign = record->realign;
}

static void chunk_fill(const struct chunk *chunk, Edit__Peer__Chunk *wire)
{
	edit__peer__chunk__init(wire);
	wire->round = chunk->round;
	wire->layer_index = chunk->layer_index;
	wire->phase = chunk->phase;
	wire->shard = chunk->shard;
	wire->offset = chunk->offset;
	wire->count = chunk->count;
	wire->square_norm = chunk->square_norm;
}

static void confirm_fill(const struct confirm *confirm, Edit__Peer__Confirm *wire)
{
	edit__peer__confirm__init(wire);
	wire->round = confirm->round;
	wire->layer_index = confirm->layer_index;
	wire->origin = confirm->origin;
	wire->hash = confirm->hash;
}

static void change_fill(const struct change *change, Edit__Peer__Change *wire)
{
	edit__peer__change__init(wire);
	wire->id = change->id;
	wire->kind = change->kind;
	wire->setting = change->setting;
	wire->value = change->value;
	wire->at_round = change->at_round;
}

static void scalar_fill(const struct scalar *scalar, Edit__Peer__Scalar *wire)
{
	edit__peer__scalar__init(wire);
	wire->kind = scalar->kind;
	wire->layer_index = scalar->layer_index;
	wire->origin = scalar->origin;
	wire->number = scalar->number;
	wire->value = scalar->value;
	wire->word = scalar->word;
	wire->verdict = scalar->verdict;
	wire->final = scalar->final;
	wire->realign = scalar->realign;
}

/* Fills body and hangs it into wire. */
static void message_fill(struct arena *arena, const struct message *message, union body *body, Edit__Peer__Message *wire)
{
	/* Every member of wire's own union is a pointer to one of body's. */
	wire->hello = &body->hello;
	switch (message->kind) {
	case MESSAGE_HELLO:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_HELLO;
		hello_fill(arena, &message->hello, &body->hello);
		return;
	case MESSAGE_REFUSE:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_REFUSE;
		edit__peer__refuse__init(&body->refuse);
		body->refuse.reason = message->refuse.reason;
		body->refuse.fact_index = message->refuse.fact_index;
		return;
	case MESSAGE_HEARTBEAT:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_HEARTBEAT;
		heartbeat_fill(&message->heartbeat, &body->heartbeat);
		return;
	case MESSAGE_ROLL:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_ROLL;
		edit__peer__roll__init(&body->roll);
		body->roll.origin = message->roll_origin;
		return;
	case MESSAGE_RECORD:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_RECORD;
		record_fill(&message->record, &body->record);
		return;
	case MESSAGE_CHUNK:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_CHUNK;
		chunk_fill(&message->chunk, &body->chunk);
		return;
	case MESSAGE_CONFIRM:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_CONFIRM;
		confirm_fill(&message->confirm, &body->confirm);
		return;
	case MESSAGE_CHANGE:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_CHANGE;
		change_fill(&message->change, &body->change);
		return;
	case MESSAGE_SCALAR:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_SCALAR;
		scalar_fill(&message->scalar, &body->scalar);
		return;
	case MESSAGE_STANDING:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_STANDING;
		standing_fill(message->standing, &body->standing);
		return;
	case MESSAGE_HOLDING:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_HOLDING;
		holding_fill(&message->holding, &body->holding);
		return;
	case MESSAGE_DECREE:
		wire->body_case = EDIT__PEER__MESSAGE__BODY_DECREE;
		decree_fill(arena, message->decree, &body->decree);
		return;
	case MESSAGE_KIND_END: break;
	}
	CHECK(message->kind < MESSAGE_KIND_END);
}

/* Bytes that frame 1 of a message may have. */
static size_t size_limit(enum message_kind kind)
{
	switch (kind) {
	case MESSAGE_HELLO: return CODEC_FRAME_MAX;
	case MESSAGE_DECREE: return CODEC_DECREE_MAX;
	case MESSAGE_STANDING: return CODEC_STANDING_MAX;
	default: return CODEC_SMALL_MAX;
	}
}

int codec_encode(struct codec *codec, const struct message *message, void *buffer, size_t buffer_bytes, size_t *ret_bytes)
{
	Edit__Peer__Message wire = EDIT__PEER__MESSAGE__INIT;
	union body body;
	codec->arena.used_bytes = 0;
	wire.version = PROTOCOL_VERSION;
	wire.from = message->from;
	wire.incarnation = message->incarnation;
	wire.receiver = message->receiver;
	wire.view = message->view;
	wire.sequence = message->sequence;
	message_fill(&codec->arena, message, &body, &wire);
	size_t limit = size_limit(message->kind);
	size_t size_bytes = edit__peer__message__get_packed_size(&wire);
	if (size_bytes > size_min(buffer_bytes, limit))
		return EDIT_ERROR_FULL;
	*ret_bytes = edit__peer__message__pack(&wire, buffer);
	return 0;
}

/* ---- Reading: each take_... returns NULL, or the name of the field that is wrong ---- */

static const char *take_hello(struct arena *arena, const Edit__Peer__Hello *wire, struct hello *hello)
{
	DEMAND(text_is_name(wire->name), "hello.name");
	DEMAND(wire->n_facts <= FACT_COUNT_MAX, "hello.facts");
	struct fact *facts = arena_take(arena, wire->n_facts * sizeof(*facts));
	DEMAND(facts, "hello.facts");
	for (size_t i = 0; i < wire->n_facts; i++) {
		facts[i] = (struct fact){.key = wire->facts[i]->key, .value = wire->facts[i]->value};
		DEMAND(facts[i].key[0] && strlen(facts[i].key) <= FACT_TEXT_MAX, "hello.facts.key");
		DEMAND(strlen(facts[i].value) <= FACT_TEXT_MAX, "hello.facts.value");
	}
	*hello = (struct hello){.name = wire->name, .facts = facts, .fact_count = wire->n_facts};
	return NULL;
}

static const char *take_refuse(const Edit__Peer__Refuse *wire, struct refuse *refuse)
{
	DEMAND(wire->reason >= REFUSAL_DUPLICATE && wire->reason < REFUSAL_END, "refuse.reason");
	DEMAND(wire->fact_index <= FACT_COUNT_MAX, "refuse.fact_index");
	*refuse = (struct refuse){.reason = (enum refusal)wire->reason, .fact_index = wire->fact_index};
	return NULL;
}

static const char *take_heartbeat(const Edit__Peer__Heartbeat *wire, struct heartbeat *heartbeat)
{
	DEMAND(is_number(wire->round), "heartbeat.round");
	DEMAND(is_number(wire->received), "heartbeat.received");
	DEMAND(is_number(wire->collectives), "heartbeat.collectives");
	DEMAND(wire->n_suspects <= SUSPECT_COUNT_MAX, "heartbeat.suspects");
	*heartbeat = (struct heartbeat){.round = wire->round,
					.received = wire->received,
					.resend = wire->resend,
					.waiting_for_worker = wire->waiting_for_worker,
					.collectives = wire->collectives,
					.suspect_count = (uint32_t)wire->n_suspects};
	for (size_t i = 0; i < wire->n_suspects; i++) {
		DEMAND(wire->suspects[i] < MEMBER_COUNT_MAX, "heartbeat.suspects");
		heartbeat->suspects[i] = wire->suspects[i];
	}
	return NULL;
}

static const char *take_record(const Edit__Peer__Record *wire, struct record *record)
{
	DEMAND(wire->round >= 1 && is_number(wire->round), "record.round");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "record.layer_index");
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "record.origin");
	DEMAND(wire->verdict < VERDICT_COUNT, "record.verdict");
	/* A norm that is none goes with its verdict only: with another one it would get a weight. */
	DEMAND(is_amount(wire->norm) || wire->verdict == VERDICT_NONFINITE, "record.norm");
	DEMAND(!isnan(wire->z), "record.z");
	DEMAND(is_amount(wire->mean), "record.mean");
	DEMAND(is_amount(wire->sd), "record.sd");
	DEMAND(is_number(wire->step), "record.step");
	DEMAND(is_number(wire->steps), "record.steps");
	DEMAND(is_number(wire->tokens), "record.tokens");
	DEMAND(is_number(wire->interval_us), "record.interval_us");
	DEMAND(is_number(wire->exposed_us), "record.exposed_us");
	*record = (struct record){.round = wire->round,
				  .layer_index = wire->layer_index,
				  .origin = wire->origin,
				  .verdict = (enum verdict)wire->verdict,
				  .norm = wire->norm,
				  .z = wire->z,
				  .mean = wire->mean,
				  .sd = wire->sd,
				  .step = wire->step,
				  .steps = wire->steps,
				  .tokens = wire->tokens,
				  .loss = wire->loss,
				  .interval_us = wire->interval_us,
				  .exposed_us = wire->exposed_us,
				  .change = wire->change,
				  .final = wire->final,
				  .realign = wire->realign};
	return NULL;
}

static const char *take_chunk(const Edit__Peer__Chunk *wire, size_t payload_bytes, struct chunk *chunk)
{
	/* Of a layer that no round has changed yet a copy can be sent. */
	DEMAND((wire->round >= 1 || wire->phase == PHASE_HEAL) && is_number(wire->round), "chunk.round");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "chunk.layer_index");
	DEMAND(wire->phase >= PHASE_REDUCE && wire->phase < PHASE_END, "chunk.phase");
	DEMAND(wire->shard < (wire->phase == PHASE_HEAL ? HEAL_PART_COUNT : MEMBER_COUNT_MAX), "chunk.shard");
	DEMAND(is_number(wire->offset), "chunk.offset");
	DEMAND(payload_bytes <= CODEC_PAYLOAD_MAX, "chunk.payload");
	DEMAND(payload_bytes % sizeof(float) == 0 && wire->count == payload_bytes / sizeof(float), "chunk.count");
	/* NaN and infinity are meant: such a mean rolls the layer back. */
	DEMAND(!(wire->square_norm < 0), "chunk.square_norm");
	DEMAND(wire->phase == PHASE_GATHER || wire->square_norm == 0, "chunk.square_norm");
	*chunk = (struct chunk){.round = wire->round,
				.layer_index = wire->layer_index,
				.phase = (enum chunk_phase)wire->phase,
				.shard = wire->shard,
				.offset = wire->offset,
				.count = wire->count,
				.square_norm = wire->square_norm};
	return NULL;
}

static const char *take_confirm(const Edit__Peer__Confirm *wire, struct confirm *confirm)
{
	DEMAND(wire->round >= 1 && is_number(wire->round), "confirm.round");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "confirm.layer_index");
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "confirm.origin");
	*confirm = (struct confirm){
		.round = wire->round, .layer_index = wire->layer_index, .origin = wire->origin, .hash = wire->hash};
	return NULL;
}

static const char *take_change(const Edit__Peer__Change *wire, struct change *change)
{
	uint64_t origin = wire->id >> 32;
	DEMAND(origin >= 1 && origin <= MEMBER_COUNT_MAX, "change.id");
	DEMAND(wire->kind >= CHANGE_SET && wire->kind < CHANGE_KIND_END, "change.kind");
	DEMAND(wire->setting < RING_SETTING_COUNT, "change.setting");
	DEMAND(isfinite(wire->value), "change.value");
	DEMAND(wire->kind != CHANGE_SET || setting_holds(wire->setting, wire->value), "change.value");
	DEMAND(is_number(wire->at_round), "change.at_round");
	*change = (struct change){.id = wire->id,
				  .kind = (enum change_kind)wire->kind,
				  .setting = wire->setting,
				  .value = wire->value,
				  .at_round = wire->at_round};
	return NULL;
}

static const char *take_scalar(const Edit__Peer__Scalar *wire, struct scalar *scalar)
{
	DEMAND(wire->kind < SCALAR_KIND_COUNT, "scalar.kind");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "scalar.layer_index");
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "scalar.origin");
	DEMAND(wire->number >= 1 && is_number(wire->number), "scalar.number");
	/* NaN and infinity are meant: then the replica is left out. What a worker sums up in a step may be anything. */
	DEMAND(!(wire->value < 0) || wire->kind == SCALAR_STEP, "scalar.value");
	DEMAND(wire->verdict < VERDICT_COUNT, "scalar.verdict");
	*scalar = (struct scalar){.kind = (enum scalar_kind)wire->kind,
				  .layer_index = wire->layer_index,
				  .origin = wire->origin,
				  .number = wire->number,
				  .value = wire->value,
				  .word = wire->word,
				  .verdict = (enum verdict)wire->verdict,
				  .final = wire->final,
				  .realign = wire->realign};
	return NULL;
}

static const char *take_body(struct arena *arena, const Edit__Peer__Message *wire, struct message *message)
{
	switch (wire->body_case) {
	case EDIT__PEER__MESSAGE__BODY_HELLO:
		message->kind = MESSAGE_HELLO;
		return take_hello(arena, wire->hello, &message->hello);
	case EDIT__PEER__MESSAGE__BODY_REFUSE:
		message->kind = MESSAGE_REFUSE;
		return take_refuse(wire->refuse, &message->refuse);
	case EDIT__PEER__MESSAGE__BODY_HEARTBEAT:
		message->kind = MESSAGE_HEARTBEAT;
		return take_heartbeat(wire->heartbeat, &message->heartbeat);
	case EDIT__PEER__MESSAGE__BODY_ROLL:
		message->kind = MESSAGE_ROLL;
		message->roll_origin = wire->roll->origin;
		return wire->roll->origin < MEMBER_COUNT_MAX ? NULL : "roll.origin";
	case EDIT__PEER__MESSAGE__BODY_RECORD:
		message->kind = MESSAGE_RECORD;
		return take_record(wire->record, &message->record);
	case EDIT__PEER__MESSAGE__BODY_CHUNK:
		message->kind = MESSAGE_CHUNK;
		return take_chunk(wire->chunk, message->payload_bytes, &message->chunk);
	case EDIT__PEER__MESSAGE__BODY_CONFIRM:
		message->kind = MESSAGE_CONFIRM;
		return take_confirm(wire->confirm, &message->confirm);
	case EDIT__PEER__MESSAGE__BODY_CHANGE:
		message->kind = MESSAGE_CHANGE;
		return take_change(wire->change, &message->change);
	case EDIT__PEER__MESSAGE__BODY_SCALAR:
		message->kind = MESSAGE_SCALAR;
		return take_scalar(wire->scalar, &message->scalar);
	case EDIT__PEER__MESSAGE__BODY_STANDING:
		message->kind = MESSAGE_STANDING;
		return take_standing(arena, wire->standing, &message->standing);
	case EDIT__PEER__MESSAGE__BODY_HOLDING:
		message->kind = MESSAGE_HOLDING;
		return take_holding(wire->holding, &message->holding);
	case EDIT__PEER__MESSAGE__BODY_DECREE:
		message->kind = MESSAGE_DECREE;
		/* Not of a view: it goes by names. */
		DEMAND(wire->from == 0 && wire->receiver == 0 && wire->view == 0 && wire->sequence == 0, "decree header");
		return take_decree(arena, wire->decree, &message->decree);
	default: return "body";
	}
}

static const char *take_message(struct arena *arena, const Edit__Peer__Message *wire, size_t frame_bytes,
				struct message *message)
{
	DEMAND(wire->version != 0, "version"); /* an empty frame reads as a message of zeros */
	DEMAND(wire->from < MEMBER_COUNT_MAX, "from");
	DEMAND(wire->incarnation != 0, "incarnation");
	message->from = wire->from;
	message->incarnation = wire->incarnation;
	if (wire->version != PROTOCOL_VERSION) {
		message->kind = MESSAGE_REFUSE;
		message->refuse = (struct refuse){.reason = REFUSAL_VERSION};
		message->payload = NULL;
		message->payload_bytes = 0;
		return NULL;
	}
	DEMAND(is_number(wire->view), "view");
	DEMAND(is_number(wire->sequence), "sequence");
	message->receiver = wire->receiver;
	message->view = wire->view;
	message->sequence = wire->sequence;
	const char *wrong = take_body(arena, wire, message);
	if (wrong)
		return wrong;
	DEMAND(frame_bytes <= size_limit(message->kind), "frame size");
	DEMAND(message->kind == MESSAGE_CHUNK || message->payload_bytes == 0, "payload");
	if (message->kind != MESSAGE_CHUNK)
		message->payload = NULL;
	return NULL;
}

int codec_decode(struct codec *codec, const void *frame, size_t frame_bytes, const void *payload, size_t payload_bytes,
		 struct message *ret_message, const char **ret_what)
{
	const char *wrong = "frame size";
	codec->arena.used_bytes = 0;
	if (frame_bytes <= CODEC_FRAME_MAX) {
		const Edit__Peer__Message *wire = (const Edit__Peer__Message *)arena_unpack(
			&codec->arena, &edit__peer__message__descriptor, frame, frame_bytes);
		struct message message = {.payload = payload, .payload_bytes = payload_bytes};
		wrong = wire ? take_message(&codec->arena, wire, frame_bytes, &message) : "frame";
		if (!wrong) {
			*ret_message = message;
			return 0;
		}
	}
	if (ret_what)
		*ret_what = wrong;
	return EDIT_ERROR_MALFORMED;
}

/* The allocator behind every unpacking, and the check of texts by protobuf-c's own description of the message. */

#include <string.h>

#include "proto/codec_arena.h"
#include "proto/text.h"

void *arena_take(struct arena *arena, size_t size_bytes)
{
	size_t left_bytes = arena->size_bytes - arena->used_bytes;
	if (size_bytes > left_bytes)
		return NULL;
	void *memory = arena->base + arena->used_bytes;
	arena->used_bytes += size_min(left_bytes, (size_bytes + 15) / 16 * 16);
	return memory;
}

static void *arena_allocate(void *arena, size_t size_bytes)
{
	return arena_take(arena, size_bytes);
}

static void arena_free(void *arena, void *memory)
{
	(void)arena;
	(void)memory; /* all at once, by the owner of the block */
}

static bool texts_are_plain(const ProtobufCMessage *message);

/* The value at `at` of a field that holds text or a message. */
static bool value_is_plain(const ProtobufCFieldDescriptor *field, const void *at)
{
	const void *value = *(const void *const *)at;
	if (!value)
		return true;
	if (field->type == PROTOBUF_C_TYPE_STRING)
		return text_is_plain(value, strlen(value));
	return texts_are_plain(value);
}

/* Messages nest as deep as the .proto says, which is four; no type contains itself. */
static bool texts_are_plain(const ProtobufCMessage *message)
{
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
		const char *at = (const char *)message + field->offset;
		const char *quantifier = (const char *)message + field->quantifier_offset;
		if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		bool is_oneof = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
		if (is_oneof && *(const uint32_t *)quantifier != field->id)
			continue;
		size_t count = 1;
		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			count = *(const size_t *)quantifier;
			at = *(const char *const *)at;
		}
		for (size_t j = 0; j < count; j++)
			if (!value_is_plain(field, at + j * sizeof(void *)))
				return false;
	}
	return true;
}

ProtobufCMessage *arena_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type, const void *bytes,
			       size_t size_bytes)
{
	ProtobufCAllocator allocator = {.alloc = arena_allocate, .free = arena_free, .allocator_data = arena};
	ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, size_bytes, bytes);
	return message && texts_are_plain(message) ? message : NULL;
}

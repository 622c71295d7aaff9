#ifndef EDIT_PROTO_CODEC_ARENA_H
#define EDIT_PROTO_CODEC_ARENA_H

/* Unpacking of protobuf messages into one block of fixed size: protobuf-c takes memory from it and gives none back,
 * so what a message can cost is known before it is looked at. The block is the caller's. */

#include <protobuf-c/protobuf-c.h>

#include "core/base.h"

struct arena {
	unsigned char *base; /* 16-byte aligned */
	size_t size_bytes, used_bytes;
};

/* size_bytes of memory, 16-byte aligned, not cleared; NULL if the block is used up. */
void *arena_take(struct arena *arena, size_t size_bytes);

/* A message of the given type; NULL if bytes are none, need more than the arena's rest, or have a text that is not
 * plain (text_is_plain). Texts are valid as long as the arena's block. */
ProtobufCMessage *arena_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type, const void *bytes,
			       size_t size_bytes);

#endif

#ifndef EDIT_PROTO_CODEC_H
#define EDIT_PROTO_CODEC_H

/* Messages between daemons as bytes: struct message (core/event.h) <-> frame 1 in the format of peer.proto. Frame 2,
 * the payload of a chunk, is only measured, never touched.
 *
 * Everything that comes in is checked: every length, count, index, enum and number. What is larger than it can be is
 * refused before it is parsed, and parsing takes memory from the codec's own block only, so a crafted frame costs a
 * bounded time and no memory. A codec belongs to one thread. */

#include "core/event.h"

enum {
	CODEC_FRAME_MAX = 1 << 20,   /* bytes of frame 1 of a hello; more facts than fit cannot be sent */
	CODEC_DECREE_MAX = 384 << 10, /* bytes of that of a decree: a roster of MEMBER_COUNT_MAX seats fits, whatever their texts */
	CODEC_STANDING_MAX = 1024,   /* bytes of that of a standing */
	CODEC_SMALL_MAX = 512,       /* bytes of that of any other message */
	CODEC_PAYLOAD_MAX = 4 << 20  /* bytes of frame 2: the upper end of wire.chunk */
};

/* All round numbers, counters, sizes and times on the wire are below this, so that doubles and JSON hold them
 * exactly. */
#define CODEC_NUMBER_END (UINT64_C(1) << 53)

struct codec;

/* Bytes of the block that codec_init needs: about 6 MiB, touched only as far as used. */
size_t codec_size(void);
/* Makes a codec in block (16-byte aligned, codec_size bytes), which the caller owns and frees after the last use. */
struct codec *codec_init(void *block);

/* Writes frame 1 of message into buffer. EDIT_ERROR_FULL if it is larger than buffer_bytes (the limit of
 * its kind above is enough) or than the kind's limit above. The message must hold
 * to core/event.h, a decree to core/decree.h. */
int codec_encode(struct codec *codec, const struct message *message, void *buffer, size_t buffer_bytes, size_t *ret_bytes);

/* Reads a message. payload/payload_bytes: frame 2, NULL/0 if there was none. ret_message borrows payload, and a
 * hello's name and facts, a standing and a decree borrow the codec's block: valid until the next call with this codec.
 *
 * EDIT_ERROR_MALFORMED if anything is not as core/event.h and peer.proto say; ret_what (may be NULL) then names the
 * field ("chunk.count"), a constant string.
 *
 * A frame of another protocol version is not an error: it reads as a MESSAGE_REFUSE with REFUSAL_VERSION from its
 * sender, which is what it comes to. Every version keeps the fields outside the body as they are. */
int codec_decode(struct codec *codec, const void *frame, size_t frame_bytes, const void *payload, size_t payload_bytes,
		 struct message *ret_message, const char **ret_what);

#endif

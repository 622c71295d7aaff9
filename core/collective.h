#ifndef EDIT_CORE_COLLECTIVE_H
#define EDIT_CORE_COLLECTIVE_H

/* What the nodes of one replica do together so that each can compute with whole layers although it holds pieces: all-gather of a
 * layer's parameters before it is used, reduce-scatter of its gradients after. The worker asks for them one after the other, all
 * nodes of a replica for the same in the same order; they run one behind the other along the replica's ring, several at a time.
 *
 * A node can take chunks only when it has begun a collective too, so heartbeats tell the left neighbour how many that are. */

#include "core/layer.h"
#include "core/link.h"
#include "core/ring.h"

enum { COLLECTIVE_OPEN_MAX = 8 }; /* asked for and not done, or done with frames under way */

struct collective {
	struct collective_call call;
	struct ring_pass pass;
	uint64_t free_after;  /* link number up to which frames may still be sent from its numbers */
	bool begun, told;     /* told: that it is done */
};

struct collectives {
	uint32_t rank, count;       /* in the replica */
	const struct layer *layers; /* the own pieces */
	struct link *link;
	uint64_t asked, begun, done; /* numbers, from 1: done in order, and their memory is free */
	struct collective open[COLLECTIVE_OPEN_MAX]; /* by number */
	uint64_t sent_bytes, progress_us; /* progress: something moved, or was asked for */
};

/* Bytes of the block for collectives_init, a multiple of 8. */
size_t collectives_size(uint32_t count);
/* block (8-byte aligned) stays the caller's; link: to the right neighbour of the replica, outlives it. */
void collectives_init(struct collectives *all, void *block, uint32_t rank, uint32_t count, const struct layer *layers,
		      struct link *link);

/* Whether one more may be open. */
bool collectives_can_ask(const struct collectives *all);
/* The worker asks for the next one. Its memory must stay as it is, but for what the collective writes, until it is done.
 * EDIT_ERROR_FULL: COLLECTIVE_OPEN_MAX are open. EDIT_ERROR_INVALID: the size is not that of the layer. */
int collectives_ask(struct collectives *all, const struct collective_call *call, uint64_t now_us);
/* A chunk from the left neighbour. EDIT_ERROR_MALFORMED, and nothing changed, if it is not the next one of a collective begun. */
int collectives_chunk(struct collectives *all, const struct chunk *chunk, const void *payload, uint64_t now_us);
/* Begins what can begin and tells what is done. */
void collectives_advance(struct collectives *all, uint64_t now_us, struct actions *actions);
/* Next chunk to send, if the link has room and the right neighbour, which has begun right_begun collectives, can take it. */
bool collectives_next_chunk(struct collectives *all, uint64_t right_begun, size_t chunk_bytes, size_t window_bytes,
			    struct frame *ret_frame);
/* Whether the worker waits for one that is not done. */
bool collectives_are_open(const struct collectives *all);
/* Fills in the message of a chunk's frame. */
void collectives_message(const struct collectives *all, const struct frame *frame, struct message *ret_message);

#endif

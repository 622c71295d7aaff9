#ifndef EDIT_CORE_RING_H
#define EDIT_CORE_RING_H

/* Ring reduce-scatter and all-gather of one layer, in chunks: the way of the numbers, without messages or time.
 *
 * A layer of `size` elements is cut into one shard per member. The sum of shard s starts at the right neighbour of its
 * owner s and ends at s, so its order is fixed; from there the mean travels on to all others. Rank i hence sends partial sums
 * of every shard but its own, first that of its left neighbour, and means of every shard but its right neighbour's. Chunks
 * of one shard and phase arrive in order (core/link.h), so progress is a cursor per shard, and each element is
 * added exactly once. Buffer: [size] float32, the own pseudo-gradient at the begin, the mean at the end. */

#include "core/event.h"
#include "core/layer.h"

/* Both halves, or one: reduce-scatter leaves each member its own shard of the sum; all-gather begins with own shards. */
enum ring_way { RING_ALL_REDUCE, RING_REDUCE_SCATTER, RING_ALL_GATHER };

/* Of rings of rings: the two passes of one layer depend on each other. RING_GATED: the own shard, once summed, goes on only after
 * ring_pass_release. RING_EARLY: partial sums come in before the own numbers are there: ring_pass_open. */
enum ring_state { RING_FREE, RING_GATED, RING_EARLY };

struct ring_pass {
	uint32_t rank, count; /* of the members */
	enum ring_way way;
	enum ring_state state;
	float weight;         /* own weight in the mean */
	float *buffer;        /* [size], owned by the caller */
	size_t size;
	size_t finished;      /* elements of buffer that hold the mean */
	size_t *reduced;      /* [count] elements of each shard that hold a partial sum with the own part in it */
	size_t *gathered;     /* [count] elements of each shard that hold the mean */
	size_t *reduce_sent;  /* [count] */
	size_t *gather_sent;  /* [count] */
	double *square;       /* [count] sum of squares of each shard's mean, by its owner */
	uint32_t *queue;      /* [2 x count] phase and shard with something to send, first come first served */
	uint32_t queue_head, queue_length;
	bool *queued;         /* [2 x count] */
};

static inline uint32_t ring_left(uint32_t rank, uint32_t count) { return (rank + count - 1) % count; }
static inline uint32_t ring_right(uint32_t rank, uint32_t count) { return (rank + 1) % count; }

/* Bytes of the block for ring_pass_init, a multiple of 8. */
size_t ring_pass_size(uint32_t count);
/* Lays the cursors into block (8-byte aligned), which stays the caller's. */
void ring_pass_init(struct ring_pass *pass, void *block, uint32_t rank, uint32_t count);
/* Starts the pass: buffer holds the own pseudo-gradient, unscaled. A weight of 0 adds nothing, whatever buffer holds. */
void ring_pass_begin(struct ring_pass *pass, float *buffer, size_t size, float weight);
/* The same, but the own shard's sum is not the mean yet: when it is there (ring_pass_is_summed), the caller goes on with it and calls
 * ring_pass_release with its sum of squares. */
void ring_pass_begin_gated(struct ring_pass *pass, float *buffer, size_t size, float weight);
bool ring_pass_is_summed(const struct ring_pass *pass);
void ring_pass_release(struct ring_pass *pass, double square);
/* All-reduce of numbers that are not there yet: partial sums from the left wait in stash [size]. ring_pass_open: they are, in buffer
 * [size], each counting once. */
void ring_pass_begin_early(struct ring_pass *pass, float *stash, size_t size);
void ring_pass_open(struct ring_pass *pass, float *buffer);
/* Reduce-scatter alone: done when the own shard of buffer holds the sum over all, each times weight; the rest of buffer is anything. */
void ring_pass_begin_reduce(struct ring_pass *pass, float *buffer, size_t size, float weight);
/* All-gather alone: the own shard of buffer is in its place; done when all are. */
void ring_pass_begin_gather(struct ring_pass *pass, float *buffer, size_t size);
/* Takes a chunk from the left neighbour; payload: 4 x chunk->count bytes at any alignment. EDIT_ERROR_MALFORMED, and nothing
 * changed, if it is not the next one of its shard. */
int ring_pass_accept(struct ring_pass *pass, const struct chunk *chunk, const void *payload);
/* Is something ready to be sent? */
bool ring_pass_has_chunk(const struct ring_pass *pass);
/* Takes the next chunk for the right neighbour, at most chunk_elements long; fills phase, shard, offset, count and
 * square_norm. Only if ring_pass_has_chunk. */
void ring_pass_next(struct ring_pass *pass, size_t chunk_elements, struct chunk *ret_chunk);
/* Is what the pass is for in the buffer: the whole mean, or the own shard of the sum, and have those of the others got the own part? */
bool ring_pass_is_done(const struct ring_pass *pass);
/* Sum of squares of the mean, shards added in rank order: equal bits on all members. Only when done. */
double ring_pass_square_norm(const struct ring_pass *pass);

#endif

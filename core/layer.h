#ifndef EDIT_CORE_LAYER_H
#define EDIT_CORE_LAYER_H

/* A layer is the unit of synchronisation: embedding, each decoder block, final norm with head; canonical order is
 * forward order. This file names its memory; whoever made the block (daemon: files in runtime_dir; sim: the heap) owns it. */

#include "core/base.h"

enum {
	LAYER_COUNT_MAX = 4096, /* layers of a model */
	MEMBER_COUNT_MAX = 1024 /* members of a ring */
};

/* Round of a layer of which a member holds nothing. */
#define LAYER_NOTHING UINT64_MAX

/* A layer, or a piece of one, cut into one shard for each of `count` members: they differ by at most one element. First element of a
 * shard; shard == count gives size. */
static inline size_t ring_shard_begin(size_t size, uint32_t count, uint32_t shard)
{
	CHECK(shard <= count);
	/* size / count * shard + remainder part: no overflow for any size */
	return size / count * shard + size_min(size % count, shard);
}

/* Elements of a shard. */
static inline size_t ring_shard_size(size_t size, uint32_t count, uint32_t shard)
{
	return size / count + (shard < size % count ? 1 : 0);
}

struct layer {
	size_t size;     /* elements (float32); may be 0 */
	float *theta;    /* [size] the replica's parameters; the worker writes them except between offer and publish */
	float *anchor;   /* [size] parameters after the last completed round: equal bits on all members */
	float *momentum; /* [size] of the outer optimiser: equal bits on all members */

	/* Touched only by what is named; NULL where it never happens. */
	float *gradient; /* [size] sync.exchange = gradients: own gradient when offered, the mean when published */
	float *base;     /* [size] straggler.grace: the anchor that a late member's theta began from */
	float *snapshot; /* [size] sync.overlap = steps: theta at the offer */
};

#endif

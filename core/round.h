#ifndef EDIT_CORE_ROUND_H
#define EDIT_CORE_ROUND_H

/* How layers move through a round: WORKER -> OFFERED -> SCALARS (every member's record goes round) -> MEAN (reduce, gather) ->
 * commit (outer step, theta := anchor, published) -> WORKER.
 *
 * In a ring of rings (fanout below count) the mean is made in three parts: reduce-scatter inside the group, all-reduce of the own
 * shard across the groups, all-gather inside the group; so 4 sqrt(N) hops do what takes 2 N in a flat ring. Records go along both
 * kinds of rings, each once.
 *
 * Layers start in canonical order. Nothing of a layer is applied until its mean is complete: theta, anchor and momentum are as they
 * were until then. Detectors advance only with the commit. All follows from the ring stream's frames and the worker's offers;
 * time is only written down. */

#include "core/sync.h"

/* A chunk from the left neighbour; is_across: that in the ring across the groups. EDIT_ERROR_MALFORMED, and nothing changed, if it
 * cannot be in this place. */
int round_chunk(struct sync *sync, const struct chunk *chunk, bool is_across, const void *payload, uint64_t now_us);
/* Does whatever can be done now: starts layers, ends scalar passes, commits, ends the round. */
void round_advance(struct sync *sync, uint64_t now_us, struct actions *actions);
/* Takes the next chunk for the right neighbour, of the lowest layer that has one, as a frame to be launched at once. false:
 * none, or no room on the link with this window. */
bool round_next_chunk(struct sync *sync, bool is_across, size_t window_bytes, struct frame *ret_frame);

#endif

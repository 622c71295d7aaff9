#ifndef EDIT_CORE_HEAL_H
#define EDIT_CORE_HEAL_H

/* How a member gets layers that it lacks: along the ring, from its left neighbour, which sends what it holds itself and what the
 * standings (core/standing.h) say its right neighbour lacks. Nobody asks anybody. In a row of members that lack a layer each passes it
 * on once its own copy is whole and has the right hash. In a ring of rings a layer comes across the groups if any member with the same
 * place holds it, and along the group otherwise: so it gets everywhere.
 *
 * A layer waits in work buffers until it is whole; what was held before is kept until then, because whoever sends may die. Frames
 * are numbered, bounded and acknowledged like all others of the stream, so there is nothing to time out. They are read from the layers'
 * own memory, which does not change before rounds go on: by then all that was sent has been received, or its receiver would lack it. */

#include "core/sync.h"

/* Whether what a member holds of a layer, by its words, is what all shall hold. Only when there is a plan. */
bool heal_is_whole(const struct sync *sync, const struct holding *holding);
/* The layer is whole, in memory or by having no elements: it is held from now on, as of its target; the driver is asked for its hash. */
void heal_take_up(struct sync *sync, uint32_t layer_index, struct actions *actions);
/* A chunk from the left neighbour. EDIT_ERROR_MALFORMED, and nothing changed, if it cannot be in this place. */
int heal_chunk(struct sync *sync, const struct chunk *chunk, bool is_across, const void *payload, uint64_t now_us,
	       struct actions *actions);
/* Takes the next chunk for the right neighbour, as a frame to be launched at once. false: none, or no room on the link. */
bool heal_next_chunk(struct sync *sync, bool is_across, size_t window_bytes, struct frame *ret_frame);

#endif

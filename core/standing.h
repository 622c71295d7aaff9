#ifndef EDIT_CORE_STANDING_H
#define EDIT_CORE_STANDING_H

/* The begin of a view whose members may have come differently far: after a death amid a round, with members that join or come back.
 *
 * When the ring is complete every member tells how far it has come (struct standing) and, for each layer, what it holds (struct
 * holding: round and hash). When all words of all are there, everybody derives the same plan from them (core/plan.h), and whoever
 * holds something else than all shall hold gets it (core/heal.h).
 *
 * Once all hold the same, rounds go on: layers that somebody has committed are done, the others are done again, with the offers that
 * are there. Whose theta began from something else is given the anchor, and brings nothing to a round that others have begun.
 *
 * All frames of this come before any frame of a round on each link, so nobody meets a round before it is ready for it itself. */

#include "core/part.h"

/* Takes over what belongs to the member and not to the view. from [count of sync]: rank of each member in the old view, or the count of
 * that one if it was not in it. */
void standing_inherit(struct sync *sync, const struct sync *old, const uint32_t *from);
/* The ring is complete. */
void standing_begin(struct sync *sync, uint64_t now_us);
/* Words from the left neighbour. EDIT_ERROR_MALFORMED, and nothing changed, if they cannot be in this place. */
int standing_take(struct sync *sync, const struct standing *standing, uint64_t now_us);
int standing_hold(struct sync *sync, const struct holding *holding, uint64_t now_us);
/* The driver tells the hash of a layer, which was asked for or fetched. */
void standing_hashed(struct sync *sync, uint32_t layer_index, uint64_t hash, struct actions *actions);
/* Does whatever can be done now: asks for hashes, makes the plan, lets rounds go on. */
void standing_advance(struct sync *sync, uint64_t now_us, struct actions *actions);
/* Whom the begin of the view waits for: a rank, the number of members: nobody in particular. */
uint32_t standing_waits_for(const struct sync *sync);

#endif

#ifndef EDIT_CORE_PLAN_H
#define EDIT_CORE_PLAN_H

/* What all members of a view shall hold, and what holds for its rounds, derived by each alone from the words of all (core/standing.h).
 *
 * - Of each layer all shall hold what was committed last: in the newest view, of that the highest round, of that the hash of most, of
 *   equally many that of the lowest rank. Whoever holds something else gets it (core/heal.h).
 * - The leader is whoever has come furthest, in the same order; its round and settings hold for all. If layers that it has completed
 *   are lost with those who held them, it is whoever has come as far as they go.
 * - What was agreed for the next round holds if anybody has committed the first layer of it, and is taken back otherwise. */

#include "core/sync.h"

/* Makes the plan, once all have told everything. If nobody holds what is needed, notes the layer; then only another view can help. */
void plan_make(struct sync *sync, struct actions *actions);
/* This member holds what all shall hold: takes over what holds for all. Not before, so that nobody claims to have come as far as somebody
 * whose layers it does not hold; and at once, because then it may be the only one left that does. */
void plan_adopt(struct sync *sync, struct actions *actions);
/* Whether a member was there when what the leader holds was committed, so that its own part was in it. */
bool plan_belongs(const struct standing *standing, const struct standing *leader);

#endif

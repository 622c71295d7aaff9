#ifndef EDIT_SIM_REMAINS_H
#define EDIT_SIM_REMAINS_H

/* What lives on when a member's daemon dies: its worker, or the memory that another worker goes on with. The worker trains on alone until
 * it has to wait; the next daemon finds the state of the last one and takes up what the worker has handed over meanwhile, or gives it
 * back, as daemon/handover.h does. Only where members change, and never in a mesh. */

#include "sim/stage.h"

/* A member falls: from now on its worker is alone. */
void remains_leave(struct world *world, uint32_t slot, enum remains remains);
/* Its daemon starts again: whether the worker waits for theta; at which step it is; and whether theta began from another anchor than that of the state, by the worker's memory. */
bool remains_is_outdated(const struct world *world, uint32_t slot);
uint64_t remains_step(const struct world *world, uint32_t slot);
bool remains_is_stale(const struct world *world, uint32_t slot);
/* Has the worker go on with the member's new node, which it finds a little later. */
void remains_prepare(struct world *world, uint32_t slot);
/* The worker has found the new daemon: the node gets what it has handed over, or the worker has it back. */
void remains_meet(struct world *world, uint32_t slot);
/* The worker hands over a gradient that the daemon refuses. */
void remains_refuse(struct world *world, uint32_t slot, size_t layer_index);
/* After every event of a member: what its state file says. */
void remains_keep(struct world *world, uint32_t slot);

#endif

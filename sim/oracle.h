#ifndef EDIT_SIM_ORACLE_H
#define EDIT_SIM_ORACLE_H

/* Members that change, in the place of their council: who falls, comes back, joins or leaves, which views follow from that, and when
 * each member hears of them. A view has all who are alive and want to be in it, those of the view before in their order; members enter
 * at different times, skip views, and fall while they are being entered. The last live member that holds everything is spared: what
 * nobody holds cannot be gone on with. Of a round that has had two outcomes the earlier one does not come back alone, because the ledger
 * keeps one line of history. All that is drawn here is drawn from dice of its own. */

#include "sim/stage.h"

/* Members that may join later, beside those of the first view. */
uint32_t oracle_joiners(struct world *world);
/* Seats all in the first view; draws what will happen. */
void oracle_plan(struct world *world);
/* A member falls (entry->item: leaves), to come back after entry->number us (0: never). */
void oracle_fall(struct world *world, const struct heap_entry *entry);
/* A member has committed a layer: some fall with it, before or while the others hear of it. */
void oracle_commit(struct world *world, uint32_t slot);
/* A member wants to be in the next view. */
void oracle_rise(struct world *world, const struct heap_entry *entry);
/* The next view. */
void oracle_decide(struct world *world);
/* A member enters view entry->number. */
void oracle_seat(struct world *world, const struct heap_entry *entry);
/* Releases the rosters. */
void oracle_fini(struct world *world);

#endif

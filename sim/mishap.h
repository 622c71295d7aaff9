#ifndef EDIT_SIM_MISHAP_H
#define EDIT_SIM_MISHAP_H

/* What goes wrong with whole members and roads: crash, restart, cut; and whether the others say so. */

#include "sim/stage.h"

/* Draws what will go wrong with members and roads, and when. */
void mishap_plan(struct world *world);
/* A member stops; for good, or to come back after entry->number us (not 0). */
void mishap_crash(struct world *world, const struct heap_entry *entry);
/* A member comes back: another incarnation, with the state of round 0. */
void mishap_restart(struct world *world, uint32_t rank);
/* The road to the right (entry->item & 1), and back (& 2), swallows everything for entry->number us. */
void mishap_cut(struct world *world, const struct heap_entry *entry);
/* After a crash: ends the world if all others have finished or stand still and say so; looks again later otherwise. */
void mishap_look(struct world *world);

#endif

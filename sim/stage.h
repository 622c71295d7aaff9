#ifndef EDIT_SIM_STAGE_H
#define EDIT_SIM_STAGE_H

/* The inside of a world, for sim/world.c, which runs it, and sim/mishap.c, which breaks things in it. */

#include <inttypes.h>

#include "sim/ballot.h"
#include "sim/citizen.h"
#include "sim/heap.h"
#include "sim/ledger.h"

enum happening { HAPPENS_TICK, HAPPENS_ARRIVAL, HAPPENS_WORK, HAPPENS_HASHED, HAPPENS_CHANGE, HAPPENS_RESUME, HAPPENS_CRASH,
		 HAPPENS_RESTART, HAPPENS_CUT, HAPPENS_LOOK };

#define SECOND UINT64_C(1000000)
#define HEARTBEAT_US SECOND
#define SILENCE_US (3 * SECOND)
#define DRAIN_US (6 * SECOND) /* goes on for so long after all have finished */

struct world {
	const struct world_config *config;
	struct trace *trace;
	struct world_result *result;
	struct setup setup;
	struct dice dice;
	struct heap heap;
	uint64_t now_us;
	uint64_t still;          /* events since time has moved */
	struct citizen *members;  /* [peers] */
	char (*names)[16];
	const char **name_list;  /* [peers] */
	struct fact facts[3];
	struct ledger *ledger;
	struct ballot ballot;
	struct actions *actions;
	bool resume_pending;
	bool begun;              /* some member has seen the ring complete */
	bool begun_at_crash;     /* so it had when one fell */
	bool restart_noted;      /* some member has refused another one's new incarnation */
	uint32_t crashed_rank;   /* who fell, back or not; peers: none */
	uint64_t finished_us;    /* when the last one finished; 0: not yet */
	bool over;
};

/* Ends the world; keeps the first reason. */
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds to a coverage count. */
void world_cover(struct world *world, enum coverage what, uint64_t count);
/* Lets something happen to a member at time_us; data is freed with free() afterwards. */
void world_push(struct world *world, enum happening kind, uint32_t rank, uint64_t time_us, void *data);
/* Makes or makes again a member, which starts at start_us. */
void world_start(struct world *world, uint32_t rank, uint64_t start_us);
/* Rank of a neighbour. */
uint32_t world_neighbour(const struct world *world, uint32_t rank, bool is_right);

/* ---- sim/mishap.c ---- */

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

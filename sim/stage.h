#ifndef EDIT_SIM_STAGE_H
#define EDIT_SIM_STAGE_H

/* The inside of a world, for sim/world.h, which runs it, and sim/mishap.h, which breaks things in it: its members, and what is to
 * happen to them. */

#include <inttypes.h>

#include "sim/ballot.h"
#include "sim/citizen.h"
#include "sim/heap.h"
#include "sim/ledger.h"

enum happening { HAPPENS_TICK, HAPPENS_ARRIVAL, HAPPENS_WORK, HAPPENS_HASHED, HAPPENS_CHANGE, HAPPENS_RESUME, HAPPENS_CRASH,
		 HAPPENS_RESTART, HAPPENS_CUT, HAPPENS_LOOK, HAPPENS_TOLD, HAPPENS_FALL, HAPPENS_RISE, HAPPENS_DECIDE, HAPPENS_SEAT };

#define SECOND UINT64_C(1000000)
#define HEARTBEAT_US SECOND
#define SILENCE_US (3 * SECOND)
enum { ROSTERS_MAX = 256 };

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
	uint32_t count;          /* of members: peers x shards, and those who may join later */
	struct citizen *members; /* [count] by rank in the mesh */
	struct replica *replicas; /* [peers] */
	char (*names)[16];
	struct roster *rosters;  /* [roster_count] of all views so far; room for ROSTERS_MAX */
	size_t roster_count;
	struct dice view_dice;   /* of all that has to do with views */
	bool decision_pending;
	const char **ring_names; /* [shards][peers] */
	const char **row_names;  /* [peers][shards] */
	struct fact facts[3];
	struct ledger *ledger;
	struct ballot ballot;
	struct actions *actions;
	bool resume_pending;
	bool begun;              /* some member has seen the ring complete */
	bool begun_at_crash;     /* so it had when one fell */
	bool restart_noted;      /* some member has refused another one's new incarnation */
	uint32_t crashed_rank;   /* who fell, back or not; count: none */
	uint64_t finished_us;    /* when the last one finished; 0: not yet */
	bool over;
};

/* Ends the world; keeps the first reason. */
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds to a coverage count. */
void world_cover(struct world *world, enum coverage what, uint64_t count);
/* Lets something happen to a member at time_us; data is freed with free() afterwards. */
void world_push(struct world *world, enum happening kind, uint32_t rank, uint64_t time_us, void *data);
/* Gives an event to a member's node, and carries out what follows. */
void world_step(struct world *world, uint32_t rank, struct event *event);
/* Wakes a replica's worker at time_us, or a member's node at its deadline, if it is not woken earlier. */
void world_arm_work(struct world *world, uint32_t replica, uint64_t time_us);
void world_arm_tick(struct world *world, uint32_t rank);
/* Makes or makes again a member, which starts at start_us. */
void world_start(struct world *world, uint32_t rank, uint64_t start_us);
/* The road from one member to another; NULL: they are no neighbours. */
struct road *world_way(struct world *world, uint32_t from, uint32_t to);
/* Whether members change. */
static inline bool world_has_views(const struct world *world) { return (world->config->faults & FAULT_VIEWS) != 0; }
/* The rest of what a member's node is made from, in a view. */
struct node_config world_node(const struct world *world, uint32_t slot, const struct roster *roster);
/* Rank of the neighbour to which a road leads (the own one where there is none), and the road that leads to a neighbour
 * (ROAD_COUNT: it is none). */
uint32_t world_neighbour(const struct world *world, uint32_t rank, enum road_end end);
enum road_end world_road(const struct world *world, uint32_t rank, uint32_t to);
/* The replica of a member. */
struct replica *world_replica(const struct world *world, uint32_t rank);

#endif

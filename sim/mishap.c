/* See the header. */

#include <string.h>

#include "sim/mishap.h"

void mishap_plan(struct world *world)
{
	const struct world_config *config = world->config;
	struct dice *dice = &world->dice;
	const uint64_t span_us = world->setup.span_us;
	uint32_t rank = (uint32_t)dice_between(dice, 0, world->count - 1);
	const bool is_plain = config->shards == 1 && config->fanout == config->peers;
	world->crashed_rank = world->count;
	if (config->faults & (FAULT_CRASH | FAULT_RESTART) && world->count > 1) {
		uint64_t back_us = config->faults & FAULT_CRASH ? 0 : dice_magnitude(dice, 1000, 20 * SECOND);
		/* Half of them early, while members are still finding each other. */
		uint64_t at_us = dice_between(dice, 0, dice_chance(dice, 0.5) ? 3 * SECOND : span_us);
		heap_push(&world->heap, (struct heap_entry){.time_us = at_us, .kind = HAPPENS_CRASH, .rank = rank,
							    .number = back_us});
	}
	for (uint64_t count = config->faults & FAULT_CUT ? dice_between(dice, 1, 4) : 0; count > 0; count--)
		heap_push(&world->heap, (struct heap_entry){
			.time_us = dice_between(dice, 0, span_us), .kind = HAPPENS_CUT,
			.rank = (uint32_t)dice_between(dice, 0, world->count - 1),
			.item = (uint32_t)dice_between(dice, 1, is_plain ? 3 : 15), .number = dice_magnitude(dice, 10000, 30 * SECOND)});
	for (uint64_t count = config->faults & FAULT_CHANGE ? dice_between(dice, 1, 6) : 0; count > 0; count--)
		world_push(world, HAPPENS_CHANGE, (uint32_t)dice_between(dice, 0, world->count - 1),
			   dice_between(dice, SECOND, SECOND + span_us), NULL);
}

void mishap_crash(struct world *world, const struct heap_entry *entry)
{
	world->members[entry->rank].crashed = true;
	world->crashed_rank = entry->rank;
	world->begun_at_crash = world->begun;
	world_cover(world, COVER_CRASHES, 1);
	world_push(world, HAPPENS_LOOK, 0, world->now_us + entry->number + 10 * SECOND, NULL);
	if (entry->number > 0)
		world_push(world, HAPPENS_RESTART, entry->rank, world->now_us + entry->number, NULL);
}

void mishap_restart(struct world *world, uint32_t rank)
{
	struct citizen *member = &world->members[rank];
	struct road roads[ROAD_COUNT];
	memcpy(roads, member->roads, sizeof roads);
	uint32_t life = member->life + 1;
	const struct roster *roster = member->roster;
	struct node_status status;
	node_status(member->node, world->now_us, &status);
	citizen_fini(member);
	replica_fini(world_replica(world, rank));
	world_start(world, rank, world->now_us);
	member->life = life;
	member->roster = roster;
	memcpy(member->roads, roads, sizeof roads);
	ledger_restart(world->ledger, rank, member->layers, status.phase != NODE_GATHERING);
	world_cover(world, COVER_RESTARTS, 1);
}

void mishap_cut(struct world *world, const struct heap_entry *entry)
{
	/* Where there are several rings, any of them. Of two members each is the other's right neighbour. */
	static const enum road_end ends[] = {ROAD_RIGHT, ROAD_ROW_RIGHT, ROAD_CROSS_RIGHT, ROAD_RIGHT};
	uint32_t right;
	if (!world_has_views(world)) {
		right = world_neighbour(world, entry->rank, ends[entry->item / 4]);
	} else {
		const struct roster *roster = world->members[entry->rank].roster;
		uint32_t rank = roster_rank(roster, entry->rank);
		if (rank == roster->count)
			return; /* has not joined yet */
		right = roster->slots[(rank + 1) % roster->count];
	}
	struct road *there = world_way(world, entry->rank, right), *back = world_way(world, right, entry->rank);
	if (there == NULL || back == NULL)
		return; /* there is none */
	if (entry->item & 1)
		there->cut_until_us = u64_max(there->cut_until_us, world->now_us + entry->number);
	if (entry->item & 2)
		back->cut_until_us = u64_max(back->cut_until_us, world->now_us + entry->number);
	world_cover(world, COVER_CUTS, 1);
}

/* Has this member finished, or does it stand still and say so? */
static bool is_at_rest(const struct world *world, uint32_t rank)
{
	const struct citizen *member = &world->members[rank];
	struct node_status status;
	struct node_peer peer;
	if (member->crashed || member->finished)
		return true;
	node_status(member->node, world->now_us, &status);
	if (world->config->shards > 1 || world->config->fanout < world->config->peers) {
		/* Each says whom it waits for itself: the dead one, or somebody who waits in turn. */
		bool is_mate = rank / world->config->shards == world->crashed_rank / world->config->shards;
		bool knows_mate = is_mate && status.waiting_for == world->crashed_rank;
		bool is_stalled = status.stalled_us >= 2 * SILENCE_US && status.waiting_for < world->count;
		return status.phase == NODE_PAUSED || is_stalled || (status.phase == NODE_TRAINING && knows_mate);
	}
	node_peer(member->node, world->crashed_rank, world->now_us, &peer);
	/* Whoever has let the new life in before it saw the ring complete cannot know that others have not: they say so. */
	bool is_back = !world->members[world->crashed_rank].crashed;
	bool knows = is_back ? world->restart_noted :
			       peer.state == PEER_DOWN && status.waiting_for == world->crashed_rank && member->stall_noted;
	switch (status.phase) {
	case NODE_GATHERING: return status.stalled_us >= SILENCE_US && status.waiting_for < world->count;
	case NODE_PAUSED: return is_back || peer.state == PEER_DOWN;
	case NODE_SYNCING: return knows && status.stalled_us >= 2 * SILENCE_US;
	default: return false;
	}
}

void mishap_look(struct world *world)
{
	/* Who comes back before the ring has begun is welcome, so then all must finish. */
	bool may_stall = world->members[world->crashed_rank].crashed || world->begun_at_crash || world->restart_noted;
	bool any_stalled = false;
	for (uint32_t rank = 0; rank < world->count; rank++) {
		if (!may_stall || !is_at_rest(world, rank)) {
			world_push(world, HAPPENS_LOOK, 0, world->now_us + 5 * SECOND, NULL);
			return;
		}
		any_stalled |= !world->members[rank].crashed && !world->members[rank].finished;
	}
	world_cover(world, COVER_STALLS, any_stalled);
	world->over = true;
}

/* See the header. */

#include <stdarg.h>
#include <stdio.h>

#include "sim/stage.h"

void world_fail(struct world *world, const char *format, ...)
{
	va_list list;
	if (world->over)
		return;
	va_start(list, format);
	vsnprintf(world->result->reason, sizeof world->result->reason, format, list);
	va_end(list);
	world->result->ok = false;
	world->over = true;
}

void world_cover(struct world *world, enum coverage what, uint64_t count)
{
	world->result->coverage[what] += count;
}

void world_push(struct world *world, enum happening kind, uint32_t rank, uint64_t time_us, void *data)
{
	heap_push(&world->heap, (struct heap_entry){.time_us = u64_max(time_us, world->now_us), .kind = (int)kind,
						    .rank = rank, .data = data});
}

void world_arm_work(struct world *world, uint32_t replica, uint64_t time_us)
{
	heap_arm(&world->heap, &world->replicas[replica].work_us, world->now_us,
		 (struct heap_entry){.time_us = time_us, .kind = HAPPENS_WORK, .rank = replica * world->config->shards});
}

void world_arm_tick(struct world *world, uint32_t rank)
{
	struct citizen *member = &world->members[rank];
	heap_arm(&world->heap, &member->tick_us, world->now_us,
		 (struct heap_entry){.time_us = member->deadline_us, .kind = HAPPENS_TICK, .rank = rank});
}

static struct places world_places(const struct world *world)
{
	const struct world_config *config = world->config;
	return (struct places){.peers = config->peers, .fanout = config->fanout, .shards = config->shards};
}

uint32_t world_neighbour(const struct world *world, uint32_t rank, enum road_end end)
{
	const struct places places = world_places(world);
	return places_neighbour(&places, rank, end);
}

enum road_end world_road(const struct world *world, uint32_t rank, uint32_t to)
{
	const struct places places = world_places(world);
	return places_road(&places, rank, to);
}

struct road *world_way(struct world *world, uint32_t from, uint32_t to)
{
	struct citizen *member = &world->members[from];
	if (member->ways != NULL)
		return &member->ways[to];
	enum road_end end = world_road(world, from, to);
	return end == ROAD_COUNT ? NULL : &member->roads[end];
}

struct node_config world_node(const struct world *world, uint32_t slot, const struct roster *roster)
{
	return (struct node_config){
		.view = roster->view, .rank = roster_rank(roster, slot), .member_count = roster->count, .names = roster->names,
		.incarnation = world->members[slot].incarnation, .facts = world->facts, .fact_count = 3,
		.heartbeat_us = HEARTBEAT_US, .silence_us = SILENCE_US, .retry_us = SECOND};
}

struct replica *world_replica(const struct world *world, uint32_t rank)
{
	return &world->replicas[rank / world->config->shards];
}

void world_start(struct world *world, uint32_t rank, uint64_t start_us)
{
	struct citizen *member = &world->members[rank];
	const struct world_config *config = world->config;
	const uint32_t row = rank / config->shards, column = rank % config->shards;
	struct replica *replica = &world->replicas[row];
	struct node_config node = {
		.rank = row, .member_count = config->peers, .column = column, .shards = config->shards,
		.fanout = config->fanout,
		.incarnation = dice_bits(&world->dice) | 1, .names = world->ring_names + (size_t)column * config->peers,
		.mates = world->row_names + (size_t)row * config->shards, .facts = world->facts, .fact_count = 3,
		.heartbeat_us = HEARTBEAT_US, .silence_us = SILENCE_US, .retry_us = SECOND,
	};
	if (world_has_views(world) && rank >= config->peers) { /* not there yet: a ring of its own until it joins */
		node.rank = 0;
		node.member_count = node.fanout = 1;
		node.names = (const char *const *)&world->row_names[rank];
	}
	if (column == 0)
		replica_init(replica, &world->setup, config);
	citizen_init(member, &world->setup, config, replica, &node);
	if (column == 0)
		replica_employ(replica, &world->setup, config, member->node, &world->dice);
	citizen_connect(member, &world->setup, config, &world->dice);
	member->deadline_us = start_us;
	world_arm_tick(world, rank);
	if (column == 0)
		world_arm_work(world, row, start_us);
}

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

void world_arm_work(struct world *world, uint32_t rank, uint64_t time_us)
{
	heap_arm(&world->heap, &world->members[rank].work_us, world->now_us,
		 (struct heap_entry){.time_us = time_us, .kind = HAPPENS_WORK, .rank = rank});
}

void world_arm_tick(struct world *world, uint32_t rank)
{
	struct citizen *member = &world->members[rank];
	heap_arm(&world->heap, &member->tick_us, world->now_us,
		 (struct heap_entry){.time_us = member->deadline_us, .kind = HAPPENS_TICK, .rank = rank});
}

uint32_t world_neighbour(const struct world *world, uint32_t rank, bool is_right)
{
	uint32_t peers = world->config->peers;
	return (rank + (is_right ? 1 : peers - 1)) % peers;
}

void world_start(struct world *world, uint32_t rank, uint64_t start_us)
{
	struct citizen *member = &world->members[rank];
	struct node_config node = {
		.rank = rank, .member_count = world->config->peers, .incarnation = dice_bits(&world->dice) | 1,
		.names = world->name_list, .facts = world->facts, .fact_count = 3, .heartbeat_us = HEARTBEAT_US,
		.silence_us = SILENCE_US, .retry_us = SECOND,
	};
	citizen_init(member, &world->setup, world->config, &node, &world->dice);
	member->deadline_us = start_us;
	world_arm_tick(world, rank);
	world_arm_work(world, rank, start_us);
}

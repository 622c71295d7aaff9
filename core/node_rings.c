/* See the header. */

#include "core/node_rings.h"

/* Small frames that may wait before frames from the left are turned away, and room for what the member then still adds of
 * its own: a correct ring never comes to the first, and nobody can force the second. */
struct circle_config node_circle_config(const struct node_config *config, int which)
{
	const uint32_t shards = node_shards(config), layer_count = (uint32_t)config->layer_count;
	struct circle_config circle = {.facts = config->facts, .fact_count = config->fact_count,
				       .incarnation = config->incarnation, .view_number = node_view_number(config), .heartbeat_us = config->heartbeat_us,
				       .silence_us = config->silence_us, .retry_us = config->retry_us};
	const uint32_t fanout = node_fanout(config), group = config->rank / fanout, place = config->rank % fanout;
	circle.name_stride = 1;
	circle.frames_owed = sync_frames_max(layer_count, config->member_count, shards);
	switch (which) {
	case RING:
		circle.rank = place;
		circle.count = fanout;
		circle.first = group * fanout * shards + config->column;
		circle.stride = shards;
		circle.names = config->names + (size_t)group * fanout;
		break;
	case CROSS:
		circle.rank = group;
		circle.count = config->member_count / fanout;
		circle.first = place * shards + config->column;
		circle.stride = fanout * shards;
		circle.names = config->names + place;
		circle.name_stride = fanout;
		break;
	default:
		circle.rank = config->column;
		circle.count = shards;
		circle.first = config->rank * shards;
		circle.stride = 1;
		circle.names = config->mates;
		circle.frames_owed = sync_row_frames_max(layer_count, config->member_count, shards);
	}
	circle.frames_max = circle.frames_owed + 4 * config->layer_count + 4 * PROPOSAL_EACH_MAX;
	return circle;
}

int node_home(const struct node *node)
{
	int which = RING;
	while (which + 1 < CIRCLE_COUNT && node->circles[which].view.count == 1)
		which++;
	return which;
}

uint32_t node_first_down(const struct node *node)
{
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		const struct circle *circle = &node->circles[which];
		uint32_t down = view_first_down(&circle->view);
		if (down < circle->view.count)
			return circle_global(circle, down);
	}
	return sync_peer_count(&node->sync);
}

uint32_t node_home_left(const struct node *node)
{
	const struct circle *circle = &node->circles[node_home(node)];
	return circle_global(circle, ring_left(circle->view.rank, circle->view.count));
}

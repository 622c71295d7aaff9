/* Making members and replicas from the setup. */

#include <stdlib.h>
#include <string.h>

#include "core/ring.h"
#include "sim/citizen.h"
#include "sim/memory.h"

void replica_init(struct replica *replica, const struct setup *setup, const struct world_config *config)
{
	const size_t layer_count = config->layer_count;
	size_t total = 0;
	for (size_t l = 0; l < layer_count; l++)
		total += setup->sizes[l];
	*replica = (struct replica){.work_us = UINT64_MAX};
	replica->numbers = memory_take(6 * total + 1, sizeof *replica->numbers);
	replica->layers = memory_take(layer_count, sizeof *replica->layers);
	replica->committed = memory_take(layer_count, sizeof *replica->committed);
	replica->published = memory_take(layer_count, sizeof *replica->published);
	replica->told_round = memory_take(layer_count, sizeof *replica->told_round);
	float *at = replica->numbers;
	for (size_t l = 0; l < layer_count; l++) {
		const size_t size = setup->sizes[l];
		replica->layers[l] = (struct layer){.size = size, .theta = at, .anchor = at + size, .momentum = at + 2 * size,
						    .gradient = at + 3 * size, .base = at + 4 * size,
						    .snapshot = at + 5 * size};
		memcpy(at, setup->anchors[l], size * sizeof *at);
		memcpy(at + size, setup->anchors[l], size * sizeof *at);
		at += 6 * size;
	}
}

void replica_employ(struct replica *replica, const struct setup *setup, const struct world_config *config,
		    const struct node *node, struct dice *dice)
{
	struct trainee_config trainee = setup_trainee(setup, config, replica->layers, dice);
	trainee_init(&replica->trainee, &trainee);
	replica->trainee.gradients = node_averages_gradients(node);
}

void replica_fini(struct replica *replica)
{
	trainee_fini(&replica->trainee);
	free(replica->numbers);
	free(replica->layers);
	free(replica->committed);
	free(replica->published);
	free(replica->told_round);
}

static void cut_layers(struct citizen *member, const struct replica *replica, const struct world_config *config, uint32_t column)
{
	member->layers = memory_take(config->layer_count, sizeof *member->layers);
	for (size_t l = 0; l < config->layer_count; l++) {
		const struct layer *whole = &replica->layers[l];
		size_t begin = ring_shard_begin(whole->size, config->shards, column);
		member->layers[l] = (struct layer){
			.size = ring_shard_size(whole->size, config->shards, column), .theta = whole->theta + begin,
			.anchor = whole->anchor + begin, .momentum = whole->momentum + begin,
			.gradient = whole->gradient + begin, .base = whole->base + begin, .snapshot = whole->snapshot + begin};
	}
}

void citizen_init(struct citizen *member, const struct setup *setup, const struct world_config *config,
		  const struct replica *replica, const struct node_config *node)
{
	struct node_config whole = *node;
	*member = (struct citizen){.tick_us = UINT64_MAX, .deadline_us = UINT64_MAX, .incarnation = node->incarnation};
	cut_layers(member, replica, config, node->column);
	whole.layers = member->layers;
	whole.layer_count = config->layer_count;
	if (node->view <= VIEW_FIRST)
		whole.settings = setup->settings;
	size_t bytes = node_size(&whole);
	member->block = aligned_alloc(64, bytes);
	CHECK(member->block != NULL);
	memset(member->block, 0xa5, bytes); /* the core may not rely on zeros */
	member->node = node_init(member->block, &whole);
}

void citizen_enter(struct citizen *member, const struct world_config *config, const struct node_config *node)
{
	struct node_config whole = *node;
	whole.layers = member->layers;
	whole.layer_count = config->layer_count;
	whole.settings = *node_settings(member->node);
	whole.incarnation = member->incarnation;
	size_t bytes = node_size(&whole);
	void *block = aligned_alloc(64, bytes);
	CHECK(block != NULL);
	memset(block, 0xa5, bytes);
	member->node = node_succeed(block, &whole, member->node);
	memset(member->block, 0x5a, 64); /* nobody may look there any more */
	free(member->block);
	member->block = block;
	member->life++; /* hashes that are owed to the old node */
	memset(member->taken_from_left, 0, sizeof member->taken_from_left);
}

void citizen_connect(struct citizen *member, const struct setup *setup, const struct world_config *config, struct dice *dice)
{
	for (int end = 0; end < ROAD_COUNT; end++) {
		if ((end >= ROAD_ROW_LEFT && config->shards == 1) ||
		    ((end == ROAD_CROSS_LEFT || end == ROAD_CROSS_RIGHT) && config->fanout == config->peers))
			continue; /* leads nowhere */
		member->roads[end] = setup_road(setup, dice);
	}
}

void citizen_fini(struct citizen *member)
{
	free(member->block);
	free(member->layers);
	free(member->ways);
}

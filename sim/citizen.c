/* Making a member from the setup. */

#include <stdlib.h>
#include <string.h>

#include "sim/citizen.h"

static void init_layers(struct citizen *member, const struct setup *setup, size_t layer_count)
{
	size_t total = 0;
	for (size_t l = 0; l < layer_count; l++)
		total += setup->sizes[l];
	member->numbers = calloc(6 * total + 1, sizeof *member->numbers);
	member->layers = calloc(layer_count, sizeof *member->layers);
	CHECK(member->numbers != NULL);
	CHECK(member->layers != NULL);
	float *at = member->numbers;
	for (size_t l = 0; l < layer_count; l++) {
		const size_t size = setup->sizes[l];
		member->layers[l] = (struct layer){.size = size, .theta = at, .anchor = at + size, .momentum = at + 2 * size,
						   .gradient = at + 3 * size, .base = at + 4 * size,
						   .snapshot = at + 5 * size};
		memcpy(at, setup->anchors[l], size * sizeof *at);
		memcpy(at + size, setup->anchors[l], size * sizeof *at);
		at += 6 * size;
	}
}

void citizen_init(struct citizen *member, const struct setup *setup, const struct world_config *config,
		 const struct node_config *node, struct dice *dice)
{
	struct node_config whole = *node;
	*member = (struct citizen){.tick_us = UINT64_MAX, .work_us = UINT64_MAX, .deadline_us = UINT64_MAX,
				   .incarnation = node->incarnation};
	init_layers(member, setup, config->layer_count);
	whole.layers = member->layers;
	whole.layer_count = config->layer_count;
	whole.settings = setup->settings;
	size_t bytes = node_size(&whole);
	member->block = aligned_alloc(64, bytes);
	CHECK(member->block != NULL);
	memset(member->block, 0xa5, bytes); /* the core may not rely on zeros */
	member->node = node_init(member->block, &whole);
	struct trainee_config trainee = setup_trainee(setup, config, member->layers, dice);
	trainee_init(&member->trainee, &trainee);
	member->trainee.gradients = node_averages_gradients(member->node);
	for (int side = 0; side < 2; side++)
		member->roads[side] = setup_road(setup, dice);
}

void citizen_fini(struct citizen *member)
{
	trainee_fini(&member->trainee);
	free(member->block);
	free(member->numbers);
	free(member->layers);
}

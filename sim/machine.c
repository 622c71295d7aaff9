/* Making a node of a scenario, and its lines. */

#include "sim/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/dice.h"
#include "sim/memory.h"

#define SECOND UINT64_C(1000000)
/* Nothing is lost and nobody dies here: that a slow line takes long to answer is no reason to send again or to give up. */
#define NEVER_US (UINT64_C(1000000000) * SECOND)

size_t machine_layer_count(const struct scenario *scenario, const struct tuition *tuition)
{
	return tuition ? tuition_layer_count(tuition) : (size_t)scenario->value[MODEL_LAYERS];
}

size_t machine_layer_size(const struct scenario *scenario, const struct tuition *tuition, size_t layer_index)
{
	const double *value = scenario->value;
	if (tuition)
		return tuition_layer_size(tuition, layer_index);
	if (scenario->layer_sizes)
		return (size_t)round((double)scenario->layer_sizes[layer_index] / value[MODEL_SCALE]);
	return (size_t)fmax(1, round(value[MODEL_PARAMETERS] / value[MODEL_LAYERS] / value[MODEL_SCALE]));
}

/* Gives an array its place if it is needed; returns the next place. */
static float *place(float *at, size_t size, bool is_needed, float **ret_array)
{
	*ret_array = is_needed ? at : NULL;
	return is_needed ? at + size : at;
}

static void init_layers(struct machine *machine, const struct scenario *scenario, const struct tuition *tuition)
{
	const double *setting = scenario->settings.value;
	bool has_gradients = setting[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS || setting[SYNC_WARMUP_STEPS] > 0;
	bool has_base = setting[STRAGGLER_GRACE] > 0, has_snapshot = setting[SYNC_OVERLAP] == OVERLAP_STEPS;
	size_t total = 0, count = machine_layer_count(scenario, tuition);
	for (size_t l = 0; l < count; l++)
		total += machine_layer_size(scenario, tuition, l);
	machine->numbers = memory_take((3 + (size_t)has_gradients + has_base + has_snapshot) * total, sizeof *machine->numbers);
	machine->layers = memory_take(count, sizeof *machine->layers);
	float *at = machine->numbers;
	for (size_t l = 0; l < count; l++) {
		size_t size = machine_layer_size(scenario, tuition, l);
		machine->layers[l] = (struct layer){.size = size, .theta = at, .anchor = at + size, .momentum = at + 2 * size};
		at += 3 * size;
		at = place(at, size, has_gradients, &machine->layers[l].gradient);
		at = place(at, size, has_base, &machine->layers[l].base);
		at = place(at, size, has_snapshot, &machine->layers[l].snapshot);
	}
}

static void init_node(struct machine *machine, const struct scenario *scenario, uint32_t rank, size_t layer_count,
		      const char *const *names, const struct fact *fact)
{
	struct dice dice = dice_at((uint64_t)scenario->value[RUN_SEED], UINT64_MAX, rank);
	struct node_config config = {
		.rank = rank, .member_count = scenario->host_count, .fanout = (uint32_t)scenario->value[NODES_FANOUT],
		.incarnation = dice_bits(&dice) | 1, .names = names,
		.facts = fact, .fact_count = 1, .layers = machine->layers, .layer_count = layer_count,
		.settings = scenario->settings, .heartbeat_us = SECOND, .silence_us = NEVER_US, .retry_us = NEVER_US,
	};
	machine->block = aligned_alloc(64, node_size(&config));
	CHECK(machine->block != NULL);
	machine->node = node_init(machine->block, &config);
}

/* The road to a neighbour, from what the links of both ends allow. */
static struct road road_between(const struct scenario *scenario, uint32_t rank, uint32_t other)
{
	const double *own = scenario->hosts[rank].value, *far = scenario->hosts[other].value;
	double bytes = fmin(own[HOST_BANDWIDTH], far[HOST_BANDWIDTH]) * 1e6 / 8 / scenario->value[MODEL_SCALE];
	return (struct road){.latency_us = (uint64_t)round(1000 * fmax(own[HOST_LATENCY], far[HOST_LATENCY])),
			     .bytes_per_second = (uint64_t)fmax(1, bytes)};
}

void machine_init(struct machine *machine, const struct scenario *scenario, uint32_t rank, struct tuition *tuition,
		  const char *const *names, const struct fact *fact)
{
	*machine = (struct machine){.tick_us = UINT64_MAX, .work_us = UINT64_MAX, .told.name = scenario->hosts[rank].name};
	init_layers(machine, scenario, tuition);
	struct learner_config config = {.rank = rank, .scenario = scenario, .layers = machine->layers, .tuition = tuition,
					.layer_count = machine_layer_count(scenario, tuition)};
	if (tuition)
		tuition_enrol(tuition, rank, machine->layers);
	for (size_t l = 0; l < config.layer_count; l++)
		memcpy(machine->layers[l].anchor, machine->layers[l].theta, machine->layers[l].size * sizeof(float));
	init_node(machine, scenario, rank, config.layer_count, names, fact);
	learner_init(&machine->learner, &config);
	machine->learner.gradients = node_averages_gradients(machine->node);
	machine->is_shared = scenario->hosts[rank].value[HOST_SHARED] > 0;
	const struct places places = scenario_places(scenario);
	for (int end = 0; end < ROAD_COUNT; end++)
		machine->roads[end] = road_between(scenario, rank, places_neighbour(&places, rank, (enum road_end)end));
}

void machine_fini(struct machine *machine)
{
	const struct learner_config *config = &machine->learner.config;
	if (config->tuition)
		tuition_result(config->tuition, config->rank); /* a step may still be under way in this memory */
	learner_fini(&machine->learner);
	free(machine->block);
	free(machine->numbers);
	free(machine->layers);
}

uint64_t machine_send(struct machine *machine, struct machine *neighbour, enum road_end end, size_t size_bytes, uint64_t now_us)
{
	struct road *road = &machine->roads[end];
	struct dice unused = {0};
	bool overtakes;
	if (machine->is_shared)
		road->busy_until_us = u64_max(road->busy_until_us, machine->line_busy_us);
	if (neighbour->is_shared)
		road->busy_until_us = u64_max(road->busy_until_us, neighbour->line_busy_us);
	uint64_t arrival_us = road_send(road, &unused, now_us, size_bytes, &overtakes);
	machine->line_busy_us = u64_max(machine->line_busy_us, road->busy_until_us);
	neighbour->line_busy_us = u64_max(neighbour->line_busy_us, road->busy_until_us);
	return arrival_us;
}

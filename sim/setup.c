/* Drawing a world. Sizes are those at which cutting goes wrong: 0, 1, odd, prime, around multiples of chunk and ring. */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sim/setup.h"

/* Of the numbers of groups that a ring can be cut into one; peers if there is none. */
static uint32_t draw_fanout(struct dice *dice, uint32_t peers)
{
	uint32_t fanout = (uint32_t)dice_between(dice, 2, u64_max(2, peers / 2));
	while (fanout < peers && peers % fanout != 0)
		fanout++;
	return fanout < peers ? fanout : peers;
}

void world_config_draw(struct world_config *config)
{
	struct dice dice = {config->seed ^ UINT64_C(0x636f6e666967)};
	uint64_t size = dice_between(&dice, 0, 9);
	uint64_t peers = size < 6 ? dice_between(&dice, 1, 6) : size < 9 ? dice_between(&dice, 7, 12) :
								    dice_between(&dice, 13, 32);
	/* Of its own dice, so that a ring is drawn as it would be without meshes. */
	struct dice mesh = {config->seed ^ UINT64_C(0x6d657368)};
	bool is_mesh = dice_chance(&mesh, 0.2);
	if (config->shards == 0 && config->peers == 0 && is_mesh) {
		config->shards = (uint32_t)dice_between(&mesh, 2, dice_chance(&mesh, 0.2) ? 8 : 4);
		peers = dice_between(&mesh, 1, config->shards > 4 ? 3 : 5);
	}
	if (config->shards == 0)
		config->shards = 1;
	if (config->peers == 0)
		config->peers = (uint32_t)peers;
	if (config->fanout == 0)
		config->fanout = dice_chance(&mesh, 0.3) ? draw_fanout(&mesh, config->peers) : config->peers;
	bool is_large = config->peers > 12;
	uint64_t layers = dice_between(&dice, 1, is_large ? 2 : 5), rounds = dice_between(&dice, 2, is_large ? 4 : 12);
	if (config->layer_count == 0)
		config->layer_count = layers;
	if (config->rounds == 0)
		config->rounds = rounds;
	unsigned faults = (unsigned)dice_between(&dice, 0, FAULT_DRAWN);
	if (dice_chance(&dice, 0.75))
		faults &= ~(unsigned)(FAULT_CRASH | FAULT_RESTART);
	/* The same for views. */
	struct dice views = {config->seed ^ UINT64_C(0x7669657773)};
	if (dice_chance(&views, 0.3))
		faults |= FAULT_VIEWS;
	if (config->faults == UINT_MAX)
		config->faults = faults;
	if (config->shards > 1 || config->fanout < config->peers || config->peers > VIEW_PEERS_MAX)
		config->faults &= ~(unsigned)FAULT_VIEWS;
	if (config->faults & FAULT_VIEWS) /* has its own */
		config->faults &= ~(unsigned)(FAULT_CRASH | FAULT_RESTART);
	/* Who comes back without its piece, or whose worker dies, stops its whole replica; of who comes back to another group
	 * members only see that nothing moves. */
	if (config->shards > 1)
		config->faults &= ~(unsigned)(FAULT_RESTART | FAULT_DEATH);
	if (config->fanout < config->peers)
		config->faults &= ~(unsigned)FAULT_RESTART;
}

static size_t draw_size(struct dice *dice, size_t chunk, size_t peers)
{
	static const size_t primes[] = {2, 3, 5, 7, 13, 31, 61, 127, 251, 509, 1021};
	size_t cut = chunk * dice_between(dice, 1, 3);
	switch (dice_between(dice, 0, 7)) {
	case 0: return 0;
	case 1: return 1;
	case 2: return 2 * dice_between(dice, 1, 60) + 1;
	case 3: return primes[dice_between(dice, 0, sizeof primes / sizeof primes[0] - 1)];
	case 4: return dice_between(dice, 1, 2 * peers);
	case 5: return cut * size_min(peers, 16);
	case 6: return cut * size_min(peers, 16) + dice_between(dice, 0, 2) - 1;
	default: return dice_between(dice, cut, 4 * cut);
	}
}

static struct ring_settings draw_settings(struct dice *dice)
{
	struct ring_settings settings = ring_settings_standard();
	double *value = settings.value;
	value[SYNC_INTERVAL] = (double)dice_between(dice, 1, 6);
	value[SYNC_PREFETCH] = (double)dice_between(dice, 0, 4);
	value[OUTER_LR] = 0.2 + 0.9 * dice_unit(dice);
	value[OUTER_MOMENTUM] = 0.9 * dice_unit(dice);
	value[PENALTY_ALPHA] = 0.02 + 0.2 * dice_unit(dice);
	value[PENALTY_WARMUP] = (double)dice_between(dice, 1, 4);
	value[PENALTY_PATIENCE] = (double)dice_between(dice, 1, 5);
	value[PENALTY_TEMPERATURE] = 0.05 + 2.0 * dice_unit(dice);
	value[PENALTY_CLIP] = dice_chance(dice, 0.5) ? 10.0 : 0.05 + dice_unit(dice);
	value[WIRE_CHUNK] = (double)(4 * dice_magnitude(dice, 16, 256));
	value[SYNC_OVERLAP] = (double)dice_between(dice, OVERLAP_NONE, OVERLAP_STEPS);
	value[SYNC_EXCHANGE] = dice_chance(dice, 0.2);
	value[SYNC_WARMUP_STEPS] = dice_chance(dice, 0.2) ? (double)dice_between(dice, 1, 5) : 0.0;
	value[STRAGGLER_GRACE] = dice_chance(dice, 0.4) ? 1.0 + dice_unit(dice) : 0.0;
	value[STRAGGLER_MAX_STALE] = (double)dice_between(dice, 1, 6);
	value[SYNC_PERIOD] = dice_chance(dice, 0.2) ? 0.001 * (double)dice_magnitude(dice, 1, 2000) : 0.0;
	value[SYNC_MIN_STEPS] = (double)dice_between(dice, 1, 4);
	value[PENALTY_BY_STEPS] = dice_chance(dice, 0.3);
	/* The period that a-edit presets is longer than most runs; shorter ones are drawn above. */
	enum method method = (enum method)dice_between(dice, 0, METHOD_COUNT - 1);
	value[METHOD] = method == METHOD_A_EDIT ? METHOD_EDIT : method;
	value[WIRE_WINDOW] = (double)dice_magnitude(dice, 1024, 65536);
	return settings;
}

static float *draw_numbers(struct dice *dice, size_t size, float scale)
{
	float *numbers = malloc((size + 1) * sizeof *numbers);
	CHECK(numbers != NULL);
	for (size_t i = 0; i < size; i++)
		numbers[i] = scale * (float)dice_bell(dice);
	return numbers;
}

void setup_init(struct setup *setup, const struct world_config *config, struct dice *dice)
{
	const uint64_t second = 1000000;
	const bool is_jittery = config->faults & FAULT_JITTER;
	*setup = (struct setup){.settings = draw_settings(dice)};
	setup->step_us = dice_magnitude(dice, 2000, 200000);
	setup->latency_us = dice_magnitude(dice, 50, 50000);
	setup->jitter_us = is_jittery ? dice_between(dice, 1, 4 * setup->latency_us) : 0;
	setup->bytes_per_second = dice_magnitude(dice, 100000, 1000000000);
	setup->loss = config->faults & FAULT_LOSS ? 0.1 * dice_unit(dice) * dice_unit(dice) : 0.0;
	setup->repeat = config->faults & FAULT_DUPLICATE ? 0.2 * dice_unit(dice) : 0.0;
	setup->overtake = config->faults & FAULT_REORDER ? 0.2 * dice_unit(dice) : 0.0;
	setup->workers_start_at_once = dice_chance(dice, 0.5);
	uint64_t steps = config->rounds * (uint64_t)setup->settings.value[SYNC_INTERVAL];
	setup->span_us = 2 * second + steps * setup->step_us + config->rounds * config->peers * config->shards * setup->latency_us;
	setup->limit_us = 3600 * second + 100 * setup->span_us + config->rounds * config->layer_count * config->peers * config->shards * second;

	setup->sizes = malloc(config->layer_count * sizeof *setup->sizes);
	setup->anchors = malloc(config->layer_count * sizeof *setup->anchors);
	setup->targets = malloc(config->layer_count * sizeof *setup->targets);
	CHECK(setup->sizes != NULL);
	CHECK(setup->anchors != NULL);
	CHECK(setup->targets != NULL);
	for (size_t l = 0; l < config->layer_count; l++) {
		size_t chunk = (size_t)setup->settings.value[WIRE_CHUNK] / sizeof(float);
		setup->sizes[l] = draw_size(dice, chunk, config->peers);
		setup->anchors[l] = draw_numbers(dice, setup->sizes[l], 0.5f);
		setup->targets[l] = draw_numbers(dice, setup->sizes[l], 0.5f);
	}
}

void setup_fini(struct setup *setup, size_t layer_count)
{
	for (size_t l = 0; l < layer_count; l++) {
		free(setup->anchors[l]);
		free(setup->targets[l]);
	}
	free(setup->sizes);
	free(setup->anchors);
	free(setup->targets);
}

struct trainee_config setup_trainee(const struct setup *setup, const struct world_config *config,
				    const struct layer *layers, struct dice *dice)
{
	struct trainee_config trainee = {
		.layers = layers,
		.targets = (const float *const *)setup->targets,
		.layer_count = config->layer_count,
		.rounds = config->rounds,
		.step_us = setup->step_us,
		.spread = 0.3 * dice_unit(dice),
		.starts_at_once = setup->workers_start_at_once,
		.dice = dice_split(dice),
	};
	if (config->faults & FAULT_SLOW && dice_chance(dice, 0.3))
		trainee.step_us *= dice_between(dice, 2, 20);
	if (config->faults & FAULT_POISON && dice_chance(dice, 0.4))
		trainee.scale_chance = 0.5 * dice_unit(dice);
	if (config->faults & FAULT_DEATH)
		trainee.death_chance = 0.2 * dice_unit(dice);
	if (config->faults & FAULT_NAN && dice_chance(dice, 0.4))
		trainee.nonfinite_chance = dice_unit(dice);
	return trainee;
}

struct road setup_road(const struct setup *setup, struct dice *dice)
{
	return (struct road){
		.latency_us = dice_between(dice, setup->latency_us / 2, 2 * setup->latency_us),
		.jitter_us = setup->jitter_us,
		.bytes_per_second = dice_between(dice, setup->bytes_per_second / 2, 2 * setup->bytes_per_second),
		.loss = setup->loss, .repeat = setup->repeat, .overtake = setup->overtake,
	};
}

static struct change draw_set(struct dice *dice)
{
	struct ring_settings settings = draw_settings(dice);
	struct change change = {.kind = CHANGE_SET, .setting = (uint32_t)dice_between(dice, 0, RING_SETTING_COUNT - 1)};
	change.value = settings.value[change.setting];
	if (dice_chance(dice, 0.1))
		change.value = -1.0;
	else if (dice_chance(dice, 0.05))
		change.setting = RING_SETTING_COUNT;
	return change;
}

struct change setup_change(const struct world_config *config, struct dice *dice)
{
	uint64_t kind = dice_between(dice, 0, 9);
	struct change change = {.kind = kind == 6 || kind == 7 ? CHANGE_PAUSE : CHANGE_CHECKPOINT};
	if (kind < 6)
		change = draw_set(dice);
	if (dice_chance(dice, 0.4))
		change.at_round = dice_between(dice, 1, config->rounds + 1);
	return change;
}

#ifndef EDIT_SIM_SETUP_H
#define EDIT_SIM_SETUP_H

/* What a world is made of before its first event: sizes, settings, speeds, roads, all drawn from the seed. */

#include "core/node.h"
#include "sim/parcel.h"
#include "sim/trainee.h"
#include "sim/world.h"

/* Numbers of one world. Owned by setup_init, released by setup_fini. */
struct setup {
	size_t *sizes;              /* [layer_count] elements */
	float **anchors, **targets; /* [layer_count][size] */
	struct ring_settings settings;
	uint64_t step_us;           /* of an ordinary worker */
	uint64_t span_us;           /* roughly how long the run will take */
	uint64_t limit_us;          /* longer than it can take */
	double loss, repeat, overtake;
	uint64_t latency_us, jitter_us, bytes_per_second; /* of an ordinary road */
	bool workers_start_at_once;
};

/* Draws everything. */
void setup_init(struct setup *setup, const struct world_config *config, struct dice *dice);
/* Releases it. */
void setup_fini(struct setup *setup, size_t layer_count);
/* A worker of the world, the same config for equal dice. layers: its memory. */
struct trainee_config setup_trainee(const struct setup *setup, const struct world_config *config,
				    const struct layer *layers, struct dice *dice);
/* One direction of a connection. */
struct road setup_road(const struct setup *setup, struct dice *dice);
/* A change that somebody may propose, some of them not valid. */
struct change setup_change(const struct world_config *config, struct dice *dice);

#endif

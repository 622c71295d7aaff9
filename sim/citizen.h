#ifndef EDIT_SIM_CITIZEN_H
#define EDIT_SIM_CITIZEN_H

/* One member of a world: its node, its memory, its worker and its roads. Owns all of it. */

#include "sim/setup.h"

struct citizen {
	struct node *node;
	void *block;           /* of the node */
	float *numbers;        /* of all layers */
	struct layer *layers;  /* [layer_count] */
	struct trainee trainee;
	struct road roads[2];  /* to the left, to the right neighbour */
	uint64_t tick_us, work_us; /* the earliest entry in the heap; UINT64_MAX: none */
	uint64_t deadline_us;
	uint64_t taken_from_left; /* frames below have arrived once */
	uint64_t incarnation;
	uint32_t life;         /* how often it has come back */
	bool crashed, finished, stall_noted;
};

/* Makes a member. node: all but layers and settings, which come from the setup; its pointers must outlive the member. */
void citizen_init(struct citizen *member, const struct setup *setup, const struct world_config *config,
		 const struct node_config *node, struct dice *dice);
/* Releases it. */
void citizen_fini(struct citizen *member);

#endif

#ifndef EDIT_SIM_MACHINE_H
#define EDIT_SIM_MACHINE_H

/* One node of a scenario: its part of the ring, its memory, its worker and its lines. Owns all of it. */

#include "core/node.h"
#include "sim/learner.h"
#include "sim/parcel.h"
#include "sim/report.h"

struct machine {
	struct node *node;
	void *block;           /* of the node */
	float *numbers;        /* of all layers */
	struct layer *layers;  /* [layer_count] */
	struct learner learner;
	struct road roads[ROAD_COUNT]; /* where they lead */
	bool is_shared;        /* all neighbours are on one line, */
	uint64_t line_busy_us; /* taken until then */
	uint64_t tick_us, work_us; /* the earliest entry in the heap; UINT64_MAX: none */
	uint64_t deadline_us;
	uint64_t bytes;        /* sent */
	uint64_t steps;        /* done */
	uint64_t offered_round; /* the round that its last offer is for */
	uint64_t compute_since_us; /* begin of the stretch of steps without a wait */
	uint64_t verdicts[VERDICT_COUNT]; /* of its layers, since the run began */
	struct lap told;     /* what report_round has been told, since the run began */
	bool finished;
};

/* Elements of a layer, on the wire and in memory. */
size_t machine_layer_size(const struct scenario *scenario, const struct tuition *tuition, size_t layer_index);
/* Layers of the model. */
size_t machine_layer_count(const struct scenario *scenario, const struct tuition *tuition);

/* Makes the machine of that rank. names [host_count] and fact must outlive it. */
void machine_init(struct machine *machine, const struct scenario *scenario, uint32_t rank, struct tuition *tuition,
		  const char *const *names, const struct fact *fact);
/* Releases it. */
void machine_fini(struct machine *machine);

/* When a message of size_bytes sent now to the neighbour on that road arrives; takes the lines. */
uint64_t machine_send(struct machine *machine, struct machine *neighbour, enum road_end end, size_t size_bytes, uint64_t now_us);

#endif

#ifndef EDIT_SIM_LEARNER_H
#define EDIT_SIM_LEARNER_H

/* A worker in virtual time with the real model's gradients, or with none if only times matter. A step is a forward pass
 * that takes the layers in order, a third of its time, and a backward pass, shared out over layers by their sizes. It
 * offers when told to, and waits for a layer that is not published when its forward pass comes there. The cluster asks it
 * what it does next, and tells it what the node said. */

#include "core/event.h"
#include "sim/tuition.h"

struct learner_config {
	uint32_t rank;
	const struct scenario *scenario;
	const struct layer *layers; /* [layer_count] */
	size_t layer_count;
	struct tuition *tuition;    /* NULL: times only */
};

/* HANDING: the backward pass of a step whose gradients are averaged; MEAN: waits for the means. */
enum learner_place { LEARNER_BOUNDARY, LEARNER_FORWARD, LEARNER_BACKWARD, LEARNER_HANDING, LEARNER_MEAN };

/* What its time went into, microseconds. */
struct learner_times {
	uint64_t compute_us;
	uint64_t exposed_us; /* waited while the round was on its way */
	uint64_t waiting_us; /* waited for others to offer */
};

struct learner {
	struct learner_config config;
	enum learner_place place;
	double *shares;         /* [layer_count + 1] part of the elements that stand before the layer */
	bool *held;             /* [layer_count] published: the worker may use it */
	size_t position;        /* layer that the forward pass has reached */
	uint64_t clock_us;      /* when it reached it */
	uint64_t wake_us;       /* when learner_advance has something to do; UINT64_MAX: when told something */
	uint64_t begin_us, step_us, forward_us; /* of the present step; step_us with backward, without waits */
	bool whole;             /* goes on with all layers only: sync.overlap = none */
	size_t wants;           /* layer that the wait has been told for; layer_count: none */
	uint64_t number;        /* steps begun since the run began */
	uint64_t steps;         /* done since the last offer */
	uint64_t schedule;      /* steps after which to offer; UINT64_MAX: not told yet */
	uint64_t exposed_us;    /* waited since the last offer, for whatever reason */
	bool gradients;         /* those of each step are averaged */
	bool is_averaging;      /* so are those of the step in progress, */
	bool is_usable;         /* and all their means so far are finite */
	bool has_averaged;      /* and so were those of the step before */
	bool has_announced;     /* the step in progress is the last */
	size_t given;           /* layer whose gradient is handed over */
	bool started, stopped;
	bool is_last;           /* the budget is used up: offers at its next boundary, for the last time */
	bool has_offered_last;  /* it has done so */
	bool is_collecting;     /* the present pass is for the layers of the last round alone */
	bool is_computing;      /* the step has all layers, and the real one has begun */
	double loss_sum;        /* of the steps since the last offer */
	struct learner_times times; /* since the run began */
};

enum learner_deed {
	LEARNER_NOTHING, /* until wake_us, or until told something */
	LEARNER_STEPS,   /* a step is done; ask again */
	LEARNER_OFFERS,  /* *ret_offer is filled in; ask again */
	LEARNER_WANTS,   /* layer `wants`; ask again */
	LEARNER_GIVES    /* gradient of layer `given`; ask again */
};

/* A learner at its first boundary; takes memory. What config points to must outlive it. */
void learner_init(struct learner *learner, const struct learner_config *config);
/* Releases it. */
void learner_fini(struct learner *learner);
/* Tokens of one step. */
uint64_t learner_tokens(const struct learner *learner);
/* Goes on as far as it can at now_us. */
enum learner_deed learner_advance(struct learner *learner, uint64_t now_us, struct offer *ret_offer);
/* The node has published a layer. moved_us: when the round it belongs to began to move, all having offered; what was waited
 * before that was for others. Returns how long the learner has waited for this layer until now, 0 if it did not. */
uint64_t learner_publish(struct learner *learner, size_t layer_index, enum verdict verdict, uint64_t moved_us, uint64_t now_us);
/* The node schedules the next offer (0: the run ends), and whether gradients are averaged from the next step on. */
void learner_schedule(struct learner *learner, uint64_t steps, bool gradients);

#endif

#ifndef EDIT_SIM_TRAINEE_H
#define EDIT_SIM_TRAINEE_H

/* A simulated worker. It steps at a speed of its own and pulls theta towards a target that all share, with noise of its own;
 * it offers when told to, and waits for a layer that is not published when its forward pass comes there. It never touches theta
 * of a layer between offer and publish. Where gradients are averaged its inner optimiser has momentum and a rate that follows from the
 * step, so that members which step differently soon hold different thetas. The world asks it what it does next and tells it what the
 * node said. */

#include "core/event.h"
#include "core/layer.h"
#include "sim/dice.h"

/* HANDING: the backward pass of a step whose gradients are averaged; MEAN: waits for the means. */
enum trainee_place { TRAINEE_BOUNDARY, TRAINEE_FORWARD, TRAINEE_BACKWARD, TRAINEE_HANDING, TRAINEE_MEAN };

enum poison { POISON_NONE, POISON_SCALE, POISON_NAN, POISON_INFINITY };

struct trainee_config {
	const struct layer *layers;  /* [layer_count]; theta is changed here */
	const float *const *targets; /* [layer_count][size] */
	size_t layer_count;
	uint64_t rounds;             /* the last step is the one before offer number `rounds` */
	uint64_t step_us;            /* mean duration of a step */
	double spread;               /* of a duration: factor in [1 - spread, 1 + spread] */
	double scale_chance, nonfinite_chance; /* that a layer is poisoned, each round */
	double death_chance;         /* of each step whose gradients are handed over */
	bool starts_at_once;         /* steps before the ring is complete */
	struct dice dice;
};

struct trainee {
	struct trainee_config config;
	enum trainee_place place;
	bool *held;          /* [layer_count] published: the worker may use it */
	size_t position;     /* layer that the forward pass has reached */
	uint64_t clock_us;   /* when it reached it */
	uint64_t wake_us;    /* when trainee_advance has something to do; UINT64_MAX: when told something */
	uint64_t layer_us, backward_us; /* of the present step */
	bool whole;          /* goes on with all layers only: sync.overlap = none */
	bool ended;          /* has made its last offer */
	bool gradients;      /* hands over the gradients of each step */
	bool realign;        /* has died since the last offer: theta may be anything */
	bool is_dying;       /* in this step */
	bool usable;         /* all means of this step were */
	uint64_t deaths;
	size_t wants;        /* layer that the wait has been told for; layer_count: none */
	size_t given;        /* layer whose gradient is handed over */
	bool is_dead;        /* the worker is, this layer's gradient was not finished */
	uint64_t steps;      /* since the last offer */
	uint64_t done;       /* steps of its life */
	uint64_t lead;       /* steps that the run is ahead of it */
	float **inner;       /* [layer_count][size] momentum of averaged gradients */
	bool is_averaging;   /* the inner state is that of averaged gradients: nothing was offered but those since it began */
	uint64_t schedule;   /* steps after which to offer; UINT64_MAX: not told yet */
	uint64_t offers;
	uint64_t exposed_us; /* waited since the last offer */
	bool started, paused, stopped;
	double loss_sum;
};

enum trainee_deed {
	TRAINEE_NOTHING, /* until wake_us, or until told something */
	TRAINEE_OFFERS,  /* *ret_offer is filled in; ask again */
	TRAINEE_WANTS,   /* layer `wants`; ask again */
	TRAINEE_GIVES    /* gradient of layer `given`, or none if is_dead; ask again */
};

/* A trainee at its first boundary; takes memory. */
void trainee_init(struct trainee *trainee, const struct trainee_config *config);
/* It has died, and the next worker goes on with what it has left: a step whose gradients it has begun to hand over counts as done, any
 * other is done again. */
void trainee_resume(struct trainee *trainee);
/* Whether it is amid a step whose gradients are averaged. */
bool trainee_is_handing(const struct trainee *trainee);
/* Whether it has begun to hand a layer's gradient over in this step. */
bool trainee_has_handed(const struct trainee *trainee, size_t layer_index);
/* The others align at this step: it steps as if it had done so many. */
void trainee_align(struct trainee *trainee, uint64_t step);
/* It has no theta: it waits until every layer has been published. */
void trainee_wait(struct trainee *trainee);
/* Releases it. */
void trainee_fini(struct trainee *trainee);
/* Goes on as far as it can at now_us. */
enum trainee_deed trainee_advance(struct trainee *trainee, uint64_t now_us, struct offer *ret_offer);
/* The node has published a layer; verdict: on the mean, with gradients. */
void trainee_publish(struct trainee *trainee, size_t layer_index, enum verdict verdict, uint64_t now_us);
/* The node schedules the next offer (0: the run ends). */
void trainee_schedule(struct trainee *trainee, uint64_t steps, bool gradients);

#endif

#ifndef EDIT_WORKER_MEMBER_H
#define EDIT_WORKER_MEMBER_H

/* The model as a member of a ring: described to the daemon, its parameters in the daemon's memory, its layers taken
 * and given back as the ring needs them. */

#include "worker/edit_worker.h"
#include "worker/origin.h"
#include "worker/train_options.h"

struct member {
	struct edit_worker *worker;
	struct llama *llama;        /* bound to the worker's theta */
	struct adamw_piece *pieces; /* [layer_count] what is stepped here: theta and inner state are the worker's memory */
	unsigned layer_count;
	bool is_sharded;  /* other nodes step other pieces: layers pass by, and gradients go to the daemon after every pass */
	bool ends_step;   /* the pass is the last of its step: its gradients are whole */
	bool is_final;    /* that step is the last */
	bool is_handing;  /* the gradients of this step have gone to the daemon */
	int handed;       /* result of libedit-worker when they were handed over */
};

/* Exit status that stands for a negative result of libedit-worker. */
int member_status(int result);

/* Describes the model of origin with the facts that all members must share: run, model, data type, initial
 * parameters, seed, context, held-out part, steps. EDIT_ERROR_* and one line on failure. The worker stays the
 * caller's. */
int member_describe(struct edit_worker *worker, const struct origin *origin, const struct train_options *options,
		    char *error, size_t error_size);

/* After attach: makes the model, binds it and, unless an earlier worker's numbers are there, fills it from origin and
 * says that it is ready. Result of libedit-worker, or EDIT_WORKER_SYSTEM with a line in error. The member must stay
 * where it is. */
int member_init(struct member *member, struct edit_worker *worker, const struct origin *origin,
		const struct train_options *options, char *error, size_t error_size);
/* Before the first pass of a step: its gradients begin at zero. is_final: no step follows. */
void member_begin(struct member *member, bool is_final);
/* If the gradients of the step were handed over: waits for their means. Result of libedit-worker. */
int member_average(struct member *member);
/* AdamW on the pieces; rate and number as for adamw_begin. ret_norm: of the gradient of the whole model, before clipping; if
 * it is not finite nothing else is changed. Result of libedit-worker. */
int member_step(struct member *member, const struct adamw *adamw, double rate, uint64_t number, double *ret_norm);
/* Leaves a NaN in the middle of this member's piece of a layer; none if that is empty. */
void member_spoil(struct member *member, unsigned layer);
/* Frees all but the worker, which stays. */
void member_fini(struct member *member);

#endif

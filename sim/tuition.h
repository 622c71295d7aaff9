#ifndef EDIT_SIM_TUITION_H
#define EDIT_SIM_TUITION_H

/* The real model behind the virtual workers: gradients, optimiser steps and held-out loss, as jobs on threads. A thread has
 * one model, which is bound to a pupil's parameters for the length of a job; so results do not depend on how many threads
 * there are.
 *
 *     tuition_open -> tuition_enrol (each pupil) -> for each step: tuition_step, tuition_result
 *     with averaged gradients instead: tuition_gradient, tuition_result, the mean in its place, tuition_apply,
 * tuition_result */

#include "sim/pool.h"
#include "sim/scenario.h"
#include "worker/adamw.h"
#include "worker/corpus.h"

struct tuition;

/* What is the matter with a step. */
struct ailment {
	double factor;     /* moves so many times as far, or that many times the gradient; 1: healthy */
	bool is_shuffled;  /* the tokens of each sample in random order */
	bool leaves_nan;   /* in the middle layer */
};

/* Outcome of a step's forward and backward. */
struct outcome {
	double loss;    /* nats per token */
	double norm;    /* of the gradient before clipping; after tuition_step or tuition_apply */
	bool is_finite; /* otherwise no step was taken; as norm */
};

/* Opens model and data of the scenario, with as many models as threads. NULL: why is one line, *ret_error its code.
 * scenario must outlive it. */
struct tuition *tuition_open(const struct scenario *scenario, unsigned thread_count, int *ret_error, struct line *why);
/* Waits for what is under way and releases it all. NULL is allowed. */
void tuition_close(struct tuition *tuition);

/* Layers of the model, elements of one. */
size_t tuition_layer_count(const struct tuition *tuition);
size_t tuition_layer_size(const struct tuition *tuition, size_t layer_index);
/* Begins pupil rank: fills theta of its layers with the initial parameters (drawn by the seed, or from [model] start), and
 * trains it from now on. layers
 * [layer_count], with gradient if there is to be a tuition_gradient, must outlive it. */
void tuition_enrol(struct tuition *tuition, uint32_t rank, const struct layer *layers);

/* Begins a whole step with that number, counted from 1: gradient, then AdamW on theta. */
void tuition_step(struct tuition *tuition, uint32_t rank, uint64_t number, struct ailment ailment);
/* Begins one that ends with the gradient in the layers' `gradient`. */
void tuition_gradient(struct tuition *tuition, uint32_t rank, uint64_t number, struct ailment ailment);
/* AdamW on theta with what is there, which must stay: done with the pupil's next job, or by tuition_result. */
void tuition_apply(struct tuition *tuition, uint32_t rank, uint64_t number);
/* Waits for everything that was begun for the pupil, and tells its outcome. */
struct outcome tuition_result(struct tuition *tuition, uint32_t rank);
/* Forgets the optimiser's state: steps from that number on count as its first. Nothing may be under way. */
void tuition_restart(struct tuition *tuition, uint32_t rank, uint64_t number);
/* Forgets that of one layer; nothing may be under way. */
void tuition_forget(struct tuition *tuition, uint32_t rank, size_t layer_index);

/* Begins measuring the held-out loss of the anchors in layers [layer_count], which are copied; waits for the measurement
 * before. */
void tuition_examine(struct tuition *tuition, const struct layer *layers);
/* Whether tuition_mark would not wait. */
bool tuition_has_mark(struct tuition *tuition);
/* Waits for the measurement; nats per token. */
double tuition_mark(struct tuition *tuition);

/* Leaves the anchors in layers [layer_count] as a Llama folder, made if it is not there: config.json as it was given, and
 * model.safetensors in float32. The same numbers give the same bytes. EDIT_ERROR_SYSTEM: why is one line. */
int tuition_save(const struct tuition *tuition, const struct layer *layers, const char *folder, struct line *why);

#endif

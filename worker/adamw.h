#ifndef EDIT_WORKER_ADAMW_H
#define EDIT_WORKER_ADAMW_H

/* The inner optimiser: AdamW with clipping by the global norm, and the schedule of its learning rate. Works layer by
 * layer on the caller's memory, so that each change can be bracketed (hooks step_begin, step_end). */

#include "worker/llama.h"

struct adamw {
	double beta1, beta2;
	double eps;
	double weight_decay; /* decoupled; matrices only */
	double clip_norm;    /* largest norm of the gradient of all layers together; 0: no clipping */
};

/* 0.9, 0.95, 1e-8, 0.1, clip 1. */
struct adamw adamw_standard(void);

/* Linear warm-up, then a half cosine from peak to floor, then floor. */
struct schedule {
	double peak, floor;
	uint64_t warmup_steps;
	uint64_t total_steps; /* the first step with floor; at least warmup_steps */
};

/* Learning rate of the step with that index, counted from 0: peak (step + 1) / warmup_steps during warm-up. */
double schedule_rate(const struct schedule *schedule, uint64_t step);

/* One step with the gradients that the model holds, on theta and inner of every layer (llama_bind), in layer order.
 * number counts steps from 1 (bias correction); rate is the learning rate. As torch.nn.utils.clip_grad_norm_
 * followed by torch.optim.AdamW:
 *
 *     g *= min(1, clip_norm / (norm + 1e-6));  theta *= 1 - rate x weight_decay;  m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2;  theta -= rate / (1 - beta1^number) x m / (sqrt(v / (1 - beta2^number)) + eps)
 *
 * ret_norm is the norm before clipping. If it is not finite nothing is changed, no hook is called, and the result is
 * false (ret_norm is written all the same). */
bool llama_step(struct llama *model, const struct adamw *adamw, double rate, uint64_t number, double *ret_norm);

#endif

#ifndef EDIT_WORKER_ADAMW_H
#define EDIT_WORKER_ADAMW_H

/* The inner optimiser: AdamW with clipping by the global norm, and the schedule of its learning rate. Works on the
 * caller's memory, on one piece of each layer: the whole layer, or the part that one of several nodes steps.
 *
 *     adamw_square_sum, the sum of it over all nodes that step pieces of this model, the root
 *       -> adamw_begin -> adamw_step_piece for each layer, which the caller may bracket
 *
 * or, where the pieces are whole layers and nothing happens between them, adamw_step. */

#include "worker/kernels.h"
#include "worker/llama_layout.h"

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

/* Elements [first, first + count) of a layer, and where their numbers are. All memory is the caller's; count may be 0. */
struct adamw_piece {
	size_t first, count;
	float *theta;    /* [count] */
	float *inner;    /* [2 x count]: m of all elements, then v */
	float *gradient; /* [count] */
};

/* Sum of squares of the gradients of pieces [piece_count], one piece after the other. */
double adamw_square_sum(const struct adamw_piece *pieces, unsigned piece_count);

/* Settles a step: norm is that of the gradient of all layers together, before clipping; rate is the learning rate;
 * number counts steps from 1 (bias correction). False if norm is not finite: then no step may be taken, and ret_update
 * is as it was. As torch.nn.utils.clip_grad_norm_ followed by torch.optim.AdamW:
 *
 *     g *= min(1, clip_norm / (norm + 1e-6));  theta *= 1 - rate x weight_decay;  m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2;  theta -= rate / (1 - beta1^number) x m / (sqrt(v / (1 - beta2^number)) + eps)
 *
 */
bool adamw_begin(const struct adamw *adamw, double norm, double rate, uint64_t number, struct adamw_update *ret_update);

/* Steps the piece of that layer; weight decay goes to the elements of matrices alone. Each element comes out the same to
 * the bit, however the layer is cut. */
void adamw_step_piece(const struct llama_config *config, unsigned layer, const struct adamw_piece *piece,
		      const struct adamw_update *update);

/* A whole step of pieces [llama_layer_count], which together are the model: the three above in layer order. ret_norm is
 * the norm before clipping; false, and nothing changed but ret_norm, if it is not finite. */
bool adamw_step(const struct llama_config *config, const struct adamw_piece *pieces, const struct adamw *adamw,
		double rate, uint64_t number, double *ret_norm);

#endif

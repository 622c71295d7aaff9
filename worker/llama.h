#ifndef EDIT_WORKER_LLAMA_H
#define EDIT_WORKER_LLAMA_H

/* A Llama decoder on the CPU in float32: loss, gradients, evaluation and generation.
 *
 *     llama_new -> llama_bind (each layer) -> for each step:
 *         llama_gradient_zero, llama_accumulate for each micro batch, then AdamW (worker/adamw.h)
 *
 * Parameters belong to the caller, one block per layer (worker/llama_layout.h), and are read between a layer's acquire
 * and release alone, so that layers may pass by: bound anew at each acquire. Gradients and activations belong to
 * the model, in one block taken by llama_new. Nothing is allocated afterwards. One thread uses a model at a time;
 * matrix products use the threads set by kernels_set_threads (worker/kernels.h).
 *
 * Architecture as Hugging Face's LlamaForCausalLM: RMSNorm, rotary embedding in the rotate-half layout,
 * grouped-query attention, SwiGLU, output head tied to the embedding or of its own. Memory for attention and for the
 * logits is linear in time and vocabulary: neither a time x time nor a batch x vocabulary array is ever kept. */

#include "worker/llama_layout.h"

/* How the model tells that it is about to use a layer's parameters and has done so. In forward order, then, if
 * gradients are wanted, backwards. A layer is held from acquire to release; a tied embedding is held from the begin
 * of the forward until the loss is done; the last layer does forward and backward in one go, and the backward of the
 * embedding needs no parameters. Any function may be NULL. A nonzero result of acquire ends the pass at once and is
 * its result; all layers held are released. */
struct llama_hooks {
	int (*acquire)(void *arg, unsigned layer); /* may call llama_bind for the layer */
	void (*release)(void *arg, unsigned layer);
	void (*gradient_done)(void *arg, unsigned layer); /* backwards, after release: this pass adds nothing more to the layer's */
	void *arg;
};

/* What a model is made for: these bound its memory. */
struct llama_limits {
	unsigned batch;      /* sequences at once, at least 1 */
	unsigned time;       /* tokens of a sequence, at least 1 */
	unsigned cache_time; /* positions of the cache for llama_extend; 0: none */
	bool training;       /* gradients wanted */
	bool passing;        /* gradients of one layer at a time, see llama_gradient; only with training */
};

struct llama;

/* A new model without parameters. config must hold what struct llama_config states. Fails with EDIT_ERROR_SYSTEM if
 * memory is short, EDIT_ERROR_RANGE if a size does not fit. The caller frees it with llama_free. */
int llama_new(const struct llama_config *config, const struct llama_limits *limits, struct llama **ret_model);
/* NULL is allowed. */
void llama_free(struct llama *model);

/* The config that it was made with. */
const struct llama_config *llama_config_of(const struct llama *model);
/* Bytes of the block of gradients, activations and cache. */
size_t llama_memory_bytes(const struct llama *model);

/* Names the parameters of a layer, theta, float32 [llama_layer_size]. They stay the caller's, and must be there whenever
 * the layer is held (struct llama_hooks). */
void llama_bind(struct llama *model, unsigned layer, const float *theta);

/* Copies hooks; NULL: none (as after llama_new). */
void llama_set_hooks(struct llama *model, const struct llama_hooks *hooks);

/* float32 [llama_layer_size]: sum of what llama_accumulate added since llama_gradient_zero. Only with limits.training.
 *
 * With limits.passing it is what one llama_accumulate alone makes, and is there only during the hook gradient_done of
 * that layer: all layers share the memory of the largest, but a tied embedding, which gathers from the loss on, has its
 * own. */
float *llama_gradient(const struct llama *model, unsigned layer);
/* With limits.passing it does nothing: llama_accumulate zeroes by itself. */
void llama_gradient_zero(struct llama *model);

/* In the functions below, tokens is [batch x (time + 1)]: of each row the first `time` are the input, the last
 * `time` the targets. batch and time are at least 1 and at most as in the limits; every token is < vocab_size (the
 * caller has checked that). */

/* Forward, mean cross-entropy in nats per token, backward. Adds weight x d(mean loss)/d(theta) to the gradients, so
 * a step cut into n equal micro batches uses weight 1/n. Result 0, or that of the acquire hook; then the gradients
 * hold a part of the sum and must be zeroed. */
int llama_accumulate(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, double weight,
		     double *ret_loss);

/* Forward and mean cross-entropy only. */
int llama_evaluate(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, double *ret_loss);

/* Forward only: ret_logits is [batch x time x vocab_size]. Here tokens is [batch x time]. For tests and inspection. */
int llama_logits(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, float *ret_logits);

/* ---- Generation of one sequence, with a cache of keys and values (limits.cache_time > 0) ---- */

/* Forgets the sequence: the next llama_extend begins at position 0. */
void llama_rewind(struct llama *model);
/* Tokens in the cache. */
unsigned llama_position(const struct llama *model);
/* Appends count >= 1 tokens; ret_logits is [vocab_size], for the token to come. EDIT_ERROR_FULL if the cache has no
 * room for them (nothing changed), or the result of the acquire hook. */
int llama_extend(struct llama *model, const uint32_t *tokens, unsigned count, float *ret_logits);
/* Draws a token from softmax(logits / temperature) with uniform in [0, 1) as the chance; temperature 0: the most
 * likely one (the lowest index of equals). */
uint32_t llama_choose(const float *logits, unsigned vocab_size, double temperature, double uniform);

/* ---- Initial parameters ---- */

/* Fills theta of a layer from the seed: matrices normal with deviation 0.02, those that write into the residual
 * stream (o, down) with 0.02 / sqrt(2 layer_count), norms 1. Each element depends on seed, tensor and its index
 * alone, and is the same to the bit on every machine. */
void llama_init(const struct llama_config *config, unsigned layer, uint64_t seed, float *ret_theta);

#endif

#ifndef EDIT_WORKER_LLAMA_MODEL_H
#define EDIT_WORKER_LLAMA_MODEL_H

/* Inside of struct llama, for the files that implement worker/llama.h: llama.c (memory), llama_forward.c
 * (also generation) and llama_backward.c. All arrays are float32, row-major, parts of one block; `rows` is batch x time,
 * a row is one token. */

#include "worker/attention.h"
#include "worker/llama.h"

/* What a decoder block's forward leaves for its backward. Without training all blocks share one set. */
struct saved {
	float *input;     /* [rows, hidden] residual stream before the block */
	float *rstd_1;    /* [rows] */
	float *qkv;       /* [rows, qkv_width] after the rotary embedding: q heads, k heads, v heads */
	float *attended;  /* [rows, query_width] */
	float *log_sum;   /* [rows, head_count] */
	float *middle;    /* [rows, hidden] residual stream between attention and MLP */
	float *rstd_2;    /* [rows] */
	float *gate_up;   /* [rows, 2 intermediate]; the backward writes its gradient over it */
};

/* Elements from the begin of a decoder block's parameters, or of the last layer's. */
struct offsets {
	size_t norm_1, qkv, o, norm_2, gate_up, down;
	size_t norm, head;
};

struct llama {
	struct llama_config config;
	struct llama_limits limits;
	struct llama_hooks hooks;
	struct offsets at;
	unsigned layer_count, block_count;
	size_t hidden, intermediate;
	size_t query_width, kv_width, qkv_width; /* heads x head_dim: of q; of k; of q, k and v together */
	size_t row_limit;                        /* limits.batch x limits.time */
	size_t position_limit;                   /* positions with rotary angles */
	size_t chunk_rows;                       /* rows that pass through a chain of operations at a time */
	size_t logit_rows;                       /* rows whose logits exist at a time */

	const float **theta; /* [layer_count] the caller's */
	float **gradient;    /* [layer_count]; with limits.passing many are the same */
	struct saved *saved; /* [block_count] */

	float *final, *final_rstd;          /* [rows, hidden] residual stream after the last block; [rows] */
	float *normal;                      /* [chunk_rows or logit_rows, hidden] result of the norm at hand */
	float *activation;                  /* [chunk_rows, intermediate] of the MLP at hand, or its gradient */
	float *logits;                      /* [logit_rows, vocab_size], or their gradient */
	float *cosines, *sines;             /* [position_limit, head_dim / 2] */
	float *scratch;                     /* of the attention */
	float *d_residual;                  /* [rows, hidden] gradient, like the next three only with training */
	float *d_normal;                    /* as normal */
	float *d_attended, *d_qkv;          /* [rows, query_width], [rows, qkv_width] */

	float *cache;      /* [block_count, limits.cache_time, 2 kv_width]: of each row k, then v */
	unsigned position; /* rows of it in use */

	float *block; /* everything above but the arrays of pointers */
	size_t block_bytes;
};

/* The tokens of one pass through the model. */
struct pass {
	const uint32_t *tokens; /* row (b, t) is tokens[b x token_stride + t] */
	size_t token_stride;
	size_t batch, time, rows;
	bool is_cached; /* continues the sequence in the cache; batch is 1 */
};

/* Where the token of a row is. If the pass has targets, the row's is the one behind it. */
static inline const uint32_t *pass_token(const struct pass *pass, size_t row)
{
	return pass->tokens + row / pass->time * pass->token_stride + row % pass->time;
}

/* d_residual += gradient through a norm, for the rows from first on. input: the norm's, [rows, hidden] and rstd
 * [rows] of the whole pass; its weights lie at offset in the layer; d_normal holds the gradient to its result. */
void llama_norm_backward(struct llama *model, unsigned layer, size_t offset, const float *rstd, const float *input,
			 size_t first, size_t rows);

/* Asks for and gives back a layer's parameters by the hooks. */
int llama_hold(const struct llama *model, unsigned layer);
void llama_drop(const struct llama *model, unsigned layer);

/* The parts that training and evaluation share, in llama_forward.c. */

/* From tokens to model->final. On success a tied embedding is still held, for the head; on failure nothing is. */
int llama_forward(struct llama *model, const struct pass *pass);
/* Holds what the head needs besides; on failure nothing is held any more. */
int llama_hold_head(struct llama *model);
/* Gives back the last layer and, if tied, the embedding. */
void llama_drop_head(struct llama *model);
/* The output matrix [vocab_size, hidden] and where its gradient is. */
const float *llama_head(const struct llama *model);
float *llama_head_gradient(const struct llama *model);
/* Mean cross-entropy over the pass, whose tokens have their targets one place behind. scale 0: nothing else.
 * Otherwise adds scale x gradient to those of the last layer and of the head, and writes to d_residual the gradient
 * to `final`. */
double llama_loss(struct llama *model, const struct pass *pass, double scale);
/* The pass of a batch with targets. */
struct pass llama_pass(const struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time);

#endif

#ifndef EDIT_WORKER_ATTENTION_H
#define EDIT_WORKER_ATTENTION_H

/* Causal self-attention of one sequence with grouped heads, tile by tile: the scores of ATTENTION_TILE queries
 * against the keys that they may see are the only ones that exist at a time. The forward keeps one number for each
 * query and head, the log-sum-exp of its scores; the backward makes the scores again from it (Dao et al. 2022,
 * FlashAttention, section 3.1). */

#include "worker/kernels.h"

enum { ATTENTION_TILE = 64 };

struct attention {
	unsigned head_count, kv_head_count, head_dim;
	size_t query_count; /* rows of q, out and log_sum */
	size_t past;        /* keys before the first query: query i sees the keys [0, past + i] */
	float *scratch;     /* [attention_scratch_size] */

	/* inputs, after the rotary embedding. Head h of row r begins at data + r x stride + h x head_dim */
	struct const_matrix q;    /* [query_count, head_count x head_dim] */
	struct const_matrix k, v; /* [past + query_count, kv_head_count x head_dim] */
};

/* Elements of scratch for so many keys at most. */
size_t attention_scratch_size(size_t key_count);

/* out[query_count, head_count x head_dim] = softmax(q k^T / sqrt(head_dim)) v; log_sum[query_count, head_count]. */
void attention_forward(const struct attention *attention, struct matrix out, float *ret_log_sum);

/* Gradients of a pass with past = 0, given the forward's log_sum, and the gradient to its result, dout. Writes (does
 * not add to) dq, dk and dv, which have the shapes of q, k and v. */
void attention_backward(const struct attention *attention, const float *log_sum, struct const_matrix dout,
			struct matrix dq, struct matrix dk, struct matrix dv);

#endif

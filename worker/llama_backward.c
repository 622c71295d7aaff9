/* Gradients: the forward's steps backwards. The norms and the activation are made again rather than kept: they cost
 * little beside the matrix products, and memory much. */

#include "worker/llama_model.h"

#include <string.h>

/* A linear map y = normal w^T, given dy in d: dw += d^T normal, d_normal = d w. w: [width, hidden] at offset in the
 * layer. */
static void linear_backward(struct llama *model, unsigned layer, size_t offset, const float *d, size_t rows,
			    size_t width)
{
	size_t hidden = model->hidden;
	matmul_tn(matrix(model->gradient[layer] + offset, hidden), const_matrix(d, width),
		  const_matrix(model->normal, hidden), width, hidden, rows, 1);
	matmul_nn(matrix(model->d_normal, hidden), const_matrix(d, width),
		  const_matrix(model->theta[layer] + offset, hidden), rows, hidden, width, 0);
}

static void mlp_backward(struct llama *model, unsigned block, size_t first, size_t rows)
{
	unsigned layer = block + 1;
	const float *w = model->theta[layer];
	const struct offsets *at = &model->at;
	const struct saved *s = &model->saved[block];
	size_t hidden = model->hidden, width = model->intermediate;
	struct const_matrix d = const_matrix(model->d_residual + first * hidden, hidden);
	float *gate_up = s->gate_up + first * 2 * width;

	matmul_nn(matrix(model->activation, width), d, const_matrix(w + at->down, width), rows, width, hidden, 0);
	swiglu_backward(model->activation, gate_up, rows, width);
	matmul_tn(matrix(model->gradient[layer] + at->down, width), d, const_matrix(model->activation, width), hidden,
		  width, rows, 1);
	rms_norm_again(model->normal, s->rstd_2 + first, s->middle + first * hidden, w + at->norm_2, rows, hidden);
	linear_backward(model, layer, at->gate_up, gate_up, rows, 2 * width);
	llama_norm_backward(model, layer, at->norm_2, s->rstd_2, s->middle, first, rows);
}

/* d_attended, and the gradient of o. */
static void o_backward(struct llama *model, unsigned block, size_t first, size_t rows)
{
	size_t hidden = model->hidden, width = model->query_width;
	struct const_matrix d = const_matrix(model->d_residual + first * hidden, hidden);
	matmul_nn(matrix(model->d_attended + first * width, width), d,
		  const_matrix(model->theta[block + 1] + model->at.o, width), rows, width, hidden, 0);
	matmul_tn(matrix(model->gradient[block + 1] + model->at.o, width), d,
		  const_matrix(model->saved[block].attended + first * width, width), hidden, width, rows, 1);
}

static void qkv_backward(struct llama *model, unsigned block, size_t first, size_t rows)
{
	unsigned layer = block + 1;
	const struct saved *s = &model->saved[block];
	rms_norm_again(model->normal, s->rstd_1 + first, s->input + first * model->hidden,
		       model->theta[layer] + model->at.norm_1, rows, model->hidden);
	linear_backward(model, layer, model->at.qkv, model->d_qkv + first * model->qkv_width, rows, model->qkv_width);
	llama_norm_backward(model, layer, model->at.norm_1, s->rstd_1, s->input, first, rows);
}

/* d_qkv from d_attended, before the rotary embedding. */
static void attend_backward(struct llama *model, unsigned block, const struct pass *pass)
{
	const struct llama_config *config = &model->config;
	const struct saved *s = &model->saved[block];
	size_t stride = model->qkv_width, to_k = model->query_width, to_v = to_k + model->kv_width;
	for (size_t sequence = 0; sequence < pass->batch; sequence++) {
		size_t first = sequence * pass->time;
		const float *qkv = s->qkv + first * stride;
		float *d_qkv = model->d_qkv + first * stride;
		struct attention attention = {
			.head_count = config->head_count,
			.kv_head_count = config->kv_head_count,
			.head_dim = config->head_dim,
			.query_count = pass->time,
			.scratch = model->scratch,
			.q = const_matrix(qkv, stride),
			.k = const_matrix(qkv + to_k, stride),
			.v = const_matrix(qkv + to_v, stride),
		};
		attention_backward(&attention, s->log_sum + first * config->head_count,
				   const_matrix(model->d_attended + first * model->query_width, model->query_width),
				   matrix(d_qkv, stride), matrix(d_qkv + to_k, stride), matrix(d_qkv + to_v, stride));
		rope(matrix(d_qkv, stride), model->cosines, model->sines, pass->time,
		     config->head_count + config->kv_head_count, config->head_dim / 2, -1);
	}
}

/* In d_residual, from the gradient to the block's output to that to its input; chunk by chunk as block_forward. */
static void block_backward(struct llama *model, unsigned block, const struct pass *pass)
{
	size_t chunk = model->chunk_rows;
	for (size_t first = 0; first < pass->rows; first += chunk) {
		mlp_backward(model, block, first, size_min(chunk, pass->rows - first));
		o_backward(model, block, first, size_min(chunk, pass->rows - first));
	}
	attend_backward(model, block, pass);
	for (size_t first = 0; first < pass->rows; first += chunk)
		qkv_backward(model, block, first, size_min(chunk, pass->rows - first));
}

static void embedding_backward(struct llama *model, const struct pass *pass)
{
	for (size_t row = 0; row < pass->rows; row++) {
		float *gradient = model->gradient[0] + *pass_token(pass, row) * model->hidden;
		row_add(gradient, model->d_residual + row * model->hidden, model->hidden);
	}
}

/* Before a layer's backward adds the first number to its gradient. */
static void gradient_begin(struct llama *model, unsigned layer)
{
	if (model->limits.passing)
		memset(model->gradient[layer], 0, llama_layer_size(&model->config, layer) * sizeof(float));
}

static void gradient_done(struct llama *model, unsigned layer)
{
	if (model->hooks.gradient_done)
		model->hooks.gradient_done(model->hooks.arg, layer);
}

int llama_accumulate(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, double weight,
		     double *ret_loss)
{
	struct pass pass = llama_pass(model, tokens, batch, time);
	CHECK(model->limits.training);
	CHECK(weight > 0);
	int error = llama_forward(model, &pass);
	if (!error)
		error = llama_hold_head(model);
	if (error)
		return error;
	bool is_tied = model->config.tie_word_embeddings;
	gradient_begin(model, model->block_count + 1);
	if (is_tied)
		gradient_begin(model, 0);
	double loss = llama_loss(model, &pass, weight);
	llama_drop_head(model);
	gradient_done(model, model->block_count + 1);
	for (unsigned block = model->block_count; block-- > 0;) {
		error = llama_hold(model, block + 1);
		if (error)
			return error;
		gradient_begin(model, block + 1);
		block_backward(model, block, &pass);
		llama_drop(model, block + 1);
		gradient_done(model, block + 1);
	}
	if (!is_tied)
		gradient_begin(model, 0);
	embedding_backward(model, &pass);
	gradient_done(model, 0);
	*ret_loss = loss;
	return 0;
}

/* From tokens to logits and their loss. */

#include "worker/llama_model.h"

#include <string.h>

static void embed(struct llama *model, const struct pass *pass)
{
	float *x = model->saved[0].input;
	for (size_t row = 0; row < pass->rows; row++) {
		uint32_t token = *pass_token(pass, row);
		CHECK(token < model->config.vocab_size);
		memcpy(x + row * model->hidden, model->theta[0] + token * model->hidden, model->hidden * sizeof(float));
	}
}

/* Moves k and v of a pass behind the rows of the block's cache. Returns the cache. */
static float *cache_append(struct llama *model, unsigned block, const struct pass *pass)
{
	size_t width = 2 * model->kv_width;
	float *cache = model->cache + (size_t)block * model->limits.cache_time * width;
	const float *qkv = model->saved[block].qkv;
	for (size_t row = 0; row < pass->rows; row++)
		memcpy(cache + (model->position + row) * width, qkv + row * model->qkv_width + model->query_width,
		       width * sizeof(float));
	return cache;
}

/* Rotates q and k of each sequence, then attended = attention. */
static void attend(struct llama *model, unsigned block, const struct pass *pass)
{
	const struct llama_config *config = &model->config;
	struct saved *s = &model->saved[block];
	size_t half = config->head_dim / 2, past = pass->is_cached ? model->position : 0;
	for (size_t sequence = 0; sequence < pass->batch; sequence++) {
		size_t first = sequence * pass->time;
		float *qkv = s->qkv + first * model->qkv_width;
		rope(matrix(qkv, model->qkv_width), model->cosines + past * half, model->sines + past * half,
		     pass->time, config->head_count + config->kv_head_count, half, 1);
		struct attention attention = {
			.head_count = config->head_count,
			.kv_head_count = config->kv_head_count,
			.head_dim = config->head_dim,
			.query_count = pass->time,
			.past = past,
			.scratch = model->scratch,
			.q = const_matrix(qkv, model->qkv_width),
			.k = const_matrix(qkv + model->query_width, model->qkv_width),
			.v = const_matrix(qkv + model->query_width + model->kv_width, model->qkv_width),
		};
		if (pass->is_cached) {
			const float *cache = cache_append(model, block, pass);
			attention.k = const_matrix(cache, 2 * model->kv_width);
			attention.v = const_matrix(cache + model->kv_width, 2 * model->kv_width);
		}
		attention_forward(&attention, matrix(s->attended + first * model->query_width, model->query_width),
				  s->log_sum + first * config->head_count);
	}
}

void llama_norm_backward(struct llama *model, unsigned layer, size_t offset, const float *rstd, const float *input,
			 size_t first, size_t rows)
{
	size_t begin = first * model->hidden;
	rms_norm_backward(model->d_residual + begin, model->gradient[layer] + offset, model->d_normal, rstd + first,
			  input + begin, model->theta[layer] + offset, rows, model->hidden);
}

/* qkv = norm_1(input) w^T for the rows [first, first + rows) */
static void project_qkv(struct llama *model, unsigned block, size_t first, size_t rows)
{
	const float *w = model->theta[block + 1];
	const struct saved *s = &model->saved[block];
	size_t hidden = model->hidden, width = model->qkv_width;
	rms_norm(model->normal, s->rstd_1 + first, s->input + first * hidden, w + model->at.norm_1, rows, hidden,
		 model->config.rms_norm_eps);
	matmul_nt(matrix(s->qkv + first * width, width), const_matrix(model->normal, hidden),
		  const_matrix(w + model->at.qkv, hidden), rows, width, hidden, 1, 0);
}

/* middle = input + attended o^T */
static void add_attention(struct llama *model, unsigned block, size_t first, size_t rows)
{
	const struct saved *s = &model->saved[block];
	size_t hidden = model->hidden, width = model->query_width;
	float *middle = s->middle + first * hidden;
	memcpy(middle, s->input + first * hidden, rows * hidden * sizeof(float));
	matmul_nt(matrix(middle, hidden), const_matrix(s->attended + first * width, width),
		  const_matrix(model->theta[block + 1] + model->at.o, width), rows, hidden, width, 1, 1);
}

/* output = middle + MLP(norm_2(middle)) */
static void add_mlp(struct llama *model, unsigned block, size_t first, size_t rows, float *output)
{
	const float *w = model->theta[block + 1];
	const struct offsets *at = &model->at;
	const struct saved *s = &model->saved[block];
	size_t hidden = model->hidden, width = model->intermediate;
	const float *middle = s->middle + first * hidden;
	float *gate_up = s->gate_up + first * 2 * width;
	output += first * hidden;
	rms_norm(model->normal, s->rstd_2 + first, middle, w + at->norm_2, rows, hidden, model->config.rms_norm_eps);
	matmul_nt(matrix(gate_up, 2 * width), const_matrix(model->normal, hidden),
		  const_matrix(w + at->gate_up, hidden), rows, 2 * width, hidden, 1, 0);
	swiglu(model->activation, gate_up, rows, width);
	memcpy(output, middle, rows * hidden * sizeof(float));
	matmul_nt(matrix(output, hidden), const_matrix(model->activation, width), const_matrix(w + at->down, width),
		  rows, hidden, width, 1, 1);
}

/* From the block's input to output, which may be the same. What works row by row goes chunk by chunk, so that the
 * results of one operation are still in the cache for the next. */
static void block_forward(struct llama *model, unsigned block, const struct pass *pass, float *output)
{
	size_t chunk = model->chunk_rows;
	for (size_t first = 0; first < pass->rows; first += chunk)
		project_qkv(model, block, first, size_min(chunk, pass->rows - first));
	attend(model, block, pass);
	for (size_t first = 0; first < pass->rows; first += chunk) {
		add_attention(model, block, first, size_min(chunk, pass->rows - first));
		add_mlp(model, block, first, size_min(chunk, pass->rows - first), output);
	}
}

int llama_forward(struct llama *model, const struct pass *pass)
{
	bool is_tied = model->config.tie_word_embeddings;
	CHECK(pass->rows >= 1 && pass->rows <= model->row_limit);
	int error = llama_hold(model, 0);
	if (error)
		return error;
	embed(model, pass);
	if (!is_tied)
		llama_drop(model, 0);
	for (unsigned block = 0; block < model->block_count; block++) {
		bool is_last = block + 1 == model->block_count;
		error = llama_hold(model, block + 1);
		if (error) {
			if (is_tied)
				llama_drop(model, 0);
			return error;
		}
		block_forward(model, block, pass, is_last ? model->final : model->saved[block + 1].input);
		llama_drop(model, block + 1);
	}
	return 0;
}

int llama_hold_head(struct llama *model)
{
	int error = llama_hold(model, model->layer_count - 1);
	if (error && model->config.tie_word_embeddings)
		llama_drop(model, 0);
	return error;
}

void llama_drop_head(struct llama *model)
{
	llama_drop(model, model->layer_count - 1);
	if (model->config.tie_word_embeddings)
		llama_drop(model, 0);
}

const float *llama_head(const struct llama *model)
{
	unsigned layer = model->config.tie_word_embeddings ? 0 : model->layer_count - 1;
	return model->theta[layer] + model->at.head;
}

float *llama_head_gradient(const struct llama *model)
{
	unsigned layer = model->config.tie_word_embeddings ? 0 : model->layer_count - 1;
	return model->gradient[layer] + model->at.head;
}

/* logits[rows, vocab_size] = norm(final) head^T for the rows [first, first + rows) */
static void head_forward(struct llama *model, float *logits, size_t first, size_t rows)
{
	size_t hidden = model->hidden, vocab_size = model->config.vocab_size;
	rms_norm(model->normal, model->final_rstd + first, model->final + first * hidden,
		 model->theta[model->layer_count - 1] + model->at.norm, rows, hidden, model->config.rms_norm_eps);
	matmul_nt(matrix(logits, vocab_size), const_matrix(model->normal, hidden),
		  const_matrix(llama_head(model), hidden), rows, vocab_size, hidden, 1, 0);
}

/* From the gradient in logits to those of the head, the final norm and its input. */
static void head_backward(struct llama *model, size_t first, size_t rows)
{
	size_t hidden = model->hidden, vocab_size = model->config.vocab_size;
	struct const_matrix d_logits = const_matrix(model->logits, vocab_size);
	matmul_tn(matrix(llama_head_gradient(model), hidden), d_logits, const_matrix(model->normal, hidden), vocab_size,
		  hidden, rows, 1);
	matmul_nn(matrix(model->d_normal, hidden), d_logits, const_matrix(llama_head(model), hidden), rows, hidden,
		  vocab_size, 0);
	memset(model->d_residual + first * hidden, 0, rows * hidden * sizeof(float));
	llama_norm_backward(model, model->layer_count - 1, model->at.norm, model->final_rstd, model->final, first,
			    rows);
}

double llama_loss(struct llama *model, const struct pass *pass, double scale)
{
	size_t vocab_size = model->config.vocab_size;
	float row_scale = (float)(scale / (double)pass->rows);
	double sum = 0;
	for (size_t first = 0; first < pass->rows; first += model->logit_rows) {
		size_t rows = size_min(model->logit_rows, pass->rows - first);
		head_forward(model, model->logits, first, rows);
		for (size_t r = 0; r < rows; r++) {
			uint32_t target = pass_token(pass, first + r)[1];
			sum += row_cross_entropy(model->logits + r * vocab_size, vocab_size, target, row_scale);
		}
		if (scale != 0)
			head_backward(model, first, rows);
	}
	return sum / (double)pass->rows;
}

struct pass llama_pass(const struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time)
{
	CHECK(batch >= 1 && batch <= model->limits.batch);
	CHECK(time >= 1 && time <= model->limits.time);
	return (struct pass){tokens, (size_t)time + 1, batch, time, (size_t)batch * time, false};
}

int llama_evaluate(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, double *ret_loss)
{
	struct pass pass = llama_pass(model, tokens, batch, time);
	int error = llama_forward(model, &pass);
	if (!error)
		error = llama_hold_head(model);
	if (error)
		return error;
	*ret_loss = llama_loss(model, &pass, 0);
	llama_drop_head(model);
	return 0;
}

int llama_logits(struct llama *model, const uint32_t *tokens, unsigned batch, unsigned time, float *ret_logits)
{
	struct pass pass = llama_pass(model, tokens, batch, time);
	pass.token_stride = time;
	int error = llama_forward(model, &pass);
	if (!error)
		error = llama_hold_head(model);
	if (error)
		return error;
	for (size_t first = 0; first < pass.rows; first += model->logit_rows)
		head_forward(model, ret_logits + first * model->config.vocab_size, first,
			     size_min(model->logit_rows, pass.rows - first));
	llama_drop_head(model);
	return 0;
}

/* ---- Generation ---- */

void llama_rewind(struct llama *model)
{
	model->position = 0;
}

unsigned llama_position(const struct llama *model)
{
	return model->position;
}

int llama_extend(struct llama *model, const uint32_t *tokens, unsigned count, float *ret_logits)
{
	unsigned begin = model->position;
	CHECK(count >= 1);
	if (count > model->limits.cache_time - begin)
		return EDIT_ERROR_FULL;
	for (unsigned done = 0; done < count;) {
		unsigned rows = (unsigned)size_min(count - done, model->row_limit);
		struct pass pass = {tokens + done, rows, 1, rows, rows, true};
		int error = llama_forward(model, &pass);
		if (!error)
			error = llama_hold_head(model);
		if (error) {
			model->position = begin;
			return error;
		}
		done += rows;
		model->position += rows;
		if (done == count)
			head_forward(model, ret_logits, rows - 1, 1);
		llama_drop_head(model);
	}
	return 0;
}

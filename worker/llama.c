/* A model's life and memory: one block, cut into the arrays of llama_model.h. */

#include "worker/llama_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/mapping.h"

enum {
	CACHE_LINE = 64,        /* bytes; every array begins on one */
	WIDTH_MAX = 1 << 27,    /* of any matrix, so that sizes and the integers of BLAS do not overflow */
	BLOCK_MAX = 1 << 16,    /* decoder blocks; for the same reason */
	CHUNK_ROWS = 512,       /* enough for full speed of the products, few enough for the caches */
	LOGIT_BUDGET = 2 << 20, /* elements of logits at a time, */
	LOGIT_ROWS_MIN = 64     /* unless that would be fewer rows than these: reading the head would cost more */
};

/* Hands out a block piece by piece; with base NULL it only counts. */
struct cutter {
	float *base;
	size_t used;
	bool is_too_big;
};

static float *cut(struct cutter *cutter, size_t rows, size_t columns)
{
	size_t count, end;
	float *piece = cutter->base ? cutter->base + cutter->used : NULL;
	if (__builtin_mul_overflow(rows, columns, &count) || __builtin_add_overflow(cutter->used, count, &end) ||
	    end > SIZE_MAX / 2 / sizeof(float)) {
		cutter->is_too_big = true;
		return NULL;
	}
	const size_t line = CACHE_LINE / sizeof(float);
	cutter->used = (end + line - 1) / line * line;
	return piece;
}

static void cut_saved(const struct llama *model, struct saved *saved, struct cutter *cutter)
{
	size_t rows = model->row_limit;
	saved->input = cut(cutter, rows, model->hidden);
	saved->rstd_1 = cut(cutter, rows, 1);
	saved->qkv = cut(cutter, rows, model->qkv_width);
	saved->attended = cut(cutter, rows, model->query_width);
	saved->log_sum = cut(cutter, rows, model->config.head_count);
	saved->middle = cut(cutter, rows, model->hidden);
	saved->rstd_2 = cut(cutter, rows, 1);
	saved->gate_up = cut(cutter, rows, 2 * model->intermediate);
}

/* One for each layer, or, with limits.passing, one that is large enough for any. The loss adds to a tied embedding's long
 * before its turn comes. */
static void cut_gradients(struct llama *model, struct cutter *cutter)
{
	unsigned own_count = !model->limits.passing ? model->layer_count : model->config.tie_word_embeddings ? 1 : 0;
	size_t largest = 0;
	for (unsigned layer = 0; layer < own_count; layer++)
		model->gradient[layer] = cut(cutter, llama_layer_size(&model->config, layer), 1);
	if (own_count == model->layer_count)
		return;
	for (unsigned layer = own_count; layer < model->layer_count; layer++)
		largest = size_max(largest, llama_layer_size(&model->config, layer));
	float *shared = cut(cutter, largest, 1);
	for (unsigned layer = own_count; layer < model->layer_count; layer++)
		model->gradient[layer] = shared;
}

static void cut_training(struct llama *model, struct cutter *cutter)
{
	size_t rows = model->row_limit;
	cut_gradients(model, cutter);
	model->d_residual = cut(cutter, rows, model->hidden);
	model->d_normal = cut(cutter, size_max(model->chunk_rows, model->logit_rows), model->hidden);
	model->d_attended = cut(cutter, rows, model->query_width);
	model->d_qkv = cut(cutter, rows, model->qkv_width);
}

static void cut_all(struct llama *model, struct cutter *cutter)
{
	size_t rows = model->row_limit, half = model->config.head_dim / 2;
	for (unsigned block = 0; block < model->block_count; block++) {
		if (block == 0 || model->limits.training)
			cut_saved(model, &model->saved[block], cutter);
		else
			model->saved[block] = model->saved[0];
	}
	model->final = cut(cutter, rows, model->hidden);
	model->final_rstd = cut(cutter, rows, 1);
	model->normal = cut(cutter, size_max(model->chunk_rows, model->logit_rows), model->hidden);
	model->activation = cut(cutter, model->chunk_rows, model->intermediate);
	model->logits = cut(cutter, model->logit_rows, model->config.vocab_size);
	model->cosines = cut(cutter, model->position_limit, half);
	model->sines = cut(cutter, model->position_limit, half);
	model->scratch = cut(cutter, attention_scratch_size(model->position_limit), 1);
	if (model->limits.training)
		cut_training(model, cutter);
	if (model->limits.cache_time > 0)
		model->cache = cut(cutter, (size_t)model->block_count * model->limits.cache_time, 2 * model->kv_width);
}

/* Angle of pair i at position p: p / rope_theta^(i / half). */
static void fill_angles(struct llama *model)
{
	size_t half = model->config.head_dim / 2;
	for (size_t i = 0; i < half; i++) {
		double frequency = pow(model->config.rope_theta, -(double)i / (double)half);
		for (size_t position = 0; position < model->position_limit; position++) {
			model->cosines[position * half + i] = (float)cos((double)position * frequency);
			model->sines[position * half + i] = (float)sin((double)position * frequency);
		}
	}
}

static struct offsets offsets_of(const struct llama_config *config)
{
	return (struct offsets){
		.norm_1 = llama_tensor_offset(config, LLAMA_NORM_1),
		.qkv = llama_tensor_offset(config, LLAMA_Q),
		.o = llama_tensor_offset(config, LLAMA_O),
		.norm_2 = llama_tensor_offset(config, LLAMA_NORM_2),
		.gate_up = llama_tensor_offset(config, LLAMA_GATE),
		.down = llama_tensor_offset(config, LLAMA_DOWN),
		.norm = llama_tensor_offset(config, LLAMA_NORM),
		.head = config->tie_word_embeddings ? 0 : llama_tensor_offset(config, LLAMA_HEAD),
	};
}

static void set_sizes(struct llama *model)
{
	const struct llama_config *config = &model->config;
	model->at = offsets_of(config);
	model->layer_count = llama_layer_count(config);
	model->block_count = config->layer_count;
	model->hidden = config->hidden_size;
	model->intermediate = config->intermediate_size;
	model->query_width = (size_t)config->head_count * config->head_dim;
	model->kv_width = (size_t)config->kv_head_count * config->head_dim;
	model->qkv_width = model->query_width + 2 * model->kv_width;
	model->row_limit = (size_t)model->limits.batch * model->limits.time;
	model->position_limit = size_max(model->limits.time, model->limits.cache_time);
	model->chunk_rows = size_min(model->row_limit, CHUNK_ROWS);
	model->logit_rows = size_min(model->row_limit, size_max(LOGIT_BUDGET / config->vocab_size, LOGIT_ROWS_MIN));
}

static bool sizes_fit(const struct llama *model)
{
	size_t widest = size_max(size_max(model->hidden, model->intermediate), model->qkv_width);
	size_t longest = size_max(model->row_limit, model->position_limit);
	return size_max(size_max(widest, longest), model->config.vocab_size) <= WIDTH_MAX &&
	       model->block_count <= BLOCK_MAX;
}

static int allocate(struct llama *model)
{
	struct cutter cutter = {0};
	model->theta = calloc(model->layer_count, sizeof *model->theta);
	model->gradient = calloc(model->layer_count, sizeof *model->gradient);
	model->saved = calloc(model->block_count, sizeof *model->saved);
	if (!model->theta || !model->gradient || !model->saved)
		return EDIT_ERROR_SYSTEM;
	cut_all(model, &cutter);
	if (cutter.is_too_big)
		return EDIT_ERROR_RANGE;
	model->block_bytes = cutter.used * sizeof(float);
	model->block = aligned_alloc(CACHE_LINE, model->block_bytes);
	if (!model->block)
		return EDIT_ERROR_SYSTEM;
	mapping_prefer_huge(model->block, model->block_bytes);
	cutter = (struct cutter){.base = model->block};
	cut_all(model, &cutter);
	return 0;
}

int llama_new(const struct llama_config *config, const struct llama_limits *limits, struct llama **ret_model)
{
	CHECK(limits->batch >= 1);
	CHECK(limits->time >= 1);
	CHECK(limits->training || !limits->passing);
	CHECK(config->head_dim % 2 == 0);
	CHECK(config->head_count % config->kv_head_count == 0);
	struct llama *model = calloc(1, sizeof *model);
	if (!model)
		return EDIT_ERROR_SYSTEM;
	model->config = *config;
	model->limits = *limits;
	set_sizes(model);
	int error = sizes_fit(model) ? allocate(model) : EDIT_ERROR_RANGE;
	if (error) {
		llama_free(model);
		return error;
	}
	fill_angles(model);
	*ret_model = model;
	return 0;
}

void llama_free(struct llama *model)
{
	if (!model)
		return;
	free(model->block);
	free(model->saved);
	free(model->gradient);
	free(model->theta);
	free(model);
}

const struct llama_config *llama_config_of(const struct llama *model)
{
	return &model->config;
}

size_t llama_memory_bytes(const struct llama *model)
{
	return model->block_bytes;
}

void llama_bind(struct llama *model, unsigned layer, const float *theta)
{
	CHECK(layer < model->layer_count);
	model->theta[layer] = theta;
}

void llama_set_hooks(struct llama *model, const struct llama_hooks *hooks)
{
	model->hooks = hooks ? *hooks : (struct llama_hooks){0};
}

int llama_hold(const struct llama *model, unsigned layer)
{
	return model->hooks.acquire ? model->hooks.acquire(model->hooks.arg, layer) : 0;
}

void llama_drop(const struct llama *model, unsigned layer)
{
	if (model->hooks.release)
		model->hooks.release(model->hooks.arg, layer);
}

float *llama_gradient(const struct llama *model, unsigned layer)
{
	CHECK(model->limits.training);
	CHECK(layer < model->layer_count);
	return model->gradient[layer];
}

void llama_gradient_zero(struct llama *model)
{
	for (unsigned layer = 0; !model->limits.passing && layer < model->layer_count; layer++)
		memset(llama_gradient(model, layer), 0, llama_layer_size(&model->config, layer) * sizeof(float));
}

/* The model against the reference's numbers (tests/vectors/llama_*), and what must hold for any numbers: accumulation,
 * hooks, tiles of any size, the cache, a step refused. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/near.h"
#include "tests/reference_llama.h"
#include "worker/attention.h"
#include "worker/draw.h"
#include "worker/kernels.h"

/* A model with parameters and optimiser state of its own. */
struct owned {
	struct llama *model;
	struct llama_config config;
	float **theta, **inner;
};

static struct owned owned_new(const struct llama_config *config, struct llama_limits limits)
{
	struct owned o = {.config = *config};
	unsigned layers = llama_layer_count(config);
	assert_int_equal(llama_new(config, &limits, &o.model), 0);
	o.theta = calloc(layers, sizeof *o.theta);
	o.inner = calloc(layers, sizeof *o.inner);
	assert_non_null(o.theta);
	assert_non_null(o.inner);
	for (unsigned layer = 0; layer < layers; layer++) {
		o.theta[layer] = calloc(llama_layer_size(config, layer), sizeof(float));
		o.inner[layer] = calloc(llama_layer_size(config, layer), 2 * sizeof(float));
		assert_non_null(o.theta[layer]);
		assert_non_null(o.inner[layer]);
		llama_bind(o.model, layer, o.theta[layer], o.inner[layer]);
		llama_init(config, layer, 1, o.theta[layer]);
	}
	return o;
}

static void owned_free(struct owned *o)
{
	for (unsigned layer = 0; layer < llama_layer_count(&o->config); layer++) {
		free(o->theta[layer]);
		free(o->inner[layer]);
	}
	free(o->theta);
	free(o->inner);
	llama_free(o->model);
}

/* Grouped heads, an untied head, heads wider than hidden / heads. */
static const struct llama_config SMALL = {
	.vocab_size = 50,
	.hidden_size = 24,
	.intermediate_size = 37,
	.layer_count = 2,
	.head_count = 4,
	.kv_head_count = 2,
	.head_dim = 8,
	.max_position_embeddings = 256,
	.rms_norm_eps = 1e-5,
	.rope_theta = 10000,
};

static void fill_tokens(uint32_t *tokens, size_t count, unsigned vocab_size)
{
	for (size_t i = 0; i < count; i++)
		tokens[i] = (uint32_t)(draw_bits(7, 0, i) % vocab_size);
}

static void use_theta(struct owned *o, const struct reference_llama *r)
{
	for (unsigned layer = 0; layer < llama_layer_count(&r->config); layer++)
		memcpy(o->theta[layer], r->theta[layer], llama_layer_size(&r->config, layer) * sizeof(float));
}

/* ---- Against the reference ---- */

static void check_first_batch(struct owned *o, const struct reference_llama *r)
{
	size_t rows = (size_t)r->batch * r->time, count = rows * r->config.vocab_size;
	float *logits = calloc(count, sizeof *logits);
	uint32_t *inputs = calloc(rows, sizeof *inputs);
	assert_non_null(logits);
	assert_non_null(inputs);
	for (size_t row = 0; row < rows; row++)
		inputs[row] = r->tokens[row / r->time * (r->time + 1) + row % r->time];
	assert_int_equal(llama_logits(o->model, inputs, r->batch, r->time, logits), 0);
	assert_near("logit", logits, r->logits, count, 1e-4, (double)largest(r->logits, count));

	double loss, evaluated, scale = 0;
	llama_gradient_zero(o->model);
	assert_int_equal(llama_accumulate(o->model, r->tokens, r->batch, r->time, 1, &loss), 0);
	assert_int_equal(llama_evaluate(o->model, r->tokens, r->batch, r->time, &evaluated), 0);
	assert_relative("loss", 0, loss, r->loss[0], 1e-5);
	assert_relative("evaluated loss", 0, evaluated, r->loss[0], 1e-5);
	for (unsigned layer = 0; layer < llama_layer_count(&r->config); layer++)
		scale = fmax(scale, (double)largest(r->gradient[layer], llama_layer_size(&r->config, layer)));
	for (unsigned i = 0; i < llama_tensor_count(&r->config); i++) {
		struct llama_tensor t;
		llama_tensor_at(&r->config, i, &t);
		assert_near(t.name, llama_gradient(o->model, t.layer) + t.offset, r->gradient[t.layer] + t.offset,
			    t.size, 1e-4, scale);
	}
	free(inputs);
	free(logits);
}

static void check_run(struct owned *o, const struct reference_llama *r)
{
	size_t batch_size = (size_t)r->batch * (r->time + 1);
	for (unsigned step = 0; step < r->step_count; step++) {
		double loss, norm;
		llama_gradient_zero(o->model);
		const uint32_t *tokens = r->tokens + step * batch_size;
		assert_int_equal(llama_accumulate(o->model, tokens, r->batch, r->time, 1, &loss), 0);
		assert_true(llama_step(o->model, &r->adamw, r->rate, step + 1, &norm));
		assert_relative("loss", step, loss, r->loss[step], 1e-5);
		assert_relative("gradient norm", step, norm, r->norm[step], 1e-5);
		for (unsigned i = 0; i < llama_tensor_count(&r->config); i++) {
			struct llama_tensor t;
			double sum = 0;
			llama_tensor_at(&r->config, i, &t);
			for (size_t j = 0; j < t.size; j++)
				sum += pow((double)o->theta[t.layer][t.offset + j], 2);
			assert_relative(t.name, step, sqrt(sum), r->weight_norms[step][i], 1e-5);
		}
	}
}

static void check_case(const char *name)
{
	struct reference_llama *r = reference_llama_load(name);
	struct owned o = owned_new(&r->config, (struct llama_limits){r->batch, r->time, 0, true});
	use_theta(&o, r);
	check_first_batch(&o, r);
	check_run(&o, r);
	owned_free(&o);
	reference_llama_free(r);
}

static void untied_grouped_heads_match_reference(void **state)
{
	(void)state;
	check_case("llama_untied_gqa");
}

static void tied_head_matches_reference(void **state)
{
	(void)state;
	check_case("llama_tied_mha");
}

static void one_head_one_token_matches_reference(void **state)
{
	(void)state;
	check_case("llama_one_head_one_token");
}

/* ---- Accumulation, tiles ---- */

static double gradient_distance(const struct owned *a, const struct owned *b)
{
	double difference = 0, size = 0;
	for (unsigned layer = 0; layer < llama_layer_count(&a->config); layer++) {
		const float *x = llama_gradient(a->model, layer), *y = llama_gradient(b->model, layer);
		for (size_t i = 0; i < llama_layer_size(&a->config, layer); i++) {
			difference += pow((double)x[i] - (double)y[i], 2);
			size += pow((double)y[i], 2);
		}
	}
	return sqrt(difference / size);
}

/* The gradient of six rows at once against that of three times two. */
static void check_micro_batches(const struct llama_config *config, unsigned time)
{
	enum { BATCH = 6, PARTS = 3, PART = BATCH / PARTS };
	size_t width = (size_t)time + 1;
	uint32_t *tokens = calloc(BATCH * width, sizeof *tokens);
	double loss, whole, sum = 0;
	assert_non_null(tokens);
	fill_tokens(tokens, BATCH * width, config->vocab_size);
	struct owned big = owned_new(config, (struct llama_limits){BATCH, time, 0, true});
	struct owned micro = owned_new(config, (struct llama_limits){PART, time, 0, true});
	llama_gradient_zero(big.model);
	llama_gradient_zero(micro.model);
	assert_int_equal(llama_accumulate(big.model, tokens, BATCH, time, 1, &whole), 0);
	for (unsigned i = 0; i < PARTS; i++) {
		const uint32_t *part = tokens + i * PART * width;
		assert_int_equal(llama_accumulate(micro.model, part, PART, time, 1.0 / PARTS, &loss), 0);
		sum += loss / PARTS;
	}
	assert_relative("loss", 0, sum, whole, 1e-6);
	assert_true(gradient_distance(&micro, &big) < 2e-6);
	owned_free(&micro);
	owned_free(&big);
	free(tokens);
}

static void micro_batches_equal_one_big_batch(void **state)
{
	struct llama_config many_words = SMALL;
	(void)state;
	many_words.vocab_size = 40000;
	check_micro_batches(&SMALL, 19);
	check_micro_batches(&SMALL, 100);     /* the big batch is passed through in two chunks */
	check_micro_batches(&many_words, 12); /* its logits too, those of the micro batches not */
}

/* The gradient along a direction must be the slope of the loss: (f(x + h d) - f(x - h d)) / 2h. Moves every
 * parameter of one layer, so errors in any tile show. */
static void check_slope(struct owned *o, const uint32_t *tokens, unsigned time, unsigned layer)
{
	size_t count = llama_layer_size(&o->config, layer);
	float *direction = calloc(count, sizeof *direction), *begin = calloc(count, sizeof *begin);
	double loss, slope = 0, around[2];
	const double h = 2e-3;
	assert_non_null(direction);
	assert_non_null(begin);
	memcpy(begin, o->theta[layer], count * sizeof(float));
	llama_gradient_zero(o->model);
	assert_int_equal(llama_accumulate(o->model, tokens, 1, time, 1, &loss), 0);
	const float *gradient = llama_gradient(o->model, layer);
	double length = 0;
	for (size_t i = 0; i < count; i++)
		length += pow((double)gradient[i], 2);
	for (size_t i = 0; i < count; i++) {
		direction[i] = (float)((double)gradient[i] / sqrt(length));
		slope += (double)gradient[i] * (double)direction[i];
	}
	for (unsigned side = 0; side < 2; side++) {
		for (size_t i = 0; i < count; i++)
			o->theta[layer][i] = begin[i] + (float)(side ? h : -h) * direction[i];
		assert_int_equal(llama_evaluate(o->model, tokens, 1, time, &around[side]), 0);
	}
	memcpy(o->theta[layer], begin, count * sizeof(float));
	assert_relative("slope", layer, slope, (around[1] - around[0]) / (2 * h), 2e-3);
	free(begin);
	free(direction);
}

/* Makes the matrices larger, so that attention is far from flat. */
static void spread(struct owned *o)
{
	for (unsigned i = 0; i < llama_tensor_count(&o->config); i++) {
		struct llama_tensor t;
		llama_tensor_at(&o->config, i, &t);
		for (size_t j = 0; t.rank == 2 && j < t.size; j++)
			o->theta[t.layer][t.offset + j] *= 8;
	}
}

static void gradient_is_slope_for_any_number_of_tiles(void **state)
{
	const unsigned times[] = {1, 2, ATTENTION_TILE - 1, ATTENTION_TILE, ATTENTION_TILE + 1, 2 * ATTENTION_TILE + 7};
	uint32_t tokens[2 * ATTENTION_TILE + 8];
	(void)state;
	fill_tokens(tokens, sizeof tokens / sizeof *tokens, SMALL.vocab_size);
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		struct owned o = owned_new(&SMALL, (struct llama_limits){1, times[i], 0, true});
		spread(&o);
		for (unsigned layer = 0; layer < llama_layer_count(&SMALL); layer++)
			check_slope(&o, tokens, times[i], layer);
		owned_free(&o);
	}
}

/* A later token must not change an earlier one's logits, across the border of tiles as within one. */
static void logits_depend_on_earlier_tokens_alone(void **state)
{
	enum { TIME = 2 * ATTENTION_TILE + 7, CHANGED = ATTENTION_TILE + 5 };
	uint32_t tokens[TIME];
	size_t count = (size_t)TIME * SMALL.vocab_size, before = (size_t)CHANGED * SMALL.vocab_size;
	float *a = calloc(2 * count, sizeof *a), *b = a + count;
	(void)state;
	assert_non_null(a);
	fill_tokens(tokens, TIME, SMALL.vocab_size);
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, TIME, 0, false});
	assert_int_equal(llama_logits(o.model, tokens, 1, TIME, a), 0);
	tokens[CHANGED] = (tokens[CHANGED] + 1) % SMALL.vocab_size;
	assert_int_equal(llama_logits(o.model, tokens, 1, TIME, b), 0);
	assert_memory_equal(a, b, before * sizeof(float));
	for (size_t row = CHANGED; row < TIME; row++)
		assert_memory_not_equal(a + row * SMALL.vocab_size, b + row * SMALL.vocab_size,
					SMALL.vocab_size * sizeof(float));
	owned_free(&o);
	free(a);
}

/* ---- Hooks ---- */

struct journal {
	char text[512];
	int refused_layer; /* acquire of it fails; -1: none */
	int failure;
};

static void note(struct journal *journal, char what, unsigned layer)
{
	size_t length = strlen(journal->text);
	snprintf(journal->text + length, sizeof journal->text - length, "%c%u ", what, layer);
}

static int note_acquire(void *arg, unsigned layer)
{
	struct journal *journal = arg;
	note(journal, 'a', layer);
	return (int)layer == journal->refused_layer ? journal->failure : 0;
}

static void note_release(void *arg, unsigned layer) { note(arg, 'r', layer); }
static void note_begin(void *arg, unsigned layer) { note(arg, 'b', layer); }
static void note_end(void *arg, unsigned layer) { note(arg, 'e', layer); }

static void check_hooks(bool is_tied, const char *accumulate, const char *evaluate, const char *refused)
{
	enum { TIME = 5 };
	uint32_t tokens[TIME + 1];
	double loss = 0, norm;
	struct llama_config config = SMALL;
	struct journal journal = {.refused_layer = -1, .failure = 17};
	struct adamw adamw = adamw_standard();
	config.tie_word_embeddings = is_tied;
	fill_tokens(tokens, TIME + 1, config.vocab_size);
	struct owned o = owned_new(&config, (struct llama_limits){1, TIME, 0, true});
	llama_set_hooks(o.model, &(struct llama_hooks){note_acquire, note_release, note_begin, note_end, &journal});
	llama_gradient_zero(o.model);
	assert_int_equal(llama_accumulate(o.model, tokens, 1, TIME, 1, &loss), 0);
	assert_string_equal(journal.text, accumulate);
	journal.text[0] = 0;
	assert_int_equal(llama_evaluate(o.model, tokens, 1, TIME, &loss), 0);
	assert_string_equal(journal.text, evaluate);
	journal.text[0] = 0;
	assert_true(llama_step(o.model, &adamw, 1e-3, 1, &norm));
	assert_string_equal(journal.text, "b0 e0 b1 e1 b2 e2 b3 e3 ");
	journal.text[0] = 0;
	journal.refused_layer = 2;
	loss = -1;
	assert_int_equal(llama_accumulate(o.model, tokens, 1, TIME, 1, &loss), 17);
	assert_string_equal(journal.text, refused);
	assert_true(loss == -1);
	owned_free(&o);
}

static void layers_are_held_around_use_and_dropped_on_refusal(void **state)
{
	(void)state;
	check_hooks(false, "a0 r0 a1 r1 a2 r2 a3 r3 a2 r2 a1 r1 ", "a0 r0 a1 r1 a2 r2 a3 r3 ", "a0 r0 a1 r1 a2 ");
	check_hooks(true, "a0 a1 r1 a2 r2 a3 r3 r0 a2 r2 a1 r1 ", "a0 a1 r1 a2 r2 a3 r3 r0 ", "a0 a1 r1 a2 r0 ");
}

/* ---- The step ---- */

static void nonfinite_gradient_takes_no_step(void **state)
{
	const float bad[] = {NAN, INFINITY, -INFINITY};
	struct adamw adamw = adamw_standard();
	struct journal journal = {.refused_layer = -1};
	(void)state;
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true});
	size_t count = llama_layer_size(&SMALL, 1);
	float *before = calloc(count, sizeof *before);
	assert_non_null(before);
	memcpy(before, o.theta[1], count * sizeof(float));
	llama_set_hooks(o.model, &(struct llama_hooks){note_acquire, note_release, note_begin, note_end, &journal});
	for (size_t i = 0; i < 3; i++) {
		double norm = 0;
		llama_gradient_zero(o.model);
		llama_gradient(o.model, 1)[0] = 1;
		llama_gradient(o.model, 2)[3] = bad[i];
		assert_false(llama_step(o.model, &adamw, 1e-3, 1, &norm));
		assert_true(!isfinite(norm));
		assert_memory_equal(o.theta[1], before, count * sizeof(float));
		for (size_t j = 0; j < 2 * count; j++)
			assert_true(o.inner[1][j] == 0);
	}
	assert_string_equal(journal.text, "");
	llama_gradient(o.model, 2)[3] = 0;
	double norm;
	assert_true(llama_step(o.model, &adamw, 1e-3, 1, &norm));
	assert_memory_not_equal(o.theta[1], before, count * sizeof(float));
	free(before);
	owned_free(&o);
}

static void clipping_bounds_the_first_moment(void **state)
{
	struct adamw adamw = adamw_standard();
	double norm;
	(void)state;
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true});
	for (unsigned clipped = 0; clipped < 2; clipped++) {
		adamw.clip_norm = clipped ? 1 : 0;
		memset(o.inner[1], 0, 2 * llama_layer_size(&SMALL, 1) * sizeof(float));
		llama_gradient_zero(o.model);
		llama_gradient(o.model, 1)[0] = 30;
		llama_gradient(o.model, 2)[0] = 40;
		assert_true(llama_step(o.model, &adamw, 1e-3, 1, &norm));
		assert_relative("norm", clipped, norm, 50, 1e-7);
		assert_relative("m", clipped, (double)o.inner[1][0], clipped ? 0.1 * 0.6 : 3, 1e-6);
	}
	owned_free(&o);
}

static void schedule_warms_up_then_follows_cosine(void **state)
{
	const struct schedule s = {.peak = 1, .floor = 0.1, .warmup_steps = 10, .total_steps = 110};
	const struct schedule flat = {.peak = 1, .floor = 1};
	(void)state;
	assert_relative("first", 0, schedule_rate(&s, 0), 0.1, 1e-12);
	assert_relative("end of warm-up", 9, schedule_rate(&s, 9), 1, 1e-12);
	assert_relative("begin of cosine", 10, schedule_rate(&s, 10), 1, 1e-12);
	assert_relative("a third of the way", 0, schedule_rate(&s, 35), 0.1 + 0.9 * (1 + sqrt(0.5)) / 2, 1e-12);
	assert_relative("half-way", 60, schedule_rate(&s, 60), 0.55, 1e-12);
	assert_relative("end", 110, schedule_rate(&s, 110), 0.1, 1e-12);
	assert_relative("after the end", 0, schedule_rate(&s, UINT64_MAX), 0.1, 1e-12);
	assert_relative("no schedule", 0, schedule_rate(&flat, 0), 1, 1e-12);
}

/* ---- Generation ---- */

static void check_extend(const unsigned *pieces, size_t piece_count)
{
	enum { TIME = 150 };
	uint32_t tokens[TIME];
	unsigned vocab_size = SMALL.vocab_size;
	float *all = calloc((size_t)TIME * vocab_size, sizeof *all), *next = calloc(vocab_size, sizeof *next);
	assert_non_null(all);
	assert_non_null(next);
	fill_tokens(tokens, TIME, vocab_size);
	struct owned whole = owned_new(&SMALL, (struct llama_limits){1, TIME, 0, false});
	struct owned parts = owned_new(&SMALL, (struct llama_limits){2, 35, TIME, false}); /* 70 rows at a time */
	assert_int_equal(llama_logits(whole.model, tokens, 1, TIME, all), 0);
	for (unsigned turn = 0; turn < 2; turn++) {
		unsigned done = 0;
		llama_rewind(parts.model);
		for (size_t i = 0; i < piece_count; i++) {
			assert_int_equal(llama_extend(parts.model, tokens + done, pieces[i], next), 0);
			done += pieces[i];
			assert_int_equal(llama_position(parts.model), done);
			for (unsigned j = 0; j < vocab_size; j++)
				assert_true(fabsf(next[j] - all[(done - 1) * vocab_size + j]) < 1e-6f);
		}
		assert_int_equal(llama_extend(parts.model, tokens, TIME - done + 1, next), EDIT_ERROR_FULL);
		assert_int_equal(llama_position(parts.model), done);
	}
	owned_free(&parts);
	owned_free(&whole);
	free(next);
	free(all);
}

static void cached_generation_equals_full_forward(void **state)
{
	(void)state;
	check_extend((const unsigned[]){1, 1, 1, 60, 1, 1, 3, 64, 17, 1}, 10);
	check_extend((const unsigned[]){149, 1}, 2);
	check_extend((const unsigned[]){150}, 1);
}

/* Refuses the layer on its second use: in the second of two chunks. */
static int refuse_second(void *arg, unsigned layer)
{
	unsigned *uses = arg;
	return layer == 1 && ++*uses == 2 ? 17 : 0;
}

static void refused_extension_leaves_the_sequence(void **state)
{
	enum { TIME = 20 };
	uint32_t tokens[TIME];
	float once[64], again[64];
	unsigned uses = 0;
	(void)state;
	fill_tokens(tokens, TIME, SMALL.vocab_size);
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 10, TIME, false});
	assert_int_equal(llama_extend(o.model, tokens, TIME, once), 0);
	llama_rewind(o.model);
	assert_int_equal(llama_extend(o.model, tokens, 3, again), 0);
	llama_set_hooks(o.model, &(struct llama_hooks){.acquire = refuse_second, .arg = &uses});
	assert_int_equal(llama_extend(o.model, tokens + 3, TIME - 3, again), 17);
	assert_int_equal(llama_position(o.model), 3);
	assert_int_equal(llama_extend(o.model, tokens + 3, TIME - 3, again), 0);
	for (unsigned i = 0; i < SMALL.vocab_size; i++)
		assert_true(fabsf(once[i] - again[i]) < 1e-6f);
	owned_free(&o);
}

static void choice_follows_temperature(void **state)
{
	const float logits[] = {0, 2, 2, -1};
	const double e2 = exp(2), sum = 1 + 2 * e2 + exp(-1);
	(void)state;
	assert_int_equal(llama_choose(logits, 4, 0, 0.99), 1);
	assert_int_equal(llama_choose(logits, 4, 1, 0), 0);
	assert_int_equal(llama_choose(logits, 4, 1, 1 / sum + 1e-9), 1);
	assert_int_equal(llama_choose(logits, 4, 1, (1 + e2) / sum + 1e-9), 2);
	assert_int_equal(llama_choose(logits, 4, 1, 1 - 1e-9), 3);
	assert_int_equal(llama_choose(logits, 4, 0.01, 1 - 1e-9), 2);
}

/* ---- Table and initial parameters ---- */

static void tensors_cover_each_layer_exactly(void **state)
{
	(void)state;
	for (unsigned tied = 0; tied < 2; tied++) {
		struct llama_config config = SMALL;
		config.tie_word_embeddings = tied == 1;
		unsigned layer = 0, count = llama_tensor_count(&config);
		size_t end = 0;
		assert_int_equal(count, 1 + 2 * 9 + (tied ? 1 : 2));
		for (unsigned i = 0; i < count; i++) {
			struct llama_tensor t;
			llama_tensor_at(&config, i, &t);
			if (t.layer != layer) {
				assert_int_equal(t.layer, layer + 1);
				assert_int_equal(end, llama_layer_size(&config, layer));
				layer++;
				end = 0;
			}
			assert_int_equal(t.offset, end);
			assert_int_equal(t.size, t.dims[0] * (t.rank == 2 ? t.dims[1] : 1));
			end += t.size;
		}
		assert_int_equal(layer + 1, llama_layer_count(&config));
		assert_int_equal(end, llama_layer_size(&config, layer));
	}
}

static void initial_parameters_follow_the_seed_alone(void **state)
{
	size_t count = llama_layer_size(&SMALL, 1);
	float *a = calloc(3 * count, sizeof *a), *b = a + count, *c = b + count;
	(void)state;
	assert_non_null(a);
	llama_init(&SMALL, 1, 42, a);
	llama_init(&SMALL, 1, 42, b);
	llama_init(&SMALL, 2, 42, c);
	assert_memory_equal(a, b, count * sizeof(float));
	assert_memory_not_equal(a, c, count * sizeof(float));
	llama_init(&SMALL, 1, 43, b);
	assert_memory_not_equal(a, b, count * sizeof(float));
	for (size_t i = 0; i < SMALL.hidden_size; i++)
		assert_true(a[i] == 1);
	double squares = 0, residual = 0;
	size_t up = llama_tensor_offset(&SMALL, LLAMA_UP), down = llama_tensor_offset(&SMALL, LLAMA_DOWN);
	for (size_t i = 0; i < count - down; i++) {
		squares += pow((double)a[up + i], 2);
		residual += pow((double)a[down + i], 2);
	}
	assert_relative("deviation", 0, sqrt(squares / (double)(count - down)), 0.02, 0.05);
	assert_relative("deviation of down", 0, sqrt(residual / (double)(count - down)), 0.02 / 2, 0.05);
	free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(untied_grouped_heads_match_reference),
		cmocka_unit_test(tied_head_matches_reference),
		cmocka_unit_test(one_head_one_token_matches_reference),
		cmocka_unit_test(micro_batches_equal_one_big_batch),
		cmocka_unit_test(gradient_is_slope_for_any_number_of_tiles),
		cmocka_unit_test(logits_depend_on_earlier_tokens_alone),
		cmocka_unit_test(layers_are_held_around_use_and_dropped_on_refusal),
		cmocka_unit_test(nonfinite_gradient_takes_no_step),
		cmocka_unit_test(clipping_bounds_the_first_moment),
		cmocka_unit_test(schedule_warms_up_then_follows_cosine),
		cmocka_unit_test(cached_generation_equals_full_forward),
		cmocka_unit_test(refused_extension_leaves_the_sequence),
		cmocka_unit_test(choice_follows_temperature),
		cmocka_unit_test(tensors_cover_each_layer_exactly),
		cmocka_unit_test(initial_parameters_follow_the_seed_alone),
	};
	kernels_set_threads(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

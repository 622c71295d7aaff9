/* The model against the reference's numbers (tests/vectors/llama_*), and what must hold for any numbers: accumulation,
 * tiles of any size, the order of the hooks. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/near.h"
#include "tests/owned_model.h"
#include "tests/reference_llama.h"
#include "worker/attention.h"

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
		assert_true(adamw_step(&r->config, o->pieces, &r->adamw, r->rate, step + 1, &norm));
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
	struct owned o = owned_new(&r->config, (struct llama_limits){r->batch, r->time, 0, true, false});
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
	struct owned big = owned_new(config, (struct llama_limits){BATCH, time, 0, true, false});
	struct owned micro = owned_new(config, (struct llama_limits){PART, time, 0, true, false});
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
		struct owned o = owned_new(&SMALL, (struct llama_limits){1, times[i], 0, true, false});
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
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, TIME, 0, false, false});
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

static void check_hooks(bool is_tied, const char *accumulate, const char *evaluate, const char *refused)
{
	enum { TIME = 5 };
	uint32_t tokens[TIME + 1];
	double loss = 0;
	struct llama_config config = SMALL;
	struct journal journal = {.refused_layer = -1, .failure = 17};
	struct llama_hooks hooks = journal_hooks(&journal);
	config.tie_word_embeddings = is_tied;
	fill_tokens(tokens, TIME + 1, config.vocab_size);
	struct owned o = owned_new(&config, (struct llama_limits){1, TIME, 0, true, false});
	llama_set_hooks(o.model, &hooks);
	llama_gradient_zero(o.model);
	assert_int_equal(llama_accumulate(o.model, tokens, 1, TIME, 1, &loss), 0);
	assert_string_equal(journal.text, accumulate);
	journal.text[0] = 0;
	assert_int_equal(llama_evaluate(o.model, tokens, 1, TIME, &loss), 0);
	assert_string_equal(journal.text, evaluate);
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
	check_hooks(false, "a0 r0 a1 r1 a2 r2 a3 r3 d3 a2 r2 d2 a1 r1 d1 d0 ", "a0 r0 a1 r1 a2 r2 a3 r3 ", "a0 r0 a1 r1 a2 ");
	check_hooks(true, "a0 a1 r1 a2 r2 a3 r3 r0 d3 a2 r2 d2 a1 r1 d1 d0 ", "a0 a1 r1 a2 r2 a3 r3 r0 ", "a0 a1 r1 a2 r0 ");
}

/* What stood in a layer's gradient when it was said to be done. */
struct early {
	struct llama *model;
	float *copies[4];
	unsigned count;
};

static void keep_early(void *arg, unsigned layer)
{
	struct early *early = arg;
	size_t bytes = llama_layer_size(llama_config_of(early->model), layer) * sizeof(float);
	assert_int_equal(layer, 3 - early->count++);
	memcpy(early->copies[layer], llama_gradient(early->model, layer), bytes);
}

/* A gradient that is handed over when it is said to be done is the whole one, and looking at it changes no bit. */
static void check_early(bool is_tied)
{
	enum { TIME = 9, BATCH = 2 };
	uint32_t tokens[BATCH * (TIME + 1)];
	double loss, loss_hooked;
	struct llama_config config = SMALL;
	config.tie_word_embeddings = is_tied;
	fill_tokens(tokens, BATCH * (TIME + 1), config.vocab_size);
	struct owned plain = owned_new(&config, (struct llama_limits){BATCH, TIME, 0, true, false});
	struct owned hooked = owned_new(&config, (struct llama_limits){BATCH, TIME, 0, true, false});
	struct early early = {.model = hooked.model};
	for (unsigned layer = 0; layer < 4; layer++) {
		early.copies[layer] = calloc(llama_layer_size(&config, layer), sizeof(float));
		assert_non_null(early.copies[layer]);
	}
	llama_set_hooks(hooked.model, &(struct llama_hooks){.gradient_done = keep_early, .arg = &early});
	llama_gradient_zero(plain.model);
	llama_gradient_zero(hooked.model);
	assert_int_equal(llama_accumulate(plain.model, tokens, BATCH, TIME, 1, &loss), 0);
	assert_int_equal(llama_accumulate(hooked.model, tokens, BATCH, TIME, 1, &loss_hooked), 0);
	assert_int_equal(early.count, 4);
	assert_true(loss == loss_hooked);
	for (unsigned layer = 0; layer < 4; layer++) {
		size_t bytes = llama_layer_size(&config, layer) * sizeof(float);
		assert_memory_equal(early.copies[layer], llama_gradient(plain.model, layer), bytes);
		assert_memory_equal(llama_gradient(hooked.model, layer), llama_gradient(plain.model, layer), bytes);
		free(early.copies[layer]);
	}
	owned_free(&plain);
	owned_free(&hooked);
}

static void gradient_that_is_done_is_whole(void **state)
{
	(void)state;
	check_early(false);
	check_early(true);
}

/* ---- Layers that pass by ---- */

/* Two buffers for the parameters of all layers. What is not held is NaN. */
struct carousel {
	struct early early;
	float *const *theta; /* [4] what is copied into a buffer */
	float *buffers[2];
	int layers[2];       /* whose parameters are in it; -1: nobody's */
	size_t largest;      /* elements of a buffer */
};

static int board(void *arg, unsigned layer)
{
	struct carousel *carousel = arg;
	unsigned seat = carousel->layers[0] < 0 ? 0 : 1;
	assert_true(carousel->layers[seat] < 0);
	carousel->layers[seat] = (int)layer;
	memcpy(carousel->buffers[seat], carousel->theta[layer],
	       llama_layer_size(llama_config_of(carousel->early.model), layer) * sizeof(float));
	llama_bind(carousel->early.model, layer, carousel->buffers[seat]);
	return 0;
}

static void leave(void *arg, unsigned layer)
{
	struct carousel *carousel = arg;
	unsigned seat = carousel->layers[0] == (int)layer ? 0 : 1;
	assert_int_equal(carousel->layers[seat], layer);
	carousel->layers[seat] = -1;
	for (size_t i = 0; i < carousel->largest; i++)
		carousel->buffers[seat][i] = NAN;
}

/* Copies the gradient, then makes it useless: who still counts on it gets NaN. */
static void keep_and_spoil(void *arg, unsigned layer)
{
	struct carousel *carousel = arg;
	keep_early(&carousel->early, layer);
	llama_gradient(carousel->early.model, layer)[0] = NAN;
}

static struct carousel carousel_new(const struct owned *o)
{
	struct carousel carousel = {.early.model = o->model, .theta = o->theta, .layers = {-1, -1}};
	for (unsigned layer = 0; layer < 4; layer++) {
		size_t size = llama_layer_size(&o->config, layer);
		carousel.largest = size > carousel.largest ? size : carousel.largest;
		carousel.early.copies[layer] = calloc(size, sizeof(float));
		assert_non_null(carousel.early.copies[layer]);
		llama_bind(o->model, layer, NULL);
	}
	for (unsigned seat = 0; seat < 2; seat++) {
		carousel.buffers[seat] = calloc(carousel.largest, sizeof(float));
		assert_non_null(carousel.buffers[seat]);
	}
	return carousel;
}

static void carousel_free(struct carousel *carousel)
{
	for (unsigned layer = 0; layer < 4; layer++)
		free(carousel->early.copies[layer]);
	for (unsigned seat = 0; seat < 2; seat++)
		free(carousel->buffers[seat]);
}

static void check_passing(bool is_tied)
{
	enum { TIME = 9, BATCH = 2, PASSES = 3 };
	uint32_t tokens[PASSES * BATCH * (TIME + 1)];
	double loss, passing_loss;
	struct llama_config config = SMALL;
	config.tie_word_embeddings = is_tied;
	fill_tokens(tokens, PASSES * BATCH * (TIME + 1), config.vocab_size);
	struct owned plain = owned_new(&config, (struct llama_limits){BATCH, TIME, 0, true, false});
	struct owned passing = owned_new(&config, (struct llama_limits){BATCH, TIME, 0, true, true});
	struct carousel carousel = carousel_new(&passing);
	llama_set_hooks(passing.model, &(struct llama_hooks){board, leave, keep_and_spoil, &carousel});
	for (unsigned pass = 0; pass < PASSES; pass++) {
		const uint32_t *batch = tokens + (size_t)pass * BATCH * (TIME + 1);
		carousel.early.count = 0;
		llama_gradient_zero(plain.model);
		assert_int_equal(llama_accumulate(plain.model, batch, BATCH, TIME, 0.25, &loss), 0);
		assert_int_equal(llama_accumulate(passing.model, batch, BATCH, TIME, 0.25, &passing_loss), 0);
		assert_int_equal(carousel.early.count, 4);
		assert_true(isfinite(loss) && loss == passing_loss);
		for (unsigned layer = 0; layer < 4; layer++)
			assert_memory_equal(carousel.early.copies[layer], llama_gradient(plain.model, layer),
					    llama_layer_size(&config, layer) * sizeof(float));
		assert_int_equal(llama_evaluate(passing.model, batch, BATCH, TIME, &passing_loss), 0);
		assert_true(passing_loss == loss);
	}
	carousel_free(&carousel);
	owned_free(&plain);
	owned_free(&passing);
}

static void layers_that_pass_by_have_the_same_gradients(void **state)
{
	(void)state;
	check_passing(false);
	check_passing(true);
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
		cmocka_unit_test(gradient_that_is_done_is_whole),
		cmocka_unit_test(layers_that_pass_by_have_the_same_gradients),
	};
	kernels_set_threads(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

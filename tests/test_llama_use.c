/* What a model is used for beside gradients: the optimiser's step, generation, the table of tensors, initial
 * parameters. */

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
#include "worker/draw.h"
#include "worker/kernels.h"

/* ---- The step ---- */

static void nonfinite_gradient_takes_no_step(void **state)
{
	const float bad[] = {NAN, INFINITY, -INFINITY};
	struct adamw adamw = adamw_standard();
	(void)state;
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true, false});
	size_t count = llama_layer_size(&SMALL, 1);
	float *before = calloc(count, sizeof *before);
	assert_non_null(before);
	memcpy(before, o.theta[1], count * sizeof(float));
	for (size_t i = 0; i < 3; i++) {
		double norm = 0;
		llama_gradient_zero(o.model);
		llama_gradient(o.model, 1)[0] = 1;
		llama_gradient(o.model, 2)[3] = bad[i];
		assert_false(adamw_step(&SMALL, o.pieces, &adamw, 1e-3, 1, &norm));
		assert_true(!isfinite(norm));
		assert_memory_equal(o.theta[1], before, count * sizeof(float));
		for (size_t j = 0; j < 2 * count; j++)
			assert_true(o.inner[1][j] == 0);
	}
	llama_gradient(o.model, 2)[3] = 0;
	double norm;
	assert_true(adamw_step(&SMALL, o.pieces, &adamw, 1e-3, 1, &norm));
	assert_memory_not_equal(o.theta[1], before, count * sizeof(float));
	free(before);
	owned_free(&o);
}

static void clipping_bounds_the_first_moment(void **state)
{
	struct adamw adamw = adamw_standard();
	double norm;
	(void)state;
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true, false});
	for (unsigned clipped = 0; clipped < 2; clipped++) {
		adamw.clip_norm = clipped ? 1 : 0;
		memset(o.inner[1], 0, 2 * llama_layer_size(&SMALL, 1) * sizeof(float));
		llama_gradient_zero(o.model);
		llama_gradient(o.model, 1)[0] = 30;
		llama_gradient(o.model, 2)[0] = 40;
		assert_true(adamw_step(&SMALL, o.pieces, &adamw, 1e-3, 1, &norm));
		assert_relative("norm", clipped, norm, 50, 1e-7);
		assert_relative("m", clipped, (double)o.inner[1][0], clipped ? 0.1 * 0.6 : 3, 1e-6);
	}
	owned_free(&o);
}

/* Elements of a layer of SMALL from first on, in memory of their own, as a node of several has them. */
static struct adamw_piece piece_new(const struct owned *o, unsigned layer, size_t first, size_t count)
{
	size_t size = llama_layer_size(&SMALL, layer);
	float *block = calloc(4 * count + 1, sizeof *block);
	assert_non_null(block);
	struct adamw_piece piece = {first, count, block, block + count, block + 3 * count};
	memcpy(piece.theta, o->theta[layer] + first, count * sizeof(float));
	memcpy(piece.inner, o->inner[layer] + first, count * sizeof(float));
	memcpy(piece.inner + count, o->inner[layer] + size + first, count * sizeof(float));
	memcpy(piece.gradient, o->pieces[layer].gradient + first, count * sizeof(float));
	return piece;
}

static void assert_piece(const struct owned *o, unsigned layer, const struct adamw_piece *piece)
{
	const float *v = o->inner[layer] + llama_layer_size(&SMALL, layer);
	size_t bytes = piece->count * sizeof(float);
	assert_memory_equal(piece->theta, o->theta[layer] + piece->first, bytes);
	assert_memory_equal(piece->inner, o->inner[layer] + piece->first, bytes);
	assert_memory_equal(piece->inner + piece->count, v + piece->first, bytes);
}

/* Pieces of every size, begun at every element of the first tensors: norms and matrices meet inside them. */
static void pieces_are_stepped_as_the_whole_to_the_bit(void **state)
{
	enum { CUTS = 150, STEPS = 2 };
	struct adamw adamw = adamw_standard();
	struct adamw_update update;
	double norm;
	(void)state;
	for (unsigned cut = 0; cut < CUTS; cut++) {
		struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true, false});
		unsigned layer = 1 + cut % 3;
		size_t size = llama_layer_size(&SMALL, layer), begin = (cut * 7) % (size / 2), end = size - cut * cut % (size / 2);
		const size_t borders[] = {0, begin, begin, end, size};
		struct adamw_piece pieces[4];
		for (unsigned l = 0; l < llama_layer_count(&SMALL); l++)
			draw_normals(cut, l, 1, o.pieces[l].gradient, llama_layer_size(&SMALL, l));
		for (unsigned i = 0; i < 4; i++)
			pieces[i] = piece_new(&o, layer, borders[i], borders[i + 1] - borders[i]);
		assert_relative("squares", cut, adamw_square_sum(pieces, 4), adamw_square_sum(o.pieces + layer, 1), 1e-12);
		for (unsigned step = 1; step <= STEPS; step++) {
			assert_true(adamw_step(&SMALL, o.pieces, &adamw, 1e-3, step, &norm));
			assert_true(adamw_begin(&adamw, norm, 1e-3, step, &update));
			for (unsigned i = 0; i < 4; i++)
				adamw_step_piece(&SMALL, layer, &pieces[i], &update);
		}
		for (unsigned i = 0; i < 4; i++) {
			assert_piece(&o, layer, &pieces[i]);
			free(pieces[i].theta);
		}
		owned_free(&o);
	}
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
	struct owned whole = owned_new(&SMALL, (struct llama_limits){1, TIME, 0, false, false});
	struct owned parts = owned_new(&SMALL, (struct llama_limits){2, 35, TIME, false, false}); /* 70 rows at a time */
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
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 10, TIME, false, false});
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

/* ---- Memory ---- */

static size_t memory_of(unsigned time)
{
	struct llama *model;
	assert_int_equal(llama_new(&SMALL, &(struct llama_limits){1, time, 0, true, false}, &model), 0);
	size_t bytes = llama_memory_bytes(model);
	llama_free(model);
	return bytes;
}

/* A square of scores per head kept anywhere would make twice the context cost four times as much. */
static void memory_grows_with_the_context_and_not_with_its_square(void **state)
{
	(void)state;
	for (unsigned time = 256; time <= 4096; time *= 2) {
		size_t before = memory_of(time) - memory_of(time / 2), after = memory_of(2 * time) - memory_of(time);
		assert_true((double)after < 2.01 * (double)before);
	}
}

/* What passing by spares: the gradients of all layers but the largest and, if it gathers from the loss on, the embedding. */
static void layers_that_pass_by_need_one_gradient(void **state)
{
	enum { LINE = 64 / sizeof(float) };
	(void)state;
	for (unsigned tied = 0; tied < 2; tied++) {
		struct llama_config config = SMALL;
		config.tie_word_embeddings = tied == 1;
		size_t bytes[2], spared = 0, largest = 0;
		for (unsigned passing = 0; passing < 2; passing++) {
			struct llama *model;
			const struct llama_limits limits = {1, 16, 0, true, passing == 1};
			assert_int_equal(llama_new(&config, &limits, &model), 0);
			bytes[passing] = llama_memory_bytes(model);
			llama_free(model);
		}
		for (unsigned layer = tied; layer < llama_layer_count(&config); layer++) {
			size_t size = (llama_layer_size(&config, layer) + LINE - 1) / LINE * LINE;
			spared += size;
			largest = size > largest ? size : largest;
		}
		assert_int_equal(bytes[0] - bytes[1], (spared - largest) * sizeof(float));
	}
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
		cmocka_unit_test(nonfinite_gradient_takes_no_step),
		cmocka_unit_test(clipping_bounds_the_first_moment),
		cmocka_unit_test(pieces_are_stepped_as_the_whole_to_the_bit),
		cmocka_unit_test(schedule_warms_up_then_follows_cosine),
		cmocka_unit_test(cached_generation_equals_full_forward),
		cmocka_unit_test(refused_extension_leaves_the_sequence),
		cmocka_unit_test(choice_follows_temperature),
		cmocka_unit_test(memory_grows_with_the_context_and_not_with_its_square),
		cmocka_unit_test(layers_that_pass_by_need_one_gradient),
		cmocka_unit_test(tensors_cover_each_layer_exactly),
		cmocka_unit_test(initial_parameters_follow_the_seed_alone),
	};
	kernels_set_threads(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "worker/kernels.h"

/* ---- The step ---- */

static void nonfinite_gradient_takes_no_step(void **state)
{
	const float bad[] = {NAN, INFINITY, -INFINITY};
	struct adamw adamw = adamw_standard();
	struct journal journal = {.refused_layer = -1};
	struct llama_hooks hooks = journal_hooks(&journal);
	(void)state;
	struct owned o = owned_new(&SMALL, (struct llama_limits){1, 4, 0, true});
	size_t count = llama_layer_size(&SMALL, 1);
	float *before = calloc(count, sizeof *before);
	assert_non_null(before);
	memcpy(before, o.theta[1], count * sizeof(float));
	llama_set_hooks(o.model, &hooks);
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

/* ---- Memory ---- */

static size_t memory_of(unsigned time)
{
	struct llama *model;
	assert_int_equal(llama_new(&SMALL, &(struct llama_limits){1, time, 0, true}, &model), 0);
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
		cmocka_unit_test(schedule_warms_up_then_follows_cosine),
		cmocka_unit_test(cached_generation_equals_full_forward),
		cmocka_unit_test(refused_extension_leaves_the_sequence),
		cmocka_unit_test(choice_follows_temperature),
		cmocka_unit_test(memory_grows_with_the_context_and_not_with_its_square),
		cmocka_unit_test(tensors_cover_each_layer_exactly),
		cmocka_unit_test(initial_parameters_follow_the_seed_alone),
	};
	kernels_set_threads(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

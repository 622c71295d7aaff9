/* A model with memory of its own, and hooks that keep a journal. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/owned_model.h"
#include "worker/draw.h"

const struct llama_config SMALL = {
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

struct owned owned_new(const struct llama_config *config, struct llama_limits limits)
{
	struct owned o = {.config = *config};
	unsigned layers = llama_layer_count(config);
	assert_int_equal(llama_new(config, &limits, &o.model), 0);
	o.theta = calloc(layers, sizeof *o.theta);
	o.inner = calloc(layers, sizeof *o.inner);
	o.pieces = calloc(layers, sizeof *o.pieces);
	assert_non_null(o.theta);
	assert_non_null(o.inner);
	assert_non_null(o.pieces);
	for (unsigned layer = 0; layer < layers; layer++) {
		o.theta[layer] = calloc(llama_layer_size(config, layer), sizeof(float));
		o.inner[layer] = calloc(llama_layer_size(config, layer), 2 * sizeof(float));
		assert_non_null(o.theta[layer]);
		assert_non_null(o.inner[layer]);
		llama_bind(o.model, layer, o.theta[layer]);
		o.pieces[layer] = (struct adamw_piece){
			.count = llama_layer_size(config, layer), .theta = o.theta[layer], .inner = o.inner[layer]};
		if (limits.training)
			o.pieces[layer].gradient = llama_gradient(o.model, layer);
		llama_init(config, layer, 1, o.theta[layer]);
	}
	return o;
}

void owned_free(struct owned *o)
{
	for (unsigned layer = 0; layer < llama_layer_count(&o->config); layer++) {
		free(o->theta[layer]);
		free(o->inner[layer]);
	}
	free(o->theta);
	free(o->inner);
	free(o->pieces);
	llama_free(o->model);
}

void fill_tokens(uint32_t *tokens, size_t count, unsigned vocab_size)
{
	for (size_t i = 0; i < count; i++)
		tokens[i] = (uint32_t)(draw_bits(7, 0, i) % vocab_size);
}

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
static void note_done(void *arg, unsigned layer) { note(arg, 'd', layer); }

struct llama_hooks journal_hooks(struct journal *journal)
{
	return (struct llama_hooks){
		.acquire = note_acquire, .release = note_release, .gradient_done = note_done, .arg = journal};
}

#ifndef EDIT_TESTS_OWNED_MODEL_H
#define EDIT_TESTS_OWNED_MODEL_H

/* A model with parameters and optimiser state of its own, for the tests of worker/llama.h. */

#include "worker/adamw.h"
#include "worker/llama.h"

struct owned {
	struct llama *model;
	struct llama_config config;
	float **theta, **inner;     /* [llama_layer_count] */
	struct adamw_piece *pieces; /* [llama_layer_count] the same as whole pieces; with training also the gradients */
};

/* Grouped heads, an untied head, heads wider than hidden / heads. */
extern const struct llama_config SMALL;

/* Parameters from llama_init with seed 1, inner state zero. The caller frees. */
struct owned owned_new(const struct llama_config *config, struct llama_limits limits);
/* The model and all that it was bound to. */
void owned_free(struct owned *o);

/* tokens [count], drawn from a fixed seed. */
void fill_tokens(uint32_t *tokens, size_t count, unsigned vocab_size);

/* Hooks that note what they are called for: a acquire, r release, d gradient done, each with the layer and a space. */
struct journal {
	char text[512];
	int refused_layer; /* acquire of it fails; -1: none */
	int failure;       /* with this result */
};

/* Hooks that write to journal, whose text is empty at first. */
struct llama_hooks journal_hooks(struct journal *journal);

#endif

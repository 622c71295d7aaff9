/* The table of a Llama decoder's tensors: one row for each kind, everything else is computed from it. */

#include "worker/llama_layout.h"

#include <stdio.h>

/* What a dimension of a tensor is. */
enum extent { NONE, VOCAB, HIDDEN, INTERMEDIATE, QUERY, KEY };

/* In enum llama_kind's order, which is that of the offsets. name: for a decoder block, what follows model.layers.N. */
static const struct {
	const char *name;
	enum extent rows, columns;
} TABLE[LLAMA_KIND_COUNT] = {
	[LLAMA_EMBEDDING] = {"model.embed_tokens.weight", VOCAB, HIDDEN},
	[LLAMA_NORM_1] = {"input_layernorm.weight", HIDDEN, NONE},
	[LLAMA_Q] = {"self_attn.q_proj.weight", QUERY, HIDDEN},
	[LLAMA_K] = {"self_attn.k_proj.weight", KEY, HIDDEN},
	[LLAMA_V] = {"self_attn.v_proj.weight", KEY, HIDDEN},
	[LLAMA_O] = {"self_attn.o_proj.weight", HIDDEN, QUERY},
	[LLAMA_NORM_2] = {"post_attention_layernorm.weight", HIDDEN, NONE},
	[LLAMA_GATE] = {"mlp.gate_proj.weight", INTERMEDIATE, HIDDEN},
	[LLAMA_UP] = {"mlp.up_proj.weight", INTERMEDIATE, HIDDEN},
	[LLAMA_DOWN] = {"mlp.down_proj.weight", HIDDEN, INTERMEDIATE},
	[LLAMA_NORM] = {"model.norm.weight", HIDDEN, NONE},
	[LLAMA_HEAD] = {"lm_head.weight", VOCAB, HIDDEN},
};

static size_t extent_of(const struct llama_config *config, enum extent extent)
{
	switch (extent) {
	case VOCAB: return config->vocab_size;
	case HIDDEN: return config->hidden_size;
	case INTERMEDIATE: return config->intermediate_size;
	case QUERY: return (size_t)config->head_count * config->head_dim;
	case KEY: return (size_t)config->kv_head_count * config->head_dim;
	case NONE: break;
	}
	return 1;
}

static size_t kind_size(const struct llama_config *config, enum llama_kind kind)
{
	return extent_of(config, TABLE[kind].rows) * extent_of(config, TABLE[kind].columns);
}

/* Kinds [first, end) of a layer. */
static void layer_kinds(const struct llama_config *config, unsigned layer, unsigned *ret_first, unsigned *ret_end)
{
	CHECK(layer < llama_layer_count(config));
	if (layer == 0) {
		*ret_first = LLAMA_EMBEDDING;
		*ret_end = LLAMA_NORM_1;
	} else if (layer <= config->layer_count) {
		*ret_first = LLAMA_NORM_1;
		*ret_end = LLAMA_NORM;
	} else {
		*ret_first = LLAMA_NORM;
		*ret_end = config->tie_word_embeddings ? LLAMA_HEAD : LLAMA_KIND_COUNT;
	}
}

unsigned llama_layer_count(const struct llama_config *config)
{
	return config->layer_count + 2;
}

size_t llama_layer_size(const struct llama_config *config, unsigned layer)
{
	unsigned first, end;
	size_t size = 0;
	layer_kinds(config, layer, &first, &end);
	for (unsigned kind = first; kind < end; kind++)
		size += kind_size(config, kind);
	return size;
}

void llama_layer_name(const struct llama_config *config, unsigned layer, char *name)
{
	CHECK(layer < llama_layer_count(config));
	if (layer == 0)
		snprintf(name, LLAMA_NAME_MAX, "embedding");
	else if (layer <= config->layer_count)
		snprintf(name, LLAMA_NAME_MAX, "block %u", layer - 1);
	else
		snprintf(name, LLAMA_NAME_MAX, "head");
}

size_t llama_tensor_offset(const struct llama_config *config, enum llama_kind kind)
{
	size_t offset = 0;
	CHECK(kind < LLAMA_KIND_COUNT);
	unsigned layer = kind < LLAMA_NORM_1 ? 0 : kind < LLAMA_NORM ? 1 : config->layer_count + 1;
	unsigned first, end;
	layer_kinds(config, layer, &first, &end);
	CHECK(kind < end);
	for (unsigned before = first; before < kind; before++)
		offset += kind_size(config, before);
	return offset;
}

unsigned llama_tensor_count(const struct llama_config *config)
{
	unsigned count = 0, first, end;
	for (unsigned layer = 0; layer < llama_layer_count(config); layer++) {
		layer_kinds(config, layer, &first, &end);
		count += end - first;
	}
	return count;
}

void llama_tensor_at(const struct llama_config *config, unsigned index, struct llama_tensor *ret_tensor)
{
	unsigned layer = 0, first, end;
	layer_kinds(config, layer, &first, &end);
	while (index >= end - first) {
		index -= end - first;
		layer_kinds(config, ++layer, &first, &end);
	}
	enum llama_kind kind = first + index;
	*ret_tensor = (struct llama_tensor){
		.kind = kind,
		.dims = {extent_of(config, TABLE[kind].rows), extent_of(config, TABLE[kind].columns)},
		.rank = TABLE[kind].columns == NONE ? 1 : 2,
		.layer = layer,
		.offset = llama_tensor_offset(config, kind),
		.size = kind_size(config, kind),
	};
	if (kind >= LLAMA_NORM_1 && kind < LLAMA_NORM)
		snprintf(ret_tensor->name, sizeof ret_tensor->name, "model.layers.%u.%s", layer - 1, TABLE[kind].name);
	else
		snprintf(ret_tensor->name, sizeof ret_tensor->name, "%s", TABLE[kind].name);
}

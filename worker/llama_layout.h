#ifndef EDIT_WORKER_LLAMA_LAYOUT_H
#define EDIT_WORKER_LLAMA_LAYOUT_H

/* Where each tensor of a Llama decoder lies: the one table that the model, the description for the daemon, and
 * reading and writing of safetensors all follow. Computed from the dimensions; owns nothing.
 *
 * Layers in forward order: 0 the embedding, 1 to layer_count the decoder blocks, then the final norm with the head
 * (the norm alone if the head is tied to the embedding). Within a layer tensors are packed one behind the other in
 * the order of Hugging Face's LlamaForCausalLM, so that the weights of q, k and v are one matrix, and those of gate
 * and up another. */

#include "worker/llama_config.h"

enum llama_kind {
	LLAMA_EMBEDDING, /* model.embed_tokens.weight          [vocab_size, hidden_size] */
	LLAMA_NORM_1,    /* input_layernorm.weight             [hidden_size] */
	LLAMA_Q,         /* self_attn.q_proj.weight            [head_count * head_dim, hidden_size] */
	LLAMA_K,         /* self_attn.k_proj.weight            [kv_head_count * head_dim, hidden_size] */
	LLAMA_V,         /* self_attn.v_proj.weight            [kv_head_count * head_dim, hidden_size] */
	LLAMA_O,         /* self_attn.o_proj.weight            [hidden_size, head_count * head_dim] */
	LLAMA_NORM_2,    /* post_attention_layernorm.weight    [hidden_size] */
	LLAMA_GATE,      /* mlp.gate_proj.weight               [intermediate_size, hidden_size] */
	LLAMA_UP,        /* mlp.up_proj.weight                 [intermediate_size, hidden_size] */
	LLAMA_DOWN,      /* mlp.down_proj.weight               [hidden_size, intermediate_size] */
	LLAMA_NORM,      /* model.norm.weight                  [hidden_size] */
	LLAMA_HEAD,      /* lm_head.weight                     [vocab_size, hidden_size]; absent if tied */
	LLAMA_KIND_COUNT
};

enum { LLAMA_NAME_MAX = 64 }; /* bytes of a tensor's or layer's name, with the final 0 */

struct llama_tensor {
	enum llama_kind kind;
	char name[LLAMA_NAME_MAX]; /* as in Hugging Face's files */
	uint64_t dims[2];          /* [rank], row-major */
	unsigned rank;             /* 1: a norm's weights, 2: a matrix */
	unsigned layer;            /* index of its layer */
	size_t offset;             /* elements from the begin of the layer */
	size_t size;               /* elements */
};

/* Layers of synchronisation: the decoder blocks and two more. */
unsigned llama_layer_count(const struct llama_config *config);

/* Elements of a layer: the sum of its tensors. layer < llama_layer_count. */
size_t llama_layer_size(const struct llama_config *config, unsigned layer);

/* The layer's name for people: "embedding", "block 0", ..., "head". name: [LLAMA_NAME_MAX]. */
void llama_layer_name(const struct llama_config *config, unsigned layer, char *name);

/* Tensors of all layers together. */
unsigned llama_tensor_count(const struct llama_config *config);

/* The index-th tensor in canonical order (layers in order, tensors in the order of their offsets). index <
 * llama_tensor_count. */
void llama_tensor_at(const struct llama_config *config, unsigned index, struct llama_tensor *ret_tensor);

/* Offset in elements of the tensor of that kind inside its layer (for a decoder block: the same in each). A tied
 * head has none. */
size_t llama_tensor_offset(const struct llama_config *config, enum llama_kind kind);

#endif

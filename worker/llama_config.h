#ifndef EDIT_WORKER_LLAMA_CONFIG_H
#define EDIT_WORKER_LLAMA_CONFIG_H

/* The dimensions of a Llama decoder, as plain data, and reading them from the config.json of a Hugging Face folder. */

#include <stddef.h>

#include "core/base.h"

/* Names are those of config.json, except layer_count (num_hidden_layers), head_count (num_attention_heads) and
 * kv_head_count (num_key_value_heads). Every count is at least 1; head_dim is even; kv_head_count divides
 * head_count. */
struct llama_config {
	unsigned vocab_size;
	unsigned hidden_size;
	unsigned intermediate_size;
	unsigned layer_count;   /* decoder blocks */
	unsigned head_count;    /* of queries */
	unsigned kv_head_count; /* of keys and values; each serves head_count / kv_head_count query heads */
	unsigned head_dim;      /* hidden_size / head_count unless config.json says otherwise */
	unsigned max_position_embeddings;
	double rms_norm_eps;
	double rope_theta;
	bool tie_word_embeddings; /* the output head is the embedding matrix */
};

/* Reads and checks the config.json at path. On failure writes one line (file, key, what was expected) to error
 * [error_size] and returns EDIT_ERROR_SYSTEM (not readable), EDIT_ERROR_MALFORMED (not JSON, or a value of the wrong
 * type), EDIT_ERROR_RANGE (a value that cannot be) or EDIT_ERROR_INVALID (a model that is not such a decoder, for
 * instance one with biases, another activation or scaled rotary frequencies). */
int llama_config_load(const char *path, struct llama_config *ret_config, char *error, size_t error_size);

/* The text of the config.json at path, as it is, to be freed by the caller: what goes into checkpoints. Errors as
 * above; nothing is checked but that it is shorter than 1 MiB. */
int llama_config_text(const char *path, char **ret_text, char *error, size_t error_size);

#endif

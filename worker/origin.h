#ifndef EDIT_WORKER_ORIGIN_H
#define EDIT_WORKER_ORIGIN_H

/* Where a model comes from: the config.json of a folder and its weights, or config.json alone and a seed. */

#include "worker/llama.h"
#include "worker/tensorfolder.h"

struct origin {
	struct llama_config config;
	char *config_text;            /* config.json as it is */
	struct tensorfolder *weights; /* NULL: initial parameters from the seed */
	uint64_t seed;
};

/* Opens model, a folder or the path of a config.json (then there are no weights), reads the config, and checks that
 * every tensor of the model is in the weights with its shape. needs_weights: a model without any is refused. On
 * failure writes one line to error [error_size] and returns an error as those of worker/llama_config.h and
 * worker/tensorfile.h. */
int origin_open(struct origin *origin, const char *model, uint64_t seed, bool needs_weights, char *error,
		size_t error_size);
void origin_close(struct origin *origin);

/* Fills theta [llama_layer_size] of a layer. Errors as origin_open. */
int origin_fill(const struct origin *origin, unsigned layer, float *ret_theta, char *error, size_t error_size);

/* XXH3 (64 bits) over theta of all layers in order: two members start alike if, and only if, these are equal. */
int origin_hash(const struct origin *origin, uint64_t *ret_hash, char *error, size_t error_size);

/* A model with parameters of its own, for tools that only compute. */
struct origin_model {
	struct llama *llama;
	float **thetas; /* [layer_count] */
	unsigned layer_count;
};

/* Makes a model of the origin, filled and bound, for these limits. Errors as origin_open; EDIT_ERROR_SYSTEM if memory
 * is short. The caller frees it with origin_model_fini. */
int origin_model_init(struct origin_model *model, const struct origin *origin, const struct llama_limits *limits,
		      char *error, size_t error_size);
void origin_model_fini(struct origin_model *model);

/* Why a model's results are not finite, as one phrase in text [text_size]: the first tensor that holds NaN or infinity
 * and where in it, or that none does. */
void origin_model_blame(const struct origin_model *model, const struct origin *origin, char *text, size_t text_size);

#endif

/* Where a model comes from: a folder with weights, or config.json and a seed. */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "worker/complain.h"
#include "worker/llama_weights.h"
#include "worker/origin.h"
#include "worker/say.h"

/* Opens the weights, and says what in them is of no use. */
static int open_weights(struct origin *origin, const char *folder, char *error, size_t error_size)
{
	int result = llama_weights_open(&origin->config, folder, &origin->weights, error, error_size);
	if (result)
		return result;
	const char *name;
	size_t count = tensorfolder_unasked(origin->weights, &name);
	if (count)
		say(SAY_NOTICE, "%s: %zu tensors are not part of the model and left aside (one is %.100s)", folder, count,
				name);
	return 0;
}

int origin_open(struct origin *origin, const char *model, uint64_t seed, bool needs_weights, char *error,
		size_t error_size)
{
	struct stat about;
	char *path;
	*origin = (struct origin){.seed = seed};
	if (stat(model, &about))
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be opened: %s", model, strerror(errno));
	bool is_folder = S_ISDIR(about.st_mode);
	if (needs_weights && !is_folder)
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: expected a folder with config.json and model.safetensors", model);
	if (is_folder && tensorfolder_has_piece(model))
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: a piece of a model, from a mesh; `edit-worker join' makes the model of all its pieces", model);
	if (asprintf(&path, "%s%s", model, is_folder ? "/config.json" : "") < 0)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", model, strerror(ENOMEM));
	int result = llama_config_load(path, &origin->config, error, error_size);
	if (!result)
		result = llama_config_text(path, &origin->config_text, error, error_size);
	free(path);
	if (!result && (needs_weights || (is_folder && tensorfolder_has_weights(model))))
		result = open_weights(origin, model, error, error_size);
	if (result)
		origin_close(origin);
	return result;
}

void origin_close(struct origin *origin)
{
	tensorfolder_close(origin->weights);
	free(origin->config_text);
	origin->weights = NULL;
	origin->config_text = NULL;
}

int origin_fill(const struct origin *origin, unsigned layer, float *ret_theta, char *error, size_t error_size)
{
	if (!origin->weights) {
		llama_init(&origin->config, layer, origin->seed, ret_theta);
		return 0;
	}
	return llama_weights_read(&origin->config, origin->weights, layer, ret_theta, error, error_size);
}

int origin_hash(const struct origin *origin, uint64_t *ret_hash, char *error, size_t error_size)
{
	unsigned count = llama_layer_count(&origin->config);
	size_t largest = 0;
	for (unsigned layer = 0; layer < count; layer++)
		largest = size_max(largest, llama_layer_size(&origin->config, layer));
	float *theta = malloc(largest * sizeof(*theta));
	XXH3_state_t *state = XXH3_createState();
	int result = 0;
	if (!theta || !state || XXH3_64bits_reset(state) != XXH_OK)
		result = complain(
				error, error_size, EDIT_ERROR_SYSTEM, "a layer of %zu parameters: %s", largest, strerror(ENOMEM));
	for (unsigned layer = 0; !result && layer < count; layer++) {
		result = origin_fill(origin, layer, theta, error, error_size);
		if (!result)
			XXH3_64bits_update(state, theta, llama_layer_size(&origin->config, layer) * sizeof(*theta));
	}
	if (!result)
		*ret_hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(theta);
	return result;
}

int origin_model_init(struct origin_model *model, const struct origin *origin, const struct llama_limits *limits,
		      char *error, size_t error_size)
{
	*model = (struct origin_model){.layer_count = llama_layer_count(&origin->config)};
	model->thetas = calloc(model->layer_count, sizeof(model->thetas[0]));
	int result = model->thetas ? llama_new(&origin->config, limits, &model->llama) : EDIT_ERROR_SYSTEM;
	if (result)
		result = complain(error, error_size, result, "a model of this size: %s",
				  result == EDIT_ERROR_SYSTEM ? strerror(ENOMEM) : edit_error_text(result));
	for (unsigned layer = 0; !result && layer < model->layer_count; layer++) {
		size_t size = llama_layer_size(&origin->config, layer);
		size_t bytes = (size * sizeof(float) + 63) / 64 * 64;
		model->thetas[layer] = aligned_alloc(64, bytes);
		if (!model->thetas[layer]) {
			result = complain(
					error, error_size, EDIT_ERROR_SYSTEM, "a layer of %zu parameters: %s", size, strerror(ENOMEM));
			break;
		}
		result = origin_fill(origin, layer, model->thetas[layer], error, error_size);
		if (!result)
			llama_bind(model->llama, layer, model->thetas[layer]);
	}
	if (result)
		origin_model_fini(model);
	return result;
}

void origin_model_fini(struct origin_model *model)
{
	llama_free(model->llama);
	for (unsigned layer = 0; model->thetas && layer < model->layer_count; layer++)
		free(model->thetas[layer]);
	free(model->thetas);
	*model = (struct origin_model){0};
}

void origin_model_blame(const struct origin_model *model, const struct origin *origin, char *text, size_t text_size)
{
	for (unsigned i = 0; i < llama_tensor_count(&origin->config); i++) {
		struct llama_tensor tensor;
		llama_tensor_at(&origin->config, i, &tensor);
		const float *values = model->thetas[tensor.layer] + tensor.offset;
		for (size_t j = 0; j < tensor.size; j++)
			if (!isfinite(values[j])) {
				snprintf(text, text_size, "tensor %s: element %zu is %s", tensor.name, j,
					 isnan(values[j]) ? "NaN" : "infinite");
				return;
			}
	}
	snprintf(text, text_size, "all weights are finite: too large for float32 on the way");
}

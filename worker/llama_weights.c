/* The tensors of a Llama, from and to files. Owns nothing. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/safetensors.h"
#include "worker/complain.h"
#include "worker/llama_weights.h"

int llama_weights_open(const struct llama_config *config, const char *folder, struct tensorfolder **ret_weights, char *error,
		       size_t error_size)
{
	struct tensorfolder *weights;
	int result = tensorfolder_open(folder, &weights, error, error_size);
	if (result)
		return result;
	for (unsigned i = 0; !result && i < llama_tensor_count(config); i++) {
		struct llama_tensor tensor;
		llama_tensor_at(config, i, &tensor);
		result = tensorfolder_check(weights, tensor.name, tensor.dims, tensor.rank, error, error_size);
	}
	if (result)
		tensorfolder_close(weights);
	else
		*ret_weights = weights;
	return result;
}

int llama_weights_read(const struct llama_config *config, struct tensorfolder *weights, unsigned layer, float *ret_theta,
		       char *error, size_t error_size)
{
	for (unsigned i = 0; i < llama_tensor_count(config); i++) {
		struct llama_tensor tensor;
		llama_tensor_at(config, i, &tensor);
		if (tensor.layer != layer)
			continue;
		int result = tensorfolder_read(weights, tensor.name, tensor.dims, tensor.rank, ret_theta + tensor.offset, error,
					       error_size);
		if (result)
			return result;
	}
	return 0;
}

int llama_weights_write(const struct llama_config *config, const float *const *thetas, const char *path, char *error,
			size_t error_size)
{
	unsigned count = llama_tensor_count(config);
	struct llama_tensor *places = calloc(count, sizeof(*places));
	struct safetensors_tensor *tensors = calloc(count, sizeof(*tensors));
	struct safetensors_writer writer;
	int result = places && tensors ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	for (unsigned i = 0; !result && i < count; i++) {
		llama_tensor_at(config, i, &places[i]);
		tensors[i] = (struct safetensors_tensor){.name = places[i].name,
							 .type = SAFETENSORS_F32,
							 .dims = places[i].dims,
							 .rank = places[i].rank,
							 .data = thetas[places[i].layer] + places[i].offset};
	}
	if (!result && safetensors_write(&writer, path, tensors, count))
		result = complain(error, error_size, EDIT_ERROR_SYSTEM, "%s", writer.error);
	free(tensors);
	free(places);
	return result;
}

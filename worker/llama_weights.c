/* The tensors of a Llama, from and to files. Owns nothing. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/safetensors.h"
#include "worker/complain.h"
#include "worker/llama_weights.h"

enum { SLICE_BYTES = 4 << 20 };

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

/* Writes the file in slices, after each of which watch is told. */
static int write_slices(struct safetensors_writer *writer, const char *path, const struct safetensors_tensor *tensors,
			size_t count, const struct llama_weights_watch *watch)
{
	int result = safetensors_writer_open(writer, path, tensors, count);
	for (bool is_done = false; !result && !is_done;) {
		uint64_t before = writer->file_bytes;
		result = safetensors_writer_step(writer, SLICE_BYTES, &is_done);
		if (!result && watch)
			watch->told(watch->object, writer->file_bytes - before);
	}
	return result ? result : safetensors_writer_commit(writer);
}

int llama_weights_write(const struct llama_config *config, const float *const *thetas, const char *path,
			const struct llama_weights_watch *watch, char *error, size_t error_size)
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
	if (!result && write_slices(&writer, path, tensors, count, watch))
		result = complain(error, error_size, EDIT_ERROR_SYSTEM, "%s", writer.error);
	free(tensors);
	free(places);
	return result;
}

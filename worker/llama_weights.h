#ifndef EDIT_WORKER_LLAMA_WEIGHTS_H
#define EDIT_WORKER_LLAMA_WEIGHTS_H

/* The weights of a Llama in a model folder: each tensor of worker/llama_layout.h under its name, layer by layer. Each failure
 * writes one line to error [error_size] and returns an error as those of worker/tensorfile.h. */

#include "worker/llama_layout.h"
#include "worker/tensorfolder.h"

/* Opens the weights of a folder and checks that every tensor of the model is there with its shape. The caller closes them
 * with tensorfolder_close. */
int llama_weights_open(const struct llama_config *config, const char *folder, struct tensorfolder **ret_weights, char *error,
		       size_t error_size);

/* Reads theta [llama_layer_size] of a layer. */
int llama_weights_read(const struct llama_config *config, struct tensorfolder *weights, unsigned layer, float *ret_theta,
		       char *error, size_t error_size);

/* Who is told how many bytes of a file have been written since the last time. */
struct llama_weights_watch {
	void (*told)(void *object, uint64_t bytes);
	void *object;
};

/* Writes thetas [llama_layer_count][llama_layer_size] as float32 to the .safetensors file at path, whole or not at all: the
 * same numbers give the same bytes. watch may be NULL. EDIT_ERROR_SYSTEM. */
int llama_weights_write(const struct llama_config *config, const float *const *thetas, const char *path,
			const struct llama_weights_watch *watch, char *error, size_t error_size);

#endif

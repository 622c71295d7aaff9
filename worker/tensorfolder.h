#ifndef EDIT_WORKER_TENSORFOLDER_H
#define EDIT_WORKER_TENSORFOLDER_H

/* The weights of a model folder as Hugging Face lays them out: model.safetensors, or the files that
 * model.safetensors.index.json names. Errors as in worker/tensorfile.h. */

#include "core/base.h"

struct tensorfolder;

/* Whether the folder has weights: model.safetensors or an index. */
bool tensorfolder_has_weights(const char *folder);
/* Whether the folder is a member's checkpoint of a mesh: a piece of a model. */
bool tensorfolder_has_piece(const char *folder);

/* Opens the files of a folder and checks all headers. If both are there, model.safetensors is used. The caller closes
 * it. */
int tensorfolder_open(const char *folder, struct tensorfolder **ret_weights, char *error, size_t error_size);
/* NULL is allowed. */
void tensorfolder_close(struct tensorfolder *weights);

/* Whether the tensor is there with the shape dims [rank] and a type that can be read. */
int tensorfolder_check(struct tensorfolder *weights, const char *name, const uint64_t *dims, size_t rank, char *error,
		       size_t error_size);
/* The same, and reads it as float32 into ret_values [product of dims]. */
int tensorfolder_read(struct tensorfolder *weights, const char *name, const uint64_t *dims, size_t rank,
		      float *ret_values, char *error, size_t error_size);

/* Tensors that no check or read has asked for, tables of rotary frequencies left aside (they are computed). ret_name:
 * the first (NULL: none), valid until close. */
size_t tensorfolder_unasked(struct tensorfolder *weights, const char **ret_name);

#endif

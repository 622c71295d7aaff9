#ifndef EDIT_WORKER_TENSORFILE_H
#define EDIT_WORKER_TENSORFILE_H

/* Reads one safetensors file. People download these files, so nothing in them is believed: every length, offset,
 * shape and name is checked against the file's size before it is used. The header is kept in memory, tensors are read
 * into the caller's arrays. The writer is proto/safetensors.h; the files of a model folder are worker/tensorfolder.h.
 *
 * Each failure writes one line (file, tensor, what was expected) to error [error_size] and returns EDIT_ERROR_SYSTEM
 * (cannot be opened or read), EDIT_ERROR_MALFORMED (damaged) or EDIT_ERROR_INVALID (not what was asked for). */

#include "proto/safetensors.h"

struct tensorfile;

struct tensorfile_tensor {
	char *name;
	char type[16];                       /* as in the header: "F32", "BF16", ... */
	uint64_t dims[SAFETENSORS_RANK_MAX]; /* [rank], row-major */
	size_t rank;
	uint64_t begin, end;                 /* bytes of its data, from the begin of the data */
	struct tensorfile *file;
	bool asked;                          /* for worker/tensorfolder.c: somebody wanted it */
};

/* Opens the file at path and checks its whole header. The caller closes it. */
int tensorfile_open(const char *path, struct tensorfile **ret_file, char *error, size_t error_size);
/* NULL is allowed. */
void tensorfile_close(struct tensorfile *file);

/* Tensors, sorted by name. */
size_t tensorfile_count(const struct tensorfile *file);
struct tensorfile_tensor *tensorfile_at(struct tensorfile *file, size_t index);
/* NULL: there is none of that name. */
struct tensorfile_tensor *tensorfile_find(struct tensorfile *file, const char *name);

/* Whether the tensor has the shape dims [rank] and a type that can be read: F32, BF16, F16. */
int tensorfile_check(const struct tensorfile_tensor *tensor, const uint64_t *dims, size_t rank, char *error,
		     size_t error_size);
/* Reads a tensor that has passed the check, as float32, into ret_values [product of its dims]; the conversion is
 * exact. */
int tensorfile_read(const struct tensorfile_tensor *tensor, float *ret_values, char *error, size_t error_size);

/* A shape for people, "[3, 4]", into text [text_size]. */
void tensorfile_shape_text(const uint64_t *dims, size_t rank, char *text, size_t text_size);

/* IEEE half precision (its bits) as float32, exact. */
float tensorfile_half(uint16_t bits);

#endif

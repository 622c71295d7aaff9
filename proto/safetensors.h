#ifndef EDIT_PROTO_SAFETENSORS_H
#define EDIT_PROTO_SAFETENSORS_H

/* Writes a .safetensors file: 8 bytes header length, a JSON header, then the tensors one behind the other,
 * little-endian. The file is written beside its place (path + ".partial"), in slices so that an event loop is never
 * held up for long, then synced and renamed: path is the old file or the new one, never a half one. The reader is
 * worker/tensorfile.h.
 *
 *     open -> step until done -> commit      (abort at any point leaves path as it was)
 */

#include "core/base.h"

enum {
	SAFETENSORS_RANK_MAX = 8,
	SAFETENSORS_HEADER_MAX = 16 << 20 /* bytes of the JSON header, both ways */
};

/* type, name in the file, bytes of an element */
#define SAFETENSORS_TYPES(X)                                                                                           \
	X(SAFETENSORS_F32, "F32", 4)                                                                                       \
	X(SAFETENSORS_F64, "F64", 8)                                                                                       \
	X(SAFETENSORS_U64, "U64", 8)                                                                                       \
	X(SAFETENSORS_U8, "U8", 1)

enum safetensors_type {
#define X(id, text, bytes) id,
	SAFETENSORS_TYPES(X)
#undef X
	SAFETENSORS_TYPE_COUNT
};

struct safetensors_tensor {
	const char *name;           /* UTF-8; distinct among the tensors of a file */
	enum safetensors_type type;
	const uint64_t *dims;       /* [rank], row-major; rank 0 is a single number */
	size_t rank;                /* up to SAFETENSORS_RANK_MAX */
	const void *data;           /* product of dims elements; may be NULL if that is 0 */
};

/* One file being written. The caller's memory; what it points to is the writer's own until commit or abort. */
struct safetensors_writer {
	const struct safetensors_tensor *tensors; /* [count], borrowed */
	size_t count;
	char *path, *aside;     /* the place, and the file beside it */
	char *header;           /* length word and JSON */
	size_t header_bytes;
	size_t piece;           /* being written: 0 the header, i tensor i - 1 */
	uint64_t done_bytes;    /* of the piece */
	uint64_t file_bytes;    /* written to the file */
	uint64_t total_bytes;   /* of the finished file */
	int fd;                 /* -1: not open */
	bool created;           /* the file beside is there, and ours to remove */
	char error[512];        /* one line about the last failure: file, what was done, cause */
};

/* What a file of tensors [count] begins with: length word and JSON header, the same bytes that the writer makes; their data is not
 * looked at. *ret_header is the caller's to free; *ret_total_bytes: of the whole file. EDIT_ERROR_RANGE: header or sizes too large;
 * EDIT_ERROR_SYSTEM: no memory. */
int safetensors_header(const struct safetensors_tensor *tensors, size_t count, char **ret_header, size_t *ret_bytes,
		       uint64_t *ret_total_bytes);

/* Begins a file at path. tensors and their data are borrowed and must not change until commit or abort: what a step
 * writes is what is in memory then. EDIT_ERROR_RANGE: header or sizes too large; EDIT_ERROR_SYSTEM. After any failure
 * of open, step or commit nothing is left to release, path is as it was, and writer->error has the line. */
int safetensors_writer_open(struct safetensors_writer *writer, const char *path,
			    const struct safetensors_tensor *tensors, size_t count);
/* Writes up to slice_bytes (> 0) more and asks the system to begin bringing them to the disk. ret_done: all is written,
 * commit is next. EDIT_ERROR_SYSTEM (a full disk, for example). */
int safetensors_writer_step(struct safetensors_writer *writer, size_t slice_bytes, bool *ret_done);
/* Syncs the file, renames it into place and syncs the folder. All steps must be done. EDIT_ERROR_SYSTEM. */
int safetensors_writer_commit(struct safetensors_writer *writer);
/* Removes what was written and releases everything. Allowed after a failure and after commit: then it does nothing. */
void safetensors_writer_abort(struct safetensors_writer *writer);
/* The three above in a row, for programs that may wait. */
int safetensors_write(struct safetensors_writer *writer, const char *path, const struct safetensors_tensor *tensors,
		      size_t count);

#endif

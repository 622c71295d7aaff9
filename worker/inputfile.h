#ifndef EDIT_WORKER_INPUTFILE_H
#define EDIT_WORKER_INPUTFILE_H

/* Reading files that people give: config, weights, data. Each failure writes one line with the path and the cause to
 * error [error_size] and returns EDIT_ERROR_SYSTEM, or EDIT_ERROR_INVALID if the path is not such a file. */

#include "core/base.h"

/* Opens a regular file (a folder, a pipe or a device is refused, and never waited for). The caller closes ret_fd. */
int inputfile_open(const char *path, int *ret_fd, uint64_t *ret_size_bytes, char *error, size_t error_size);

/* Reads exactly size bytes at offset; it is an error if the file has become shorter than that. path is for the line
 * only. */
int inputfile_read(int fd, const char *path, uint64_t offset, void *ret_bytes, size_t size, char *error,
		   size_t error_size);

/* A whole small file as text with a final 0, to be freed by the caller. Longer than max_bytes: EDIT_ERROR_INVALID. */
int inputfile_text(const char *path, size_t max_bytes, char **ret_text, char *error, size_t error_size);

#endif

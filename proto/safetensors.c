/* The writer of .safetensors files. Format: https://huggingface.co/docs/safetensors. The host is little-endian, so
 * numbers go to the file as they lie in memory. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

/* Text that grows; `failed` once memory is short, and stays so. */
struct text {
	char *bytes;
	size_t size, room;
	bool failed;
};

static void text_add(struct text *text, const char *bytes, size_t size)
{
	if (text->failed)
		return;
	if (text->size + size > text->room) {
		size_t room = size_max(text->size + size, size_max(4096, 2 * text->room));
		char *grown = realloc(text->bytes, room);
		if (!grown) {
			text->failed = true;
			return;
		}
		text->bytes = grown;
		text->room = room;
	}
	memcpy(text->bytes + text->size, bytes, size);
	text->size += size;
}

__attribute__((format(printf, 2, 3))) static void text_print(struct text *text, const char *format, ...)
{
	char line[128];
	va_list arguments;
	va_start(arguments, format);
	int size = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	CHECK(size >= 0);
	CHECK((size_t)size < sizeof(line));
	text_add(text, line, (size_t)size);
}

/* A JSON string: quotation marks, backslashes and control characters are escaped, UTF-8 goes through. */
static void text_add_string(struct text *text, const char *string)
{
	text_add(text, "\"", 1);
	for (const char *c = string; *c; c++) {
		if (*c == '"' || *c == '\\')
			text_print(text, "\\%c", *c);
		else if ((unsigned char)*c < 0x20)
			text_print(text, "\\u%04x", (unsigned)*c);
		else
			text_add(text, c, 1);
	}
	text_add(text, "\"", 1);
}

static const char *type_text(enum safetensors_type type)
{
	static const char *const texts[] = {
#define X(id, text, bytes) [id] = (text),
		SAFETENSORS_TYPES(X)
#undef X
	};
	return texts[type];
}

static uint64_t type_bytes(enum safetensors_type type)
{
	static const uint8_t bytes_of[] = {
#define X(id, text, bytes) [id] = (bytes),
		SAFETENSORS_TYPES(X)
#undef X
	};
	return bytes_of[type];
}

/* Bytes of a tensor's data; false if they are beyond 2^62. */
static bool tensor_bytes(const struct safetensors_tensor *tensor, uint64_t *ret_bytes)
{
	uint64_t bytes = type_bytes(tensor->type);
	for (size_t i = 0; i < tensor->rank; i++)
		if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes) || bytes >> 62)
			return false;
	*ret_bytes = bytes;
	return true;
}

/* Takes what the writer holds down and tells the failure, with errno's text if `cause`. */
__attribute__((format(printf, 4, 5))) static int writer_fail(struct safetensors_writer *writer, int error, int cause,
							     const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int size = vsnprintf(writer->error, sizeof(writer->error), format, arguments);
	va_end(arguments);
	if (cause && size >= 0 && (size_t)size < sizeof(writer->error))
		snprintf(writer->error + size, sizeof(writer->error) - (size_t)size, ": %s", strerror(cause));
	safetensors_writer_abort(writer);
	return error;
}

/* The length word and the header, padded with spaces so that the data begin at a multiple of 8. */
int safetensors_header(const struct safetensors_tensor *tensors, size_t count, char **ret_header, size_t *ret_bytes,
		       uint64_t *ret_total_bytes)
{
	struct text text = {0};
	uint64_t offset = 0;
	/* Loaders of transformers look for this one entry. */
	text_add(&text, "\0\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}", 8 + 31);
	for (size_t i = 0; i < count; i++) {
		const struct safetensors_tensor *tensor = &tensors[i];
		uint64_t bytes;
		CHECK(tensor->rank <= SAFETENSORS_RANK_MAX);
		CHECK(tensor->type < SAFETENSORS_TYPE_COUNT);
		if (!tensor_bytes(tensor, &bytes) || (offset + bytes) >> 62) {
			free(text.bytes);
			return EDIT_ERROR_RANGE;
		}
		text_add(&text, ",", 1);
		text_add_string(&text, tensor->name);
		text_print(&text, ":{\"dtype\":\"%s\",\"shape\":[", type_text(tensor->type));
		for (size_t k = 0; k < tensor->rank; k++)
			text_print(&text, "%s%" PRIu64, k ? "," : "", tensor->dims[k]);
		text_print(&text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + bytes);
		offset += bytes;
	}
	text_add(&text, "}", 1);
	text_add(&text, "       ", (8 - text.size % 8) % 8);
	if (text.failed || text.size > SAFETENSORS_HEADER_MAX) {
		free(text.bytes);
		return text.failed ? EDIT_ERROR_SYSTEM : EDIT_ERROR_RANGE;
	}
	uint64_t length = text.size - 8;
	memcpy(text.bytes, &length, 8);
	*ret_header = text.bytes;
	*ret_bytes = text.size;
	*ret_total_bytes = text.size + offset;
	return 0;
}

int safetensors_writer_open(
		struct safetensors_writer *writer, const char *path, const struct safetensors_tensor *tensors, size_t count)
{
	*writer = (struct safetensors_writer){.tensors = tensors, .count = count, .fd = -1};
	size_t room = strlen(path) + sizeof(".partial");
	writer->path = strdup(path);
	writer->aside = malloc(room);
	if (!writer->path || !writer->aside)
		return writer_fail(writer, EDIT_ERROR_SYSTEM, ENOMEM, "%s", path);
	snprintf(writer->aside, room, "%s.partial", path);
	int error = safetensors_header(tensors, count, &writer->header, &writer->header_bytes, &writer->total_bytes);
	uint64_t bytes;
	for (size_t i = 0; error == EDIT_ERROR_RANGE && i < count; i++)
		if (!tensor_bytes(&tensors[i], &bytes))
			return writer_fail(writer, error, 0, "%s: tensor %s is too large", path, tensors[i].name);
	if (error)
		return writer_fail(writer, error, 0, "%s: header of %zu tensors: %s", path, count,
				   error == EDIT_ERROR_SYSTEM ? strerror(ENOMEM) : "too large");
	/* A leftover of a writer that was killed is written over; a link in its place is not followed. */
	writer->fd = open(writer->aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (writer->fd < 0)
		return writer_fail(writer, EDIT_ERROR_SYSTEM, errno, "%s: cannot be created", writer->aside);
	writer->created = true;
	return 0;
}

/* A piece of the file: piece 0 is the header, piece i tensor i - 1. */
static const char *writer_piece(const struct safetensors_writer *writer, size_t piece, uint64_t *ret_bytes)
{
	if (piece == 0) {
		*ret_bytes = writer->header_bytes;
		return writer->header;
	}
	CHECK(piece <= writer->count);
	CHECK(tensor_bytes(&writer->tensors[piece - 1], ret_bytes));
	return writer->tensors[piece - 1].data;
}

/* Writes at least one byte and at most limit of what comes next; something is left to write. */
static int writer_write_some(struct safetensors_writer *writer, size_t limit)
{
	uint64_t bytes;
	const char *data = writer_piece(writer, writer->piece, &bytes);
	while (writer->done_bytes == bytes) {
		data = writer_piece(writer, ++writer->piece, &bytes);
		writer->done_bytes = 0;
	}
	size_t want = (size_t)u64_min(limit, bytes - writer->done_bytes);
	ssize_t got;
	do
		got = write(writer->fd, data + writer->done_bytes, want);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return writer_fail(writer, EDIT_ERROR_SYSTEM, got < 0 ? errno : EIO, "%s: write at byte %" PRIu64,
				writer->aside, writer->file_bytes);
	writer->done_bytes += (uint64_t)got;
	writer->file_bytes += (uint64_t)got;
	return 0;
}

int safetensors_writer_step(struct safetensors_writer *writer, size_t slice_bytes, bool *ret_done)
{
	CHECK(writer->fd >= 0);
	CHECK(slice_bytes > 0);
	uint64_t begin = writer->file_bytes;
	uint64_t end = begin + u64_min(slice_bytes, writer->total_bytes - begin);
	while (writer->file_bytes < end) {
		int error = writer_write_some(writer, (size_t)(end - writer->file_bytes));
		if (error)
			return error;
	}
	/* Only a hint, so that the sync in commit finds little left to do; file systems without it are no failure. */
	(void)sync_file_range(writer->fd, (off_t)begin, (off_t)(writer->file_bytes - begin), SYNC_FILE_RANGE_WRITE);
	*ret_done = writer->file_bytes == writer->total_bytes;
	return 0;
}

/* Syncs the folder that holds path, so that the rename itself survives a loss of power. */
static int folder_sync(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t size = slash ? (size_t)(slash - path) : 0;
	char *folder = slash ? strndup(path, size ? size : 1) : strdup(".");
	if (!folder)
		return -1;
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	if (fd < 0)
		return -1;
	int result = fsync(fd);
	int cause = errno;
	close(fd);
	errno = cause;
	return result;
}

int safetensors_writer_commit(struct safetensors_writer *writer)
{
	CHECK(writer->fd >= 0);
	CHECK(writer->file_bytes == writer->total_bytes);
	if (fsync(writer->fd))
		return writer_fail(writer, EDIT_ERROR_SYSTEM, errno, "%s: sync", writer->aside);
	int fd = writer->fd;
	writer->fd = -1;
	if (close(fd))
		return writer_fail(writer, EDIT_ERROR_SYSTEM, errno, "%s: close", writer->aside);
	if (rename(writer->aside, writer->path))
		return writer_fail(writer, EDIT_ERROR_SYSTEM, errno, "%s: rename", writer->path);
	writer->created = false;
	if (folder_sync(writer->path))
		return writer_fail(writer, EDIT_ERROR_SYSTEM, errno, "%s: sync of its folder", writer->path);
	safetensors_writer_abort(writer);
	return 0;
}

void safetensors_writer_abort(struct safetensors_writer *writer)
{
	if (writer->fd >= 0)
		close(writer->fd);
	if (writer->created)
		unlink(writer->aside);
	free(writer->path);
	free(writer->aside);
	free(writer->header);
	writer->path = writer->aside = writer->header = NULL;
	writer->created = false;
	writer->fd = -1;
}

int safetensors_write(struct safetensors_writer *writer, const char *path, const struct safetensors_tensor *tensors,
		      size_t count)
{
	int error = safetensors_writer_open(writer, path, tensors, count);
	bool done = false;
	while (!error && !done)
		error = safetensors_writer_step(writer, (size_t)4 << 20, &done);
	return error ? error : safetensors_writer_commit(writer);
}

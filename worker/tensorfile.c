/* Reads one safetensors file. Format: 8 bytes header length, a JSON object {name: {dtype, shape, data_offsets}}, then
 * the data, which the tensors must cover without gap or overlap (the rule of the format's own library). */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/complain.h"
#include "worker/inputfile.h"
#include "worker/tensorfile.h"

enum { CONVERT_COUNT = 16384 }; /* elements converted at a time */

struct tensorfile {
	char *path;
	int fd;
	uint64_t data_offset, data_bytes; /* where the data lie in the file */
	struct tensorfile_tensor *tensors; /* [count], sorted by name */
	size_t count;
};

size_t tensorfile_count(const struct tensorfile *file)
{
	return file->count;
}

struct tensorfile_tensor *tensorfile_at(struct tensorfile *file, size_t index)
{
	CHECK(index < file->count);
	return &file->tensors[index];
}

void tensorfile_close(struct tensorfile *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < file->count; i++)
		free(file->tensors[i].name);
	free(file->tensors);
	free(file->path);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

/* Bytes of an element; 0: a type that we do not know, whose size cannot be checked. */
static uint64_t type_bytes(const char *type)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
		     {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(type, types[i].text))
			return types[i].bytes;
	return 0;
}

void tensorfile_shape_text(const uint64_t *dims, size_t rank, char *text, size_t text_size)
{
	size_t size = 0;
	for (size_t i = 0; i < rank && size < text_size; i++)
		size += (size_t)snprintf(text + size, text_size - size, "%s%" PRIu64, i ? ", " : "[", dims[i]);
	if (size < text_size)
		snprintf(text + size, text_size - size, rank ? "]" : "[]");
}

/* A list of up to max whole numbers that are not negative; false if it is anything else. */
static bool read_numbers(const json_t *list, size_t max, uint64_t *ret_numbers, size_t *ret_count)
{
	size_t count = json_array_size(list);
	if (!json_is_array(list) || count > max)
		return false;
	for (size_t i = 0; i < count; i++) {
		const json_t *number = json_array_get(list, i);
		if (!json_is_integer(number) || json_integer_value(number) < 0)
			return false;
		ret_numbers[i] = (uint64_t)json_integer_value(number);
	}
	*ret_count = count;
	return true;
}

/* One entry of the header into *tensor, whose name is set. */
static int read_entry(const struct tensorfile *file, const json_t *entry, struct tensorfile_tensor *tensor, char *error,
		      size_t error_size)
{
	const char *name = tensor->name, *type = json_string_value(json_object_get(entry, "dtype"));
	uint64_t offsets[2], bytes;
	size_t offset_count;
	if (!type || strlen(type) >= sizeof(tensor->type))
		return complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: tensor %.100s: dtype: expected a type's name",
				file->path, name);
	if (!read_numbers(json_object_get(entry, "shape"), SAFETENSORS_RANK_MAX, tensor->dims, &tensor->rank))
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: tensor %.100s: shape: expected up to %d whole numbers", file->path, name, SAFETENSORS_RANK_MAX);
	if (!read_numbers(json_object_get(entry, "data_offsets"), 2, offsets, &offset_count) || offset_count != 2)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: tensor %.100s: data_offsets: expected begin and end, two whole numbers", file->path, name);
	strcpy(tensor->type, type);
	tensor->begin = offsets[0];
	tensor->end = offsets[1];
	if (tensor->begin > tensor->end || tensor->end > file->data_bytes)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: tensor %.100s: bytes %" PRIu64 " to %" PRIu64 " are not inside the data, which are %" PRIu64
				" bytes",
				file->path, name, tensor->begin, tensor->end, file->data_bytes);
	bool overflow = false;
	bytes = type_bytes(type);
	bool known = bytes > 0;
	for (size_t i = 0; i < tensor->rank; i++)
		overflow |= __builtin_mul_overflow(bytes, tensor->dims[i], &bytes);
	if (known && (overflow || bytes != tensor->end - tensor->begin)) {
		char shape[200];
		tensorfile_shape_text(tensor->dims, tensor->rank, shape, sizeof(shape));
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: tensor %.100s: %s of shape %s does not fill bytes %" PRIu64 " to %" PRIu64, file->path, name, type,
				shape, tensor->begin, tensor->end);
	}
	return 0;
}

static int compare_places(const void *left, const void *right)
{
	const struct tensorfile_tensor *a = left, *b = right;
	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return (a->end > b->end) - (a->end < b->end);
}

static int compare_names(const void *left, const void *right)
{
	const struct tensorfile_tensor *a = left, *b = right;
	return strcmp(a->name, b->name);
}

/* Whether the tensors cover the data without gap or overlap; leaves them sorted by name. */
static int check_cover(struct tensorfile *file, char *error, size_t error_size)
{
	uint64_t end = 0;
	qsort(file->tensors, file->count, sizeof(file->tensors[0]), compare_places);
	for (size_t i = 0; i < file->count; i++) {
		const struct tensorfile_tensor *tensor = &file->tensors[i];
		if (tensor->begin != end)
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: tensor %.100s: begins at byte %" PRIu64 " of the data, %s, expected %" PRIu64, file->path,
					tensor->name, tensor->begin, tensor->begin < end ? "inside the tensor before it" : "behind a gap",
					end);
		end = tensor->end;
	}
	if (end != file->data_bytes)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: %" PRIu64 " bytes of data, but the header's tensors end at %" PRIu64, file->path, file->data_bytes,
				end);
	qsort(file->tensors, file->count, sizeof(file->tensors[0]), compare_names);
	return 0;
}

static int read_entries(struct tensorfile *file, const json_t *header, char *error, size_t error_size)
{
	file->tensors = calloc(json_object_size(header) + 1, sizeof(file->tensors[0]));
	if (!file->tensors)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", file->path, strerror(ENOMEM));
	for (void *at = json_object_iter((json_t *)(uintptr_t)header); at;
	     at = json_object_iter_next((json_t *)(uintptr_t)header, at)) {
		const char *name = json_object_iter_key(at);
		if (!strcmp(name, "__metadata__"))
			continue;
		struct tensorfile_tensor *tensor = &file->tensors[file->count];
		tensor->name = strdup(name);
		if (!tensor->name)
			return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", file->path, strerror(ENOMEM));
		tensor->file = file;
		file->count++;
		int result = read_entry(file, json_object_iter_value(at), tensor, error, error_size);
		if (result)
			return result;
	}
	return check_cover(file, error, error_size);
}

/* Reads the header's text; ret_header is a JSON object to be released. */
static int read_header(
		struct tensorfile *file, uint64_t size_bytes, json_t **ret_header, char *error, size_t error_size)
{
	uint64_t length = 0;
	if (size_bytes < 8)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: %" PRIu64 " bytes, too short for a safetensors file", file->path, size_bytes);
	int result = inputfile_read(file->fd, file->path, 0, &length, 8, error, error_size);
	if (result)
		return result;
	if (length > size_bytes - 8 || length > SAFETENSORS_HEADER_MAX)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: says that its header is %" PRIu64 " bytes long, expected at most %" PRIu64
				" (not a safetensors file, or cut short)",
				file->path, length, u64_min(size_bytes - 8, SAFETENSORS_HEADER_MAX));
	char *text = malloc((size_t)length + 1);
	if (!text)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", file->path, strerror(ENOMEM));
	result = inputfile_read(file->fd, file->path, 8, text, (size_t)length, error, error_size);
	if (!result) {
		json_error_t place;
		json_t *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &place);
		if (json_is_object(header)) {
			file->data_offset = 8 + length;
			file->data_bytes = size_bytes - file->data_offset;
			*ret_header = header;
		} else {
			result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: header, byte %d: %s", file->path,
					  header ? 0 : place.position, header ? "expected a JSON object" : place.text);
			json_decref(header);
		}
	}
	free(text);
	return result;
}

int tensorfile_open(const char *path, struct tensorfile **ret_file, char *error, size_t error_size)
{
	struct tensorfile *file = calloc(1, sizeof(*file));
	char *copy = strdup(path);
	if (!file || !copy) {
		free(file);
		free(copy);
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	}
	file->path = copy;
	file->fd = -1;
	uint64_t size_bytes;
	json_t *header = NULL;
	int result = inputfile_open(path, &file->fd, &size_bytes, error, error_size);
	if (!result)
		result = read_header(file, size_bytes, &header, error, error_size);
	if (!result)
		result = read_entries(file, header, error, error_size);
	json_decref(header);
	if (result)
		tensorfile_close(file);
	else
		*ret_file = file;
	return result;
}

struct tensorfile_tensor *tensorfile_find(struct tensorfile *file, const char *name)
{
	struct tensorfile_tensor key = {.name = (char *)(uintptr_t)name};
	return file->count ? bsearch(&key, file->tensors, file->count, sizeof(key), compare_names) : NULL;
}

int tensorfile_check(const struct tensorfile_tensor *tensor, const uint64_t *dims, size_t rank, char *error,
		     size_t error_size)
{
	const char *path = tensor->file->path;
	if (rank != tensor->rank || memcmp(dims, tensor->dims, rank * sizeof(dims[0]))) {
		char shape[200], expected[200];
		tensorfile_shape_text(tensor->dims, tensor->rank, shape, sizeof(shape));
		tensorfile_shape_text(dims, rank, expected, sizeof(expected));
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: tensor %.100s: shape %s, expected %s", path,
				tensor->name, shape, expected);
	}
	if (strcmp(tensor->type, "F32") && strcmp(tensor->type, "BF16") && strcmp(tensor->type, "F16"))
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: tensor %.100s: type %s, expected F32, BF16 or F16",
				path, tensor->name, tensor->type);
	return 0;
}

static float float_of_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

float tensorfile_half(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 1023;
	if (exponent == 31)
		return float_of_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) {
		/* Subnormal: fraction x 2^-24, a number that float32 holds exactly. */
		float value = (float)fraction * 0x1p-24f;
		return sign ? -value : value;
	}
	return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

int tensorfile_read(const struct tensorfile_tensor *tensor, float *ret_values, char *error, size_t error_size)
{
	const struct tensorfile *file = tensor->file;
	uint64_t offset = file->data_offset + tensor->begin;
	if (!strcmp(tensor->type, "F32"))
		return inputfile_read(file->fd, file->path, offset, ret_values, (size_t)(tensor->end - tensor->begin), error,
				      error_size);
	bool is_half = !strcmp(tensor->type, "F16");
	CHECK(is_half || !strcmp(tensor->type, "BF16"));
	uint16_t bits[CONVERT_COUNT];
	size_t count = (size_t)(tensor->end - tensor->begin) / sizeof(bits[0]);
	for (size_t done = 0; done < count;) {
		size_t some = size_min(count - done, CONVERT_COUNT);
		int result = inputfile_read(file->fd, file->path, offset + done * sizeof(bits[0]), bits, some * sizeof(bits[0]),
					    error, error_size);
		if (result)
			return result;
		for (size_t i = 0; i < some; i++)
			ret_values[done + i] = is_half ? tensorfile_half(bits[i]) : float_of_bits((uint32_t)bits[i] << 16);
		done += some;
	}
	return 0;
}

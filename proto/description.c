/* A worker's description: building, writing and reading it. Reading goes through the building functions, so that bytes
 * from outside and calls of the own program pass the same checks. */

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "proto/description.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

static const char magic[8] = {'E', 'D', 'I', 'T', 'D', 'S', 'C', '1'};

void description_init(struct description *description)
{
	*description = (struct description){0};
}

void description_fini(struct description *description)
{
	for (size_t i = 0; i < description->layer_count; i++)
		free(description->layers[i].name);
	for (size_t i = 0; i < description->tensor_count; i++)
		free(description->tensors[i].name);
	for (size_t i = 0; i < description->fact_count; i++) {
		free((char *)description->facts[i].key);
		free((char *)description->facts[i].value);
	}
	free(description->layers);
	free(description->tensors);
	free(description->facts);
	free(description->config);
	description_init(description);
}

/* ---- Building ---- */

/* Room for one more element; the arrays grow at counts that are powers of two. */
static void *array_grow(void *array, size_t count, size_t element_bytes)
{
	if (count > 0 && (count & (count - 1)) != 0)
		return array;
	return realloc(array, (count ? 2 * count : 1) * element_bytes);
}

static int memory_fail(struct line *why)
{
	return line_fail(why, EDIT_ERROR_SYSTEM, "description: no memory");
}

static int name_check(const char *kind, const char *name, size_t bytes_max, struct line *why)
{
	size_t length = strlen(name);
	if (length < 1 || length > bytes_max || !text_is_plain(name, length))
		return line_fail(why, EDIT_ERROR_INVALID, "description: %s is not plain text of 1 to %zu bytes", kind, bytes_max);
	return 0;
}

int description_add_layer(struct description *description, const char *name, struct line *why)
{
	int error = name_check("a layer's name", name, DESCRIPTION_NAME_MAX, why);
	if (error)
		return error;
	if (description->layer_count == LAYER_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: more than %d layers", (int)LAYER_COUNT_MAX);
	struct description_layer *layers = array_grow(description->layers, description->layer_count, sizeof(*layers));
	if (!layers)
		return memory_fail(why);
	description->layers = layers;
	char *copy = strdup(name);
	if (!copy)
		return memory_fail(why);
	layers[description->layer_count++] =
		(struct description_layer){.name = copy, .first_tensor = description->tensor_count};
	return 0;
}

/* Product of dims if it keeps the model within DESCRIPTION_SIZE_MAX. */
static int size_multiply(const struct description *description, const char *name, const uint64_t *dims, size_t rank,
			 uint64_t *ret_size, struct line *why)
{
	uint64_t size = 1;
	bool is_empty = false; /* a 0 among the dims makes 0, but does not excuse the others */
	for (size_t i = 0; i < rank; i++) {
		is_empty = is_empty || dims[i] == 0;
		if (__builtin_mul_overflow(size, dims[i] ? dims[i] : 1, &size) || size > DESCRIPTION_SIZE_MAX)
			return line_fail(why, EDIT_ERROR_RANGE, "description: tensor %s is too large", name);
	}
	size = is_empty ? 0 : size;
	if (size > DESCRIPTION_SIZE_MAX - description->size)
		return line_fail(why, EDIT_ERROR_RANGE, "description: the model is too large with tensor %s", name);
	*ret_size = size;
	return 0;
}

int description_add_tensor(struct description *description, const char *name, const uint64_t *dims, size_t rank,
			   struct line *why)
{
	uint64_t size;
	int error = name_check("a tensor's name", name, DESCRIPTION_NAME_MAX, why);
	if (error)
		return error;
	if (description->layer_count == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "description: tensor %s stands before the first layer", name);
	if (rank > DESCRIPTION_RANK_MAX || description->tensor_count == DESCRIPTION_TENSOR_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: tensor %s: more than %d dims, or than %d tensors", name,
				 (int)DESCRIPTION_RANK_MAX, (int)DESCRIPTION_TENSOR_MAX);
	error = size_multiply(description, name, dims, rank, &size, why);
	if (error)
		return error;
	struct description_tensor *tensors = array_grow(description->tensors, description->tensor_count, sizeof(*tensors));
	if (!tensors)
		return memory_fail(why);
	description->tensors = tensors;
	char *copy = strdup(name);
	if (!copy)
		return memory_fail(why);
	struct description_layer *layer = &description->layers[description->layer_count - 1];
	struct description_tensor *tensor = &tensors[description->tensor_count++];
	*tensor = (struct description_tensor){
		.name = copy, .layer_index = description->layer_count - 1, .rank = rank, .offset = layer->size, .size = size};
	if (rank > 0)
		memcpy(tensor->dims, dims, rank * sizeof(dims[0]));
	layer->tensor_count++;
	layer->size += size;
	description->size += size;
	return 0;
}

int description_add_fact(struct description *description, const char *key, const char *value, struct line *why)
{
	int error = name_check("a fact's key", key, FACT_TEXT_MAX, why);
	if (error)
		return error;
	size_t length = strlen(value);
	if (length > FACT_TEXT_MAX || !text_is_plain(value, length))
		return line_fail(why, EDIT_ERROR_INVALID, "description: fact %s is not plain text of up to %d bytes", key,
				 (int)FACT_TEXT_MAX);
	if (description->fact_count == DESCRIPTION_FACT_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: more than %d facts", (int)DESCRIPTION_FACT_MAX);
	struct fact *facts = array_grow(description->facts, description->fact_count, sizeof(*facts));
	if (!facts)
		return memory_fail(why);
	description->facts = facts;
	struct fact fact = {.key = strdup(key), .value = strdup(value)};
	if (!fact.key || !fact.value) {
		free((char *)fact.key);
		free((char *)fact.value);
		return memory_fail(why);
	}
	facts[description->fact_count++] = fact;
	return 0;
}

int description_set_config(struct description *description, const char *text, struct line *why)
{
	size_t length = strlen(text);
	if (length > DESCRIPTION_CONFIG_MAX || !text_is_document(text, length))
		return line_fail(why, EDIT_ERROR_INVALID, "description: the config is not text of up to %d bytes",
				 (int)DESCRIPTION_CONFIG_MAX);
	char *copy = strdup(text);
	if (!copy)
		return memory_fail(why);
	free(description->config);
	description->config = copy;
	return 0;
}

int description_set_inner(struct description *description, unsigned factor, struct line *why)
{
	if (factor > DESCRIPTION_INNER_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: inner factor %u is out of range, expected 0 to %d", factor,
				 (int)DESCRIPTION_INNER_MAX);
	description->inner_factor = factor;
	return 0;
}

/* ---- Checking ---- */

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts names [count] and refuses the first that is there twice. */
static int names_check(const char *kind, const char **names, size_t count, struct line *why)
{
	qsort(names, count, sizeof(names[0]), name_compare);
	for (size_t i = 1; i < count; i++)
		if (!strcmp(names[i - 1], names[i]))
			return line_fail(why, EDIT_ERROR_INVALID, "description: %s %s is there twice", kind, names[i]);
	return 0;
}

int description_check(const struct description *description, struct line *why)
{
	if (description->layer_count == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "description: there is no layer");
	if (description_bytes(description) > DESCRIPTION_BYTES_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: larger than %d bytes", (int)DESCRIPTION_BYTES_MAX);
	size_t count_max = size_max(description->layer_count, size_max(description->tensor_count, description->fact_count));
	const char **names = calloc(count_max, sizeof(names[0]));
	if (!names)
		return memory_fail(why);
	for (size_t i = 0; i < description->layer_count; i++)
		names[i] = description->layers[i].name;
	int error = names_check("layer", names, description->layer_count, why);
	for (size_t i = 0; i < description->tensor_count; i++)
		names[i] = description->tensors[i].name;
	if (!error)
		error = names_check("tensor", names, description->tensor_count, why);
	for (size_t i = 0; i < description->fact_count; i++)
		names[i] = description->facts[i].key;
	if (!error)
		error = names_check("fact", names, description->fact_count, why);
	free(names);
	return error;
}

int description_find_layer(const struct description *description, const char *name, size_t *ret_index)
{
	for (size_t i = 0; i < description->layer_count; i++) {
		if (!strcmp(description->layers[i].name, name)) {
			*ret_index = i;
			return 0;
		}
	}
	return EDIT_ERROR_UNKNOWN;
}

/* ---- Writing ---- */

/* Bytes being written; without a buffer they are only counted. */
struct writer {
	char *buffer;
	size_t size_bytes;
};

static void write_bytes(struct writer *writer, const void *bytes, size_t size_bytes)
{
	if (writer->buffer && size_bytes > 0)
		memcpy(writer->buffer + writer->size_bytes, bytes, size_bytes);
	writer->size_bytes += size_bytes;
}

static void write_number(struct writer *writer, size_t number)
{
	CHECK(number <= UINT32_MAX);
	uint32_t word = (uint32_t)number;
	write_bytes(writer, &word, sizeof(word));
}

static void write_text(struct writer *writer, const char *text)
{
	size_t length = strlen(text);
	write_number(writer, length);
	write_bytes(writer, text, length);
}

static void write_description(struct writer *writer, const struct description *description)
{
	write_bytes(writer, magic, sizeof(magic));
	write_number(writer, DESCRIPTION_VERSION);
	write_number(writer, description->inner_factor);
	write_number(writer, description->layer_count);
	write_number(writer, description->fact_count);
	write_text(writer, description->config ? description->config : "");
	for (size_t i = 0; i < description->layer_count; i++) {
		const struct description_layer *layer = &description->layers[i];
		write_text(writer, layer->name);
		write_number(writer, layer->tensor_count);
		for (size_t j = layer->first_tensor; j < layer->first_tensor + layer->tensor_count; j++) {
			const struct description_tensor *tensor = &description->tensors[j];
			write_text(writer, tensor->name);
			write_number(writer, tensor->rank);
			write_bytes(writer, tensor->dims, tensor->rank * sizeof(tensor->dims[0]));
		}
	}
	for (size_t i = 0; i < description->fact_count; i++) {
		write_text(writer, description->facts[i].key);
		write_text(writer, description->facts[i].value);
	}
}

size_t description_bytes(const struct description *description)
{
	struct writer writer = {0};
	write_description(&writer, description);
	return writer.size_bytes;
}

void description_encode(const struct description *description, void *buffer)
{
	struct writer writer = {.buffer = buffer};
	write_description(&writer, description);
}

uint64_t description_hash(const void *bytes, size_t size_bytes)
{
	return XXH3_64bits(bytes, size_bytes);
}

/* ---- Reading ---- */

/* Bytes being read. Once they are at fault, `error` stays set and reading gives zeros and empty texts. */
struct reader {
	const char *at;
	size_t left_bytes;
	int error;
	struct line *why;
};

static void read_fail(struct reader *reader, const char *what)
{
	if (!reader->error)
		reader->error = line_fail(reader->why, EDIT_ERROR_MALFORMED, "description: %s", what);
}

static const char *read_bytes(struct reader *reader, size_t size_bytes)
{
	if (!reader->error && size_bytes > reader->left_bytes)
		read_fail(reader, "cut off");
	if (reader->error)
		return NULL;
	const char *bytes = reader->at;
	reader->at += size_bytes;
	reader->left_bytes -= size_bytes;
	return bytes;
}

static uint32_t read_number(struct reader *reader)
{
	uint32_t number = 0;
	const char *bytes = read_bytes(reader, sizeof(number));
	if (bytes)
		memcpy(&number, bytes, sizeof(number));
	return number;
}

/* Bytes of a text of up to bytes_max bytes, and their count; nothing after a fault. */
static const char *read_span(struct reader *reader, size_t bytes_max, size_t *ret_length)
{
	size_t length = read_number(reader);
	if (length > bytes_max)
		read_fail(reader, "a text is too long");
	const char *bytes = read_bytes(reader, length);
	if (bytes && memchr(bytes, 0, length))
		read_fail(reader, "a zero byte in a text");
	*ret_length = reader->error ? 0 : length;
	return reader->error ? "" : bytes;
}

/* A text of up to bytes_max bytes into buffer[bytes_max + 1]. */
static void read_text(struct reader *reader, char *buffer, size_t bytes_max)
{
	size_t length;
	const char *bytes = read_span(reader, bytes_max, &length);
	memcpy(buffer, bytes, length);
	buffer[length] = 0;
}

static void read_config(struct reader *reader, struct description *description)
{
	size_t length;
	const char *bytes = read_span(reader, DESCRIPTION_CONFIG_MAX, &length);
	char *text = strndup(bytes, length);
	if (!text) {
		reader->error = memory_fail(reader->why);
		return;
	}
	if (!reader->error && length > 0)
		reader->error = description_set_config(description, text, reader->why);
	free(text);
}

static void read_tensor(struct reader *reader, struct description *description)
{
	char name[DESCRIPTION_NAME_MAX + 1];
	uint64_t dims[DESCRIPTION_RANK_MAX];
	read_text(reader, name, DESCRIPTION_NAME_MAX);
	size_t rank = read_number(reader);
	if (rank > DESCRIPTION_RANK_MAX)
		read_fail(reader, "a tensor has too many dims");
	const char *bytes = read_bytes(reader, rank * sizeof(dims[0]));
	if (!bytes)
		return;
	memcpy(dims, bytes, rank * sizeof(dims[0]));
	reader->error = description_add_tensor(description, name, dims, rank, reader->why);
}

static void read_layer(struct reader *reader, struct description *description)
{
	char name[DESCRIPTION_NAME_MAX + 1];
	read_text(reader, name, DESCRIPTION_NAME_MAX);
	if (!reader->error)
		reader->error = description_add_layer(description, name, reader->why);
	uint32_t tensor_count = read_number(reader);
	for (uint32_t i = 0; i < tensor_count && !reader->error; i++)
		read_tensor(reader, description);
}

static void read_fact(struct reader *reader, struct description *description)
{
	char key[FACT_TEXT_MAX + 1], value[FACT_TEXT_MAX + 1];
	read_text(reader, key, FACT_TEXT_MAX);
	read_text(reader, value, FACT_TEXT_MAX);
	if (!reader->error)
		reader->error = description_add_fact(description, key, value, reader->why);
}

static void read_description(struct reader *reader, struct description *description)
{
	const char *begin = read_bytes(reader, sizeof(magic));
	if (begin && memcmp(begin, magic, sizeof(magic)) != 0)
		read_fail(reader, "not a description");
	uint32_t version = read_number(reader);
	if (!reader->error && version != DESCRIPTION_VERSION)
		reader->error = line_fail(reader->why, EDIT_ERROR_REFUSED, "description: version %u, expected %d", version,
					  (int)DESCRIPTION_VERSION);
	uint32_t inner_factor = read_number(reader);
	if (!reader->error)
		reader->error = description_set_inner(description, inner_factor, reader->why);
	uint32_t layer_count = read_number(reader);
	uint32_t fact_count = read_number(reader);
	if (!reader->error)
		read_config(reader, description);
	for (uint32_t i = 0; i < layer_count && !reader->error; i++)
		read_layer(reader, description);
	for (uint32_t i = 0; i < fact_count && !reader->error; i++)
		read_fact(reader, description);
	if (reader->left_bytes > 0)
		read_fail(reader, "bytes behind its end");
}

int description_decode(const void *bytes, size_t size_bytes, struct description *ret_description, struct line *why)
{
	if (size_bytes > DESCRIPTION_BYTES_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "description: larger than %d bytes", (int)DESCRIPTION_BYTES_MAX);
	struct description description;
	description_init(&description);
	struct reader reader = {.at = bytes, .left_bytes = size_bytes, .why = why};
	read_description(&reader, &description);
	if (!reader.error)
		reader.error = description_check(&description, why);
	if (reader.error)
		description_fini(&description);
	else
		*ret_description = description;
	return reader.error;
}

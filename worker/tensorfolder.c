/* The weights of a model folder. With an index, a tensor is looked up in the file that the index names for it. */

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/complain.h"
#include "worker/inputfile.h"
#include "worker/tensorfile.h"
#include "worker/tensorfolder.h"

enum {
	FILE_COUNT_MAX = 512, /* files of one model: each keeps a descriptor */
	INDEX_BYTES_MAX = 16 << 20
};

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct tensorfolder {
	char *source;              /* path of model.safetensors or of the index: named when a tensor is missing */
	struct tensorfile **files; /* [file_count] */
	char **names;              /* [file_count] names inside the folder */
	size_t file_count;
	json_t *map;               /* tensor -> file name; NULL: there is one file only */
};

static bool folder_has(const char *folder, const char *name)
{
	char *path;
	if (asprintf(&path, "%s/%s", folder, name) < 0)
		return false;
	bool has = access(path, F_OK) == 0;
	free(path);
	return has;
}

bool tensorfolder_has_weights(const char *folder)
{
	return folder_has(folder, single_name) || folder_has(folder, index_name);
}

bool tensorfolder_has_piece(const char *folder)
{
	DIR *entries = opendir(folder);
	bool has = false;
	for (const struct dirent *entry; entries && !has && (entry = readdir(entries)) != NULL;)
		has = fnmatch("piece-*-of-*.safetensors", entry->d_name, 0) == 0;
	if (entries)
		closedir(entries);
	return has;
}

void tensorfolder_close(struct tensorfolder *weights)
{
	if (!weights)
		return;
	for (size_t i = 0; i < weights->file_count; i++) {
		tensorfile_close(weights->files[i]);
		free(weights->names[i]);
	}
	free(weights->files);
	free(weights->names);
	free(weights->source);
	json_decref(weights->map);
	free(weights);
}

/* NULL: not opened. */
static struct tensorfile *file_named(const struct tensorfolder *weights, const char *name)
{
	for (size_t i = 0; i < weights->file_count; i++)
		if (!strcmp(weights->names[i], name))
			return weights->files[i];
	return NULL;
}

/* Opens the file `name` of the folder, unless it is open. */
static int weights_add(
		struct tensorfolder *weights, const char *folder, const char *name, char *error, size_t error_size)
{
	if (file_named(weights, name))
		return 0;
	if (weights->file_count == FILE_COUNT_MAX)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: names more than %d files", weights->source,
				FILE_COUNT_MAX);
	char *path, *copy = strdup(name);
	if (!copy || asprintf(&path, "%s/%s", folder, name) < 0) {
		free(copy);
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s/%s: %s", folder, name, strerror(ENOMEM));
	}
	int result = tensorfile_open(path, &weights->files[weights->file_count], error, error_size);
	free(path);
	if (result) {
		free(copy);
		return result;
	}
	weights->names[weights->file_count++] = copy;
	return 0;
}

/* A plain file name of the folder: an index must not lead anywhere else. */
static bool name_is_plain(const char *name)
{
	static const char ending[] = ".safetensors";
	size_t size = strlen(name), end = sizeof(ending) - 1;
	return size > end && size < 256 && name[0] != '.' && !strchr(name, '/') && !strcmp(name + size - end, ending);
}

/* Opens all files that the index's map names, and looks up every tensor where it is said to be. */
static int weights_follow(struct tensorfolder *weights, const char *folder, char *error, size_t error_size)
{
	const char *name;
	json_t *value;
	json_object_foreach(weights->map, name, value)
	{
		const char *holder = json_string_value(value);
		if (!holder || !name_is_plain(holder))
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: tensor %.100s: \"%.100s\" is not the name of a .safetensors file in the same folder",
					weights->source, name, holder ? holder : "");
		int result = weights_add(weights, folder, holder, error, error_size);
		if (result)
			return result;
		if (!tensorfile_find(file_named(weights, holder), name))
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: tensor %.100s is not in %s, where it should be", weights->source, name, holder);
	}
	return 0;
}

static int weights_open_index(struct tensorfolder *weights, const char *folder, char *error, size_t error_size)
{
	char *text;
	int result = inputfile_text(weights->source, INDEX_BYTES_MAX, &text, error, error_size);
	if (result)
		return result;
	json_error_t place;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &place);
	free(text);
	if (!root)
		return complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: line %d: not JSON (%s)", weights->source,
				place.line, place.text);
	weights->map = json_incref(json_object_get(root, "weight_map"));
	json_decref(root);
	if (!json_is_object(weights->map))
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: weight_map: expected an object of tensors and files", weights->source);
	return weights_follow(weights, folder, error, error_size);
}

int tensorfolder_open(const char *folder, struct tensorfolder **ret_weights, char *error, size_t error_size)
{
	bool single = folder_has(folder, single_name);
	if (!single && !folder_has(folder, index_name))
		return complain(
				error, error_size, EDIT_ERROR_INVALID, "%s: has neither %s nor %s", folder, single_name, index_name);
	struct tensorfolder *weights = calloc(1, sizeof(*weights));
	if (weights) {
		weights->files = calloc(FILE_COUNT_MAX, sizeof(weights->files[0]));
		weights->names = calloc(FILE_COUNT_MAX, sizeof(weights->names[0]));
		if (asprintf(&weights->source, "%s/%s", folder, single ? single_name : index_name) < 0)
			weights->source = NULL;
	}
	if (!weights || !weights->files || !weights->names || !weights->source) {
		tensorfolder_close(weights);
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", folder, strerror(ENOMEM));
	}
	int result = single ? weights_add(weights, folder, single_name, error, error_size)
			    : weights_open_index(weights, folder, error, error_size);
	if (result)
		tensorfolder_close(weights);
	else
		*ret_weights = weights;
	return result;
}

/* NULL: there is none. */
static struct tensorfile_tensor *weights_find(struct tensorfolder *weights, const char *name)
{
	if (!weights->map)
		return tensorfile_find(weights->files[0], name);
	const char *holder = json_string_value(json_object_get(weights->map, name));
	return holder ? tensorfile_find(file_named(weights, holder), name) : NULL;
}

int tensorfolder_check(struct tensorfolder *weights, const char *name, const uint64_t *dims, size_t rank, char *error,
		       size_t error_size)
{
	struct tensorfile_tensor *tensor = weights_find(weights, name);
	if (tensor) {
		tensor->asked = true;
		return tensorfile_check(tensor, dims, rank, error, error_size);
	}
	char shape[200];
	tensorfile_shape_text(dims, rank, shape, sizeof(shape));
	return complain(error, error_size, EDIT_ERROR_INVALID, "%s: tensor %.100s is missing, expected with shape %s",
			weights->source, name, shape);
}

int tensorfolder_read(struct tensorfolder *weights, const char *name, const uint64_t *dims, size_t rank,
		      float *ret_values, char *error, size_t error_size)
{
	int result = tensorfolder_check(weights, name, dims, rank, error, error_size);
	return result ? result : tensorfile_read(weights_find(weights, name), ret_values, error, error_size);
}

/* Older files carry tables of rotary frequencies, which follow from the config. */
static bool name_is_computed(const char *name)
{
	static const char ending[] = ".rotary_emb.inv_freq";
	size_t size = strlen(name), end = sizeof(ending) - 1;
	return size >= end && !strcmp(name + size - end, ending);
}

size_t tensorfolder_unasked(struct tensorfolder *weights, const char **ret_name)
{
	size_t count = 0;
	*ret_name = NULL;
	for (size_t i = 0; i < weights->file_count; i++)
		for (size_t k = 0; k < tensorfile_count(weights->files[i]); k++) {
			const struct tensorfile_tensor *tensor = tensorfile_at(weights->files[i], k);
			if (tensor->asked || name_is_computed(tensor->name))
				continue;
			if (!*ret_name)
				*ret_name = tensor->name;
			count++;
		}
	return count;
}

/* The manifest of a checkpoint, made and checked. Owns nothing. */

#include "daemon/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

#include "daemon/fields.h"

enum { FORMAT = 1, READ_BYTES = 1 << 20 };

/* ---- Writing ---- */

static json_t *layers_json(const struct run *run, const struct snapshot *snapshot)
{
	json_t *layers = json_array();
	for (size_t i = 0; i < snapshot->layer_count; i++) {
		json_t *layer = json_object();
		json_object_set_new(layer, "name", json_string(run->description.layers[i].name));
		if (run->segment.shards > 1)
			json_object_set_new(layer, "first", fields_count(segment_first(&run->segment, i)));
		json_object_set_new(layer, "elements", fields_count(snapshot->layers[i].size));
		json_object_set_new(layer, "xxh3", fields_hash(snapshot->layers[i].hash));
		json_array_append_new(layers, layer);
	}
	return layers;
}

char *manifest_text(const struct manifest *manifest, const struct run *run, const struct snapshot *snapshot)
{
	json_t *root = json_object(), *files = json_object();
	json_object_set_new(root, "format", json_integer(FORMAT));
	json_object_set_new(root, "run", json_string(manifest->run));
	json_object_set_new(root, "member", json_string(manifest->member));
	json_object_set_new(root, "view", json_integer(VIEW_FIRST));
	json_object_set_new(root, "round", fields_count(manifest->round));
	if (manifest->shards > 1) {
		json_object_set_new(root, "row", fields_count(run->config->row));
		json_object_set_new(root, "column", fields_count(manifest->column));
		json_object_set_new(root, "shards", fields_count(manifest->shards));
	}
	for (size_t i = 0; i < manifest->file_count; i++) {
		json_t *file = json_object();
		json_object_set_new(file, "bytes", fields_count(manifest->files[i].bytes));
		json_object_set_new(file, "xxh3", fields_hash(manifest->files[i].hash));
		json_object_set_new(files, manifest->files[i].name, file);
	}
	json_object_set_new(root, "files", files);
	json_object_set_new(root, "layers", layers_json(run, snapshot));
	char *text = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(root);
	return text;
}

/* ---- Reading ---- */

static bool read_name(const json_t *object, const char *key, char ret_name[TEXT_NAME_MAX + 1])
{
	const char *text = json_string_value(json_object_get(object, key));
	if (!text || !text_is_name(text))
		return false;
	snprintf(ret_name, TEXT_NAME_MAX + 1, "%s", text);
	return true;
}

static bool read_files(json_t *files, struct manifest *manifest)
{
	const char *name;
	json_t *object;
	json_object_foreach(files, name, object) {
		struct manifest_file *file = &manifest->files[manifest->file_count];
		size_t length = strlen(name);
		if (manifest->file_count == MANIFEST_FILES_MAX || length == 0 || length > MANIFEST_NAME_MAX || name[0] == '.' ||
		    strchr(name, '/') || !text_is_plain(name, length))
			return false;
		snprintf(file->name, sizeof file->name, "%s", name);
		if (!fields_read_count(object, "bytes", &file->bytes) || !fields_read_hash(object, &file->hash))
			return false;
		manifest->file_count++;
	}
	return manifest->file_count > 0;
}

static bool read_layers(const json_t *layers, uint64_t *ret_hash)
{
	XXH3_state_t state;
	XXH3_64bits_reset(&state);
	for (size_t i = 0; i < json_array_size(layers); i++) {
		uint64_t hash;
		if (!fields_read_hash(json_array_get(layers, i), &hash))
			return false;
		XXH3_64bits_update(&state, &hash, sizeof hash);
	}
	*ret_hash = XXH3_64bits_digest(&state);
	return json_array_size(layers) > 0;
}

/* The first field that is wrong, NULL if none is. */
static const char *read_all(json_t *root, struct manifest *manifest)
{
	uint64_t format;
	if (!fields_read_count(root, "format", &format) || format != FORMAT)
		return "format: expected 1";
	if (!read_name(root, "run", manifest->run))
		return "run: expected a name";
	if (!read_name(root, "member", manifest->member))
		return "member: expected a name";
	if (!fields_read_count(root, "round", &manifest->round))
		return "round: expected a whole number";
	manifest->shards = 1;
	if (json_object_get(root, "shards") &&
	    (!fields_read_count(root, "shards", &manifest->shards) || !fields_read_count(root, "column", &manifest->column) ||
	     manifest->shards > MEMBER_COUNT_MAX || manifest->column >= manifest->shards))
		return "shards and column: expected the place of a piece";
	if (!read_files(json_object_get(root, "files"), manifest))
		return "files: expected up to 8 names, each with bytes and xxh3";
	return read_layers(json_object_get(root, "layers"), &manifest->anchor_hash) ? NULL : "layers: expected a list, each with xxh3";
}

int manifest_read(const char *text, size_t bytes, struct manifest *ret_manifest, struct line *why)
{
	json_error_t error;
	struct manifest manifest = {0};
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return line_fail(why, EDIT_ERROR_MALFORMED, "no JSON (line %d)", error.line);
	const char *fault = read_all(root, &manifest);
	json_decref(root);
	if (fault)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s", fault);
	*ret_manifest = manifest;
	return 0;
}

/* ---- The files ---- */

static int open_file(const char *path, uint64_t *ret_bytes, struct line *why)
{
	struct stat about;
	/* O_NONBLOCK: a FIFO in the file's place is refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &about) != 0) {
		line_fail(why, EDIT_ERROR_MALFORMED, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (!S_ISREG(about.st_mode)) {
		line_fail(why, EDIT_ERROR_MALFORMED, "%s: not a regular file", path);
		close(fd);
		return -1;
	}
	*ret_bytes = (uint64_t)about.st_size;
	return fd;
}

static int check_file(const char *path, const struct manifest_file *file, char *buffer, struct line *why)
{
	XXH3_state_t state;
	uint64_t bytes;
	ssize_t got = 0;
	int fd = open_file(path, &bytes, why);
	if (fd < 0)
		return EDIT_ERROR_MALFORMED;
	XXH3_64bits_reset(&state);
	if (bytes == file->bytes)
		while ((got = read(fd, buffer, READ_BYTES)) > 0)
			XXH3_64bits_update(&state, buffer, (size_t)got);
	int cause = errno;
	close(fd);
	if (got < 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, strerror(cause));
	if (bytes != file->bytes)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s: %" PRIu64 " bytes, its manifest says %" PRIu64, path, bytes, file->bytes);
	if (XXH3_64bits_digest(&state) != file->hash)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s: damaged, not what its manifest's hash says", path);
	return 0;
}

static int load(const char *path, struct manifest *ret_manifest, struct line *why)
{
	uint64_t bytes;
	struct line fault = {""};
	int fd = open_file(path, &bytes, why);
	if (fd < 0)
		return EDIT_ERROR_MALFORMED;
	char *text = bytes <= MANIFEST_BYTES_MAX ? malloc(bytes + 1) : NULL;
	bool is_read = text && read(fd, text, bytes) == (ssize_t)bytes;
	close(fd);
	int error = is_read ? manifest_read(text, bytes, ret_manifest, &fault)
			    : line_fail(&fault, EDIT_ERROR_MALFORMED, "cannot be read, or is too large");
	free(text);
	return error ? line_fail(why, error, "%.300s: %.150s", path, fault.text) : 0;
}

int manifest_check(const char *folder, struct manifest *ret_manifest, struct line *why)
{
	char path[2 * CONFIG_PATH_MAX];
	struct manifest manifest = {0};
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	int error = load(path, &manifest, why);
	char *buffer = malloc(READ_BYTES);
	if (!error && !buffer)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	for (size_t i = 0; i < manifest.file_count && !error; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, manifest.files[i].name);
		error = check_file(path, &manifest.files[i], buffer, why);
	}
	free(buffer);
	if (!error)
		*ret_manifest = manifest;
	return error;
}

/* Checkpoints of a mesh's members. Nothing in them is believed: what a manifest says is compared with the files, and the
 * files with the dimensions of config.json. Owns the open file of tensors. */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

#include "core/layer.h"
#include "worker/complain.h"
#include "worker/inputfile.h"
#include "worker/piece.h"
#include "worker/tensorfile.h"

enum { FORMAT = 1, MANIFEST_BYTES_MAX = 64 << 20, HASH_SLICE_BYTES = 1 << 20 };

/* ---- The manifest ---- */

/* Size and hash of a file that the manifest must name. */
static int read_file_entry(const char *folder, const json_t *root, const char *name, uint64_t *ret_bytes, char *ret_hash,
			   char *error, size_t error_size)
{
	const json_t *entry = json_object_get(json_object_get(root, "files"), name);
	const json_t *bytes = json_object_get(entry, "bytes");
	const char *hash = json_string_value(json_object_get(entry, "xxh3"));
	if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 || !hash || strlen(hash) != 16)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s/manifest.json: files: %s: expected bytes and xxh3 (16 digits)", folder, name);
	*ret_bytes = (uint64_t)json_integer_value(bytes);
	memcpy(ret_hash, hash, 17);
	return 0;
}

/* A whole number of the manifest in [0, limit). */
static int read_number(const char *folder, const json_t *root, const char *key, json_int_t limit, json_int_t *ret_number,
		       char *error, size_t error_size)
{
	const json_t *number = json_object_get(root, key);
	if (!json_is_integer(number) || json_integer_value(number) < 0 || json_integer_value(number) >= limit)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s/manifest.json: %s: expected a whole number from 0 to %" JSON_INTEGER_FORMAT, folder, key, limit - 1);
	*ret_number = json_integer_value(number);
	return 0;
}

static int read_manifest(struct piece *piece, const json_t *root, char *error, size_t error_size)
{
	const char *run = json_string_value(json_object_get(root, "run"));
	json_int_t format, round, shards, column;
	if (!json_object_get(root, "shards"))
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: not a piece of a model: its manifest names no column of a mesh", piece->folder);
	int result = read_number(piece->folder, root, "format", INT32_MAX, &format, error, error_size);
	if (!result && format != FORMAT)
		result = complain(error, error_size, EDIT_ERROR_INVALID,
				  "%s/manifest.json: format %" JSON_INTEGER_FORMAT ", expected %d", piece->folder, format, FORMAT);
	if (!result && (!run || strlen(run) >= sizeof(piece->run)))
		result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s/manifest.json: run: expected a name of up to %zu bytes",
				  piece->folder, sizeof(piece->run) - 1);
	if (!result)
		result = read_number(piece->folder, root, "round", INT64_MAX, &round, error, error_size);
	if (!result)
		result = read_number(piece->folder, root, "shards", MEMBER_COUNT_MAX + 1, &shards, error, error_size);
	if (!result)
		result = read_number(piece->folder, root, "column", shards, &column, error, error_size);
	if (result)
		return result;
	snprintf(piece->run, sizeof(piece->run), "%s", run);
	piece->round = (uint64_t)round;
	piece->shards = (unsigned)shards;
	piece->column = (unsigned)column;
	snprintf(piece->file_name, sizeof(piece->file_name), "piece-%u-of-%u.safetensors", piece->column + 1, piece->shards);
	result = read_file_entry(piece->folder, root, piece->file_name, &piece->file_bytes, piece->file_hash, error, error_size);
	return result ? result
		      : read_file_entry(piece->folder, root, "config.json", &piece->config_bytes, piece->config_hash, error,
					error_size);
}

int piece_read(struct piece *piece, const char *folder, char *error, size_t error_size)
{
	*piece = (struct piece){.folder = folder};
	char *path, *text;
	if (asprintf(&path, "%s/manifest.json", folder) < 0)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", folder, strerror(ENOMEM));
	int result = inputfile_text(path, MANIFEST_BYTES_MAX, &text, error, error_size);
	if (!result) {
		json_error_t where;
		json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
		result = root ? read_manifest(piece, root, error, error_size)
			      : complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: line %d: not JSON (%s)", path, where.line,
					 where.text);
		json_decref(root);
		free(text);
	}
	free(path);
	return result;
}

/* ---- All of them ---- */

/* Whether a piece belongs to the same model at the same moment as the first one. */
static int check_alike(const struct piece *piece, const struct piece *first, char *error, size_t error_size)
{
	if (strcmp(piece->run, first->run) != 0)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: of run %s, %s is of run %s", piece->folder, piece->run,
				first->folder, first->run);
	if (piece->shards != first->shards)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: one of %u pieces, %s is one of %u", piece->folder,
				piece->shards, first->folder, first->shards);
	if (piece->round != first->round)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: of round %" PRIu64 ", %s is of round %" PRIu64,
				piece->folder, piece->round, first->folder, first->round);
	if (strcmp(piece->config_hash, first->config_hash) != 0)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: its config.json is another one than that of %s",
				piece->folder, first->folder);
	return 0;
}

int piece_check(const struct piece *pieces, unsigned count, char *error, size_t error_size)
{
	const unsigned shards = pieces[0].shards;
	for (unsigned i = 1; i < count; i++) {
		int result = check_alike(&pieces[i], &pieces[0], error, error_size);
		if (result)
			return result;
		for (unsigned k = 0; k < i; k++)
			if (pieces[k].column == pieces[i].column)
				return complain(error, error_size, EDIT_ERROR_INVALID, "%s and %s: both hold piece %u of %u",
						pieces[k].folder, pieces[i].folder, pieces[i].column + 1, shards);
	}
	for (unsigned column = 0, i; column < shards; column++) {
		for (i = 0; i < count && pieces[i].column != column; i++)
			;
		if (i == count)
			return complain(error, error_size, EDIT_ERROR_INVALID,
					"piece %u of %u is missing, expected a folder with each piece", column + 1, shards);
	}
	return 0;
}

/* ---- The files ---- */

/* XXH3 of the rest of an open file of so many bytes. */
static int hash_file(int fd, const char *path, uint64_t size, const struct piece_watch *watch, uint64_t *ret_hash, char *error,
		     size_t error_size)
{
	XXH3_state_t state;
	char *slice = malloc(HASH_SLICE_BYTES);
	int result = slice ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	XXH3_64bits_reset(&state);
	for (uint64_t done = 0; !result && done < size;) {
		size_t bytes = (size_t)u64_min(size - done, HASH_SLICE_BYTES);
		result = inputfile_read(fd, path, done, slice, bytes, error, error_size);
		if (!result)
			XXH3_64bits_update(&state, slice, bytes);
		done += bytes;
		watch->told(watch->object, bytes);
	}
	free(slice);
	if (!result)
		*ret_hash = XXH3_64bits_digest(&state);
	return result;
}

/* Whether the file at path is the one that the manifest is about. */
static int check_file(const char *path, uint64_t expected_bytes, const char *expected_hash, const struct piece_watch *watch,
		      char *error, size_t error_size)
{
	int fd;
	uint64_t bytes, hash;
	char text[17];
	int result = inputfile_open(path, &fd, &bytes, error, error_size);
	if (result)
		return result;
	if (bytes != expected_bytes)
		result = complain(error, error_size, EDIT_ERROR_MALFORMED,
				  "%s: %" PRIu64 " bytes, expected %" PRIu64 " as its manifest says", path, bytes, expected_bytes);
	if (!result)
		result = hash_file(fd, path, bytes, watch, &hash, error, error_size);
	close(fd);
	if (result)
		return result;
	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	if (strcmp(text, expected_hash) != 0)
		result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: damaged: xxh3 %s, expected %s as its manifest says",
				  path, text, expected_hash);
	return result;
}

int piece_open(struct piece *piece, const struct piece_watch *watch, char *error, size_t error_size)
{
	char *config, *file;
	if (asprintf(&config, "%s/config.json", piece->folder) < 0)
		config = NULL;
	if (asprintf(&file, "%s/%s", piece->folder, piece->file_name) < 0)
		file = NULL;
	int result = config && file ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", piece->folder, strerror(ENOMEM));
	if (!result)
		result = check_file(config, piece->config_bytes, piece->config_hash, watch, error, error_size);
	if (!result)
		result = check_file(file, piece->file_bytes, piece->file_hash, watch, error, error_size);
	if (!result)
		result = tensorfile_open(file, &piece->file, error, error_size);
	free(config);
	free(file);
	return result;
}

void piece_close(struct piece *piece)
{
	tensorfile_close(piece->file);
	piece->file = NULL;
}

int piece_fill(const struct piece *piece, const struct llama_config *config, unsigned layer, float *theta, char *error,
	       size_t error_size)
{
	const size_t size = llama_layer_size(config, layer);
	const uint64_t count = ring_shard_size(size, piece->shards, piece->column);
	char name[LLAMA_NAME_MAX];
	llama_layer_name(config, layer, name);
	const struct tensorfile_tensor *tensor = tensorfile_find(piece->file, name);
	if (!tensor)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s/%s: layer %s is missing, expected [%" PRIu64 "]",
				piece->folder, piece->file_name, name, count);
	int result = tensorfile_check(tensor, &count, 1, error, error_size);
	return result ? result
		      : tensorfile_read(tensor, theta + ring_shard_begin(size, piece->shards, piece->column), error, error_size);
}

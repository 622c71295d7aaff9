/* edit-worker join: a model from the checkpoints of the members that hold its pieces. */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

#include "core/layer.h"
#include "worker/cmdline.h"
#include "worker/commands.h"
#include "worker/complain.h"
#include "worker/inputfile.h"
#include "worker/llama_weights.h"
#include "worker/say.h"
#include "worker/tensorfile.h"

enum { KEY_OUT = 256, MANIFEST_BYTES_MAX = 64 << 20, HASH_SLICE_BYTES = 1 << 20 };

struct join_options {
	const char *out;
	const char **folders; /* [count] */
	unsigned count;
};

static const struct argp_option arguments[] = {
	{"out", KEY_OUT, "DIR", 0, "folder of the model, which must not be there yet", 0},
	{0},
};

static const char doc[] =
	"Makes a model of the checkpoints that the members of a mesh have written of one round: each holds one piece of "
	"every layer (piece-C-of-M.safetensors). One folder for each of the M columns is needed, of any row.\v"
	EXIT_STATUS_TEXT ".";

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct join_options *options = state->input;
	switch (key) {
	case KEY_OUT: options->out = text; return 0;
	case ARGP_KEY_ARG: options->folders[options->count++] = text; return 0;
	case ARGP_KEY_END:
		if (!options->out)
			cmdline_fail(state, "--out DIR is missing");
		if (options->count == 0)
			cmdline_fail(state, "expected the checkpoint's folder of a member of each column");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* ---- One piece ---- */

/* What the manifest of a folder says. */
struct piece {
	const char *folder;
	char run[64];
	uint64_t round;
	unsigned column, shards;
	char *config_text;
	struct tensorfile *file;
};

static char *path_in(const char *folder, const char *name)
{
	char *path;
	return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* XXH3 of a whole file. */
static int hash_file(const char *path, uint64_t *ret_hash, char *error, size_t error_size)
{
	int fd;
	uint64_t size, done = 0;
	int result = inputfile_open(path, &fd, &size, error, error_size);
	if (result)
		return result;
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	char *slice = malloc(HASH_SLICE_BYTES);
	if (!slice)
		result = complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	while (!result && done < size) {
		size_t bytes = (size_t)u64_min(size - done, HASH_SLICE_BYTES);
		result = inputfile_read(fd, path, done, slice, bytes, error, error_size);
		if (!result)
			XXH3_64bits_update(&hash, slice, bytes);
		done += bytes;
	}
	*ret_hash = XXH3_64bits_digest(&hash);
	free(slice);
	close(fd);
	return result;
}

/* Whether the file in the folder is the one that the manifest is about. */
static int check_file(const char *folder, json_t *files, const char *name, char **ret_path, char *error, size_t error_size)
{
	const char *expected = json_string_value(json_object_get(json_object_get(files, name), "xxh3"));
	char *path = path_in(folder, name), text[17];
	if (!path)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", folder, strerror(ENOMEM));
	if (!expected) {
		free(path);
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s/manifest.json: does not name %s", folder, name);
	}
	uint64_t hash;
	int result = hash_file(path, &hash, error, error_size);
	snprintf(text, sizeof(text), "%016" PRIx64, hash);
	if (!result && strcmp(text, expected) != 0)
		result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: damaged: its hash is %s, the manifest says %s", path,
				  text, expected);
	if (result)
		free(path);
	else
		*ret_path = path;
	return result;
}

/* Reads the numbers of a manifest; they are checked one by one. */
static int read_manifest(struct piece *piece, json_t *root, char *error, size_t error_size)
{
	json_t *column = json_object_get(root, "column"), *shards = json_object_get(root, "shards");
	const char *run = json_string_value(json_object_get(root, "run"));
	json_int_t round = json_integer_value(json_object_get(root, "round"));
	if (!json_is_integer(column) || !json_is_integer(shards))
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: not a piece of a model: its manifest names no column of a mesh", piece->folder);
	json_int_t c = json_integer_value(column), m = json_integer_value(shards);
	if (!run || strlen(run) >= sizeof(piece->run) || round < 0 || m < 2 || m > MEMBER_COUNT_MAX || c < 0 || c >= m)
		return complain(error, error_size, EDIT_ERROR_MALFORMED, "%s/manifest.json: run, round, column or shards cannot be",
				piece->folder);
	snprintf(piece->run, sizeof(piece->run), "%s", run);
	piece->round = (uint64_t)round;
	piece->column = (unsigned)c;
	piece->shards = (unsigned)m;
	return 0;
}

static void piece_close(struct piece *piece)
{
	tensorfile_close(piece->file);
	free(piece->config_text);
}

static int open_files(struct piece *piece, json_t *root, char *error, size_t error_size)
{
	char name[48], *path;
	json_t *files = json_object_get(root, "files");
	snprintf(name, sizeof(name), "piece-%u-of-%u.safetensors", piece->column + 1, piece->shards);
	int result = check_file(piece->folder, files, name, &path, error, error_size);
	if (result)
		return result;
	result = tensorfile_open(path, &piece->file, error, error_size);
	free(path);
	if (!result)
		result = check_file(piece->folder, files, "config.json", &path, error, error_size);
	if (result)
		return result;
	result = llama_config_text(path, &piece->config_text, error, error_size);
	free(path);
	return result;
}

static int piece_open(struct piece *piece, const char *folder, char *error, size_t error_size)
{
	*piece = (struct piece){.folder = folder};
	char *path = path_in(folder, "manifest.json"), *text = NULL;
	if (!path)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", folder, strerror(ENOMEM));
	int result = inputfile_text(path, MANIFEST_BYTES_MAX, &text, error, error_size);
	json_error_t where;
	json_t *root = result ? NULL : json_loads(text, 0, &where);
	if (!result && !root)
		result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s:%d: %s", path, where.line, where.text);
	if (!result)
		result = read_manifest(piece, root, error, error_size);
	if (!result)
		result = open_files(piece, root, error, error_size);
	json_decref(root);
	free(text);
	free(path);
	if (result)
		piece_close(piece);
	return result;
}

/* ---- All of them ---- */

/* Whether the pieces are all of one model at one moment. Sorts nothing: columns say where each belongs. */
static int check_pieces(const struct piece *pieces, unsigned count, char *error, size_t error_size)
{
	const struct piece *first = &pieces[0];
	for (unsigned i = 0; i < count; i++) {
		const struct piece *piece = &pieces[i];
		if (strcmp(piece->run, first->run) != 0 || piece->shards != first->shards ||
		    strcmp(piece->config_text, first->config_text) != 0)
			return complain(error, error_size, EDIT_ERROR_INVALID, "%s: of another run or model than %s", piece->folder,
					first->folder);
		if (piece->round != first->round)
			return complain(error, error_size, EDIT_ERROR_INVALID, "%s: of round %" PRIu64 ", %s is of round %" PRIu64,
					piece->folder, piece->round, first->folder, first->round);
		for (unsigned j = 0; j < i; j++)
			if (pieces[j].column == piece->column)
				return complain(error, error_size, EDIT_ERROR_INVALID, "%s and %s: both are column %u", pieces[j].folder,
						piece->folder, piece->column);
	}
	for (unsigned column = 0, i; column < first->shards; column++) {
		for (i = 0; i < count && pieces[i].column != column; i++)
			;
		if (i == count)
			return complain(error, error_size, EDIT_ERROR_INVALID,
					"column %u of %u is missing: expected a folder of each column", column, first->shards);
	}
	return 0;
}

/* Puts a layer together. */
static int join_layer(const struct piece *pieces, const struct llama_config *config, unsigned layer, float *ret_theta,
		      char *error, size_t error_size)
{
	const unsigned shards = pieces[0].shards;
	const size_t size = llama_layer_size(config, layer);
	char name[LLAMA_NAME_MAX];
	llama_layer_name(config, layer, name);
	for (unsigned i = 0; i < shards; i++) {
		uint64_t count = ring_shard_size(size, shards, pieces[i].column);
		const struct tensorfile_tensor *tensor = tensorfile_find(pieces[i].file, name);
		if (!tensor)
			return complain(error, error_size, EDIT_ERROR_INVALID, "%s: layer \"%s\" is missing", pieces[i].folder, name);
		int result = tensorfile_check(tensor, &count, 1, error, error_size);
		if (!result)
			result = tensorfile_read(tensor, ret_theta + ring_shard_begin(size, shards, pieces[i].column), error,
						 error_size);
		if (result)
			return result;
	}
	return 0;
}

static int write_text(const char *path, const char *text, char *error, size_t error_size)
{
	FILE *file = fopen(path, "we");
	bool is_written = file && fputs(text, file) != EOF;
	if (file && fclose(file) != 0)
		is_written = false;
	return is_written ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
}

/* The two files of the model into a folder made for them; the one that makes it a model comes last. */
static int write_model(const char *out, const char *config_text, const struct llama_config *config, float *const *thetas,
		       char *error, size_t error_size)
{
	if (mkdir(out, 0777) != 0)
		return complain(error, error_size, errno == EEXIST ? EDIT_ERROR_INVALID : EDIT_ERROR_SYSTEM, "%s: %s", out,
				errno == EEXIST ? "is there already, expected a new folder" : strerror(errno));
	char *config_path = path_in(out, "config.json"), *model_path = path_in(out, "model.safetensors");
	int result = config_path && model_path ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", out, strerror(ENOMEM));
	if (!result)
		result = write_text(config_path, config_text, error, error_size);
	if (!result)
		result = llama_weights_write(config, (const float *const *)thetas, model_path, error, error_size);
	if (result) {
		if (config_path)
			unlink(config_path);
		rmdir(out);
	}
	free(config_path);
	free(model_path);
	return result;
}

static int join(const char *out, const struct piece *pieces, char *error, size_t error_size)
{
	struct llama_config config;
	char *path = path_in(pieces[0].folder, "config.json");
	int result = path ? llama_config_load(path, &config, error, error_size)
			  : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", pieces[0].folder, strerror(ENOMEM));
	free(path);
	if (result)
		return result;
	unsigned layer_count = llama_layer_count(&config);
	float **thetas = calloc(layer_count, sizeof(*thetas));
	for (unsigned layer = 0; thetas && layer < layer_count && !result; layer++) {
		thetas[layer] = malloc(size_max(1, llama_layer_size(&config, layer)) * sizeof(float));
		result = thetas[layer] ? join_layer(pieces, &config, layer, thetas[layer], error, error_size)
				       : complain(error, error_size, EDIT_ERROR_SYSTEM, "a layer of the model: %s", strerror(ENOMEM));
	}
	if (!thetas)
		result = complain(error, error_size, EDIT_ERROR_SYSTEM, "the model: %s", strerror(ENOMEM));
	if (!result)
		result = write_model(out, pieces[0].config_text, &config, thetas, error, error_size);
	for (unsigned layer = 0; thetas && layer < layer_count; layer++)
		free(thetas[layer]);
	free(thetas);
	return result;
}

int command_join(int argc, char **argv)
{
	static const struct argp argp = {.options = arguments, .parser = parse, .args_doc = "FOLDER...", .doc = doc};
	struct join_options options = {.folders = calloc((size_t)argc, sizeof(*options.folders))};
	struct piece *pieces = calloc((size_t)argc, sizeof(*pieces));
	char error[COMPLAINT_MAX] = "no memory";
	int result = options.folders && pieces ? 0 : EDIT_ERROR_SYSTEM;
	unsigned opened = 0;
	if (!result)
		argp_parse(&argp, argc, argv, 0, NULL, &options);
	for (; !result && opened < options.count; opened += !result)
		result = piece_open(&pieces[opened], options.folders[opened], error, sizeof(error));
	if (!result)
		result = check_pieces(pieces, options.count, error, sizeof(error));
	if (!result)
		result = join(options.out, pieces, error, sizeof(error));
	if (!result)
		say(SAY_NOTICE, "%s: the model of run %s after round %" PRIu64 ", of %u pieces", options.out, pieces[0].run,
		    pieces[0].round, options.count);
	else
		say(SAY_ERROR, "%s", error);
	for (unsigned i = 0; i < opened; i++)
		piece_close(&pieces[i]);
	free(pieces);
	free(options.folders);
	return edit_error_status(result);
}

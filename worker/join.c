/* edit-worker join: a model from the checkpoints of the members of a mesh, each of which holds a piece of every layer. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/cmdline.h"
#include "worker/commands.h"
#include "worker/complain.h"
#include "worker/llama_weights.h"
#include "worker/meter.h"
#include "worker/piece.h"
#include "worker/say.h"

enum { KEY_OUT = 256 };

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
	"Makes a model of the checkpoints that members of a mesh have written of one round. Each FOLDER "
	"(.../checkpoints/round-NNNNNN) holds one piece of every layer, piece-C-of-M.safetensors: M folders are needed, one for "
	"each C, of any replica, in any order. Their files are compared with the hashes in their manifests. The model has float32 "
	"weights, and memory is needed for all of them. It is written beside DIR and gets its name when it is whole.\v"
	EXIT_STATUS_TEXT ".";

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct join_options *options = state->input;
	switch (key) {
	case KEY_OUT:
		if (!*text)
			cmdline_fail(state, "--out: '', expected the name of a folder");
		options->out = text;
		return 0;
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

/* What there is to do, in bytes of pieces that pass: hashed, read, written. */
struct effort {
	struct meter meter;
	uint64_t done, total;
};

static void effort_told(void *object, uint64_t bytes)
{
	struct effort *effort = object;
	effort->done += bytes;
	meter_show(&effort->meter, effort->done < effort->total ? (double)effort->done / (double)effort->total : 1);
}

/* ---- The folder ---- */

/* The model's folder while it is being written, and the files in it. */
struct place {
	char *out, *aside, *config, *model, *partial; /* partial: what the writer of safetensors may leave behind */
	bool is_made;                                 /* aside is there, and ours to remove */
};

static void place_remove(const struct place *place)
{
	unlink(place->config);
	unlink(place->model);
	unlink(place->partial);
	rmdir(place->aside);
}

static void place_fini(struct place *place)
{
	if (place->is_made)
		place_remove(place);
	free(place->out);
	free(place->aside);
	free(place->config);
	free(place->model);
	free(place->partial);
}

static char *path_with(const char *path, const char *ending)
{
	char *text;
	return asprintf(&text, "%s%s", path, ending) < 0 ? NULL : text;
}

/* Nothing is made yet; a folder that is there already is told before hours of reading. */
static int place_init(struct place *place, const char *out, char *error, size_t error_size)
{
	struct stat about;
	*place = (struct place){.out = strdup(out)};
	for (size_t end = place->out ? strlen(place->out) : 0; end > 1 && place->out[end - 1] == '/'; end--)
		place->out[end - 1] = 0;
	place->aside = place->out ? path_with(place->out, ".partial") : NULL;
	if (place->aside) {
		place->config = path_with(place->aside, "/config.json");
		place->model = path_with(place->aside, "/model.safetensors");
		place->partial = path_with(place->aside, "/model.safetensors.partial");
	}
	if (!place->config || !place->model || !place->partial)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", out, strerror(ENOMEM));
	if (lstat(place->out, &about) == 0)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: is there already, expected a new folder", out);
	return 0;
}

/* Makes the folder aside, in place of what one that was killed has left. */
static int place_make(struct place *place, char *error, size_t error_size)
{
	place->is_made = mkdir(place->aside, 0777) == 0;
	if (!place->is_made && errno == EEXIST) {
		place_remove(place);
		place->is_made = mkdir(place->aside, 0777) == 0;
	}
	return place->is_made ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be made: %s", place->aside,
					     strerror(errno));
}

static int sync_path(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	int result = fsync(fd);
	int cause = errno;
	close(fd);
	errno = cause;
	return result;
}

/* Gives the whole folder its name. */
static int place_put(struct place *place, char *error, size_t error_size)
{
	if (sync_path(place->config) != 0 || sync_path(place->aside) != 0 || rename(place->aside, place->out) != 0)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be renamed from %s: %s", place->out, place->aside,
				strerror(errno));
	place->is_made = false;
	/* The name stands; a sync that fails now is no reason to call the model missing. */
	sync_path(dirname(place->aside));
	return 0;
}

/* ---- The model ---- */

static int write_text(const char *path, const char *text, char *error, size_t error_size)
{
	FILE *file = fopen(path, "we");
	bool is_written = file && fputs(text, file) != EOF;
	if (file && fclose(file) != 0)
		is_written = false;
	return is_written ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
}

static int write_model(struct place *place, const char *config_text, const struct llama_config *config, float *const *thetas,
		       struct effort *effort, char *error, size_t error_size)
{
	const struct llama_weights_watch watch = {.told = effort_told, .object = effort};
	int result = place_make(place, error, error_size);
	if (!result)
		result = write_text(place->config, config_text, error, error_size);
	if (!result)
		result = llama_weights_write(config, (const float *const *)thetas, place->model, &watch, error, error_size);
	return result ? result : place_put(place, error, error_size);
}

/* Puts a layer together. */
static int join_layer(const struct piece *pieces, const struct llama_config *config, unsigned layer, struct effort *effort,
		      float **ret_theta, char *error, size_t error_size)
{
	size_t size = llama_layer_size(config, layer);
	float *theta = malloc(size * sizeof(*theta));
	int result = 0;
	if (!theta)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "a layer of %zu parameters: %s", size, strerror(ENOMEM));
	for (unsigned i = 0; !result && i < pieces[0].shards; i++)
		result = piece_fill(&pieces[i], config, layer, theta, error, error_size);
	effort_told(effort, size * sizeof(*theta));
	*ret_theta = theta;
	return result;
}

static int join_layers(const struct piece *pieces, const char *config_text, const struct llama_config *config,
		       struct place *place, struct effort *effort, char *error, size_t error_size)
{
	unsigned layer_count = llama_layer_count(config);
	float **thetas = calloc(layer_count, sizeof(*thetas));
	int result = thetas ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "the model: %s", strerror(ENOMEM));
	for (unsigned layer = 0; !result && layer < layer_count; layer++)
		result = join_layer(pieces, config, layer, effort, &thetas[layer], error, error_size);
	if (!result)
		result = write_model(place, config_text, config, thetas, effort, error, error_size);
	for (unsigned layer = 0; thetas && layer < layer_count; layer++)
		free(thetas[layer]);
	free(thetas);
	return result;
}

/* All pieces fit by what their manifests say: compares, reads and writes. */
static int join_pieces(struct piece *pieces, struct place *place, struct effort *effort, char *error, size_t error_size)
{
	struct llama_config config;
	const struct piece_watch watch = {.told = effort_told, .object = effort};
	int result = 0;
	for (unsigned i = 0; !result && i < pieces[0].shards; i++)
		result = piece_open(&pieces[i], &watch, error, error_size);
	if (result)
		return result;
	char *path = path_with(pieces[0].folder, "/config.json"), *text;
	if (!path)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", pieces[0].folder, strerror(ENOMEM));
	result = llama_config_load(path, &config, error, error_size);
	if (!result)
		result = llama_config_text(path, &text, error, error_size);
	free(path);
	if (result)
		return result;
	result = join_layers(pieces, text, &config, place, effort, error, error_size);
	free(text);
	return result;
}

/* Reads the manifests and, if they fit, all the rest. */
static int join(const struct join_options *options, struct piece *pieces, char *error, size_t error_size)
{
	struct place place;
	struct effort effort = {0};
	int result = place_init(&place, options->out, error, error_size);
	for (unsigned i = 0; !result && i < options->count; i++) {
		result = piece_read(&pieces[i], options->folders[i], error, error_size);
		effort.total += 3 * pieces[i].file_bytes;
	}
	if (!result)
		result = piece_check(pieces, options->count, error, error_size);
	if (!result) {
		meter_begin(&effort.meter);
		result = join_pieces(pieces, &place, &effort, error, error_size);
		meter_end(&effort.meter);
	}
	place_fini(&place);
	return result;
}

int command_join(int argc, char **argv)
{
	static const struct argp argp = {.options = arguments, .parser = parse, .args_doc = "FOLDER...", .doc = doc};
	struct join_options options = {.folders = calloc((size_t)argc, sizeof(*options.folders))};
	struct piece *pieces = calloc((size_t)argc, sizeof(*pieces));
	char error[COMPLAINT_MAX] = "no memory";
	int result = options.folders && pieces ? 0 : EDIT_ERROR_SYSTEM;
	if (!result) {
		argp_parse(&argp, argc, argv, 0, NULL, &options);
		result = join(&options, pieces, error, sizeof(error));
	}
	if (!result)
		say(SAY_NOTICE, "%s: the model of run %s after round %" PRIu64 ", of %u pieces", options.out, pieces[0].run,
		    pieces[0].round, options.count);
	else
		say(SAY_ERROR, "%s", error);
	for (unsigned i = 0; i < options.count; i++)
		piece_close(&pieces[i]);
	free(pieces);
	free(options.folders);
	return edit_error_status(result);
}

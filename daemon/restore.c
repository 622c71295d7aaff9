/* Reads a checkpoint back. The files' headers follow from the description, so they are made again and compared: there is nothing in them
 * to be interpreted. Owns nothing. */

#include "daemon/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/checkpoint.h"

/* ---- Reading ---- */

static int read_whole(int fd, const char *path, void *to, size_t bytes, struct line *why)
{
	char *at = to;
	while (bytes > 0) {
		ssize_t got = read(fd, at, bytes);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, got < 0 ? strerror(errno) : "too short");
		at += got;
		bytes -= (size_t)got;
	}
	return 0;
}

/* Opens a file whose header must be that of `file`. Returns the descriptor, which stands at the first number, or an error. */
static int open_numbers(const char *folder, const struct checkpoint_file *file, char path[2 * CONFIG_PATH_MAX], struct line *why)
{
	char *header = NULL, *found = NULL;
	size_t bytes = 0;
	uint64_t total = 0;
	struct stat about;
	snprintf(path, 2 * CONFIG_PATH_MAX, "%s/%s", folder, file->name);
	int error = safetensors_header(file->tensors, file->tensor_count, &header, &bytes, &total);
	if (error)
		return line_fail(why, error, "%s: no memory", path);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	found = malloc(bytes);
	if (fd < 0 || fstat(fd, &about) != 0 || !found)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
	else if ((uint64_t)about.st_size != total)
		error = line_fail(why, EDIT_ERROR_REFUSED,
				  "%s: %lld bytes, expected %" PRIu64 "; it is of another model, or damaged", path,
				  (long long)about.st_size, total);
	else
		error = read_whole(fd, path, found, bytes, why);
	if (!error && memcmp(found, header, bytes) != 0)
		error = line_fail(why, EDIT_ERROR_REFUSED, "%s: its tensors are not those of this model", path);
	free(header);
	free(found);
	if (error && fd >= 0)
		close(fd);
	return error ? error : fd;
}

/* Reads a tensor of each layer into where place tells. */
static int read_layers(int fd, const char *path, const struct run *run, size_t factor, float *(*place)(const struct run *, size_t),
		       struct line *why)
{
	int error = 0;
	for (size_t i = 0; i < run->segment.layer_count && !error; i++)
		error = read_whole(fd, path, place(run, i), factor * segment_layer_size(&run->segment, i) * sizeof(float), why);
	return error;
}

static float *anchor_of(const struct run *run, size_t layer_index) { return run->state.places[layer_index].anchor; }
static float *momentum_of(const struct run *run, size_t layer_index) { return run->state.places[layer_index].momentum; }
static float *inner_of(const struct run *run, size_t layer_index) { return segment_inner(&run->segment, layer_index); }

static int read_model(const struct run *run, const char *folder, const struct description *description, struct line *why)
{
	char path[2 * CONFIG_PATH_MAX];
	struct checkpoint_file file;
	int error = checkpoint_model_file(description, &run->segment, &(struct snapshot){0}, &file);
	int fd = error ? line_fail(why, error, "no memory") : open_numbers(folder, &file, path, why);
	checkpoint_file_fini(&file);
	if (fd < 0)
		return fd;
	error = read_layers(fd, path, run, 1, anchor_of, why);
	close(fd);
	return error;
}

/* The text at the end of the file tells whether inner state is in it, which the file's size tells too. */
static int read_state(const struct run *run, const char *folder, const struct description *description, bool has_inner,
		      struct snapshot *ret_snapshot, struct line *why)
{
	char path[2 * CONFIG_PATH_MAX];
	struct checkpoint_file file;
	struct line fault = {""};
	size_t bytes = snapshot_text_bytes(description->layer_count);
	char *text = malloc(bytes);
	int error = checkpoint_state_file(description, &run->segment, &(struct snapshot){.has_inner = has_inner}, NULL, &file);
	int fd = error || !text ? line_fail(why, EDIT_ERROR_SYSTEM, "no memory") : open_numbers(folder, &file, path, why);
	checkpoint_file_fini(&file);
	if (fd >= 0) {
		error = read_layers(fd, path, run, 1, momentum_of, why);
		if (!error && has_inner)
			error = read_layers(fd, path, run, run->segment.inner_factor, inner_of, why);
		if (!error)
			error = read_whole(fd, path, text, bytes, why);
		if (!error && snapshot_read(text, bytes, description->layer_count, ret_snapshot, &fault) != 0)
			error = line_fail(why, EDIT_ERROR_REFUSED, "%.300s: %.150s", path, fault.text);
		close(fd);
	}
	free(text);
	return fd < 0 ? fd : error;
}

/* ---- Filling ---- */

/* Every layer's numbers are those that were hashed when the round ended. */
static int check_layers(const struct run *run, const char *folder, const struct description *description,
			const struct snapshot *snapshot, struct line *why)
{
	for (size_t i = 0; i < snapshot->layer_count; i++)
		if (snapshot->layers[i].size != run->state.places[i].size ||
		    snapshot->layers[i].hash != state_hash_layer(&run->state, i))
			return line_fail(why, EDIT_ERROR_REFUSED, "%.300s: layer \"%.100s\" is not what its hash says", folder,
					 description->layers[i].name);
	return 0;
}

/* As the worker left it when it had offered and got everything back. */
static void fill_segment(struct run *run, const struct snapshot *snapshot)
{
	struct segment_header *header = run->segment.header;
	for (size_t i = 0; i < run->segment.layer_count; i++) {
		struct segment_layer *words = &run->segment.layers[i];
		const struct state_place *part = &run->state.places[i];
		if (part->size > 0)
			memcpy(segment_theta(&run->segment, i), part->anchor, part->size * sizeof(float));
		atomic_store(&words->begun_step, snapshot->step);
		atomic_store(&words->ended_step, snapshot->step);
		atomic_store(&words->round, snapshot->round);
		atomic_store(&words->verdict, VERDICT_ABSENT);
		/* Until the worker knows when to offer: run_give_layers. */
		atomic_store(&words->owner, SEGMENT_DAEMON);
	}
	atomic_store(&header->step, snapshot->step);
	atomic_store(&header->offered_step, snapshot->step);
	atomic_store(&header->handed_step, snapshot->step);
	atomic_store(&header->tokens, snapshot->tokens);
	atomic_store(&header->wait_us, snapshot->wait_us);
	atomic_store(&header->lead, snapshot->lead);
	atomic_store(&header->inner_step, snapshot->inner_step);
	/* A member gets theta from others, and averages gradients with them from equal inner states. */
	atomic_store(&header->is_averaging, snapshot->is_averaging && !run->is_member);
	atomic_store(&header->round, snapshot->round);
	atomic_store(&header->stop, snapshot->finished ? SEGMENT_STOP_ENDED : 0);
}

static int fill_state(struct run *run, const struct snapshot *snapshot, const char *state_path, struct line *why)
{
	const struct state_run record = {.round = snapshot->round, .since = snapshot->since, .settings = snapshot->settings,
					 .offer_step = snapshot->step, .offer_tokens = snapshot->tokens,
					 .offer_wait_us = snapshot->wait_us, .worker_restarts = snapshot->worker_restarts,
					 .sync_us = snapshot->sync_us};
	for (size_t i = 0; i < snapshot->layer_count; i++)
		run->state.layers[i].detector = snapshot->layers[i].detector;
	return state_begin(&run->state, state_path, &record, true, why);
}

int restore_run(struct run *run, const char *folder, uint64_t round, const struct description *description, const char *state_path,
		struct line *why)
{
	struct snapshot snapshot = {0};
	bool has_inner = true;
	int error = read_model(run, folder, description, why);
	if (!error)
		error = read_state(run, folder, description, has_inner, &snapshot, why);
	if (error == EDIT_ERROR_REFUSED) {
		/* Perhaps it was written while the worker stepped on. */
		struct line other = {""};
		has_inner = false;
		if (read_state(run, folder, description, has_inner, &snapshot, &other) == 0)
			error = 0;
	}
	if (!error && (snapshot.has_inner != has_inner || snapshot.round != round))
		error = line_fail(why, EDIT_ERROR_REFUSED, "%s: its state contradicts itself", folder);
	if (!error)
		error = check_layers(run, folder, description, &snapshot, why);
	if (!error) {
		fill_segment(run, &snapshot);
		error = fill_state(run, &snapshot, state_path, why);
	}
	/* The state has its name: from now on the files are a run. */
	if (!error)
		atomic_store_explicit(&run->segment.header->initialised, 1, memory_order_release);
	snapshot_free(&snapshot);
	return error;
}

/* A run's memory on this node: takes up or makes the files in runtime_dir and joins them into layers. Owns
 * description, segment, state, layers and facts; the node borrows them. */

#include "daemon/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/vec.h"
#include "daemon/advice.h"
#include "daemon/folder.h"
#include "daemon/restore.h"

void run_init(struct run *run, const struct config *config)
{
	*run = (struct run){.config = config, .segment.mapping.fd = -1, .state.mapping.fd = -1};
}

/* Back to nothing; the files stay. */
static void free_layers(struct run *run)
{
	free(run->layers);
	mapping_free(run->spare, run->spare_bytes);
	run->layers = NULL;
	run->spare = NULL;
}

void run_close(struct run *run)
{
	free_layers(run);
	facts_free(&run->facts);
	segment_close(&run->segment);
	state_close(&run->state);
	description_fini(&run->description);
	const struct run_source source = run->source;
	const bool is_member = run->is_member;
	run_init(run, run->config);
	run->source = source;
	run->is_member = is_member;
}

/* ---- The files ---- */

static struct segment_seat seat_of(const struct run *run)
{
	const struct config *config = run->config;
	return (struct segment_seat){.rank = config->rank, .count = config->member_count, .column = config->column,
				     .shards = config->shards,
				     .looks_ahead = (uint32_t)config_number(config, MESH_PREFETCH)};
}

struct paths {
	char description[CONFIG_PATH_MAX], segment[CONFIG_PATH_MAX], state[CONFIG_PATH_MAX];
};

static void paths_of(const struct run *run, struct paths *ret_paths)
{
	config_runtime_path(run->config, "description", ret_paths->description, CONFIG_PATH_MAX);
	config_runtime_path(run->config, "segment", ret_paths->segment, CONFIG_PATH_MAX);
	config_runtime_path(run->config, "state", ret_paths->state, CONFIG_PATH_MAX);
}

/* Keeps the description's bytes, so that a later daemon can tell what differs. */
static int write_description(const char *path, const void *bytes, size_t size_bytes, struct line *why)
{
	struct mapping mapping;
	int error = mapping_create(path, size_bytes, &mapping, why);
	if (error)
		return error;
	memcpy(mapping.base, bytes, size_bytes);
	mapping_close(&mapping);
	return mapping_rename(path, why);
}

/* The segment found is of an initialised run: is it this description's, at this place of the ring? */
static int check_same(const struct run *run, const struct paths *paths, const struct description *description,
		      uint64_t hash, struct line *why)
{
	const struct segment_header *header = run->segment.header;
	uint32_t rank = atomic_load(&header->member_rank), count = atomic_load(&header->member_count);
	bool is_elsewhere = rank != run->config->rank || count != run->config->member_count;
	if (is_elsewhere && !run->is_member)
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "%s: belongs to member %u of %u, this is %u of %u; remove it and %s to begin anew",
				 paths->segment, rank, count, run->config->rank,
				 run->config->member_count, paths->state);
	if (header->shards != run->config->shards)
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "%s: is of a replica in %u pieces, mesh.shards is %u; remove it and %s to begin anew",
				 paths->segment, header->shards, run->config->shards, paths->state);
	if (header->description_hash == hash)
		return 0;

	struct mapping mapping;
	struct description earlier;
	struct line difference = {"another description"};
	if (mapping_open_read(paths->description, &mapping, &difference) == 0) {
		if (description_decode(mapping.base, mapping.size_bytes, &earlier, &difference) == 0) {
			run_difference(description, &earlier, &difference);
			description_fini(&earlier);
		}
		mapping_close(&mapping);
	}
	return line_fail(why, EDIT_ERROR_REFUSED, "%.200s (run in %s; remove it and %s to begin another)",
			 difference.text, paths->segment, paths->state);
}

/* Takes up segment and state of an earlier daemon. *ret_found: they are there and mapped. */
static int take_up(struct run *run, const struct paths *paths, const struct description *description, uint64_t hash,
		   bool *ret_found, struct line *why)
{
	*ret_found = false;
	int error = segment_open(paths->segment, &run->segment, why);
	bool has_segment = error == 0;
	if (error && error != EDIT_ERROR_UNKNOWN)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s: damaged; remove it and %s to begin anew", paths->segment,
				 paths->state);
	/* A run that no worker has made ready is no run yet. */
	if (has_segment && !atomic_load(&run->segment.header->initialised)) {
		segment_close(&run->segment);
		return 0;
	}
	if (has_segment)
		error = check_same(run, paths, description, hash, why);
	if (has_segment && error)
		return error;

	const struct segment_seat seat = seat_of(run);
	error = state_open(paths->state, description, hash, &seat, &run->state, why);
	if (error && error != EDIT_ERROR_UNKNOWN)
		return EDIT_ERROR_REFUSED;
	bool has_state = error == 0;
	/* Nobody could give what is damaged. */
	if (has_state && !run->is_member && state_check_whole(&run->state, paths->state, description, why) != 0)
		return EDIT_ERROR_REFUSED;
	if (has_state && !has_segment)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s is there without %s; remove it to begin anew",
				 paths->state, paths->segment);
	/* The state gets its name before the worker may take its first step. */
	if (has_segment && !has_state && atomic_load(&run->segment.header->step) > 0)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s is there without %s; remove it to begin anew",
				 paths->segment, paths->state);
	if (has_segment && !has_state)
		segment_close(&run->segment);
	*ret_found = has_segment && has_state;
	return 0;
}

static int make_files(struct run *run, const struct paths *paths, const struct description *description, uint64_t hash,
		      const void *bytes, size_t size_bytes, struct line *why)
{
	const struct segment_seat seat = seat_of(run);
	int error = write_description(paths->description, bytes, size_bytes, why);
	if (!error)
		error = segment_create(paths->segment, description, hash, &seat, &run->segment, why);
	if (!error)
		error = state_create(paths->state, description, hash, &seat, &run->state, why);
	/* Until anchor 0 is taken from theta the layers are not the worker's. */
	for (size_t i = 0; i < run->segment.layer_count && !error; i++)
		atomic_store(&run->segment.layers[i].owner, SEGMENT_DAEMON);
	return error;
}

bool run_look(const struct config *config, uint64_t *ret_round, uint64_t *ret_anchor_hash)
{
	char path[CONFIG_PATH_MAX];
	struct segment segment;
	if (segment_open(config_runtime_path(config, "segment", path, sizeof path), &segment, NULL) != 0)
		return false;
	bool is_initialised = atomic_load(&segment.header->initialised) != 0;
	segment_close(&segment);
	return is_initialised && state_look(config_runtime_path(config, "state", path, sizeof path), ret_round, ret_anchor_hash);
}

bool run_was_begun(const struct config *config, char *path)
{
	snprintf(path, CONFIG_PATH_MAX, "%s/begun-%s", config_text(config, NODE_STATE_DIR), config_text(config, NODE_RUN));
	return access(path, F_OK) == 0;
}

/* Remembers on disk that the run is not a new one. Where that cannot be written there are no checkpoints either, which is told. */
static void mark_begun(const struct config *config)
{
	static const char text[] = "Without a checkpoint this member does not begin the run of this name anew while this file is here.\n";
	char path[CONFIG_PATH_MAX];
	if (!run_was_begun(config, path))
		(void)folder_write(path, text, sizeof text - 1);
}

/* There is nothing in the runtime directory: is that what a first start finds? */
static int check_first(const struct run *run, struct line *why)
{
	char path[CONFIG_PATH_MAX];
	if (run->source.folder[0] || run->is_member || !run_was_begun(run->config, path))
		return 0;
	/* Short: the worker says it too. */
	return line_fail(why, EDIT_ERROR_REFUSED, "run \"%s\" was begun here, but no intact checkpoint is left: remove %.300s to begin anew",
			 config_text(run->config, NODE_RUN), path);
}

static int restore(struct run *run, const struct paths *paths, const struct description *description, struct line *why)
{
	return restore_run(run, run->source.folder, run->source.round, description, paths->state, why);
}

/* In a mesh nobody knows how far into a step the others of the replica were: all begin again from the last round. */
static void rewind_run(struct run *run)
{
	struct segment_header *header = run->segment.header;
	const uint64_t step = run->state.run->offer_step;
	for (size_t i = 0; i < run->segment.layer_count; i++) {
		struct segment_layer *words = &run->segment.layers[i];
		const struct state_place *part = &run->state.places[i];
		if (part->size > 0)
			memcpy(segment_theta(&run->segment, i), part->anchor, part->size * sizeof(float));
		atomic_store(&words->begun_step, step);
		atomic_store(&words->ended_step, step);
		atomic_store(&words->owner, SEGMENT_WORKER);
	}
	atomic_store(&header->step, step);
	atomic_store(&header->offered_step, step);
	atomic_store(&header->handed_step, step);
	atomic_store(&header->offer_step, UINT64_MAX);
	atomic_store(&header->realign, 0);
	atomic_store(&header->sums, 0);
	atomic_store(&header->summed, 0);
	for (size_t i = 0; i < SEGMENT_CALL_COUNT; i++) {
		atomic_store(&header->calls[i].asked, 0);
		atomic_store(&header->calls[i].done, 0);
	}
}

void run_take_seat(struct run *run)
{
	atomic_store(&run->segment.header->member_rank, run->config->rank);
	atomic_store(&run->segment.header->member_count, run->config->member_count);
}

/* The daemon before this one has died between the begin of a member's run and the theta that others have: what of it the worker has got
 * already, and has taken no step with, is taken back. */
static void take_back_theta(struct run *run)
{
	struct segment *segment = &run->segment;
	for (size_t i = 0; i < segment->layer_count; i++)
		run->is_untaken |= atomic_load_explicit(&segment->layers[i].owner, memory_order_acquire) == SEGMENT_DAEMON;
	run->is_untaken &= run->is_member && atomic_load(&segment->header->offers) == 0;
	for (size_t i = 0; i < segment->layer_count && run->is_untaken; i++)
		atomic_store_explicit(&segment->layers[i].owner, SEGMENT_DAEMON, memory_order_release);
}

int run_attach(struct run *run, const void *bytes, size_t size_bytes, struct line *why)
{
	struct description description;
	int error = description_decode(bytes, size_bytes, &description, why);
	if (error)
		return error;
	uint64_t hash = description_hash(bytes, size_bytes);
	struct line difference = {"another description"};

	if (run->is_attached && hash == run->description_hash && (!run->is_begun || run->config->shards == 1)) {
		run->is_resumed = run->is_begun || run->is_found;
		description_fini(&description);
		return 0;
	}
	if (run->is_begun && run->config->shards > 1 && hash == run->description_hash) {
		description_fini(&description);
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "a worker of a mesh cannot be replaced in mid-run: " ADVICE_RESTART ", they go on from round %llu",
				 (unsigned long long)run->state.run->round);
	}
	if (run->is_begun) {
		run_difference(&description, &run->description, &difference);
		description_fini(&description);
		return line_fail(why, EDIT_ERROR_REFUSED, "%.300s (as the run that this daemon holds)", difference.text);
	}

	/* A description that came before, of a worker that never got ready, is forgotten. */
	run_close(run);
	struct paths paths;
	paths_of(run, &paths);
	bool is_found = false;
	error = take_up(run, &paths, &description, hash, &is_found, why);
	bool is_restored = !error && !is_found && run->source.folder[0];
	if (!error && !is_found)
		error = check_first(run, why);
	if (!error && !is_found)
		error = make_files(run, &paths, &description, hash, bytes, size_bytes, why);
	if (!error && is_restored)
		error = restore(run, &paths, &description, why);
	run->description = description;
	if (error) {
		run_close(run);
		return error;
	}
	run->description_hash = hash;
	run->is_attached = true;
	run->is_restored = is_restored;
	run->is_nothing = run->is_member && !is_found && !is_restored;
	run->is_found = run->is_resumed = is_found || is_restored;
	if (is_found && run->config->shards > 1)
		rewind_run(run);
	else if (is_found)
		take_back_theta(run);
	/* An earlier daemon has left the ring; this one joins it. */
	if (atomic_load(&run->segment.header->stop) == SEGMENT_STOP_LEFT)
		atomic_store(&run->segment.header->stop, 0);
	run_take_seat(run);
	return 0;
}

/* ---- Beginning ---- */

static int make_layers(struct run *run, struct line *why)
{
	size_t count = run->state.layer_count, total = 0;
	for (size_t i = 0; i < count; i++)
		total += run->state.places[i].size;
	run->layers = calloc(count, sizeof *run->layers);
	run->spare_bytes = 2 * total * sizeof(float);
	run->spare = mapping_take(run->spare_bytes);
	if (!run->layers || !run->spare)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	float *spare = run->spare;
	for (size_t i = 0; i < count; i++) {
		size_t size = run->state.places[i].size;
		run->layers[i] = (struct layer){.size = size,
						.theta = segment_theta(&run->segment, i),
						.anchor = run->state.places[i].anchor,
						.momentum = run->state.places[i].momentum,
						.gradient = segment_gradient(&run->segment, i),
						.base = spare,
						.snapshot = spare + size};
		spare += 2 * size;
	}
	return 0;
}

/* theta as the worker has left it becomes anchor 0, where it is not to be replaced by what others have. */
static int take_anchor(struct run *run, uint64_t incarnation, struct line *why)
{
	for (size_t i = 0; i < run->state.layer_count && !run->is_nothing; i++) {
		const struct layer *layer = &run->layers[i];
		if (!isfinite(vec_square_sum(layer->theta, layer->size)))
			return line_fail(why, EDIT_ERROR_REFUSED, "initial theta of layer \"%.200s\" is not finite",
					 run->description.layers[i].name);
		if (layer->size > 0)
			memcpy(layer->anchor, layer->theta, layer->size * sizeof(float));
	}
	struct paths paths;
	paths_of(run, &paths);
	struct state_run first = {.incarnation = incarnation, .settings = config_ring(run->config)};
	int error = state_begin(&run->state, paths.state, &first, !run->is_nothing, why);
	if (!error)
		mark_begun(run->config);
	return error;
}

int run_begin(struct run *run, uint64_t incarnation, struct line *why)
{
	CHECK(run->is_attached);
	if (run->is_begun)
		return 0;
	int error = make_layers(run, why);
	if (!error && !run->is_found)
		error = take_anchor(run, incarnation, why);
	if (!error)
		error = facts_make(&run->description, run->config, &run->state, &run->facts, why);
	if (error) {
		free_layers(run);
		return error;
	}
	run->is_begun = true;
	return 0;
}

/* The layer is the daemon's, but no offer made it so: it has never been given to a worker, or was put back by a restart from a
 * checkpoint. A torn one waits for its anchor. */
static bool is_not_given(const struct run *run, size_t layer_index)
{
	const struct segment_header *header = run->segment.header;
	/* The owner is read first: what belongs to an offer was written before it. */
	return atomic_load_explicit(&run->segment.layers[layer_index].owner, memory_order_acquire) == SEGMENT_DAEMON &&
	       atomic_load(&header->offered_step) <= run->state.run->offer_step &&
	       atomic_load(&header->handed_step) <= atomic_load(&header->step) && !segment_is_torn(&run->segment, layer_index);
}

void run_give_layers(struct run *run)
{
	CHECK(run->is_begun);
	for (size_t i = 0; i < run->segment.layer_count; i++)
		if (!run_is_outdated(run) && (!run->is_found || is_not_given(run, i)))
			atomic_store_explicit(&run->segment.layers[i].owner, SEGMENT_WORKER, memory_order_release);
}

bool run_is_outdated(const struct run *run)
{
	return run->is_nothing || run->is_untaken || (run->is_member && run->is_restored);
}

bool run_is_stale(const struct run *run)
{
	const struct state_run *record = run->state.run;
	bool is_any = record->round > 0 && record->settings.value[SYNC_OVERLAP] == OVERLAP_STEPS && !run->is_restored;
	for (size_t i = 0; i < run->segment.layer_count; i++)
		is_any |= atomic_load(&run->segment.layers[i].round) < record->round;
	return is_any;
}

bool run_restore(struct run *run, uint64_t layer_index)
{
	if (!run->is_attached || layer_index >= run->segment.layer_count)
		return false;
	struct segment_layer *words = &run->segment.layers[layer_index];
	/* One that is whole and not the worker's is on the ring. */
	bool is_given = atomic_load_explicit(&words->owner, memory_order_acquire) == SEGMENT_DAEMON;
	if (!is_given || !segment_is_torn(&run->segment, layer_index))
		return false;
	const struct state_place *part = &run->state.places[layer_index];
	if (part->size > 0)
		memcpy(segment_theta(&run->segment, layer_index), part->anchor, part->size * sizeof(float));
	atomic_store_explicit(&words->owner, SEGMENT_WORKER, memory_order_release);
	return true;
}

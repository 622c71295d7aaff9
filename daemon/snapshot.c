/* Copies of what a checkpoint holds, and the text of its numbers. Owns the copies; touches no file and no clock. */

#include "daemon/snapshot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fields.h"

enum { FORMAT = 1, TEXT_HEAD_BYTES = 4096, TEXT_LAYER_BYTES = 256 };

void snapshot_free(struct snapshot *snapshot)
{
	free(snapshot->layers);
	free(snapshot->anchor);
	free(snapshot->momentum);
	free(snapshot->inner);
	*snapshot = (struct snapshot){0};
}

/* ---- The worker's part ---- */

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

/* It has offered what it did until `step`, or announced the gradients of its next one, and waits for an answer. */
static bool lies_still(const struct segment *segment, uint64_t step)
{
	const struct segment_header *header = segment->header;
	bool is_waiting = atomic_load(&header->final_step) != 0;
	for (size_t i = 0; i < segment->layer_count; i++)
		is_waiting |= atomic_load_explicit(&segment->layers[i].owner, memory_order_acquire) == SEGMENT_DAEMON;
	return is_waiting && (load(&header->offered_step) == step || load(&header->handed_step) == step + 1);
}

/* Its worker zeroes the inner state of such a layer as soon as it finds it. */
static bool begins_anew(const struct segment *segment, size_t layer_index)
{
	return atomic_load(&segment->layers[layer_index].verdict) == VERDICT_NONFINITE;
}

/* The layer's inner state is that of the step. */
static bool is_of(const struct segment *segment, size_t layer_index, uint64_t step)
{
	const struct segment_layer *words = &segment->layers[layer_index];
	uint64_t ended_step = load(&words->ended_step);
	return load(&words->begun_step) == ended_step && ended_step <= step;
}

static size_t total_size(const struct segment *segment)
{
	size_t total = 0;
	for (size_t i = 0; i < segment->layer_count; i++)
		total += segment_layer_size(segment, i);
	return total;
}

/* Copies to to[inner_factor x all elements]. False: it was being changed. */
static bool copy_inner(const struct segment *segment, uint64_t step, float *to)
{
	bool is_whole = true;
	for (size_t i = 0; i < segment->layer_count; i++) {
		size_t count = segment->inner_factor * segment_layer_size(segment, i);
		if (begins_anew(segment, i))
			memset(to, 0, count * sizeof(float));
		else if (count > 0)
			memcpy(to, segment_inner(segment, i), count * sizeof(float));
		to += count;
	}
	atomic_thread_fence(memory_order_acquire);
	for (size_t i = 0; i < segment->layer_count; i++)
		is_whole &= begins_anew(segment, i) || is_of(segment, i, step);
	return is_whole && load(&segment->header->step) == step;
}

void snapshot_take_inner(struct snapshot *snapshot, const struct run *run)
{
	const struct segment *segment = &run->segment;
	const struct segment_header *header = segment->header;
	uint64_t step = load(&header->step);
	if (snapshot->inner || !lies_still(segment, step))
		return;
	snapshot->inner = malloc(size_max(segment->inner_factor * total_size(segment), 1) * sizeof(float));
	if (!snapshot->inner)
		return;
	if (!copy_inner(segment, step, snapshot->inner)) {
		free(snapshot->inner);
		snapshot->inner = NULL;
		return;
	}
	snapshot->has_inner = true;
	snapshot->step = step;
	snapshot->tokens = load(&header->tokens);
	snapshot->wait_us = load(&header->wait_us);
	snapshot->inner_step = load(&header->inner_step);
	snapshot->is_averaging = atomic_load(&header->is_averaging) != 0;
}

/* ---- The daemon's part ---- */

int snapshot_take(struct snapshot *snapshot, const struct run *run, uint64_t round)
{
	const struct state *state = &run->state;
	const struct state_run *record = state->run;
	size_t total = size_max(total_size(&run->segment), 1), done = 0;
	snapshot->anchor = malloc(total * sizeof(float));
	snapshot->momentum = malloc(total * sizeof(float));
	snapshot->layers = calloc(state->layer_count, sizeof *snapshot->layers);
	if (!snapshot->anchor || !snapshot->momentum || !snapshot->layers)
		return EDIT_ERROR_SYSTEM;
	snapshot->layer_count = state->layer_count;
	for (size_t i = 0; i < state->layer_count; i++) {
		const struct state_place *part = &state->places[i];
		snapshot->layers[i] = (struct snapshot_layer){part->size, state->layers[i].hash, state->layers[i].detector};
		if (part->size > 0) {
			memcpy(snapshot->anchor + done, part->anchor, part->size * sizeof(float));
			memcpy(snapshot->momentum + done, part->momentum, part->size * sizeof(float));
		}
		done += part->size;
	}
	snapshot->round = round;
	snapshot->since = record->since;
	snapshot->lead = load(&run->segment.header->lead);
	snapshot->settings = record->settings;
	snapshot->finished = atomic_load(&run->segment.header->stop) == SEGMENT_STOP_ENDED;
	snapshot->worker_restarts = record->worker_restarts;
	snapshot->sync_us = record->sync_us;
	if (!snapshot->has_inner) {
		/* What it has done since its last offer is not in the anchor: it does that again. */
		snapshot->step = snapshot->inner_step = record->offer_step;
		snapshot->tokens = record->offer_tokens;
		snapshot->wait_us = record->offer_wait_us;
	}
	return 0;
}

/* ---- The text ---- */

size_t snapshot_text_bytes(size_t layer_count)
{
	return TEXT_HEAD_BYTES + layer_count * TEXT_LAYER_BYTES;
}

/* The counts of a snapshot, by name. */
#define COUNTS(X) X(round) X(since) X(step) X(tokens) X(wait_us) X(lead) X(inner_step) X(worker_restarts) X(sync_us)

static json_t *layer_json(const struct snapshot_layer *layer)
{
	const struct detector *detector = &layer->detector;
	json_t *text = json_object();
	json_object_set_new(text, "elements", fields_count(layer->size));
	json_object_set_new(text, "xxh3", fields_hash(layer->hash));
	json_object_set_new(text, "count", fields_count(detector->count));
	json_object_set_new(text, "mean", json_real(detector->mean));
	json_object_set_new(text, "var", json_real(detector->var));
	json_object_set_new(text, "streak", fields_count(detector->streak));
	json_object_set_new(text, "interval", json_real(detector->interval));
	return text;
}

char *snapshot_text(const struct snapshot *snapshot, const struct run *run)
{
	json_t *root = json_object(), *settings = json_object(), *layers = json_array();
	json_object_set_new(root, "format", json_integer(FORMAT));
	json_object_set_new(root, "run", json_string(config_text(run->config, NODE_RUN)));
	json_object_set_new(root, "member", json_string(config_text(run->config, NODE_NAME)));
#define X(name) json_object_set_new(root, #name, fields_count(snapshot->name));
	COUNTS(X)
#undef X
	json_object_set_new(root, "has_inner", json_boolean(snapshot->has_inner));
	json_object_set_new(root, "finished", json_boolean(snapshot->finished));
	json_object_set_new(root, "is_averaging", json_boolean(snapshot->is_averaging));
	for (size_t i = 0; i < RING_SETTING_COUNT; i++)
		json_object_set_new(settings, setting_at(i)->name, json_real(snapshot->settings.value[i]));
	json_object_set_new(root, "settings", settings);
	for (size_t i = 0; i < snapshot->layer_count; i++)
		json_array_append_new(layers, layer_json(&snapshot->layers[i]));
	json_object_set_new(root, "layers", layers);
	char *packed = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
	json_decref(root);
	size_t size = snapshot_text_bytes(snapshot->layer_count), used = packed ? strlen(packed) : 0;
	char *text = packed ? malloc(size) : NULL;
	if (text) {
		CHECK(used <= size);
		memcpy(text, packed, used);
		memset(text + used, ' ', size - used);
	}
	free(packed);
	return text;
}

/* ---- Reading ---- */

static bool read_real(const json_t *object, const char *name, double *ret_real)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_number(value) || !isfinite(json_number_value(value)))
		return false;
	*ret_real = json_number_value(value);
	return true;
}

static bool read_flag(const json_t *object, const char *name, bool *ret_flag)
{
	const json_t *value = json_object_get(object, name);
	*ret_flag = json_is_true(value);
	return json_is_boolean(value);
}

static bool read_layer(const json_t *object, struct snapshot_layer *ret_layer)
{
	struct detector *detector = &ret_layer->detector;
	uint64_t size = 0;
	bool is_good = fields_read_count(object, "elements", &size) && size <= DESCRIPTION_SIZE_MAX && fields_read_hash(object, &ret_layer->hash) &&
		       fields_read_count(object, "count", &detector->count) && fields_read_count(object, "streak", &detector->streak) &&
		       read_real(object, "mean", &detector->mean) && read_real(object, "var", &detector->var) &&
		       read_real(object, "interval", &detector->interval) && detector->mean >= 0 && detector->var >= 0;
	ret_layer->size = size;
	return is_good;
}

/* The first thing that is wrong with the text, NULL if nothing is. */
static const char *read_all(const json_t *root, size_t layer_count, struct snapshot *snapshot)
{
	const json_t *settings = json_object_get(root, "settings"), *layers = json_object_get(root, "layers");
	uint64_t format;
	if (!fields_read_count(root, "format", &format) || format != FORMAT)
		return "format";
#define X(name)                                              \
	if (!fields_read_count(root, #name, &snapshot->name)) \
		return #name;
	COUNTS(X)
#undef X
	if (!read_flag(root, "has_inner", &snapshot->has_inner) || !read_flag(root, "finished", &snapshot->finished) ||
	    !read_flag(root, "is_averaging", &snapshot->is_averaging))
		return "has_inner, finished or is_averaging";
	for (size_t i = 0; i < RING_SETTING_COUNT; i++) {
		double *value = &snapshot->settings.value[i];
		*value = setting_standard(i).number;
		/* One that an older version did not have keeps its default. */
		if (!json_object_get(settings, setting_at(i)->name))
			continue;
		if (!read_real(settings, setting_at(i)->name, value) || !setting_holds(i, *value))
			return setting_at(i)->name;
	}
	if (setting_conflict(&snapshot->settings, SETTING_END))
		return "settings";
	if (!json_is_array(layers) || json_array_size(layers) != layer_count)
		return "layers";
	for (size_t i = 0; i < layer_count; i++)
		if (!read_layer(json_array_get(layers, i), &snapshot->layers[i]))
			return "layers";
	return NULL;
}

int snapshot_read(const char *text, size_t bytes, size_t layer_count, struct snapshot *ret_snapshot, struct line *why)
{
	json_error_t error;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return line_fail(why, EDIT_ERROR_MALFORMED, "its state is no JSON (line %d)", error.line);
	struct snapshot snapshot = {.layer_count = layer_count, .layers = calloc(size_max(layer_count, 1), sizeof *snapshot.layers)};
	const char *fault = snapshot.layers ? read_all(root, layer_count, &snapshot) : "no memory";
	json_decref(root);
	if (fault) {
		int code = snapshot.layers ? EDIT_ERROR_MALFORMED : EDIT_ERROR_SYSTEM;
		snapshot_free(&snapshot);
		return line_fail(why, code, "its state is not as expected (%s)", fault);
	}
	*ret_snapshot = snapshot;
	return 0;
}

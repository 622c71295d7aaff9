/* The daemon's state file. Owns the mapping and the table of places; knows nothing of rings. */

#include "daemon/state.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static uint64_t data_offset(size_t layer_count)
{
	return round_up(sizeof(struct state_head)) + round_up(layer_count * sizeof(struct state_layer));
}

/* Elements of a layer that are here. */
static uint64_t layer_size(const struct description *description, size_t layer_index, const struct segment_seat *seat)
{
	return ring_shard_size(description->layers[layer_index].size, seat->shards, seat->column);
}

static uint64_t size_for(const struct description *description, const struct segment_seat *seat)
{
	uint64_t bytes = data_offset(description->layer_count);
	for (size_t i = 0; i < description->layer_count; i++)
		bytes += 2 * round_up(layer_size(description, i, seat) * sizeof(float));
	return bytes;
}

/* Names the parts of a mapping of the right size. */
static int place(struct state *state, const struct description *description, const struct segment_seat *seat, struct line *why)
{
	char *base = state->mapping.base;
	uint64_t offset = data_offset(description->layer_count);
	state->head = (struct state_head *)(void *)base;
	state->layers = (struct state_layer *)(void *)(base + round_up(sizeof(struct state_head)));
	state->layer_count = description->layer_count;
	state->places = calloc(state->layer_count, sizeof *state->places);
	if (!state->places)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	for (size_t i = 0; i < state->layer_count; i++) {
		struct state_place *part = &state->places[i];
		part->size = layer_size(description, i, seat);
		part->anchor = (float *)(void *)(base + offset);
		offset += round_up(part->size * sizeof(float));
		part->momentum = (float *)(void *)(base + offset);
		offset += round_up(part->size * sizeof(float));
	}
	CHECK(offset == state->mapping.size_bytes);
	return 0;
}

int state_create(const char *path, const struct description *description, uint64_t description_hash,
		 const struct segment_seat *seat, struct state *ret_state, struct line *why)
{
	struct state state = {.mapping.fd = -1};
	int error = mapping_create(path, size_for(description, seat), &state.mapping, why);
	if (error)
		return error;
	error = place(&state, description, seat, why);
	if (error) {
		state_close(&state);
		return error;
	}
	state.head->magic = STATE_MAGIC;
	state.head->version = STATE_VERSION;
	state.head->layer_count = (uint32_t)description->layer_count;
	state.head->size_bytes = state.mapping.size_bytes;
	state.head->description_hash = description_hash;
	*ret_state = state;
	return 0;
}

int state_begin(struct state *state, const char *path, const struct state_run *run, bool has_layers, struct line *why)
{
	for (size_t i = 0; i < state->layer_count; i++) {
		struct detector detector = state->layers[i].detector;
		state->places[i].is_damaged = !has_layers;
		if (!has_layers)
			continue;
		state_commit_layer(state, i, run->round, run->since, false, &detector);
	}
	state_commit_run(state, run);
	return mapping_rename(path, why);
}

static uint64_t entry_hash(const struct state_layer *layer)
{
	return XXH3_64bits(layer, offsetof(struct state_layer, entry_hash));
}

static bool is_whole_slot(const struct state_slot *slot)
{
	return slot->run_hash == XXH3_64bits(&slot->run, sizeof slot->run) && slot->run.number > 0;
}

/* The slot that was written last, of those that are whole. NULL: none is. */
static const struct state_run *newest_run(const struct state_head *head)
{
	const struct state_run *newest = NULL;
	for (size_t i = 0; i < 2; i++)
		if (is_whole_slot(&head->slots[i]) && (!newest || head->slots[i].run.number > newest->number))
			newest = &head->slots[i].run;
	return newest;
}

static void mark_damaged(const struct state *state)
{
	for (size_t i = 0; i < state->layer_count; i++) {
		const struct state_layer *layer = &state->layers[i];
		state->places[i].is_damaged = layer->begun_round != layer->ended_round || layer->entry_hash != entry_hash(layer) ||
					      layer->hash != state_hash_layer(state, i) || layer->ended_round < state->run->round ||
					      layer->ended_round > state->run->round + 1;
	}
}

int state_check_whole(const struct state *state, const char *path, const struct description *description, struct line *why)
{
	for (size_t i = 0; i < state->layer_count; i++) {
		const struct state_layer *layer = &state->layers[i];
		const char *name = description->layers[i].name;
		if (state->places[i].is_damaged)
			return line_fail(
				why, EDIT_ERROR_MALFORMED,
				"%s: layer \"%.100s\" was being changed when the daemon died; remove the file to begin anew",
				path, name);
		if (layer->ended_round != state->run->round)
			return line_fail(
				why, EDIT_ERROR_MALFORMED,
				"%s: stopped in the middle of a round (layer \"%.100s\" at round %llu, the run at %llu); "
				"remove the file to begin anew",
				path, name, (unsigned long long)layer->ended_round,
				(unsigned long long)state->run->round);
	}
	return 0;
}

static int check_head(struct state *state, const char *path, uint64_t description_hash, struct line *why)
{
	const struct state_head *head = state->head;
	if (head->description_hash != description_hash)
		return line_fail(why, EDIT_ERROR_MALFORMED,
				 "%s: belongs to another model or run; remove it to begin anew", path);
	state->run = newest_run(head);
	if (!state->run)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s: damaged; remove it to begin anew", path);
	for (size_t i = 0; i < RING_SETTING_COUNT; i++)
		if (!(state->run->settings.value[i] >= 0))
			return line_fail(why, EDIT_ERROR_MALFORMED, "%s: holds settings that cannot be", path);
	return 0;
}

int state_open(const char *path, const struct description *description, uint64_t description_hash,
	       const struct segment_seat *seat, struct state *ret_state, struct line *why)
{
	struct state state = {.mapping.fd = -1};
	int error = mapping_open(path, &state.mapping, why);
	if (error)
		return error;
	const struct state_head *head = state.mapping.base;
	if (state.mapping.size_bytes < sizeof *head || head->magic != STATE_MAGIC || head->version != STATE_VERSION)
		error = line_fail(why, EDIT_ERROR_MALFORMED, "%s: not a state file of this version", path);
	else if (head->layer_count != description->layer_count || head->size_bytes != state.mapping.size_bytes ||
		 state.mapping.size_bytes != size_for(description, seat))
		error = line_fail(why, EDIT_ERROR_MALFORMED,
				  "%s: belongs to another model or run; remove it to begin anew", path);
	else
		error = place(&state, description, seat, why);
	if (!error)
		error = check_head(&state, path, description_hash, why);
	if (!error)
		mark_damaged(&state);
	if (error) {
		state_close(&state);
		return error;
	}
	*ret_state = state;
	return 0;
}

void state_close(struct state *state)
{
	free(state->places);
	mapping_close(&state->mapping);
	*state = (struct state){.mapping.fd = -1};
}

uint64_t state_commit_layer(struct state *state, size_t layer_index, uint64_t round, uint64_t since, bool is_rolled_back,
			    const struct detector *detector)
{
	CHECK(layer_index < state->layer_count);
	struct state_layer *layer = &state->layers[layer_index];
	layer->begun_round = round;
	layer->detector = *detector;
	layer->hash = state_hash_layer(state, layer_index);
	layer->since = since;
	layer->is_rolled_back = is_rolled_back;
	state->places[layer_index].is_damaged = false;
	layer->ended_round = round;
	layer->entry_hash = entry_hash(layer);
	return layer->hash;
}

void state_commit_run(struct state *state, const struct state_run *run)
{
	struct state_head *head = state->head;
	struct state_slot *slot = &head->slots[state->run == &head->slots[0].run];
	uint64_t number = state->run ? state->run->number + 1 : 1;
	slot->run = *run;
	slot->run.number = number;
	slot->run_hash = XXH3_64bits(&slot->run, sizeof slot->run);
	state->run = &slot->run;
}

static uint64_t hash_all(const struct state_layer *layers, size_t layer_count)
{
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	for (size_t i = 0; i < layer_count; i++)
		XXH3_64bits_update(&hash, &layers[i].hash, sizeof layers[i].hash);
	return XXH3_64bits_digest(&hash);
}

uint64_t state_anchor_hash(const struct state *state)
{
	return hash_all(state->layers, state->layer_count);
}

bool state_look(const char *path, uint64_t *ret_round, uint64_t *ret_anchor_hash)
{
	struct mapping mapping;
	if (mapping_open_read(path, &mapping, NULL) != 0)
		return false;
	const struct state_head *head = mapping.base;
	bool is_good = mapping.size_bytes >= sizeof *head && head->magic == STATE_MAGIC && head->version == STATE_VERSION &&
		       head->layer_count >= 1 && head->layer_count <= LAYER_COUNT_MAX &&
		       data_offset(head->layer_count) <= mapping.size_bytes;
	const struct state_run *run = is_good ? newest_run(head) : NULL;
	if (run) {
		const char *layers = (const char *)mapping.base + round_up(sizeof *head);
		*ret_round = run->round;
		*ret_anchor_hash = hash_all((const struct state_layer *)(const void *)layers, head->layer_count);
	}
	mapping_close(&mapping);
	return run != NULL;
}

uint64_t state_hash_layer(const struct state *state, size_t layer_index)
{
	CHECK(layer_index < state->layer_count);
	const struct state_place *part = &state->places[layer_index];
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	XXH3_64bits_update(&hash, part->anchor, part->size * sizeof(float));
	XXH3_64bits_update(&hash, part->momentum, part->size * sizeof(float));
	return XXH3_64bits_digest(&hash);
}

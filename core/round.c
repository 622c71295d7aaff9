/* One round, from the worker's offer to the publish of every layer. The only place that changes anchor, momentum and theta. */

#include <math.h>
#include <string.h>

#include "core/outer.h"
#include "core/part.h"
#include "core/round.h"

#define START_MAX 16        /* layers begun in one step, so that a step's actions are bounded */
#define LATENESS_FACTOR 0.1 /* of the exponential mean */

static double setting(const struct sync *sync, enum ring_setting id) { return sync->settings.value[id]; }

/* ---- Start: pseudo-gradient, norm, own verdict ---- */

static struct sync_buffer *free_buffer(struct sync *sync)
{
	for (uint32_t i = 0; i < sync->buffer_count; i++) {
		struct sync_buffer *buffer = &sync->buffers[i];
		if (!buffer->busy && !ring_pass_has_chunk(&buffer->pass) && !ring_pass_has_chunk(&buffer->across) &&
		    sync->link->acknowledged >= buffer->free_after[0] && sync->across->acknowledged >= buffer->free_after[1])
			return buffer;
	}
	return NULL;
}

static bool may_start(const struct sync *sync)
{
	uint32_t ahead = (uint32_t)setting(sync, SYNC_PREFETCH);
	/* Nobody asks for a layer where the worker does not wait for one. */
	bool is_unasked = part_is_behind(sync) || sync->gradients;
	if (sync->next_start == sync->layer_count)
		return false;
	const struct sync_layer *layer = &sync->state[sync_layer_at(sync, sync->next_start)];
	if (layer->phase != LAYER_OFFERED || layer->hash_due || (sync->behind && sync->next_start >= sync->next_return))
		return false;
	return sync->next_start < sync->first_open + (is_unasked && ahead == 0 ? 1 : ahead) || sync->next_start < sync->wanted;
}

/* What all nodes of the replica bring is known: the norm of the whole layer, one verdict, one record. */
static void judge(struct sync *sync, uint32_t index, uint64_t now_us)
{
	struct sync_layer *layer = &sync->state[index];
	const struct row *row = &sync->row;
	const uint64_t round = layer->round + 1;
	const struct scalar *own = row_at(row, SCALAR_NORM, index, round, row->rank);
	const struct detector detector = penalty_begin(&layer->detector, &sync->settings);
	struct record record = {.round = round, .layer_index = index, .origin = sync->rank, .verdict = own->verdict,
				.norm = sqrt(row_sum(row, SCALAR_NORM, index, round)),
				.mean = detector.mean, .sd = penalty_sd(&detector),
				.step = sync->step, .steps = sync->offer.steps, .tokens = sync->offer.tokens, .loss = sync->offer.loss,
				.interval_us = sync->late ? 0 : sync->offer_us - sync->part_us,
				.exposed_us = sync->offer.exposed_us, .change = own->word, .final = sync->offer.final,
				.realign = sync->offer.realign || sync->realigns};
	for (uint32_t column = 0; column < row->count; column++)
		if (row_at(row, SCALAR_NORM, index, round, column)->word != own->word)
			record.change = 0; /* some node has not heard of some change yet */
	layer->next = layer->detector;
	if (record.verdict == VERDICT_ACCEPTED && !part_is_equal(sync))
		record.verdict = penalty_judge(&detector, &sync->settings, record.norm, &layer->next, &record.z);
	else if (!isfinite(record.norm))
		record.verdict = VERDICT_NONFINITE;
	if (!sync->late)
		layer->verdict = record.verdict;
	layer->phase = LAYER_SCALARS;
	layer->judged_in |= sync_view_bit(sync->view);
	sync_file_record(sync, &record, now_us);
}

static void start(struct sync *sync, struct sync_buffer *buffer, uint64_t now_us)
{
	uint32_t index = sync_layer_at(sync, sync->next_start++);
	struct sync_layer *layer = &sync->state[index];
	layer->buffer = (uint32_t)(buffer - sync->buffers);
	buffer->busy = true;
	buffer->layer_index = index;
	buffer->round = layer->round + 1;
	struct scalar scalar = {.kind = SCALAR_NORM, .layer_index = index, .number = buffer->round};
	scalar.value = part_numbers(sync, index, buffer->numbers, &scalar.verdict);
	if (index == 0)
		scalar.word = proposals_digest(&sync->proposals, buffer->round);
	layer->phase = LAYER_NORM;
	layer->mark_us = now_us;
	row_tell(&sync->row, &scalar, now_us);
	if (row_is_whole(&sync->row, SCALAR_NORM, index, buffer->round))
		judge(sync, index, now_us);
}

/* ---- The first layer's scalars: what all members agree on ---- */

static void set(struct sync *sync, enum ring_setting setting, double value)
{
	sync->next_settings.value[setting] = value;
	sync->next_setting_round[setting] = sync->round + 1;
	for (enum ring_setting preset = 0; setting == METHOD && preset < RING_SETTING_COUNT; preset++) {
		double preset_value;
		if (method_presets((enum method)value, preset, &preset_value))
			set(sync, preset, preset_value);
	}
}

static void take(struct sync *sync, const struct change *change, struct actions *actions)
{
	switch (change->kind) {
	case CHANGE_SET: set(sync, (enum ring_setting)change->setting, change->value); break;
	case CHANGE_PAUSE:
		if (sync->pause_round > sync->round)
			break; /* agreed twice */
		sync->pause_round = sync->round + 1;
		if (!sync->paused)
			actions_add(actions, ACTION_PAUSE);
		sync->paused = sync->resume_round <= sync->round;
		if (!sync->paused) /* ended already, see resume */
			actions_add(actions, ACTION_RESUME);
		break;
	case CHANGE_CHECKPOINT: sync->checkpoint_round = sync->round + 1; break;
	default: CHECK(false); /* a change that waits for a round */
	}
}

static void note_lateness(struct sync *sync, uint64_t round)
{
	uint32_t parity = round % 2;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		uint64_t late_us = sync->arrival_us[parity * sync->count + rank] - sync->first_us[parity];
		sync->lateness_us[rank] = late_us;
		sync->lateness_mean_us[rank] += LATENESS_FACTOR * ((double)late_us - sync->lateness_mean_us[rank]);
	}
}

static void agree(struct sync *sync, struct actions *actions)
{
	uint64_t round = sync->round + 1;
	uint64_t digest = sync_record_at(sync, round, 0, sync->rank)->change;
	bool is_agreed = digest != 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct record *record = sync_record_at(sync, round, 0, rank);
		is_agreed &= record->change == digest;
		sync->finishing |= record->final && !sync->gradients;
	}
	struct change change;
	bool taken;
	while (proposals_next(&sync->proposals, round, is_agreed, &change, &taken)) {
		if (taken)
			take(sync, &change, actions);
		actions_note(actions, (struct note){.code = taken ? NOTE_CHANGE_TAKEN : NOTE_CHANGE_DROPPED,
						    .peer = proposal_origin(&change), .round = round, .a = change.id});
	}
	sync->has_agreed = true;
	sync->taken_round = round;
	sync->taken = is_agreed ? digest : 0;
	note_lateness(sync, round);
	part_agree(sync, actions);
}

/* ---- Scalars complete: weights, then reduce ---- */

static void note_verdicts(struct sync *sync, uint32_t index, uint64_t round, struct actions *actions)
{
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct record *record = sync_record_at(sync, round, index, rank);
		if (record->verdict != VERDICT_ACCEPTED)
			actions_note(actions, (struct note){.code = NOTE_VERDICT, .peer = sync_peer(sync, rank), .layer_index = index,
							    .round = round, .x = record->norm, .y = record->z,
							    .detail = (int)record->verdict});
	}
}

static void begin_mean(struct sync *sync, uint32_t index, uint64_t now_us, struct actions *actions)
{
	struct sync_layer *layer = &sync->state[index];
	uint64_t round = layer->round + 1;
	bool is_equal = part_is_equal(sync), is_by_steps = !is_equal && setting(sync, PENALTY_BY_STEPS) != 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct record *record = sync_record_at(sync, round, index, rank);
		sync->norms[rank] = is_equal ? 0 : record->norm;
		sync->verdicts[rank] = record->verdict;
		sync->steps[rank] = is_by_steps ? (double)u64_max(record->steps, 1) : 1.0;
	}
	double *weights = sync_weight_at(sync, round, index, 0);
	layer->accepted = (uint32_t)penalty_weights(sync->norms, sync->verdicts, sync->steps, sync->count,
						    setting(sync, PENALTY_TEMPERATURE), weights);
	layer->times_us[0] = now_us - layer->mark_us;
	layer->times_us[1] = 0;
	layer->mark_us = now_us;
	layer->own_shard_done = false;
	layer->phase = LAYER_MEAN;
	note_verdicts(sync, index, round, actions);
	if (index == 0)
		agree(sync, actions);
	if (layer->accepted == 0)
		return;
	struct sync_buffer *buffer = &sync->buffers[layer->buffer];
	const size_t size = sync->layers[index].size;
	const float weight = (float)weights[sync->rank];
	if (sync->group_count == 1) {
		ring_pass_begin(&buffer->pass, buffer->numbers, size, weight);
		return;
	}
	ring_pass_begin_gated(&buffer->pass, buffer->numbers, size, weight);
	ring_pass_begin_early(&buffer->across, buffer->stash,
			      ring_shard_size(size, sync->fanout, sync->rank % sync->fanout));
}

/* Between the parts of a mean that is made in three; true if it moved. */
static bool cross(struct sync *sync, uint32_t index)
{
	struct sync_buffer *buffer = &sync->buffers[sync->state[index].buffer];
	struct ring_pass *pass = &buffer->pass, *across = &buffer->across;
	if (across->state == RING_EARLY && ring_pass_is_summed(pass)) {
		ring_pass_open(across, buffer->numbers + sync_shard_begin(sync, index));
		return true;
	}
	if (pass->state == RING_GATED && across->state == RING_FREE && ring_pass_is_done(across)) {
		ring_pass_release(pass, ring_pass_square_norm(across));
		return true;
	}
	return false;
}

int round_chunk(struct sync *sync, const struct chunk *chunk, bool is_across, const void *payload, uint64_t now_us)
{
	if (chunk->layer_index >= sync->layer_count)
		return EDIT_ERROR_MALFORMED;
	struct sync_layer *layer = &sync->state[chunk->layer_index];
	if (layer->phase != LAYER_MEAN || layer->accepted == 0 || chunk->round != layer->round + 1)
		return EDIT_ERROR_MALFORMED;
	struct sync_buffer *buffer = &sync->buffers[layer->buffer];
	int error = ring_pass_accept(is_across ? &buffer->across : &buffer->pass, chunk, payload);
	if (error != 0)
		return error;
	if (!layer->own_shard_done && ring_pass_is_summed(&buffer->pass)) {
		layer->own_shard_done = true;
		layer->times_us[1] = now_us - layer->mark_us;
		layer->mark_us = now_us;
	}
	sync->progress_us = now_us;
	return 0;
}

/* ---- Commit ---- */

/* The mean of the own piece is there: its norm is that of the whole layer. */
static void tell_mean(struct sync *sync, uint32_t index, uint64_t now_us)
{
	struct sync_layer *layer = &sync->state[index];
	struct scalar scalar = {.kind = SCALAR_MEAN, .layer_index = index, .number = layer->round + 1};
	if (layer->accepted > 0)
		scalar.value = ring_pass_square_norm(&sync->buffers[layer->buffer].pass);
	layer->phase = LAYER_CLIP;
	row_tell(&sync->row, &scalar, now_us);
}

/* Applies the mean to anchor and momentum; gradients are the worker's to apply. false: it has no finite norm, nothing was changed. */
static bool step(struct sync *sync, uint32_t index, const struct sync_buffer *buffer)
{
	const struct layer *memory = &sync->layers[index];
	double square_norm = row_sum(&sync->row, SCALAR_MEAN, index, buffer->round);
	if (!isfinite(square_norm))
		return false;
	if (!sync->gradients)
		outer_step(memory->anchor, memory->momentum, buffer->numbers,
			   outer_clip_scale(square_norm, setting(sync, PENALTY_CLIP)), setting(sync, OUTER_LR),
			   setting(sync, OUTER_MOMENTUM), memory->size);
	return true;
}

static void commit(struct sync *sync, uint32_t index, uint64_t now_us, struct actions *actions)
{
	struct sync_layer *layer = &sync->state[index];
	struct sync_buffer *buffer = &sync->buffers[layer->buffer];
	bool is_applied = layer->accepted > 0 && step(sync, index, buffer);
	if (!is_applied)
		actions_note(actions, (struct note){.code = NOTE_ROLLED_BACK, .layer_index = index,
						    .round = layer->round + 1, .a = layer->accepted});
	bool goes_back = part_commit(sync, index, buffer->numbers, is_applied);
	buffer->busy = false;
	layer->buffer = NO_BUFFER;
	layer->detector = layer->next;
	layer->round++;
	layer->is_rolled_back = !is_applied;
	layer->judged_in = 0;
	layer->since = sync->since = sync->view;
	layer->record_count[layer->round % 2] = 0;
	layer->times_us[2] = now_us - layer->mark_us;
	layer->phase = LAYER_WORKER;
	layer->hash_due = true;
	sync->progress_us = now_us;
	struct action *action = actions_add(actions, ACTION_COMMITTED);
	action->layer_index = index;
	action->round = layer->round;
	if (!goes_back)
		return;
	action = actions_add(actions, ACTION_PUBLISH);
	action->layer_index = index;
	action->round = layer->round;
	action->verdict = layer->verdict;
}

static bool is_checkpoint_round(const struct sync *sync)
{
	uint64_t every = (uint64_t)setting(sync, CHECKPOINT_ROUNDS);
	return every > 0 && sync->round % every == 0;
}

static void end_round(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	sync->round++;
	sync->has_agreed = false;
	proposals_settle(&sync->proposals);
	sync->settings = sync->next_settings;
	memcpy(sync->setting_round, sync->next_setting_round, sizeof(sync->setting_round));
	sync->next_start = sync->first_open = sync->wanted = 0;
	sync->sync_us = now_us - sync->offer_us;
	sync->done_us = now_us;
	part_end(sync, now_us, actions);
	sync->round_bytes = sync->link->sent_bytes + sync->across->sent_bytes - sync->begin_bytes;
	actions_note(actions, (struct note){.code = NOTE_ROUND_DONE, .round = sync->round, .a = sync->sync_us,
					    .b = sync->round_bytes});
	if (sync->checkpoint_round == sync->round || is_checkpoint_round(sync))
		actions_add(actions, ACTION_CHECKPOINT)->round = sync->round;
	sync->finished = sync->finishing;
	if (sync->finished)
		actions_note(actions, (struct note){.code = NOTE_FINISHED, .round = sync->round});
}

/* Moves one started layer as far as it goes; true if it moved. */
static bool move(struct sync *sync, uint32_t index, uint64_t now_us, struct actions *actions)
{
	struct sync_layer *layer = &sync->state[index];
	if (layer->phase == LAYER_NORM && row_is_whole(&sync->row, SCALAR_NORM, index, layer->round + 1)) {
		judge(sync, index, now_us);
		return true;
	}
	if (layer->phase == LAYER_SCALARS && layer->record_count[(layer->round + 1) % 2] == sync->count) {
		begin_mean(sync, index, now_us, actions);
		return true;
	}
	if (layer->phase == LAYER_MEAN && layer->accepted > 0 && sync->group_count > 1 && cross(sync, index))
		return true;
	if (layer->phase == LAYER_MEAN &&
	    (layer->accepted == 0 || ring_pass_is_done(&sync->buffers[layer->buffer].pass)))
		tell_mean(sync, index, now_us);
	if (layer->phase == LAYER_CLIP && row_is_whole(&sync->row, SCALAR_MEAN, index, layer->round + 1)) {
		commit(sync, index, now_us, actions);
		return true;
	}
	return false;
}

void round_advance(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	uint32_t started = 0;
	part_give_back(sync, START_MAX, now_us, actions);
	part_watch(sync, now_us, actions);
	bool moved = sync->offered;
	if (part_return(sync, START_MAX, actions))
		actions_wake(actions, now_us);
	while (moved) {
		moved = false;
		/* Done in an earlier view. */
		while (sync->next_start < sync->layer_count &&
		       sync->state[sync_layer_at(sync, sync->next_start)].round > sync->round)
			sync->next_start++;
		struct sync_buffer *buffer;
		while (started < START_MAX && may_start(sync) && (buffer = free_buffer(sync)) != NULL) {
			start(sync, buffer, now_us);
			started++;
			moved = true;
		}
		for (uint32_t i = sync->first_open; i < sync->next_start; i++)
			moved |= move(sync, sync_layer_at(sync, i), now_us, actions);
		while (sync->first_open < sync->next_start &&
		       sync->state[sync_layer_at(sync, sync->first_open)].phase == LAYER_WORKER)
			sync->first_open++;
	}
	if (started == START_MAX)
		actions_wake(actions, now_us);
	if (sync->offered && sync->first_open == sync->layer_count) {
		end_round(sync, now_us, actions);
		actions_wake(actions, now_us); /* an offer may wait, or be late already */
	}
}

/* ---- To the ring ---- */

bool round_next_chunk(struct sync *sync, bool is_across, size_t window_bytes, struct frame *ret_frame)
{
	struct link *link = is_across ? sync->across : sync->link;
	struct sync_buffer *best = NULL;
	for (uint32_t i = 0; i < sync->buffer_count; i++) {
		struct sync_buffer *buffer = &sync->buffers[i];
		if (!ring_pass_has_chunk(is_across ? &buffer->across : &buffer->pass))
			continue;
		if (best == NULL || buffer->round < best->round ||
		    (buffer->round == best->round && buffer->layer_index < best->layer_index))
			best = buffer;
	}
	size_t chunk_elements = (size_t)setting(sync, WIRE_CHUNK) / sizeof(float);
	if (best == NULL || !link_has_room(link, chunk_elements * sizeof(float), window_bytes))
		return false;
	*ret_frame = (struct frame){.kind = MESSAGE_CHUNK, .layer_index = best->layer_index,
				    .origin = (uint32_t)(best - sync->buffers), .round = best->round};
	ring_pass_next(is_across ? &best->across : &best->pass, chunk_elements, &ret_frame->chunk);
	ret_frame->chunk.round = best->round;
	ret_frame->chunk.layer_index = best->layer_index;
	best->free_after[is_across] = link->end + 1;
	return true;
}

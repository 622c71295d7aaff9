/* Tables of the rounds and the frames that fill them. Never moves a layer: core/round.c does. */

#include <string.h>

#include "core/sync.h"

static uint64_t in_progress(const struct sync *sync) { return sync->round + 1; }

static size_t table_index(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank)
{
	return (round % 2 * sync->layer_count + layer_index) * sync->count + rank;
}

struct record *sync_record_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank)
{
	return &sync->records[table_index(sync, round, layer_index, rank)];
}

double *sync_weight_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank)
{
	return &sync->weights[table_index(sync, round, layer_index, rank)];
}

struct sync_confirm *sync_confirm_at(const struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank)
{
	return &sync->confirms[table_index(sync, round, layer_index, rank)];
}

/* Along both rings where the ring is cut into groups: then whatever
 * comes along either proves that all that was sent before has been seen. */
void sync_push(struct sync *sync, const struct frame *frame)
{
	const uint32_t f = sync->fanout, place = sync->rank % f, group = sync->rank / f;
	/* sync_frames_max made room */
	if (f > 1 && group * f + ring_right(place, f) != frame->origin)
		CHECK(link_push(sync->link, frame) == 0);
	if (sync->group_count > 1 && ring_right(group, sync->group_count) * f + place != frame->origin)
		CHECK(link_push(sync->across, frame) == 0);
}

static void push(struct sync *sync, enum message_kind kind, uint32_t layer_index, uint32_t origin, uint64_t round)
{
	struct frame frame = {.kind = kind, .layer_index = layer_index, .origin = origin, .round = round};
	sync_push(sync, &frame);
}

struct holding *sync_holding_at(const struct sync *sync, uint32_t layer_index, uint32_t rank)
{
	return &sync->holdings[(size_t)layer_index * sync->count + rank];
}

/* ---- Records ---- */

void sync_file_record(struct sync *sync, const struct record *record, uint64_t now_us)
{
	uint32_t parity = record->round % 2;
	*sync_record_at(sync, record->round, record->layer_index, record->origin) = *record;
	sync->state[record->layer_index].record_count[parity]++;
	if (record->layer_index == 0) {
		if (sync->state[0].record_count[parity] == 1)
			sync->first_us[parity] = now_us;
		sync->arrival_us[parity * sync->count + record->origin] = now_us;
	}
	push(sync, MESSAGE_RECORD, record->layer_index, record->origin, record->round);
	sync->progress_us = now_us;
}

int sync_record(struct sync *sync, const struct record *record, uint64_t now_us)
{
	if (record->layer_index >= sync->layer_count || record->origin >= sync->count || record->origin == sync->rank)
		return EDIT_ERROR_MALFORMED;
	const struct sync_layer *layer = &sync->state[record->layer_index];
	if (sync_record_at(sync, record->round, record->layer_index, record->origin)->round == record->round)
		return sync->group_count > 1 ? 0 : EDIT_ERROR_MALFORMED;
	if (record->round != layer->round + 1 && record->round != layer->round + 2)
		return EDIT_ERROR_MALFORMED;
	sync_file_record(sync, record, now_us);
	return 0;
}

/* ---- Confirms ---- */

static void compare(struct sync *sync, uint64_t round, uint32_t layer_index, uint32_t rank, struct actions *actions)
{
	const struct sync_confirm *own = sync_confirm_at(sync, round, layer_index, sync->rank);
	const struct sync_confirm *other = sync_confirm_at(sync, round, layer_index, rank);
	if (own->round == round && other->round == round && own->hash != other->hash)
		actions_note(actions, (struct note){.code = NOTE_HASH_DIFFERS, .peer = sync_peer(sync, rank), .layer_index = layer_index,
						    .round = round, .a = other->hash, .b = own->hash});
}

int sync_confirm(struct sync *sync, const struct confirm *confirm, struct actions *actions)
{
	if (confirm->layer_index >= sync->layer_count || confirm->origin >= sync->count || confirm->origin == sync->rank)
		return EDIT_ERROR_MALFORMED;
	const struct sync_layer *layer = &sync->state[confirm->layer_index];
	struct sync_confirm *place = sync_confirm_at(sync, confirm->round, confirm->layer_index, confirm->origin);
	bool fits = confirm->round == layer->round || confirm->round == layer->round + 1;
	if (confirm->round == place->round && sync->group_count > 1)
		return 0;
	if (!fits || confirm->round == place->round)
		return EDIT_ERROR_MALFORMED;
	*place = (struct sync_confirm){.round = confirm->round, .hash = confirm->hash};
	compare(sync, confirm->round, confirm->layer_index, confirm->origin, actions);
	push(sync, MESSAGE_CONFIRM, confirm->layer_index, confirm->origin, confirm->round);
	return 0;
}

void sync_hashed(struct sync *sync, uint32_t layer_index, uint64_t hash, struct actions *actions)
{
	uint64_t round = sync->state[layer_index].round;
	CHECK(round > 0);
	sync->state[layer_index].hash_due = false;
	*sync_confirm_at(sync, round, layer_index, sync->rank) = (struct sync_confirm){.round = round, .hash = hash};
	for (uint32_t rank = 0; rank < sync->count; rank++)
		compare(sync, round, layer_index, rank, actions);
	push(sync, MESSAGE_CONFIRM, layer_index, sync->rank, round);
}

/* ---- Changes ---- */

static bool value_is_valid(uint32_t id, double value)
{
	static const struct {
		double low, high;
		bool is_whole;
	} range[] = {
#define COUNT 1
#define BYTES 1
#define REAL 0
#define CHOICE 1
#define X(name, text, type, unit, standard, low, high, help) {low, high, type},
		RING_SETTINGS(X)
#undef X
#undef COUNT
#undef BYTES
#undef REAL
#undef CHOICE
	};
	if (id >= RING_SETTING_COUNT || !(value >= range[id].low && value <= range[id].high) ||
	    !ring_setting_fits((enum ring_setting)id, value))
		return false;
	return !range[id].is_whole || value == (double)(uint64_t)value;
}

/* First round whose first layer the own member has not begun. */
static uint64_t first_free_round(const struct sync *sync)
{
	return in_progress(sync) + row_has_told(&sync->row, SCALAR_NORM, 0, in_progress(sync));
}

/* Sends a change on, along all rings. */
static int push_change(struct sync *sync, const struct change *change)
{
	struct frame frame = {.kind = MESSAGE_CHANGE, .change = *change};
	int error = sync->fanout > 1 ? link_push(sync->link, &frame) : 0;
	if (error == 0 && sync->group_count > 1)
		error = link_push(sync->across, &frame);
	return sync->row.count > 1 && error == 0 ? link_push(sync->row.link, &frame) : error;
}

static void resume(struct sync *sync, const struct change *change, struct actions *actions)
{
	/* In a mesh it may overtake the agreement on the pause that it ends: then that one ends as it begins. */
	sync->resume_round = u64_max(sync->resume_round, change->at_round);
	if (sync->paused && sync->pause_round <= sync->resume_round) {
		actions_add(actions, ACTION_RESUME);
		sync->paused = false;
	}
	actions_note(actions, (struct note){.code = NOTE_CHANGE_TAKEN, .peer = proposal_origin(change),
					    .round = sync->round, .a = change->id});
}

int sync_propose(struct sync *sync, struct change *change, struct actions *actions)
{
	if (change->kind == CHANGE_SET && !value_is_valid(change->setting, change->value))
		return EDIT_ERROR_RANGE;
	if (change->kind < CHANGE_SET || change->kind >= CHANGE_KIND_END)
		return EDIT_ERROR_INVALID;
	if (sync->finished || (change->at_round != 0 && change->at_round < first_free_round(sync)))
		return EDIT_ERROR_REFUSED;
	if (change->kind == CHANGE_RESUME && !sync->paused)
		return EDIT_ERROR_REFUSED;
	if (change->kind == CHANGE_PAUSE && sync->paused && change->at_round == 0)
		return EDIT_ERROR_REFUSED; /* no round comes that it could take effect after */
	if (change->kind == CHANGE_RESUME)
		change->at_round = sync->pause_round;
	change->id = proposals_next_id(&sync->proposals);
	int error = change->kind == CHANGE_RESUME ? 0 : proposals_propose(&sync->proposals, change);
	if (error != 0)
		return error;
	uint32_t own = sync_peer(sync, sync->rank);
	sync->heard[own] = (uint32_t)change->id;
	actions_note(actions, (struct note){.code = NOTE_CHANGE_HERE, .peer = own, .a = change->id});
	CHECK(push_change(sync, change) == 0);
	if (sync_peer_count(sync) == 1)
		actions_note(actions, (struct note){.code = NOTE_CHANGE_HELD, .peer = own, .a = change->id});
	if (change->kind == CHANGE_RESUME)
		resume(sync, change, actions);
	return 0;
}

int sync_change(struct sync *sync, const struct change *change, bool is_home, struct actions *actions)
{
	uint32_t origin = proposal_origin(change);
	if (origin >= sync_peer_count(sync) || (change->kind == CHANGE_SET && !value_is_valid(change->setting, change->value)))
		return EDIT_ERROR_MALFORMED;
	if (origin == sync_peer(sync, sync->rank)) {
		if (is_home)
			actions_note(actions, (struct note){.code = NOTE_CHANGE_HELD, .peer = origin, .a = change->id});
		return 0;
	}
	/* It may come along several rings. Whoever hears of changes of one origin for the first time hears of them in order. */
	if ((uint32_t)change->id <= sync->heard[origin])
		return sync->row.count > 1 || sync->group_count > 1 ? 0 : EDIT_ERROR_MALFORMED;
	if (change->kind != CHANGE_RESUME && proposals_hold(&sync->proposals, change) != 0)
		return EDIT_ERROR_MALFORMED; /* its origin has more open than a member may */
	sync->heard[origin] = (uint32_t)change->id;
	if (change->kind == CHANGE_RESUME)
		resume(sync, change, actions);
	return push_change(sync, change) == 0 ? 0 : EDIT_ERROR_MALFORMED;
}

/* ---- The replica ---- */

int sync_scalar(struct sync *sync, const struct scalar *scalar, uint64_t now_us)
{
	if (scalar->layer_index >= sync->layer_count)
		return EDIT_ERROR_MALFORMED;
	uint64_t number = sync->state[scalar->layer_index].round + 1;
	if (scalar->kind == SCALAR_ROUND)
		number = in_progress(sync);
	else if (scalar->kind == SCALAR_STEP)
		number = sync->sums;
	int error = row_take(&sync->row, scalar, number, now_us);
	if (error == 0)
		sync->progress_us = now_us;
	return error;
}

void sync_sum(struct sync *sync, double value, bool wants_offer, uint64_t now_us)
{
	sync->sum_us = now_us;
	CHECK(sync->summed == sync->sums);
	sync->sum = (struct scalar){.kind = SCALAR_STEP, .number = ++sync->sums, .value = value, .final = wants_offer};
}

void sync_advance_sum(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	const struct row *row = &sync->row;
	if (sync->summed == sync->sums)
		return;
	if (!row_has_told(row, SCALAR_STEP, 0, sync->sums))
		row_tell(&sync->row, &sync->sum, now_us);
	if (!row_is_whole(row, SCALAR_STEP, 0, sync->sums))
		return;
	struct action *action = actions_add(actions, ACTION_SUMMED);
	action->number = sync->summed = sync->sums;
	action->value = row_sum(row, SCALAR_STEP, 0, sync->sums);
	for (uint32_t column = 0; column < row->count; column++)
		action->wants_offer |= row_at(row, SCALAR_STEP, 0, sync->sums, column)->final;
}

/* ---- Looking ---- */

/* Whom of the own replica a question waits for. */
static uint32_t row_peer(const struct sync *sync, enum scalar_kind kind, uint32_t layer_index, uint64_t round)
{
	uint32_t column = row_waits_for(&sync->row, kind, layer_index, round);
	return column == sync->row.count ? sync_peer_count(sync) : sync->rank * sync->row.count + column;
}

uint32_t sync_waits_for(const struct sync *sync)
{
	uint64_t round = in_progress(sync);
	if (!sync->offered)
		return sync->waiting ? row_peer(sync, SCALAR_ROUND, 0, round) : sync_peer(sync, sync->rank);
	uint32_t index = sync_layer_at(sync, sync->first_open);
	const struct sync_layer *layer = &sync->state[index];
	if (layer->phase == LAYER_WORKER)
		return sync_peer(sync, sync->rank); /* has not handed over this gradient */
	if (layer->phase == LAYER_NORM || layer->phase == LAYER_CLIP)
		return row_peer(sync, layer->phase == LAYER_NORM ? SCALAR_NORM : SCALAR_MEAN, index, round);
	for (uint32_t rank = 0; layer->phase == LAYER_SCALARS && rank < sync->count; rank++)
		if (sync_record_at(sync, round, index, rank)->round != round)
			return sync_peer(sync, rank);
	return sync_peer_count(sync);
}

void sync_message(const struct sync *sync, const struct frame *frame, bool is_across, struct message *ret_message)
{
	*ret_message = (struct message){.kind = frame->kind};
	switch (frame->kind) {
	case MESSAGE_RECORD:
		ret_message->record = *sync_record_at(sync, frame->round, frame->layer_index, frame->origin);
		break;
	case MESSAGE_CONFIRM:
		ret_message->confirm = (struct confirm){
			.round = frame->round, .layer_index = frame->layer_index, .origin = frame->origin,
			.hash = sync_confirm_at(sync, frame->round, frame->layer_index, frame->origin)->hash};
		break;
	case MESSAGE_CHUNK:
		ret_message->chunk = frame->chunk;
		ret_message->payload_bytes = frame->chunk.count * sizeof(float);
		if (frame->chunk.phase == PHASE_HEAL) {
			const struct layer *layer = &sync->layers[frame->layer_index];
			ret_message->payload = (frame->chunk.shard == HEAL_ANCHOR ? layer->anchor : layer->momentum) +
					       frame->chunk.offset;
			break;
		}
		ret_message->payload = sync->buffers[frame->origin].numbers + frame->chunk.offset +
				       (is_across ? sync_shard_begin(sync, frame->layer_index) : 0);
		break;
	case MESSAGE_STANDING: ret_message->standing = &sync->standings[frame->origin]; break;
	case MESSAGE_HOLDING: ret_message->holding = frame->holding; break;
	case MESSAGE_CHANGE: ret_message->change = frame->change; break;
	case MESSAGE_ROLL: ret_message->roll_origin = frame->origin; break;
	case MESSAGE_SCALAR: row_message(&sync->row, frame, ret_message); break;
	default: CHECK(false); /* a frame of the ring stream */
	}
}

/* ---- Memory ---- */

/* Of all members of the mesh. */
static size_t changes_max(uint32_t member_count, uint32_t shards)
{
	return 2 * (size_t)PROPOSAL_EACH_MAX * member_count * shards;
}

size_t sync_frames_max(uint32_t layer_count, uint32_t member_count, uint32_t shards)
{
	/* records and confirms of two rounds, or what members hold and then have fetched; rolls and standings; changes */
	return (size_t)member_count * (4 * (size_t)layer_count + 2) + changes_max(member_count, shards) + 16;
}

size_t sync_row_frames_max(uint32_t layer_count, uint32_t member_count, uint32_t shards)
{
	return row_frames_max(layer_count, shards) + shards + changes_max(member_count, shards) + 16;
}

static size_t largest_layer(const struct sync_config *config)
{
	size_t size = 0;
	for (uint32_t i = 0; i < config->layer_count; i++)
		size = size_max(size, config->layers[i].size);
	return size;
}

static uint32_t buffers_for(const struct sync_config *config)
{
	size_t wanted = (size_t)config->settings->value[SYNC_PREFETCH] + 2;
	return (uint32_t)size_min(wanted, (size_t)config->layer_count + 1);
}

/* Hands out pieces of a block; with block NULL it only counts. */
static void *piece(char *block, size_t *used, size_t bytes)
{
	void *begin = block == NULL ? NULL : block + *used;
	*used += block_part(bytes);
	return begin;
}

static size_t lay_out(struct sync *sync, char *block, const struct sync_config *config)
{
	size_t used = 0;
	size_t n = config->count;
	size_t cells = 2 * (size_t)config->layer_count * n;
	sync->buffer_count = buffers_for(config);
	sync->arrival_us = piece(block, &used, 2 * n * sizeof *sync->arrival_us);
	sync->lateness_us = piece(block, &used, n * sizeof *sync->lateness_us);
	sync->lateness_mean_us = piece(block, &used, n * sizeof *sync->lateness_mean_us);
	sync->state = piece(block, &used, config->layer_count * sizeof *sync->state);
	sync->records = piece(block, &used, cells * sizeof *sync->records);
	sync->weights = piece(block, &used, cells * sizeof *sync->weights);
	sync->confirms = piece(block, &used, cells * sizeof *sync->confirms);
	sync->standings = piece(block, &used, n * sizeof *sync->standings);
	sync->holdings = piece(block, &used, config->layer_count * n * sizeof *sync->holdings);
	sync->norms = piece(block, &used, n * sizeof *sync->norms);
	sync->steps = piece(block, &used, n * sizeof *sync->steps);
	sync->interval_us = piece(block, &used, n * sizeof *sync->interval_us);
	sync->verdicts = piece(block, &used, n * sizeof *sync->verdicts);
	sync->buffers = piece(block, &used, sync->buffer_count * sizeof *sync->buffers);
	uint32_t peer_count = config->count * config->shards;
	sync->heard = piece(block, &used, peer_count * sizeof *sync->heard);
	void *proposals = piece(block, &used, proposals_size(peer_count));
	void *row = piece(block, &used, row_size(config->layer_count, config->shards));
	if (block != NULL) {
		memset(block, 0, used);
		proposals_init(&sync->proposals, proposals, config->rank * config->shards + config->column, peer_count,
			       config->view);
		row_init(&sync->row, row, config->layer_count, config->column, config->shards, sync->row.link);
	}
	float *coming[HEAL_PART_COUNT] = {0};
	for (int part = 0; part < HEAL_PART_COUNT && config->fanout < config->count; part++)
		coming[part] = piece(block, &used, largest_layer(config) * sizeof(float));
	for (uint32_t i = 0; i < sync->buffer_count; i++) {
		const uint32_t fanout = config->fanout, group_count = config->count / fanout;
		size_t largest = largest_layer(config), stash_size = group_count > 1 ? largest / fanout + 1 : 0;
		void *pass = piece(block, &used, ring_pass_size(fanout));
		void *across = piece(block, &used, ring_pass_size(group_count));
		void *numbers = piece(block, &used, largest * sizeof(float));
		void *stash = piece(block, &used, stash_size * sizeof(float));
		if (block == NULL)
			continue;
		ring_pass_init(&sync->buffers[i].pass, pass, config->rank % fanout, fanout);
		ring_pass_init(&sync->buffers[i].across, across, config->rank / fanout, group_count);
		sync->buffers[i].numbers = numbers;
		sync->buffers[i].stash = stash;
	}
	/* Rounds rest while layers are fetched: what comes along the ring waits in their buffers, of which there are two at least. */
	for (int part = 0; part < HEAL_PART_COUNT && block != NULL; part++) {
		sync->slots[0].numbers[part] = sync->buffers[part].numbers;
		sync->slots[1].numbers[part] = coming[part];
	}
	return used;
}

size_t sync_size(const struct sync_config *config)
{
	struct sync sync = {0};
	return lay_out(&sync, NULL, config);
}

void sync_init(struct sync *sync, void *block, const struct sync_config *config, struct link *link, struct link *across,
	       struct link *row_link)
{
	*sync = (struct sync){.rank = config->rank, .count = config->count, .layer_count = config->layer_count,
			      .layers = config->layers, .link = link, .across = across, .row.link = row_link,
			      .fanout = config->fanout, .group_count = config->count / config->fanout, .settings = *config->settings,
			      .next_settings = *config->settings, .round = config->round, .due_us = UINT64_MAX,
			      .grace_us = UINT64_MAX, .finished = config->finished, .lost = config->is_stale, .step = config->step,
			      .view = config->view, .since = config->since, .is_new = true, .is_outdated = config->is_outdated};
	sync->stands = config->shards == 1 && (config->view > VIEW_FIRST || config->layer_rounds != NULL || config->is_outdated);
	sync->is_ready = !sync->stands;
	sync->ready_in = sync->is_ready ? sync_view_bit(sync->view) : 0;
	lay_out(sync, block, config);
	for (uint32_t i = 0; i < sync->layer_count; i++) {
		struct sync_layer *layer = &sync->state[i];
		layer->round = config->layer_rounds == NULL ? config->round : config->layer_rounds[i];
		layer->is_nothing = layer->round == LAYER_NOTHING;
		if (layer->is_nothing)
			layer->round = 0;
		layer->is_rolled_back = config->layer_rolled_back != NULL && config->layer_rolled_back[i];
		sync->lost |= layer->is_nothing; /* theta may have begun from what was there */
		layer->since = layer->is_nothing ? 0 : config->layer_since == NULL ? config->since : config->layer_since[i];
		layer->phase = config->is_outdated ? LAYER_OFFERED : LAYER_WORKER;
		sync->state[i].buffer = NO_BUFFER;
		if (config->detectors != NULL)
			sync->state[i].detector = config->detectors[i];
	}
}

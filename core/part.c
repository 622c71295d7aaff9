/* See the header. Never moves a layer through a round: core/round.c does. */

#include <math.h>
#include <string.h>

#include "core/part.h"
#include "core/vec.h"

static double setting(const struct sync *sync, enum ring_setting id) { return sync->settings.value[id]; }

bool part_wants_gradients(const struct ring_settings *settings, uint64_t round)
{
	return settings->value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS || (double)round <= settings->value[SYNC_WARMUP_STEPS];
}

/* ---- When the worker shall offer ---- */

/* Told to the worker for the round to come, whose kind is settled: one step on for an alignment, with every step for gradients, by
 * steps after the interval (which begins after the step whose gradients are under way), by time not before the period has passed. */
static void schedule(const struct sync *sync, const struct ring_settings *settings, struct actions *actions)
{
	struct action *action = actions_add(actions, ACTION_SCHEDULE);
	bool is_by_time = settings->value[SYNC_PERIOD] > 0;
	action->gradients = sync->next_gradients;
	action->number = sync->next_aligns                      ? 1
			 : sync->next_gradients || is_by_time ? SCHEDULE_LATER
							      : (uint64_t)settings->value[SYNC_INTERVAL] + sync->gradients;
}

/* Begins the period that ends with the next round, if rounds are by time. */
static void begin_period(struct sync *sync, uint64_t now_us)
{
	double period_us = 1e6 * setting(sync, SYNC_PERIOD);
	bool is_by_time = period_us > 0 && !sync->aligns && !sync->next_gradients;
	sync->due_us = is_by_time ? now_us + (uint64_t)period_us : UINT64_MAX;
}

/* Lets the worker offer at its next boundary once the period has passed here, or anywhere. */
static void watch_period(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	if (sync->offered || sync->waiting || sync->finished || sync->due_us == UINT64_MAX)
		return;
	bool has_begun = sync->state[0].record_count[(sync->round + 1) % 2] > 0;
	if (now_us < sync->due_us && !has_begun) {
		actions_wake(actions, sync->due_us);
		return;
	}
	sync->due_us = UINT64_MAX;
	actions_add(actions, ACTION_SCHEDULE)->number = (uint64_t)setting(sync, SYNC_MIN_STEPS);
}

void part_init(struct sync *sync)
{
	bool wanted = part_wants_gradients(&sync->settings, sync->round + 1);
	/* After a restart workers may be a step apart: first they are aligned. */
	sync->aligns = sync->next_aligns = wanted && sync->round > 0;
	sync->next_gradients = wanted && sync->round == 0;
}

void part_begin(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	sync->progress_us = now_us;
	if (!sync->finished)
		schedule(sync, &sync->settings, actions);
	begin_period(sync, now_us);
}

void part_agree(struct sync *sync, struct actions *actions)
{
	const struct record *records = sync_record_at(sync, sync->round + 1, 0, 0);
	bool is_realigned = false;
	uint64_t furthest = 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		/* Whose last step this is offers its parameters next. */
		is_realigned |= records[rank].realign || (sync->gradients && records[rank].final);
		furthest = u64_max(furthest, records[rank].step);
		if (records[rank].interval_us > 0 && records[rank].verdict != VERDICT_LATE)
			sync->interval_us[rank] = records[rank].interval_us;
	}
	if (sync->aligns)
		actions_add(actions, ACTION_STEP)->number = furthest;
	bool wanted = part_wants_gradients(&sync->next_settings, sync->round + 2);
	sync->next_aligns = wanted && (!part_is_equal(sync) || is_realigned);
	sync->next_gradients = wanted && !sync->next_aligns;
	part_tell_next(sync, actions);
}

/* ---- Offers ---- */

/* A gradient of a layer that was done without it: here nobody steps. */
static void return_gradient(struct sync *sync, uint32_t index)
{
	sync->realigns = true;
	part_let_go(sync, index, RETURN_AS_IT_IS, VERDICT_NONFINITE);
}

static void open_round(struct sync *sync, const struct offer *offer, uint64_t now_us)
{
	sync->offered = true;
	sync->offer = *offer;
	sync->offer_us = now_us;
	sync->progress_us = now_us;
	sync->begin_bytes = sync->link->sent_bytes + sync->across->sent_bytes;
	sync->next_return = 0;
	for (uint32_t i = 0; i < sync->layer_count; i++) {
		struct sync_layer *layer = &sync->state[i];
		layer->is_made_up = false;
		layer->phase = (offer->gradients && !layer->early) || layer->round > sync->round ? LAYER_WORKER : LAYER_OFFERED;
		layer->absent = layer->early && layer->early_absent;
		if (sync->waiting)
			continue; /* what came early is for a later round */
		if (layer->early && layer->round > sync->round)
			return_gradient(sync, i);
		layer->early = false;
	}
}

static void take_offer(struct sync *sync, const struct offer *offer, uint64_t now_us)
{
	open_round(sync, offer, now_us);
	sync->must_tell = sync->has_agreed; /* what was told when that was agreed has been done with this offer */
	sync->gradients = offer->gradients;
	sync->aligns |= sync->next_gradients && !offer->gradients;
	bool is_too_stale = !sync->aligns && (double)sync->stale >= setting(sync, STRAGGLER_MAX_STALE);
	sync->resets = sync->joins || (!sync->gradients && (sync->lost || is_too_stale));
	sync->behind = setting(sync, SYNC_OVERLAP) == OVERLAP_STEPS && !part_is_equal(sync) && !sync->resets && !offer->final;
	for (uint32_t i = 0; i < sync->layer_count && !sync->behind && !sync->gradients; i++)
		if (sync->state[i].round > sync->round)
			part_let_go(sync, i, RETURN_ANCHOR, VERDICT_ABSENT); /* done without this offer */
}

/* Whether the round that the own worker has not begun is one of gradients for the others. */
static bool is_of_gradients(const struct sync *sync)
{
	return sync->has_agreed ? sync->amid_gradients : sync->next_gradients;
}

/* The round begins: with the offer that waits, or without the worker. All nodes of the replica begin it alike, or none. */
static void begin_round(struct sync *sync, uint64_t now_us)
{
	const struct row *row = &sync->row;
	uint64_t round = sync->round + 1;
	struct offer offer = sync->waiting_offer;
	bool is_late = false;
	if (!row_is_whole(row, SCALAR_ROUND, 0, round))
		return;
	for (uint32_t column = 0; column < row->count; column++) {
		const struct scalar *scalar = row_at(row, SCALAR_ROUND, 0, round, column);
		is_late |= scalar->verdict == VERDICT_LATE;
		offer.final |= scalar->final;
		offer.realign |= scalar->realign;
	}
	if (is_late) {
		open_round(sync, &(struct offer){.loss = (double)NAN}, now_us);
		sync->late = true;
		sync->gradients = is_of_gradients(sync);
		sync->behind = sync->resets = false;
		for (uint32_t i = 0; i < sync->layer_count; i++)
			sync->lost |= sync->state[i].round > sync->round; /* what theta began from is not there any more */
		return;
	}
	sync->waiting = false;
	sync->owes_schedule = sync->has_agreed; /* told before, it was for this offer */
	take_offer(sync, &offer, sync->waiting_us);
	sync->wanted = sync->waiting_wanted;
}

static void tell_round(struct sync *sync, enum verdict verdict, const struct offer *offer, uint64_t now_us)
{
	const struct scalar scalar = {.kind = SCALAR_ROUND, .number = sync->round + 1, .verdict = verdict,
				      .final = offer->final, .realign = offer->realign};
	row_tell(&sync->row, &scalar, now_us);
}

/* The gradients of a step for which there is no round: nobody takes it here. */
static void refuse_step(struct sync *sync)
{
	sync->waiting = false;
	sync->refuses = sync->must_tell = true;
	for (uint32_t i = 0; i < sync->layer_count; i++) {
		if (sync->state[i].early)
			return_gradient(sync, i);
		sync->state[i].early = false;
	}
}

/* Takes the offer that waits, once the round before is over. */
static void watch_waiting(struct sync *sync, uint64_t now_us)
{
	if (sync->offered || sync->finished)
		return;
	if (sync->waiting && sync->waiting_offer.gradients && !is_of_gradients(sync))
		refuse_step(sync);
	/* Whose worker has not heard that the others average gradients goes on without it until they align. */
	bool is_unlike = is_of_gradients(sync) && sync->waiting && !sync->waiting_offer.gradients;
	/* That it is the last would be heard by nobody in a round that the others had agreed upon before. */
	bool is_unheard = sync->has_agreed && sync->waiting && sync->waiting_offer.final;
	sync->realigns |= is_unlike;
	if ((is_unlike || is_unheard) && !row_has_told(&sync->row, SCALAR_ROUND, 0, sync->round + 1))
		tell_round(sync, VERDICT_LATE, &(struct offer){0}, now_us);
	if (sync->waiting && !row_has_told(&sync->row, SCALAR_ROUND, 0, sync->round + 1))
		tell_round(sync, VERDICT_ACCEPTED, &sync->waiting_offer, now_us);
	begin_round(sync, now_us);
}

int part_offer(struct sync *sync, const struct offer *offer, uint64_t now_us)
{
	const bool is_over = sync->finished && sync->is_ready; /* a view may begin with a run that goes on */
	if (is_over || sync->waiting || (sync->offered && !part_is_behind(sync)))
		return EDIT_ERROR_INVALID;
	sync->waiting = true;
	sync->step = offer->step;
	sync->refuses = false;
	sync->waiting_offer = *offer;
	sync->waiting_us = now_us;
	sync->waiting_wanted = 0;
	if (sync->row.count == 1 && sync->is_ready) /* there is nobody to ask, and the ring may be incomplete */
		watch_waiting(sync, now_us);
	return 0;
}

int part_gradient(struct sync *sync, uint32_t layer_index, bool absent)
{
	CHECK(layer_index < sync->layer_count);
	struct sync_layer *layer = &sync->state[layer_index];
	if (!sync->offered && sync->waiting && sync->waiting_offer.gradients && !layer->early) {
		layer->early = true;
		layer->early_absent = absent;
		return 0;
	}
	const bool is_done = part_holds_gradients(sync) && sync->offered && layer->round > sync->round && layer->phase == LAYER_WORKER;
	if (sync->refuses || is_done) {
		return_gradient(sync, layer_index);
		return 0;
	}
	if (!sync->offered || !sync->gradients || layer->phase != LAYER_WORKER || layer->round != sync->round)
		return EDIT_ERROR_INVALID;
	layer->phase = LAYER_OFFERED;
	layer->absent = absent;
	return 0;
}

void part_want(struct sync *sync, uint32_t layer_index)
{
	CHECK(layer_index < sync->layer_count);
	uint32_t *wanted = sync->waiting ? &sync->waiting_wanted : &sync->wanted;
	if ((sync->offered || sync->waiting) && layer_index + 1 > *wanted)
		*wanted = layer_index + 1;
}

/* ---- Late ---- */

/* Microseconds after the begin of the interval at which a member that has not offered is late; UINT64_MAX: never. */
static uint64_t grace_us(const struct sync *sync)
{
	double *sorted_us = sync->norms; /* scratch */
	uint32_t count = 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		double interval_us = (double)sync->interval_us[rank];
		if (interval_us == 0)
			continue;
		/* sorted by insertion: members are few, and this is done once a round */
		uint32_t at = count++;
		for (; at > 0 && sorted_us[at - 1] > interval_us; at--)
			sorted_us[at] = sorted_us[at - 1];
		sorted_us[at] = interval_us;
	}
	double grace = setting(sync, STRAGGLER_GRACE);
	return count == 0 || grace == 0 ? UINT64_MAX : (uint64_t)(grace * sorted_us[count / 2]);
}

static bool more_than_half_have_offered(const struct sync *sync)
{
	uint64_t round = sync->round + 1;
	uint32_t offered = 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct record *record = sync_record_at(sync, round, 0, rank);
		offered += record->round == round && record->verdict != VERDICT_LATE;
	}
	return 2 * offered > sync->count;
}

/* Lets the round go on without the worker if it is late. */
static void watch_grace(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	if (sync->offered || sync->finished || sync->aligns || sync->next_gradients || sync->grace_us == UINT64_MAX ||
	    row_has_told(&sync->row, SCALAR_ROUND, 0, sync->round + 1) || !more_than_half_have_offered(sync))
		return;
	bool is_behind = setting(sync, SYNC_OVERLAP) == OVERLAP_STEPS;
	uint64_t deadline_us = sync->grace_us + (is_behind ? sync->first_us[sync->round % 2] : sync->done_us);
	if (now_us < deadline_us) {
		actions_wake(actions, deadline_us);
		return;
	}
	tell_round(sync, VERDICT_LATE, &(struct offer){0}, now_us);
	begin_round(sync, now_us);
}

void part_watch(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	watch_waiting(sync, now_us);
	if (sync->must_tell)
		part_tell(sync, actions);
	sync->must_tell = false;
	watch_grace(sync, now_us, actions);
	if (sync->owes_schedule)
		part_tell(sync, actions);
	sync->owes_schedule = false;
	watch_period(sync, now_us, actions);
}

/* ---- Theta ---- */

/* The anchor that theta began from. */
static const float *reference(const struct sync *sync, uint32_t index)
{
	return sync->stale > 0 ? sync->layers[index].base : sync->layers[index].anchor;
}

/* Makes up for the round that ran behind the worker's steps: what others have brought is added to what it has done since. Whoever
 * was left out begins anew and has nothing to bring this time. */
static void make_up(struct sync *sync, uint32_t index)
{
	const struct layer *memory = &sync->layers[index];
	const float *anchor = reference(sync, index);
	if (!sync->corrects || sync->resets || sync->state[index].is_made_up)
		return;
	sync->state[index].is_made_up = true; /* once, also if the round is done again */
	sync->state[index].absent = sync->state[index].rejected;
	if (sync->state[index].rejected)
		memcpy(memory->theta, anchor, memory->size * sizeof(float));
	else
		vec_move(memory->theta, anchor, memory->snapshot, memory->size);
}

bool part_return(struct sync *sync, uint32_t most, struct actions *actions)
{
	uint32_t end = sync->offered && sync->behind ? sync->layer_count : 0;
	bool is_any = sync->next_return < end;
	/* The worker stops at the end of its interval, whether this round is agreed on by then or not. */
	if (is_any && sync->next_return == 0 && setting(sync, SYNC_PERIOD) == 0)
		actions_add(actions, ACTION_SCHEDULE)->number = (uint64_t)setting(sync, SYNC_INTERVAL);
	for (; sync->next_return < end && most > 0; sync->next_return++, most--) {
		uint32_t index = sync->next_return;
		const struct layer *memory = &sync->layers[index];
		make_up(sync, index);
		memcpy(memory->snapshot, memory->theta, memory->size * sizeof(float));
		struct action *action = actions_add(actions, ACTION_PUBLISH);
		action->layer_index = index;
		action->round = sync->round;
		action->verdict = sync->state[index].verdict;
	}
	return is_any;
}

double part_numbers(struct sync *sync, uint32_t index, float *numbers, enum verdict *ret_verdict)
{
	const struct layer *memory = &sync->layers[index];
	*ret_verdict = sync->joins ? VERDICT_ABSENT : VERDICT_LATE;
	if (sync->late && sync->stale == 0)
		memcpy(memory->base, memory->anchor, memory->size * sizeof(float));
	if (sync->late || sync->resets)
		return 0;
	if (!sync->gradients && !sync->behind)
		make_up(sync, index);
	*ret_verdict = VERDICT_ABSENT;
	if (sync->state[index].absent)
		return 0;
	double square;
	if (sync->gradients) {
		memcpy(numbers, memory->gradient, memory->size * sizeof(float));
		square = vec_square_sum(numbers, memory->size);
	} else {
		const float *theta = sync->behind ? memory->snapshot : memory->theta;
		square = vec_delta(numbers, reference(sync, index), theta, memory->size);
	}
	*ret_verdict = VERDICT_ACCEPTED;
	return square;
}

static bool is_realigned(const struct sync *sync, uint32_t index)
{
	const struct record *records = sync_record_at(sync, sync->state[index].round + 1, index, 0);
	for (uint32_t rank = 0; rank < sync->count; rank++)
		if (records[rank].realign)
			return true;
	return false;
}

bool part_commit(struct sync *sync, uint32_t index, const float *mean, bool is_applied)
{
	const struct layer *memory = &sync->layers[index];
	struct sync_layer *layer = &sync->state[index];
	size_t bytes = memory->size * sizeof(float);
	if (part_holds_gradients(sync)) {
		/* The worker has not stepped yet. Where one has lost its theta, all keep the anchor that they share. */
		if (!is_realigned(sync, index))
			memcpy(memory->anchor, memory->theta, bytes);
		if (is_applied)
			memcpy(memory->gradient, mean, bytes);
		layer->verdict = is_applied ? VERDICT_ACCEPTED : VERDICT_NONFINITE;
		return true;
	}
	if (sync->late)
		return false;
	layer->rejected = !is_applied || layer->verdict == VERDICT_OUTLIER || layer->verdict == VERDICT_NONFINITE;
	if (sync->behind)
		return false;
	memcpy(memory->theta, memory->anchor, bytes);
	return true;
}

void part_fetched(struct sync *sync, uint32_t index)
{
	struct sync_layer *layer = &sync->state[index];
	layer->phase = LAYER_WORKER;
	if (part_holds_gradients(sync)) {
		/* Others have the mean and step; here nobody does. */
		sync->realigns = true;
		part_let_go(sync, index, RETURN_AS_IT_IS, VERDICT_NONFINITE);
		return;
	}
	if (sync->late)
		return;
	layer->rejected = layer->is_rolled_back || layer->verdict == VERDICT_OUTLIER || layer->verdict == VERDICT_NONFINITE;
	if (!sync->behind)
		part_let_go(sync, index, RETURN_ANCHOR, layer->verdict);
}

/* ---- Back to the worker apart from a commit ---- */

void part_let_go(struct sync *sync, uint32_t index, enum layer_return how, enum verdict verdict)
{
	struct sync_layer *layer = &sync->state[index];
	sync->return_count += layer->returns == RETURN_NOT;
	layer->returns = how;
	layer->verdict = verdict;
}

void part_give_back(struct sync *sync, uint32_t most, uint64_t now_us, struct actions *actions)
{
	for (uint32_t i = 0; i < sync->layer_count && sync->return_count > 0 && most > 0; i++) {
		struct sync_layer *layer = &sync->state[i];
		const struct layer *memory = &sync->layers[i];
		if (layer->returns == RETURN_NOT)
			continue;
		if (layer->returns == RETURN_ANCHOR)
			memcpy(memory->theta, memory->anchor, memory->size * sizeof(float));
		struct action *action = actions_add(actions, ACTION_PUBLISH);
		action->layer_index = i;
		action->round = layer->round;
		action->verdict = layer->verdict;
		layer->returns = RETURN_NOT;
		sync->return_count--;
		most--;
	}
	if (sync->return_count > 0)
		actions_wake(actions, now_us);
}

void part_join(struct sync *sync, bool gradients, uint64_t now_us)
{
	struct offer offer = {.loss = (double)NAN, .realign = true};
	const bool aligns = sync->aligns; /* the others know: theirs is the offer that settled it */
	sync->joins = true;
	sync->part_us = now_us;
	take_offer(sync, &offer, now_us);
	sync->gradients = gradients;
	sync->aligns = aligns;
	sync->wanted = sync->layer_count;
}

void part_tell(struct sync *sync, struct actions *actions)
{
	if (sync->has_agreed && !sync->offered && !sync->waiting && !sync->finished) {
		/* The round in progress, which others have agreed upon, waits for this offer: the next one is told once it is there. */
		struct action *action = actions_add(actions, ACTION_SCHEDULE);
		action->gradients = sync->amid_gradients;
		action->number = sync->amid_gradients ? SCHEDULE_LATER : 1;
		return;
	}
	if (sync->finishing || sync->finished)
		actions_add(actions, ACTION_SCHEDULE)->number = 0;
	else
		schedule(sync, sync->has_agreed ? &sync->next_settings : &sync->settings, actions);
}

void part_tell_next(struct sync *sync, struct actions *actions)
{
	if (sync->finishing || !sync->late || sync->next_aligns)
		part_tell(sync, actions);
}

/* ---- The end ---- */

void part_end(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	bool must_reset = false;
	/* Only now: what was agreed with the own record may have had to be agreed upon again. */
	const struct record *own = sync_record_at(sync, sync->round, 0, sync->rank);
	sync->realigns &= own->round != sync->round || !own->realign;
	if (sync->late) {
		sync->stale++;
		must_reset = (double)sync->stale >= setting(sync, STRAGGLER_MAX_STALE) && !sync->waiting && !sync->finishing;
	} else {
		sync->stale = 0;
		sync->lost = false;
		sync->corrects = sync->behind;
		sync->part_us = sync->behind ? sync->offer_us : now_us;
	}
	/* Where layers were done in an earlier view, the last may be before the worker has handed over all gradients of its step. */
	sync->refuses |= part_holds_gradients(sync);
	sync->amid_gradients = false;
	sync->offered = sync->joins = sync->late = sync->gradients = sync->behind = sync->resets = false;
	sync->aligns = sync->next_aligns;
	sync->grace_us = grace_us(sync);
	begin_period(sync, now_us);
	if (must_reset)
		actions_add(actions, ACTION_SCHEDULE)->number = 1;
}

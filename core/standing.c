/* See the header. Everything here follows from the words of all members: never from time or from who spoke first. */

#include <string.h>

#include "core/heal.h"
#include "core/plan.h"
#include "core/standing.h"

#define ASK_MAX 16 /* layers asked for in one step, so that a step's actions are bounded */

/* ---- From view to view ---- */

static void inherit_layer(struct sync_layer *layer, const struct sync_layer *old)
{
	*layer = (struct sync_layer){
		.phase = old->phase == LAYER_WORKER ? LAYER_WORKER : LAYER_OFFERED, .round = old->round, .buffer = NO_BUFFER,
		.absent = old->absent, .early = old->early, .early_absent = old->early_absent, .is_made_up = old->is_made_up,
		.rejected = old->rejected, .is_rolled_back = old->is_rolled_back, .returns = old->returns,
		.is_nothing = old->is_nothing, .since = old->since, .judged_in = old->judged_in, .is_fetched = old->is_fetched,
		.fetch_commits = old->fetch_commits, .is_replaced = old->is_replaced, .verdict = old->verdict, .detector = old->detector, .next = old->next};
	memcpy(layer->times_us, old->times_us, sizeof layer->times_us);
}

static void inherit_settings(struct sync *sync, const struct sync *old)
{
	sync->settings = old->settings;
	sync->next_settings = old->next_settings;
	memcpy(sync->setting_round, old->setting_round, sizeof sync->setting_round);
	memcpy(sync->next_setting_round, old->next_setting_round, sizeof sync->next_setting_round);
	sync->pause_round = old->pause_round;
	sync->resume_round = old->resume_round;
	sync->paused = old->paused;
	sync->checkpoint_round = old->checkpoint_round;
	sync->taken_round = old->taken_round;
	sync->taken = old->taken;
	sync->has_agreed = old->has_agreed;
	sync->finishing = old->finishing;
	sync->finished = old->finished;
	proposals_inherit(&sync->proposals, &old->proposals);
}

static void inherit_part(struct sync *sync, const struct sync *old)
{
	sync->offered = old->offered;
	sync->offer = old->offer;
	sync->offer_us = old->offer_us;
	sync->late = old->late;
	sync->gradients = old->gradients;
	sync->aligns = old->aligns;
	sync->behind = old->behind;
	sync->resets = old->resets;
	sync->joins = old->joins;
	sync->refuses = old->refuses;
	sync->amid_gradients = old->amid_gradients;
	sync->realigns = old->realigns;
	sync->next_return = old->next_return;
	sync->return_count = old->return_count;
	sync->next_gradients = old->next_gradients;
	sync->next_aligns = old->next_aligns;
	sync->stale = old->stale;
	sync->corrects = old->corrects;
	sync->lost = old->lost;
	sync->waiting = old->waiting;
	sync->waiting_offer = old->waiting_offer;
	sync->waiting_us = old->waiting_us;
	sync->waiting_wanted = old->waiting_wanted;
	sync->wanted = old->wanted;
	sync->step = old->step;
	sync->part_us = old->part_us;
	sync->grace_us = old->grace_us;
	sync->done_us = old->done_us;
	sync->due_us = old->due_us;
	sync->sync_us = old->sync_us;
	sync->round_bytes = old->round_bytes;
	memcpy(sync->first_us, old->first_us, sizeof sync->first_us);
}

void standing_inherit(struct sync *sync, const struct sync *old, const uint32_t *from)
{
	sync->round = old->round;
	sync->since = old->since;
	sync->ready_in = old->ready_in & ~sync_view_bit(sync->view); /* that bit was of a view long past */
	sync->is_new = old->is_new;
	sync->is_outdated = old->is_outdated;
	sync->stands = true;
	sync->is_ready = false;
	inherit_settings(sync, old);
	inherit_part(sync, old);
	for (uint32_t i = 0; i < sync->layer_count; i++)
		inherit_layer(&sync->state[i], &old->state[i]);
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		if (from[rank] == old->count)
			continue;
		sync->interval_us[rank] = old->interval_us[from[rank]];
		sync->lateness_us[rank] = old->lateness_us[from[rank]];
		sync->lateness_mean_us[rank] = old->lateness_mean_us[from[rank]];
	}
}

/* ---- Words ---- */

static void file_holding(struct sync *sync, const struct holding *holding)
{
	struct holding *place = sync_holding_at(sync, holding->layer_index, holding->origin);
	sync->holding_count += place->number == 0;
	if (sync->is_planned)
		sync->unequal_count += (size_t)heal_is_whole(sync, place) - (size_t)heal_is_whole(sync, holding);
	*place = *holding;
	const struct frame frame = {.kind = MESSAGE_HOLDING, .layer_index = holding->layer_index, .origin = holding->origin,
				    .holding = *holding};
	sync_push(sync, &frame);
}

static void file_standing(struct sync *sync, const struct standing *standing)
{
	const struct frame frame = {.kind = MESSAGE_STANDING, .origin = standing->origin};
	sync->standings[standing->origin] = *standing;
	sync->standing_count++;
	sync_push(sync, &frame);
}

/* Whether a member has told its standing, in which wire.chunk is never 0. */
static bool has_told(const struct sync *sync, uint32_t rank)
{
	return sync->standings[rank].settings.value[WIRE_CHUNK] > 0;
}

static void tell_holding(struct sync *sync, uint32_t index, uint64_t hash)
{
	const struct sync_layer *layer = &sync->state[index];
	struct holding holding = {.origin = sync->rank, .layer_index = index, .is_nothing = layer->is_nothing,
				  .number = sync_holding_at(sync, index, sync->rank)->number + 1};
	if (!layer->is_nothing) {
		holding.since = layer->since;
		holding.round = layer->round;
		holding.hash = hash;
		holding.is_rolled_back = layer->is_rolled_back;
	}
	file_holding(sync, &holding);
}

void standing_begin(struct sync *sync, uint64_t now_us)
{
	struct standing own = {
		.origin = sync->rank, .since = sync->since, .ready_in = sync->ready_in, .round = sync->round, .settings = sync->settings,
		.next_settings = sync->next_settings, .pause_round = sync->pause_round, .resume_round = sync->resume_round,
		.checkpoint_round = sync->checkpoint_round, .taken_round = sync->taken_round, .taken = sync->taken,
		.is_new = sync->is_new, .is_outdated = sync->is_outdated, .has_offered = sync->offered && !sync->is_outdated,
		.is_final = sync->offered && !sync->is_outdated && sync->offer.final && !sync->gradients,
		.gradients = sync->offered ? sync->gradients : sync->amid_gradients, .aligns = sync->aligns, .has_agreed = sync->has_agreed,
		.next_gradients = sync->next_gradients, .next_aligns = sync->next_aligns, .finishing = sync->finishing,
		.finished = sync->finished};
	memcpy(own.setting_round, sync->setting_round, sizeof own.setting_round);
	memcpy(own.next_setting_round, sync->next_setting_round, sizeof own.next_setting_round);
	sync->stand_us = sync->progress_us = now_us;
	file_standing(sync, &own);
}

int standing_take(struct sync *sync, const struct standing *standing, uint64_t now_us)
{
	if (!sync->stands || standing->origin >= sync->count || standing->origin == sync->rank)
		return EDIT_ERROR_MALFORMED;
	if (has_told(sync, standing->origin))
		return sync->group_count > 1 ? 0 : EDIT_ERROR_MALFORMED;
	file_standing(sync, standing);
	sync->progress_us = now_us;
	return 0;
}

int standing_hold(struct sync *sync, const struct holding *holding, uint64_t now_us)
{
	if (!sync->stands || holding->origin >= sync->count || holding->origin == sync->rank ||
	    holding->layer_index >= sync->layer_count)
		return EDIT_ERROR_MALFORMED;
	if (holding->number <= sync_holding_at(sync, holding->layer_index, holding->origin)->number)
		return sync->group_count > 1 ? 0 : EDIT_ERROR_MALFORMED;
	if (sync->is_ready)
		return EDIT_ERROR_MALFORMED;
	file_holding(sync, holding);
	sync->progress_us = now_us;
	return 0;
}

void standing_hashed(struct sync *sync, uint32_t index, uint64_t hash, struct actions *actions)
{
	struct sync_layer *layer = &sync->state[index];
	if (!layer->hash_due)
		return;
	layer->hash_due = false;
	tell_holding(sync, index, hash);
	if (!layer->is_fetched || !sync->is_planned)
		return;
	bool is_right = hash == layer->target_hash;
	actions_note(actions, (struct note){.code = is_right ? NOTE_LAYER_FETCHED : NOTE_FETCHED_WRONG, .layer_index = index,
					    .round = layer->round, .a = hash, .b = layer->target_hash});
}

/* Asks the driver what is held. */
static void ask(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	for (uint32_t asked = 0; sync->next_ask < sync->layer_count && asked < ASK_MAX; asked++) {
		uint32_t index = sync->next_ask++;
		if (sync->state[index].is_nothing) {
			tell_holding(sync, index, 0);
			continue;
		}
		sync->state[index].hash_due = true;
		actions_add(actions, ACTION_HASH)->layer_index = index;
	}
	if (sync->next_ask < sync->layer_count)
		actions_wake(actions, now_us);
}

/* ---- Rounds go on ---- */

/* Whether others are in the middle of a round, and of which kind. */
static bool is_amid_round(const struct sync *sync, bool *ret_gradients)
{
	const struct standing *leader = &sync->standings[sync->leader];
	bool is_amid = false;
	*ret_gradients = false;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct standing *standing = &sync->standings[rank];
		if (!plan_belongs(standing, leader) || standing->round != sync->round || !standing->has_offered)
			continue;
		is_amid = true;
		*ret_gradients |= standing->gradients;
	}
	for (uint32_t i = 0; i < sync->layer_count; i++)
		is_amid |= sync->state[i].round > sync->round;
	return is_amid;
}

/* A round of which this member knows nothing: are others in it, and is it one of gradients? */
static bool look_at_round(struct sync *sync, bool *ret_gradients)
{
	const bool is_amid = is_amid_round(sync, ret_gradients);
	sync->amid_gradients = is_amid && *ret_gradients;
	if (is_amid && !sync->has_agreed) {
		/* What the others know of may be the round after. */
		sync->next_gradients = *ret_gradients;
		sync->next_aligns = sync->aligns;
	}
	return is_amid;
}

/* The worker's theta began from something else than the anchor. What of it the driver holds becomes the anchor; where the worker has it,
 * its next offer brings nothing and is answered with the anchor. */
static void renew(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	const bool had_gradients = part_holds_gradients(sync), is_handed = part_holds_layers(sync);
	bool holds_all = (is_handed || !sync->offered) && !had_gradients, gradients;
	for (uint32_t i = 0; i < sync->layer_count; i++)
		holds_all &= sync->state[i].phase == LAYER_OFFERED;
	for (uint32_t i = 0; i < sync->layer_count; i++)
		sync->state[i].judged_in = 0;
	sync->is_outdated = false;
	sync->offered = sync->late = sync->behind = sync->gradients = sync->resets = sync->corrects = sync->joins = false;
	sync->stale = 0;
	sync->realigns = true;
	sync->lost = !holds_all;
	const bool is_amid = look_at_round(sync, &gradients);
	if (holds_all && is_amid && !sync->finished) {
		part_join(sync, gradients, now_us);
	} else {
		for (uint32_t i = 0; i < sync->layer_count; i++) {
			if (sync->state[i].phase == LAYER_OFFERED && (holds_all || is_handed))
				part_let_go(sync, i, had_gradients ? RETURN_AS_IT_IS : RETURN_ANCHOR,
					    had_gradients ? VERDICT_NONFINITE : VERDICT_ABSENT);
			sync->state[i].phase = LAYER_WORKER;
		}
	}
	part_begin(sync, now_us, actions);
	if (sync->has_agreed || sync->finished)
		part_tell(sync, actions);
}

/* The layer was done without the own record, which cannot be in this view. */
static void lose_part(struct sync *sync, uint32_t index)
{
	const bool has_gradients = part_holds_gradients(sync);
	if (part_holds_layers(sync))
		part_let_go(sync, index, has_gradients ? RETURN_AS_IT_IS : RETURN_ANCHOR,
			    has_gradients ? VERDICT_NONFINITE : VERDICT_ABSENT);
	sync->state[index].phase = LAYER_WORKER;
	sync->lost = true;
	sync->realigns |= sync->gradients;
}

/* Theta began from another anchor than this one. What is still to be corrected will be, by this one. */
static void lose_anchor(struct sync *sync, uint32_t index)
{
	struct sync_layer *layer = &sync->state[index];
	const bool has_part = sync->offered && !sync->late;
	sync->realigns |= sync->gradients;
	if (sync->stale > 0 || (sync->corrects && !(has_part && layer->is_made_up)))
		return;
	layer->absent |= has_part && !sync->gradients;
	sync->lost |= !has_part;
}

/* The part in the round goes on: layers that were fetched are done, if the own record was in them. */
static void resume_part(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	for (uint32_t i = 0; i < sync->layer_count; i++) {
		struct sync_layer *layer = &sync->state[i];
		if (layer->is_fetched && layer->fetch_commits)
			part_fetched(sync, i);
		else if (layer->round > sync->round && layer->phase != LAYER_WORKER)
			lose_part(sync, i);
		else if (layer->is_replaced)
			lose_anchor(sync, i);
	}
	bool gradients;
	if (!sync->is_new)
		return;
	look_at_round(sync, &gradients);
	for (uint32_t i = 0; i < sync->layer_count; i++)
		sync->lost |= sync->state[i].round > sync->round;
	sync->realigns = true;
	part_begin(sync, now_us, actions);
	if (sync->has_agreed)
		part_tell(sync, actions);
}

static void let_go_on(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	if (sync->is_outdated)
		renew(sync, now_us, actions);
	else
		resume_part(sync, now_us, actions);
	for (uint32_t i = 0; i < sync->layer_count; i++) {
		struct sync_layer *layer = &sync->state[i];
		layer->is_fetched = layer->fetch_commits = layer->is_replaced = false;
		for (uint32_t rank = 0; rank < sync->count && layer->round > 0; rank++)
			*sync_confirm_at(sync, layer->round, i, rank) =
				(struct sync_confirm){.round = layer->round, .hash = layer->target_hash};
	}
	sync->is_new = false;
	sync->is_ready = true;
	sync->ready_in |= sync_view_bit(sync->view);
	sync->progress_us = now_us;
	actions_note(actions, (struct note){.code = NOTE_VIEW_READY, .round = sync->round, .a = sync->view,
					    .b = (now_us - sync->stand_us) / 1000});
	actions_wake(actions, now_us); /* an offer may wait */
}

static bool is_whole(const struct sync *sync)
{
	for (uint32_t i = 0; i < sync->layer_count; i++)
		if (sync->state[i].hash_due || !heal_is_whole(sync, sync_holding_at(sync, i, sync->rank)))
			return false;
	return true;
}

void standing_advance(struct sync *sync, uint64_t now_us, struct actions *actions)
{
	if (sync->is_ready || sync->is_missing || !has_told(sync, sync->rank))
		return;
	ask(sync, now_us, actions);
	if (!sync->is_planned && sync->standing_count == sync->count &&
	    sync->holding_count == (size_t)sync->count * sync->layer_count)
		plan_make(sync, actions);
	if (!sync->is_planned)
		return;
	for (uint32_t i = 0; i < sync->layer_count && sync->unequal_count > 0; i++) {
		struct sync_layer *layer = &sync->state[i];
		if (sync->layers[i].size == 0 && !layer->hash_due && !heal_is_whole(sync, sync_holding_at(sync, i, sync->rank)))
			heal_take_up(sync, i, actions);
	}
	if (!sync->has_adopted && is_whole(sync))
		plan_adopt(sync, actions);
	if (sync->unequal_count == 0)
		let_go_on(sync, now_us, actions);
}

uint32_t standing_waits_for(const struct sync *sync)
{
	for (uint32_t rank = 0; rank < sync->count && !sync->is_ready; rank++) {
		bool is_whole = has_told(sync, rank);
		for (uint32_t i = 0; i < sync->layer_count; i++) {
			const struct holding *holding = sync_holding_at(sync, i, rank);
			is_whole &= holding->number > 0 && (!sync->is_planned || heal_is_whole(sync, holding));
		}
		if (!is_whole)
			return rank;
	}
	return sync->count;
}

/* See the header. Everything here follows from the words of all members: never from time or from who spoke first. */

#include <string.h>

#include "core/heal.h"
#include "core/part.h"
#include "core/plan.h"

bool plan_belongs(const struct standing *standing, const struct standing *leader)
{
	return standing->since == leader->since || (standing->ready_in & sync_view_bit(leader->since)) != 0;
}

/* Whether a leads rather than b, of a lower rank. */
static bool leads(const struct standing *a, const struct standing *b)
{
	if (a->since != b->since)
		return a->since > b->since;
	if (a->round != b->round)
		return a->round > b->round;
	if (a->finished != b->finished)
		return a->finished;
	if (a->is_new != b->is_new)
		return b->is_new;
	if (a->has_offered != b->has_offered)
		return a->has_offered;
	return a->has_agreed && !b->has_agreed;
}

/* First layer that does not fit a leader: all must be as of its round, or the next. The number of layers: all do. */
static uint32_t first_missing(const struct sync *sync, const struct standing *leader)
{
	for (uint32_t i = 0; i < sync->layer_count; i++)
		if (sync->state[i].target_round - leader->round > 1)
			return i;
	return sync->layer_count;
}

/* The first in order among those that (must_fit) all layers fit. NULL: there is none. */
static const struct standing *find_leader(const struct sync *sync, bool must_fit)
{
	const struct standing *leader = NULL;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct standing *other = &sync->standings[rank];
		bool fits = !must_fit || first_missing(sync, other) == sync->layer_count;
		if (fits && (leader == NULL || leads(other, leader)))
			leader = other;
	}
	return leader;
}

/* Of two holdings of one layer, whether a is of a newer view or round. Nothing is older than anything. */
static int compare_age(const struct holding *a, const struct holding *b)
{
	if (a->is_nothing != b->is_nothing)
		return a->is_nothing ? -1 : 1;
	if (a->since != b->since)
		return a->since > b->since ? 1 : -1;
	return a->round == b->round ? 0 : a->round > b->round ? 1 : -1;
}

/* What all shall hold of a layer; false: nobody holds anything. */
static bool set_target(struct sync *sync, uint32_t index)
{
	struct sync_layer *layer = &sync->state[index];
	const struct holding *all = sync_holding_at(sync, index, 0), *newest = all, *best = NULL;
	uint32_t most = 0;
	for (uint32_t rank = 1; rank < sync->count; rank++)
		if (compare_age(&all[rank], newest) > 0)
			newest = &all[rank];
	for (uint32_t rank = 0; rank < sync->count && !newest->is_nothing; rank++) {
		uint32_t count = 0;
		if (compare_age(&all[rank], newest) != 0 || (best != NULL && all[rank].hash == best->hash))
			continue;
		for (uint32_t other = rank; other < sync->count; other++)
			count += compare_age(&all[other], newest) == 0 && all[other].hash == all[rank].hash;
		if (count > most) {
			most = count;
			best = &all[rank];
		}
	}
	if (best == NULL)
		return false;
	layer->target_round = best->round;
	layer->target_hash = best->hash;
	layer->target_since = best->since;
	if (best->origin != sync->rank)
		layer->is_rolled_back = best->is_rolled_back;
	return true;
}

/* Of the proposals of the view before: all that are open end here, taken or dropped. */
static void end_proposals(struct sync *sync, uint64_t round, bool is_agreed, struct actions *actions)
{
	struct change change;
	bool is_taken;
	while (proposals_next(&sync->proposals, round, is_agreed, &change, &is_taken))
		actions_note(actions, (struct note){.code = is_taken ? NOTE_CHANGE_TAKEN : NOTE_CHANGE_DROPPED,
						    .peer = sync_peer(sync, sync->rank), .round = round, .a = change.id});
	while (proposals_drop(&sync->proposals, false, &change))
		actions_note(actions, (struct note){.code = NOTE_CHANGE_DROPPED, .peer = sync_peer(sync, sync->rank),
						    .round = round, .a = change.id});
}

/* Who knows of which kind the leader's next round is: best a member that has come as far and has not started since, because a start
 * forgets it; or one that has agreed upon it, in the round before. */
static const struct standing *find_guide(const struct sync *sync, const struct standing *leader)
{
	const struct standing *guide = leader;
	for (uint32_t rank = 0; rank < sync->count && leader->is_new; rank++) {
		const struct standing *standing = &sync->standings[rank];
		if (standing->is_new || !plan_belongs(standing, leader))
			continue;
		if (standing->round == leader->round)
			return standing;
		if (guide == leader && standing->round + 1 == leader->round && standing->has_agreed)
			guide = standing;
	}
	return guide;
}

static void take_kind(struct sync *sync, const struct standing *leader, const struct standing *guide)
{
	const bool is_past = guide->round < leader->round, is_beyond = !is_past && guide->has_agreed;
	sync->aligns = is_past ? guide->next_aligns : guide->aligns;
	/* The kind of this round: what the guide has agreed upon since is that of the one after. */
	sync->next_gradients = is_beyond ? guide->gradients : guide->next_gradients;
	sync->next_aligns = is_beyond ? guide->aligns : guide->next_aligns;
}

/* Another member knows of the round after the one in progress here; so does this one now. */
static void learn_next(struct sync *sync, const struct standing *from, const struct standing *guide, struct actions *actions)
{
	const bool is_past = from->round > sync->round; /* what is next here is in force there */
	sync->next_settings = is_past ? from->settings : from->next_settings;
	memcpy(sync->next_setting_round, is_past ? from->setting_round : from->next_setting_round, sizeof sync->next_setting_round);
	sync->next_gradients = guide->next_gradients;
	sync->next_aligns = guide->next_aligns;
	sync->finishing = is_past ? from->finished : from->finishing;
	sync->has_agreed = true;
	sync->realigns |= sync->aligns; /* it has not heard how far the others are */
	/* Others took what all records spoke of, the own one too. */
	uint64_t round = sync->round + 1, digest = proposals_digest_of(&sync->proposals, round);
	end_proposals(sync, round, digest != 0 && from->taken_round == round && from->taken == digest, actions);
	sync->taken_round = from->taken_round;
	sync->taken = from->taken;
	part_tell_next(sync, actions);
}

/* The first layer is done, and all who knew what was agreed with its records have lost it: settings stay, gradients begin with an
 * alignment as after a start, and the run ends if it was to end for anybody who is there. */
static void agree_anew(struct sync *sync, const struct standing *leader, struct actions *actions)
{
	sync->next_gradients = false;
	sync->realigns |= sync->aligns;
	sync->next_aligns = part_wants_gradients(&sync->settings, sync->round + 2);
	sync->finishing = false;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct standing *standing = &sync->standings[rank];
		sync->finishing |= plan_belongs(standing, leader) && standing->round == leader->round && standing->is_final;
	}
	sync->next_settings = sync->settings;
	memcpy(sync->next_setting_round, sync->setting_round, sizeof sync->next_setting_round);
	sync->has_agreed = true;
	part_tell_next(sync, actions);
}

/* Nobody has committed the first layer of the round in progress: what was agreed with its records is agreed upon anew. */
static void forget_next(struct sync *sync, struct actions *actions)
{
	struct change change;
	bool was_finishing = sync->finishing;
	sync->next_settings = sync->settings;
	memcpy(sync->next_setting_round, sync->setting_round, sizeof sync->next_setting_round);
	sync->has_agreed = sync->finishing = false;
	while (proposals_drop(&sync->proposals, true, &change))
		actions_note(actions, (struct note){.code = NOTE_CHANGE_DROPPED, .peer = sync_peer(sync, sync->rank),
						    .round = sync->round + 1, .a = change.id});
	if (was_finishing)
		part_tell(sync, actions);
}

/* The leader's place in the run is taken over as a whole. */
static void follow(struct sync *sync, const struct standing *leader, struct actions *actions)
{
	sync->round = leader->round;
	sync->settings = sync->next_settings = leader->settings;
	memcpy(sync->setting_round, leader->setting_round, sizeof sync->setting_round);
	memcpy(sync->next_setting_round, leader->setting_round, sizeof sync->next_setting_round);
	sync->has_agreed = sync->finishing = false;
	/* The run has ended while this member was away. */
	if (leader->finished && !sync->finished)
		actions_note(actions, (struct note){.code = NOTE_FINISHED, .round = leader->round});
	sync->finished = leader->finished;
}

/* Pauses and checkpoints, each told apart by its round: the newest that counts. last: after which rounds some may. */
static void merge_orders(struct sync *sync, const struct standing *leader, uint64_t last, struct actions *actions)
{
	uint64_t pause_round = 0, resume_round = 0, checkpoint_round = 0;
	for (uint32_t rank = 0; rank < sync->count; rank++) {
		const struct standing *standing = &sync->standings[rank];
		if (!plan_belongs(standing, leader))
			continue;
		resume_round = u64_max(resume_round, standing->resume_round);
		if (standing->pause_round <= last)
			pause_round = u64_max(pause_round, standing->pause_round);
		if (standing->checkpoint_round <= last)
			checkpoint_round = u64_max(checkpoint_round, standing->checkpoint_round);
	}
	bool was_paused = sync->paused;
	sync->pause_round = pause_round;
	sync->resume_round = resume_round;
	sync->checkpoint_round = checkpoint_round;
	sync->paused = pause_round > resume_round;
	if (sync->paused != was_paused)
		actions_add(actions, sync->paused ? ACTION_PAUSE : ACTION_RESUME);
}

/* Whether this member's part in the round goes on. */
static bool goes_on(const struct sync *sync, const struct standing *leader)
{
	if (sync->is_outdated || !plan_belongs(&sync->standings[sync->rank], leader))
		return false;
	if (sync->round == leader->round)
		return sync->finished || !leader->finished;
	return sync->round + 1 == leader->round && sync->offered;
}

void plan_adopt(struct sync *sync, struct actions *actions)
{
	const struct standing *leader = &sync->standings[sync->leader];
	const bool is_begun = sync->state[0].target_round > leader->round; /* the first layer of the leader's next round is done */
	const struct standing *knows = NULL;
	for (uint32_t rank = 0; rank < sync->count && knows == NULL && is_begun; rank++) {
		const struct standing *standing = &sync->standings[rank];
		bool is_past = standing->round == leader->round + 1 && standing->since >= leader->since;
		if ((plan_belongs(standing, leader) && standing->round == leader->round && standing->has_agreed) || is_past)
			knows = standing;
	}
	const struct standing *guide = find_guide(sync, leader);
	bool follows = !goes_on(sync, leader);
	if (follows)
		follow(sync, leader, actions);
	if (follows || sync->is_new)
		take_kind(sync, leader, guide);
	if (sync->has_agreed && !is_begun && sync->round == leader->round)
		forget_next(sync, actions);
	if (!sync->has_agreed && sync->round < leader->round)
		learn_next(sync, leader, guide, actions);
	else if (!sync->has_agreed && knows != NULL)
		learn_next(sync, knows, knows, actions);
	else if (!sync->has_agreed && is_begun)
		agree_anew(sync, leader, actions);
	end_proposals(sync, 0, false, actions);
	merge_orders(sync, leader, leader->round + is_begun, actions);
	sync->since = leader->since;
	sync->has_adopted = true;
}

void plan_make(struct sync *sync, struct actions *actions)
{
	uint32_t missing = sync->layer_count;
	for (uint32_t i = sync->layer_count; i-- > 0;)
		if (!set_target(sync, i))
			missing = i;
	const struct standing *leader = missing < sync->layer_count ? NULL : find_leader(sync, true);
	if (leader == NULL) {
		leader = find_leader(sync, false);
		if (missing == sync->layer_count)
			missing = first_missing(sync, leader);
		sync->is_missing = true;
		actions_note(actions, (struct note){.code = NOTE_LAYER_MISSING, .layer_index = missing, .round = leader->round});
		return;
	}
	sync->is_planned = true;
	sync->leader = leader->origin;
	for (uint32_t i = 0; i < sync->layer_count; i++)
		for (uint32_t rank = 0; rank < sync->count; rank++)
			sync->unequal_count += !heal_is_whole(sync, sync_holding_at(sync, i, rank));
	/* Already now: theta counts no more once some layers are those of others, and this view may end before all are. */
	sync->is_outdated |= !goes_on(sync, leader);
}

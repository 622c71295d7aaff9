/* See the header. Never decides what is right: core/standing.c does. */

#include <string.h>

#include "core/heal.h"

bool heal_is_whole(const struct sync *sync, const struct holding *holding)
{
	const struct sync_layer *layer = &sync->state[holding->layer_index];
	return !holding->is_nothing && holding->round == layer->target_round && holding->hash == layer->target_hash;
}

/* ---- From the left ---- */

void heal_take_up(struct sync *sync, uint32_t index, struct actions *actions)
{
	struct sync_layer *layer = &sync->state[index];
	bool is_next = !layer->is_nothing && layer->target_round == layer->round + 1;
	layer->fetch_commits = is_next && (layer->judged_in & sync_view_bit(layer->target_since)) != 0;
	layer->is_fetched = true;
	layer->is_replaced |= !layer->is_nothing && layer->target_round == layer->round;
	if (layer->fetch_commits)
		layer->detector = layer->next; /* the round has been committed with the own record in it */
	layer->judged_in = 0;
	layer->is_nothing = false;
	layer->round = layer->target_round;
	layer->since = layer->target_since;
	layer->hash_due = true;
	struct action *action = actions_add(actions, ACTION_HEALED);
	action->layer_index = index;
	action->round = layer->round;
}

static void copy_in(struct sync *sync, uint32_t index, const struct heal_slot *slot)
{
	const struct layer *memory = &sync->layers[index];
	memcpy(memory->anchor, slot->numbers[HEAL_ANCHOR], memory->size * sizeof(float));
	memcpy(memory->momentum, slot->numbers[HEAL_MOMENTUM], memory->size * sizeof(float));
}

int heal_chunk(struct sync *sync, const struct chunk *chunk, bool is_across, const void *payload, uint64_t now_us,
	       struct actions *actions)
{
	const uint32_t index = chunk->layer_index;
	struct heal_slot *slot = &sync->slots[is_across];
	if (!sync->is_planned || sync->is_ready || index >= sync->layer_count || chunk->shard >= HEAL_PART_COUNT)
		return EDIT_ERROR_MALFORMED;
	const struct sync_layer *layer = &sync->state[index];
	if (layer->hash_due || heal_is_whole(sync, sync_holding_at(sync, index, sync->rank)) ||
	    chunk->round != layer->target_round || slot->numbers[chunk->shard] == NULL)
		return EDIT_ERROR_MALFORMED;
	const size_t size = sync->layers[index].size;
	const size_t expected = slot->is_coming && slot->coming == index ? slot->received : 0;
	if (chunk->count == 0 || chunk->offset > size || chunk->count > size - chunk->offset ||
	    chunk->shard * size + chunk->offset != expected)
		return EDIT_ERROR_MALFORMED;
	memcpy(slot->numbers[chunk->shard] + chunk->offset, payload, chunk->count * sizeof(float));
	slot->is_coming = true;
	slot->coming = index;
	slot->received = expected + chunk->count;
	sync->progress_us = now_us;
	if (slot->received < HEAL_PART_COUNT * size)
		return 0;
	slot->is_coming = false;
	copy_in(sync, index, slot);
	heal_take_up(sync, index, actions);
	return 0;
}

/* ---- To the right ---- */

/* Whether a member gets a layer across the groups rather than along its own. */
static bool comes_across(const struct sync *sync, uint32_t index, uint32_t rank)
{
	for (uint32_t other = rank % sync->fanout; other < sync->count && sync->group_count > 1; other += sync->fanout)
		if (heal_is_whole(sync, sync_holding_at(sync, index, other)))
			return true;
	return false;
}

static uint32_t right_of(const struct sync *sync, bool is_across)
{
	const uint32_t f = sync->fanout, place = sync->rank % f, group = sync->rank / f;
	return is_across ? ring_right(group, sync->group_count) * f + place : group * f + ring_right(place, f);
}

/* The next layer for the right neighbour; false: it lacks none that is held here and was not sent since it last spoke of it. */
static bool choose(const struct sync *sync, bool is_across, uint32_t *ret_index)
{
	const uint32_t right = right_of(sync, is_across);
	for (uint32_t index = 0; index < sync->layer_count && right != sync->rank; index++) {
		const struct holding *theirs = sync_holding_at(sync, index, right);
		if (heal_is_whole(sync, theirs) || sync->state[index].sent_for[is_across] == theirs->number)
			continue;
		if (heal_is_whole(sync, sync_holding_at(sync, index, sync->rank)) && sync->layers[index].size > 0 &&
		    comes_across(sync, index, right) == is_across) {
			*ret_index = index;
			return true;
		}
	}
	return false;
}

bool heal_next_chunk(struct sync *sync, bool is_across, size_t window_bytes, struct frame *ret_frame)
{
	struct heal_slot *slot = &sync->slots[is_across];
	struct link *link = is_across ? sync->across : sync->link;
	const size_t most = (size_t)sync->settings.value[WIRE_CHUNK] / sizeof(float);
	if (!sync->is_planned || sync->is_ready || !link_has_room(link, most * sizeof(float), window_bytes))
		return false;
	if (!slot->is_going) {
		if (sync->unequal_count == 0 || !choose(sync, is_across, &slot->going))
			return false;
		slot->is_going = true;
		slot->sent = 0;
		sync->state[slot->going].sent_for[is_across] =
			sync_holding_at(sync, slot->going, right_of(sync, is_across))->number;
	}
	const size_t size = sync->layers[slot->going].size, offset = slot->sent % size;
	*ret_frame = (struct frame){.kind = MESSAGE_CHUNK, .layer_index = slot->going, .round = sync->state[slot->going].round};
	ret_frame->chunk = (struct chunk){.round = ret_frame->round, .layer_index = slot->going, .phase = PHASE_HEAL,
					  .shard = (uint32_t)(slot->sent / size), .offset = offset,
					  .count = size_min(most, size - offset)};
	slot->sent += ret_frame->chunk.count;
	slot->is_going = slot->sent < HEAL_PART_COUNT * size;
	return true;
}

/* All-gather and reduce-scatter inside a replica, chunk by chunk. Knows nothing of rounds. */

#include <string.h>

#include "core/collective.h"

static struct collective *open_of(struct collectives *all, uint64_t number)
{
	return &all->open[number % COLLECTIVE_OPEN_MAX];
}

size_t collectives_size(uint32_t count)
{
	return COLLECTIVE_OPEN_MAX * ring_pass_size(count);
}

void collectives_init(struct collectives *all, void *block, uint32_t rank, uint32_t count, const struct layer *layers,
		      struct link *link)
{
	*all = (struct collectives){.rank = rank, .count = count, .layers = layers, .link = link};
	for (uint32_t i = 0; i < COLLECTIVE_OPEN_MAX; i++)
		ring_pass_init(&all->open[i].pass, (char *)block + i * ring_pass_size(count), rank, count);
}

bool collectives_can_ask(const struct collectives *all)
{
	return all->asked - all->done < COLLECTIVE_OPEN_MAX;
}

int collectives_ask(struct collectives *all, const struct collective_call *call, uint64_t now_us)
{
	if (!collectives_can_ask(all))
		return EDIT_ERROR_FULL;
	if (ring_shard_size(call->size, all->count, all->rank) != all->layers[call->layer_index].size)
		return EDIT_ERROR_INVALID;
	struct collective *own = open_of(all, ++all->asked);
	own->call = *call;
	own->begun = own->told = false;
	own->free_after = 0;
	all->progress_us = now_us;
	return 0;
}

/* Whether frames may still be read from its memory. */
static bool is_under_way(const struct collectives *all, const struct collective *own)
{
	return !own->told || ring_pass_has_chunk(&own->pass) || all->link->acknowledged < own->free_after;
}

/* Whether an earlier one still needs the memory. */
static bool must_wait(struct collectives *all, uint64_t number)
{
	for (uint64_t earlier = all->done + 1; earlier < number; earlier++) {
		const struct collective *other = open_of(all, earlier);
		if (other->call.numbers == open_of(all, number)->call.numbers && is_under_way(all, other))
			return true;
	}
	return false;
}

static void begin(struct collectives *all, struct collective *own)
{
	const struct collective_call *call = &own->call;
	const struct layer *piece = &all->layers[call->layer_index];
	own->begun = true;
	if (call->kind == COLLECTIVE_REDUCE) {
		ring_pass_begin_reduce(&own->pass, call->numbers, call->size, 1.0F / (float)all->count);
		return;
	}
	memcpy(call->numbers + ring_shard_begin(call->size, all->count, all->rank), piece->theta, piece->size * sizeof(float));
	ring_pass_begin_gather(&own->pass, call->numbers, call->size);
}

/* The worker may look at a gathered layer as soon as it is whole, but writes over its gradient, so not before nothing is under way. */
static bool is_done(const struct collectives *all, const struct collective *own)
{
	if (!own->begun || !ring_pass_is_done(&own->pass))
		return false;
	bool is_read_only = own->call.kind == COLLECTIVE_GATHER;
	return is_read_only || (!ring_pass_has_chunk(&own->pass) && all->link->acknowledged >= own->free_after);
}

void collectives_advance(struct collectives *all, uint64_t now_us, struct actions *actions)
{
	while (all->begun < all->asked && !must_wait(all, all->begun + 1)) {
		begin(all, open_of(all, ++all->begun));
		all->progress_us = now_us;
	}
	for (uint64_t number = all->done + 1; number <= all->begun; number++) {
		struct collective *own = open_of(all, number);
		if (own->told || !is_done(all, own))
			continue;
		own->told = true;
		all->progress_us = now_us;
		struct action *action = actions_add(actions, ACTION_COLLECTED);
		action->layer_index = own->call.layer_index;
		action->number = number;
	}
	while (all->done < all->begun && !is_under_way(all, open_of(all, all->done + 1)))
		all->done++;
}

int collectives_chunk(struct collectives *all, const struct chunk *chunk, const void *payload, uint64_t now_us)
{
	if (chunk->round <= all->done || chunk->round > all->begun)
		return EDIT_ERROR_MALFORMED;
	struct collective *own = open_of(all, chunk->round);
	bool is_gather = own->call.kind == COLLECTIVE_GATHER;
	if (chunk->layer_index != own->call.layer_index || (chunk->phase == PHASE_GATHER) != is_gather)
		return EDIT_ERROR_MALFORMED;
	all->progress_us = now_us;
	return ring_pass_accept(&own->pass, chunk, payload);
}

bool collectives_next_chunk(struct collectives *all, uint64_t right_begun, size_t chunk_bytes, size_t window_bytes,
			    struct frame *ret_frame)
{
	if (!link_has_room(all->link, chunk_bytes, window_bytes))
		return false;
	for (uint64_t number = all->done + 1; number <= u64_min(all->begun, right_begun); number++) {
		struct collective *own = open_of(all, number);
		if (!ring_pass_has_chunk(&own->pass))
			continue;
		*ret_frame = (struct frame){.kind = MESSAGE_CHUNK, .layer_index = own->call.layer_index, .round = number};
		ring_pass_next(&own->pass, chunk_bytes / sizeof(float), &ret_frame->chunk);
		ret_frame->chunk.round = number;
		ret_frame->chunk.layer_index = own->call.layer_index;
		own->free_after = all->link->end + 1;
		all->sent_bytes += ret_frame->chunk.count * sizeof(float);
		return true;
	}
	return false;
}

bool collectives_are_open(const struct collectives *all)
{
	for (uint64_t number = all->done + 1; number <= all->asked; number++)
		if (!all->open[number % COLLECTIVE_OPEN_MAX].told)
			return true;
	return false;
}

void collectives_message(const struct collectives *all, const struct frame *frame, struct message *ret_message)
{
	const struct collective *own = &all->open[frame->round % COLLECTIVE_OPEN_MAX];
	*ret_message = (struct message){.kind = MESSAGE_CHUNK, .chunk = frame->chunk,
					.payload = own->call.numbers + frame->chunk.offset,
					.payload_bytes = frame->chunk.count * sizeof(float)};
}

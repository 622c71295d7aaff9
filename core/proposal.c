/* The list of open proposals of one member. Knows nothing of messages; what a change means is core/sync.c's business. */

#include <string.h>

#include "core/proposal.h"

#define VIEW_SHIFT 16 /* so many bits of an id count inside a view */

size_t proposals_size(uint32_t member_count)
{
	return (size_t)member_count * PROPOSAL_EACH_MAX * 2 * (sizeof(struct proposal) + sizeof(struct change));
}

void proposals_init(struct proposals *proposals, void *block, uint32_t rank, uint32_t member_count, uint64_t view)
{
	*proposals = (struct proposals){.list = block, .capacity = (size_t)member_count * PROPOSAL_EACH_MAX * 2, .rank = rank,
					.counter = (uint32_t)(view - 1) << VIEW_SHIFT};
	proposals->taken = (struct change *)(proposals->list + proposals->capacity);
}

void proposals_inherit(struct proposals *proposals, const struct proposals *old)
{
	proposals->count = size_min(old->count, proposals->capacity);
	proposals->taken_count = size_min(old->taken_count, proposals->capacity);
	memcpy(proposals->list, old->list, proposals->count * sizeof *proposals->list);
	memcpy(proposals->taken, old->taken, proposals->taken_count * sizeof *proposals->taken);
}

uint32_t proposal_origin(const struct change *change)
{
	return (uint32_t)(change->id >> 32) - 1;
}

uint64_t proposals_next_id(struct proposals *proposals)
{
	return (uint64_t)(proposals->rank + 1) << 32 | ++proposals->counter;
}

int proposals_propose(struct proposals *proposals, const struct change *change)
{
	size_t own = 0;
	for (size_t i = 0; i < proposals->count; i++)
		own += proposal_origin(&proposals->list[i].change) == proposals->rank;
	if (own >= PROPOSAL_EACH_MAX)
		return EDIT_ERROR_BUSY;
	return proposals_hold(proposals, change);
}

int proposals_hold(struct proposals *proposals, const struct change *change)
{
	for (size_t i = 0; i < proposals->count; i++)
		if (proposals->list[i].change.id == change->id)
			return 0;
	if (proposals->count == proposals->capacity)
		return EDIT_ERROR_FULL;
	proposals->list[proposals->count++] = (struct proposal){.change = *change};
	return 0;
}

/* Spreads an id over 64 bits (finalizer of splitmix64), so that sums of different sets differ. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t proposals_digest(struct proposals *proposals, uint64_t round)
{
	uint64_t digest = 0;
	for (size_t i = 0; i < proposals->count; i++) {
		struct proposal *proposal = &proposals->list[i];
		if (proposal->change.at_round != 0 && proposal->change.at_round != round)
			continue;
		proposal->in_round = round;
		digest += mix(proposal->change.id);
	}
	return digest;
}

uint64_t proposals_digest_of(const struct proposals *proposals, uint64_t round)
{
	uint64_t digest = 0;
	for (size_t i = 0; i < proposals->count; i++)
		if (proposals->list[i].in_round == round)
			digest += mix(proposals->list[i].change.id);
	return digest;
}

bool proposals_next(struct proposals *proposals, uint64_t round, bool is_agreed, struct change *ret_change, bool *ret_taken)
{
	struct proposal *first = NULL;
	for (size_t i = 0; i < proposals->count; i++) {
		struct proposal *proposal = &proposals->list[i];
		bool taken = is_agreed && proposal->in_round == round;
		bool dropped = proposal->change.at_round != 0 && proposal->change.at_round <= round;
		if ((taken || dropped) && (first == NULL || proposal->change.id < first->change.id))
			first = proposal;
	}
	if (first == NULL)
		return false;
	*ret_change = first->change;
	*ret_taken = is_agreed && first->in_round == round;
	if (*ret_taken)
		proposals->taken[proposals->taken_count++] = *ret_change;
	*first = proposals->list[--proposals->count];
	return true;
}

void proposals_settle(struct proposals *proposals)
{
	proposals->taken_count = 0;
}

bool proposals_drop(struct proposals *proposals, bool are_taken, struct change *ret_change)
{
	size_t *count = are_taken ? &proposals->taken_count : &proposals->count;
	if (*count == 0)
		return false;
	--*count;
	*ret_change = are_taken ? proposals->taken[*count] : proposals->list[*count].change;
	return true;
}

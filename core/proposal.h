#ifndef EDIT_CORE_PROPOSAL_H
#define EDIT_CORE_PROPOSAL_H

/* Changes that members have proposed and not yet taken: how all take one up after the same round, or none does.
 *
 * A proposal goes round the ring once; everybody holds it. In the scalar pass of each round's first layer every member sends a digest
 * of the proposals it would take after this round. All see the same records: if all digests are equal, all take exactly those
 * proposals; if not, none does, and those that are bound to this round are dropped by all. */

#include "core/event.h"

enum { PROPOSAL_EACH_MAX = 8 /* open proposals of one member */ };

struct proposal {
	struct change change;
	uint64_t in_round; /* it was in the digest of this round */
};

struct proposals {
	struct proposal *list; /* [capacity], in no order */
	size_t capacity, count;
	struct change *taken;  /* [capacity] those taken after the round in progress */
	size_t taken_count;
	uint32_t rank;
	uint32_t counter;      /* of own ids */
};

/* Bytes of the block for proposals_init. */
size_t proposals_size(uint32_t member_count);
/* block (8-byte aligned) stays the caller's. Ids of one view are not those of another, whatever the ranks: view counts from 1. */
void proposals_init(struct proposals *proposals, void *block, uint32_t rank, uint32_t member_count, uint64_t view);
/* Takes over what was open or taken in an earlier view, under the ids of then. */
void proposals_inherit(struct proposals *proposals, const struct proposals *old);
/* Rank of the member that made a change. */
uint32_t proposal_origin(const struct change *change);
/* A new id for a change of this member. */
uint64_t proposals_next_id(struct proposals *proposals);
/* Holds a change of this member. EDIT_ERROR_BUSY: PROPOSAL_EACH_MAX of its own are open. */
int proposals_propose(struct proposals *proposals, const struct change *change);
/* Holds a change from another member; one that is held already is left as it is. EDIT_ERROR_FULL: no room. */
int proposals_hold(struct proposals *proposals, const struct change *change);
/* Digest of those that may be taken after `round`, marked as such; 0: none. The order of arrival does not matter. */
uint64_t proposals_digest(struct proposals *proposals, uint64_t round);
/* Digest of those that were in that of `round`. */
uint64_t proposals_digest_of(const struct proposals *proposals, uint64_t round);
/* After the records of `round`: the one with the lowest id to be taken (is_agreed: all digests were equal) or dropped (bound to a
 * round that has passed), removed from the list. *ret_taken tells which. false: no more. */
bool proposals_next(struct proposals *proposals, uint64_t round, bool is_agreed, struct change *ret_change, bool *ret_taken);
/* The round is complete: what was taken after it is in force for good. */
void proposals_settle(struct proposals *proposals);
/* A view has ended: takes out one that is open, or (are_taken) one that was taken after a round that nobody has completed. false: no
 * more. */
bool proposals_drop(struct proposals *proposals, bool are_taken, struct change *ret_change);

#endif

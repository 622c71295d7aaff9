#ifndef EDIT_CORE_VOTE_H
#define EDIT_CORE_VOTE_H

/* A member's vote on who is in the next view: the acceptor of single-decree Paxos. These few numbers are all that a member
 * must never forget; whoever holds a struct vote writes it to a disk before anybody hears of what it says. A vote belongs
 * to one member and one disk, whichever start of the daemon casts it: who has lost the file is no voter, and a copy of an
 * old file must never be put in its place.
 *
 * A ballot is a counter and the rank of the one member that may use it, ordered as one number; 0 is none. */

#include "core/roster.h"

#define BALLOT_COUNTER_MAX (UINT64_C(1) << 40)

struct vote {
	struct roster roster;     /* of the view whose members decide the next one */
	uint64_t disk;            /* random id, made with the file; never 0 */
	bool is_voter;            /* this member is one of those who decide; false: only the disk counts */
	uint64_t promised;        /* nothing of a lower ballot is promised or accepted any more */
	uint64_t accepted_ballot; /* 0: nothing accepted */
	struct roster accepted;   /* of view roster.number + 1; count 0: nothing accepted */
};

/* The ballot of a member; counter from 1 to BALLOT_COUNTER_MAX. */
static inline uint64_t ballot_make(uint64_t counter, uint32_t rank)
{
	return counter << 16 | rank;
}

static inline uint64_t ballot_counter(uint64_t ballot)
{
	return ballot >> 16;
}

static inline uint32_t ballot_rank(uint64_t ballot)
{
	return (uint32_t)(ballot & 0xffff);
}

/* Could it be a ballot of one of count members? */
bool ballot_is_valid(uint64_t ballot, uint32_t count);

/* Bytes of the block for vote_init, a multiple of 64. */
size_t vote_size(uint32_t capacity);
/* No view, no voter. Rosters of up to capacity members find room in block (64-byte aligned), which stays the caller's. */
void vote_init(struct vote *vote, void *block, uint32_t capacity);
/* Takes over what was read from a disk. */
void vote_copy(struct vote *to, const struct vote *from);
/* What stands in a file is from outside: 0 if it can be a vote; otherwise an error of roster_check, or
 * EDIT_ERROR_MALFORMED. */
int vote_check(const struct vote *vote, uint32_t capacity);
/* A view begins in which nothing has been promised or accepted yet; the disk stays. */
void vote_begin(struct vote *vote, const struct roster *roster, bool is_voter);
/* Promises a ballot. false: a higher one, or this one, has been promised before; then nothing changes. */
bool vote_promise(struct vote *vote, uint64_t ballot);
/* Accepts what a ballot proposes. false: a higher one has been promised; then nothing changes. */
bool vote_accept(struct vote *vote, uint64_t ballot, const struct roster *roster);

#endif

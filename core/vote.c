/* The acceptor's rules. tests/views.pml is the model of them. */

#include <string.h>

#include "core/vote.h"

bool ballot_is_valid(uint64_t ballot, uint32_t count)
{
	return ballot_counter(ballot) >= 1 && ballot_counter(ballot) <= BALLOT_COUNTER_MAX && ballot_rank(ballot) < count;
}

static size_t seats_size(uint32_t capacity)
{
	return block_part(capacity * sizeof(struct seat));
}

size_t vote_size(uint32_t capacity)
{
	return 2 * seats_size(capacity);
}

void vote_init(struct vote *vote, void *block, uint32_t capacity)
{
	*vote = (struct vote){.is_voter = false};
	vote->roster.seats = block;
	vote->accepted.seats = (struct seat *)((char *)block + seats_size(capacity));
}

void vote_copy(struct vote *to, const struct vote *from)
{
	roster_copy(&to->roster, &from->roster);
	roster_copy(&to->accepted, &from->accepted);
	to->disk = from->disk;
	to->is_voter = from->is_voter;
	to->promised = from->promised;
	to->accepted_ballot = from->accepted_ballot;
}

int vote_check(const struct vote *vote, uint32_t capacity)
{
	int error = roster_check(&vote->roster, capacity);
	if (error != 0)
		return error;
	if (vote->disk == 0)
		return EDIT_ERROR_MALFORMED;
	if (vote->promised != 0 && !ballot_is_valid(vote->promised, vote->roster.count))
		return EDIT_ERROR_MALFORMED;
	if (vote->accepted_ballot == 0)
		return vote->accepted.count == 0 ? 0 : EDIT_ERROR_MALFORMED;
	if (vote->accepted_ballot > vote->promised || !ballot_is_valid(vote->accepted_ballot, vote->roster.count) ||
	    vote->accepted.number != vote->roster.number + 1)
		return EDIT_ERROR_MALFORMED;
	return roster_check(&vote->accepted, capacity);
}

void vote_begin(struct vote *vote, const struct roster *roster, bool is_voter)
{
	if (roster != &vote->roster)
		roster_copy(&vote->roster, roster);
	vote->is_voter = is_voter;
	vote->promised = 0;
	vote->accepted_ballot = 0;
	vote->accepted.count = 0;
}

bool vote_promise(struct vote *vote, uint64_t ballot)
{
	if (ballot <= vote->promised)
		return false;
	vote->promised = ballot;
	return true;
}

bool vote_accept(struct vote *vote, uint64_t ballot, const struct roster *roster)
{
	if (ballot < vote->promised)
		return false;
	vote->promised = ballot;
	vote->accepted_ballot = ballot;
	roster_copy(&vote->accepted, roster);
	return true;
}

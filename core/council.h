#ifndef EDIT_CORE_COUNCIL_H
#define EDIT_CORE_COUNCIL_H

/* Which members a ring has: the members of view e decide view e + 1 by single-decree Paxos. One council is one member's
 * part in it: acceptor (core/vote.h), proposer and learner. It knows nothing of rounds, streams or sockets.
 *
 * A majority of the members of view e decides, or half of them with the tie-holder. Whatever a member promises or accepts
 * is on its disk before anybody hears of it. A member that is beyond view e answers anything about it with the roster that
 * it knows. A reason to propose is a ring neighbour that is not heard, a joiner, a leaver, a renewal that is asked for, or something
 * accepted of which no end is heard; who has one waits by its rank, so that proposers seldom meet, and gives way when they do.
 *
 * Messages to a member that is not heard are also passed on by others, so that a cut between two members does not part
 * them. */

#include "core/councillor.h"

/* Bytes of the block for council_init, a multiple of 64. */
size_t council_size(uint32_t capacity);
/* Begins with what the disk holds, otherwise with the config's list, without a vote. config->list and config->vote have
 * been checked (roster_check, vote_check) and are copied; block (64-byte aligned) stays the caller's. */
void council_init(struct council *council, void *block, const struct council_config *config);
/* The one function that decides. Whatever comes in a decree is checked first; what is malformed changes nothing and is
 * counted. */
void council_step(struct council *council, const struct council_event *event, struct council_actions *actions);
/* The operator's way out when there is no majority any more: installs the next view with the named members of the present
 * one, in its order, at this member, and tells all. names: count x SEAT_NAME_BYTES bytes. Unsafe if others live who might
 * decide a next view too: then there are two, until the one with the higher number swallows the other. 0, and actions as
 * by council_step. EDIT_ERROR_UNKNOWN: a name is not in the view; EDIT_ERROR_INVALID: one is there twice, or the own one
 * is missing; EDIT_ERROR_BUSY: the disk has not answered yet. Nothing has changed then. */
int council_force(struct council *council, const char *names, uint32_t count, uint64_t now_us,
		struct council_actions *actions);

#endif

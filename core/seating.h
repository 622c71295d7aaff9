#ifndef EDIT_CORE_SEATING_H
#define EDIT_CORE_SEATING_H

/* Who a proposer wants in the next view, and in which order: a pure choice from what the promises have told. Members that
 * have promised stay, except leavers; joiners are appended; ring neighbours that cannot hear each other get other
 * neighbours, and only if no order does that one of them has to go. */

#include "core/decree.h"

/* What one member of the present view has promised. */
struct opinion {
	bool is_present;      /* it has promised; nothing else is looked at otherwise */
	uint64_t incarnation; /* of the one that promised */
	uint64_t disk;
	bool is_ready;        /* it trains what the proposer trains; otherwise it votes, and is not seated */
	uint32_t doubt_count;
	uint32_t doubts[DOUBT_COUNT_MAX]; /* ranks that it does not hear */
};

struct seating {
	const struct roster *now;        /* the present view */
	const struct opinion *opinions;  /* [now->count] by rank */
	const bool *leaving;             /* [now->count] */
	const struct seat *joins;        /* [join_count] each name once; one whose name is in the view takes that seat */
	uint32_t join_count;
	uint32_t fanout;                 /* wanted */
	uint32_t capacity;               /* members of a view at most */
	void *block;                     /* seating_size(capacity) bytes, 64-byte aligned */
};

/* Bytes of struct seating's block, a multiple of 64. */
size_t seating_size(uint32_t capacity);
/* Chooses into ret_next (room for capacity seats; number: the next). true: it differs from the present view in more than
 * incarnations that were not known before. false: it does not, or nobody is left (count 0). Deterministic; the search for
 * an order ends after a bounded number of tries, as if there were none. */
bool seating_choose(const struct seating *seating, struct roster *ret_next);

#endif

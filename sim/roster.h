#ifndef EDIT_SIM_ROSTER_H
#define EDIT_SIM_ROSTER_H

/* The members of one view of a simulated ring, in ring order. Members of a world keep their numbers, called slots, whatever their ranks
 * in the views that they are in. Owned by the world until its end. */

#include "core/base.h"

struct roster {
	uint64_t view;
	uint32_t count;
	uint32_t *slots;    /* [count] by rank */
	const char **names; /* [count] */
};

/* Rank of a slot; count: it is not in this view. */
static inline uint32_t roster_rank(const struct roster *roster, uint32_t slot)
{
	uint32_t rank = 0;
	while (rank < roster->count && roster->slots[rank] != slot)
		rank++;
	return rank;
}

#endif

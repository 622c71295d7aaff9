#ifndef EDIT_DAEMON_GUESTS_H
#define EDIT_DAEMON_GUESTS_H

/* How many frames of connections that are no neighbour's are read in a second: of each known name apart, so that no flood keeps
 * out what members say, and of all that bear no known name together. Plain data; the caller knows whom it knows. */

#include "core/roster.h"

enum {
	GUEST_FRAMES = 128,    /* of one known name */
	STRANGER_FRAMES = 32   /* of all others */
};

struct guests {
	uint64_t begin_us; /* of the second that is counted */
	unsigned strangers;
	uint32_t count;
	struct {
		char name[SEAT_NAME_BYTES];
		unsigned frames;
	} list[MEMBER_COUNT_MAX]; /* [count] whoever has said something in this second */
};

/* Counts a frame of this known name (NULL: of no known one). Whether it may be read. */
bool guests_admit(struct guests *guests, const char *name, uint64_t now_us);

#endif

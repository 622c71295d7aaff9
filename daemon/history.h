#ifndef EDIT_DAEMON_HISTORY_H
#define EDIT_DAEMON_HISTORY_H

/* What the latest rounds have cost, for `editctl trace`: a ring of rows in one block that the history owns, allocated once. It
 * lives as long as the daemon; nothing of it is needed by the rounds themselves. */

#include "core/node.h"

enum {
	HISTORY_ROUNDS_MAX = 1024,     /* rounds kept at most */
	HISTORY_BYTES_MAX = 4 << 20    /* and in so much memory: fewer rounds of a ring with very many members or layers */
};

/* One member's part of a round, from its records. */
struct history_member {
	uint64_t steps, tokens, interval_us, exposed_us; /* as in its record of the first layer: exposed_us is of the round before */
	uint64_t lateness_us;                            /* as node_peer has it */
	uint32_t verdicts[VERDICT_COUNT];                /* layers with that verdict */
};

/* A layer's times on this member. */
struct history_layer {
	uint64_t scalars_us, reduce_us, gather_us;
};

struct history_round {
	uint64_t round;                 /* its number; 0: an unused row */
	uint64_t end_us;                /* monotonic, of the events' clock */
	uint64_t sync_us, bytes;        /* of this member, as in node_status */
	struct ring_settings settings;  /* in force during the round */
	struct history_member *members; /* [member_count] in ring order */
	struct history_layer *layers;   /* [layer_count] */
};

struct history {
	char *block;           /* [capacity] rows of row_bytes; NULL: not open */
	size_t row_bytes, capacity;
	uint32_t member_count;
	size_t layer_count;
	uint64_t first, last;  /* rounds kept; 0: none */
};

/* Makes an empty history of rounds of member_count members (up to MEMBER_COUNT_MAX) and layer_count layers (up to
 * LAYER_COUNT_MAX). False: no memory. */
bool history_open(struct history *history, uint32_t member_count, size_t layer_count);
/* Releases it; safe on one that is all zero. */
void history_close(struct history *history);

/* The row of a round, all zero but for its number and its places, to be filled; the oldest one makes room. Rounds come one after the
 * other; a gap forgets what was before it. */
struct history_round *history_add(struct history *history, uint64_t round);
/* The row of a round, NULL if it is not kept. */
const struct history_round *history_find(const struct history *history, uint64_t round);

/* Fills the row of the round that the node has just completed, at now_us; settings: those that were in force during it. */
void history_fill(const struct history *history, struct history_round *row, const struct node *node,
		  const struct ring_settings *settings, uint64_t now_us);

#endif

#ifndef EDIT_CORE_CIRCLE_H
#define EDIT_CORE_CIRCLE_H

/* A ring that a node is in: who is in it (core/view.h), the stream to the right neighbour (core/link.h), and what keeps both
 * alive: hello, refusals, heartbeats. A node of a mesh is in two, that of its piece and that of its replica; a large ring is cut
 * into groups, and then a node is in that of its group and in one across the groups.
 *
 * Ranks inside a circle count from 0; messages, actions and notes carry the rank in the whole mesh, `first + rank * stride`. */

#include "core/link.h"
#include "core/view.h"

struct circle {
	struct view view;
	struct link link;
	uint32_t first, stride;
	uint64_t incarnation;    /* own */
	uint64_t view_number;
	uint64_t heartbeat_us;
	uint64_t heartbeat_at_us, hello_at_us;
	size_t frames_owed;      /* small frames that may wait before frames from the left are turned away */
	bool own_roll;           /* told that both neighbours are there */
	uint64_t dropped;        /* frames from strangers, of another incarnation, or malformed */
	/* what the next heartbeat says */
	uint64_t round;
	bool waiting_for_worker;
	uint64_t collectives, told_collectives; /* begun here; of which the left neighbour has been told */
};

struct circle_config {
	uint32_t rank, count;           /* in this circle */
	uint32_t first, stride;
	const char *const *names;       /* of its members: of rank r names[r x name_stride]; must outlive the circle */
	size_t name_stride;
	const struct fact *facts;       /* [fact_count]; the same */
	size_t fact_count;
	uint64_t view_number;           /* frames of another are dropped */
	uint64_t incarnation, heartbeat_us, silence_us, retry_us;
	size_t frames_owed, frames_max; /* small frames that may wait: those of a correct ring, and what the member then still adds */
};

/* Bytes of the block for circle_init, a multiple of 64. */
size_t circle_size(const struct circle_config *config);
/* block (64-byte aligned) stays the caller's. */
void circle_init(struct circle *circle, void *block, const struct circle_config *config);
/* The first event has come. */
void circle_begin(struct circle *circle, uint64_t now_us);

/* Rank in the mesh of a member; rank in the circle of one of the mesh, count if it is not in it. */
uint32_t circle_global(const struct circle *circle, uint32_t rank);
uint32_t circle_local(const struct circle *circle, uint32_t global);
/* Sends to a neighbour by its rank in the circle. */
void circle_send(struct circle *circle, uint32_t to, const struct message *message, struct actions *actions);
/* Takes a message of the member `from` (rank in the circle): hello, refusal and heartbeat to the end. true: it is a frame of the
 * stream from the left neighbour, not numbered yet. *ret_moved: the right neighbour has taken frames. */
bool circle_message(struct circle *circle, uint32_t from, const struct message *message, uint64_t now_us, bool *ret_moved,
		    struct actions *actions);
/* A member is said to have both its neighbours; passes that on. true: all have, as of now. */
bool circle_roll(struct circle *circle, uint32_t rank);
/* true: so has the own member, all have, as of now. */
bool circle_join(struct circle *circle);
/* Notes silent neighbours; says hello and heartbeats that are due. */
void circle_watch(struct circle *circle, uint64_t now_us, struct actions *actions);
/* Whether the stream to the right can carry frames. */
bool circle_can_send(struct circle *circle);

#endif

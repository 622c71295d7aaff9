#ifndef EDIT_CORE_VIEW_H
#define EDIT_CORE_VIEW_H

/* The members of the ring and what is known of them. The list of a view never changes; a view begins when all have said hello.
 *
 * A member talks to its two neighbours only. A hello is accepted if name and all facts agree; facts are compared pair by pair, and
 * equality goes round. A neighbour that is silent for silence_us is down; its other neighbours hear of it along the ring:
 * what comes from the right is told to the left and the other way round, so a rumour ends at the member it is about. */

#include "core/event.h"

enum { VIEW_LEFT = 0, VIEW_RIGHT = 1 };

/* What a member knows of a neighbour by itself. */
struct neighbour {
	uint32_t rank;
	uint64_t incarnation;     /* whose hello was accepted; 0: none yet */
	bool accepts_us;          /* it has accepted our hello */
	bool down;                /* silent for too long */
	uint64_t heard_us;
	enum refusal refused;     /* why its latest hello was refused; 0: it was not */
	uint64_t refused_incarnation;
	enum refusal refuses_us;  /* why it has refused us; 0: it has not */
	/* as its last heartbeat said */
	uint64_t round;
	bool waiting_for_worker;
	uint64_t collectives;     /* that it has begun */
	uint32_t suspect_count;
	uint32_t suspects[SUSPECT_COUNT_MAX]; /* members that it has told us are down */
};

struct view {
	uint32_t rank, count;
	const char *const *names; /* of rank r: names[r x stride] */
	size_t stride;
	const struct fact *facts;
	size_t fact_count;
	uint64_t silence_us;
	struct neighbour side[2]; /* left, right; with two members both are one: side[0] */
	uint32_t side_count;      /* 0, 1 or 2 */
	bool *rolled;             /* [count] has both its neighbours */
	uint32_t rolled_count;
	bool complete;            /* all have: the view has begun */
};

/* Bytes of the block for view_init. */
size_t view_size(uint32_t count);
/* names and facts are borrowed for good; block stays the caller's. */
void view_init(struct view *view, void *block, uint32_t rank, uint32_t count, const char *const *names, size_t stride,
	       const struct fact *facts, size_t fact_count, uint64_t silence_us);
/* The neighbour with this rank, NULL if it is none. */
struct neighbour *view_neighbour(struct view *view, uint32_t rank);
/* The neighbour on a side; NULL if alone. */
struct neighbour *view_side(struct view *view, int side);
/* Does a frame from this neighbour count: accepted incarnation? */
bool view_is_known(const struct neighbour *neighbour, uint64_t incarnation);

/* Judges a hello of the member `from`. 0: accepted; *ret_is_new tells whether its incarnation is a new one. EDIT_ERROR_REFUSED: *ret_refuse says why. */
int view_hello(struct view *view, uint32_t from, const struct message *message, uint64_t now_us, bool *ret_is_new,
	       struct refuse *ret_refuse);
/* A known frame came: returns for how long it was down, in us; 0 if it was not. */
uint64_t view_heard(struct neighbour *neighbour, uint64_t now_us);
/* Marks a neighbour that has been silent for too long; true if it was not marked before. */
bool view_check_silence(const struct view *view, struct neighbour *neighbour, uint64_t now_us);
/* Are both neighbours there, each having accepted the other? */
bool view_is_joined(const struct view *view);
/* Notes that a member has both its neighbours; true if that was news. */
bool view_roll(struct view *view, uint32_t rank);
/* Members to be told as down to the neighbour on a side: the other side's neighbour if down, and what that one tells. */
uint32_t view_suspects(const struct view *view, const struct neighbour *to, uint32_t ret_suspects[SUSPECT_COUNT_MAX]);
/* Is a member down, by own knowledge or as told? */
bool view_is_down(const struct view *view, uint32_t rank);
/* The first member known to be down, count if none. */
uint32_t view_first_down(const struct view *view);

#endif

#ifndef EDIT_CORE_ROSTER_H
#define EDIT_CORE_ROSTER_H

/* A view's roster: who is a member, in ring order. Plain data with the questions that can be asked of it; nothing here
 * decides anything. A roster does not own its seats: whoever brings the memory for them (capacity x struct seat) keeps it. */

#include "core/layer.h"
#include "core/places.h"

enum {
	SEAT_NAME_BYTES = 64,
	SEAT_ADDRESS_BYTES = 256
};

/* One member's place. All bytes behind the text of name and address are 0, so that seats compare byte by byte. */
struct seat {
	char name[SEAT_NAME_BYTES];       /* [a-z0-9-]{1,63}, 0-terminated */
	char address[SEAT_ADDRESS_BYTES]; /* 1 to 255 printable bytes without blanks, 0-terminated */
	uint64_t incarnation;             /* random id of one start of a daemon; 0 in a roster: any (view 1, the list of the config) */
	uint64_t disk;                    /* random id of its vote file, made with that; 0: not known (view 1) */
};

struct roster {
	uint64_t number;    /* of the view, from 1 */
	uint32_t count;     /* members, 1 to MEMBER_COUNT_MAX */
	uint32_t holder;    /* rank of the tie-holder: of two halves the one that it is in goes on */
	uint32_t fanout;    /* members of a group of the ring, at least 2 and a divisor of count; count: a flat ring */
	struct seat *seats; /* [count] by rank */
};

/* Fills name (SEAT_NAME_BYTES) and address (SEAT_ADDRESS_BYTES) of a seat from texts. EDIT_ERROR_MALFORMED: one of them is
 * not as in struct seat; then *ret_seat is as it was. */
int seat_make(const char *name, const char *address, uint64_t incarnation, uint64_t disk, struct seat *ret_seat);
/* Are name and address as in struct seat? Incarnation and disk are anything. */
bool seat_is_valid(const struct seat *seat);
/* The same for a name alone: SEAT_NAME_BYTES bytes. */
bool seat_is_name(const char *name);
/* Is it the place of this name (SEAT_NAME_BYTES bytes)? */
bool seat_is_of(const struct seat *seat, const char *name);
/* May this incarnation of the member take the seat: the same, or any? */
bool seat_admits(const struct seat *seat, uint64_t incarnation);

/* Rank of a name (SEAT_NAME_BYTES bytes); count if it is not in the roster. */
uint32_t roster_find(const struct roster *roster, const char *name);
/* Rank of a seat of the same name that admits the seat's incarnation; count if there is none. */
uint32_t roster_find_seat(const struct roster *roster, const struct seat *seat);
/* Do the same incarnations of the same members sit in the same order, whatever the number of the view? */
bool roster_has_same_seats(const struct roster *roster, const struct roster *other);
/* Are they equal in everything? */
bool roster_is_equal(const struct roster *roster, const struct roster *other);
/* 0: a view that can be. EDIT_ERROR_RANGE: more than capacity members or none, or a view number 0. EDIT_ERROR_MALFORMED: a
 * seat that is not valid, a name twice, a holder or fanout that does not fit. */
int roster_check(const struct roster *roster, uint32_t capacity);
/* Copies into the memory of `to`, which has room for from->count seats. */
void roster_copy(struct roster *to, const struct roster *from);
/* The fanout for a number of members: the wanted one if it makes whole groups, otherwise a flat ring. */
uint32_t roster_fanout(uint32_t count, uint32_t wanted);
/* Are the members with has[rank] (of count) more than half, or exactly half with the tie-holder? Two such sets share a
 * member. */
bool roster_is_quorum(const struct roster *roster, const bool *has);
/* Ranks of a member's neighbours in the ring, or in its group and across groups, each once. Returns how many. */
size_t roster_neighbours(const struct roster *roster, uint32_t rank, uint32_t ret_ranks[ROAD_COUNT]);
/* Are two ranks neighbours? */
bool roster_is_next(const struct roster *roster, uint32_t rank, uint32_t other);

#endif

/* Questions to a roster. Memory is compared byte by byte: seats are padded with zeros. */

#include <string.h>

#include "core/roster.h"

/* ---- Seats ---- */

static bool is_in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

static bool is_in_address(char c)
{
	return c > ' ' && c <= '~';
}

/* A text of at least one byte, and zeros to the end. */
static bool is_padded(const char *text, size_t size, bool (*is_allowed)(char))
{
	size_t length = 0;
	while (length < size && is_allowed(text[length]))
		length++;
	if (length == 0 || length == size)
		return false;
	for (size_t i = length; i < size; i++)
		if (text[i] != 0)
			return false;
	return true;
}

static void take_text(char *to, size_t size, const char *from)
{
	for (size_t i = 0; i < size && from[i] != 0; i++)
		to[i] = from[i];
}

int seat_make(const char *name, const char *address, uint64_t incarnation, uint64_t disk, struct seat *ret_seat)
{
	struct seat seat = {.incarnation = incarnation, .disk = disk};
	take_text(seat.name, sizeof seat.name, name);
	take_text(seat.address, sizeof seat.address, address);
	if (!seat_is_valid(&seat))
		return EDIT_ERROR_MALFORMED;
	*ret_seat = seat;
	return 0;
}

bool seat_is_name(const char *name)
{
	return is_padded(name, SEAT_NAME_BYTES, is_in_name);
}

bool seat_is_valid(const struct seat *seat)
{
	return seat_is_name(seat->name) && is_padded(seat->address, sizeof seat->address, is_in_address);
}

bool seat_is_of(const struct seat *seat, const char *name)
{
	return memcmp(seat->name, name, SEAT_NAME_BYTES) == 0;
}

bool seat_admits(const struct seat *seat, uint64_t incarnation)
{
	return seat->incarnation == 0 || seat->incarnation == incarnation;
}

/* ---- Rosters ---- */

uint32_t roster_find(const struct roster *roster, const char *name)
{
	uint32_t rank = 0;
	while (rank < roster->count && !seat_is_of(&roster->seats[rank], name))
		rank++;
	return rank;
}

uint32_t roster_find_seat(const struct roster *roster, const struct seat *seat)
{
	uint32_t rank = roster_find(roster, seat->name);
	return rank < roster->count && seat_admits(&roster->seats[rank], seat->incarnation) ? rank : roster->count;
}

bool roster_has_same_seats(const struct roster *roster, const struct roster *other)
{
	if (roster->count != other->count)
		return false;
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const struct seat *seat = &roster->seats[rank], *same = &other->seats[rank];
		if (!seat_is_of(seat, same->name) || seat->incarnation != same->incarnation)
			return false;
	}
	return true;
}

bool roster_is_equal(const struct roster *roster, const struct roster *other)
{
	if (roster->number != other->number || roster->count != other->count || roster->holder != other->holder ||
	    roster->fanout != other->fanout || !roster_has_same_seats(roster, other))
		return false;
	for (uint32_t rank = 0; rank < roster->count; rank++)
		if (memcmp(roster->seats[rank].address, other->seats[rank].address, SEAT_ADDRESS_BYTES) != 0 ||
		    roster->seats[rank].disk != other->seats[rank].disk)
			return false;
	return true;
}

int roster_check(const struct roster *roster, uint32_t capacity)
{
	if (roster->number == 0 || roster->count == 0 || roster->count > capacity)
		return EDIT_ERROR_RANGE;
	if (roster->holder >= roster->count || roster->fanout == 0 || roster_fanout(roster->count, roster->fanout) != roster->fanout)
		return EDIT_ERROR_MALFORMED;
	for (uint32_t rank = 0; rank < roster->count; rank++)
		if (!seat_is_valid(&roster->seats[rank]) || roster_find(roster, roster->seats[rank].name) != rank)
			return EDIT_ERROR_MALFORMED;
	return 0;
}

void roster_copy(struct roster *to, const struct roster *from)
{
	struct seat *seats = to->seats;
	if (from->count > 0)
		memcpy(seats, from->seats, from->count * sizeof *seats);
	*to = *from;
	to->seats = seats;
}

uint32_t roster_fanout(uint32_t count, uint32_t wanted)
{
	return wanted >= 2 && wanted <= count && count % wanted == 0 ? wanted : count;
}

bool roster_is_quorum(const struct roster *roster, const bool *has)
{
	uint32_t votes = 0;
	for (uint32_t rank = 0; rank < roster->count; rank++)
		votes += has[rank];
	return 2 * votes > roster->count || (2 * votes == roster->count && has[roster->holder]);
}

static struct places places_of(const struct roster *roster)
{
	return (struct places){.peers = roster->count, .fanout = roster->fanout, .shards = 1};
}

size_t roster_neighbours(const struct roster *roster, uint32_t rank, uint32_t ret_ranks[ROAD_COUNT])
{
	const struct places places = places_of(roster);
	return places_neighbours(&places, rank, ret_ranks);
}

bool roster_is_next(const struct roster *roster, uint32_t rank, uint32_t other)
{
	const struct places places = places_of(roster);
	return places_road(&places, rank, other) != ROAD_COUNT;
}

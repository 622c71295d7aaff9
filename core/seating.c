/* The choice of a roster. The order is searched depth first, candidates in their present order: what need not move stays. */

#include <string.h>

#include "core/places.h"
#include "core/seating.h"

enum { TRIES_MAX = 1 << 16 }; /* candidates that are looked at before a choice takes what comes first */

/* A member that is to be seated. */
struct candidate {
	struct seat seat;
	uint32_t rank; /* in the present view; its count: a joiner */
	bool is_fresh; /* another incarnation than that which was or was not heard */
};

struct table {
	const struct seating *seating;
	struct candidate *candidates; /* [count] */
	uint32_t *order;              /* [count] place -> candidate */
	uint32_t *next;               /* [count + 1] place -> candidate to be tried next */
	bool *seated;                 /* [count] by candidate */
	uint32_t count;
	uint32_t tries_left;
};

size_t seating_size(uint32_t capacity)
{
	return block_part(capacity * sizeof(struct candidate)) + block_part(capacity * sizeof(uint32_t)) +
	       block_part((capacity + 1) * sizeof(uint32_t)) + block_part(capacity * sizeof(bool));
}

static struct table lay_out(const struct seating *seating)
{
	struct table table = {.seating = seating, .tries_left = TRIES_MAX};
	char *at = seating->block;
	table.candidates = (struct candidate *)at;
	at += block_part(seating->capacity * sizeof(struct candidate));
	table.order = (uint32_t *)at;
	at += block_part(seating->capacity * sizeof(uint32_t));
	table.next = (uint32_t *)at;
	at += block_part((seating->capacity + 1) * sizeof(uint32_t));
	table.seated = (bool *)at;
	return table;
}

/* ---- Who ---- */

static const struct seat *joiner_of(const struct seating *seating, const char *name)
{
	for (uint32_t i = 0; i < seating->join_count; i++)
		if (seat_is_of(&seating->joins[i], name))
			return &seating->joins[i];
	return NULL;
}

static void add(struct table *table, struct seat seat, uint32_t rank, bool is_fresh)
{
	table->candidates[table->count++] = (struct candidate){.seat = seat, .rank = rank, .is_fresh = is_fresh};
}

static void invite(struct table *table)
{
	const struct seating *seating = table->seating;
	const struct roster *now = seating->now;
	for (uint32_t rank = 0; rank < now->count; rank++) {
		const struct opinion *opinion = &seating->opinions[rank];
		struct seat seat = now->seats[rank];
		const struct seat *join = joiner_of(seating, seat.name);
		if (seating->leaving[rank])
			continue;
		if (join != NULL) {
			add(table, *join, rank, true);
		} else if (opinion->is_present && opinion->is_ready) {
			bool is_fresh = !seat_admits(&seat, opinion->incarnation);
			seat.incarnation = opinion->incarnation;
			seat.disk = opinion->disk;
			add(table, seat, rank, is_fresh);
		}
	}
	for (uint32_t i = 0; i < seating->join_count && table->count < seating->capacity; i++)
		if (roster_find(now, seating->joins[i].name) == now->count)
			add(table, seating->joins[i], now->count, true);
}

/* ---- In which order ---- */

static bool doubts(const struct table *table, const struct candidate *one, const struct candidate *other)
{
	/* what is known of a fresh one is about an incarnation that is no more */
	if (one->rank == table->seating->now->count || other->is_fresh)
		return false;
	const struct opinion *opinion = &table->seating->opinions[one->rank];
	for (uint32_t i = 0; opinion->is_present && i < opinion->doubt_count; i++)
		if (opinion->doubts[i] == other->rank)
			return true;
	return false;
}

static bool is_bad_pair(const struct table *table, uint32_t i, uint32_t j)
{
	const struct candidate *one = &table->candidates[i], *other = &table->candidates[j];
	return i != j && (doubts(table, one, other) || doubts(table, other, one));
}

/* Does the candidate at a place hear, and is it heard by, those of its neighbours that sit already? */
static bool fits(const struct table *table, const struct places *places, uint32_t place)
{
	uint32_t neighbours[ROAD_COUNT];
	size_t count = places_neighbours(places, place, neighbours);
	for (size_t i = 0; i < count; i++)
		if (neighbours[i] < place && is_bad_pair(table, table->order[place], table->order[neighbours[i]]))
			return false;
	return true;
}

/* Seats somebody at a place; false: nobody who was not tried there before fits. */
static bool fill(struct table *table, const struct places *places, uint32_t place)
{
	for (uint32_t i = table->next[place]; i < table->count && table->tries_left > 0; i++) {
		if (table->seated[i])
			continue;
		table->tries_left--;
		table->order[place] = i;
		if (fits(table, places, place)) {
			table->seated[i] = true;
			table->next[place] = i + 1;
			return true;
		}
	}
	return false;
}

static bool find_order(struct table *table)
{
	const struct places places = {.peers = table->count, .fanout = roster_fanout(table->count, table->seating->fanout),
			.shards = 1};
	uint32_t place = 0;
	/* enough for the first order if nothing is wrong with it: the search ends when nobody is left who does not hear */
	table->tries_left = table->tries_left > table->count ? table->tries_left : table->count;
	memset(table->seated, 0, table->count * sizeof(bool));
	table->next[0] = 0;
	while (place < table->count) {
		if (fill(table, &places, place)) {
			table->next[++place] = 0;
		} else if (place == 0) {
			return false;
		} else {
			place--;
			table->seated[table->order[place]] = false;
		}
	}
	return true;
}

/* ---- Who has to go ---- */

static bool has_bad_pair(const struct table *table, uint32_t i)
{
	for (uint32_t j = 0; j < table->count; j++)
		if (is_bad_pair(table, i, j))
			return true;
	return false;
}

/* The last of those who do not hear somebody, or are not heard; the tie-holder stays, because the other of its pair can go. */
static void drop_one(struct table *table)
{
	uint32_t i = table->count;
	while (i > 0 && (table->candidates[i - 1].rank == table->seating->now->holder || !has_bad_pair(table, i - 1)))
		i--;
	CHECK(i > 0);
	table->count--;
	for (uint32_t j = i - 1; j < table->count; j++)
		memcpy(&table->candidates[j], &table->candidates[j + 1], sizeof(struct candidate));
}

/* ---- Result ---- */

bool seating_choose(const struct seating *seating, struct roster *ret_next)
{
	const struct roster *now = seating->now;
	struct table table = lay_out(seating);
	invite(&table);
	while (!find_order(&table))
		drop_one(&table);
	bool is_other = table.count != now->count;
	ret_next->number = now->number + 1;
	ret_next->count = table.count;
	ret_next->holder = 0;
	ret_next->fanout = roster_fanout(table.count, seating->fanout);
	for (uint32_t place = 0; place < table.count; place++) {
		const struct candidate *candidate = &table.candidates[table.order[place]];
		ret_next->seats[place] = candidate->seat;
		is_other |= candidate->rank != place || candidate->is_fresh;
		if (candidate->rank == now->holder)
			ret_next->holder = place;
	}
	return is_other && table.count > 0;
}

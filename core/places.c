/* Ranks of neighbours. */

#include "core/ring.h"
#include "core/places.h"

uint32_t places_neighbour(const struct places *places, uint32_t rank, enum road_end end)
{
	const uint32_t fanout = places->fanout, groups = places->peers / fanout, shards = places->shards;
	uint32_t row = rank / shards, column = rank % shards, group = row / fanout, place = row % fanout;
	switch (end) {
	case ROAD_LEFT: row = group * fanout + ring_left(place, fanout); break;
	case ROAD_RIGHT: row = group * fanout + ring_right(place, fanout); break;
	case ROAD_CROSS_LEFT: row = ring_left(group, groups) * fanout + place; break;
	case ROAD_CROSS_RIGHT: row = ring_right(group, groups) * fanout + place; break;
	case ROAD_ROW_LEFT: column = ring_left(column, shards); break;
	case ROAD_ROW_RIGHT: column = ring_right(column, shards); break;
	case ROAD_COUNT: break;
	}
	return row * shards + column;
}

/* Right before left: of two members each is the other's right neighbour. */
static const enum road_end ends[ROAD_COUNT] = {ROAD_RIGHT, ROAD_LEFT, ROAD_CROSS_RIGHT, ROAD_CROSS_LEFT, ROAD_ROW_RIGHT,
					       ROAD_ROW_LEFT};

enum road_end places_road(const struct places *places, uint32_t rank, uint32_t to)
{
	for (size_t i = 0; to != rank && i < ROAD_COUNT; i++)
		if (places_neighbour(places, rank, ends[i]) == to)
			return ends[i];
	return ROAD_COUNT;
}

size_t places_neighbours(const struct places *places, uint32_t rank, uint32_t ret_ranks[ROAD_COUNT])
{
	size_t count = 0;
	for (size_t i = 0; i < ROAD_COUNT; i++) {
		uint32_t neighbour = places_neighbour(places, rank, ends[i]);
		/* A neighbour in several ways is met first in the one that places_road names. */
		if (places_road(places, rank, neighbour) == ends[i])
			ret_ranks[count++] = neighbour;
	}
	return count;
}

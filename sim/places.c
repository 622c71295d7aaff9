/* Ranks of neighbours. */

#include "core/ring.h"
#include "sim/places.h"

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

enum road_end places_road(const struct places *places, uint32_t rank, uint32_t to)
{
	static const enum road_end ends[] = {ROAD_RIGHT, ROAD_LEFT, ROAD_CROSS_RIGHT, ROAD_CROSS_LEFT, ROAD_ROW_RIGHT,
					     ROAD_ROW_LEFT};
	for (size_t i = 0; to != rank && i < sizeof ends / sizeof ends[0]; i++)
		if (places_neighbour(places, rank, ends[i]) == to)
			return ends[i];
	return ROAD_COUNT;
}

#ifndef EDIT_CORE_PLACES_H
#define EDIT_CORE_PLACES_H

/* Who is whose neighbour: in a ring or its group, across the groups, inside a replica. */

#include "core/base.h"

struct places {
	uint32_t peers;  /* members of the ring: replicas */
	uint32_t fanout; /* members of a group, a divisor of peers; peers: a flat ring */
	uint32_t shards; /* members of a replica */
};

/* The ways from a member to its neighbours. */
enum road_end { ROAD_LEFT, ROAD_RIGHT, ROAD_CROSS_LEFT, ROAD_CROSS_RIGHT, ROAD_ROW_LEFT, ROAD_ROW_RIGHT, ROAD_COUNT };

/* Rank in the mesh of the neighbour to which a road leads, the own one where there is none. */
uint32_t places_neighbour(const struct places *places, uint32_t rank, enum road_end end);
/* The road that leads to a neighbour; ROAD_COUNT: it is none. Of two members each is the other's right neighbour. */
enum road_end places_road(const struct places *places, uint32_t rank, uint32_t to);
/* Ranks in the mesh of all neighbours, each once: right and left in the ring or group, across the groups, and in the replica. Returns
 * how many. */
size_t places_neighbours(const struct places *places, uint32_t rank, uint32_t ret_ranks[ROAD_COUNT]);

#endif

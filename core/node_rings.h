#ifndef EDIT_CORE_NODE_RINGS_H
#define EDIT_CORE_NODE_RINGS_H

/* The inside of a node, for core/node.c, which moves it, and core/node_look.c, which looks at it: the rings that it is in, and who
 * is where in them. Nobody else includes this. */

#include "core/circle.h"
#include "core/collective.h"
#include "core/node_config.h"
#include "core/sync.h"

/* The rings that a node is in. */
enum {
	RING,  /* of the members, or of a group of them */
	CROSS, /* across the groups, of the members with the same place in theirs */
	ROW,   /* of the nodes of the replica */
	CIRCLE_COUNT
};

struct node {
	struct node_config config;
	struct circle circles[CIRCLE_COUNT];
	struct sync sync;
	struct collectives collectives;
	bool begun;              /* the first event has come */
	bool inherits;           /* it goes on from another view's node */
	bool complete;           /* so are all rings that this node is in */
	uint64_t now_us;         /* of the last event */
	uint64_t stall_note_at_us; /* not before */
	uint64_t begin_us;       /* of the gathering */
	uint64_t dropped;        /* frames that fit nowhere */
};

static inline uint32_t node_shards(const struct node_config *config) { return config->shards == 0 ? 1 : config->shards; }
static inline uint32_t node_fanout(const struct node_config *config)
{
	return config->fanout == 0 ? config->member_count : config->fanout;
}
static inline uint64_t node_view_number(const struct node_config *config)
{
	return config->view == 0 ? VIEW_FIRST : config->view;
}
/* Rank in the mesh of the node itself. */
static inline uint32_t node_rank(const struct node *node) { return sync_peer(&node->sync, node->sync.rank); }

/* What a ring of the node, by its number above, is made from. */
struct circle_config node_circle_config(const struct node_config *config, int which);
/* The first ring that the member is not alone in. */
int node_home(const struct node *node);
/* A member known to be down, by its rank in the mesh; the number of members: none. */
uint32_t node_first_down(const struct node *node);
/* The left neighbour, from whom the ring's numbers come. */
uint32_t node_home_left(const struct node *node);

#endif

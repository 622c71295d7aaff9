#ifndef EDIT_CORE_NODE_CONFIG_H
#define EDIT_CORE_NODE_CONFIG_H

/* What a node is made from: its place, its names, its memory, what it knew before this start. The caller's; copied by node_init,
 * but for what it points to. */

#include "core/event.h"
#include "core/layer.h"

struct detector;

struct node_config {
	uint32_t rank, member_count;    /* in the ring; 1 <= member_count <= MEMBER_COUNT_MAX */
	uint32_t column, shards;        /* of a mesh: the piece of every layer that this node holds, pieces; shards 0 and 1: no mesh.
					 * Rank in the mesh: rank x shards + column */
	uint32_t fanout;                /* members of a group of the ring, at least 2 and a divisor of member_count; 0 or member_count: the
					 * ring is flat */
	uint64_t incarnation;           /* random, not 0 */
	const char *const *names;       /* [member_count] of the ring's members (with a mesh: those of the same column) in order; must
					 * outlive the node */
	const char *const *mates;       /* [shards] names of the nodes of this replica; the same */
	const struct fact *facts;       /* [fact_count]; must outlive the node */
	size_t fact_count;
	const struct layer *layers;     /* [layer_count] of a mesh: the own pieces; must outlive the node */
	size_t layer_count;             /* 1 <= layer_count <= LAYER_COUNT_MAX */
	uint64_t view;                  /* number of the member list; 0: VIEW_FIRST */
	uint64_t since;                 /* node_since of the state loaded; 0: none */
	uint64_t round;                 /* rounds completed before this start: 0, or that of the state loaded */
	const uint64_t *layer_rounds;   /* [layer_count] of each layer's anchor and momentum, LAYER_NOTHING: nothing or damaged; NULL: all
					 * hold `round`. Only without a mesh */
	const uint64_t *layer_since;    /* [layer_count] node_layer_since of each; NULL: all are of `since` */
	const bool *layer_rolled_back;  /* [layer_count] whether that round left it as it was (node_layer_is_rolled_back); NULL: none did */
	bool is_outdated;               /* the worker waits for theta: it is given the anchor of every layer before its first step */
	uint64_t step;                  /* of the worker, as struct offer tells it; 0: it has none yet */
	bool finished;                  /* the run had ended before this start */
	bool is_stale;                  /* theta began from another anchor than that of `round` (the member was late, or the
					 * result of its last offer was not added): it is given the anchor with its next offer */
	const struct detector *detectors; /* [layer_count] or NULL for fresh ones */
	struct ring_settings settings;
	uint64_t heartbeat_us;          /* interval of heartbeats: 1 s */
	uint64_t silence_us;            /* a neighbour not heard for so long is down: 3 s */
	uint64_t retry_us;              /* an unacknowledged ring stream frame is sent again after this: 1 s, doubling to 8 s */
	size_t window_max_bytes;        /* bound of wire.window on this node (memory); 0: none */
};

#endif

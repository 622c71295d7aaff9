#ifndef EDIT_CORE_NODE_H
#define EDIT_CORE_NODE_H

/* The heart: one member of a ring as a pure state machine. The driver owns sockets, clock, memory and words; it feeds events
 * and carries out actions. The same function runs under editd and under the simulator. */

#include "core/event.h"
#include "core/node_config.h"
#include "core/penalty.h"

struct node;

/* Bytes of the block that node_init needs, a multiple of 64; includes the work buffers (prefetch of `settings` plus 2 layers of the
 * largest size). A later `sync.prefetch` above that of the config is served with the buffers there are. */
size_t node_size(const struct node_config *config);
/* Makes a node in block (64-byte aligned, node_size bytes). Layers must hold anchor, momentum and theta of round config->round. */
struct node *node_init(void *block, const struct node_config *config);

/* Makes the node of a newer view in block, to go on from old, which is as it was and may be thrown away. Of config rank, member_count,
 * names, fanout, view and what is this process's own count (incarnation, facts, intervals); layers must be the same memory; what this
 * member knew before a start is taken from old. Only without a mesh. Everything that belongs to a view begins afresh; what is this
 * member's goes on: settings, rounds of layers, detectors, the offer and the layers that the worker has not got back. The driver
 * forgets what it owes old: hashes that were asked for, its deadline. Frames of old that are on their way still read its memory. */
struct node *node_succeed(void *block, const struct node_config *config, const struct node *old);

/* Takes one event; fills *actions. Events of one node come with now_us never going back. */
void node_step(struct node *node, const struct event *event, struct actions *actions);

/* Whether EVENT_COLLECT may come: not too many are open. */
bool node_can_collect(const struct node *node);

/* ---- Looking; changes nothing ---- */

enum node_phase {
	NODE_GATHERING, /* waits until all members have said hello, and hold the same */
	NODE_TRAINING,  /* workers step */
	NODE_SYNCING,   /* a round is in progress here */
	NODE_PAUSED,
	NODE_FINISHED
};

struct node_status {
	enum node_phase phase;
	uint64_t round;            /* completed */
	uint64_t round_bytes;      /* sent on the ring stream in the last completed round */
	uint64_t sync_us;          /* last completed round: offer to last layer's commit */
	uint64_t frames_sent_again, frames_dropped;
	uint64_t stalled_us;       /* the round in progress, or the gathering, has not moved for so long; 0: it moves */
	uint32_t waiting_for;      /* rank in the mesh that it waits for; own rank: the own worker; number of members: nobody */
	uint32_t pending_changes;
};

enum peer_state {
	PEER_UNKNOWN,  /* no hello yet */
	PEER_LIVE,
	PEER_DOWN,
	PEER_REFUSED,
	PEER_RESTARTED /* came back in mid-run with another incarnation, which this view cannot take in */
};

struct node_peer {
	enum peer_state state;      /* of a neighbour by own knowledge, of others as told along the ring */
	uint64_t silent_us;         /* neighbours: since last heard */
	bool is_neighbour;          /* in one of this member's rings; the next two are its own words then */
	uint64_t round;             /* rounds completed */
	bool waits_for_worker;      /* its worker has not offered the round in progress */
	uint64_t lateness_us;       /* last round: its first record came so long after the first one of all */
	uint64_t lateness_mean_us;  /* exponential mean, 0.1 */
};

/* This member and the ring, and a member (rank < member_count) as seen from here, at now_us of the events' clock. */
void node_status(const struct node *node, uint64_t now_us, struct node_status *ret_status);
void node_peer(const struct node *node, uint32_t rank, uint64_t now_us, struct node_peer *ret_peer);
/* The same for any member of the mesh, by its rank there; lateness is known of the own ring's members only. Of those that share no
 * ring with this one nothing is known: PEER_UNKNOWN. */
void node_mesh_peer(const struct node *node, uint32_t global, uint64_t now_us, struct node_peer *ret_peer);
/* Whether the worker's last offer is for a round that has not begun here: the one in progress, if any, goes on without it. */
bool node_offer_waits(const struct node *node);
/* Whether the worker hands over the gradients of its next step. */
bool node_averages_gradients(const struct node *node);
/* Whether the round in progress aligns the members: the worker offers after one step. */
bool node_is_aligning(const struct node *node);
/* Settings in force for the round in progress, and the round after which setting was last changed (0: never). */
const struct ring_settings *node_settings(const struct node *node);
/* Settings of the round after that in progress, as far as it is agreed upon. */
const struct ring_settings *node_next_settings(const struct node *node);
uint64_t node_setting_round(const struct node *node, enum ring_setting setting);
/* The last complete set of records: record of a member for a layer, its weight in the mean; round 0 in it: none yet. */
const struct record *node_record(const struct node *node, size_t layer_index, uint32_t rank);
double node_weight(const struct node *node, size_t layer_index, uint32_t rank);
/* Hash of a layer as confirmed by a member: *ret_round is the round it belongs to (0: none). The two latest are kept: back = 0
 * or 1. */
uint64_t node_hash(const struct node *node, size_t layer_index, uint32_t rank, unsigned back, uint64_t *ret_round);
/* Whether the last round of a layer changed nothing, because nobody was accepted: to be kept beside the layer, too. */
bool node_layer_is_rolled_back(const struct node *node, size_t layer_index);
/* Own detectors [layer_count], as of the last commit of each layer. */
const struct detector *node_detector(const struct node *node, size_t layer_index);
/* The view in which the newest round that this member holds as a whole was committed, to be kept beside the state (struct node_config);
 * whether all members of the present one hold the same, so that rounds go on. */
uint64_t node_since(const struct node *node);
bool node_is_ready(const struct node *node);
/* Rounds completed by a layer; LAYER_NOTHING: nothing is held. And the view in which that round was committed, to be kept beside the layer:
 * a member that stops amid a heal holds layers of different ones. */
uint64_t node_layer_round(const struct node *node, size_t layer_index);
uint64_t node_layer_since(const struct node *node, size_t layer_index);
/* Where a layer is. */
enum node_layer_state {
	NODE_LAYER_WORKER,  /* the worker computes with it */
	NODE_LAYER_OFFERED, /* waits for its turn */
	NODE_LAYER_SCALARS, /* records go round */
	NODE_LAYER_REDUCE,  /* partial sums go round, the own shard is not finished */
	NODE_LAYER_GATHER   /* finished shards go round */
};
enum node_layer_state node_layer_state(const struct node *node, size_t layer_index);
/* Microseconds of a layer's last sync: scalars, reduce, gather. */
void node_layer_times(const struct node *node, size_t layer_index, uint64_t ret_us[3]);

#endif

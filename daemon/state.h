#ifndef EDIT_DAEMON_STATE_H
#define EDIT_DAEMON_STATE_H

/* What a daemon must not lose when it dies: runtime_dir/state, a file mapped into memory. Anchor and momentum that
 * the node works on are this mapping itself. A layer's entry is written when the layer commits, with a hash of
 * what it stands for; so a layer that was being changed when the daemon died shows itself. What belongs to the run as a whole has two
 * places that are written in turn, so that one of them is whole at any moment. The file gets its name by state_begin.
 *
 *   struct state_head, struct state_layer [layer_count], then per layer anchor and momentum, each begun on a
 *   64-byte boundary */

#include "core/layer.h"
#include "core/penalty.h"
#include "proto/description.h"
#include "proto/mapping.h"
#include "proto/segment.h"

#define STATE_MAGIC UINT64_C(0x3154535449444545) /* "EEDITST1" read as a little-endian number */

enum { STATE_VERSION = 4 };

/* What belongs to the run as a whole, written when a round is complete. */
struct state_run {
	uint64_t number;              /* of this writing, set by state_commit_run */
	uint64_t round;               /* completed */
	uint64_t since;               /* the view in which the newest thing here was committed (node_since); 0: none yet */
	uint64_t incarnation;         /* of the daemon that wrote it; tells a person who looks */
	struct ring_settings settings; /* in force */
	uint64_t offer_step, offer_tokens, offer_wait_us; /* the worker's words at its last offer of a completed round */
	uint64_t worker_restarts;
	uint64_t sync_us;             /* sum over all rounds */
};

struct state_layer {
	uint64_t begun_round; /* equal to ended_round unless the entry itself was being written */
	struct detector detector;
	uint64_t hash;        /* XXH3 of anchor, then momentum */
	uint64_t since;       /* the view in which that round was committed */
	uint64_t is_rolled_back; /* 1: that round changed nothing, because nobody was accepted */
	uint64_t ended_round;
	uint64_t entry_hash;  /* XXH3 of the fields before it */
};

struct state_head {
	uint64_t magic;
	uint32_t version, layer_count;
	uint64_t size_bytes;
	uint64_t description_hash;
	struct state_slot {
		struct state_run run;
		uint64_t run_hash; /* XXH3 of run */
	} slots[2];
};

struct state {
	struct mapping mapping;
	struct state_head *head;
	const struct state_run *run; /* in the slot written last */
	struct state_layer *layers; /* [layer_count] */
	size_t layer_count;
	struct state_place *places; /* [layer_count], owned */
};

struct state_place {
	size_t size;             /* elements */
	float *anchor, *momentum; /* [size], 64-byte aligned */
	bool is_damaged;          /* state_open: was being changed when the daemon died, or is damaged otherwise: not to be believed */
};

/* Reserves the file at path (under another name, until state_begin) for the layers of description; all numbers are
 * zero. EDIT_ERROR_FULL if there is no room, EDIT_ERROR_SYSTEM. */
int state_create(const char *path, const struct description *description, uint64_t description_hash,
		 const struct segment_seat *seat, struct state *ret_state, struct line *why);

/* Writes run and gives the file its name. has_layers: anchor and momentum of all layers are in place, and every layer's entry is written
 * for run->round; otherwise all count as damaged until they are committed. EDIT_ERROR_SYSTEM. */
int state_begin(struct state *state, const char *path, const struct state_run *run, bool has_layers, struct line *why);

/* Maps the state that an earlier daemon left for this description; layers that are damaged are marked, others may be of the round after
 * that of the run. EDIT_ERROR_UNKNOWN: there is none. EDIT_ERROR_MALFORMED: it cannot be gone on with (head damaged, of another
 * description); why names the file. */
int state_open(const char *path, const struct description *description, uint64_t description_hash,
	       const struct segment_seat *seat, struct state *ret_state, struct line *why);

/* Whether all layers are whole and of the run's round, as a member needs that nobody can give what it lacks. EDIT_ERROR_MALFORMED: why names
 * file and layer. */
int state_check_whole(const struct state *state, const char *path, const struct description *description, struct line *why);

/* Round, and XXH3 of all layers' hashes, of the state file at path, without a description: its numbers are not looked at. False: there is
 * none, or head or entries are damaged. */
bool state_look(const char *path, uint64_t *ret_round, uint64_t *ret_anchor_hash);

/* XXH3 of all layers' hashes: equal on all members of a ring. */
uint64_t state_anchor_hash(const struct state *state);

/* Unmaps; the file stays. Safe on one that is all zero apart from mapping.fd -1. */
void state_close(struct state *state);

/* A layer has committed, in view `since`, or has been fetched: writes its entry. Returns the hash. */
uint64_t state_commit_layer(struct state *state, size_t layer_index, uint64_t round, uint64_t since, bool is_rolled_back,
			    const struct detector *detector);

/* A round is complete on all layers, or counters have changed. */
void state_commit_run(struct state *state, const struct state_run *run);

/* XXH3 of the layer's anchor, then momentum, as they are now. */
uint64_t state_hash_layer(const struct state *state, size_t layer_index);

#endif

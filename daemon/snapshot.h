#ifndef EDIT_DAEMON_SNAPSHOT_H
#define EDIT_DAEMON_SNAPSHOT_H

/* What a checkpoint holds, copied at the end of a round, so that ring and worker go on while it is written; and the same read back. The
 * copies take as much memory as anchor, momentum and inner state together (with AdamW four times the parameters) until all is written.
 *
 * Inner state belongs to the worker, who lies still between its offer and the last layer's publish: it is copied then. Where the worker
 * steps on during the round (sync.overlap = steps, or late) it cannot be had at a boundary, and is left out: after a restart the inner
 * optimiser begins anew with zeros. */

#include "daemon/run.h"

struct snapshot_layer {
	size_t size;              /* elements here */
	uint64_t hash;            /* XXH3 of anchor, then momentum */
	struct detector detector;
};

struct snapshot {
	uint64_t round;            /* completed */
	uint64_t since;            /* in this view */
	struct ring_settings settings; /* in force from then on */
	bool has_inner;
	bool finished;             /* the run has ended with this round */
	uint64_t step, tokens, wait_us; /* of the worker, at the boundary at which anchor and inner state are its own */
	uint64_t lead;             /* as of the segment's header */
	uint64_t inner_step;       /* at which inner state was begun anew */
	bool is_averaging;         /* as of the segment's header */
	uint64_t worker_restarts, sync_us; /* as of the state file */
	size_t layer_count;
	struct snapshot_layer *layers; /* [layer_count], owned */
	float *anchor, *momentum;  /* all layers, one behind the other; owned */
	float *inner;              /* [inner_factor x size] of each layer, the same; owned; NULL: none */
};

/* Copies the worker's part, if it lies still: before the round's last layer is published, but with the verdicts of all layers in the
 * segment already; or after its final round. Otherwise, or if memory is short, snapshot->has_inner stays false. snapshot: all zero. */
void snapshot_take_inner(struct snapshot *snapshot, const struct run *run);
/* Copies the rest when the round's hashes are in the state file. EDIT_ERROR_SYSTEM: no memory. */
int snapshot_take(struct snapshot *snapshot, const struct run *run, uint64_t round);
/* Frees everything; all zero afterwards. */
void snapshot_free(struct snapshot *snapshot);

/* The numbers that are no tensors as JSON text of exactly snapshot_text_bytes(layer_count) bytes, padded with spaces. NULL if memory is
 * short. The caller's to free. */
char *snapshot_text(const struct snapshot *snapshot, const struct run *run);
size_t snapshot_text_bytes(size_t layer_count);
/* Reads such a text, of a checkpoint of layer_count layers. *ret_snapshot is the caller's to snapshot_free; without copies. Every number
 * is checked. EDIT_ERROR_MALFORMED with the first fault; EDIT_ERROR_SYSTEM. */
int snapshot_read(const char *text, size_t bytes, size_t layer_count, struct snapshot *ret_snapshot, struct line *why);

#endif

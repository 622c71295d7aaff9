#ifndef EDIT_DAEMON_CHECKPOINT_H
#define EDIT_DAEMON_CHECKPOINT_H

/* Checkpoints: folders state_dir/checkpoints/round-NNNNNN with config.json, model.safetensors (the anchor) and
 * manifest.json (XXH3 of each file and layer). In a mesh a member has pieces: instead of the model it writes
 * piece-C-of-M.safetensors (C from 1), with the elements of each layer that it holds as one tensor [elements] of the layer's
 * name; the manifest then also tells row and column (from 0), shards, and the first element of each piece in its layer.
 * `edit-worker join` makes a model of M of them. Written aside in slices, one per turn of the loop, from a copy of the
 * anchor taken at once; synced, then renamed, so that a folder of that name is whole. The newest checkpoint.keep are kept.
 * What fails here is told and never stops the training. */

#include "daemon/run.h"
#include "proto/safetensors.h"

enum { CHECKPOINT_SLICE_BYTES = 4 << 20 };

struct checkpoint_hash;

struct checkpoint {
	char folder[CONFIG_PATH_MAX];  /* state_dir/checkpoints */
	size_t keep;
	char newest[CONFIG_PATH_MAX];  /* folder of the newest whole one; empty: none */
	char degraded[LINE_BYTES]; /* why the last one could not be written; empty: it was */

	/* while one is being written */
	bool is_busy;
	uint64_t round;
	char place[CONFIG_PATH_MAX], aside[CONFIG_PATH_MAX];
	float *copy;                   /* all layers, one behind the other; owned */
	uint64_t *layer_hashes;        /* [layer_count] XXH3 of anchor, then momentum; owned */
	char file[48];                 /* name of the file with the numbers */
	struct safetensors_tensor *tensors; /* [tensor_count]; owned */
	size_t tensor_count;
	uint64_t *sizes;               /* [layer_count] elements here; owned */
	struct safetensors_writer writer;
	struct checkpoint_hash *hash;  /* of model.safetensors so far; owned */
	const struct run *run;         /* borrowed */
};

/* Finds the newest folder and removes what an earlier daemon left half written. */
void checkpoint_init(struct checkpoint *checkpoint, const struct config *config);
/* Gives up what is being written. */
void checkpoint_close(struct checkpoint *checkpoint);

/* Takes a copy of the anchor of `round`, just completed, and begins to write. False: it cannot
 * (checkpoint->degraded tells). One is written at a time: false also if is_busy. */
bool checkpoint_begin(struct checkpoint *checkpoint, const struct run *run, uint64_t round);

enum checkpoint_result { CHECKPOINT_GOES_ON, CHECKPOINT_WRITTEN, CHECKPOINT_FAILED };

/* Writes one slice of the one that is being written. WRITTEN: checkpoint->newest is it. FAILED:
 * checkpoint->degraded tells. */
enum checkpoint_result checkpoint_step(struct checkpoint *checkpoint);

#endif

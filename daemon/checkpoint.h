#ifndef EDIT_DAEMON_CHECKPOINT_H
#define EDIT_DAEMON_CHECKPOINT_H

/* Checkpoints: folders state_dir/checkpoints/round-NNNNNN with config.json, model.safetensors (the anchor), state.safetensors (what
 * else a restart needs) and manifest.json (daemon/manifest.h). In a mesh a member has pieces: instead of the model it writes
 * piece-C-of-M.safetensors (C from 1), with the elements of each layer that it holds as one tensor [elements] of the layer's
 * name; the manifest then also tells row and column (from 0), shards, and the first element of each piece in its layer.
 * `edit-worker join` makes a model of M of them. Written aside in slices, one per turn of the loop, from copies taken at once
 * (daemon/snapshot.h); synced, then renamed, so that a folder of that name is whole. The newest checkpoint.keep are kept.
 * What fails here is told and never stops the training.
 *
 * state.safetensors: "momentum LAYER" F32 [elements] for each layer; "inner LAYER" F32 [inner_factor x elements] for each, if the inner
 * state is in it; "state" U8 [snapshot_text_bytes], JSON. */

#include "daemon/manifest.h"
#include "daemon/snapshot.h"
#include "proto/safetensors.h"

enum { CHECKPOINT_SLICE_BYTES = 4 << 20 };

struct checkpoint_hash;

/* A file of a checkpoint and what is in it. */
struct checkpoint_file {
	char name[MANIFEST_NAME_MAX + 1];
	struct safetensors_tensor *tensors; /* [tensor_count], owned */
	size_t tensor_count;
	char *names;                        /* owned: names made here */
	uint64_t *dims;                     /* owned: shapes made here */
};

/* The file of the anchor, and that of the rest, of a run whose layers are described by description and cut as segment says. Numbers are
 * those of snapshot, in its order, and text [snapshot_text_bytes]; with a snapshot without copies the data are NULL, and only names and
 * shapes count. EDIT_ERROR_SYSTEM: no memory. The caller's to checkpoint_file_fini, also on failure; borrows all else. */
int checkpoint_model_file(const struct description *description, const struct segment *segment, const struct snapshot *snapshot,
			  struct checkpoint_file *ret_file);
int checkpoint_state_file(const struct description *description, const struct segment *segment, const struct snapshot *snapshot,
			  const char *text, struct checkpoint_file *ret_file);
void checkpoint_file_fini(struct checkpoint_file *file);

enum { CHECKPOINT_MODEL, CHECKPOINT_STATE, CHECKPOINT_FILE_COUNT };

struct checkpoint {
	char folder[CONFIG_PATH_MAX];  /* state_dir/checkpoints */
	size_t keep;
	char newest[CONFIG_PATH_MAX];  /* folder of the newest whole one; empty: none */
	char degraded[LINE_BYTES]; /* why the last one could not be written; empty: it was */

	/* while one is being written */
	bool is_busy;
	uint64_t round;
	char place[CONFIG_PATH_MAX], aside[CONFIG_PATH_MAX];
	struct snapshot snapshot;      /* between checkpoint_prepare and the end */
	char *text;                    /* of the snapshot; owned */
	struct checkpoint_file files[CHECKPOINT_FILE_COUNT];
	size_t file;                   /* being written */
	struct manifest manifest;      /* of what is written so far */
	struct safetensors_writer writer;
	struct checkpoint_hash *hash;  /* of the file so far; owned */
	const struct run *run;         /* borrowed */
};

/* Finds the newest folder and removes what an earlier daemon left half written. */
void checkpoint_init(struct checkpoint *checkpoint, const struct config *config);
/* Gives up what is being written. */
void checkpoint_close(struct checkpoint *checkpoint);

/* Copies the worker's part of the round that is about to end: see snapshot_take_inner. Nothing if is_busy. */
void checkpoint_prepare(struct checkpoint *checkpoint, const struct run *run);
/* Copies the rest of `round`, just completed, and begins to write. False: it cannot (checkpoint->degraded tells). One is written at a
 * time: false also if is_busy. */
bool checkpoint_begin(struct checkpoint *checkpoint, const struct run *run, uint64_t round);

enum checkpoint_result { CHECKPOINT_GOES_ON, CHECKPOINT_WRITTEN, CHECKPOINT_FAILED };

/* Writes one slice of the one that is being written. WRITTEN: checkpoint->newest is it. FAILED:
 * checkpoint->degraded tells. */
enum checkpoint_result checkpoint_step(struct checkpoint *checkpoint);

#endif

#ifndef EDIT_DAEMON_RUN_H
#define EDIT_DAEMON_RUN_H

/* What a run is made of on this node: the worker's description, the segment shared with the worker, the state
 * file, and from them the layers and the facts that all members must share. Comes into being when the first worker
 * attaches; an earlier daemon's files are taken up if they belong together, and never silently thrown away. */

#include "daemon/facts.h"
#include "proto/segment.h"

/* Where a run goes on that has no files in the runtime directory. */
struct run_source {
	char folder[CONFIG_PATH_MAX]; /* a checkpoint; empty: none, it begins with the worker's parameters */
	uint64_t round;               /* of it */
};

struct run {
	const struct config *config;   /* borrowed */
	struct run_source source;      /* the caller's to set before run_attach; stays */
	bool is_member;                /* the same: the ring has begun, with this node, so what is missing here others have */
	bool is_attached;              /* segment and state are there */
	bool is_begun;                 /* anchor 0 or later is in place: the node may start */
	bool is_found;                 /* segment and state are those of an earlier daemon */
	bool is_restored;              /* they were made from a checkpoint by this daemon */
	bool is_nothing;               /* they were made by this daemon for what others have: no layer is known yet */
	bool is_untaken;               /* found, and its worker still waits for theta, which others have */
	bool is_resumed;               /* the worker attached last finds theta of an earlier one */
	struct description description;
	uint64_t description_hash;
	struct segment segment;
	struct state state;
	struct layer *layers;          /* [description.layer_count], owned */
	float *spare;                  /* base and snapshot of all layers, owned: of this process alone, taken when first written */
	size_t spare_bytes;
	struct facts facts;            /* when begun */
};

/* An empty run; config is borrowed for good. */
void run_init(struct run *run, const struct config *config);
/* Unmaps and frees everything; the files stay. The run is empty afterwards. */
void run_close(struct run *run);

/* Round and hash (XXH3 of all layers' hashes) of the run in the runtime directory. False: there is none that can be taken up. */
bool run_look(const struct config *config, uint64_t *ret_round, uint64_t *ret_anchor_hash);

/* Whether node.run was begun by this member before, as the file state_dir/begun-RUN says, whose name goes to path[CONFIG_PATH_MAX]. */
bool run_was_begun(const struct config *config, char *path);

/* A worker describes itself in bytes[size_bytes]. 0: it fits, run is attached (run->is_resumed tells whether theta
 * is that of an earlier worker). Otherwise why says in one line what does not fit: EDIT_ERROR_MALFORMED (no
 * description), EDIT_ERROR_REFUSED (another one than the run's, with the first difference; files of another run),
 * EDIT_ERROR_FULL, EDIT_ERROR_SYSTEM; the run is as before. */
int run_attach(struct run *run, const void *bytes, size_t size_bytes, struct line *why);

/* The worker says that theta is in place. On a fresh run theta becomes anchor 0, settings those of the config; layers and facts
 * are made. Nothing to do if the run is begun. EDIT_ERROR_REFUSED (theta is not finite, facts too large), EDIT_ERROR_SYSTEM. */
int run_begin(struct run *run, uint64_t incarnation, struct line *why);
/* Gives the layers of a run that is fresh, or restored from a checkpoint, to the worker, which steps from then on: so it must have been told before how (what it does with
 * its gradients, when it offers). Once, after run_begin. */
void run_give_layers(struct run *run);

/* Tells workers that attach from now on which of the members this is, as the config has it. Only of a run that is attached. */
void run_take_seat(struct run *run);

/* Whether the worker waits for theta, because it is not what the ring goes on from. Only of a run that is begun. */
bool run_is_outdated(const struct run *run);

/* Whether theta began from another anchor than the state's: its worker was late, or the result of its last offer was still to be
 * added to it. Only of a run that is begun. */
bool run_is_stale(const struct run *run);

/* Gives a torn layer, handed over for that, its anchor again and hands it back. False: there is no such layer, or
 * it is not torn. */
bool run_restore(struct run *run, uint64_t layer_index);

/* The first difference between two descriptions, in one line ("hidden_size: 128, expected 64"). False: none. */
bool run_difference(const struct description *description, const struct description *expected, struct line *ret_line);

#endif

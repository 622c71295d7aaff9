#ifndef EDIT_CORE_PART_H
#define EDIT_CORE_PART_H

/* A member's part in a round, as its worker makes it: when the worker shall offer, what an offer is taken against, what goes on
 * without it, and how a result comes back to a worker that has stepped on.
 *
 * Kinds of rounds. Parameters: pseudo-gradients, judged and weighted. Gradients: those of one step, equal weights, theta follows by
 * the workers' own equal steps, anchor := theta before the step. Alignment: parameters with equal weights, nobody late, one step
 * after the round before; it comes before gradients begin, after a member's worker has lost its place among them, and at the end of
 * a run of gradients. Everybody knows the kind of a round from the settings and records of the round before.
 *
 * What a pseudo-gradient is taken against is the anchor that theta began from. A late member keeps it (layer.base) while the ring
 * goes on. With sync.overlap = steps the layers come back at the offer, and theta := theta + anchor - snapshot is made up for with
 * the next one, so that its progress since counts from the anchor again. */

#include "core/sync.h"

/* After sync_init: the kind of the first round. */
void part_init(struct sync *sync);
/* The ring is complete: the worker may begin. */
void part_begin(struct sync *sync, uint64_t now_us, struct actions *actions);
/* The worker hands over all layers, or begins to hand over gradients. Waits if the round in progress goes on without it.
 * EDIT_ERROR_INVALID if an offer is not due, or the run is finished. */
int part_offer(struct sync *sync, const struct offer *offer, uint64_t now_us);
/* The worker hands over the gradient of one layer, or (absent) has none. EDIT_ERROR_INVALID if it is not due. */
int part_gradient(struct sync *sync, uint32_t layer_index, bool absent);
/* The worker waits for a layer. */
void part_want(struct sync *sync, uint32_t layer_index);
/* Before the round moves: an offer that waited is taken, or the round goes on without the worker, or the worker is told that its
 * time has come. */
void part_watch(struct sync *sync, uint64_t now_us, struct actions *actions);
/* Has the worker a layer back at the next part_give_back, whatever became of its round. */
void part_let_go(struct sync *sync, uint32_t layer_index, enum layer_return how, enum verdict verdict);
/* Gives back at most `most` of these; asks to be called again if there are more. */
void part_give_back(struct sync *sync, uint32_t most, uint64_t now_us, struct actions *actions);
/* The round in progress begins for a member that has come without a theta: it brings nothing, and its worker gets the anchor. */
void part_join(struct sync *sync, bool gradients, uint64_t now_us);
/* Tells the worker what comes next, as it is agreed upon now. */
void part_tell(struct sync *sync, struct actions *actions);
/* The same once the round in progress has agreed on the next one: a late worker goes on by what it was told, if it can. */
void part_tell_next(struct sync *sync, struct actions *actions);
/* A layer that was fetched holds the round that this member's own record was filed for: as after part_commit. */
void part_fetched(struct sync *sync, uint32_t layer_index);
/* Whether the driver holds layers that the worker waits for, in the round in progress. */
static inline bool part_holds_layers(const struct sync *sync)
{
	return sync->offered && !sync->late && !sync->behind;
}
/* Whether what the worker has handed over are gradients, so that theta is with it. */
static inline bool part_holds_gradients(const struct sync *sync)
{
	return sync->gradients && !sync->joins && !sync->late;
}
/* Gives layers back to a worker that steps on, at most `most` of them; true if any. */
bool part_return(struct sync *sync, uint32_t most, struct actions *actions);
/* Writes what this member brings to a layer's round into numbers [size of the layer]; returns its sum of squares (0 if it brings
 * nothing) and the verdict that is certain without its norm (VERDICT_ACCEPTED: judge it). */
double part_numbers(struct sync *sync, uint32_t layer_index, float *numbers, enum verdict *ret_verdict);
/* The layer's mean has been applied (or not). Leaves theta and gradient of a layer that goes back to the worker as the worker shall
 * find them. Returns whether it goes back. */
bool part_commit(struct sync *sync, uint32_t layer_index, const float *mean, bool is_applied);
/* All records of the first layer are there: settles the kind of the next round and tells the worker. */
void part_agree(struct sync *sync, struct actions *actions);
/* The round is over. */
void part_end(struct sync *sync, uint64_t now_us, struct actions *actions);

/* Whether a round is of gradients by the settings, or the alignment for them. */
bool part_wants_gradients(const struct ring_settings *settings, uint64_t round);
/* Whether members count alike in the round in progress, whatever their norms: of gradients, or for alignment. */
static inline bool part_is_equal(const struct sync *sync)
{
	return sync->gradients || sync->aligns;
}

/* Whether the worker keeps its layers during the round in progress. */
static inline bool part_is_behind(const struct sync *sync)
{
	return sync->late || sync->behind;
}

#endif

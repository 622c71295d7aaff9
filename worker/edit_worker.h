#ifndef EDIT_WORKER_H
#define EDIT_WORKER_H

/* libedit-worker: what a training program needs to take part in an EDiT ring. Plain C ABI, no third-party types.
 *
 * Life of a worker:
 *
 *     edit_worker_new -> describe (layers, tensors, facts, config) -> edit_worker_attach
 *       if not edit_worker_is_resumed: write initial theta of every piece, zero the inner state
 *     edit_worker_ready
 *     for each step, from edit_worker_step() on:
 *       forward:   for each layer in order: edit_worker_acquire(l), compute with theta, (edit_worker_release(l))
 *       backward
 *       if edit_worker_averages_gradients(): edit_worker_offer_gradient(l) for each layer, last one first, as soon as the backward
 *         pass has done with it, then edit_worker_mean_gradient(l) for each: all members step with the same gradients
 *       edit_worker_sum of the squares of the pieces' gradients: the norm by which all clip
 *       for each layer: edit_worker_step_begin(l), change theta and inner state of the piece, edit_worker_step_end(l)
 *       edit_worker_step_done(loss, tokens): may offer all layers; returns EDIT_WORKER_STOP when training shall end
 *     edit_worker_finish -> edit_worker_free
 *
 * A replica of the model may be cut over edit_worker_shards() nodes: each has whole layers only while it uses them, and steps
 * its own piece of each (edit_worker_piece). With one node the piece is the layer, and nothing else differs.
 *
 * Functions return 0 or a negative EDIT_WORKER_... code; edit_worker_error() then tells what happened in one line.
 * One thread uses a worker at a time (but see edit_worker_interrupt). Death of the daemon is not an error: calls
 * wait, reconnect when it is back, and go on (but where the replica is cut over several nodes: there they return
 * EDIT_WORKER_SYSTEM, and the next worker goes on from the last round). Death of the worker is not one either: theta,
 * inner state and step stay in the segment, and the next edit_worker_attach resumes there. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define EDIT_WORKER_ABI 1

enum edit_worker_result {
	EDIT_WORKER_OK = 0,
	EDIT_WORKER_STOP = 1,         /* not an error: leave the training loop */
	EDIT_WORKER_INVALID = -1,     /* a call out of order, or an argument that cannot be */
	EDIT_WORKER_UNREACHABLE = -3, /* no daemon on the socket within the time given */
	EDIT_WORKER_REFUSED = -4,     /* the daemon will not have this worker (text says why) */
	EDIT_WORKER_SYSTEM = -5       /* a system call failed (text says which); the daemon of a cut replica has ended */
};

struct edit_worker;

/* A new worker that will use the daemon's socket_path (runtime_dir/worker.sock). NULL if memory is short. */
struct edit_worker *edit_worker_new(const char *socket_path);
/* Releases everything; the segment's file stays. NULL is allowed. */
void edit_worker_free(struct edit_worker *worker);
/* One line about the last failure; never NULL; valid until the next call. */
const char *edit_worker_error(const struct edit_worker *worker);

/* ---- Description: before attach ---- */

/* Appends a layer; name as people know it ("embedding", "block 0"). Returns its index, or a negative code. */
int edit_worker_add_layer(struct edit_worker *worker, const char *name);
/* Appends a float32 tensor to the layer added last: name as in safetensors, dims[rank], row-major, packed behind the
 * layer's earlier tensors. The layer's size is the sum. */
int edit_worker_add_tensor(struct edit_worker *worker, const char *name, const uint64_t *dims, size_t rank);
/* A fact that must be equal on all members ("hidden_size" = "128"); refused at hello otherwise, by name. */
int edit_worker_add_fact(struct edit_worker *worker, const char *key, const char *value);
/* Text of config.json, copied into checkpoints as it is. */
int edit_worker_set_config(struct edit_worker *worker, const char *text);
/* Inner optimiser state kept in the segment: factor x size float32 per layer (AdamW: 2). Default 0. */
int edit_worker_set_inner(struct edit_worker *worker, unsigned factor);

/* ---- Attached ---- */

/* Connects, describes, maps the segment. Waits up to timeout_ms for a daemon (-1: for ever). */
int edit_worker_attach(struct edit_worker *worker, int timeout_ms);
/* 1 if theta and inner state in the segment are those of an earlier worker of the same description, else 0. */
int edit_worker_is_resumed(const struct edit_worker *worker);
/* This member's place in the ring: rank in [0, count). */
unsigned edit_worker_rank(const struct edit_worker *worker);
unsigned edit_worker_count(const struct edit_worker *worker);
/* Steps that the run is ahead of this worker, which joined later or has lost some: to be added to the number of a step where a learning
 * rate follows from it. Members that average gradients must have the same rate. Changes only while the worker has no layer. */
uint64_t edit_worker_lead(const struct edit_worker *worker);
/* Members come and go: 1 if the place is another one than *rank of *count, which then become what it is; else 0. */
int edit_worker_moved(const struct edit_worker *worker, unsigned *rank, unsigned *count);
/* Local steps done since the run began: data position and schedule follow from it. */
uint64_t edit_worker_step(const struct edit_worker *worker);
/* Completed rounds. */
uint64_t edit_worker_round(const struct edit_worker *worker);
/* Nodes over which this member's replica is cut, at least 1. */
unsigned edit_worker_shards(const struct edit_worker *worker);
/* theta: float32 [size of the layer]; 64-byte aligned. With one shard it is the worker's to change and stays in place until free.
 * With more it is to be read only, there from acquire to release of the layer, and elsewhere each time. */
float *edit_worker_theta(struct edit_worker *worker, unsigned layer);
/* The part of the layer that this worker fills and steps, elements [*ret_first, *ret_first + *ret_count) of it: their theta,
 * float32 [*ret_count], which stays in place until free. *ret_count may be 0; with one shard it is the whole layer. NULL if there
 * is no such layer, or not attached. */
float *edit_worker_piece(struct edit_worker *worker, unsigned layer, size_t *ret_first, size_t *ret_count);
/* Inner state of the piece: float32 [factor x count]. NULL if factor is 0. */
float *edit_worker_inner(struct edit_worker *worker, unsigned layer);
/* Says that theta is in place; the ring may take it as anchor 0. Returns when the message is sent. */
int edit_worker_ready(struct edit_worker *worker);

/* ---- Training ---- */

/* Waits while the layer is on the ring; afterwards theta may be read and, by a step, changed. Returns
 * EDIT_WORKER_STOP when training shall end. ret_nonfinite_round (may be NULL): the round just published if the layer was
 * left out of it as nonfinite, so that its inner state must be zeroed; told once per round, otherwise 0. */
int edit_worker_acquire(struct edit_worker *worker, unsigned layer, uint64_t *ret_nonfinite_round);
/* The layer is not needed any more in this pass. */
void edit_worker_release(struct edit_worker *worker, unsigned layer);
/* Bracket every change of a piece's theta and inner state: a worker killed between them leaves a layer that is torn,
 * and the next worker gets its anchor again. */
void edit_worker_step_begin(struct edit_worker *worker, unsigned layer);
void edit_worker_step_end(struct edit_worker *worker, unsigned layer);
/* 1 if the gradients of the step in progress are averaged over all members; always with more than one shard. Otherwise settled
 * once the forward pass has acquired all layers. */
int edit_worker_averages_gradients(const struct edit_worker *worker);
/* Hands over a layer's gradient, float32 [size of the layer], last layer first; copies it and returns at once. The layer's theta
 * must not be changed, nor the layer acquired, until edit_worker_mean_gradient has returned it. With more than one shard, after every
 * backward pass of a step: they are added up, and the layer may be acquired in between. is_final: this is the last step. The
 * first call after edit_worker_averages_gradients has become 1 sets the inner state of all layers to 0: members begin with equal
 * ones (see edit_worker_inner_step). */
int edit_worker_offer_gradient(struct edit_worker *worker, unsigned layer, const float *gradient, int is_final);
/* Waits for the mean over the members and copies the piece's part of it to gradient [count of the piece]. If nobody's was finite its
 * first element is NaN: then no member takes a step. gradient NULL: it stays where edit_worker_gradient says. EDIT_WORKER_STOP when
 * training shall end. */
int edit_worker_mean_gradient(struct edit_worker *worker, unsigned layer, float *gradient);
/* Where the mean of the piece is once edit_worker_mean_gradient has waited for it, float32 [count of the piece], until the layer's
 * gradient is offered again; so no memory of the worker's own is needed for it. */
float *edit_worker_gradient(struct edit_worker *worker, unsigned layer);
/* Sum of value over the nodes of the replica, each with the same bits; value itself with one shard. Once per step, before any layer
 * is stepped. EDIT_WORKER_STOP when training shall end: then ret_sum is as it was. */
int edit_worker_sum(struct edit_worker *worker, double value, double *ret_sum);
/* The step at which the inner state was last set to 0 (0: at the begin): what a bias correction counts from. */
uint64_t edit_worker_inner_step(const struct edit_worker *worker);
/* A local step is done: mean loss in nats per token (NaN if unknown), tokens trained on. Waits while training is
 * paused, then offers all layers if a round is due. is_final: no step will follow; always offers, and returns
 * EDIT_WORKER_OK when the round is complete and theta its result. EDIT_WORKER_STOP when training shall end at once. */
int edit_worker_step_done(struct edit_worker *worker, double loss, uint64_t tokens, int is_final);
/* Time spent waiting for layers since the run began, microseconds. */
uint64_t edit_worker_wait_us(const struct edit_worker *worker);
/* Tells the daemon that the training loop has ended. Makes the final offer and waits for its round if that is still to be
 * done: an earlier worker may have died just before it. EDIT_WORKER_UNREACHABLE if the daemon is not there to hear it. */
int edit_worker_finish(struct edit_worker *worker);
/* Makes every running and later call that waits return EDIT_WORKER_STOP within a quarter of a second. The only
 * function that may be called from a signal handler or another thread. */
void edit_worker_interrupt(struct edit_worker *worker);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif

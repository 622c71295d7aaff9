#ifndef EDIT_WORKER_EDIT_WORKER_LINK_H
#define EDIT_WORKER_EDIT_WORKER_LINK_H

/* The connection of libedit-worker to its daemon: made, kept, and made again when the daemon was away. What the
 * library must remember is here too; edit_worker.c is the calls. A bell that is lost with a connection is no loss:
 * after every new connection link_tell says again whatever still holds. */

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/segment.h"
#include "worker/edit_worker.h"

struct edit_worker_layer {
	uint64_t told_round;   /* its nonfinite verdict was told to the caller; UINT64_MAX: none */
	uint64_t wanted_offer; /* header.offers when WANT was rung; 0: not rung */
	bool is_restoring;     /* torn; the daemon was asked for its anchor */
};

/* A slot of the segment that a whole layer passes through. */
struct edit_worker_slot {
	uint64_t call;  /* the collective that it was asked for; 0: free */
	unsigned layer;
	bool is_held;   /* theta: acquired and not released */
};

struct edit_worker {
	struct sockaddr_un address;
	struct description description;
	void *encoded; /* the description as bytes, from the first attach on */
	size_t encoded_bytes;
	uint64_t description_hash;
	int socket;                       /* -1: no connection */
	struct segment segment;           /* mapped from the first attach on */
	struct edit_worker_layer *layers; /* [segment.layer_count] */
	bool is_attached, is_resumed, is_ready, is_finished;
	uint64_t boundary_us;     /* monotonic, of the last step boundary */
	_Atomic int interrupted;
	bool has_ended;           /* the round that no step follows is complete */
	/* of a mesh */
	struct edit_worker_slot slots[SEGMENT_SLOT_COUNT]; /* theta, then a gradient */
	uint64_t calls;           /* collectives asked for */
	unsigned *sequence, *recorded; /* [sequence_room] layers acquired in the last step, and in this one */
	size_t sequence_count, recorded_count, sequence_room;
	uint64_t *gradient_step;  /* [segment.layer_count] step, from 1, that the layer's gradient is of */
	bool has_means;           /* of this step's gradients, over the replica */
	bool has_summed, wants_offer; /* this step's sum is known, and that all offer after it */
	bool is_final;            /* the gradients handed over are those of the last step */
	bool is_misused;          /* a call of no result was wrong; the next step_done tells */
	struct line error;
};

/* A call out of order or with an argument that cannot be: keeps what and returns EDIT_WORKER_INVALID. */
int worker_invalid(struct edit_worker *worker, const char *what);
/* Whether layer is one of an attached worker. */
bool worker_has_layer(const struct edit_worker *worker, unsigned layer);
/* Whether the gradients of the step in progress are with the ring. */
bool worker_is_handing(const struct edit_worker *worker);
/* Waits until the daemon has handed a layer back; the time counts as exposed. EDIT_WORKER_OK, _STOP, or what link_wait returns. */
int worker_await_layer(struct edit_worker *worker, unsigned layer);

/* Whether the replica is cut over several nodes. */
static inline bool mesh_is_cut(const struct edit_worker *worker) { return worker->segment.shards > 1; }

/* Never; for deadlines in monotonic microseconds. */
#define LINK_FOREVER UINT64_MAX

/* Monotonic clock, microseconds. */
uint64_t link_now_us(void);

/* Whether the caller shall leave its loop: the daemon's stop word, or edit_worker_interrupt. */
bool link_is_stopped(const struct edit_worker *worker);

/* Connects and describes, for the first time or again; tries until deadline_us. The first time it maps the segment;
 * later the segment must be the same. EDIT_WORKER_OK, _STOP (interrupted), _UNREACHABLE, _REFUSED or _SYSTEM. */
int link_open(struct edit_worker *worker, uint64_t deadline_us);

/* Rings one bell if there is a connection. Without one, or if it breaks, the next connection tells. */
void link_ring(struct edit_worker *worker, enum segment_bell_kind kind, uint64_t value);

/* Rings all that holds now and may not have been heard: READY, RESTORE of each torn layer, OFFER, FINISHED. Every new
 * connection of an attached worker does so by itself. */
void link_tell(struct edit_worker *worker);

/* Waits a moment: until the daemon rings, up to a quarter of a second; connects again if need be. EDIT_WORKER_OK
 * (look again), _REFUSED or _SYSTEM (also: the daemon of a mesh has ended). */
int link_wait(struct edit_worker *worker);

/* Takes what was rung meanwhile, without waiting; if there is no connection, one try to make one. Results as
 * link_wait. */
int link_poll(struct edit_worker *worker);

/* Closes the connection, if there is one. */
void link_close(struct edit_worker *worker);

#endif

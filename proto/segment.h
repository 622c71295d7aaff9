#ifndef EDIT_PROTO_SEGMENT_H
#define EDIT_PROTO_SEGMENT_H

/* The contract between daemon and worker: a file in runtime_dir mapped by both, and the messages of the
 * SOCK_SEQPACKET socket runtime_dir/worker.sock (proto/bell.h), which is doorbell and life line (end of file: the
 * other side died).
 *
 * The daemon creates the file from the worker's description and passes its descriptor with the ATTACHED message.
 * Every field has one writer, named below; readers never lock. Numbers are in the host's byte order: the file never
 * leaves it.
 *
 *   offset 0       struct segment_header          one page
 *   layers_offset  struct segment_layer [layer_count]
 *   steps_offset   struct segment_step [SEGMENT_STEP_COUNT]
 *   theta_offset   float32, layer after layer, each begun on a 64-byte boundary
 *   inner_offset   float32, inner_factor x size of each layer, in the same order; the worker's own (AdamW m and v)
 *   gradient_offset float32, as theta: a layer's gradient when it is handed over, the mean when it comes back
 *   slots_offset   float32, SEGMENT_SLOT_COUNT x the largest whole layer; nothing if the replica is not cut
 *
 * In a mesh a layer here is the own piece of it. Whole layers pass through the slots: theta when it is gathered, gradients when they
 * are handed out. The worker asks for that in order (struct segment_call), all nodes of the replica for the same.
 */

#include <stdatomic.h>

#include "core/layer.h"
#include "proto/bell.h"
#include "proto/description.h"
#include "proto/mapping.h"

enum {
	SEGMENT_VERSION = 5,
	SEGMENT_STEP_COUNT = 1024,
	SEGMENT_CALL_COUNT = 16,
	SEGMENT_THETA_SLOTS = 3, /* one in use, one ahead, one for an embedding that the head shares */
	SEGMENT_GRADIENT_SLOT = SEGMENT_THETA_SLOTS, /* one: the worker makes the next layer's in memory of its own */
	SEGMENT_SLOT_COUNT,
	SEGMENT_PAGE = 4096 /* alignment of the header's successor, theta and inner */
};

/* "EDITSEG1" read as a little-endian number. */
#define SEGMENT_MAGIC UINT64_C(0x3147455354494445)

/* Who may touch theta of a layer. */
enum segment_owner {
	SEGMENT_WORKER = 1, /* published: the worker computes with it and steps it */
	SEGMENT_DAEMON = 2  /* offered: the worker keeps off until it is published again; or its gradient is handed over: the worker
			     * reads theta and changes nothing */
};

/* A collective that the worker asks for: number n, from 1 since the daemon's start, at index n % SEGMENT_CALL_COUNT. */
struct segment_call {
	_Alignas(64) _Atomic uint64_t asked; /* worker, after the words below: its number */
	uint32_t kind;                       /* worker: enum collective_kind */
	uint32_t layer_index, slot;          /* worker */
	_Atomic uint64_t done;               /* daemon: its number, when it is */
};

enum segment_stop {
	SEGMENT_STOP_ENDED = 1, /* the run, also for a daemon that starts later */
	SEGMENT_STOP_LEFT       /* this node has left the ring, until its daemon starts anew */
};

struct segment_header {
	/* written once by the daemon before the worker maps it */
	uint64_t magic;
	uint32_t version;
	uint32_t layer_count;
	uint64_t size_bytes;
	uint64_t layers_offset, steps_offset, theta_offset, inner_offset, gradient_offset, slots_offset;
	uint32_t inner_factor;
	_Atomic uint32_t member_rank, member_count; /* of the ring: which part of the data is ours; other ones when members have changed */
	uint32_t shards, column;            /* of the mesh: pieces of a replica, and which one is here */
	uint32_t looks_ahead;               /* of the mesh: layers gathered before they are needed, 0 or 1 */
	uint64_t slot_size;                 /* elements of a slot */
	uint64_t description_hash; /* of what the worker described; a segment is reused only for the same */

	/* Written by the daemon. The worker offers at the first boundary with step >= offer_step, once: a value that is not
	 * above offered_step is an old one. The next one is written before the last layer of a round is published. */
	_Alignas(64) _Atomic uint64_t offer_step;
	_Atomic uint64_t round;  /* completed rounds */
	_Atomic uint32_t paused; /* not 0: do not begin another step */
	_Atomic uint32_t stop;   /* enum segment_stop; not 0: leave the training loop */
	_Atomic uint32_t whole;  /* not 0: compute with no layer before all are published (sync.overlap = none) */
	_Atomic uint32_t gradients; /* not 0: hand over the gradients of each step, from the next one that begins */

	/* of a mesh, written by the daemon: the last sum over the replica, its number written last */
	double sum;
	uint32_t sum_wants_offer;    /* not 0: some node's worker is to offer at the end of this step */
	_Atomic uint64_t summed;

	_Atomic uint64_t lead; /* daemon: steps that the run is ahead of this worker, for its learning rate */

	/* written by the worker */
	_Alignas(64) _Atomic uint64_t step; /* local steps done since the run began */
	_Atomic uint64_t tokens;            /* trained on since the run began */
	_Atomic uint64_t offers;            /* offers made */
	_Atomic uint64_t offered_step;      /* step of the last offer of theta */
	_Atomic uint64_t handed_step;       /* number, from 1, of the last step whose gradients were handed over; above step: in progress */
	_Atomic uint64_t wait_us;           /* time spent waiting in acquire since the run began */
	_Atomic uint32_t initialised;       /* theta holds the initial parameters */
	_Atomic uint32_t final_step;        /* not 0: no step will follow the last offer, or the one in progress */
	_Atomic uint32_t realign;           /* not 0: a worker died in a step whose gradients it handed over: theta may be off */
	_Atomic uint32_t is_averaging;      /* not 0: inner state was begun anew for gradients, and no theta offered since */
	_Atomic uint64_t inner_step;        /* step at which inner state was begun anew */
	_Atomic uint64_t gather_us;         /* of a mesh: time spent waiting for whole layers since the run began */
	double sum_part;                    /* of a mesh: own part of the next sum over the replica, its number written last */
	uint32_t sum_part_wants_offer;      /* not 0: this node's worker is to offer at the end of this step */
	_Atomic uint64_t sums;

	struct segment_call calls[SEGMENT_CALL_COUNT];
};

struct segment_layer {
	_Alignas(64) _Atomic uint32_t owner; /* enum segment_owner: set to DAEMON by the worker, to WORKER by the daemon */
	_Atomic uint32_t verdict;            /* daemon, before owner: enum verdict of the last published round (0: none); of the mean,
					      * with gradients */
	_Atomic uint64_t round;              /* daemon, before owner: round of the theta published last */
	_Atomic uint64_t begun_step;         /* worker: step that began to change theta and inner state of the layer */
	_Atomic uint64_t ended_step;         /* worker: step that has done so; differs from begun_step: torn */
	uint64_t size;                       /* daemon, once: elements here */
	uint64_t whole_size;                 /* daemon, once: elements of the whole layer */
	uint64_t theta_offset;               /* daemon, once: bytes from the begin of the file */
	uint64_t inner_offset;               /* daemon, once */
	uint64_t gradient_offset;            /* daemon, once */
};

/* One finished step, at index step % SEGMENT_STEP_COUNT; written by the worker before header.step grows. */
struct segment_step {
	uint64_t step;    /* its number, from 0: header.step before it grew */
	uint64_t tokens;  /* in this step */
	uint64_t step_us; /* from the last boundary to this one */
	double loss;      /* nats per token */
};

_Static_assert(sizeof(struct segment_header) <= 4096, "the header fits its page");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "shared words are plain words");

/* ---- Making, mapping and looking ---- */

/* A mapped segment. Sizes and places of layers are the process's own copies, taken when they were checked: what the
 * other side writes later cannot lead an access astray. */
struct segment {
	struct mapping mapping;
	struct segment_header *header;
	struct segment_layer *layers; /* [layer_count] */
	struct segment_step *steps;   /* [SEGMENT_STEP_COUNT] */
	size_t layer_count;
	unsigned inner_factor;
	uint32_t shards, column;
	float *slots;                 /* [SEGMENT_SLOT_COUNT][slot_size]; NULL if shards is 1 */
	size_t slot_size;
	struct segment_place *places; /* [layer_count], owned */
};

/* Where the parts of one layer lie. */
struct segment_place {
	size_t size;  /* elements */
	size_t whole_size; /* of the whole layer */
	float *theta; /* [size], 64-byte aligned */
	float *inner; /* [inner_factor x size], 64-byte aligned; NULL if inner_factor is 0 */
	float *gradient; /* [size], 64-byte aligned */
};

/* A member's place, and the piece of the model that it holds. */
struct segment_seat {
	uint32_t rank, count;    /* of the members: which part of the data is ours */
	uint32_t column, shards; /* 0 of 1 without a mesh */
	uint32_t looks_ahead;
};

/* Bytes of the segment for a description, of a replica in so many pieces: the largest of them. */
uint64_t segment_size(const struct description *description, uint32_t shards);

/* Makes the file path for a description (which must pass description_check), mode 0660, in place of any older one,
 * and maps it: theta and inner all zero, every layer owned by the worker, offer_step UINT64_MAX. description_hash as
 * of description_hash(). EDIT_ERROR_FULL if there is no room (both sizes in why), EDIT_ERROR_SYSTEM. */
int segment_create(const char *path, const struct description *description, uint64_t description_hash,
		   const struct segment_seat *seat, struct segment *ret_segment, struct line *why);

/* Maps an existing segment after checking every field and offset of header and layer table against the file's real
 * size. EDIT_ERROR_UNKNOWN if there is no such file, EDIT_ERROR_MALFORMED if it is damaged or of another version,
 * EDIT_ERROR_SYSTEM. */
int segment_open(const char *path, struct segment *ret_segment, struct line *why);
/* The same for a descriptor; takes fd over, also on failure. */
int segment_adopt(int fd, struct segment *ret_segment, struct line *why);

/* Unmaps and frees; the file stays. Safe on a segment_close()d or all-zero one. */
void segment_close(struct segment *segment);

/* theta and gradient [size] of a layer; inner state [inner_factor x size], NULL if the factor is 0; size in elements. CHECK the
 * index. */
float *segment_theta(const struct segment *segment, size_t layer_index);
float *segment_gradient(const struct segment *segment, size_t layer_index);
float *segment_inner(const struct segment *segment, size_t layer_index);
size_t segment_layer_size(const struct segment *segment, size_t layer_index);
/* Elements of the whole layer, the first of them here, and a slot [slot_size]. */
size_t segment_whole_size(const struct segment *segment, size_t layer_index);
size_t segment_first(const struct segment *segment, size_t layer_index);
float *segment_slot(const struct segment *segment, size_t slot);

/* Whether a worker died while it changed the layer: theta and inner state are then a mix of two steps. */
bool segment_is_torn(const struct segment *segment, size_t layer_index);

/* Sums of the finished steps numbered [from_step, to_step): tokens, mean loss weighted by step (NaN if none, or if
 * one is NaN). Steps that are no longer in the table are left out. */
void segment_sum_steps(const struct segment *segment, uint64_t from_step, uint64_t to_step, uint64_t *ret_tokens,
		       double *ret_loss);

#endif

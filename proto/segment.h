#ifndef EDIT_PROTO_SEGMENT_H
#define EDIT_PROTO_SEGMENT_H

/* The contract between daemon and worker: a file in runtime_dir mapped by both, and the messages of the SOCK_SEQPACKET
 * socket runtime_dir/worker.sock, which is doorbell and life line (end of file: the other side died).
 *
 * The daemon creates the file from the worker's description and passes its descriptor with the ATTACHED message. Every
 * field has one writer, named below; readers never lock. Numbers are in the host's byte order: the file never leaves it.
 *
 *   offset 0       struct segment_header          one page
 *   layers_offset  struct segment_layer [layer_count]
 *   steps_offset   struct segment_step [SEGMENT_STEP_COUNT]
 *   theta_offset   float32, layer after layer, each begun on a 64-byte boundary
 *   inner_offset   float32, inner_factor x size of each layer, in the same order; the worker's own (AdamW m and v)
 */

#include <stdatomic.h>

#include "core/layer.h"

enum {
	SEGMENT_VERSION = 1,
	SEGMENT_STEP_COUNT = 1024,
	SEGMENT_DESCRIPTION_MAX = 4 << 20, /* bytes of a worker's description */
	SEGMENT_INNER_FACTOR_MAX = 8
};


/* "EDITSEG1" read as a little-endian number. */
#define SEGMENT_MAGIC UINT64_C(0x3147455354494445)

/* Who may touch theta of a layer. */
enum segment_owner {
	SEGMENT_WORKER = 1, /* published: the worker computes with it and steps it */
	SEGMENT_DAEMON = 2  /* offered: the worker keeps off until it is published again */
};

struct segment_header {
	/* written once by the daemon before the worker maps it */
	uint64_t magic;
	uint32_t version;
	uint32_t layer_count;
	uint64_t size_bytes;
	uint64_t layers_offset, steps_offset, theta_offset, inner_offset;
	uint32_t inner_factor;
	uint32_t member_rank, member_count; /* of the ring: which part of the data is ours */
	uint32_t reserved;
	uint64_t description_hash; /* of what the worker described; a segment is reused only for the same */

	/* written by the daemon */
	_Alignas(64) _Atomic uint64_t offer_step; /* the worker offers at the first boundary with step >= this */
	_Atomic uint64_t round;                   /* completed rounds */
	_Atomic uint32_t paused;                  /* not 0: do not begin another step */
	_Atomic uint32_t stop;                    /* not 0: leave the training loop */

	/* written by the worker */
	_Alignas(64) _Atomic uint64_t step; /* local steps done since the run began */
	_Atomic uint64_t tokens;            /* trained on since the run began */
	_Atomic uint64_t offers;            /* offers made */
	_Atomic uint64_t offered_step;      /* step of the last offer */
	_Atomic uint64_t wait_us;           /* time spent waiting in acquire since the run began */
	_Atomic uint32_t initialised;       /* theta holds the initial parameters */
	_Atomic uint32_t final_step;        /* not 0: no step will follow the last offer */
};

struct segment_layer {
	_Alignas(64) _Atomic uint32_t owner; /* enum segment_owner: set to DAEMON by the worker, to WORKER by the daemon */
	_Atomic uint32_t verdict;            /* daemon, before owner: enum verdict of the last published round (0: none) */
	_Atomic uint64_t round;              /* daemon, before owner: round of the theta published last */
	_Atomic uint64_t begun_step;         /* worker: step that began to change theta and inner state of the layer */
	_Atomic uint64_t ended_step;         /* worker: step that has done so; differs from begun_step: torn */
	uint64_t size;                       /* daemon, once: elements */
	uint64_t theta_offset;               /* daemon, once: bytes from the begin of the file */
	uint64_t inner_offset;               /* daemon, once */
};

/* One finished step, at index step % SEGMENT_STEP_COUNT; written by the worker before header.step grows. */
struct segment_step {
	uint64_t step;
	uint64_t tokens; /* in this step */
	uint64_t step_us;
	double loss;     /* nats per token */
};

_Static_assert(sizeof(struct segment_header) <= 4096, "the header fits its page");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "shared words are plain words");

/* ---- The doorbell socket: one struct segment_bell per packet; ATTACH is followed by the description ---- */

enum segment_bell_kind {
	BELL_ATTACH = 1, /* worker -> daemon: kind, then the description (proto/description.h) in further packets */
	BELL_ATTACHED,   /* daemon -> worker: carries the segment's descriptor */
	BELL_REFUSED,    /* daemon -> worker: text says why */
	BELL_READY,      /* worker -> daemon: initial theta is in place */
	BELL_OFFER,      /* worker -> daemon: all layers are offered */
	BELL_PUBLISH,    /* daemon -> worker: some layer was published, or offer_step, paused or stop changed: look again */
	BELL_WANT,       /* worker -> daemon: waits for layer `value`, not published yet (once per layer and round) */
	BELL_RESTORE,    /* worker -> daemon: layer `value` is torn, give me the anchor again */
	BELL_FINISHED,   /* worker -> daemon: the training loop has ended */
	BELL_END
};

struct segment_bell {
	uint32_t kind;
	uint32_t version;  /* SEGMENT_VERSION */
	uint64_t value;    /* ATTACH: bytes of description; ATTACHED: bytes of the segment; WANT, RESTORE: layer index */
	uint64_t flags;    /* ATTACHED: 1 = theta and inner state are those of an earlier worker */
	char text[232];    /* REFUSED: reason */
};

#endif

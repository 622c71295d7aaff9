#ifndef EDIT_CORE_LINK_H
#define EDIT_CORE_LINK_H

/* The ring stream: a reliable, ordered stream of frames from a member to its right neighbour, over a transport that may lose,
 * repeat or reorder. Everything that the ring does rests on this order: whatever left sent before has been seen before.
 *
 * The sender numbers frames and keeps only their description; contents are read from the tables and buffers that they name
 * when they are sent, and again if they must be sent again. The receiver takes frames in order only and acknowledges
 * cumulatively, in heartbeats. On a gap it asks once for a resend; if nothing moves, the sender goes back by itself, at
 * doubling intervals. Unacknowledged payload is bounded by wire.window, frames by LINK_FLIGHT_MAX. */

#include "core/event.h"

enum {
	LINK_FLIGHT_MAX = 512,   /* frames sent and not acknowledged */
	LINK_ACK_FRAMES = 32,    /* acknowledge at the latest after so many frames, */
	LINK_ACK_DELAY_US = 2000 /* or after so long */
};

/* Description of one frame of the ring stream. */
struct frame {
	enum message_kind kind; /* of the stream: not HELLO, REFUSE or HEARTBEAT */
	uint32_t layer_index;
	uint32_t origin;        /* of all but CHUNK, where it is the index of the work buffer, and CHANGE */
	uint64_t round;
	union {
		struct chunk chunk;
		struct change change;
		struct holding holding;
		enum scalar_kind scalar;
	};
};

struct link {
	/* to the right neighbour */
	struct frame *waiting; /* [waiting_capacity] small frames not numbered yet, a ring */
	size_t waiting_capacity, waiting_head, waiting_count;
	struct frame flight[LINK_FLIGHT_MAX]; /* frames [acknowledged, end), at number % LINK_FLIGHT_MAX */
	uint64_t acknowledged, cursor, end;   /* acknowledged <= cursor (next to send) <= end */
	size_t flight_bytes;                  /* payload in flight */
	uint64_t progress_us;                 /* last time that acknowledged moved, or that a first frame was sent */
	uint64_t retry_us, retry_now_us;      /* setting; its present doubling */
	uint64_t sent_again;                  /* frames, for statistics */
	uint64_t resent_for;                  /* a request to resend from here has been served */
	bool resend_served;
	uint64_t sent_bytes;                  /* payload, since start */

	/* from the left neighbour */
	uint64_t expected;     /* number of the next frame to take */
	uint64_t reported;     /* `expected` at the last acknowledgement */
	size_t unreported_bytes;
	uint64_t report_at_us; /* UINT64_MAX: nothing to report */
	bool gap;              /* a later frame came; ask for a resend once */
	bool gap_reported;
	uint64_t dropped;      /* frames out of order or repeated */
};

/* Bytes of the block for `capacity` waiting small frames. */
size_t link_size(size_t capacity);
/* A fresh link; block (8-byte aligned, link_size(capacity)) stays the caller's. retry_us: resend interval. */
void link_init(struct link *link, void *block, size_t capacity, uint64_t retry_us);
/* The right neighbour is a new incarnation: numbering starts again, nothing is in flight or waiting. */
void link_reset_right(struct link *link);
/* The left neighbour is a new incarnation. */
void link_reset_left(struct link *link);

/* Queues a small frame (everything but CHUNK). There is room for all that a correct ring can owe; EDIT_ERROR_FULL otherwise. */
int link_push(struct link *link, const struct frame *frame);
/* May another frame of payload_bytes be numbered and sent now? Always for the first in flight, whatever its size. */
bool link_has_room(const struct link *link, size_t payload_bytes, size_t window_bytes);
/* Numbers a frame (a chunk, or one from the waiting ones) and puts it in flight; it is sent when the cursor reaches it. */
void link_launch(struct link *link, const struct frame *frame, uint64_t now_us);
/* Moves a waiting small frame into flight. false: none waits or no room. */
bool link_launch_waiting(struct link *link, size_t window_bytes, uint64_t now_us);
/* Next frame to send, with its number; advances the cursor. NULL: all are sent. */
const struct frame *link_next(struct link *link, uint64_t *ret_sequence);
/* The right neighbour has received all frames before `received` (and asks to send again from there, if resend). Returns true
 * if anything moved. A number beyond what was sent is ignored. */
bool link_acknowledge(struct link *link, uint64_t received, bool resend, uint64_t now_us);
/* Called at any time: goes back to the first unacknowledged frame if nothing has moved for the retry interval. */
void link_retry(struct link *link, uint64_t now_us);
/* When link_retry has something to do; UINT64_MAX: never. */
uint64_t link_retry_at(const struct link *link);

/* A frame came from the left. true: it is the next one, take it. false: repeated or too early, drop it. */
bool link_accept(struct link *link, uint64_t sequence, size_t payload_bytes, size_t window_bytes, uint64_t now_us);
/* Shall an acknowledgement be sent now? */
bool link_must_report(const struct link *link, uint64_t now_us);
/* An acknowledgement is being made out: its two fields. */
void link_report(struct link *link, uint64_t *ret_received, bool *ret_resend);

#endif

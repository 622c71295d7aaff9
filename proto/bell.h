#ifndef EDIT_PROTO_BELL_H
#define EDIT_PROTO_BELL_H

/* The doorbell: messages of the SOCK_SEQPACKET socket between worker and daemon, runtime_dir/worker.sock, one struct
 * segment_bell per packet. Whatever must survive stands in the segment; a bell only says "look again", so one that
 * is rung twice does no harm. End of file: the other side died.
 *
 *   worker                                   daemon
 *     ATTACH, then the description's bytes ->
 *                                         <-  REFUSED text, or ATTACHED with the segment's descriptor
 *     RESTORE layer (each torn one)        ->
 *     READY                                ->
 *     OFFER, GRADIENT, WANT layer ...      ->
 *                                         <-  PUBLISH ...
 *     FINISHED                             ->
 *
 * Functions never block; the descriptor stays the caller's. */

#include "core/base.h"

enum {
	BELL_TEXT_MAX = 231,
	BELL_PART_BYTES = 65536 /* the description comes in packets of this size, the last one shorter */
};

enum segment_bell_kind {
	BELL_ATTACH = 1, /* worker -> daemon: then the description (proto/description.h) in further packets */
	BELL_ATTACHED,   /* daemon -> worker: carries the segment's descriptor */
	BELL_REFUSED,    /* daemon -> worker: text says why */
	BELL_READY,      /* worker -> daemon: initial theta is in place */
	BELL_OFFER,      /* worker -> daemon: theta of all layers is offered */
	BELL_PUBLISH,    /* daemon -> worker: some layer was published, or offer_step, paused or stop changed: look again */
	BELL_WANT,       /* worker -> daemon: waits for layer `value`, not published yet (once per layer and round) */
	BELL_RESTORE,    /* worker -> daemon: layer `value` is torn, give me the anchor again */
	BELL_FINISHED,   /* worker -> daemon: the training loop has ended */
	BELL_GRADIENT,   /* worker -> daemon: a layer's gradient is handed over */
	BELL_CALL,       /* worker -> daemon: of a mesh: asks for a collective or a sum */
	BELL_END
};

enum { BELL_FLAG_RESUMED = 1 };

struct segment_bell {
	uint32_t kind;
	uint32_t version; /* SEGMENT_VERSION */
	uint64_t value;   /* ATTACH: bytes of description; ATTACHED: bytes of the segment; WANT, RESTORE: layer index */
	uint64_t flags;   /* ATTACHED: BELL_FLAG_RESUMED: theta and inner state are those of an earlier worker */
	char text[BELL_TEXT_MAX + 1]; /* REFUSED: reason */
};

/* Sends one bell; text may be NULL; passed_fd goes along unless it is -1. EDIT_ERROR_FULL (the other side does not
 * read: try again when the socket is writable) or EDIT_ERROR_LOST. */
int bell_send(int socket, enum segment_bell_kind kind, uint64_t value, uint64_t flags, const char *text, int passed_fd);

/* Takes the next bell. *ret_fd: the descriptor that came along, now the caller's, or -1. EDIT_ERROR_BUSY (none there
 * yet), EDIT_ERROR_LOST (the other side is gone), EDIT_ERROR_MALFORMED (not a bell; a descriptor that came along is
 * closed), EDIT_ERROR_REFUSED (a bell of another version). text always ends in 0. */
int bell_receive(int socket, struct segment_bell *ret_bell, int *ret_fd);

/* Sends the next packet of the description bytes[size_bytes], from *offset on, and moves *offset; done when it is
 * size_bytes. Errors as bell_send. */
int bell_send_part(int socket, const void *bytes, size_t size_bytes, size_t *offset);
/* Takes one packet into bytes[size_bytes] at *offset and moves *offset. Errors as bell_receive; MALFORMED if it is
 * not of the size that bell_send_part makes. */
int bell_receive_part(int socket, void *bytes, size_t size_bytes, size_t *offset);

#endif

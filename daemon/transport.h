#ifndef EDIT_DAEMON_TRANSPORT_H
#define EDIT_DAEMON_TRANSPORT_H

/* The sockets of the ring, or of the two rings of a mesh; ranks are those of all members. A ROUTER listens and only
 * receives, a second one at another address if there is one; one DEALER per neighbour connects and only sends, so nothing
 * is ever dropped behind our back: a full DEALER says so, and the core sends again. The one exception: a REFUSE goes back
 * through the ROUTER to whoever said hello, and comes in through the DEALER.
 *
 * A DEALER's routing id is rank and incarnation, and in a mesh the rank that is meant: a hello meant for another member is
 * refused. With keys every connection is encrypted (CURVE) and its key is that of a member: what it says counts only in
 * the name of that member. Frames of a routing id that has not said the hello of a neighbour are counted and dropped, and what strangers
 * may cost is bounded. Owns the ZeroMQ context. Never blocks, except in transport_wait. */

#include <sys/types.h>

#include "core/event.h"
#include "core/places.h"
#include "daemon/dealer.h"

struct transport;

enum { TRANSPORT_NEIGHBOURS_MAX = ROAD_COUNT, TRANSPORT_LISTENERS_MAX = 2, TRANSPORT_KEPT_MAX = 8 };

struct transport_neighbour {
	uint32_t rank;                   /* below member_count, not the own one, each once */
	const char *address;             /* tcp://host:port to connect to; must outlive the transport */
};

struct transport_config {
	const char *listen;              /* tcp://address:port */
	const char *shard_listen;        /* another one, whose frames are treated alike; NULL: none */
	uint32_t rank, member_count;
	const char *const *names;        /* [member_count]; must outlive the transport */
	struct transport_neighbour neighbours[TRANSPORT_NEIGHBOURS_MAX];
	size_t neighbour_count;
	bool is_mesh;                    /* say in routing ids whom they are meant for */
	uint64_t incarnation;
	const struct keyring *keyring;   /* NULL: no keys; must outlive the transport, and may change before transport_rekey */
	bool is_encrypted;               /* keyring holds the keys of all members */
};

struct transport_counts {
	uint64_t keys_refused;     /* connections, also of tools, whose key is not known here */
	uint64_t handshakes_failed; /* at the peer port: expected another key of this node, or did not encrypt */
	uint64_t stranger_frames;  /* from a routing id without a neighbour's hello */
	uint64_t malformed_frames;
	uint64_t unsent_frames;    /* no connection, or its queue full; the core sends them again */
};

/* Binds and begins to connect. EDIT_ERROR_SYSTEM or _INVALID: text[size] tells in one line what and where. */
int transport_open(const struct transport_config *config, struct transport **ret_transport, char *text, size_t size);

/* Closes all sockets; what is queued is dropped. Sockets that others opened on transport_context must be closed
 * before. */
void transport_close(struct transport *transport);

/* The ZeroMQ context (void *), for the control socket. */
void *transport_context(struct transport *transport);

/* Sends message to member `to`, a neighbour; a chunk's payload is not copied and must stay in place until
 * acknowledged. A REFUSE goes to the sender of the message that transport_receive gave last, where that came in. False: not sent (no
 * connection, or its queue is full). */
bool transport_send(struct transport *transport, uint32_t to, const struct message *message);

/* Takes the next valid message. ret_message->from is a neighbour whose hello this connection has said (of a hello:
 * what it says it is). Everything it points to is valid until the next call. *budget falls with the frames looked
 * at; false: nothing more, or the budget is used up. now_us: for the bound on strangers. */
bool transport_receive(struct transport *transport, uint64_t now_us, unsigned *budget, struct message *ret_message);

/* What was dropped since the transport was opened. */
void transport_counts(const struct transport *transport, struct transport_counts *ret_counts);

/* Lets in and keeps out by key, and connects anew where that is needed. In every turn, before transport_receive. */
void transport_step(struct transport *transport, uint64_t now_us);

/* The keyring has changed: connects anew to neighbours with another key. The own key must be the same. */
void transport_rekey(struct transport *transport);

/* Why there is no connection to member rank, as far as keys are the cause; true if they are. Of members that are no neighbours
 * nothing is known. */
bool transport_trouble(const struct transport *transport, uint32_t rank, struct dealer_trouble *ret_trouble);

/* Ends the connections at the peer port on which no neighbour has said hello within a second, to make room for those
 * that will; not those of others[other_count] (descriptors; up to TRANSPORT_KEPT_MAX). Returns how many. */
size_t transport_evict(struct transport *transport, const int *others, size_t other_count);

/* Something to wait for: a file descriptor, or a ZeroMQ socket if socket is not NULL. */
struct transport_source {
	void *socket;
	int fd;
	bool is_ready; /* set by transport_wait */
};

/* Waits until a source or a socket of the transport can be read, or timeout_ms have passed. */
void transport_wait(struct transport *transport, struct transport_source *sources, size_t count, long timeout_ms);

#endif

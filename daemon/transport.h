#ifndef EDIT_DAEMON_TRANSPORT_H
#define EDIT_DAEMON_TRANSPORT_H

/* The sockets between the members of a ring or mesh. A ROUTER listens and only receives, a second one at another address if
 * there is one; one DEALER per neighbour connects and only sends, so nothing is ever dropped behind our back: a full DEALER
 * says so, and the core sends again. The one exception: a REFUSE goes back through the ROUTER to whoever said hello, and comes
 * in through the DEALER.
 *
 * Members are known by name. Ranks are those of the view that transport_seat gave last, or, in a mesh, those of all members,
 * for ever. Decrees go to anybody, by name and address: see daemon/contact.h; they too are answered through the ROUTER.
 *
 * A DEALER's routing id is NAME/INCARNATION/NUMBER/NAME: who, and who is meant; NUMBER makes it unique. What is meant for
 * another is refused. With keys every connection is encrypted (CURVE) and its key is that of a name: what it says counts only
 * in that name. Frames of a routing id that has not said the hello of a neighbour are counted and dropped, unless they are
 * decrees, and what strangers may cost is bounded, for each known name apart (daemon/guests.h). Owns the ZeroMQ context. Never
 * blocks, except in transport_wait. */

#include <sys/types.h>

#include "core/decree.h"
#include "core/event.h"
#include "core/places.h"
#include "daemon/dealer.h"
#include "daemon/lease.h"

struct transport;

enum { TRANSPORT_NEIGHBOURS_MAX = ROAD_COUNT, TRANSPORT_LISTENERS_MAX = 2, TRANSPORT_KEPT_MAX = 8 };

struct transport_neighbour {
	uint32_t rank;                   /* below member_count, not the own one, each once */
	const char *address;             /* tcp://host:port to connect to, up to SEAT_ADDRESS_BYTES - 1 bytes */
};

/* Who is a member. All of it is copied. */
struct transport_view {
	uint64_t number;                 /* VIEW_FIRST in a mesh */
	uint32_t rank, member_count;     /* rank: of this node; member_count: it is no member, and has no neighbours */
	const char *const *names;        /* [member_count], each up to SEAT_NAME_BYTES - 1 bytes */
	struct transport_neighbour neighbours[TRANSPORT_NEIGHBOURS_MAX];
	size_t neighbour_count;
};

struct transport_config {
	const char *listen;              /* tcp://address:port */
	const char *shard_listen;        /* another one, whose frames are treated alike; NULL: none */
	const char *name;                /* of this node; must outlive the transport */
	struct transport_view view;      /* the first one; see transport_seat */
	bool is_mesh;                    /* its members never change: a hello of another view is a stranger's */
	uint64_t incarnation;
	const struct keyring *keyring;   /* NULL: no keys; must outlive the transport, and may change before transport_rekey */
	bool is_encrypted;               /* keyring holds the keys of all members of the first view */
};

struct transport_counts {
	uint64_t keys_refused;     /* connections, also of tools, whose key is not known here */
	uint64_t handshakes_failed; /* at the peer port: expected another key of this node, or did not encrypt */
	uint64_t stranger_frames;  /* from a routing id without a neighbour's hello */
	uint64_t malformed_frames;
	uint64_t unsent_frames;    /* no connection, or its queue full; the core sends them again */
	uint64_t foreign_hellos;   /* of other views, from who is no neighbour in this one */
};

/* Binds and begins to connect. EDIT_ERROR_SYSTEM or _INVALID: text[size] tells in one line what and where. */
int transport_open(const struct transport_config *config, struct transport **ret_transport, char *text, size_t size);

/* Closes all sockets; what is queued is dropped, and no lease is taken any more. Sockets that others opened on
 * transport_context must be closed before. */
void transport_close(struct transport *transport);

/* The ZeroMQ context (void *), for the control socket. */
void *transport_context(struct transport *transport);

/* A view begins (not in a mesh): from now on ranks are those of this one. Connections to neighbours that stay, by name and
 * address, are kept with all that is on its way; those to others are closed, and new ones begun. One that cannot be made is
 * tried again in transport_step. */
void transport_seat(struct transport *transport, const struct transport_view *view);

/* Whose memory the payloads of the following transport_send are; NULL, as at the begin: memory that outlives the transport.
 * The lease must outlive all frames sent on it, so until lease_is_free; that may take some seconds after their neighbour is
 * none any more. */
void transport_lease(struct transport *transport, struct lease *lease);

/* Sends message, which is no decree, to member `to`, a neighbour; a chunk's payload is not copied and must stay in place until
 * acknowledged, and as transport_lease tells. A REFUSE goes to the sender of the message that transport_receive gave last,
 * where that came in. False: not sent (no connection, or its queue is full). */
bool transport_send(struct transport *transport, uint32_t to, const struct message *message);

/* Sends a decree to a seat, a member or not, by name and address; to == NULL: back to where the decree that transport_receive
 * gave last came from. Not in a mesh. It may be lost: there is no connection, the queue is full, or the key of that name is
 * not known here. */
void transport_post(struct transport *transport, const struct seat *to, const struct decree *decree, uint64_t now_us);

/* Takes the next valid message. ret_message->from is a neighbour whose hello this connection has said (of a hello:
 * what it says it is), by its rank in the present view also if ret_message->view is another one; of a decree it is 0, and the
 * sender may be anybody: with keys it is the owner of the connection's key, or that is the relay. Everything that it
 * points to is valid until the next call. *budget falls with the frames looked at; false: nothing more, or the budget is
 * used up. now_us: for the bound on strangers. */
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

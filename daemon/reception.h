#ifndef EDIT_DAEMON_RECEPTION_H
#define EDIT_DAEMON_RECEPTION_H

/* What a transport is made of, and how it takes in frames: for daemon/transport.c and daemon/reception.c; others use
 * daemon/transport.h. */

#include <zmq.h>

#include "daemon/contact.h"
#include "daemon/guests.h"
#include "daemon/transport.h"
#include "daemon/zap.h"
#include "proto/codec.h"

enum {
	KNOWN_MAX = 4, /* connections per neighbour whose hello is remembered */
	TOLD_US = 60 * 1000 * 1000 /* what goes wrong with keys at the peer port is told so often at most */
};

/* A connection on which a neighbour's hello has come in. */
struct known {
	uint64_t incarnation;
	int fd;          /* where its latest frame came in */
	size_t id_bytes; /* 0: unused */
	uint8_t id[DEALER_ID_MAX];
};

struct neighbour {
	uint32_t rank;
	struct dealer dealer;
	struct known known[KNOWN_MAX];
	unsigned known_next;
};

struct transport {
	struct transport_config config;     /* but its view */
	uint64_t view;                      /* number */
	uint32_t rank, member_count;
	char names[MEMBER_COUNT_MAX][SEAT_NAME_BYTES]; /* [member_count] */
	void *context;
	struct zap *zap;                    /* NULL: no keys */
	void *routers[TRANSPORT_LISTENERS_MAX];
	struct handshake heard[TRANSPORT_LISTENERS_MAX]; /* of the routers, if frames are encrypted */
	uint64_t heard_told_us, heard_told; /* when their failures were last told, and how many there were */
	uint64_t stolen_told_us;            /* when a name with another's key was last told; 0: never */
	size_t router_count;
	struct dealer_self self;
	struct neighbour neighbours[TRANSPORT_NEIGHBOURS_MAX];
	size_t neighbour_count;
	struct contacts contacts;
	struct guests guests;
	struct lease *lease;
	struct transport_counts counts;

	size_t turn;                        /* the ROUTER to look at next */
	size_t answer_turn;                 /* the DEALER to look at next */
	unsigned streak;                    /* frames of ROUTERs since the DEALERs were looked at */
	zmq_msg_t id, header, payload;      /* of the message given last */
	void *origin;                       /* the ROUTER where it came in; NULL: none */
	uint64_t origin_contact;            /* the number of the contact where it came in; 0: none */
	struct codec *codec;
	uint8_t frame[CODEC_FRAME_MAX];     /* the message being sent */
};

/* The neighbour of this rank, or of this name; NULL: none. */
struct neighbour *reception_neighbour(struct transport *transport, uint32_t rank);
struct neighbour *reception_named(struct transport *transport, const char *name);

/* Sends a refusal back to where the frame at hand came in. */
bool reception_refuse(struct transport *transport, enum refusal reason);

#endif

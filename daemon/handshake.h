#ifndef EDIT_DAEMON_HANDSHAKE_H
#define EDIT_DAEMON_HANDSHAKE_H

/* How the handshakes of one ZeroMQ socket end, heard by its monitor: so that a wrong key is not taken for a peer that is silent. Two
 * ways of use: a socket that connects has one peer and a state; one that listens has counts. Owns the monitor's other end. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum handshake_state {
	HANDSHAKE_FINE,       /* done, or nothing is known against it: not reached, or silent */
	HANDSHAKE_WRONG_KEY,  /* the other side ends it as one does whose key is not the one that we expect */
	HANDSHAKE_KEY_REFUSED, /* it does not know our key */
	HANDSHAKE_OTHER_MECHANISM /* one of the two sides encrypts, the other does not */
};

struct handshake {
	bool expects_key;        /* of a connecting socket: who hangs up has been shown a key */
	void *socket;            /* the one that is heard; borrowed */
	void *pair;              /* where its events come in; NULL: closed */
	enum handshake_state state;
	uint64_t failures;       /* handshakes that a key or a mechanism ended, since it was opened */
	uint64_t foreign_keys;   /* of a listening socket: failures of peers that expected another key of us */
	uint64_t plain_peers;    /* and of those that do not encrypt */
	uint64_t connected_us;
	unsigned short_ends;     /* in a row */
};

/* Begins to listen to socket, before it binds or connects; what was counted before goes on. False: errno tells. */
bool handshake_open(struct handshake *handshake, void *context, void *socket);
/* Before the socket is closed. */
void handshake_close(struct handshake *handshake);

/* Takes in what has happened. True: ZeroMQ has given up on this socket's peer, which must be made anew to be tried again. */
bool handshake_step(struct handshake *handshake, uint64_t now_us);

#endif

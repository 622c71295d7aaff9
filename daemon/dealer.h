#ifndef EDIT_DAEMON_DEALER_H
#define EDIT_DAEMON_DEALER_H

/* The DEALER that connects to one neighbour, and what its handshakes tell of that neighbour's key. A socket that ZeroMQ has given
 * up, as it does when a handshake is refused, is made anew after a while. Owns socket and monitor; borrows all texts and the keyring. */

#include "daemon/handshake.h"
#include "daemon/keyring.h"

enum { DEALER_ID_MAX = 64 };

struct dealer {
	void *context;
	void *socket;                  /* NULL: cannot be made for now, is tried again */
	const char *name, *address;
	char id[DEALER_ID_MAX + 1];    /* routing id */
	const struct keyring *keyring; /* NULL: frames are not encrypted */
	uint32_t rank;                 /* of the neighbour in keyring */
	char key[KEY_BYTES];           /* that the socket expects of it */
	struct handshake handshake;
	uint64_t retry_us;             /* when the socket is made anew; 0: it is not */
};

/* An unconnected one, without keys. context: of ZeroMQ; id has at most DEALER_ID_MAX bytes. */
void dealer_init(struct dealer *dealer, void *context, const char *name, const char *address, const char *id);
/* Before it connects: the neighbour is the member of this rank, and must have its key. */
void dealer_encrypt(struct dealer *dealer, const struct keyring *keyring, uint32_t rank);

/* Makes the socket and begins to connect. False: errno tells, and there is no socket; dealer_step tries again. */
bool dealer_connect(struct dealer *dealer);
void dealer_close(struct dealer *dealer);

/* Takes in what its handshakes have come to, and tells it in the log when that changes. In every turn. */
void dealer_step(struct dealer *dealer, uint64_t now_us);
/* The keyring has changed: connects anew if the neighbour has another key now. */
void dealer_rekey(struct dealer *dealer);

struct dealer_trouble {
	const char *word;   /* "wrong-key", "key-refused", "no-curve"; empty: none */
	const char *text;   /* what is wrong and where to look; empty: nothing */
	uint64_t failures;  /* handshakes that ended so since dealer_init */
};

/* Why there is no connection, as far as keys are the cause; true if they are. */
bool dealer_trouble(const struct dealer *dealer, struct dealer_trouble *ret_trouble);

#endif

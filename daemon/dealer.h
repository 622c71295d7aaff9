#ifndef EDIT_DAEMON_DEALER_H
#define EDIT_DAEMON_DEALER_H

/* The DEALER that connects to one other node, and what its handshakes tell of that node's key. A socket that ZeroMQ has given
 * up, as it does when a handshake is refused, is made anew after a while. Owns socket and monitor; borrows the keyring. */

#include "core/roster.h"
#include "daemon/handshake.h"
#include "daemon/keyring.h"

enum { DEALER_ID_MAX = 160 };

/* Who connects. */
struct dealer_self {
	void *context;                 /* of ZeroMQ */
	const char *name;
	uint64_t incarnation;
	uint64_t number;               /* of dealers made so far */
	const struct keyring *keyring; /* NULL: frames are not encrypted */
};

struct dealer {
	void *context;
	void *socket;                  /* NULL: could not be made; dealer_step tries again */
	char name[SEAT_NAME_BYTES], address[SEAT_ADDRESS_BYTES];
	char id[DEALER_ID_MAX + 1];    /* routing id */
	uint64_t number;               /* of this dealer, from 1 */
	const struct keyring *keyring; /* NULL: frames are not encrypted */
	char key[KEY_BYTES];           /* that the socket expects of it */
	bool lacks_key;                /* there is no such key */
	unsigned queue_max;            /* messages that wait for a connection; 0: nothing is sent without one */
	bool is_unheard;               /* without a monitor: nothing is known of its handshakes */
	struct handshake handshake;
	uint64_t retry_us;             /* when the socket is made anew; 0: it is not */
};

/* An unconnected one to the node of this name at this address, of up to SEAT_NAME_BYTES and SEAT_ADDRESS_BYTES - 1 bytes; both
 * are copied. Where there are keys, the node must have the key of that name. */
void dealer_init(struct dealer *dealer, struct dealer_self *self, const char *name, const char *address);

/* Makes the socket and begins to connect. False: errno tells, and there is no socket; dealer_step tries again. */
bool dealer_connect(struct dealer *dealer);
void dealer_close(struct dealer *dealer);

/* Takes in what its handshakes have come to, and tells it in the log when that changes. In every turn. */
void dealer_step(struct dealer *dealer, uint64_t now_us);
/* The keyring has changed: connects anew if the node has another key now. */
void dealer_rekey(struct dealer *dealer);

struct dealer_trouble {
	const char *word;   /* "wrong-key", "key-refused", "no-curve", "no-key"; empty: none */
	const char *text;   /* what is wrong and where to look; empty: nothing */
	uint64_t failures;  /* handshakes that ended so since dealer_init */
};

/* Why there is no connection, as far as keys are the cause; true if they are. */
bool dealer_trouble(const struct dealer *dealer, struct dealer_trouble *ret_trouble);

#endif

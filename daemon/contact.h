#ifndef EDIT_DAEMON_CONTACT_H
#define EDIT_DAEMON_CONTACT_H

/* Connections that are made to say something to one other node, member or not, and kept while they are used. What is said waits
 * for the connection, so the first word is not lost. They are apart from those to neighbours: what is said here is not stuck
 * behind a layer, and is not lost when neighbours change.
 *
 * A contact is a DEALER, with the answers that come in through it. Owns the sockets; self must outlive it. */

#include "daemon/dealer.h"

enum {
	CONTACT_COUNT_MAX = 256, /* a proposer reaches all others of a view of up to 257; the least recently used gives way */
	CONTACT_HEARD_MAX = 32   /* so many can tell what is wrong with keys: four descriptors each, the others two */
};

struct contact {
	struct dealer dealer;
	uint64_t used_us, until_us;
};

struct contacts {
	struct dealer_self *self;
	size_t count;
	struct contact list[CONTACT_COUNT_MAX];
};

/* The contact to a seat, by name and address: one that is open, or a new one, maybe without a socket. Valid until the
 * next call. */
struct contact *contacts_reach(struct contacts *contacts, const struct seat *to, uint64_t now_us);
/* The open contact of this number (of its dealer); NULL: it is none any more. */
struct contact *contacts_find(struct contacts *contacts, uint64_t number);
/* Closes those that nobody has used for five seconds; those that are not heard after five seconds, because one that ZeroMQ
 * has given up would not be noticed. In every turn. */
void contacts_step(struct contacts *contacts, uint64_t now_us);
/* The keyring has changed. */
void contacts_rekey(struct contacts *contacts);
/* Closes all. */
void contacts_close(struct contacts *contacts);

#endif

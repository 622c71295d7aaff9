#ifndef EDIT_DAEMON_KEYRING_H
#define EDIT_DAEMON_KEYRING_H

/* The keys that this node knows, read from the folder node.keys: its own pair, the public keys of the members, and those of
 * tools on other hosts with what they may do. Read at start and again on SIGHUP, never written. Owns its lists. */

#include "daemon/config.h"
#include "proto/keyfile.h"

struct keyring_client {
	char name[TEXT_NAME_MAX + 1];
	char key[KEY_BYTES];
	bool may_change; /* else it may only look */
};

/* Of the config's list, or not in it (yet, any more). */
struct keyring_member {
	char name[TEXT_NAME_MAX + 1];
	char key[KEY_BYTES];
};

struct keyring {
	bool has_keys;                     /* false: this node uses none, and all below is empty */
	char public_key[KEY_BYTES], secret_key[KEY_BYTES];
	size_t member_count;               /* 0: the ring is not encrypted */
	struct keyring_member *members;    /* [member_count], the own one too; owned */
	size_t client_count;
	struct keyring_client *clients;    /* [client_count], owned */
};

enum { KEYRING_MEMBERS_MAX = 2048, KEYRING_CLIENTS_MAX = 256 };

/* Reads what config needs: nothing, if neither the ring is encrypted nor control.listen is given. Otherwise the own secret
 * key; if the ring is encrypted the keys of all members that have one there, which those of the config's list must; the
 * clients' if control.listen is given. 0, or a code of core/base.h with a line that names file or member and says what to do;
 * ret_keyring is untouched then. */
int keyring_open(const struct config *config, struct keyring *ret_keyring, struct line *why);
/* Forgets the keys. */
void keyring_close(struct keyring *keyring);

/* Name of the member with this public key; NULL: none. */
const char *keyring_member(const struct keyring *keyring, const char *key);
/* Public key of the member with this name; NULL: none. */
const char *keyring_key(const struct keyring *keyring, const char *name);
/* The client with this public key; NULL: none. */
const struct keyring_client *keyring_client(const struct keyring *keyring, const char *key);

#endif

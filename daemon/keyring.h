#ifndef EDIT_DAEMON_KEYRING_H
#define EDIT_DAEMON_KEYRING_H

/* The keys that this node knows, read from the folder node.keys: its own pair, the public keys of the members, and those of tools on
 * other hosts with what they may do. Read at start and again on SIGHUP, never written. Owns its lists. */

#include "daemon/config.h"
#include "proto/keyfile.h"

struct keyring_client {
	char name[TEXT_NAME_MAX + 1];
	char key[KEY_BYTES];
	bool may_change; /* else it may only look */
};

struct keyring {
	bool has_keys;                     /* false: this node uses none, and all below is empty */
	char public_key[KEY_BYTES], secret_key[KEY_BYTES];
	uint32_t member_count;             /* 0: the ring is not encrypted */
	char (*member_keys)[KEY_BYTES];    /* [member_count] by rank, the own one too; owned */
	size_t client_count;
	struct keyring_client *clients;    /* [client_count], owned */
};

enum { KEYRING_CLIENTS_MAX = 256 };

/* Reads what config needs: nothing, if neither the ring is encrypted nor control.listen is given. Otherwise the own secret key; the keys
 * of all other members if the ring is encrypted; the clients' if control.listen is given. 0, or a code of core/base.h with a line
 * that names file or member and says what to do; ret_keyring is untouched then. */
int keyring_open(const struct config *config, struct keyring *ret_keyring, struct line *why);
/* Forgets the keys. */
void keyring_close(struct keyring *keyring);

/* Rank of the member with this public key; member_count: none. */
uint32_t keyring_member(const struct keyring *keyring, const char *key);
/* The client with this public key; NULL: none. */
const struct keyring_client *keyring_client(const struct keyring *keyring, const char *key);

#endif

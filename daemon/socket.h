#ifndef EDIT_DAEMON_SOCKET_H
#define EDIT_DAEMON_SOCKET_H

/* Sockets between hosts, made in one place: what all of them share, and the keys of those that have any. A void * is a ZeroMQ
 * socket, owned by who asked for it. */

#include "daemon/keyring.h"

/* A socket for an address, with the options of dead lines and bounds; nothing is bound or connected. NULL: errno tells. */
void *socket_open(void *context, int type, const char *address);

/* Sets an option that is an int. False: errno tells. */
bool socket_set_int(void *socket, int option, int value);

/* It shall take in encrypted connections only, of keys that the ZAP handler lets into this domain. Before it binds. False: errno tells. */
bool socket_guard(void *socket, const struct keyring *keyring, const char *domain);

/* It shall show our key, and connect only to who has the secret to server_key. Before it connects. False: errno tells. */
bool socket_prove(void *socket, const struct keyring *keyring, const char *server_key);

#endif

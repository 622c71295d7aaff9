#ifndef EDIT_CTL_REMOTE_H
#define EDIT_CTL_REMOTE_H

/* The way to a daemon on another host: its control.listen, by CURVE. Says why nobody lets us in, which ZeroMQ does not by itself. A void *
 * is a ZeroMQ context or socket, owned by the client. */

#include "proto/text.h"

struct remote;

/* Reads the own secret key and the daemon's public key; address ("tcp://HOST:PORT") and the names of the files are borrowed.
 * EDIT_ERROR_INVALID, _REFUSED, _UNKNOWN or _SYSTEM with a line; ret_remote is untouched then. */
int remote_open(const char *address, const char *key_file, const char *server_file, struct line *why, struct remote **ret_remote);
/* Forgets the keys. NULL is allowed. */
void remote_close(struct remote *remote);

/* Begins to connect socket, a DEALER without a connection. EDIT_ERROR_UNREACHABLE or _SYSTEM with a line. */
int remote_connect(struct remote *remote, void *context, void *socket, struct line *why);
/* Before socket is closed. */
void remote_disconnect(struct remote *remote);

/* What can be polled for remote_hear; NULL: not connected. */
void *remote_source(const struct remote *remote);
/* Takes in how connecting goes. 0: nothing is against it; EDIT_ERROR_REFUSED (a key) or _UNREACHABLE with a line that tells what to do. */
int remote_hear(struct remote *remote, struct line *why);

/* As given to remote_open. */
const char *remote_address(const struct remote *remote);

#endif

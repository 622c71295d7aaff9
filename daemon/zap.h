#ifndef EDIT_DAEMON_ZAP_H
#define EDIT_DAEMON_ZAP_H

/* Answers ZeroMQ's question whether a key may come in (ZAP, RFC 27), in the daemon's own loop: members' keys at the peer port,
 * clients' keys at control.listen. Whoever is let in bears its public key as "User-Id" on every frame; what that key may do is
 * looked up when a frame is handled. Owns the socket that is asked; borrows the keyring, which may change between calls. */

#include "daemon/keyring.h"

#define ZAP_RING "ring"       /* domain of the sockets between daemons */
#define ZAP_CONTROL "control" /* domain of control.listen */

struct zap;

/* Must be open before the sockets that it guards, and closed after them. NULL: errno tells. */
struct zap *zap_open(void *context, const struct keyring *keyring);
void zap_close(struct zap *zap);

/* For zmq_poll. */
void *zap_socket(const struct zap *zap);

/* Answers up to `budget` questions; the others wait. A key that is not known is told in the log, at most once a minute each and
 * a few times a minute in all. */
void zap_serve(struct zap *zap, uint64_t now_us, unsigned budget);

/* Connections refused because their key is not known here. */
uint64_t zap_refused(const struct zap *zap);

#endif

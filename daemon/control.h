#ifndef EDIT_DAEMON_CONTROL_H
#define EDIT_DAEMON_CONTROL_H

/* The control socket: a ROUTER on a unix socket, mode 0660. Takes requests, checks them, and has them answered by
 * the functions of proto/command.h's table (daemon/answer.h). One frame in, one frame out; anything else gets an
 * error reply and is counted. */

#include "daemon/daemon.h"

struct control;

/* Listens at address ("ipc://..."; the caller holds the lock and has removed a stale socket). EDIT_ERROR_SYSTEM
 * with a line. */
int control_open(void *context, const char *address, struct control **ret_control, struct line *why);
/* Closes and removes the socket. */
void control_close(struct control *control);

/* For transport_wait. */
void *control_socket(struct control *control);

/* Answers up to `budget` requests. True if there may be more. */
bool control_serve(struct control *control, struct daemon *daemon, unsigned budget);

/* Frames that were no request. */
uint64_t control_malformed(const struct control *control);

#endif

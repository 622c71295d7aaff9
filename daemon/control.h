#ifndef EDIT_DAEMON_CONTROL_H
#define EDIT_DAEMON_CONTROL_H

/* The control sockets, each a ROUTER: the unix socket of node.control, whose group may look and change; RUNTIME_DIR/control-read.sock
 * for control.read_group, which may look; and control.listen for tools on other hosts, which may do what their keys may. Takes
 * requests, checks them, and has them answered by the functions of proto/command.h's table (daemon/answer.h). One frame in,
 * one frame out; anything else gets an error reply and is counted. */

#include "daemon/daemon.h"

struct control;

#define CONTROL_READ_SOCKET "control-read.sock"

enum { CONTROL_DOORS_MAX = 3 };

/* Listens wherever config says (the caller holds the lock and has removed stale sockets). keyring is borrowed and may change
 * between calls. EDIT_ERROR_INVALID or _SYSTEM with a line. */
int control_open(void *context, const struct config *config, const struct keyring *keyring, struct control **ret_control,
		 struct line *why);
/* Closes the sockets and removes those that have a path. */
void control_close(struct control *control);

/* What transport_wait is to wait for, into ret_sources; returns how many. */
size_t control_sources(const struct control *control, struct transport_source ret_sources[CONTROL_DOORS_MAX]);

/* Answers up to `budget` requests. True if there may be more. */
bool control_serve(struct control *control, struct daemon *daemon, unsigned budget);

/* Descriptors of connections from other hosts that have asked something lately; returns how many. */
size_t control_tools(const struct control *control, int ret_fds[TRANSPORT_KEPT_MAX]);

/* Frames that were no request. */
uint64_t control_malformed(const struct control *control);
/* Requests refused because who asked may only look. */
uint64_t control_denied(const struct control *control);

#endif

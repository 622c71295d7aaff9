#ifndef EDIT_DAEMON_GATE_H
#define EDIT_DAEMON_GATE_H

/* How many descriptors connections may take. ZeroMQ accepts in a thread of its own for as long as the process has
 * descriptors, and ends the process (libzmq 4.3.4, ipc_listener.cpp) when a client of a unix socket finds none left.
 * So this file is the accept4() that libzmq calls: each connection is accepted, and closed at once if its number is
 * among those that are kept for others. As the kernel gives the lowest free number, nothing needs to be counted.
 *
 *   0 ...               gate_peer_end: connections at the peer port, and from other hosts at control.listen
 *   gate_peer_end ...   gate_tool_end: connections at the control socket, which may take lower ones too
 *   gate_tool_end ...   the limit: files and sockets that the daemon opens itself
 *
 * The limit is RLIMIT_NOFILE at this moment, or 1024 if that is less. Owns a counter and a table by descriptor, both
 * atomic; may be called from any thread. */

#include <stddef.h>
#include <stdint.h>

/* First descriptor that is not for connections of peers, and the first one that is for no connection at all. Between
 * them, and between the second and the limit, is an eighth of the limit, but at most 32 and 16. */
int gate_peer_end(void);
int gate_tool_end(void);

/* Connections closed for want of a descriptor since the process began. */
uint64_t gate_refused(void);

/* Shuts down, for ZeroMQ to close them, the connections at the peer port that are older than age_us and not among the
 * descriptors kept[kept_count]. Returns how many. Only the thread that opens the daemon's descriptors may call it. */
size_t gate_evict(const int *kept, size_t kept_count, uint64_t age_us);

#endif

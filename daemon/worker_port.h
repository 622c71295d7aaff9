#ifndef EDIT_DAEMON_WORKER_PORT_H
#define EDIT_DAEMON_WORKER_PORT_H

/* The worker's socket: listens, admits one worker at a time, takes its description in and its bells, and notices
 * its death. Knows nothing of models or rounds: what comes in is handed up, one happening at a time. Never blocks. */

#include <sys/types.h>

#include "core/base.h"
#include "proto/text.h"

enum port_phase {
	PORT_EMPTY,      /* no worker */
	PORT_ATTACHING,  /* connected, nothing said yet */
	PORT_DESCRIBING, /* its description is coming in */
	PORT_DESCRIBED,  /* waits, as long as it likes, for worker_port_admit or _refuse */
	PORT_ATTACHED,   /* has the segment */
	PORT_READY       /* theta is in place */
};

struct worker_port {
	int listen_fd, fd;         /* fd: the worker's connection, -1 if there is none */
	char path[108];
	enum port_phase phase;
	pid_t pid;                 /* of the worker, 0 if unknown or none */
	uint64_t admitted_us;
	uint8_t *description;      /* [description_bytes], owned; kept until the worker is gone */
	size_t description_bytes, description_used;
};

enum port_event {
	PORT_NOTHING,
	PORT_HAS_DESCRIPTION, /* port->description is whole */
	PORT_IS_READY,
	PORT_OFFERS,
	PORT_GRADIENTS,
	PORT_CALLS,
	PORT_WANTS,           /* *ret_value: layer index, not checked */
	PORT_RESTORES,        /* *ret_value: layer index, not checked */
	PORT_FINISHES,
	PORT_LOST             /* the worker is gone, or was dropped because it broke the rules; port->pid is its pid */
};

/* Listens at path (the caller holds the lock and has removed a stale socket). EDIT_ERROR_SYSTEM with a line. */
int worker_port_open(struct worker_port *port, const char *path, struct line *why);
/* Closes and removes the socket. */
void worker_port_close(struct worker_port *port);

/* Lets a waiting worker in, or tells it that there is one already. */
void worker_port_accept(struct worker_port *port, uint64_t now_us);

/* The next thing that the worker says, PORT_NOTHING if there is none. After PORT_LOST the port is empty but for
 * pid, which the next worker overwrites. why: for PORT_LOST, what rule was broken; empty if it just went. */
enum port_event worker_port_next(struct worker_port *port, uint64_t now_us, uint64_t *ret_value, struct line *why);

/* Answers a description: passes the segment on, or says why not and drops the worker. False: it is gone. */
bool worker_port_admit(struct worker_port *port, int segment_fd, uint64_t segment_bytes, bool is_resumed);
void worker_port_refuse(struct worker_port *port, const char *reason);

/* "Look again." Bells that the worker has not read yet say the same, so a full socket is no loss. */
void worker_port_ring(struct worker_port *port);

#endif

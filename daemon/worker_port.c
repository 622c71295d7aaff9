/* The worker's end of the daemon: a SOCK_SEQPACKET socket in runtime_dir. Owns two descriptors and the
 * description's bytes. */

#include "daemon/worker_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/bell.h"
#include "proto/description.h"

enum { ATTACH_PATIENCE_US = 10 * 1000 * 1000 };

int worker_port_open(struct worker_port *port, const char *path, struct line *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CHECK(strlen(path) < sizeof address.sun_path);
	strcpy(address.sun_path, path);

	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	mode_t before = umask(0117);
	bool is_open = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 8) == 0;
	int saved = errno;
	umask(before);
	if (!is_open) {
		if (fd >= 0)
			close(fd);
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot listen (%s)", path, strerror(saved));
	}
	*port = (struct worker_port){.listen_fd = fd, .fd = -1};
	strcpy(port->path, path);
	return 0;
}

/* Ends the connection; the port is empty afterwards. */
static void drop(struct worker_port *port)
{
	if (port->fd >= 0)
		close(port->fd);
	free(port->description);
	port->fd = -1;
	port->phase = PORT_EMPTY;
	port->description = NULL;
	port->description_bytes = port->description_used = 0;
}

void worker_port_close(struct worker_port *port)
{
	drop(port);
	if (port->listen_fd >= 0) {
		close(port->listen_fd);
		unlink(port->path);
	}
	port->listen_fd = -1;
}

void worker_port_accept(struct worker_port *port, uint64_t now_us)
{
	int fd = accept4(port->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	struct ucred peer = {0};
	socklen_t size = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		peer.pid = 0;
	if (port->phase != PORT_EMPTY) {
		char text[BELL_TEXT_MAX + 1];
		snprintf(text, sizeof text, "another worker (pid %ld) is attached", (long)port->pid);
		bell_send(fd, BELL_REFUSED, 0, 0, text, -1);
		close(fd);
		return;
	}
	port->fd = fd;
	port->pid = peer.pid;
	port->phase = PORT_ATTACHING;
	port->admitted_us = now_us;
}

static enum port_event lose(struct worker_port *port, int error, struct line *why, const char *text)
{
	why->text[0] = 0;
	if (error != EDIT_ERROR_LOST)
		line_fail(why, error, "%s", text);
	drop(port);
	return PORT_LOST;
}

/* Takes packets of the description. */
static enum port_event describe(struct worker_port *port, struct line *why)
{
	while (port->description_used < port->description_bytes) {
		int error = bell_receive_part(port->fd, port->description, port->description_bytes,
					      &port->description_used);
		if (error == EDIT_ERROR_BUSY)
			return PORT_NOTHING;
		if (error)
			return lose(port, error, why, "its description is not in packets as expected");
	}
	port->phase = PORT_DESCRIBED;
	return PORT_HAS_DESCRIPTION;
}

static enum port_event begin_description(struct worker_port *port, uint64_t bytes, struct line *why)
{
	if (bytes == 0 || bytes > DESCRIPTION_BYTES_MAX)
		return lose(port, EDIT_ERROR_RANGE, why, "its description is empty or too large");
	port->description = malloc(bytes);
	if (!port->description)
		return lose(port, EDIT_ERROR_SYSTEM, why, "no memory for its description");
	port->description_bytes = bytes;
	port->phase = PORT_DESCRIBING;
	return describe(port, why);
}

/* What a bell means in this phase. */
static enum port_event take_bell(struct worker_port *port, const struct segment_bell *bell, uint64_t *ret_value,
				 struct line *why)
{
	*ret_value = bell->value;
	if (port->phase == PORT_ATTACHING && bell->kind == BELL_ATTACH)
		return begin_description(port, bell->value, why);
	if (port->phase == PORT_ATTACHED && bell->kind == BELL_READY) {
		port->phase = PORT_READY;
		return PORT_IS_READY;
	}
	/* A worker that comes back tells all that it waits for before it says that it is ready. */
	bool is_attached = port->phase == PORT_ATTACHED || port->phase == PORT_READY;
	if (is_attached && bell->kind == BELL_RESTORE)
		return PORT_RESTORES;
	if (is_attached && bell->kind == BELL_OFFER)
		return PORT_OFFERS;
	if (is_attached && bell->kind == BELL_GRADIENT)
		return PORT_GRADIENTS;
	if (is_attached && bell->kind == BELL_CALL)
		return PORT_CALLS;
	if (is_attached && bell->kind == BELL_WANT)
		return PORT_WANTS;
	if (is_attached && bell->kind == BELL_FINISHED)
		return PORT_FINISHES;
	return lose(port, EDIT_ERROR_MALFORMED, why, "a bell out of order");
}

enum port_event worker_port_next(struct worker_port *port, uint64_t now_us, uint64_t *ret_value, struct line *why)
{
	if (port->phase == PORT_EMPTY)
		return PORT_NOTHING;
	if (port->phase < PORT_DESCRIBED && now_us - port->admitted_us > ATTACH_PATIENCE_US)
		return lose(port, EDIT_ERROR_TIMEOUT, why, "it did not describe itself in time");
	if (port->phase == PORT_DESCRIBING)
		return describe(port, why);

	struct segment_bell bell;
	int fd = -1;
	int error = bell_receive(port->fd, &bell, &fd);
	if (error == EDIT_ERROR_BUSY)
		return PORT_NOTHING;
	if (fd >= 0)
		close(fd);
	if (error == EDIT_ERROR_REFUSED)
		bell_send(port->fd, BELL_REFUSED, 0, 0, "the daemon speaks another version of the worker protocol", -1);
	if (error)
		return lose(port, error, why, "not a bell of this version");
	return take_bell(port, &bell, ret_value, why);
}

bool worker_port_admit(struct worker_port *port, int segment_fd, uint64_t segment_bytes, bool is_resumed)
{
	CHECK(port->phase == PORT_DESCRIBED);
	port->phase = PORT_ATTACHED;
	/* A worker that is gone shows itself at the next receive. */
	return bell_send(port->fd, BELL_ATTACHED, segment_bytes, is_resumed ? BELL_FLAG_RESUMED : 0, NULL,
			 segment_fd) == 0;
}

void worker_port_refuse(struct worker_port *port, const char *reason)
{
	if (port->fd >= 0)
		bell_send(port->fd, BELL_REFUSED, 0, 0, reason, -1);
	drop(port);
}

void worker_port_ring(struct worker_port *port)
{
	if (port->fd >= 0 && port->phase >= PORT_ATTACHED)
		bell_send(port->fd, BELL_PUBLISH, 0, 0, NULL, -1);
}

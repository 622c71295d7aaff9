/* The client's end of the control socket: a ZeroMQ DEALER on ipc. ZeroMQ connects in the background and never says that
 * nobody is there, so the socket is probed with a plain connect first; that tells "no file" from "no right" from "nobody
 * behind it". On another host there is no such probe, and remote.c tells. A request whose reply did not come in time takes its connection with it: a late reply must not answer the
 * next request. */

#include "ctl/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "core/base.h"
#include "ctl/remote.h"
#include "proto/command.h"

struct client {
	struct sockaddr_un address;
	struct remote *remote; /* NULL: the daemon is at address, on this host */
	int timeout_ms;
	void *context; /* of zmq */
	void *socket;  /* NULL: to be opened by the next request */
};

static int64_t clock_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Connects and hangs up, to learn what ZeroMQ will not tell. */
static int probe(const struct sockaddr_un *address, struct line *why)
{
	const char *path = address->sun_path;
	int error = 0;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no socket to be had (%s)", strerror(errno));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
		goto out;
	switch (errno) {
	case ENOENT:
	case ENOTDIR:
		error = line_fail(why, EDIT_ERROR_UNREACHABLE,
			     "no socket %s: editd is not running here; try `systemctl start editd`, or name its socket with -s",
			     path);
		break;
	case EACCES:
	case EPERM:
		error = line_fail(why, EDIT_ERROR_UNREACHABLE,
			     "no right to use %s; it is open to root and to members of the group editd", path);
		break;
	case ECONNREFUSED:
		error = line_fail(why, EDIT_ERROR_UNREACHABLE,
			     "nobody listens on %s: editd has ended; try `systemctl start editd`", path);
		break;
	case ENOTSOCK:
	case EPROTOTYPE:
		error = line_fail(why, EDIT_ERROR_UNREACHABLE, "%s is not the control socket of editd", path);
		break;
	default:
		error = line_fail(why, EDIT_ERROR_UNREACHABLE, "cannot connect to %s (%s)", path, strerror(errno));
	}
out:
	close(fd);
	return error;
}

static void drop_connection(struct client *client)
{
	if (client->remote != NULL)
		remote_disconnect(client->remote);
	if (client->socket != NULL)
		zmq_close(client->socket);
	client->socket = NULL;
}

/* Where the daemon is. */
static const char *place(const struct client *client)
{
	return client->remote != NULL ? remote_address(client->remote) : client->address.sun_path;
}

/* Whether the daemon can be reached at all, and 0 if there is nothing to be said against it. */
static int look(struct client *client, struct line *why)
{
	return client->remote != NULL ? remote_hear(client->remote, why) : probe(&client->address, why);
}

static int connect_local(struct client *client, struct line *why)
{
	char endpoint[sizeof(client->address.sun_path) + sizeof("ipc://")];
	snprintf(endpoint, sizeof(endpoint), "ipc://%s", client->address.sun_path);
	if (zmq_connect(client->socket, endpoint) != 0)
		return line_fail(why, EDIT_ERROR_UNREACHABLE, "cannot connect to %s (%s)", client->address.sun_path, zmq_strerror(errno));
	return 0;
}

static int connect_socket(struct client *client, struct line *why)
{
	int linger = 0;
	int64_t size_max_bytes = CONTROL_REPLY_MAX;
	int error = client->remote != NULL ? 0 : probe(&client->address, why);
	if (error != 0)
		return error;
	client->socket = zmq_socket(client->context, ZMQ_DEALER);
	if (client->socket == NULL)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no socket to be had (%s)", zmq_strerror(errno));
	zmq_setsockopt(client->socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(client->socket, ZMQ_MAXMSGSIZE, &size_max_bytes, sizeof(size_max_bytes));
	error = client->remote != NULL ? remote_connect(client->remote, client->context, client->socket, why)
				       : connect_local(client, why);
	if (error != 0)
		drop_connection(client);
	return error;
}

/* Takes over remote, also on failure. */
static int make_client(const struct sockaddr_un *address, struct remote *remote, int timeout_ms, struct line *why,
		       struct client **ret_client)
{
	struct client *client = calloc(1, sizeof(*client));
	if (client == NULL) {
		remote_close(remote);
		return line_fail(why, EDIT_ERROR_SYSTEM, "out of memory");
	}
	client->address = *address;
	client->remote = remote;
	client->timeout_ms = timeout_ms;
	client->context = zmq_ctx_new();
	int error = client->context == NULL ? line_fail(why, EDIT_ERROR_SYSTEM, "ZeroMQ does not start (%s)", strerror(errno))
					    : connect_socket(client, why);
	if (error != 0) {
		client_close(client);
		return error;
	}
	*ret_client = client;
	return 0;
}

int client_open(const char *path, int timeout_ms, struct line *why, struct client **ret_client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CHECK(timeout_ms > 0);
	if (strncmp(path, "ipc://", strlen("ipc://")) == 0)
		path += strlen("ipc://");
	if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path))
		return line_fail(why, EDIT_ERROR_INVALID, "socket path is %s (%zu bytes; 1 to %zu are possible): %s",
			    path[0] == '\0' ? "empty" : "too long", strlen(path), sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path));
	return make_client(&address, NULL, timeout_ms, why, ret_client);
}

int client_open_remote(const char *address, const char *key_file, const char *server_file, int timeout_ms, struct line *why,
		       struct client **ret_client)
{
	const struct sockaddr_un none = {.sun_family = AF_UNIX};
	struct remote *remote = NULL;
	CHECK(timeout_ms > 0);
	int error = remote_open(address, key_file, server_file, why, &remote);
	return error != 0 ? error : make_client(&none, remote, timeout_ms, why, ret_client);
}

void client_close(struct client *client)
{
	if (client == NULL)
		return;
	drop_connection(client);
	if (client->context != NULL)
		zmq_ctx_term(client->context);
	remote_close(client->remote);
	free(client);
}

static int send_request(struct client *client, const struct control_request *request, struct line *why)
{
	uint8_t bytes[CONTROL_REQUEST_MAX];
	size_t size_bytes = 0;
	int error = control_request_encode(request, bytes, sizeof(bytes), &size_bytes);
	if (error != 0)
		return line_fail(why, error, "the request cannot be sent (%s)", edit_error_text(error));
	if (zmq_send(client->socket, bytes, size_bytes, ZMQ_DONTWAIT) < 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "request not sent (%s)", zmq_strerror(errno));
	return 0;
}

/* Waits until a reply is there. ZeroMQ is woken early by signals, so the deadline is kept here. */
static int await_reply(struct client *client, struct line *why)
{
	int64_t deadline_ms = clock_ms() + client->timeout_ms;
	for (;;) {
		zmq_pollitem_t items[2] = {{.socket = client->socket, .events = ZMQ_POLLIN},
					   {.socket = client->remote != NULL ? remote_source(client->remote) : NULL,
					    .events = ZMQ_POLLIN}};
		int64_t left_ms = deadline_ms - clock_ms();
		int ready = zmq_poll(items, client->remote != NULL ? 2 : 1, left_ms > 0 ? (long)left_ms : 0);
		if (ready > 0 && (items[0].revents & ZMQ_POLLIN))
			return 0;
		int error = ready > 0 ? remote_hear(client->remote, why) : 0;
		if (error != 0)
			return error;
		if (ready < 0 && errno != EINTR)
			return line_fail(why, EDIT_ERROR_SYSTEM, "no reply (%s)", zmq_strerror(errno));
		if (ready == 0 && left_ms <= 0)
			break;
	}
	int error = look(client, why); /* has it died, or is it only silent? */
	if (error != 0)
		return error;
	if (client->remote != NULL)
		return line_fail(why, EDIT_ERROR_UNREACHABLE, "%s: no answer within %.3g s (-t SECONDS waits longer)", place(client),
				 client->timeout_ms / 1e3);
	return line_fail(why, EDIT_ERROR_UNREACHABLE,
		    "editd took the connection to %s, but gave no answer within %.3g s (-t SECONDS waits longer)",
		    client->address.sun_path, client->timeout_ms / 1e3);
}

static int receive_reply(struct client *client, struct line *why, struct answer *ret_answer)
{
	zmq_msg_t frame;
	int error;
	zmq_msg_init(&frame);
	if (zmq_msg_recv(&frame, client->socket, ZMQ_DONTWAIT) < 0)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "no reply (%s)", zmq_strerror(errno));
	else if (zmq_msg_more(&frame))
		error = line_fail(why, EDIT_ERROR_MALFORMED, "the reply on %s has more than one frame",
				  place(client));
	else
		error = control_reply_decode(zmq_msg_data(&frame), zmq_msg_size(&frame), &ret_answer->block,
					     &ret_answer->reply, why);
	zmq_msg_close(&frame);
	return error;
}

int client_ask(struct client *client, const struct control_request *request, struct line *why, struct answer *ret_answer)
{
	int error = client->socket != NULL ? 0 : connect_socket(client, why);
	if (error == 0)
		error = send_request(client, request, why);
	if (error == 0)
		error = await_reply(client, why);
	if (error == 0)
		error = receive_reply(client, why, ret_answer);
	if (error != 0)
		drop_connection(client);
	return error;
}

/* Connecting to control.listen. What its monitor tells is the same as daemon/handshake.c hears; a tool can take the first word of
 * it, for there is nobody who could come back later. */

#include "ctl/remote.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "proto/address.h"
#include "proto/keyfile.h"

#define MONITOR "inproc://monitor"

enum {
	EVENTS = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
		 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
};

struct remote {
	const char *address, *key_file, *server_file;
	char public_key[KEY_BYTES], secret_key[KEY_BYTES], server_key[KEY_BYTES];
	void *socket, *pair; /* the monitored one, and where its events come in; NULL: not connected */
	bool is_connected;   /* it was, at least up to the handshake */
};

static int check_address(const char *text, struct line *why)
{
	struct address address;
	int error = address_parse(text, &address, why);
	if (!error && (address.kind != ADDRESS_TCP || strcmp(address.host, "*") == 0))
		error = line_fail(why, EDIT_ERROR_INVALID, "\"%s\": expected tcp://HOST:PORT, as in control.listen of the node", text);
	return error;
}

int remote_open(const char *address, const char *key_file, const char *server_file, struct line *why, struct remote **ret_remote)
{
	int error = check_address(address, why);
	if (error)
		return error;
	if (!zmq_has("curve"))
		return line_fail(why, EDIT_ERROR_SYSTEM, "this libzmq is built without CURVE: no other host can be asked");
	struct remote *remote = calloc(1, sizeof *remote);
	if (!remote)
		return line_fail(why, EDIT_ERROR_SYSTEM, "out of memory");
	remote->address = address;
	remote->key_file = key_file;
	remote->server_file = server_file;
	error = keyfile_read_secret(key_file, remote->secret_key, why);
	if (!error)
		error = keyfile_read_public(server_file, false, remote->server_key, NULL, why);
	if (!error && zmq_curve_public(remote->public_key, remote->secret_key) != 0)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: no public key can be made of it (%s)", key_file, zmq_strerror(errno));
	if (error) {
		remote_close(remote);
		return error;
	}
	*ret_remote = remote;
	return 0;
}

void remote_close(struct remote *remote)
{
	if (!remote)
		return;
	explicit_bzero(remote, sizeof *remote);
	free(remote);
}

static bool set_keys(const struct remote *remote, void *socket)
{
	int is_ipv6 = strchr(remote->address, '[') != NULL;
	return zmq_setsockopt(socket, ZMQ_IPV6, &is_ipv6, sizeof is_ipv6) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, remote->server_key, KEY_BYTES - 1) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, remote->public_key, KEY_BYTES - 1) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, remote->secret_key, KEY_BYTES - 1) == 0;
}

int remote_connect(struct remote *remote, void *context, void *socket, struct line *why)
{
	int no_bound = 0, linger = 0;
	if (!set_keys(remote, socket) || zmq_socket_monitor(socket, MONITOR, EVENTS) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no socket to be had (%s)", zmq_strerror(errno));
	remote->is_connected = false;
	remote->socket = socket;
	remote->pair = zmq_socket(context, ZMQ_PAIR);
	if (!remote->pair || zmq_setsockopt(remote->pair, ZMQ_RCVHWM, &no_bound, sizeof no_bound) != 0 ||
	    zmq_setsockopt(remote->pair, ZMQ_LINGER, &linger, sizeof linger) != 0 || zmq_connect(remote->pair, MONITOR) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no socket to be had (%s)", zmq_strerror(errno));
	if (zmq_connect(socket, remote->address) != 0)
		return line_fail(why, EDIT_ERROR_UNREACHABLE, "cannot connect to %s (%s)", remote->address, zmq_strerror(errno));
	return 0;
}

void remote_disconnect(struct remote *remote)
{
	if (remote->socket)
		zmq_socket_monitor(remote->socket, NULL, 0);
	if (remote->pair)
		zmq_close(remote->pair);
	remote->socket = remote->pair = NULL;
}

void *remote_source(const struct remote *remote)
{
	return remote->pair;
}

/* What an event, with its value, is against. */
static int take(struct remote *remote, unsigned event, uint32_t value, struct line *why)
{
	switch (event) {
	case ZMQ_EVENT_CONNECTED: remote->is_connected = true; return 0;
	case ZMQ_EVENT_CONNECT_RETRIED:
		if (remote->is_connected)
			return 0;
		return line_fail(why, EDIT_ERROR_UNREACHABLE,
				 "cannot connect to %s: no such host, or nobody listens there (control.listen of the node)", remote->address);
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "%s does not know the key of %s: its public key belongs in keys/clients/NAME.pub there, then `systemctl reload editd`",
				 remote->address, remote->key_file);
	case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
		if (value != EPIPE && value != ECONNRESET)
			return 0; /* it is silent: for the deadline */
		return line_fail(why, EDIT_ERROR_REFUSED, "%s has hung up: its key is not the one in %s, or it has no connections left",
				 remote->address, remote->server_file);
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
		return line_fail(why, EDIT_ERROR_UNREACHABLE, "%s is not control.listen of an editd: it does not ask for keys",
				 remote->address);
	default: return 0;
	}
}

int remote_hear(struct remote *remote, struct line *why)
{
	uint8_t frame[6];
	char address[1];
	while (remote->pair && zmq_recv(remote->pair, frame, sizeof frame, ZMQ_DONTWAIT) >= 0) {
		uint16_t event;
		uint32_t value;
		memcpy(&event, frame, sizeof event);
		memcpy(&value, frame + 2, sizeof value);
		zmq_recv(remote->pair, address, sizeof address, ZMQ_DONTWAIT);
		int error = take(remote, event, value, why);
		if (error)
			return error;
	}
	return 0;
}

const char *remote_address(const struct remote *remote)
{
	return remote->address;
}

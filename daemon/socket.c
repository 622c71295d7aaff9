/* Making sockets between hosts. */

#include "daemon/socket.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "proto/codec.h"

enum {
	SEND_QUEUE_MAX = 8192,   /* messages to a neighbour; payloads are not copied, so this is about 2 MiB */
	RECEIVE_QUEUE_MAX = 256, /* messages of one connection; what is more waits in the sender's queue */
	CURVE_MORE = 64,         /* bytes that encryption adds to a frame: 33, in CurveZMQ */
	DEAD_MS = 5000,          /* a connection whose bytes nobody acknowledges for so long is made anew */
	KEEPALIVE_S = 5, KEEPALIVE_INTERVAL_S = 1, KEEPALIVE_COUNT = 3, /* of one that only receives */
	RECONNECT_MS = 100,
	RECONNECT_MAX_MS = 250,  /* a neighbour that comes back is waited for by a whole ring */
	HANDSHAKE_MS = 5000,
	BACKLOG = 64
};

bool socket_set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

void *socket_open(void *context, int type, const char *address)
{
	void *socket = zmq_socket(context, type);
	int64_t frame_max = CODEC_PAYLOAD_MAX + CURVE_MORE;
	if (!socket)
		return NULL;
	/* Dead lines are the kernel's to find. ZeroMQ's own heartbeats would end the daemon: in 4.3.4 their timer writes to a
	 * connection that was closed while its input was stopped by a full queue, which is an assertion (stream_engine_base.cpp,
	 * !_io_error).
	 *
	 * IPv6 for those who write such an address: of a name ZeroMQ would then try nothing else, route or no route. */
	bool is_ipv6 = strchr(address, '[') != NULL;
	bool is_set = socket_set_int(socket, ZMQ_LINGER, 0) && socket_set_int(socket, ZMQ_IPV6, is_ipv6) &&
		      socket_set_int(socket, ZMQ_SNDHWM, SEND_QUEUE_MAX) &&
		      socket_set_int(socket, ZMQ_RCVHWM, RECEIVE_QUEUE_MAX) && socket_set_int(socket, ZMQ_IMMEDIATE, 1) &&
		      socket_set_int(socket, ZMQ_TCP_MAXRT, DEAD_MS) && socket_set_int(socket, ZMQ_TCP_KEEPALIVE, 1) &&
		      socket_set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_S) &&
		      socket_set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S) &&
		      socket_set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT) &&
		      socket_set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
		      socket_set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
		      socket_set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && socket_set_int(socket, ZMQ_BACKLOG, BACKLOG) &&
		      zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0;
	if (is_set)
		return socket;
	int saved = errno;
	zmq_close(socket);
	errno = saved;
	return NULL;
}

bool socket_guard(void *socket, const struct keyring *keyring, const char *domain)
{
	CHECK(keyring->has_keys);
	return socket_set_int(socket, ZMQ_CURVE_SERVER, 1) &&
	       zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keyring->secret_key, KEY_BYTES - 1) == 0 &&
	       zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain)) == 0;
}

bool socket_prove(void *socket, const struct keyring *keyring, const char *server_key)
{
	CHECK(keyring->has_keys);
	return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, KEY_BYTES - 1) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keyring->public_key, KEY_BYTES - 1) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keyring->secret_key, KEY_BYTES - 1) == 0;
}

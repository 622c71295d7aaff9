/* Sockets between the daemons of a ring or mesh, on libzmq. Knows neighbours and connections, no rounds. Owns the context,
 * one or two ROUTERs, at most six DEALERs and the frames of the message given last. */

#include "daemon/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "daemon/gate.h"
#include "daemon/log.h"
#include "proto/codec.h"

enum {
	SEND_QUEUE_MAX = 8192,   /* messages to a neighbour; payloads are not copied, so this is about 2 MiB */
	RECEIVE_QUEUE_MAX = 256, /* messages of one connection; what is more waits in the sender's queue */
	ROUTING_ID_MAX = 64,
	KNOWN_MAX = 4, /* connections per neighbour whose hello is remembered */
	STRANGER_FRAMES =
		32, /* frames of unknown connections that are read per second; the others are dropped unread */
	DEAD_MS = 5000,    /* a connection whose bytes nobody acknowledges for so long is made anew */
	KEEPALIVE_S = 5, KEEPALIVE_INTERVAL_S = 1, KEEPALIVE_COUNT = 3, /* of one that only receives */
	EVICT_US = 1000000, /* a connection has so long to say hello when descriptors are scarce */
	RECONNECT_MS = 100,
	RECONNECT_MAX_MS = 2000,
	HANDSHAKE_MS = 5000,
	BACKLOG = 64,
	SOURCES_MAX = 8
};

/* A connection on which a neighbour's hello has come in. */
struct known {
	uint64_t incarnation;
	int fd;          /* where its latest frame came in */
	size_t id_bytes; /* 0: unused */
	uint8_t id[ROUTING_ID_MAX];
};

struct neighbour {
	uint32_t rank;
	void *socket;
	struct known known[KNOWN_MAX];
	unsigned known_next;
};

struct transport {
	struct transport_config config;
	void *context;
	void *routers[TRANSPORT_LISTENERS_MAX];
	size_t router_count;
	size_t turn;                        /* the ROUTER to look at next */
	struct neighbour neighbours[TRANSPORT_NEIGHBOURS_MAX];
	size_t neighbour_count;
	struct transport_counts counts;

	zmq_msg_t id, header, payload;      /* of the message given last */
	void *origin;                       /* the ROUTER where it came in */
	uint64_t strangers_us;              /* begin of the second in which stranger_frames are counted */
	unsigned stranger_frames;
	struct codec *codec;
	uint8_t frame[CODEC_FRAME_MAX];     /* the message being sent */
};

static int fail(char *text, size_t size, const char *what, const char *address)
{
	snprintf(text, size, "%s %s: %s", what, address, zmq_strerror(errno));
	return EDIT_ERROR_SYSTEM;
}

static bool set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/* A socket between daemons, for an address. All of them are made here, so this is where their keys (CURVE) belong.
 * NULL: errno tells. */
static void *socket_open(void *context, int type, const char *address)
{
	void *socket = zmq_socket(context, type);
	int64_t frame_max = CODEC_PAYLOAD_MAX;
	if (!socket)
		return NULL;
	/* Dead lines are the kernel's to find. ZeroMQ's own heartbeats would end the daemon: in 4.3.4 their timer writes to a
	 * connection that was closed while its input was stopped by a full queue, which is an assertion (stream_engine_base.cpp,
	 * !_io_error).
	 *
	 * IPv6 for those who write such an address: of a name ZeroMQ would then try nothing else, route or no route. */
	bool is_ipv6 = strchr(address, '[') != NULL;
	bool is_set = set_int(socket, ZMQ_LINGER, 0) && set_int(socket, ZMQ_IPV6, is_ipv6) &&
		      set_int(socket, ZMQ_SNDHWM, SEND_QUEUE_MAX) &&
		      set_int(socket, ZMQ_RCVHWM, RECEIVE_QUEUE_MAX) && set_int(socket, ZMQ_IMMEDIATE, 1) &&
		      set_int(socket, ZMQ_TCP_MAXRT, DEAD_MS) && set_int(socket, ZMQ_TCP_KEEPALIVE, 1) &&
		      set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_S) &&
		      set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S) &&
		      set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT) &&
		      set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
		      set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
		      set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && set_int(socket, ZMQ_BACKLOG, BACKLOG) &&
		      zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0;
	if (is_set)
		return socket;
	int saved = errno;
	zmq_close(socket);
	errno = saved;
	return NULL;
}

static int listen_open(struct transport *transport, const char *address, const char *setting, char *text, size_t size)
{
	void *router = socket_open(transport->context, ZMQ_ROUTER, address);
	if (router)
		transport->routers[transport->router_count++] = router;
	/* A neighbour that connects anew has the same routing id: its new connection replaces the one that is
	 * dead. */
	if (!router || !set_int(router, ZMQ_ROUTER_HANDOVER, 1))
		return fail(text, size, "cannot make a socket for", address);
	if (zmq_bind(router, address) == 0)
		return 0;
	if (errno != ENODEV && errno != EADDRNOTAVAIL)
		return fail(text, size, "cannot listen on", address);
	snprintf(text, size, "cannot listen on %s: not an address of this host; check node.name, or set %s to one in numbers",
		 address, setting);
	return EDIT_ERROR_SYSTEM;
}

static int neighbour_open(struct transport *transport, uint32_t rank, const char *address, char *text, size_t size)
{
	struct neighbour *neighbour = &transport->neighbours[transport->neighbour_count++];
	char id[ROUTING_ID_MAX];
	int length = snprintf(id, sizeof id, "%" PRIu32 "/%016" PRIx64, transport->config.rank,
			      transport->config.incarnation);
	if (transport->config.is_mesh)
		length += snprintf(id + length, sizeof id - (size_t)length, "/%" PRIu32, rank);

	neighbour->rank = rank;
	neighbour->socket = socket_open(transport->context, ZMQ_DEALER, address);
	if (!neighbour->socket || zmq_setsockopt(neighbour->socket, ZMQ_ROUTING_ID, id, (size_t)length) != 0)
		return fail(text, size, "cannot make a socket for", address);
	if (zmq_connect(neighbour->socket, address) != 0)
		return fail(text, size, "cannot connect to", address);
	return 0;
}

int transport_open(const struct transport_config *config, struct transport **ret_transport, char *text, size_t size)
{
	CHECK(config->rank < config->member_count);
	CHECK(config->neighbour_count <= TRANSPORT_NEIGHBOURS_MAX);
	struct transport *transport = calloc(1, sizeof *transport);
	void *block = aligned_alloc(64, (codec_size() + 63) / 64 * 64);
	if (!transport || !block) {
		snprintf(text, size, "no memory for the sockets");
		free(transport);
		free(block);
		return EDIT_ERROR_SYSTEM;
	}
	transport->config = *config;
	transport->codec = codec_init(block);
	zmq_msg_init(&transport->id);
	zmq_msg_init(&transport->header);
	zmq_msg_init(&transport->payload);

	int error = 0;
	transport->context = zmq_ctx_new();
	if (!transport->context)
		error = fail(text, size, "cannot begin", "ZeroMQ");
	if (!error)
		error = listen_open(transport, config->listen, "node.listen", text, size);
	if (!error && config->shard_listen)
		error = listen_open(transport, config->shard_listen, "node.shard_listen", text, size);
	for (size_t i = 0; i < config->neighbour_count && !error; i++)
		error = neighbour_open(transport, config->neighbours[i].rank, config->neighbours[i].address, text, size);
	if (error) {
		transport_close(transport);
		return error;
	}
	*ret_transport = transport;
	return 0;
}

void transport_close(struct transport *transport)
{
	zmq_msg_close(&transport->id);
	zmq_msg_close(&transport->header);
	zmq_msg_close(&transport->payload);
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (transport->neighbours[i].socket)
			zmq_close(transport->neighbours[i].socket);
	for (size_t i = 0; i < transport->router_count; i++)
		zmq_close(transport->routers[i]);
	while (transport->context && zmq_ctx_term(transport->context) != 0 && errno == EINTR)
		;
	free(transport->codec);
	free(transport);
}

void *transport_context(struct transport *transport)
{
	return transport->context;
}

void transport_counts(const struct transport *transport, struct transport_counts *ret_counts)
{
	*ret_counts = transport->counts;
}

/* ---- Sending ---- */

static struct neighbour *neighbour_find(struct transport *transport, uint32_t rank)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (transport->neighbours[i].rank == rank)
			return &transport->neighbours[i];
	return NULL;
}

/* The core keeps payloads in place until they are acknowledged, so there is nothing to free. */
static void payload_release(void *data, void *hint)
{
	(void)data;
	(void)hint;
}

static bool send_payload(void *socket, const void *payload, size_t bytes)
{
	zmq_msg_t message;
	/* libzmq only reads a message that is sent, so the const may go. */
	if (zmq_msg_init_data(&message, (void *)(uintptr_t)payload, bytes, payload_release, NULL) != 0)
		return false;
	if (zmq_msg_send(&message, socket, ZMQ_DONTWAIT) >= 0)
		return true;
	zmq_msg_close(&message);
	return false;
}

bool transport_send(struct transport *transport, uint32_t to, const struct message *message)
{
	size_t bytes = 0;
	int error = codec_encode(transport->codec, message, transport->frame, sizeof transport->frame, &bytes);
	if (error) {
		transport->counts.unsent_frames++;
		return false;
	}

	struct neighbour *neighbour = neighbour_find(transport, to);
	void *socket = neighbour ? neighbour->socket : NULL;
	bool is_sent = true;
	if (message->kind == MESSAGE_REFUSE) {
		socket = transport->origin;
		size_t id_bytes = zmq_msg_size(&transport->id);
		is_sent = id_bytes > 0 && zmq_send(socket, zmq_msg_data(&transport->id), id_bytes,
						   ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
	}
	CHECK(socket);
	int more = message->kind == MESSAGE_CHUNK ? ZMQ_SNDMORE : 0;
	is_sent = is_sent && zmq_send(socket, transport->frame, bytes, ZMQ_DONTWAIT | more) >= 0;
	if (is_sent && more)
		is_sent = send_payload(socket, message->payload, message->payload_bytes);
	if (!is_sent)
		transport->counts.unsent_frames++;
	return is_sent;
}

/* ---- Receiving ---- */

/* One part of a message. False: none there (or not this time); ret_more: another part follows. */
static bool receive_part(void *socket, zmq_msg_t *part, bool *ret_more)
{
	if (zmq_msg_recv(part, socket, ZMQ_DONTWAIT) < 0)
		return false;
	*ret_more = zmq_msg_more(part) != 0;
	return true;
}

/* Takes one message off socket: has_id: routing id, then header and maybe a payload. False: nothing there.
 * *ret_is_whole: it had the parts that it must have. */
static bool receive_parts(struct transport *transport, void *socket, bool has_id, bool *ret_is_whole)
{
	bool more = true;
	if (has_id && !receive_part(socket, &transport->id, &more))
		return false;
	bool is_whole = more && receive_part(socket, &transport->header, &more);
	if (!is_whole && !has_id)
		return false;
	zmq_msg_close(&transport->payload);
	zmq_msg_init(&transport->payload);
	if (is_whole && more)
		is_whole = receive_part(socket, &transport->payload, &more);
	/* Parts beyond the second have no meaning; a message is in memory as a whole, so this ends. */
	for (zmq_msg_t extra; more; is_whole = false) {
		zmq_msg_init(&extra);
		if (!receive_part(socket, &extra, &more))
			more = false;
		zmq_msg_close(&extra);
	}
	*ret_is_whole = is_whole;
	return true;
}

/* Reads the message at hand; what is wrong with one that cannot be read is told to those who listen closely. */
static bool decode(struct transport *transport, struct message *ret_message)
{
	const char *what = "";
	size_t payload_bytes = zmq_msg_size(&transport->payload);
	const void *payload = payload_bytes ? zmq_msg_data(&transport->payload) : NULL;
	int error = codec_decode(transport->codec, zmq_msg_data(&transport->header), zmq_msg_size(&transport->header),
				 payload, payload_bytes, ret_message, &what);
	if (error)
		log_line(LEVEL_DEBUG, "malformed frame (%s)", what);
	return error == 0;
}

/* The neighbour whose hello the connection of the message at hand has said, and that hello's incarnation. NULL:
 * none. */
static struct neighbour *known_find(struct transport *transport, struct known **ret_known)
{
	size_t bytes = zmq_msg_size(&transport->id);
	for (size_t i = 0; i < transport->neighbour_count; i++)
		for (size_t j = 0; j < KNOWN_MAX; j++) {
			struct known *known = &transport->neighbours[i].known[j];
			if (known->id_bytes == bytes && memcmp(known->id, zmq_msg_data(&transport->id), bytes) == 0) {
				*ret_known = known;
				return &transport->neighbours[i];
			}
		}
	return NULL;
}

static void known_add(struct transport *transport, struct neighbour *neighbour, uint64_t incarnation)
{
	size_t bytes = zmq_msg_size(&transport->id);
	if (bytes == 0 || bytes > ROUTING_ID_MAX)
		return;
	struct known *known = &neighbour->known[neighbour->known_next++ % KNOWN_MAX];
	known->incarnation = incarnation;
	known->fd = zmq_msg_get(&transport->header, ZMQ_SRCFD);
	known->id_bytes = bytes;
	memcpy(known->id, zmq_msg_data(&transport->id), bytes);
}

/* Tells a stranger that it is one; what becomes of it is not our concern. */
static void refuse_stranger(struct transport *transport)
{
	struct message message = {.kind = MESSAGE_REFUSE, .from = transport->config.rank,
				  .incarnation = transport->config.incarnation, .view = VIEW_FIRST,
				  .refuse = {.reason = REFUSAL_STRANGER}};
	transport_send(transport, transport->config.rank, &message);
	transport->counts.stranger_frames++;
}

/* Whether the connection of the message at hand is meant for another member: its routing id ends in "/" and that rank.
 * Somebody's address of that member leads here then. */
static bool is_meant_for_another(struct transport *transport)
{
	const char *id = zmq_msg_data(&transport->id);
	size_t bytes = zmq_msg_size(&transport->id), slashes = 0, end = 0;
	for (size_t i = 0; i < bytes; i++)
		if (id[i] == '/') {
			slashes++;
			end = i + 1;
		}
	char own[16];
	int length = snprintf(own, sizeof own, "%" PRIu32, transport->config.rank);
	return slashes == 2 && (bytes - end != (size_t)length || memcmp(id + end, own, (size_t)length) != 0);
}

/* A connection that has said nothing valid yet may say hello, or speak another version (which reads as a refusal). */
static bool accept_stranger(struct transport *transport, uint64_t now_us, struct message *ret_message)
{
	if (now_us - transport->strangers_us >= 1000000) {
		transport->strangers_us = now_us;
		transport->stranger_frames = 0;
	}
	if (transport->stranger_frames++ >= STRANGER_FRAMES) {
		transport->counts.stranger_frames++;
		return false;
	}
	struct message message;
	if (!decode(transport, &message)) {
		transport->counts.malformed_frames++;
		return false;
	}
	struct neighbour *neighbour = neighbour_find(transport, message.from);
	bool is_version = message.kind == MESSAGE_REFUSE && message.refuse.reason == REFUSAL_VERSION;
	if (message.kind != MESSAGE_HELLO && !(is_version && neighbour)) {
		transport->counts.stranger_frames++;
		return false;
	}
	if (message.kind == MESSAGE_HELLO) {
		if (!neighbour || is_meant_for_another(transport) ||
		    strcmp(message.hello.name, transport->config.names[message.from]) != 0) {
			refuse_stranger(transport);
			return false;
		}
		known_add(transport, neighbour, message.incarnation);
	}
	*ret_message = message;
	return true;
}

/* One message of a ROUTER. True: it is valid and in *ret_message. */
static bool accept_ring(struct transport *transport, uint64_t now_us, bool is_whole, struct message *ret_message)
{
	if (!is_whole) {
		transport->counts.malformed_frames++;
		return false;
	}
	struct known *known = NULL;
	struct neighbour *neighbour = known_find(transport, &known);
	if (!neighbour)
		return accept_stranger(transport, now_us, ret_message);
	known->fd = zmq_msg_get(&transport->header, ZMQ_SRCFD);
	struct message message;
	if (!decode(transport, &message) || message.from != neighbour->rank ||
	    message.incarnation != known->incarnation || message.kind == MESSAGE_REFUSE) {
		transport->counts.malformed_frames++;
		return false;
	}
	if (message.kind == MESSAGE_HELLO && strcmp(message.hello.name, transport->config.names[message.from]) != 0) {
		transport->counts.malformed_frames++;
		return false;
	}
	*ret_message = message;
	return true;
}

/* Our hello is answered, if at all, by a refusal on the DEALER. */
static bool receive_refusal(struct transport *transport, struct neighbour *neighbour, unsigned *budget,
			    struct message *ret_message)
{
	bool is_whole = false;
	while (*budget > 0 && receive_parts(transport, neighbour->socket, false, &is_whole)) {
		--*budget;
		struct message message;
		if (!is_whole || !decode(transport, &message) || message.kind != MESSAGE_REFUSE) {
			transport->counts.malformed_frames++;
			continue;
		}
		message.from = neighbour->rank;
		*ret_message = message;
		return true;
	}
	return false;
}

/* Takes turns between the ROUTERs, so that a flood at one does not use up the budget of the other. */
static bool receive_ring(struct transport *transport, uint64_t now_us, unsigned *budget, struct message *ret_message)
{
	bool is_whole = false;
	for (size_t idle = 0; *budget > 0 && idle < transport->router_count;) {
		transport->origin = transport->routers[transport->turn];
		transport->turn = (transport->turn + 1) % transport->router_count;
		if (!receive_parts(transport, transport->origin, true, &is_whole)) {
			idle++;
			continue;
		}
		idle = 0;
		--*budget;
		if (accept_ring(transport, now_us, is_whole, ret_message))
			return true;
	}
	return false;
}

bool transport_receive(struct transport *transport, uint64_t now_us, unsigned *budget, struct message *ret_message)
{
	if (receive_ring(transport, now_us, budget, ret_message))
		return true;
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (receive_refusal(transport, &transport->neighbours[i], budget, ret_message))
			return true;
	return false;
}

size_t transport_evict(struct transport *transport)
{
	int kept[TRANSPORT_NEIGHBOURS_MAX * KNOWN_MAX];
	size_t kept_count = 0;
	for (size_t i = 0; i < transport->neighbour_count; i++)
		for (size_t j = 0; j < KNOWN_MAX; j++)
			if (transport->neighbours[i].known[j].id_bytes > 0)
				kept[kept_count++] = transport->neighbours[i].known[j].fd;
	return gate_evict(kept, kept_count, EVICT_US);
}

/* ---- Waiting ---- */

void transport_wait(struct transport *transport, struct transport_source *sources, size_t count, long timeout_ms)
{
	zmq_pollitem_t items[SOURCES_MAX + TRANSPORT_LISTENERS_MAX + TRANSPORT_NEIGHBOURS_MAX];
	size_t used = 0;
	CHECK(count <= SOURCES_MAX);
	for (size_t i = 0; i < count; i++)
		items[used++] = (zmq_pollitem_t){.socket = sources[i].socket, .fd = sources[i].fd, .events = ZMQ_POLLIN};
	for (size_t i = 0; i < transport->router_count; i++)
		items[used++] = (zmq_pollitem_t){.socket = transport->routers[i], .events = ZMQ_POLLIN};
	for (size_t i = 0; i < transport->neighbour_count; i++)
		items[used++] = (zmq_pollitem_t){.socket = transport->neighbours[i].socket, .events = ZMQ_POLLIN};
	/* Interrupted by a signal, or a descriptor gone bad: the turn's own reads find out. */
	if (zmq_poll(items, (int)used, timeout_ms) < 0)
		for (size_t i = 0; i < used; i++)
			items[i].revents = 0;
	for (size_t i = 0; i < count; i++)
		sources[i].is_ready = items[i].revents != 0;
}

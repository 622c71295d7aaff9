/* Sockets between the daemons of a ring or mesh, on libzmq. Knows neighbours and connections, no rounds. Owns the context,
 * one or two ROUTERs, a DEALER for each neighbour and the frames of the message given last. */

#include "daemon/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "daemon/gate.h"
#include "daemon/log.h"
#include "daemon/socket.h"
#include "daemon/zap.h"
#include "proto/codec.h"

enum {
	ROUTING_ID_MAX = DEALER_ID_MAX,
	KNOWN_MAX = 4, /* connections per neighbour whose hello is remembered */
	STRANGER_FRAMES =
		32, /* frames of unknown connections that are read per second; the others are dropped unread */
	EVICT_US = 1000000, /* a connection has so long to say hello when descriptors are scarce */
	QUESTIONS_PER_TURN = 64, /* of the ZAP handler */
	TOLD_US = 60 * 1000 * 1000, /* what goes wrong with keys at the peer port is told so often at most */
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
	struct dealer dealer;
	struct known known[KNOWN_MAX];
	unsigned known_next;
};

struct transport {
	struct transport_config config;
	void *context;
	struct zap *zap;                    /* NULL: no keys */
	void *routers[TRANSPORT_LISTENERS_MAX];
	struct handshake heard[TRANSPORT_LISTENERS_MAX]; /* of the routers, if frames are encrypted */
	uint64_t heard_told_us, heard_told; /* when their failures were last told, and how many there were */
	uint64_t stolen_told_us;            /* when a name with another's key was last told; 0: never */
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

static int listen_open(struct transport *transport, const char *address, const char *setting, char *text, size_t size)
{
	void *router = socket_open(transport->context, ZMQ_ROUTER, address);
	if (router)
		transport->routers[transport->router_count++] = router;
	/* A neighbour that connects anew has the same routing id: its new connection replaces the one that is
	 * dead. */
	bool is_made = router && socket_set_int(router, ZMQ_ROUTER_HANDOVER, 1);
	if (is_made && transport->config.is_encrypted)
		is_made = socket_guard(router, transport->config.keyring, ZAP_RING) &&
			  handshake_open(&transport->heard[transport->router_count - 1], transport->context, router);
	if (!is_made)
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
	const struct transport_config *config = &transport->config;
	char id[DEALER_ID_MAX + 1];
	int length = snprintf(id, sizeof id, "%" PRIu32 "/%016" PRIx64, config->rank, config->incarnation);
	if (config->is_mesh)
		snprintf(id + length, sizeof id - (size_t)length, "/%" PRIu32, rank);
	neighbour->rank = rank;
	dealer_init(&neighbour->dealer, transport->context, config->names[rank], address, id);
	if (config->is_encrypted)
		dealer_encrypt(&neighbour->dealer, config->keyring, rank);
	return dealer_connect(&neighbour->dealer) ? 0 : fail(text, size, "cannot connect to", address);
}

int transport_open(const struct transport_config *config, struct transport **ret_transport, char *text, size_t size)
{
	CHECK(config->rank < config->member_count);
	CHECK(config->neighbour_count <= TRANSPORT_NEIGHBOURS_MAX);
	CHECK(!config->is_encrypted || config->keyring);
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
	/* Sockets that find nobody to ask would let everybody in. */
	if (!error && config->keyring && config->keyring->has_keys &&
	    !(transport->zap = zap_open(transport->context, config->keyring)))
		error = fail(text, size, "cannot guard", config->listen);
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
		dealer_close(&transport->neighbours[i].dealer);
	for (size_t i = 0; i < transport->router_count; i++) {
		handshake_close(&transport->heard[i]);
		zmq_close(transport->routers[i]);
	}
	if (transport->zap)
		zap_close(transport->zap);
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
	ret_counts->keys_refused = transport->zap ? zap_refused(transport->zap) : 0;
	for (size_t i = 0; i < transport->router_count; i++)
		ret_counts->handshakes_failed += transport->heard[i].foreign_keys + transport->heard[i].plain_peers;
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
	void *socket = neighbour ? neighbour->dealer.socket : NULL;
	bool is_sent = true;
	if (message->kind == MESSAGE_REFUSE) {
		socket = transport->origin;
		size_t id_bytes = zmq_msg_size(&transport->id);
		is_sent = id_bytes > 0 && zmq_send(socket, zmq_msg_data(&transport->id), id_bytes,
						   ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
	}
	CHECK(neighbour || message->kind == MESSAGE_REFUSE);
	is_sent = is_sent && socket;
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

/* Whether the frame at hand came over a connection with the key of that member. Always, where there are no keys. */
static bool has_key_of(struct transport *transport, uint32_t rank)
{
	if (!transport->config.is_encrypted)
		return true;
	const char *key = zmq_msg_gets(&transport->header, "User-Id");
	return key && rank < transport->config.member_count &&
	       strcmp(key, transport->config.keyring->member_keys[rank]) == 0;
}

static void tell_stolen(struct transport *transport, const char *name, uint64_t now_us)
{
	const char *key = zmq_msg_gets(&transport->header, "User-Id");
	uint32_t owner = key ? keyring_member(transport->config.keyring, key) : transport->config.member_count;
	if (transport->stolen_told_us > 0 && now_us - transport->stolen_told_us < TOLD_US)
		return;
	transport->stolen_told_us = now_us;
	log_line(LEVEL_WARNING, "hello of %s refused: its connection has the key of %s", name,
		 owner < transport->config.member_count ? transport->config.names[owner] : "nobody");
}

/* Tells a stranger that it is one; what becomes of it is not our concern. */
static void refuse_stranger(struct transport *transport, enum refusal reason)
{
	struct message message = {.kind = MESSAGE_REFUSE, .from = transport->config.rank,
				  .incarnation = transport->config.incarnation, .view = VIEW_FIRST,
				  .refuse = {.reason = reason}};
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
	bool is_version = message.kind == MESSAGE_REFUSE && message.refuse.reason == REFUSAL_VERSION &&
			  has_key_of(transport, message.from);
	if (message.kind != MESSAGE_HELLO && !(is_version && neighbour)) {
		transport->counts.stranger_frames++;
		return false;
	}
	if (message.kind == MESSAGE_HELLO) {
		if (!neighbour || is_meant_for_another(transport) ||
		    strcmp(message.hello.name, transport->config.names[message.from]) != 0) {
			refuse_stranger(transport, REFUSAL_STRANGER);
			return false;
		}
		if (!has_key_of(transport, message.from)) {
			tell_stolen(transport, message.hello.name, now_us);
			refuse_stranger(transport, REFUSAL_KEY);
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
	if (!has_key_of(transport, neighbour->rank) || !decode(transport, &message) || message.from != neighbour->rank ||
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
	while (*budget > 0 && neighbour->dealer.socket && receive_parts(transport, neighbour->dealer.socket, false, &is_whole)) {
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

size_t transport_evict(struct transport *transport, const int *others, size_t other_count)
{
	int kept[TRANSPORT_NEIGHBOURS_MAX * KNOWN_MAX + TRANSPORT_KEPT_MAX];
	size_t kept_count = 0;
	CHECK(other_count <= TRANSPORT_KEPT_MAX);
	while (kept_count < other_count) {
		kept[kept_count] = others[kept_count];
		kept_count++;
	}
	for (size_t i = 0; i < transport->neighbour_count; i++)
		for (size_t j = 0; j < KNOWN_MAX; j++)
			if (transport->neighbours[i].known[j].id_bytes > 0)
				kept[kept_count++] = transport->neighbours[i].known[j].fd;
	return gate_evict(kept, kept_count, EVICT_US);
}

/* ---- Handshakes ---- */

bool transport_trouble(const struct transport *transport, uint32_t rank, struct dealer_trouble *ret_trouble)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (transport->neighbours[i].rank == rank)
			return dealer_trouble(&transport->neighbours[i].dealer, ret_trouble);
	*ret_trouble = (struct dealer_trouble){"", "", 0};
	return false;
}

/* What others do wrong at the peer port, who cannot be named: their keys are not known before they have shown that they know ours. */
static void tell_heard(struct transport *transport, uint64_t now_us)
{
	uint64_t foreign = 0, plain = 0;
	for (size_t i = 0; i < transport->router_count; i++) {
		foreign += transport->heard[i].foreign_keys;
		plain += transport->heard[i].plain_peers;
	}
	if (foreign + plain == transport->heard_told ||
	    (transport->heard_told > 0 && now_us - transport->heard_told_us < TOLD_US))
		return;
	log_line(LEVEL_WARNING, "connections at the peer port refused so far: %" PRIu64 " that expect another key of this node, %" PRIu64
		 " that are not encrypted", foreign, plain);
	transport->heard_told = foreign + plain;
	transport->heard_told_us = now_us;
}

void transport_step(struct transport *transport, uint64_t now_us)
{
	if (transport->zap)
		zap_serve(transport->zap, now_us, QUESTIONS_PER_TURN);
	for (size_t i = 0; i < transport->neighbour_count; i++)
		dealer_step(&transport->neighbours[i].dealer, now_us);
	for (size_t i = 0; i < transport->router_count; i++)
		handshake_step(&transport->heard[i], now_us);
	tell_heard(transport, now_us);
}

void transport_rekey(struct transport *transport)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		dealer_rekey(&transport->neighbours[i].dealer);
}

/* ---- Waiting ---- */

void transport_wait(struct transport *transport, struct transport_source *sources, size_t count, long timeout_ms)
{
	zmq_pollitem_t items[SOURCES_MAX + 1 + 2 * TRANSPORT_LISTENERS_MAX + 2 * TRANSPORT_NEIGHBOURS_MAX];
	void *sockets[sizeof items / sizeof *items];
	size_t used = 0, socket_count = 0;
	CHECK(count <= SOURCES_MAX);
	for (size_t i = 0; i < count; i++)
		items[used++] = (zmq_pollitem_t){.socket = sources[i].socket, .fd = sources[i].fd, .events = ZMQ_POLLIN};
	sockets[socket_count++] = transport->zap ? zap_socket(transport->zap) : NULL;
	for (size_t i = 0; i < transport->router_count; i++) {
		sockets[socket_count++] = transport->routers[i];
		sockets[socket_count++] = transport->heard[i].pair;
	}
	for (size_t i = 0; i < transport->neighbour_count; i++) {
		sockets[socket_count++] = transport->neighbours[i].dealer.socket;
		sockets[socket_count++] = transport->neighbours[i].dealer.handshake.pair;
	}
	for (size_t i = 0; i < socket_count; i++)
		if (sockets[i])
			items[used++] = (zmq_pollitem_t){.socket = sockets[i], .events = ZMQ_POLLIN};
	/* Interrupted by a signal, or a descriptor gone bad: the turn's own reads find out. */
	if (zmq_poll(items, (int)used, timeout_ms) < 0)
		for (size_t i = 0; i < used; i++)
			items[i].revents = 0;
	for (size_t i = 0; i < count; i++)
		sources[i].is_ready = items[i].revents != 0;
}

/* Sockets between the daemons of a ring or mesh, on libzmq. Knows neighbours and connections, no rounds. Owns the context,
 * one or two ROUTERs, a DEALER for each neighbour, contacts, and the frames of the message given last. */

#include "daemon/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gate.h"
#include "daemon/log.h"
#include "daemon/reception.h"
#include "daemon/socket.h"

enum {
	EVICT_US = 1000000, /* a connection has so long to say hello when descriptors are scarce */
	QUESTIONS_PER_TURN = 64, /* of the ZAP handler */
	SOURCES_MAX = 8
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

/* Moves the neighbour of that name and address, which is one already, to the end of list[count]. False: it is none. */
static bool keep(struct transport *transport, const char *name, const char *address, struct neighbour *list, size_t count)
{
	struct neighbour *neighbour = reception_named(transport, name);
	if (!neighbour || strcmp(neighbour->dealer.address, address) != 0)
		return false;
	list[count] = *neighbour;
	*neighbour = transport->neighbours[--transport->neighbour_count];
	return true;
}

/* Takes up a view. An error, and text as of transport_open: not all sockets could be made, which dealer_step tries again. */
static int seat(struct transport *transport, const struct transport_view *view, char *text, size_t size)
{
	struct neighbour list[TRANSPORT_NEIGHBOURS_MAX];
	int error = 0;
	CHECK(view->rank <= view->member_count && view->member_count <= MEMBER_COUNT_MAX);
	CHECK(view->neighbour_count <= TRANSPORT_NEIGHBOURS_MAX);
	for (size_t i = 0; i < view->neighbour_count; i++) {
		uint32_t rank = view->neighbours[i].rank;
		CHECK(rank < view->member_count && rank != view->rank);
		if (!keep(transport, view->names[rank], view->neighbours[i].address, list, i)) {
			list[i] = (struct neighbour){.known_next = 0};
			dealer_init(&list[i].dealer, &transport->self, view->names[rank], view->neighbours[i].address);
		}
		list[i].rank = rank;
	}
	for (size_t i = 0; i < transport->neighbour_count; i++)
		dealer_close(&transport->neighbours[i].dealer);
	transport->neighbour_count = view->neighbour_count;
	memcpy(transport->neighbours, list, view->neighbour_count * sizeof *list);
	for (size_t i = 0; i < view->neighbour_count; i++) {
		struct dealer *dealer = &transport->neighbours[i].dealer;
		/* Where only its key is missing, that has been told, and may come. */
		if (!dealer->socket && !dealer_connect(dealer) && !dealer->lacks_key && !error)
			error = fail(text, size, "cannot connect to", dealer->address);
	}
	transport->view = view->number;
	transport->rank = view->rank;
	transport->member_count = view->member_count;
	memset(transport->names, 0, sizeof transport->names);
	for (uint32_t rank = 0; rank < view->member_count; rank++) {
		CHECK(strlen(view->names[rank]) < SEAT_NAME_BYTES);
		strcpy(transport->names[rank], view->names[rank]);
	}
	return error;
}

void transport_seat(struct transport *transport, const struct transport_view *view)
{
	char text[512];
	CHECK(!transport->config.is_mesh);
	if (seat(transport, view, text, sizeof text) != 0)
		log_line(LEVEL_WARNING, "view %" PRIu64 ": %s; is tried again", view->number, text);
}

int transport_open(const struct transport_config *config, struct transport **ret_transport, char *text, size_t size)
{
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
	transport->self = (struct dealer_self){.context = transport->context, .name = config->name,
					       .incarnation = config->incarnation,
					       .keyring = config->is_encrypted ? config->keyring : NULL};
	transport->contacts.self = &transport->self;
	if (!error)
		error = seat(transport, &config->view, text, size);
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
	contacts_close(&transport->contacts);
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

void transport_lease(struct transport *transport, struct lease *lease)
{
	transport->lease = lease;
}

/* ZeroMQ does not read the payload any more; in any thread. */
static void payload_release(void *data, void *hint)
{
	(void)data;
	if (hint)
		lease_return(hint);
}

static bool send_payload(void *socket, const void *payload, size_t bytes, struct lease *lease)
{
	zmq_msg_t message;
	if (lease)
		lease_take(lease);
	/* libzmq only reads a message that is sent, so the const may go. */
	if (zmq_msg_init_data(&message, (void *)(uintptr_t)payload, bytes, payload_release, lease) != 0) {
		payload_release(NULL, lease);
		return false;
	}
	if (zmq_msg_send(&message, socket, ZMQ_DONTWAIT) >= 0)
		return true;
	zmq_msg_close(&message);
	return false;
}

/* Whether it is encoded, into transport->frame. */
static bool encode(struct transport *transport, const struct message *message, size_t *ret_bytes)
{
	return codec_encode(transport->codec, message, transport->frame, sizeof transport->frame, ret_bytes) == 0;
}

/* Sends the message being sent back to where the one at hand came in. */
static bool send_back(struct transport *transport, size_t bytes)
{
	size_t id_bytes = zmq_msg_size(&transport->id);
	struct contact *contact = contacts_find(&transport->contacts, transport->origin_contact);
	void *socket = contact ? contact->dealer.socket : transport->origin;
	if (!socket)
		return false;
	const void *id = zmq_msg_data(&transport->id);
	if (!contact && (id_bytes == 0 || zmq_send(socket, id, id_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0))
		return false;
	return zmq_send(socket, transport->frame, bytes, ZMQ_DONTWAIT) >= 0;
}

bool transport_send(struct transport *transport, uint32_t to, const struct message *message)
{
	size_t bytes = 0;
	struct neighbour *neighbour = reception_neighbour(transport, to);
	CHECK(message->kind != MESSAGE_DECREE);
	CHECK(neighbour || message->kind == MESSAGE_REFUSE);
	int more = message->kind == MESSAGE_CHUNK ? ZMQ_SNDMORE : 0;
	bool is_sent = encode(transport, message, &bytes);
	if (is_sent && message->kind == MESSAGE_REFUSE) {
		is_sent = send_back(transport, bytes);
	} else if (is_sent) {
		void *socket = neighbour->dealer.socket;
		is_sent = socket && zmq_send(socket, transport->frame, bytes, ZMQ_DONTWAIT | more) >= 0;
		if (is_sent && more)
			is_sent = send_payload(socket, message->payload, message->payload_bytes, transport->lease);
	}
	transport->counts.unsent_frames += !is_sent;
	return is_sent;
}

void transport_post(struct transport *transport, const struct seat *to, const struct decree *decree, uint64_t now_us)
{
	const struct message message = {
		.kind = MESSAGE_DECREE, .incarnation = transport->config.incarnation, .decree = decree};
	size_t bytes = 0;
	CHECK(!transport->config.is_mesh);
	bool is_sent = encode(transport, &message, &bytes);
	if (is_sent && !to) {
		is_sent = send_back(transport, bytes);
	} else if (is_sent) {
		void *socket = contacts_reach(&transport->contacts, to, now_us)->dealer.socket;
		is_sent = socket && zmq_send(socket, transport->frame, bytes, ZMQ_DONTWAIT) >= 0;
	}
	transport->counts.unsent_frames += !is_sent;
}

bool reception_refuse(struct transport *transport, enum refusal reason)
{
	bool is_member = transport->rank < transport->member_count;
	const struct message message = {.kind = MESSAGE_REFUSE, .from = is_member ? transport->rank : 0,
					.incarnation = transport->config.incarnation, .view = transport->view,
					.refuse = {.reason = reason}};
	return transport_send(transport, transport->rank, &message);
}

/* ---- Turns ---- */

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

/* What others do wrong at the peer port, who cannot be named: their keys are not known before they have shown that they know
 * ours. */
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
	contacts_step(&transport->contacts, now_us);
	for (size_t i = 0; i < transport->router_count; i++)
		handshake_step(&transport->heard[i], now_us);
	tell_heard(transport, now_us);
}

void transport_rekey(struct transport *transport)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		dealer_rekey(&transport->neighbours[i].dealer);
	contacts_rekey(&transport->contacts);
}

/* ---- Waiting ---- */

void transport_wait(struct transport *transport, struct transport_source *sources, size_t count, long timeout_ms)
{
	zmq_pollitem_t items[SOURCES_MAX + 1 + 2 * (TRANSPORT_LISTENERS_MAX + TRANSPORT_NEIGHBOURS_MAX + CONTACT_COUNT_MAX)];
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
	for (size_t i = 0; i < transport->contacts.count; i++) {
		sockets[socket_count++] = transport->contacts.list[i].dealer.socket;
		sockets[socket_count++] = transport->contacts.list[i].dealer.handshake.pair;
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

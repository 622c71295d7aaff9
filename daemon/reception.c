/* Taking in frames: who says them, and whether that may be heard. */

#include "daemon/reception.h"

#include <string.h>

#include "daemon/log.h"

enum { STREAK_MAX = 8 /* frames of ROUTERs before the DEALERs get a turn too */ };

struct neighbour *reception_neighbour(struct transport *transport, uint32_t rank)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (transport->neighbours[i].rank == rank)
			return &transport->neighbours[i];
	return NULL;
}

struct neighbour *reception_named(struct transport *transport, const char *name)
{
	for (size_t i = 0; i < transport->neighbour_count; i++)
		if (strcmp(transport->neighbours[i].dealer.name, name) == 0)
			return &transport->neighbours[i];
	return NULL;
}

/* ---- The frame at hand ---- */

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
	if (!has_id) {
		zmq_msg_close(&transport->id);
		zmq_msg_init(&transport->id);
	}
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
	if (bytes == 0 || bytes > DEALER_ID_MAX)
		return;
	struct known *known = &neighbour->known[neighbour->known_next++ % KNOWN_MAX];
	known->incarnation = incarnation;
	known->fd = zmq_msg_get(&transport->header, ZMQ_SRCFD);
	known->id_bytes = bytes;
	memcpy(known->id, zmq_msg_data(&transport->id), bytes);
}

/* ---- Whose it is ---- */

/* Public key of the connection of the frame at hand; NULL: frames are not encrypted. */
static const char *key_of(struct transport *transport)
{
	return transport->config.is_encrypted ? zmq_msg_gets(&transport->header, "User-Id") : NULL;
}

/* Whether the frame at hand came over a connection with the key of that member. Always, where there are no keys. */
static bool has_key_of(struct transport *transport, const char *name)
{
	if (!transport->config.is_encrypted)
		return true;
	const char *key = key_of(transport), *expected = keyring_key(transport->config.keyring, name);
	return key && expected && strcmp(key, expected) == 0;
}

static bool is_known_name(struct transport *transport, const char *name)
{
	for (uint32_t rank = 0; rank < transport->member_count; rank++)
		if (strcmp(transport->names[rank], name) == 0)
			return true;
	for (size_t i = 0; i < transport->contacts.count; i++)
		if (strcmp(transport->contacts.list[i].dealer.name, name) == 0)
			return true;
	return false;
}

/* The name that the frame at hand is counted for: the owner of its key or, where there are no keys, the one in its routing id,
 * into name[SEAT_NAME_BYTES]. NULL: none that is known. */
static const char *guest_of(struct transport *transport, char *name)
{
	if (transport->config.is_encrypted) {
		const char *key = key_of(transport);
		return key ? keyring_member(transport->config.keyring, key) : NULL;
	}
	const char *id = zmq_msg_data(&transport->id), *end = memchr(id, '/', zmq_msg_size(&transport->id));
	if (!end || end - id >= SEAT_NAME_BYTES)
		return NULL;
	memcpy(name, id, (size_t)(end - id));
	name[end - id] = 0;
	return is_known_name(transport, name) ? name : NULL;
}

/* Whether the connection of the frame at hand is meant for another node: the name behind the third "/" of its routing id.
 * Somebody's address of that node leads here then. */
static bool is_meant_for_another(struct transport *transport)
{
	const char *id = zmq_msg_data(&transport->id), *own = transport->config.name;
	size_t bytes = zmq_msg_size(&transport->id), slashes = 0, begin = 0;
	for (size_t i = 0; i < bytes; i++)
		if (id[i] == '/') {
			slashes++;
			begin = i + 1;
		}
	return slashes == 3 && (bytes - begin != strlen(own) || memcmp(id + begin, own, strlen(own)) != 0);
}

static void tell_stolen(struct transport *transport, const char *what, const char *name, uint64_t now_us)
{
	const char *key = key_of(transport), *owner = key ? keyring_member(transport->config.keyring, key) : NULL;
	if (transport->stolen_told_us > 0 && now_us - transport->stolen_told_us < TOLD_US)
		return;
	transport->stolen_told_us = now_us;
	log_line(LEVEL_WARNING, "%s of %s refused: its connection has the key of %s", what, name, owner ? owner : "nobody");
}

/* ---- What is heard ---- */

/* A neighbour, found by rank in its view or, if it is in another one, by name. */
static bool accept_hello(struct transport *transport, uint64_t now_us, struct message *message)
{
	bool is_of_view = transport->config.is_mesh || message->view == transport->view;
	struct neighbour *neighbour = is_of_view ? reception_neighbour(transport, message->from)
						 : reception_named(transport, message->hello.name);
	bool is_astray = is_meant_for_another(transport);
	/* Its view and ours become the same, by what councils say; until then it is nothing to us, but no stranger. */
	if (!neighbour && !is_of_view && !is_astray) {
		transport->counts.foreign_hellos++;
		return false;
	}
	if (!neighbour || is_astray || strcmp(message->hello.name, neighbour->dealer.name) != 0) {
		reception_refuse(transport, REFUSAL_STRANGER);
		transport->counts.stranger_frames++;
		return false;
	}
	if (!has_key_of(transport, neighbour->dealer.name)) {
		tell_stolen(transport, "hello", message->hello.name, now_us);
		reception_refuse(transport, REFUSAL_KEY);
		transport->counts.stranger_frames++;
		return false;
	}
	known_add(transport, neighbour, message->incarnation);
	message->from = neighbour->rank;
	return true;
}

/* Who says it, or who passes it on, is the owner of the connection. */
static bool accept_decree(struct transport *transport, uint64_t now_us, const struct decree *decree)
{
	bool is_owned = has_key_of(transport, decree->sender) || (decree->relay && has_key_of(transport, decree->relay));
	if (!is_owned)
		tell_stolen(transport, "decree", decree->sender, now_us);
	if (is_owned && !transport->config.is_mesh && !is_meant_for_another(transport))
		return true;
	transport->counts.stranger_frames++;
	return false;
}

/* A connection that has said nothing valid yet may say hello or a decree, or speak another version (which reads as a
 * refusal). */
static bool accept_stranger(struct transport *transport, uint64_t now_us, struct message *ret_message)
{
	char name[SEAT_NAME_BYTES];
	/* With a payload it is of somebody who is no neighbour any more and does not know it: nothing to be read. */
	if (zmq_msg_size(&transport->payload) > 0 || !guests_admit(&transport->guests, guest_of(transport, name), now_us)) {
		transport->counts.stranger_frames++;
		return false;
	}
	struct message message;
	if (!decode(transport, &message)) {
		transport->counts.malformed_frames++;
		return false;
	}
	bool is_good = false;
	if (message.kind == MESSAGE_HELLO) {
		is_good = accept_hello(transport, now_us, &message);
	} else if (message.kind == MESSAGE_DECREE) {
		is_good = accept_decree(transport, now_us, message.decree);
	} else {
		const struct neighbour *neighbour = reception_neighbour(transport, message.from);
		is_good = message.kind == MESSAGE_REFUSE && message.refuse.reason == REFUSAL_VERSION && neighbour &&
			  has_key_of(transport, neighbour->dealer.name);
		transport->counts.stranger_frames += !is_good;
	}
	if (is_good)
		*ret_message = message;
	return is_good;
}

/* One of a connection on which a neighbour has said hello. */
static bool accept_neighbour(struct transport *transport, uint64_t now_us, struct neighbour *neighbour,
			     const struct known *known, struct message *ret_message)
{
	struct message message;
	if (!has_key_of(transport, neighbour->dealer.name) || !decode(transport, &message) ||
	    message.incarnation != known->incarnation || message.kind == MESSAGE_REFUSE)
		return false;
	*ret_message = message;
	if (message.kind == MESSAGE_DECREE)
		return accept_decree(transport, now_us, message.decree);
	ret_message->from = neighbour->rank;
	/* In another view it has another rank. */
	if (message.from != neighbour->rank && (transport->config.is_mesh || message.view == transport->view))
		return false;
	return message.kind != MESSAGE_HELLO || strcmp(message.hello.name, neighbour->dealer.name) == 0;
}

/* One message of a ROUTER. True: it is valid and in *ret_message. */
static bool accept_ring(struct transport *transport, uint64_t now_us, bool is_whole, struct message *ret_message)
{
	struct known *known = NULL;
	struct message message;
	struct neighbour *neighbour = is_whole ? known_find(transport, &known) : NULL;
	if (is_whole && !neighbour)
		return accept_stranger(transport, now_us, ret_message);
	if (neighbour)
		known->fd = zmq_msg_get(&transport->header, ZMQ_SRCFD);
	if (!neighbour || !accept_neighbour(transport, now_us, neighbour, known, &message)) {
		transport->counts.malformed_frames++;
		return false;
	}
	*ret_message = message;
	return true;
}

/* What has come in at a DEALER: of a neighbour a refusal of our hello, of a contact a decree. */
static bool accept_answer(struct transport *transport, const struct neighbour *neighbour, const struct contact *contact,
			  bool is_whole, struct message *ret_message)
{
	struct message message;
	bool is_good = is_whole && decode(transport, &message) && message.kind == (neighbour ? MESSAGE_REFUSE : MESSAGE_DECREE);
	/* Who answers has shown the key of the contact's name. */
	if (is_good && contact && transport->config.is_encrypted)
		is_good = strcmp(message.decree->sender, contact->dealer.name) == 0 ||
			  (message.decree->relay && strcmp(message.decree->relay, contact->dealer.name) == 0);
	if (!is_good) {
		transport->counts.malformed_frames++;
		return false;
	}
	if (neighbour)
		message.from = neighbour->rank;
	*ret_message = message;
	return true;
}

enum taken { TAKEN_NONE, TAKEN_BAD, TAKEN_GOOD };

/* Takes turns between the ROUTERs, so that a flood at one does not use up the budget of the other. */
static enum taken take_ring(struct transport *transport, uint64_t now_us, struct message *ret_message)
{
	bool is_whole = false;
	for (size_t i = 0; i < transport->router_count; i++) {
		void *router = transport->routers[transport->turn];
		transport->turn = (transport->turn + 1) % transport->router_count;
		if (!receive_parts(transport, router, true, &is_whole))
			continue;
		transport->origin = router;
		transport->origin_contact = 0;
		return accept_ring(transport, now_us, is_whole, ret_message) ? TAKEN_GOOD : TAKEN_BAD;
	}
	return TAKEN_NONE;
}

/* The same between the DEALERs. */
static enum taken take_answer(struct transport *transport, struct message *ret_message)
{
	bool is_whole = false;
	size_t count = transport->neighbour_count + transport->contacts.count;
	for (size_t i = 0; i < count; i++) {
		size_t at = transport->answer_turn++ % count;
		bool is_contact = at >= transport->neighbour_count;
		const struct neighbour *neighbour = is_contact ? NULL : &transport->neighbours[at];
		const struct contact *contact = is_contact ? &transport->contacts.list[at - transport->neighbour_count] : NULL;
		const struct dealer *dealer = is_contact ? &contact->dealer : &neighbour->dealer;
		if (!dealer->socket || !receive_parts(transport, dealer->socket, false, &is_whole))
			continue;
		transport->origin = NULL;
		transport->origin_contact = is_contact ? dealer->number : 0;
		return accept_answer(transport, neighbour, contact, is_whole, ret_message) ? TAKEN_GOOD : TAKEN_BAD;
	}
	return TAKEN_NONE;
}

bool transport_receive(struct transport *transport, uint64_t now_us, unsigned *budget, struct message *ret_message)
{
	while (*budget > 0) {
		/* To look at a DEALER without a message costs a system call, so they are not asked every time. */
		bool is_due = transport->streak >= STREAK_MAX;
		enum taken taken = is_due ? take_answer(transport, ret_message) : take_ring(transport, now_us, ret_message);
		if (taken == TAKEN_NONE)
			taken = is_due ? take_ring(transport, now_us, ret_message) : take_answer(transport, ret_message);
		transport->streak = is_due ? 0 : transport->streak + 1;
		if (taken == TAKEN_NONE)
			return false;
		--*budget;
		if (taken == TAKEN_GOOD)
			return true;
	}
	return false;
}

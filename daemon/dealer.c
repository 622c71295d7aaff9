/* Connecting to one other node. */

#include "daemon/dealer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "daemon/log.h"
#include "daemon/socket.h"

enum { RETRY_US = 2000000 /* a socket is made anew after this */ };

static const char no_key[] =
	"its public key is not in node.keys here: copy NAME.pub from there, then reload this node (SIGHUP)";

void dealer_init(struct dealer *dealer, struct dealer_self *self, const char *name, const char *address)
{
	*dealer = (struct dealer){.context = self->context, .keyring = self->keyring, .number = ++self->number};
	CHECK(strlen(name) < sizeof dealer->name);
	CHECK(strlen(address) < sizeof dealer->address);
	strcpy(dealer->name, name);
	strcpy(dealer->address, address);
	int length = snprintf(dealer->id, sizeof dealer->id, "%s/%016" PRIx64 "/%" PRIu64 "/%s", self->name, self->incarnation,
			      self->number, name);
	CHECK((size_t)length < sizeof dealer->id);
	dealer->handshake.expects_key = self->keyring != NULL;
}

/* Takes the key that is expected from the keyring. False: there is none, which is told once. */
static bool take_key(struct dealer *dealer)
{
	const char *key = keyring_key(dealer->keyring, dealer->name);
	if (!key && !dealer->lacks_key)
		log_line(LEVEL_WARNING, "peer %s at %s: %s", dealer->name, dealer->address, no_key);
	dealer->lacks_key = !key;
	if (key)
		memcpy(dealer->key, key, KEY_BYTES);
	errno = ENOKEY;
	return key != NULL;
}

bool dealer_connect(struct dealer *dealer)
{
	dealer->retry_us = 0;
	if (dealer->keyring && !take_key(dealer))
		return false;
	dealer->socket = socket_open(dealer->context, ZMQ_DEALER, dealer->address);
	if (!dealer->socket)
		return false;
	bool is_made = zmq_setsockopt(dealer->socket, ZMQ_ROUTING_ID, dealer->id, strlen(dealer->id)) == 0;
	if (is_made && dealer->queue_max > 0)
		is_made = socket_set_int(dealer->socket, ZMQ_IMMEDIATE, 0) &&
			  socket_set_int(dealer->socket, ZMQ_SNDHWM, (int)dealer->queue_max);
	if (is_made && dealer->keyring)
		is_made = socket_prove(dealer->socket, dealer->keyring, dealer->key);
	if (is_made && !dealer->is_unheard)
		is_made = handshake_open(&dealer->handshake, dealer->context, dealer->socket);
	if (is_made && zmq_connect(dealer->socket, dealer->address) == 0)
		return true;
	int saved = errno;
	dealer_close(dealer);
	errno = saved;
	return false;
}

void dealer_close(struct dealer *dealer)
{
	handshake_close(&dealer->handshake);
	if (dealer->socket)
		zmq_close(dealer->socket);
	dealer->socket = NULL;
}

static const char *state_text(const struct dealer *dealer)
{
	switch (dealer->handshake.state) {
	case HANDSHAKE_FINE: return "";
	case HANDSHAKE_WRONG_KEY:
		return "it ends every handshake: its key is not the one that node.keys here has of it (or it has none, or no connections left)";
	case HANDSHAKE_KEY_REFUSED: return "it does not know the key of this node: what node.keys there has of it is another";
	case HANDSHAKE_OTHER_MECHANISM:
		return dealer->keyring ? "it has no keys and does not encrypt (node.curve, node.keys there)"
				       : "it encrypts, and this node has no keys (node.curve, node.keys here; `editctl keygen`)";
	}
	return "";
}

void dealer_step(struct dealer *dealer, uint64_t now_us)
{
	enum handshake_state before = dealer->handshake.state;
	bool is_over = handshake_step(&dealer->handshake, now_us) || !dealer->socket;
	if (is_over && dealer->retry_us == 0)
		dealer->retry_us = now_us + RETRY_US;
	enum handshake_state state = dealer->handshake.state;
	if (state != before && state != HANDSHAKE_FINE)
		log_line(LEVEL_WARNING, "peer %s at %s: %s", dealer->name, dealer->address, state_text(dealer));
	else if (state != before)
		log_line(LEVEL_NOTICE, "peer %s at %s: no longer refused for its key or ours", dealer->name, dealer->address);
	if (dealer->retry_us == 0 || now_us < dealer->retry_us)
		return;
	dealer_close(dealer);
	dealer_connect(dealer);
}

void dealer_rekey(struct dealer *dealer)
{
	const char *key = dealer->keyring ? keyring_key(dealer->keyring, dealer->name) : NULL;
	if (!dealer->keyring || (key && !dealer->lacks_key && strcmp(dealer->key, key) == 0))
		return;
	dealer_close(dealer);
	dealer_connect(dealer);
}

bool dealer_trouble(const struct dealer *dealer, struct dealer_trouble *ret_trouble)
{
	static const char *const words[] = {[HANDSHAKE_FINE] = "", [HANDSHAKE_WRONG_KEY] = "wrong-key",
					    [HANDSHAKE_KEY_REFUSED] = "key-refused", [HANDSHAKE_OTHER_MECHANISM] = "no-curve"};
	const struct handshake *handshake = &dealer->handshake;
	if (dealer->lacks_key) {
		*ret_trouble = (struct dealer_trouble){"no-key", no_key, handshake->failures};
		return true;
	}
	*ret_trouble = (struct dealer_trouble){words[handshake->state], state_text(dealer), handshake->failures};
	return handshake->state != HANDSHAKE_FINE;
}

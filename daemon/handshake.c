/* Reading monitor events of ZeroMQ. Events of libzmq 4.3.4, seen from the side that connects: the peer does not know our key:
 * FAILED_AUTH, and no further try; it encrypts and we do not, or the other way round: FAILED_PROTOCOL, and no further try; we expect
 * another key than it has: it cannot read our first command and hangs up, which is FAILED_NO_DETAIL with EPIPE, tried again and
 * again; the same may be seen of the other mechanism, if the peer is the faster one to hang up; it is silent: FAILED_NO_DETAIL too, but only when the time for a handshake is over. */

#include "daemon/handshake.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum {
	EVENTS = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
		 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH,
	SHORT_US = 1000000, /* one that hangs up sooner was not silent */
	SHORT_ENDS = 5,     /* in a row: one alone may be a daemon that is being stopped */
	SHORT_ENDS_AFTER_ALL = 25 /* where the other mechanism was seen once: it shows only in some of the tries */
};

bool handshake_open(struct handshake *handshake, void *context, void *socket)
{
	char endpoint[64];
	int no_bound = 0, linger = 0;
	snprintf(endpoint, sizeof endpoint, "inproc://handshake-%" PRIxPTR, (uintptr_t)socket);
	if (zmq_socket_monitor(socket, endpoint, EVENTS) != 0)
		return false;
	handshake->socket = socket;
	handshake->pair = zmq_socket(context, ZMQ_PAIR);
	/* ZeroMQ's own thread waits for room when it tells of an event, so there must always be some. */
	if (handshake->pair && zmq_setsockopt(handshake->pair, ZMQ_RCVHWM, &no_bound, sizeof no_bound) == 0 &&
	    zmq_setsockopt(handshake->pair, ZMQ_LINGER, &linger, sizeof linger) == 0 && zmq_connect(handshake->pair, endpoint) == 0)
		return true;
	int saved = errno;
	handshake_close(handshake);
	errno = saved;
	return false;
}

void handshake_close(struct handshake *handshake)
{
	if (!handshake->socket)
		return;
	/* First the end that is written to by another thread. */
	zmq_socket_monitor(handshake->socket, NULL, 0);
	if (handshake->pair)
		zmq_close(handshake->pair);
	handshake->socket = handshake->pair = NULL;
}

/* Takes one event: 16 bits of event and 32 of value, then the address, which is not needed. False: none there. */
static bool receive(void *pair, unsigned *ret_event, uint32_t *ret_value)
{
	uint8_t frame[6];
	uint16_t event;
	char address[1];
	if (zmq_recv(pair, frame, sizeof frame, ZMQ_DONTWAIT) < 0)
		return false;
	memcpy(&event, frame, sizeof event);
	memcpy(ret_value, frame + 2, sizeof *ret_value);
	*ret_event = event;
	zmq_recv(pair, address, sizeof address, ZMQ_DONTWAIT);
	return true;
}

static void fail(struct handshake *handshake, enum handshake_state state)
{
	handshake->state = state;
	handshake->failures++;
}

/* A handshake that ended without a word. */
static void take_end(struct handshake *handshake, uint32_t cause, uint64_t now_us)
{
	bool is_short = handshake->expects_key && (cause == EPIPE || cause == ECONNRESET) && now_us - handshake->connected_us < SHORT_US;
	handshake->short_ends = is_short ? handshake->short_ends + 1 : 0;
	unsigned enough = handshake->state == HANDSHAKE_OTHER_MECHANISM ? SHORT_ENDS_AFTER_ALL : SHORT_ENDS;
	if (handshake->short_ends >= enough)
		fail(handshake, HANDSHAKE_WRONG_KEY);
	else if (!is_short && handshake->state == HANDSHAKE_WRONG_KEY)
		handshake->state = HANDSHAKE_FINE;
}

bool handshake_step(struct handshake *handshake, uint64_t now_us)
{
	bool is_over = false;
	unsigned event;
	uint32_t value;
	while (handshake->pair && receive(handshake->pair, &event, &value))
		switch (event) {
		case ZMQ_EVENT_CONNECTED: handshake->connected_us = now_us; break;
		case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
			handshake->state = HANDSHAKE_FINE;
			handshake->short_ends = 0;
			break;
		case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL: take_end(handshake, value, now_us); break;
		case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
			fail(handshake, HANDSHAKE_KEY_REFUSED);
			is_over = true;
			break;
		case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
			handshake->plain_peers += value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
			handshake->foreign_keys += value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC;
			handshake->short_ends = 0;
			if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
				fail(handshake, HANDSHAKE_OTHER_MECHANISM);
			else if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
				fail(handshake, HANDSHAKE_WRONG_KEY);
			is_over = true;
			break;
		default: break;
		}
	return is_over;
}

/* The ZAP handler. It is a ROUTER, so that one who goes away in the middle of a question holds up nobody. */

#include "daemon/zap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "daemon/log.h"

enum {
	KEY_RAW_BYTES = 32,
	PART_MAX = 256,
	TOLD_MAX = 8,               /* different keys that are told of in a minute */
	TOLD_US = 60 * 1000 * 1000
};

/* Frames of a question. The first two are the way back. */
enum { WAY, EMPTY, VERSION, NUMBER, DOMAIN, ADDRESS, IDENTITY, MECHANISM, KEY, PARTS };

struct part {
	size_t bytes;
	char data[PART_MAX + 1]; /* and a zero byte */
};

struct zap {
	void *socket;
	const struct keyring *keyring;
	uint64_t refused;
	struct {
		char key[KEY_BYTES];
		uint64_t at_us; /* 0: unused */
	} told[TOLD_MAX];
};

struct zap *zap_open(void *context, const struct keyring *keyring)
{
	int linger = 0;
	struct zap *zap = calloc(1, sizeof *zap);
	if (!zap)
		return NULL;
	zap->keyring = keyring;
	zap->socket = zmq_socket(context, ZMQ_ROUTER);
	if (zap->socket && zmq_setsockopt(zap->socket, ZMQ_LINGER, &linger, sizeof linger) == 0 &&
	    zmq_bind(zap->socket, "inproc://zeromq.zap.01") == 0)
		return zap;
	int saved = zmq_errno();
	zap_close(zap);
	errno = saved;
	return NULL;
}

void zap_close(struct zap *zap)
{
	if (zap->socket)
		zmq_close(zap->socket);
	free(zap);
}

void *zap_socket(const struct zap *zap)
{
	return zap->socket;
}

uint64_t zap_refused(const struct zap *zap)
{
	return zap->refused;
}

/* Takes one question. False: none there. *ret_count: its frames, more than PARTS if it is none of ours. */
static bool receive(void *socket, struct part parts[PARTS], size_t *ret_count)
{
	int more = 1;
	size_t more_bytes = sizeof more, count = 0;
	for (; more; count++) {
		char spare[1];
		struct part *part = count < PARTS ? &parts[count] : NULL;
		int bytes = zmq_recv(socket, part ? part->data : spare, part ? PART_MAX : sizeof spare, ZMQ_DONTWAIT);
		if (bytes < 0)
			return false;
		if (part && bytes > PART_MAX)
			bytes = 0;
		if (part) {
			part->bytes = (size_t)bytes;
			part->data[bytes] = 0;
		}
		zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &more_bytes);
	}
	*ret_count = count;
	return true;
}

static void reply(struct zap *zap, const struct part parts[PARTS], const char *status, const char *text, const char *user)
{
	const struct { const void *data; size_t bytes; } frames[] = {
		{parts[WAY].data, parts[WAY].bytes}, {"", 0}, {"1.0", 3}, {parts[NUMBER].data, parts[NUMBER].bytes},
		{status, strlen(status)}, {text, strlen(text)}, {user, strlen(user)}, {"", 0}};
	size_t count = sizeof frames / sizeof *frames;
	for (size_t i = 0; i < count; i++)
		if (zmq_send(zap->socket, frames[i].data, frames[i].bytes, ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0)) < 0)
			return;
}

/* Whether it is time to tell of key: others that come with new keys again and again get no more than TOLD_MAX lines a minute. */
static bool is_worth_a_line(struct zap *zap, const char *key, uint64_t now_us)
{
	size_t oldest = 0;
	for (size_t i = 0; i < TOLD_MAX; i++) {
		bool is_recent = zap->told[i].at_us > 0 && now_us - zap->told[i].at_us < TOLD_US;
		if (is_recent && strcmp(zap->told[i].key, key) == 0)
			return false;
		if (zap->told[i].at_us < zap->told[oldest].at_us)
			oldest = i;
	}
	if (zap->told[oldest].at_us > 0 && now_us - zap->told[oldest].at_us < TOLD_US)
		return false;
	zap->told[oldest].at_us = now_us;
	memcpy(zap->told[oldest].key, key, KEY_BYTES);
	return true;
}

static void refuse(struct zap *zap, const char *key, const char *address, bool is_ring, uint64_t now_us)
{
	zap->refused++;
	if (!is_worth_a_line(zap, key, now_us))
		return;
	bool is_elsewhere = is_ring ? keyring_client(zap->keyring, key) != NULL
				    : keyring_member(zap->keyring, key) != NULL;
	log_line(LEVEL_WARNING, "connection from %s at %s refused: %s (public = %s; %" PRIu64 " refused so far)", address,
		 is_ring ? "the peer port" : "control.listen",
		 is_elsewhere ? is_ring ? "its key is a client's, not a member's" : "its key is a member's, not one of keys/clients"
			      : is_ring ? "its key is not that of a member" : "its key is not in clients/ of node.keys", key, zap->refused);
}

static void answer(struct zap *zap, const struct part parts[PARTS], uint64_t now_us)
{
	char key[KEY_BYTES];
	bool is_ring = strcmp(parts[DOMAIN].data, ZAP_RING) == 0;
	if (strcmp(parts[MECHANISM].data, "CURVE") != 0 || parts[KEY].bytes != KEY_RAW_BYTES ||
	    !zmq_z85_encode(key, (const uint8_t *)parts[KEY].data, KEY_RAW_BYTES)) {
		zap->refused++;
		reply(zap, parts, "400", "no key", "");
		return;
	}
	bool is_known = is_ring ? keyring_member(zap->keyring, key) != NULL
				: strcmp(parts[DOMAIN].data, ZAP_CONTROL) == 0 && keyring_client(zap->keyring, key) != NULL;
	if (!is_known)
		refuse(zap, key, parts[ADDRESS].data, is_ring, now_us);
	reply(zap, parts, is_known ? "200" : "400", is_known ? "known" : "unknown key", is_known ? key : "");
}

void zap_serve(struct zap *zap, uint64_t now_us, unsigned budget)
{
	struct part parts[PARTS];
	size_t count = 0;
	for (; budget > 0 && receive(zap->socket, parts, &count); budget--)
		if (count == PARTS && strcmp(parts[VERSION].data, "1.0") == 0)
			answer(zap, parts, now_us);
}

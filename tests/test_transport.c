/* Sockets of a mesh of 2 x 2, all in this process: who is heard where, what becomes of a hello that has gone astray, and of keys
 * that are not what they should be. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include <stdlib.h>

#include "daemon/transport.h"
#include "proto/codec.h"
#include "tests/loopback.h"

enum { A, B, C, D, MEMBERS, OTHER = MEMBERS, ADDRESSES, PATIENCE_MS = 10000, BUDGET = 32 };

/* a b
 * c d; [OTHER]: where b listens for its row. */
static const char *const names[MEMBERS] = {"a", "b", "c", "d"};
static char addresses[ADDRESSES][LOOPBACK_BYTES];

static int find_addresses(void **state)
{
	(void)state;
	return loopback_find(addresses, ADDRESSES);
}

/* ---- Keys ---- */

/* What each of the four knows. Empty: frames are not encrypted. */
static struct keyring keyrings[MEMBERS];

static int make_keys(void **state)
{
	struct keyring own[MEMBERS];
	for (uint32_t i = 0; i < MEMBERS; i++)
		if (zmq_curve_keypair(own[i].public_key, own[i].secret_key) != 0)
			return -1;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		keyrings[i] = (struct keyring){.has_keys = true, .member_count = MEMBERS,
					       .members = calloc(MEMBERS, sizeof *keyrings[i].members)};
		memcpy(keyrings[i].public_key, own[i].public_key, KEY_BYTES);
		memcpy(keyrings[i].secret_key, own[i].secret_key, KEY_BYTES);
		for (uint32_t j = 0; j < MEMBERS; j++) {
			strcpy(keyrings[i].members[j].name, names[j]);
			memcpy(keyrings[i].members[j].key, own[j].public_key, KEY_BYTES);
		}
	}
	return find_addresses(state);
}

static int forget_keys(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < MEMBERS; i++)
		keyring_close(&keyrings[i]);
	return 0;
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Turns of the others while one is waited for, as each of them is a process of its own elsewhere. */
static struct transport *all[2 * MEMBERS];

/* The member with the keys of `keys` that says it is `rank` of the mesh; to_row: its address of the other one of its row. */
static struct transport *open_as(uint32_t rank, const char *to_row, const struct keyring *keys)
{
	char text[256] = "";
	uint32_t column = rank ^ 2, row = rank ^ 1;
	struct transport_config config = {.listen = addresses[rank], .shard_listen = rank == B ? addresses[OTHER] : NULL,
					  .name = names[rank], .is_mesh = true,
					  .view = {.number = VIEW_FIRST, .rank = rank, .member_count = MEMBERS, .names = names,
						   .neighbour_count = 2, .neighbours = {{column, addresses[column]}, {row, to_row}}},
					  .incarnation = 100 + rank, .keyring = keys, .is_encrypted = keys->member_count > 0};
	struct transport *transport = NULL;
	assert_int_equal(transport_open(&config, &transport, text, sizeof text), 0);
	size_t i = 0;
	while (all[i])
		i++;
	assert_true(i < sizeof all / sizeof *all);
	all[i] = transport;
	return transport;
}

static struct transport *open_member(uint32_t rank, const char *to_row)
{
	return open_as(rank, to_row, &keyrings[rank]);
}

static void close_member(struct transport *transport)
{
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i] == transport)
			all[i] = NULL;
	transport_close(transport);
}

static struct message message_of(uint32_t from, enum message_kind kind)
{
	struct message message = {.kind = kind, .from = from, .incarnation = 100 + from, .view = VIEW_FIRST};
	if (kind == MESSAGE_HELLO)
		message.hello = (struct hello){.name = names[from]};
	return message;
}

static void turn(struct transport *transport)
{
	transport_wait(transport, NULL, 0, 5);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i])
			transport_step(all[i], now_us());
}

/* Sends until it is connected. */
static void say(struct transport *transport, uint32_t from, uint32_t to, enum message_kind kind)
{
	struct message message = message_of(from, kind);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!transport_send(transport, to, &message)) {
		assert_true(now_us() < end_us);
		turn(transport);
	}
}

/* The next message, which is one of `from`. */
static struct message hear(struct transport *transport, uint32_t from, enum message_kind kind)
{
	struct message message;
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	for (;;) {
		unsigned budget = BUDGET;
		if (transport_receive(transport, now_us(), &budget, &message))
			break;
		assert_true(now_us() < end_us);
		turn(transport);
	}
	assert_int_equal(message.kind, kind);
	assert_int_equal(message.from, from);
	return message;
}

/* a and b hear each other, b at the address that a has of it; a refusal finds its way back from there. */
static void check_row(const char *b_address)
{
	struct transport *a = open_member(A, b_address), *b = open_member(B, addresses[A]);
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	struct message refuse = message_of(B, MESSAGE_REFUSE);
	refuse.refuse.reason = REFUSAL_DUPLICATE;
	assert_true(transport_send(b, A, &refuse));
	assert_int_equal(hear(a, B, MESSAGE_REFUSE).refuse.reason, REFUSAL_DUPLICATE);
	say(b, B, A, MESSAGE_HELLO);
	hear(a, B, MESSAGE_HELLO);
	say(a, A, B, MESSAGE_HEARTBEAT);
	hear(b, A, MESSAGE_HEARTBEAT);
	close_member(a);
	close_member(b);
}

static void row_is_heard_at_its_own_address(void **state)
{
	(void)state;
	check_row(addresses[OTHER]);
}

static void row_is_heard_at_the_other_address_too(void **state)
{
	(void)state;
	check_row(addresses[B]);
}

/* a's address of b leads to `wrong`: its hello is refused, in the name of b. What a says to c arrives. */
static void check_astray(uint32_t wrong)
{
	struct transport *a = open_member(A, addresses[wrong]), *c = open_member(C, addresses[D]);
	struct transport *other = wrong == C ? c : open_member(wrong, addresses[wrong ^ 1]);
	struct transport_counts counts;
	say(a, A, B, MESSAGE_HELLO);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	do {
		unsigned budget = BUDGET;
		struct message message;
		turn(other);
		assert_false(transport_receive(other, now_us(), &budget, &message));
		transport_counts(other, &counts);
		assert_true(now_us() < end_us);
	} while (counts.stranger_frames == 0);
	assert_int_equal(hear(a, B, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
	say(a, A, C, MESSAGE_HELLO);
	hear(c, A, MESSAGE_HELLO);
	say(a, A, C, MESSAGE_HEARTBEAT);
	hear(c, A, MESSAGE_HEARTBEAT);
	close_member(a);
	close_member(c);
	if (other != c)
		close_member(other);
}

static void address_that_leads_to_no_neighbour_is_refused(void **state)
{
	(void)state;
	check_astray(D);
}

static void address_that_leads_to_another_neighbour_is_refused(void **state)
{
	(void)state;
	check_astray(C);
}

static void flood_at_one_address_does_not_keep_out_the_other(void **state)
{
	(void)state;
	enum { FRAMES = 200 };
	struct transport *b = open_member(B, addresses[A]), *a = open_member(A, addresses[OTHER]);
	void *context = zmq_ctx_new(), *flood = zmq_socket(context, ZMQ_DEALER);
	int linger = 0;
	assert_int_equal(zmq_setsockopt(flood, ZMQ_LINGER, &linger, sizeof linger), 0);
	assert_int_equal(zmq_connect(flood, addresses[B]), 0);
	for (size_t i = 0; i < FRAMES; i++)
		assert_int_equal(zmq_send(flood, "x", 1, 0), 1);
	say(a, A, B, MESSAGE_HELLO);
	usleep(500000); /* for all of it to be there */
	struct message message;
	unsigned budget = BUDGET;
	assert_true(transport_receive(b, now_us(), &budget, &message));
	assert_int_equal(message.from, A);
	assert_true(budget >= BUDGET - 2);
	zmq_close(flood);
	zmq_ctx_destroy(context);
	close_member(a);
	close_member(b);
}

static void row_is_heard_at_its_own_address_encrypted(void **state)
{
	(void)state;
	check_row(addresses[OTHER]);
}

/* ---- Wrong keys ---- */

/* Turns of all until transport knows of this trouble with b; NULL: of none. */
static void await_trouble(struct transport *transport, const char *word)
{
	struct dealer_trouble trouble;
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	do {
		assert_true(now_us() < end_us);
		turn(transport);
		bool is_trouble = transport_trouble(transport, B, &trouble);
		assert_int_equal(is_trouble, trouble.word[0] != 0);
	} while (strcmp(trouble.word, word) != 0);
	assert_int_equal(trouble.text[0] != 0, word[0] != 0);
}

static struct transport_counts counts_of(const struct transport *transport)
{
	struct transport_counts counts;
	transport_counts(transport, &counts);
	return counts;
}

static void largest_chunk_passes_encrypted(void **state)
{
	(void)state;
	struct transport *a = open_member(A, addresses[B]), *b = open_member(B, addresses[A]);
	float *payload = calloc(1, CODEC_PAYLOAD_MAX);
	struct message chunk = message_of(A, MESSAGE_CHUNK);
	assert_non_null(payload);
	payload[CODEC_PAYLOAD_MAX / sizeof(float) - 1] = 7;
	chunk.chunk = (struct chunk){.round = 1, .phase = PHASE_REDUCE, .count = CODEC_PAYLOAD_MAX / sizeof(float)};
	chunk.payload = payload;
	chunk.payload_bytes = CODEC_PAYLOAD_MAX;
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	assert_true(transport_send(a, B, &chunk));
	struct message heard = hear(b, A, MESSAGE_CHUNK);
	assert_int_equal(heard.payload_bytes, CODEC_PAYLOAD_MAX);
	assert_memory_equal(heard.payload, payload, CODEC_PAYLOAD_MAX);
	close_member(a);
	close_member(b);
	free(payload);
}

static void key_that_the_neighbour_does_not_know_is_refused_until_it_does(void **state)
{
	(void)state;
	char right[KEY_BYTES];
	struct transport *b = open_member(B, addresses[A]);
	memcpy(right, keyrings[B].members[A].key, KEY_BYTES);
	memcpy(keyrings[B].members[A].key, keyrings[C].public_key, KEY_BYTES);
	struct transport *a = open_member(A, addresses[B]);
	await_trouble(a, "key-refused");
	assert_true(counts_of(b).keys_refused >= 1); /* it has counted before it refused */
	/* It is asked again, so what is put right there is found out here. */
	memcpy(keyrings[B].members[A].key, right, KEY_BYTES);
	transport_rekey(b);
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	await_trouble(a, "");
	close_member(a);
	close_member(b);
}

static void neighbour_with_another_key_than_expected_is_told_from_a_silent_one(void **state)
{
	(void)state;
	char right[KEY_BYTES];
	struct transport *b = open_member(B, addresses[A]);
	memcpy(right, keyrings[A].members[B].key, KEY_BYTES);
	memcpy(keyrings[A].members[B].key, keyrings[C].public_key, KEY_BYTES);
	struct transport *a = open_member(A, addresses[B]);
	await_trouble(a, "wrong-key");
	assert_true(counts_of(b).handshakes_failed >= 1);
	assert_int_equal(counts_of(b).keys_refused, 0);
	memcpy(keyrings[A].members[B].key, right, KEY_BYTES);
	transport_rekey(a);
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	await_trouble(a, "");
	close_member(a);
	close_member(b);
}

/* Connections to b's address are taken and never answered. */
static void silent_neighbour_is_no_trouble_of_keys(void **state)
{
	(void)state;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	address.sin_port = htons((uint16_t)atoi(strrchr(addresses[B], ':') + 1));
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 8), 0);
	struct transport *a = open_member(A, addresses[B]);
	struct dealer_trouble trouble;
	for (uint64_t end_us = now_us() + 6500000; now_us() < end_us;) { /* beyond the first handshake's time */
		turn(a);
		assert_false(transport_trouble(a, B, &trouble));
	}
	assert_int_equal(trouble.failures, 0);
	close_member(a);
	close(fd);
}

static void one_side_that_does_not_encrypt_is_told_by_both(void **state)
{
	(void)state;
	struct keyring none = {0};
	struct transport *a = open_as(A, addresses[B], &none), *b = open_member(B, addresses[A]);
	struct dealer_trouble trouble;
	await_trouble(a, "no-curve");
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!transport_trouble(b, A, &trouble) || strcmp(trouble.word, "no-curve") != 0 || counts_of(b).handshakes_failed == 0) {
		assert_true(now_us() < end_us);
		turn(b);
	}
	assert_int_equal(counts_of(b).keys_refused, 0);
	close_member(a);
	close_member(b);
}

/* c says that it is a. */
static void name_of_another_is_refused_by_key_and_its_owner_is_heard(void **state)
{
	(void)state;
	struct transport *b = open_member(B, addresses[A]), *thief = open_as(A, addresses[B], &keyrings[C]);
	struct message message;
	say(thief, A, B, MESSAGE_HELLO);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (counts_of(b).stranger_frames == 0) {
		unsigned budget = BUDGET;
		assert_true(now_us() < end_us);
		turn(b);
		assert_false(transport_receive(b, now_us(), &budget, &message));
	}
	assert_int_equal(hear(thief, B, MESSAGE_REFUSE).refuse.reason, REFUSAL_KEY);
	close_member(thief);
	struct transport *a = open_member(A, addresses[B]);
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	close_member(a);
	close_member(b);
}

/* It says the frames of a, after a's hello, with the routing id of a: over a connection with a key of its own. */
static void routing_id_of_another_does_not_help_without_its_key(void **state)
{
	(void)state;
	struct transport *b = open_member(B, addresses[A]), *a = open_member(A, addresses[B]);
	struct message message;
	say(a, A, B, MESSAGE_HELLO);
	hear(b, A, MESSAGE_HELLO);
	close_member(a);
	struct transport *thief = open_as(A, addresses[B], &keyrings[C]);
	say(thief, A, B, MESSAGE_HEARTBEAT);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (counts_of(b).malformed_frames == 0) {
		unsigned budget = BUDGET;
		assert_true(now_us() < end_us);
		turn(b);
		assert_false(transport_receive(b, now_us(), &budget, &message));
	}
	close_member(thief);
	close_member(b);
}

int main(void)
{
#define WITH_KEYS(test) cmocka_unit_test_setup_teardown(test, make_keys, forget_keys)

	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(row_is_heard_at_its_own_address, find_addresses),
		cmocka_unit_test_setup(row_is_heard_at_the_other_address_too, find_addresses),
		cmocka_unit_test_setup(address_that_leads_to_no_neighbour_is_refused, find_addresses),
		cmocka_unit_test_setup(address_that_leads_to_another_neighbour_is_refused, find_addresses),
		cmocka_unit_test_setup(flood_at_one_address_does_not_keep_out_the_other, find_addresses),
		WITH_KEYS(row_is_heard_at_its_own_address_encrypted),
		WITH_KEYS(largest_chunk_passes_encrypted),
		WITH_KEYS(key_that_the_neighbour_does_not_know_is_refused_until_it_does),
		WITH_KEYS(neighbour_with_another_key_than_expected_is_told_from_a_silent_one),
		WITH_KEYS(silent_neighbour_is_no_trouble_of_keys),
		WITH_KEYS(one_side_that_does_not_encrypt_is_told_by_both),
		WITH_KEYS(name_of_another_is_refused_by_key_and_its_owner_is_heard),
		WITH_KEYS(routing_id_of_another_does_not_help_without_its_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

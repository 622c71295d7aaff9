/* Sockets of a mesh of 2 x 2, all in this process: who is heard where, and what becomes of a hello that has gone astray. */

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

#include "daemon/transport.h"

enum { A, B, C, D, MEMBERS, OTHER = MEMBERS, ADDRESSES, PATIENCE_MS = 10000, BUDGET = 32 };

/* a b
 * c d; [OTHER]: where b listens for its row. */
static const char *const names[MEMBERS] = {"a", "b", "c", "d"};
static char addresses[ADDRESSES][64];

static int find_addresses(void **state)
{
	(void)state;
	int sockets[ADDRESSES];
	for (size_t i = 0; i < ADDRESSES; i++) {
		struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t bytes = sizeof address;
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(sockets[i], (struct sockaddr *)&address, bytes) != 0 ||
		    getsockname(sockets[i], (struct sockaddr *)&address, &bytes) != 0)
			return -1;
		snprintf(addresses[i], sizeof addresses[i], "tcp://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
	}
	for (size_t i = 0; i < ADDRESSES; i++)
		close(sockets[i]);
	return 0;
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Member rank of the mesh; to_row: its address of the other one of its row. */
static struct transport *open_member(uint32_t rank, const char *to_row)
{
	char text[256] = "";
	uint32_t column = rank ^ 2, row = rank ^ 1;
	struct transport_config config = {.listen = addresses[rank], .shard_listen = rank == B ? addresses[OTHER] : NULL,
					  .rank = rank, .member_count = MEMBERS, .names = names, .neighbour_count = 2,
					  .neighbours = {{column, addresses[column]}, {row, to_row}}, .is_mesh = true,
					  .incarnation = 100 + rank};
	struct transport *transport = NULL;
	assert_int_equal(transport_open(&config, &transport, text, sizeof text), 0);
	return transport;
}

static struct message message_of(uint32_t from, enum message_kind kind)
{
	struct message message = {.kind = kind, .from = from, .incarnation = 100 + from, .view = VIEW_FIRST};
	if (kind == MESSAGE_HELLO)
		message.hello = (struct hello){.name = names[from]};
	return message;
}

/* Sends until it is connected. */
static void say(struct transport *transport, uint32_t from, uint32_t to, enum message_kind kind)
{
	struct message message = message_of(from, kind);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!transport_send(transport, to, &message)) {
		assert_true(now_us() < end_us);
		transport_wait(transport, NULL, 0, 10);
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
		transport_wait(transport, NULL, 0, 10);
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
	transport_close(a);
	transport_close(b);
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
		transport_wait(other, NULL, 0, 10);
		assert_false(transport_receive(other, now_us(), &budget, &message));
		transport_counts(other, &counts);
		assert_true(now_us() < end_us);
	} while (counts.stranger_frames == 0);
	assert_int_equal(hear(a, B, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
	say(a, A, C, MESSAGE_HELLO);
	hear(c, A, MESSAGE_HELLO);
	say(a, A, C, MESSAGE_HEARTBEAT);
	hear(c, A, MESSAGE_HEARTBEAT);
	transport_close(a);
	transport_close(c);
	if (other != c)
		transport_close(other);
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
	transport_close(a);
	transport_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(row_is_heard_at_its_own_address, find_addresses),
		cmocka_unit_test_setup(row_is_heard_at_the_other_address_too, find_addresses),
		cmocka_unit_test_setup(address_that_leads_to_no_neighbour_is_refused, find_addresses),
		cmocka_unit_test_setup(address_that_leads_to_another_neighbour_is_refused, find_addresses),
		cmocka_unit_test_setup(flood_at_one_address_does_not_keep_out_the_other, find_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sockets of rings whose members change: what stays and what goes when a view is seated anew, and memory that frames on their
 * way out still read. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/company.h"

static const struct members ab = {1, 2, {A, B}}, abc = {2, 3, {A, B, C}}, dca = {3, 3, {D, C, A}}, acb = {4, 3, {A, C, B}};

/* ---- Seats ---- */

static void neighbour_that_stays_is_heard_without_another_hello(void **state)
{
	(void)state;
	company_open(A, &ab);
	company_open(B, &ab);
	company_say(A, 1, &ab, MESSAGE_HELLO);
	assert_int_equal(company_hear(B, MESSAGE_HELLO).from, 0);
	/* On its way when both go on. */
	company_say(A, 1, &ab, MESSAGE_HEARTBEAT);
	company_seat(A, &acb);
	company_seat(B, &acb);
	struct message old = company_hear(B, MESSAGE_HEARTBEAT);
	assert_true(old.view == ab.number);
	assert_int_equal(old.from, company_rank(&acb, A));
	struct message heartbeat = company_message(A, &acb, MESSAGE_HEARTBEAT);
	/* At once: the connection is the same. */
	assert_true(transport_send(company_nodes[A], company_rank(&acb, B), &heartbeat));
	struct message new = company_hear(B, MESSAGE_HEARTBEAT);
	assert_true(new.view == acb.number);
	assert_int_equal(new.from, company_rank(&acb, A));
}

static void neighbour_that_goes_is_heard_no_more_and_a_new_one_is(void **state)
{
	(void)state;
	company_open(A, &abc);
	company_open(B, &abc);
	company_open(C, &abc);
	company_open(D, &dca);
	company_say(B, 0, &abc, MESSAGE_HELLO);
	company_hear(A, MESSAGE_HELLO);
	company_seat(A, &dca);
	company_seat(C, &dca);
	company_say(B, 0, &abc, MESSAGE_HEARTBEAT);
	AWAIT_COUNT(A, stranger_frames);
	company_say(D, company_rank(&dca, A), &dca, MESSAGE_HELLO);
	assert_int_equal(company_hear(A, MESSAGE_HELLO).from, company_rank(&dca, D));
	company_say(A, company_rank(&dca, D), &dca, MESSAGE_HELLO);
	assert_int_equal(company_hear(D, MESSAGE_HELLO).from, company_rank(&dca, A));
}

static void rank_that_is_not_that_of_the_view_is_malformed(void **state)
{
	(void)state;
	company_open(A, &ab);
	company_open(B, &ab);
	company_say(A, 1, &ab, MESSAGE_HELLO);
	company_hear(B, MESSAGE_HELLO);
	struct message message = company_message(A, &ab, MESSAGE_HEARTBEAT);
	message.from = 1;
	assert_true(transport_send(company_nodes[A], 1, &message));
	AWAIT_COUNT(B, malformed_frames);
}

static void hello_of_another_view_is_taken_by_name_and_nobody_is_refused_for_it(void **state)
{
	(void)state;
	struct message message;
	/* A has gone on to a view in which B, which has not, is no neighbour; C has another rank in it. */
	company_open(A, &dca);
	company_open(B, &abc);
	company_open(C, &abc);
	company_say(B, 0, &abc, MESSAGE_HELLO);
	AWAIT_COUNT(A, foreign_hellos);
	assert_int_equal(company_counts(A).stranger_frames, 0);
	company_say(C, 0, &abc, MESSAGE_HELLO);
	struct message hello = company_hear(A, MESSAGE_HELLO);
	assert_true(hello.view == abc.number);
	assert_int_equal(hello.from, company_rank(&dca, C));
	/* Whoever was refused would have heard of it by now. */
	company_say(A, company_rank(&dca, C), &dca, MESSAGE_HELLO);
	company_hear(C, MESSAGE_HELLO);
	assert_false(company_hear_now(B, &message));
	/* In the same view it would be a stranger. */
	company_seat(A, &(const struct members){abc.number, 2, {A, C}});
	company_say(B, 0, &abc, MESSAGE_HELLO);
	AWAIT_COUNT(A, stranger_frames);
	assert_int_equal(company_hear(B, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
}

static void address_that_leads_to_another_node_is_refused(void **state)
{
	(void)state;
	char right[64];
	company_open(C, &abc);
	company_open(A, &abc);
	memcpy(right, company_addresses[B], sizeof right);
	memcpy(company_addresses[B], company_addresses[C], sizeof right);
	company_seat(A, &acb); /* the address of b is another now, so there is a new connection */
	company_say(A, company_rank(&acb, B), &abc, MESSAGE_HELLO);
	AWAIT_COUNT(C, stranger_frames);
	assert_int_equal(company_hear(A, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
	memcpy(company_addresses[B], right, sizeof right);
}

static void neighbour_without_a_key_here_is_told(void **state)
{
	(void)state;
	static const struct members with_new = {5, 2, {A, NEW}};
	struct dealer_trouble trouble;
	company_open(A, &ab);
	company_open(NEW, &with_new);
	company_keyrings[A].member_count = NEW;
	company_seat(A, &with_new);
	assert_true(transport_trouble(company_nodes[A], 1, &trouble));
	assert_string_equal(trouble.word, "no-key");
	company_keyrings[A].member_count = NODES;
	transport_rekey(company_nodes[A]);
	assert_false(transport_trouble(company_nodes[A], 1, &trouble));
	company_say(A, 1, &with_new, MESSAGE_HELLO);
	company_hear(NEW, MESSAGE_HELLO);
}

/* ---- Leases ---- */

enum { CHUNK_BYTES = 1 << 20, CHUNKS = 32 };

/* A chunk in a block of its own with its lease, sent many times to where b is. */
struct lent {
	struct lease lease;
	float payload[CHUNK_BYTES / sizeof(float)];
};

static struct lent *lend(void)
{
	struct lent *lent = calloc(1, sizeof *lent);
	struct message chunk = company_message(A, &ab, MESSAGE_CHUNK);
	chunk.chunk = (struct chunk){.round = 1, .phase = PHASE_REDUCE, .count = CHUNK_BYTES / sizeof(float)};
	chunk.payload = lent->payload;
	chunk.payload_bytes = CHUNK_BYTES;
	lent->payload[0] = 1;
	lent->payload[CHUNK_BYTES / sizeof(float) - 1] = 2;
	assert_true(lease_is_free(&lent->lease));
	transport_lease(company_nodes[A], &lent->lease);
	for (size_t i = 0; i < CHUNKS; i++)
		assert_true(transport_send(company_nodes[A], 1, &chunk));
	return lent;
}

static void await_free(const struct lease *lease)
{
	uint64_t end_us = company_now_us() + PATIENCE_MS * 1000;
	while (!lease_is_free(lease)) {
		assert_true(company_now_us() < end_us);
		company_turn(A);
	}
}

static void memory_is_free_when_its_frames_are_read(void **state)
{
	(void)state;
	struct message message;
	company_open(A, &ab);
	company_open(B, &ab);
	company_say(A, 1, &ab, MESSAGE_HELLO);
	company_hear(B, MESSAGE_HELLO);
	struct lent *lent = lend();
	for (size_t heard = 0; heard < CHUNKS;) {
		company_turn(B);
		while (company_hear_now(B, &message))
			heard++;
	}
	await_free(&lent->lease);
	free(lent);
}

/* Where b was: somebody who takes in a message or two, and more only when it is asked. */
static void *deaf_open(void *context)
{
	void *deaf = zmq_socket(context, ZMQ_ROUTER);
	int one = 1, little = 4096, linger = 0;
	assert_non_null(deaf);
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_RCVHWM, &one, sizeof one), 0);
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_RCVBUF, &little, sizeof little), 0);
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_LINGER, &linger, sizeof linger), 0);
	assert_int_equal(zmq_bind(deaf, company_addresses[B]), 0);
	company_open(A, &ab);
	company_say(A, 1, &ab, MESSAGE_HELLO);
	return deaf;
}

static void deaf_close(void *deaf, void *context)
{
	zmq_close(deaf);
	zmq_ctx_destroy(context);
}

static void memory_is_free_some_time_after_its_view_but_not_before(void **state)
{
	(void)state;
	void *context = zmq_ctx_new(), *deaf = deaf_open(context);
	struct lent *lent = lend();
	usleep(300000);
	assert_false(lease_is_free(&lent->lease));
	company_seat(A, &(const struct members){2, 1, {A}});
	await_free(&lent->lease);
	free(lent);
	deaf_close(deaf, context);
}

/* Takes in frames for a while. Returns how many of them were payloads, all of which are as they were sent. */
static size_t deaf_hear(void *deaf)
{
	static float payload[CHUNK_BYTES / sizeof(float)];
	size_t payloads = 0;
	for (int bytes, tries = 0; tries < 100; tries++) {
		while ((bytes = zmq_recv(deaf, payload, sizeof payload, ZMQ_DONTWAIT)) >= 0)
			if (bytes == CHUNK_BYTES) {
				payloads++;
				assert_true(payload[0] == 1 && payload[CHUNK_BYTES / sizeof(float) - 1] == 2);
			}
		usleep(1000);
	}
	return payloads;
}

/* What was sent in the old view goes out in the new one: who does not wait for the lease gives away memory that is still read,
 * which the address sanitizer and the numbers themselves would tell. */
static void memory_of_a_view_that_has_ended_is_read_for_a_neighbour_that_stays(void **state)
{
	(void)state;
	void *context = zmq_ctx_new(), *deaf = deaf_open(context);
	struct lent *lent = lend();
	size_t heard = 0;
	company_seat(A, &(const struct members){2, 2, {A, B}});
	uint64_t end_us = company_now_us() + PATIENCE_MS * 1000;
	while (!lease_is_free(&lent->lease)) {
		assert_true(company_now_us() < end_us);
		heard += deaf_hear(deaf);
		company_turn(A);
	}
	memset(lent->payload, 0, sizeof lent->payload);
	free(lent);
	for (end_us = company_now_us() + PATIENCE_MS * 1000; heard < CHUNKS; heard += deaf_hear(deaf))
		assert_true(company_now_us() < end_us);
	assert_int_equal(heard, CHUNKS);
	deaf_close(deaf, context);
}

int main(void)
{
#define PLAIN(test) cmocka_unit_test_setup_teardown(test, company_gather, company_part)
#define WITH_KEYS(test) cmocka_unit_test_setup_teardown(test, company_gather_with_keys, company_part)

	const struct CMUnitTest tests[] = {
		PLAIN(neighbour_that_stays_is_heard_without_another_hello),
		PLAIN(neighbour_that_goes_is_heard_no_more_and_a_new_one_is),
		PLAIN(rank_that_is_not_that_of_the_view_is_malformed),
		PLAIN(hello_of_another_view_is_taken_by_name_and_nobody_is_refused_for_it),
		PLAIN(address_that_leads_to_another_node_is_refused),
		WITH_KEYS(neighbour_without_a_key_here_is_told),
		PLAIN(memory_is_free_when_its_frames_are_read),
		PLAIN(memory_is_free_some_time_after_its_view_but_not_before),
		PLAIN(memory_of_a_view_that_has_ended_is_read_for_a_neighbour_that_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Decrees to whomever: members or not, with keys or without, and in a flood. */

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

#include "daemon/contact.h"
#include "daemon/guests.h"
#include "proto/codec.h"
#include "tests/company.h"

enum { DISK = 200 };

static const struct members ab = {1, 2, {A, B}}, abc = {2, 3, {A, B, C}};

static char texts[NODES][SEAT_NAME_BYTES];

static struct decree decree_of(uint32_t node, enum decree_kind kind)
{
	snprintf(texts[node], sizeof texts[node], "%s", company_names[node]);
	return (struct decree){.kind = kind, .sender = texts[node], .incarnation = INCARNATION + node, .disk = DISK + node, .view = 2};
}

static struct seat seat_of(uint32_t node)
{
	struct seat seat;
	assert_int_equal(seat_make(company_names[node], company_addresses[node], INCARNATION + node, DISK + node, &seat), 0);
	return seat;
}

static void post(uint32_t node, uint32_t to, const struct decree *decree)
{
	const struct seat seat = seat_of(to);
	transport_post(company_nodes[node], &seat, decree, company_now_us());
}

static void assert_sender(const struct message *message, uint32_t node)
{
	assert_string_equal(message->decree->sender, company_names[node]);
	assert_int_equal(message->from, 0);
}

/* NEW, of no view, asks a, which answers without knowing where it is. */
static void check_joiner(void)
{
	company_open(A, &ab);
	company_open(NEW, &ab);
	struct decree join = decree_of(NEW, DECREE_JOIN), decided = decree_of(A, DECREE_DECIDED), ask = decree_of(NEW, DECREE_ASK);
	struct seat seat = seat_of(A);
	join.address = company_addresses[NEW];
	decided.roster = (struct roster){.number = 2, .count = 1, .fanout = 1, .seats = &seat};
	/* Said before there is a connection. */
	post(NEW, A, &join);
	assert_int_equal(company_counts(NEW).unsent_frames, 0);
	struct message message = company_hear(A, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_JOIN);
	assert_sender(&message, NEW);
	assert_string_equal(message.decree->address, company_addresses[NEW]);
	transport_post(company_nodes[A], NULL, &decided, company_now_us());
	message = company_hear(NEW, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_DECIDED);
	assert_true(roster_is_equal(&message.decree->roster, &decided.roster));
	/* And back again the same way, which is a contact on this side. */
	transport_post(company_nodes[NEW], NULL, &ask, company_now_us());
	message = company_hear(A, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_ASK);
	/* By its seat, at its own address. */
	post(A, NEW, &decided);
	message = company_hear(NEW, MESSAGE_DECREE);
	assert_sender(&message, A);
}

static void decree_reaches_who_is_no_member_and_its_answer_comes_back(void **state)
{
	(void)state;
	check_joiner();
}

static void decree_reaches_who_is_no_member_encrypted(void **state)
{
	(void)state;
	check_joiner();
}

static void decree_to_a_neighbour_passes_before_any_hello(void **state)
{
	(void)state;
	company_open(A, &ab);
	company_open(B, &ab);
	struct decree prepare = decree_of(A, DECREE_PREPARE);
	prepare.ballot = ballot_make(1, 0);
	post(A, B, &prepare);
	struct message message = company_hear(B, MESSAGE_DECREE);
	assert_sender(&message, A);
	assert_true(message.decree->ballot == prepare.ballot);
	/* What is said outlives the seat: a neighbour that goes hears that it went. */
	post(A, B, &prepare);
	company_seat(A, &(const struct members){3, 1, {A}});
	assert_int_equal(company_hear(B, MESSAGE_DECREE).decree->kind, DECREE_PREPARE);
}

static void contact_that_nobody_uses_is_closed_and_opened_again(void **state)
{
	(void)state;
	struct dealer_self self = {.context = zmq_ctx_new(), .name = "a", .incarnation = 1};
	struct contacts *contacts = calloc(1, sizeof *contacts);
	contacts->self = &self;
	struct seat seat = seat_of(B), other = seat_of(C);
	uint64_t first = contacts_reach(contacts, &seat, 1000000)->dealer.number;
	uint64_t second = contacts_reach(contacts, &other, 1000000)->dealer.number;
	assert_true(contacts_reach(contacts, &seat, 5000000)->dealer.number == first);
	contacts_step(contacts, 6100000);
	assert_null(contacts_find(contacts, second));
	assert_non_null(contacts_find(contacts, first));
	contacts_step(contacts, 10100000);
	assert_int_equal(contacts->count, 0);
	assert_true(contacts_reach(contacts, &seat, 11000000)->dealer.number > second);
	contacts_close(contacts);
	zmq_ctx_term(self.context);
	free(contacts);
}

/* As many as a proposer in the largest view needs, and one more: the one that was used least recently gives way. */
static void contacts_are_bounded(void **state)
{
	(void)state;
	struct dealer_self self = {.context = zmq_ctx_new(), .name = "a", .incarnation = 1};
	struct contacts *contacts = calloc(1, sizeof *contacts);
	contacts->self = &self;
	uint64_t numbers[CONTACT_COUNT_MAX];
	for (uint32_t i = 0; i <= CONTACT_COUNT_MAX; i++) {
		char name[SEAT_NAME_BYTES];
		struct seat seat;
		snprintf(name, sizeof name, "n%u", i);
		assert_int_equal(seat_make(name, company_addresses[B], 0, 0, &seat), 0);
		struct contact *contact = contacts_reach(contacts, &seat, 1000 + i);
		assert_non_null(contact->dealer.socket);
		assert_true(contact->dealer.is_unheard == (i >= CONTACT_HEARD_MAX));
		if (i < CONTACT_COUNT_MAX)
			numbers[i] = contact->dealer.number;
		if (i == CONTACT_COUNT_MAX - 1) /* the first one is used again */
			assert_int_equal(seat_make("n0", company_addresses[B], 0, 0, &seat), 0);
		if (i == CONTACT_COUNT_MAX - 1)
			contacts_reach(contacts, &seat, 1000 + i);
	}
	assert_int_equal(contacts->count, CONTACT_COUNT_MAX);
	assert_non_null(contacts_find(contacts, numbers[0]));
	assert_null(contacts_find(contacts, numbers[1]));
	assert_non_null(contacts_find(contacts, numbers[2]));
	contacts_close(contacts);
	zmq_ctx_term(self.context);
	free(contacts);
}

static void frames_of_known_names_are_counted_apart(void **state)
{
	(void)state;
	static struct guests guests;
	guests = (struct guests){.begin_us = 0};
	for (unsigned i = 0; i < 3 * GUEST_FRAMES; i++) {
		assert_true(guests_admit(&guests, "a", 100) == (i < GUEST_FRAMES));
		assert_true(guests_admit(&guests, NULL, 200) == (i < STRANGER_FRAMES));
	}
	assert_true(guests_admit(&guests, "b", 300));
	assert_false(guests_admit(&guests, "a", 999999));
	assert_true(guests_admit(&guests, "a", 1000000));
	assert_true(guests_admit(&guests, NULL, 1000001));
	/* More names than a view can have are counted with those of nobody. */
	for (unsigned i = 0; i < MEMBER_COUNT_MAX + STRANGER_FRAMES; i++) {
		char name[SEAT_NAME_BYTES];
		snprintf(name, sizeof name, "n%u", i);
		assert_true(guests_admit(&guests, name, 1000002) == (i < MEMBER_COUNT_MAX - 1 + STRANGER_FRAMES - 1));
	}
}

/* Thousands of good decrees in a second, of a name that a does not know, do not keep out one of b. */
static void flood_of_strangers_decrees_does_not_keep_out_a_members(void **state)
{
	(void)state;
	enum { FRAMES = 2000 };
	company_open(A, &ab);
	company_open(B, &ab);
	struct decree ask = decree_of(NEW, DECREE_ASK), ask_of_b = decree_of(B, DECREE_ASK);
	struct message message = {.kind = MESSAGE_DECREE, .incarnation = 7, .decree = &ask};
	struct codec *codec = codec_init(aligned_alloc(16, codec_size()));
	static unsigned char frame[CODEC_FRAME_MAX];
	size_t bytes = 0;
	assert_int_equal(codec_encode(codec, &message, frame, sizeof frame, &bytes), 0);
	void *context = zmq_ctx_new(), *flood = zmq_socket(context, ZMQ_DEALER);
	int linger = 0, no_bound = 0;
	assert_int_equal(zmq_setsockopt(flood, ZMQ_LINGER, &linger, sizeof linger), 0);
	assert_int_equal(zmq_setsockopt(flood, ZMQ_SNDHWM, &no_bound, sizeof no_bound), 0);
	assert_int_equal(zmq_connect(flood, company_addresses[A]), 0);
	for (size_t i = 0; i < FRAMES; i++)
		assert_int_equal(zmq_send(flood, frame, bytes, 0), (int)bytes);
	unsigned of_strangers = 0;
	bool is_heard = false;
	/* All in one second of the transport. */
	const uint64_t now = company_now_us();
	uint64_t end_us = now + PATIENCE_MS * 1000;
	post(B, A, &ask_of_b);
	while (!is_heard || company_counts(A).stranger_frames + of_strangers < FRAMES / 2) {
		unsigned budget = BUDGET;
		assert_true(company_now_us() < end_us);
		company_turn(A);
		while (transport_receive(company_nodes[A], now, &budget, &message)) {
			assert_int_equal(message.kind, MESSAGE_DECREE);
			bool is_of_b = strcmp(message.decree->sender, "b") == 0;
			is_heard |= is_of_b;
			of_strangers += !is_of_b;
		}
	}
	assert_int_equal(of_strangers, STRANGER_FRAMES);
	zmq_close(flood);
	zmq_ctx_destroy(context);
	free(codec);
}

static void decree_in_the_name_of_another_is_refused_by_key_unless_it_is_passed_on(void **state)
{
	(void)state;
	company_open(A, &abc);
	company_open(B, &abc);
	struct decree of_c = decree_of(C, DECREE_ASK);
	decree_of(B, DECREE_ASK);
	decree_of(A, DECREE_ASK);
	post(B, A, &of_c);
	AWAIT_COUNT(A, stranger_frames);
	of_c.relay = texts[A];
	post(B, A, &of_c);
	AWAIT_COUNT(A, stranger_frames);
	of_c.relay = texts[B];
	of_c.receiver = texts[A];
	post(B, A, &of_c);
	struct message message = company_hear(A, MESSAGE_DECREE);
	assert_sender(&message, C);
	assert_string_equal(message.decree->relay, "b");
	/* Nor in an answer. */
	of_c.relay = NULL;
	transport_post(company_nodes[A], NULL, &of_c, company_now_us());
	AWAIT_COUNT(B, malformed_frames);
}

static void decree_to_whom_there_is_no_key_waits_for_the_key(void **state)
{
	(void)state;
	company_open(A, &ab);
	company_open(NEW, &ab);
	struct decree ask = decree_of(A, DECREE_ASK);
	company_keyrings[A].member_count = NEW; /* its is the last one */
	post(A, NEW, &ask);
	assert_int_equal(company_counts(A).unsent_frames, 1);
	company_keyrings[A].member_count = NODES;
	transport_rekey(company_nodes[A]);
	post(A, NEW, &ask);
	struct message message = company_hear(NEW, MESSAGE_DECREE);
	assert_sender(&message, A);
}

int main(void)
{
#define PLAIN(test) cmocka_unit_test_setup_teardown(test, company_gather, company_part)
#define WITH_KEYS(test) cmocka_unit_test_setup_teardown(test, company_gather_with_keys, company_part)

	const struct CMUnitTest tests[] = {
		PLAIN(decree_reaches_who_is_no_member_and_its_answer_comes_back),
		WITH_KEYS(decree_reaches_who_is_no_member_encrypted),
		PLAIN(decree_to_a_neighbour_passes_before_any_hello),
		PLAIN(contact_that_nobody_uses_is_closed_and_opened_again),
		PLAIN(contacts_are_bounded),
		PLAIN(frames_of_known_names_are_counted_apart),
		PLAIN(flood_of_strangers_decrees_does_not_keep_out_a_members),
		WITH_KEYS(decree_in_the_name_of_another_is_refused_by_key_unless_it_is_passed_on),
		WITH_KEYS(decree_to_whom_there_is_no_key_waits_for_the_key),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sockets of rings whose members change, all in this process: what stays and what goes when a view is seated anew, decrees to whomever, and
 * memory that frames on their way out still read. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "daemon/contact.h"
#include "daemon/guests.h"
#include "daemon/transport.h"
#include "proto/codec.h"

/* A to D are members of some view, NEW of none. */
enum { A, B, C, D, NEW, NODES, PATIENCE_MS = 10000, BUDGET = 32, INCARNATION = 100, DISK = 200 };

static const char *const names[NODES] = {"a", "b", "c", "d", "new"};
static char addresses[NODES][64];
static struct transport *nodes[NODES];

static int find_addresses(void **state)
{
	(void)state;
	int sockets[NODES];
	for (size_t i = 0; i < NODES; i++) {
		struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t bytes = sizeof address;
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(sockets[i], (struct sockaddr *)&address, bytes) != 0 ||
		    getsockname(sockets[i], (struct sockaddr *)&address, &bytes) != 0)
			return -1;
		snprintf(addresses[i], sizeof addresses[i], "tcp://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
	}
	for (size_t i = 0; i < NODES; i++)
		close(sockets[i]);
	return 0;
}

static struct keyring keyrings[NODES];

/* Of all, known to all. */
static int make_keys(void **state)
{
	for (uint32_t i = 0; i < NODES; i++) {
		keyrings[i] = (struct keyring){.has_keys = true, .member_count = NODES,
					       .members = calloc(NODES, sizeof *keyrings[i].members)};
		if (!keyrings[i].members || zmq_curve_keypair(keyrings[i].public_key, keyrings[i].secret_key) != 0)
			return -1;
	}
	for (uint32_t i = 0; i < NODES; i++)
		for (uint32_t j = 0; j < NODES; j++) {
			strcpy(keyrings[i].members[j].name, names[j]);
			memcpy(keyrings[i].members[j].key, keyrings[j].public_key, KEY_BYTES);
		}
	return find_addresses(state);
}

static int close_all(void **state)
{
	(void)state;
	for (size_t i = 0; i < NODES; i++) {
		if (nodes[i])
			transport_close(nodes[i]);
		nodes[i] = NULL;
		keyring_close(&keyrings[i]);
	}
	return 0;
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- Views ---- */

struct members {
	uint64_t number;
	uint32_t count;
	uint32_t list[NODES];
};

static const struct members ab = {1, 2, {A, B}}, abc = {2, 3, {A, B, C}}, dca = {3, 3, {D, C, A}}, acb = {4, 3, {A, C, B}};

/* A view as `self` sees it: all others are neighbours. It lies in static memory until the next call. */
static struct transport_view view_of(const struct members *members, uint32_t self)
{
	static const char *of[NODES];
	struct transport_view view = {.number = members->number, .rank = members->count, .member_count = members->count, .names = of};
	for (uint32_t rank = 0; rank < members->count; rank++) {
		of[rank] = names[members->list[rank]];
		if (members->list[rank] == self)
			view.rank = rank;
	}
	for (uint32_t rank = 0; rank < members->count && view.rank < members->count; rank++)
		if (rank != view.rank)
			view.neighbours[view.neighbour_count++] =
				(struct transport_neighbour){rank, addresses[members->list[rank]]};
	return view;
}

static void open_node(uint32_t node, const struct members *members)
{
	char text[256] = "";
	struct transport_config config = {.listen = addresses[node], .name = names[node], .view = view_of(members, node),
					  .incarnation = INCARNATION + node, .keyring = &keyrings[node],
					  .is_encrypted = keyrings[node].has_keys};
	assert_int_equal(transport_open(&config, &nodes[node], text, sizeof text), 0);
}

static void close_node(uint32_t node)
{
	transport_close(nodes[node]);
	nodes[node] = NULL;
}

static void seat_node(uint32_t node, const struct members *members)
{
	const struct transport_view view = view_of(members, node);
	transport_seat(nodes[node], &view);
}

/* Rank of a node in a view. */
static uint32_t rank_of(const struct members *members, uint32_t node)
{
	uint32_t rank = 0;
	while (members->list[rank] != node)
		rank++;
	return rank;
}

/* ---- Saying and hearing ---- */

static void turn(uint32_t node)
{
	transport_wait(nodes[node], NULL, 0, 5);
	for (size_t i = 0; i < NODES; i++)
		if (nodes[i])
			transport_step(nodes[i], now_us());
}

static struct message message_of(uint32_t node, const struct members *members, enum message_kind kind)
{
	struct message message = {.kind = kind, .from = rank_of(members, node), .incarnation = INCARNATION + node, .view = members->number};
	if (kind == MESSAGE_HELLO)
		message.hello = (struct hello){.name = names[node]};
	return message;
}

/* Says it in the view of `members` to the member that has rank `to` where the node is seated now, until it is connected. */
static void say(uint32_t node, uint32_t to, const struct members *members, enum message_kind kind)
{
	struct message message = message_of(node, members, kind);
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!transport_send(nodes[node], to, &message)) {
		assert_true(now_us() < end_us);
		turn(node);
	}
}

static bool hear_now(uint32_t node, struct message *ret_message)
{
	unsigned budget = BUDGET;
	return transport_receive(nodes[node], now_us(), &budget, ret_message);
}

static struct message hear(uint32_t node, enum message_kind kind)
{
	struct message message;
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!hear_now(node, &message)) {
		assert_true(now_us() < end_us);
		turn(node);
	}
	assert_int_equal(message.kind, kind);
	return message;
}

static struct transport_counts counts_of(uint32_t node)
{
	struct transport_counts counts;
	transport_counts(nodes[node], &counts);
	return counts;
}

/* Turns in which nothing is heard, until the count at `field` of the node's counts has changed. */
#define AWAIT_COUNT(node, field)                                                                                       \
	do {                                                                                                           \
		struct message message_;                                                                               \
		uint64_t before_ = counts_of(node).field, end_us_ = now_us() + PATIENCE_MS * 1000;                     \
		while (counts_of(node).field == before_) {                                                             \
			assert_true(now_us() < end_us_);                                                               \
			turn(node);                                                                                    \
			assert_false(hear_now(node, &message_));                                                       \
		}                                                                                                      \
	} while (0)

/* ---- Seats ---- */

static void neighbour_that_stays_is_heard_without_another_hello(void **state)
{
	(void)state;
	open_node(A, &ab);
	open_node(B, &ab);
	say(A, 1, &ab, MESSAGE_HELLO);
	assert_int_equal(hear(B, MESSAGE_HELLO).from, 0);
	/* On its way when both go on. */
	say(A, 1, &ab, MESSAGE_HEARTBEAT);
	seat_node(A, &acb);
	seat_node(B, &acb);
	struct message old = hear(B, MESSAGE_HEARTBEAT);
	assert_true(old.view == ab.number);
	assert_int_equal(old.from, rank_of(&acb, A));
	struct message heartbeat = message_of(A, &acb, MESSAGE_HEARTBEAT);
	/* At once: the connection is the same. */
	assert_true(transport_send(nodes[A], rank_of(&acb, B), &heartbeat));
	struct message new = hear(B, MESSAGE_HEARTBEAT);
	assert_true(new.view == acb.number);
	assert_int_equal(new.from, rank_of(&acb, A));
}

static void neighbour_that_goes_is_heard_no_more_and_a_new_one_is(void **state)
{
	(void)state;
	open_node(A, &abc);
	open_node(B, &abc);
	open_node(C, &abc);
	open_node(D, &dca);
	say(B, 0, &abc, MESSAGE_HELLO);
	hear(A, MESSAGE_HELLO);
	seat_node(A, &dca);
	seat_node(C, &dca);
	say(B, 0, &abc, MESSAGE_HEARTBEAT);
	AWAIT_COUNT(A, stranger_frames);
	say(D, rank_of(&dca, A), &dca, MESSAGE_HELLO);
	assert_int_equal(hear(A, MESSAGE_HELLO).from, rank_of(&dca, D));
	say(A, rank_of(&dca, D), &dca, MESSAGE_HELLO);
	assert_int_equal(hear(D, MESSAGE_HELLO).from, rank_of(&dca, A));
}

static void rank_that_is_not_that_of_the_view_is_malformed(void **state)
{
	(void)state;
	open_node(A, &ab);
	open_node(B, &ab);
	say(A, 1, &ab, MESSAGE_HELLO);
	hear(B, MESSAGE_HELLO);
	struct message message = message_of(A, &ab, MESSAGE_HEARTBEAT);
	message.from = 1;
	assert_true(transport_send(nodes[A], 1, &message));
	AWAIT_COUNT(B, malformed_frames);
}

static void hello_of_another_view_is_taken_by_name_and_nobody_is_refused_for_it(void **state)
{
	(void)state;
	struct message message;
	/* A has gone on to a view in which B, which has not, is no neighbour; C has another rank in it. */
	open_node(A, &dca);
	open_node(B, &abc);
	open_node(C, &abc);
	say(B, 0, &abc, MESSAGE_HELLO);
	AWAIT_COUNT(A, foreign_hellos);
	assert_int_equal(counts_of(A).stranger_frames, 0);
	say(C, 0, &abc, MESSAGE_HELLO);
	struct message hello = hear(A, MESSAGE_HELLO);
	assert_true(hello.view == abc.number);
	assert_int_equal(hello.from, rank_of(&dca, C));
	/* Whoever was refused would have heard of it by now. */
	say(A, rank_of(&dca, C), &dca, MESSAGE_HELLO);
	hear(C, MESSAGE_HELLO);
	assert_false(hear_now(B, &message));
	/* In the same view it would be a stranger. */
	seat_node(A, &(const struct members){abc.number, 2, {A, C}});
	say(B, 0, &abc, MESSAGE_HELLO);
	AWAIT_COUNT(A, stranger_frames);
	assert_int_equal(hear(B, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
}

static void address_that_leads_to_another_node_is_refused(void **state)
{
	(void)state;
	char right[64];
	open_node(C, &abc);
	open_node(A, &abc);
	memcpy(right, addresses[B], sizeof right);
	memcpy(addresses[B], addresses[C], sizeof right);
	seat_node(A, &acb); /* the address of b is another now, so there is a new connection */
	say(A, rank_of(&acb, B), &abc, MESSAGE_HELLO);
	AWAIT_COUNT(C, stranger_frames);
	assert_int_equal(hear(A, MESSAGE_REFUSE).refuse.reason, REFUSAL_STRANGER);
	memcpy(addresses[B], right, sizeof right);
}

/* ---- Decrees ---- */

static char texts[NODES][SEAT_NAME_BYTES];

static struct decree decree_of(uint32_t node, enum decree_kind kind)
{
	snprintf(texts[node], sizeof texts[node], "%s", names[node]);
	return (struct decree){.kind = kind, .sender = texts[node], .incarnation = INCARNATION + node, .disk = DISK + node, .view = 2};
}

static struct seat seat_of(uint32_t node)
{
	struct seat seat;
	assert_int_equal(seat_make(names[node], addresses[node], INCARNATION + node, DISK + node, &seat), 0);
	return seat;
}

static void post(uint32_t node, uint32_t to, const struct decree *decree)
{
	const struct seat seat = seat_of(to);
	transport_post(nodes[node], &seat, decree, now_us());
}

static void assert_sender(const struct message *message, uint32_t node)
{
	assert_string_equal(message->decree->sender, names[node]);
	assert_int_equal(message->from, 0);
}

/* NEW, of no view, asks a, which answers without knowing where it is. */
static void check_joiner(void)
{
	open_node(A, &ab);
	open_node(NEW, &ab);
	struct decree join = decree_of(NEW, DECREE_JOIN), decided = decree_of(A, DECREE_DECIDED), ask = decree_of(NEW, DECREE_ASK);
	struct seat seat = seat_of(A);
	join.address = addresses[NEW];
	decided.roster = (struct roster){.number = 2, .count = 1, .fanout = 1, .seats = &seat};
	/* Said before there is a connection. */
	post(NEW, A, &join);
	assert_int_equal(counts_of(NEW).unsent_frames, 0);
	struct message message = hear(A, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_JOIN);
	assert_sender(&message, NEW);
	assert_string_equal(message.decree->address, addresses[NEW]);
	transport_post(nodes[A], NULL, &decided, now_us());
	message = hear(NEW, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_DECIDED);
	assert_true(roster_is_equal(&message.decree->roster, &decided.roster));
	/* And back again the same way, which is a contact on this side. */
	transport_post(nodes[NEW], NULL, &ask, now_us());
	message = hear(A, MESSAGE_DECREE);
	assert_int_equal(message.decree->kind, DECREE_ASK);
	/* By its seat, at its own address. */
	post(A, NEW, &decided);
	message = hear(NEW, MESSAGE_DECREE);
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
	open_node(A, &ab);
	open_node(B, &ab);
	struct decree prepare = decree_of(A, DECREE_PREPARE);
	prepare.ballot = ballot_make(1, 0);
	post(A, B, &prepare);
	struct message message = hear(B, MESSAGE_DECREE);
	assert_sender(&message, A);
	assert_true(message.decree->ballot == prepare.ballot);
	/* What is said outlives the seat: a neighbour that goes hears that it went. */
	post(A, B, &prepare);
	seat_node(A, &(const struct members){3, 1, {A}});
	assert_int_equal(hear(B, MESSAGE_DECREE).decree->kind, DECREE_PREPARE);
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
		assert_int_equal(seat_make(name, addresses[B], 0, 0, &seat), 0);
		struct contact *contact = contacts_reach(contacts, &seat, 1000 + i);
		assert_non_null(contact->dealer.socket);
		assert_true(contact->dealer.is_unheard == (i >= CONTACT_HEARD_MAX));
		if (i < CONTACT_COUNT_MAX)
			numbers[i] = contact->dealer.number;
		if (i == CONTACT_COUNT_MAX - 1) /* the first one is used again */
			assert_int_equal(seat_make("n0", addresses[B], 0, 0, &seat), 0);
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
	open_node(A, &ab);
	open_node(B, &ab);
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
	assert_int_equal(zmq_connect(flood, addresses[A]), 0);
	for (size_t i = 0; i < FRAMES; i++)
		assert_int_equal(zmq_send(flood, frame, bytes, 0), (int)bytes);
	unsigned of_strangers = 0;
	bool is_heard = false;
	/* All in one second of the transport. */
	const uint64_t now = now_us();
	uint64_t end_us = now + PATIENCE_MS * 1000;
	post(B, A, &ask_of_b);
	while (!is_heard || counts_of(A).stranger_frames + of_strangers < FRAMES / 2) {
		unsigned budget = BUDGET;
		assert_true(now_us() < end_us);
		turn(A);
		while (transport_receive(nodes[A], now, &budget, &message)) {
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
	open_node(A, &abc);
	open_node(B, &abc);
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
	struct message message = hear(A, MESSAGE_DECREE);
	assert_sender(&message, C);
	assert_string_equal(message.decree->relay, "b");
	/* Nor in an answer. */
	of_c.relay = NULL;
	transport_post(nodes[A], NULL, &of_c, now_us());
	AWAIT_COUNT(B, malformed_frames);
}

static void decree_to_whom_there_is_no_key_waits_for_the_key(void **state)
{
	(void)state;
	open_node(A, &ab);
	open_node(NEW, &ab);
	struct decree ask = decree_of(A, DECREE_ASK);
	keyrings[A].member_count = NEW; /* its is the last one */
	post(A, NEW, &ask);
	assert_int_equal(counts_of(A).unsent_frames, 1);
	keyrings[A].member_count = NODES;
	transport_rekey(nodes[A]);
	post(A, NEW, &ask);
	struct message message = hear(NEW, MESSAGE_DECREE);
	assert_sender(&message, A);
}

static void neighbour_without_a_key_here_is_told(void **state)
{
	(void)state;
	static const struct members with_new = {5, 2, {A, NEW}};
	struct dealer_trouble trouble;
	open_node(A, &ab);
	open_node(NEW, &with_new);
	keyrings[A].member_count = NEW;
	seat_node(A, &with_new);
	assert_true(transport_trouble(nodes[A], 1, &trouble));
	assert_string_equal(trouble.word, "no-key");
	keyrings[A].member_count = NODES;
	transport_rekey(nodes[A]);
	assert_false(transport_trouble(nodes[A], 1, &trouble));
	say(A, 1, &with_new, MESSAGE_HELLO);
	hear(NEW, MESSAGE_HELLO);
}

/* ---- Leases ---- */

enum { CHUNK_BYTES = 1 << 20, CHUNKS = 32 };

/* As many chunks as can be sent to b, which reads nothing; they stand in a block of their own, with their lease. */
struct lent {
	struct lease lease;
	float payload[CHUNK_BYTES / sizeof(float)];
};

static struct lent *lend(void)
{
	struct lent *lent = calloc(1, sizeof *lent);
	struct message chunk = message_of(A, &ab, MESSAGE_CHUNK);
	chunk.chunk = (struct chunk){.round = 1, .phase = PHASE_REDUCE, .count = CHUNK_BYTES / sizeof(float)};
	chunk.payload = lent->payload;
	chunk.payload_bytes = CHUNK_BYTES;
	assert_true(lease_is_free(&lent->lease));
	transport_lease(nodes[A], &lent->lease);
	for (size_t i = 0; i < CHUNKS; i++)
		assert_true(transport_send(nodes[A], 1, &chunk));
	return lent;
}

static void await_free(const struct lease *lease)
{
	uint64_t end_us = now_us() + PATIENCE_MS * 1000;
	while (!lease_is_free(lease)) {
		assert_true(now_us() < end_us);
		turn(A);
	}
}

static void memory_is_free_when_its_frames_are_read(void **state)
{
	(void)state;
	struct message message;
	open_node(A, &ab);
	open_node(B, &ab);
	say(A, 1, &ab, MESSAGE_HELLO);
	hear(B, MESSAGE_HELLO);
	struct lent *lent = lend();
	for (size_t heard = 0; heard < CHUNKS;) {
		turn(B);
		while (hear_now(B, &message))
			heard++;
	}
	await_free(&lent->lease);
	free(lent);
}

/* b does not read: its kernel has some of the frames, ZeroMQ has the others when the view ends in which they were sent. */
static void memory_is_free_some_time_after_a_view_not_at_once(void **state)
{
	(void)state;
	open_node(A, &ab);
	open_node(B, &ab);
	say(A, 1, &ab, MESSAGE_HELLO);
	hear(B, MESSAGE_HELLO);
	close_node(B);
	/* In its place somebody who takes in a message or two and then reads no more. */
	void *context = zmq_ctx_new(), *deaf = zmq_socket(context, ZMQ_ROUTER);
	int one = 1, little = 4096, linger = 0;
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_RCVHWM, &one, sizeof one), 0);
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_RCVBUF, &little, sizeof little), 0);
	assert_int_equal(zmq_setsockopt(deaf, ZMQ_LINGER, &linger, sizeof linger), 0);
	assert_int_equal(zmq_bind(deaf, addresses[B]), 0);
	say(A, 1, &ab, MESSAGE_HELLO);
	struct lent *lent = lend();
	usleep(300000);
	assert_false(lease_is_free(&lent->lease));
	seat_node(A, &(const struct members){2, 1, {A}});
	await_free(&lent->lease);
	free(lent);
	transport_lease(nodes[A], NULL);
	zmq_close(deaf);
	zmq_ctx_destroy(context);
}

int main(void)
{
#define PLAIN(test) cmocka_unit_test_setup_teardown(test, find_addresses, close_all)
#define WITH_KEYS(test) cmocka_unit_test_setup_teardown(test, make_keys, close_all)

	const struct CMUnitTest tests[] = {
		PLAIN(neighbour_that_stays_is_heard_without_another_hello),
		PLAIN(neighbour_that_goes_is_heard_no_more_and_a_new_one_is),
		PLAIN(rank_that_is_not_that_of_the_view_is_malformed),
		PLAIN(hello_of_another_view_is_taken_by_name_and_nobody_is_refused_for_it),
		PLAIN(address_that_leads_to_another_node_is_refused),
		PLAIN(decree_reaches_who_is_no_member_and_its_answer_comes_back),
		WITH_KEYS(decree_reaches_who_is_no_member_encrypted),
		PLAIN(decree_to_a_neighbour_passes_before_any_hello),
		PLAIN(contact_that_nobody_uses_is_closed_and_opened_again),
		PLAIN(contacts_are_bounded),
		PLAIN(frames_of_known_names_are_counted_apart),
		PLAIN(flood_of_strangers_decrees_does_not_keep_out_a_members),
		WITH_KEYS(decree_in_the_name_of_another_is_refused_by_key_unless_it_is_passed_on),
		WITH_KEYS(decree_to_whom_there_is_no_key_waits_for_the_key),
		WITH_KEYS(neighbour_without_a_key_here_is_told),
		PLAIN(memory_is_free_when_its_frames_are_read),
		PLAIN(memory_is_free_some_time_after_a_view_not_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

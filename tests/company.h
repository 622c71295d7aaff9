#ifndef EDIT_TESTS_COMPANY_H
#define EDIT_TESTS_COMPANY_H

/* Up to five nodes with their sockets in one process, some of them members of a view, to test what they say to each other.
 * Include cmocka.h before. */

#include "daemon/transport.h"
#include "tests/loopback.h"

/* A to D are members of some view, NEW of none. */
enum { A, B, C, D, NEW, NODES, PATIENCE_MS = 10000, BUDGET = 32, INCARNATION = 100 };

extern const char *const company_names[NODES];
extern char company_addresses[NODES][LOOPBACK_BYTES]; /* of this host, free when they were looked for */
extern struct keyring company_keyrings[NODES]; /* empty: frames are not encrypted */
extern struct transport *company_nodes[NODES]; /* NULL: not open */

/* Members of a view, in its order. */
struct members {
	uint64_t number;
	uint32_t count;
	uint32_t list[NODES];
};

/* Setup of cmocka: finds addresses; with keys of all, known to all. Teardown: closes all. */
int company_gather(void **state);
int company_gather_with_keys(void **state);
int company_part(void **state);

/* Monotonic. */
uint64_t company_now_us(void);

/* Opens a node in a view where all members are neighbours; closes it; seats it in another one. */
void company_open(uint32_t node, const struct members *members);
void company_close(uint32_t node);
void company_seat(uint32_t node, const struct members *members);
/* Rank of a node in a view that it is in. */
uint32_t company_rank(const struct members *members, uint32_t node);

/* Waits a little for something to come to the node, while all have their turn. */
void company_turn(uint32_t node);
/* A message of the node in a view; all of its body but a hello's is zero. */
struct message company_message(uint32_t node, const struct members *members, enum message_kind kind);
/* Says it to the member that has rank `to` where the node is seated now, until it is connected. */
void company_say(uint32_t node, uint32_t to, const struct members *members, enum message_kind kind);
/* The next message, if there is one; and the next one, which is of that kind. */
bool company_hear_now(uint32_t node, struct message *ret_message);
struct message company_hear(uint32_t node, enum message_kind kind);
/* transport_counts of the node. */
struct transport_counts company_counts(uint32_t node);

/* Turns in which nothing is heard, until the count at `field` of the node's counts has changed. */
#define AWAIT_COUNT(node, field)                                                                                       \
	do {                                                                                                           \
		struct message message_;                                                                               \
		uint64_t before_ = company_counts(node).field, end_us_ = company_now_us() + PATIENCE_MS * 1000;                     \
		while (company_counts(node).field == before_) {                                                             \
			assert_true(company_now_us() < end_us_);                                                               \
			company_turn(node);                                                                                    \
			assert_false(company_hear_now(node, &message_));                                                       \
		}                                                                                                      \
	} while (0)

#endif

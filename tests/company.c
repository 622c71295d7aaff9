/* Nodes with their sockets, all in this process. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "tests/company.h"
#include "tests/loopback.h"

const char *const company_names[NODES] = {"a", "b", "c", "d", "new"};
char company_addresses[NODES][LOOPBACK_BYTES];
struct transport *company_nodes[NODES];

int company_gather(void **state)
{
	(void)state;
	return loopback_find(company_addresses, NODES);
}

struct keyring company_keyrings[NODES];

int company_gather_with_keys(void **state)
{
	for (uint32_t i = 0; i < NODES; i++) {
		company_keyrings[i] = (struct keyring){.has_keys = true, .member_count = NODES,
					       .members = calloc(NODES, sizeof *company_keyrings[i].members)};
		if (!company_keyrings[i].members || zmq_curve_keypair(company_keyrings[i].public_key, company_keyrings[i].secret_key) != 0)
			return -1;
	}
	for (uint32_t i = 0; i < NODES; i++)
		for (uint32_t j = 0; j < NODES; j++) {
			strcpy(company_keyrings[i].members[j].name, company_names[j]);
			memcpy(company_keyrings[i].members[j].key, company_keyrings[j].public_key, KEY_BYTES);
		}
	return company_gather(state);
}

int company_part(void **state)
{
	(void)state;
	for (size_t i = 0; i < NODES; i++) {
		if (company_nodes[i])
			transport_close(company_nodes[i]);
		company_nodes[i] = NULL;
		keyring_close(&company_keyrings[i]);
	}
	return 0;
}

uint64_t company_now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- Views ---- */

/* A view as `self` sees it: all others are neighbours. It lies in static memory until the next call. */
static struct transport_view company_view(const struct members *members, uint32_t self)
{
	static const char *of[NODES];
	struct transport_view view = {.number = members->number, .rank = members->count, .member_count = members->count, .names = of};
	for (uint32_t rank = 0; rank < members->count; rank++) {
		of[rank] = company_names[members->list[rank]];
		if (members->list[rank] == self)
			view.rank = rank;
	}
	for (uint32_t rank = 0; rank < members->count && view.rank < members->count; rank++)
		if (rank != view.rank)
			view.neighbours[view.neighbour_count++] =
				(struct transport_neighbour){rank, company_addresses[members->list[rank]]};
	return view;
}

void company_open(uint32_t node, const struct members *members)
{
	char text[256] = "";
	struct transport_config config = {.listen = company_addresses[node], .name = company_names[node],
					  .view = company_view(members, node),
					  .incarnation = INCARNATION + node, .keyring = &company_keyrings[node],
					  .is_encrypted = company_keyrings[node].has_keys};
	assert_int_equal(transport_open(&config, &company_nodes[node], text, sizeof text), 0);
}

void company_close(uint32_t node)
{
	transport_close(company_nodes[node]);
	company_nodes[node] = NULL;
}

void company_seat(uint32_t node, const struct members *members)
{
	const struct transport_view view = company_view(members, node);
	transport_seat(company_nodes[node], &view);
}

uint32_t company_rank(const struct members *members, uint32_t node)
{
	uint32_t rank = 0;
	while (members->list[rank] != node)
		rank++;
	return rank;
}

/* ---- Saying and hearing ---- */

void company_turn(uint32_t node)
{
	transport_wait(company_nodes[node], NULL, 0, 5);
	for (size_t i = 0; i < NODES; i++)
		if (company_nodes[i])
			transport_step(company_nodes[i], company_now_us());
}

struct message company_message(uint32_t node, const struct members *members, enum message_kind kind)
{
	struct message message = {.kind = kind, .from = company_rank(members, node), .incarnation = INCARNATION + node,
				  .view = members->number};
	if (kind == MESSAGE_HELLO)
		message.hello = (struct hello){.name = company_names[node]};
	return message;
}

void company_say(uint32_t node, uint32_t to, const struct members *members, enum message_kind kind)
{
	struct message message = company_message(node, members, kind);
	uint64_t end_us = company_now_us() + PATIENCE_MS * 1000;
	while (!transport_send(company_nodes[node], to, &message)) {
		assert_true(company_now_us() < end_us);
		company_turn(node);
	}
}

bool company_hear_now(uint32_t node, struct message *ret_message)
{
	unsigned budget = BUDGET;
	return transport_receive(company_nodes[node], company_now_us(), &budget, ret_message);
}

struct message company_hear(uint32_t node, enum message_kind kind)
{
	struct message message;
	uint64_t end_us = company_now_us() + PATIENCE_MS * 1000;
	while (!company_hear_now(node, &message)) {
		assert_true(company_now_us() < end_us);
		company_turn(node);
	}
	assert_int_equal(message.kind, kind);
	return message;
}

struct transport_counts company_counts(uint32_t node)
{
	struct transport_counts counts;
	transport_counts(company_nodes[node], &counts);
	return counts;
}

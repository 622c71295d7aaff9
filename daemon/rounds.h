#ifndef EDIT_DAEMON_ROUNDS_H
#define EDIT_DAEMON_ROUNDS_H

/* Sums over the records of the last complete round, for the log line of a round and for status. Only looks. */

#include "core/node.h"

struct round_sum {
	uint64_t round;           /* 0: no round is complete yet */
	uint64_t steps, tokens;   /* of all members */
	double loss;              /* nats per token, over members with a finite loss, weighted by tokens; NaN: none */
	double tokens_per_second; /* of all members: each one's tokens by its own time */
	uint32_t left_out;        /* (member, layer) pairs */
};

/* Sums over all members; round is 0 and all else empty before the first round is complete. */
void rounds_sum(const struct node *node, uint32_t member_count, size_t layer_count, struct round_sum *ret_sum);

/* Tokens per second of a record's member; 0 if unknown. */
double rounds_speed(const struct record *record);

/* Layers of the last complete round in which a member was left out. */
uint32_t rounds_left_out(const struct node *node, uint32_t rank, size_t layer_count);

#endif

/* Sums over a round's records. Owns nothing. */

#include "daemon/rounds.h"

#include <math.h>

double rounds_speed(const struct record *record)
{
	uint64_t time_us = record->interval_us + record->exposed_us;
	return time_us > 0 ? (double)record->tokens * 1e6 / (double)time_us : 0;
}

uint32_t rounds_left_out(const struct node *node, uint32_t rank, size_t layer_count)
{
	uint32_t count = 0;
	for (size_t i = 0; i < layer_count; i++) {
		const struct record *record = node_record(node, i, rank);
		count += record->round > 0 && record->verdict != VERDICT_ACCEPTED;
	}
	return count;
}

void rounds_sum(const struct node *node, uint32_t member_count, size_t layer_count, struct round_sum *ret_sum)
{
	struct round_sum sum = {.loss = NAN};
	double loss = 0, loss_tokens = 0;
	for (uint32_t rank = 0; rank < member_count; rank++) {
		const struct record *record = node_record(node, 0, rank);
		if (record->round == 0)
			continue;
		sum.round = record->round;
		sum.steps += record->steps;
		sum.tokens += record->tokens;
		sum.tokens_per_second += rounds_speed(record);
		sum.left_out += rounds_left_out(node, rank, layer_count);
		if (!isfinite(record->loss))
			continue;
		/* A worker that does not count tokens still has a loss. */
		double weight = record->tokens > 0 ? (double)record->tokens : 1;
		loss += weight * record->loss;
		loss_tokens += weight;
	}
	if (loss_tokens > 0)
		sum.loss = loss / loss_tokens;
	*ret_sum = sum;
}

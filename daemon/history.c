/* A ring of rows: a round's row is at its number modulo the capacity. Owns the block. */

#include "daemon/history.h"

#include <stdlib.h>
#include <string.h>

bool history_open(struct history *history, uint32_t member_count, size_t layer_count)
{
	CHECK(member_count <= MEMBER_COUNT_MAX);
	CHECK(layer_count <= LAYER_COUNT_MAX);
	size_t row_bytes = sizeof(struct history_round) + member_count * sizeof(struct history_member) +
			   layer_count * sizeof(struct history_layer);
	row_bytes = (row_bytes + 15) / 16 * 16;
	size_t capacity = size_min(HISTORY_ROUNDS_MAX, HISTORY_BYTES_MAX / row_bytes);
	char *block = calloc(capacity, row_bytes);
	if (!block)
		return false;
	*history = (struct history){.block = block, .row_bytes = row_bytes, .capacity = capacity, .member_count = member_count,
				    .layer_count = layer_count};
	return true;
}

void history_close(struct history *history)
{
	free(history->block);
	*history = (struct history){0};
}

static struct history_round *row_of(const struct history *history, uint64_t round)
{
	return (struct history_round *)(void *)(history->block + round % history->capacity * history->row_bytes);
}

struct history_round *history_add(struct history *history, uint64_t round)
{
	CHECK(round > history->last);
	if (history->last == 0 || round != history->last + 1)
		history->first = round;
	else if (round - history->first == history->capacity)
		history->first++;
	history->last = round;
	struct history_round *row = row_of(history, round);
	memset(row, 0, history->row_bytes);
	row->round = round;
	row->members = (struct history_member *)(row + 1);
	row->layers = (struct history_layer *)(row->members + history->member_count);
	return row;
}

const struct history_round *history_find(const struct history *history, uint64_t round)
{
	bool is_kept = history->last > 0 && round >= history->first && round <= history->last;
	return is_kept ? row_of(history, round) : NULL;
}

static void fill_member(const struct history *history, struct history_member *member, const struct node *node, uint32_t rank,
			uint64_t now_us)
{
	struct node_peer peer;
	node_peer(node, rank, now_us, &peer);
	const struct record *first = node_record(node, 0, rank);
	member->steps = first->steps;
	member->tokens = first->tokens;
	member->interval_us = first->interval_us;
	member->exposed_us = first->exposed_us;
	member->lateness_us = peer.lateness_us;
	for (size_t i = 0; i < history->layer_count; i++) {
		const struct record *record = node_record(node, i, rank);
		CHECK((unsigned)record->verdict < VERDICT_COUNT);
		member->verdicts[record->verdict]++;
	}
}

void history_fill(const struct history *history, struct history_round *row, const struct node *node,
		  const struct ring_settings *settings, uint64_t now_us)
{
	struct node_status status;
	node_status(node, now_us, &status);
	CHECK(status.round == row->round);
	row->end_us = now_us;
	row->sync_us = status.sync_us;
	row->bytes = status.round_bytes;
	row->settings = *settings;
	for (uint32_t rank = 0; rank < history->member_count; rank++)
		fill_member(history, &row->members[rank], node, rank, now_us);
	for (size_t i = 0; i < history->layer_count; i++) {
		uint64_t times_us[3];
		node_layer_times(node, i, times_us);
		row->layers[i] = (struct history_layer){times_us[0], times_us[1], times_us[2]};
	}
}

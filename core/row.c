/* Tables of what the nodes of a replica tell each other. Judges nothing. */

#include <string.h>

#include "core/ring.h"
#include "core/row.h"

static struct row_place *place_of(const struct row *row, enum scalar_kind kind, uint32_t layer_index)
{
	return &row->places[(size_t)kind * row->layer_count + layer_index];
}

static struct scalar *cell(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number, uint32_t rank)
{
	size_t place = (size_t)kind * row->layer_count + layer_index;
	return &row->scalars[(2 * place + number % 2) * row->count + rank];
}

size_t row_size(uint32_t layer_count, uint32_t count)
{
	size_t places = (size_t)SCALAR_KIND_COUNT * layer_count;
	return block_part(places * sizeof(struct row_place)) + block_part(2 * places * count * sizeof(struct scalar));
}

void row_init(struct row *row, void *block, uint32_t layer_count, uint32_t rank, uint32_t count, struct link *link)
{
	size_t places = (size_t)SCALAR_KIND_COUNT * layer_count;
	CHECK(rank < count);
	*row = (struct row){.rank = rank, .count = count, .layer_count = layer_count, .link = link, .places = block};
	row->scalars = (struct scalar *)((char *)block + block_part(places * sizeof(struct row_place)));
	memset(block, 0, row_size(layer_count, count));
}

size_t row_frames_max(uint32_t layer_count, uint32_t count)
{
	/* answers to two numbers of each question */
	return 2 * (size_t)SCALAR_KIND_COUNT * layer_count * count;
}

static void file(struct row *row, const struct scalar *scalar, uint64_t now_us)
{
	struct row_place *place = place_of(row, scalar->kind, scalar->layer_index);
	uint32_t parity = scalar->number % 2;
	if (place->number[parity] != scalar->number) {
		place->number[parity] = scalar->number;
		place->known[parity] = 0;
	}
	place->known[parity]++;
	*cell(row, scalar->kind, scalar->layer_index, scalar->number, scalar->origin) = *scalar;
	row->told_us = now_us;
	if (ring_right(row->rank, row->count) == scalar->origin)
		return;
	struct frame frame = {.kind = MESSAGE_SCALAR, .layer_index = scalar->layer_index, .origin = scalar->origin,
			      .round = scalar->number, .scalar = scalar->kind};
	CHECK(link_push(row->link, &frame) == 0); /* row_frames_max made room */
}

void row_tell(struct row *row, const struct scalar *scalar, uint64_t now_us)
{
	struct scalar own = *scalar;
	own.origin = row->rank;
	CHECK(!row_has_told(row, scalar->kind, scalar->layer_index, scalar->number));
	file(row, &own, now_us);
}

int row_take(struct row *row, const struct scalar *scalar, uint64_t number, uint64_t now_us)
{
	if (scalar->layer_index >= row->layer_count || scalar->origin >= row->count || scalar->origin == row->rank)
		return EDIT_ERROR_MALFORMED;
	if (scalar->number != number && scalar->number != number + 1)
		return EDIT_ERROR_MALFORMED;
	if (cell(row, scalar->kind, scalar->layer_index, scalar->number, scalar->origin)->number >= scalar->number)
		return EDIT_ERROR_MALFORMED;
	file(row, scalar, now_us);
	return 0;
}

bool row_is_whole(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number)
{
	const struct row_place *place = place_of(row, kind, layer_index);
	return place->number[number % 2] == number && place->known[number % 2] == row->count;
}

bool row_has_told(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number)
{
	return cell(row, kind, layer_index, number, row->rank)->number == number;
}

const struct scalar *row_at(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number, uint32_t rank)
{
	return cell(row, kind, layer_index, number, rank);
}

double row_sum(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number)
{
	double sum = 0;
	for (uint32_t rank = 0; rank < row->count; rank++)
		sum += cell(row, kind, layer_index, number, rank)->value;
	return sum;
}

uint32_t row_waits_for(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number)
{
	for (uint32_t rank = 0; rank < row->count; rank++)
		if (cell(row, kind, layer_index, number, rank)->number != number)
			return rank;
	return row->count;
}

void row_message(const struct row *row, const struct frame *frame, struct message *ret_message)
{
	*ret_message = (struct message){.kind = MESSAGE_SCALAR};
	ret_message->scalar = *cell(row, frame->scalar, frame->layer_index, frame->round, frame->origin);
}

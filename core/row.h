#ifndef EDIT_CORE_ROW_H
#define EDIT_CORE_ROW_H

/* What the nodes of one replica must know of each other's pieces, so that they come to one verdict: a few numbers each, all to
 * all, along the ring of the replica. What is done with them is the caller's; with one node alone everything is known at once.
 *
 * A question is asked once per number (a round), in order. Answers are kept for two numbers, by parity: a member can be one
 * ahead, never two, because it needs our answer in between. */

#include "core/link.h"

struct row_place {
	uint64_t number[2]; /* of the answers with this parity; 0: none yet */
	uint32_t known[2];  /* members whose answer is there */
};

struct row {
	uint32_t rank, count, layer_count;
	struct link *link;        /* to the right neighbour of the replica; NULL if count is 1 */
	struct row_place *places; /* [SCALAR_KIND_COUNT][layer_count] */
	struct scalar *scalars;   /* [SCALAR_KIND_COUNT][layer_count][2][count] */
	uint64_t told_us;         /* last time that an answer came */
};

/* Bytes of the block for row_init, a multiple of 64. */
size_t row_size(uint32_t layer_count, uint32_t count);
/* Lays the tables into block (64-byte aligned). link: the member's own, outlives row. */
void row_init(struct row *row, void *block, uint32_t layer_count, uint32_t rank, uint32_t count, struct link *link);
/* Small frames that a correct row can owe to the right neighbour at once. */
size_t row_frames_max(uint32_t layer_count, uint32_t count);

/* The own answer (origin is set here). */
void row_tell(struct row *row, const struct scalar *scalar, uint64_t now_us);
/* An answer from the left neighbour. EDIT_ERROR_MALFORMED, and nothing changed, if it cannot be in this place. number: the one
 * that is asked for here at present, or was asked for last. */
int row_take(struct row *row, const struct scalar *scalar, uint64_t number, uint64_t now_us);
/* Whether the answers of all members are there. */
bool row_is_whole(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number);
/* Whether the own one is. */
bool row_has_told(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number);
/* A member's answer. Only if it is there. */
const struct scalar *row_at(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number, uint32_t rank);
/* Sum of the values in rank order: equal bits on all members. Only if whole. */
double row_sum(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number);
/* First member whose answer is missing, count if none is. */
uint32_t row_waits_for(const struct row *row, enum scalar_kind kind, uint32_t layer_index, uint64_t number);
/* Fills in the message of a frame. */
void row_message(const struct row *row, const struct frame *frame, struct message *ret_message);

#endif

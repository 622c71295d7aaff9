/* The way of the numbers round the ring: every element exactly once, in a fixed order, whatever the sizes. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/ring.h"

#define PEERS_MAX 64

static const size_t sizes[] = {0, 1, 2, 3, 7, 63, 64, 65, 97, 1000, 4099};

/* Passes chunks round until none is left; chunk_elements may differ between peers. Returns how many chunks were sent. */
static size_t circulate(struct ring_pass *passes, uint32_t count, size_t chunk_elements)
{
	size_t sent = 0;
	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t i = 0; i < count; i++) {
			if (!ring_pass_has_chunk(&passes[i]))
				continue;
			struct chunk chunk;
			ring_pass_next(&passes[i], chunk_elements, &chunk);
			struct ring_pass *right = &passes[ring_right(i, count)];
			assert_int_equal(ring_pass_accept(right, &chunk, passes[i].buffer + chunk.offset), 0);
			moved = true;
			sent++;
		}
	}
	return sent;
}

enum { GROUP = 20 /* peers whose parts one sum can tell apart */ };

/* What a peer adds in a pass for one group of peers: powers of two sum exactly, so a missing or doubled part of any peer of the
 * group shows. The others add nothing. */
static float part_of(uint32_t peer, uint32_t group)
{
	return peer / GROUP == group ? (float)(1u << (peer % GROUP)) : 0.0f;
}

static void run_pass(uint32_t count, size_t size, size_t chunk_elements, uint32_t group)
{
	struct ring_pass passes[PEERS_MAX];
	void *blocks[PEERS_MAX];
	float *numbers = calloc(count * size + 1, sizeof *numbers);
	for (uint32_t i = 0; i < count; i++) {
		blocks[i] = malloc(ring_pass_size(count));
		ring_pass_init(&passes[i], blocks[i], i, count);
		for (size_t k = 0; k < size; k++)
			numbers[i * size + k] = part_of(i, group) * (float)(k % 5 + 1);
		ring_pass_begin(&passes[i], numbers + i * size, size, 1.0f);
	}
	circulate(passes, count, chunk_elements);
	float sum = 0.0f;
	for (uint32_t i = 0; i < count; i++)
		sum += part_of(i, group);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(ring_pass_is_done(&passes[i]));
		for (size_t k = 0; k < size; k++)
			assert_true(numbers[i * size + k] == sum * (float)(k % 5 + 1));
		double square = ring_pass_square_norm(&passes[i]), first = ring_pass_square_norm(&passes[0]);
		assert_memory_equal(&square, &first, sizeof square);
	}
	for (uint32_t i = 0; i < count; i++)
		free(blocks[i]);
	free(numbers);
}

static void ring_sums_each_element_exactly_once_for_all_sizes_and_peers(void **state)
{
	(void)state;
	for (uint32_t count = 1; count <= PEERS_MAX; count++)
		for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
			for (size_t chunk = 1; chunk <= 64; chunk *= 8)
				for (uint32_t group = 0; group * GROUP < count; group++)
					if (sizes[s] < 4000 || chunk > 1)
						run_pass(count, sizes[s], chunk, group);
}

static void ring_shards_cover_a_layer_without_gap_or_overlap(void **state)
{
	(void)state;
	for (uint32_t count = 1; count <= PEERS_MAX; count++)
		for (size_t size = 0; size < 300; size++) {
			size_t at = 0;
			for (uint32_t shard = 0; shard < count; shard++) {
				assert_int_equal(ring_shard_begin(size, count, shard), at);
				at += ring_shard_size(size, count, shard);
			}
			assert_int_equal(at, size);
			assert_int_equal(ring_shard_begin(size, count, count), size);
		}
	assert_int_equal(ring_shard_begin(SIZE_MAX, 1024, 1024), SIZE_MAX);
}

static void ring_result_does_not_depend_on_chunk_size(void **state)
{
	(void)state;
	enum { COUNT = 5, SIZE = 1003 };
	static float first[SIZE], numbers[COUNT][SIZE];
	for (size_t chunk = 1; chunk < 2000; chunk = chunk * 3 + 1) {
		struct ring_pass passes[COUNT];
		void *blocks[COUNT];
		unsigned random = 7;
		for (uint32_t i = 0; i < COUNT; i++) {
			blocks[i] = malloc(ring_pass_size(COUNT));
			ring_pass_init(&passes[i], blocks[i], i, COUNT);
			for (size_t k = 0; k < SIZE; k++) {
				random = random * 1664525u + 1013904223u;
				numbers[i][k] = (float)(int)random * 1e-9f;
			}
			ring_pass_begin(&passes[i], numbers[i], SIZE, 0.1f + 0.05f * (float)i);
		}
		circulate(passes, COUNT, chunk);
		if (chunk == 1)
			memcpy(first, numbers[0], sizeof first);
		for (uint32_t i = 0; i < COUNT; i++) {
			assert_memory_equal(first, numbers[i], sizeof first);
			free(blocks[i]);
		}
	}
}

static void ring_refuses_a_chunk_out_of_its_place_and_changes_nothing(void **state)
{
	(void)state;
	struct ring_pass pass;
	float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, before[12], payload[12] = {0};
	void *block = malloc(ring_pass_size(3));
	ring_pass_init(&pass, block, 1, 3);
	ring_pass_begin(&pass, numbers, 12, 1.0f);
	memcpy(before, numbers, sizeof before);
	const struct chunk bad[] = {
		{.phase = PHASE_REDUCE, .shard = 3, .offset = 0, .count = 1},   /* no such shard */
		{.phase = PHASE_REDUCE, .shard = 0, .offset = 0, .count = 4},   /* begins here, cannot come */
		{.phase = PHASE_REDUCE, .shard = 1, .offset = 5, .count = 1},   /* a gap */
		{.phase = PHASE_REDUCE, .shard = 1, .offset = 4, .count = 5},   /* beyond the shard */
		{.phase = PHASE_REDUCE, .shard = 1, .offset = 4, .count = UINT64_MAX},
		{.phase = PHASE_REDUCE, .shard = 1, .offset = 4, .count = 0},
		{.phase = PHASE_REDUCE, .shard = 1, .offset = 3, .count = 1},   /* before the shard */
		{.phase = PHASE_GATHER, .shard = 1, .offset = 4, .count = 4},   /* own */
		{.phase = PHASE_GATHER, .shard = 2, .offset = 9, .count = 1},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(ring_pass_accept(&pass, &bad[i], payload), EDIT_ERROR_MALFORMED);
	assert_memory_equal(before, numbers, sizeof before);
	struct chunk good = {.phase = PHASE_REDUCE, .shard = 1, .offset = 4, .count = 4};
	assert_int_equal(ring_pass_accept(&pass, &good, payload), 0);
	assert_int_equal(ring_pass_accept(&pass, &good, payload), EDIT_ERROR_MALFORMED); /* twice */
	free(block);
}

/* Passes chunks round in an order drawn from a seed. Whoever is done and has nothing to send any more loses all but its own shard,
 * as if its memory were used for something else. */
static void circulate_and_spoil(struct ring_pass *passes, uint32_t count, size_t chunk_elements, unsigned random)
{
	bool spoilt[PEERS_MAX] = {false};
	for (uint32_t idle = 0; idle < 64 * count;) {
		random = random * 1664525u + 1013904223u;
		uint32_t i = random >> 16 & 0xffff;
		struct ring_pass *pass = &passes[i %= count];
		idle++;
		if (ring_pass_has_chunk(pass)) {
			struct chunk chunk;
			ring_pass_next(pass, chunk_elements, &chunk);
			assert_int_equal(ring_pass_accept(&passes[ring_right(i, count)], &chunk, pass->buffer + chunk.offset), 0);
			idle = 0;
		}
		if (pass->way != RING_REDUCE_SCATTER || spoilt[i] || !ring_pass_is_done(pass) || ring_pass_has_chunk(pass))
			continue;
		spoilt[i] = true;
		size_t begin = ring_shard_begin(pass->size, count, i), end = ring_shard_begin(pass->size, count, i + 1);
		for (size_t k = 0; k < pass->size; k++)
			if (k < begin || k >= end)
				pass->buffer[k] = NAN;
	}
}

/* Both halves alone, one after the other: sums of what all have, in each one's own shard; then all shards everywhere. */
static void run_halves(uint32_t count, size_t size, size_t chunk_elements, unsigned random)
{
	struct ring_pass passes[PEERS_MAX];
	void *blocks[PEERS_MAX];
	float *numbers = calloc(count * size + 1, sizeof *numbers);
	for (uint32_t i = 0; i < count; i++) {
		blocks[i] = malloc(ring_pass_size(count));
		ring_pass_init(&passes[i], blocks[i], i, count);
		for (size_t k = 0; k < size; k++)
			numbers[i * size + k] = (float)(1u << i) * (float)(k % 5 + 1);
		ring_pass_begin_reduce(&passes[i], numbers + i * size, size, 0.5f);
	}
	circulate_and_spoil(passes, count, chunk_elements, random);
	const float sum = 0.5f * (float)((1u << count) - 1);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(ring_pass_is_done(&passes[i]));
		assert_false(ring_pass_has_chunk(&passes[i]));
		for (size_t k = ring_shard_begin(size, count, i); k < ring_shard_begin(size, count, i + 1); k++)
			assert_true(numbers[i * size + k] == sum * (float)(k % 5 + 1));
	}
	for (uint32_t i = 0; i < count; i++)
		ring_pass_begin_gather(&passes[i], numbers + i * size, size);
	circulate_and_spoil(passes, count, chunk_elements, random);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(ring_pass_is_done(&passes[i]));
		for (size_t k = 0; k < size; k++)
			assert_true(numbers[i * size + k] == sum * (float)(k % 5 + 1));
		free(blocks[i]);
	}
	free(numbers);
}

static void ring_halves_give_sums_and_whole_layers_and_need_no_memory_afterwards(void **state)
{
	(void)state;
	static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 16};
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
		for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
			for (size_t chunk = 1; chunk <= 64; chunk *= 8)
				for (unsigned seed = 0; seed < 4 && (sizes[s] < 1000 || chunk > 1); seed++)
					run_halves(counts[c], sizes[s], chunk, seed);
}

/* Layer of 12, three members, own rank 1: its shard is 4 .. 7. */
static void ring_halves_refuse_chunks_of_the_other_half(void **state)
{
	(void)state;
	struct ring_pass pass;
	float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, before[12], payload[12] = {0};
	const struct chunk reduce = {.phase = PHASE_REDUCE, .shard = 1, .offset = 4, .count = 4};
	const struct chunk gather = {.phase = PHASE_GATHER, .shard = 0, .offset = 0, .count = 4};
	void *block = malloc(ring_pass_size(3));
	ring_pass_init(&pass, block, 1, 3);
	ring_pass_begin_reduce(&pass, numbers, 12, 1.0f);
	memcpy(before, numbers, sizeof before);
	assert_int_equal(ring_pass_accept(&pass, &gather, payload), EDIT_ERROR_MALFORMED);
	assert_memory_equal(before, numbers, sizeof before);
	assert_int_equal(ring_pass_accept(&pass, &reduce, payload), 0);
	ring_pass_begin_gather(&pass, numbers, 12);
	assert_int_equal(ring_pass_accept(&pass, &reduce, payload), EDIT_ERROR_MALFORMED);
	assert_memory_equal(before, numbers, sizeof before);
	assert_int_equal(ring_pass_accept(&pass, &gather, payload), 0);
	assert_true(numbers[0] == 0 && numbers[3] == 0 && numbers[4] == 5);
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_sums_each_element_exactly_once_for_all_sizes_and_peers),
		cmocka_unit_test(ring_shards_cover_a_layer_without_gap_or_overlap),
		cmocka_unit_test(ring_result_does_not_depend_on_chunk_size),
		cmocka_unit_test(ring_refuses_a_chunk_out_of_its_place_and_changes_nothing),
		cmocka_unit_test(ring_halves_give_sums_and_whole_layers_and_need_no_memory_afterwards),
		cmocka_unit_test(ring_halves_refuse_chunks_of_the_other_half),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

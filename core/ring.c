/* Ring reduce-scatter and all-gather of one layer. What it must never do: look at the own part of a peer whose weight is 0,
 * or add in an order that depends on timing. */

#include <string.h>

#include "core/ring.h"
#include "core/vec.h"

size_t ring_pass_size(uint32_t count)
{
	size_t each = 4 * sizeof(size_t) + sizeof(double) + 2 * sizeof(uint32_t) + 2 * sizeof(bool);
	return (each * count + 7) / 8 * 8;
}

void ring_pass_init(struct ring_pass *pass, void *block, uint32_t rank, uint32_t count)
{
	CHECK(rank < count);
	*pass = (struct ring_pass){.rank = rank, .count = count};
	pass->reduced = block;
	pass->gathered = pass->reduced + count;
	pass->reduce_sent = pass->gathered + count;
	pass->gather_sent = pass->reduce_sent + count;
	pass->square = (double *)(pass->gather_sent + count);
	pass->queue = (uint32_t *)(pass->square + count);
	pass->queued = (bool *)(pass->queue + 2 * (size_t)count);
}

static uint32_t queue_entry(enum chunk_phase phase, uint32_t shard)
{
	return 2 * shard + (phase == PHASE_GATHER);
}

/* Something of this phase and shard is ready: it takes its place in the queue, once. */
static void announce(struct ring_pass *pass, enum chunk_phase phase, uint32_t shard)
{
	bool goes_right = phase == PHASE_REDUCE ? shard != pass->rank : shard != ring_right(pass->rank, pass->count);
	uint32_t entry = queue_entry(phase, shard);
	if (!goes_right || pass->queued[entry])
		return;
	pass->queued[entry] = true;
	pass->queue[(pass->queue_head + pass->queue_length++) % (2 * pass->count)] = entry;
}

/* The sum of the own shard is whole: it is the mean, and its norm is known. */
static void finish_own_shard(struct ring_pass *pass)
{
	size_t begin = ring_shard_begin(pass->size, pass->count, pass->rank);
	pass->square[pass->rank] = vec_square_sum(pass->buffer + begin, pass->reduced[pass->rank]);
}

/* `count` more elements of a shard hold a partial sum with the own part in it; pass->reduced says so already. */
static void take_partial(struct ring_pass *pass, uint32_t shard, size_t count)
{
	if (shard != pass->rank) {
		announce(pass, PHASE_REDUCE, shard);
		return;
	}
	if (pass->state == RING_GATED)
		return;
	pass->gathered[shard] += count;
	pass->finished += count;
	if (pass->way == RING_REDUCE_SCATTER)
		return;
	if (ring_pass_is_summed(pass))
		finish_own_shard(pass);
	announce(pass, PHASE_GATHER, shard);
}

static void reset(struct ring_pass *pass, enum ring_way way, float *buffer, size_t size, float weight)
{
	memset(pass->reduced, 0, ring_pass_size(pass->count));
	pass->way = way;
	pass->state = RING_FREE;
	pass->buffer = buffer;
	pass->size = size;
	pass->weight = weight;
	pass->finished = 0;
	pass->queue_head = 0;
	pass->queue_length = 0;
}

/* The shard that no partial sum comes in for begins here. */
static void begin_first(struct ring_pass *pass)
{
	float *buffer = pass->buffer;
	const size_t size = pass->size;
	const float weight = pass->weight;
	uint32_t first = ring_left(pass->rank, pass->count);
	size_t begin = ring_shard_begin(size, pass->count, first);
	size_t length = ring_shard_size(size, pass->count, first);
	vec_scale(buffer + begin, weight, length);
	pass->reduced[first] = length;
	if (pass->count == 1) {
		pass->gathered[0] = length;
		pass->finished = length;
		finish_own_shard(pass);
	} else if (length > 0) {
		announce(pass, PHASE_REDUCE, first);
	}
}

void ring_pass_begin(struct ring_pass *pass, float *buffer, size_t size, float weight)
{
	reset(pass, RING_ALL_REDUCE, buffer, size, weight);
	begin_first(pass);
}

void ring_pass_begin_gated(struct ring_pass *pass, float *buffer, size_t size, float weight)
{
	CHECK(pass->count > 1);
	reset(pass, RING_ALL_REDUCE, buffer, size, weight);
	pass->state = RING_GATED;
	begin_first(pass);
}

bool ring_pass_is_summed(const struct ring_pass *pass)
{
	return pass->reduced[pass->rank] == ring_shard_size(pass->size, pass->count, pass->rank);
}

void ring_pass_release(struct ring_pass *pass, double square)
{
	size_t length = ring_shard_size(pass->size, pass->count, pass->rank);
	CHECK(pass->state == RING_GATED);
	CHECK(ring_pass_is_summed(pass));
	pass->state = RING_FREE;
	pass->square[pass->rank] = square;
	pass->gathered[pass->rank] = length;
	pass->finished += length;
	if (length > 0)
		announce(pass, PHASE_GATHER, pass->rank);
}

void ring_pass_begin_early(struct ring_pass *pass, float *stash, size_t size)
{
	CHECK(pass->count > 1);
	reset(pass, RING_ALL_REDUCE, stash, size, 1);
	pass->state = RING_EARLY;
}

void ring_pass_open(struct ring_pass *pass, float *buffer)
{
	const float *stash = pass->buffer;
	CHECK(pass->state == RING_EARLY);
	pass->state = RING_FREE;
	pass->buffer = buffer;
	begin_first(pass);
	for (uint32_t shard = 0; shard < pass->count; shard++) {
		size_t begin = ring_shard_begin(pass->size, pass->count, shard), count = pass->reduced[shard];
		if (count == 0 || shard == ring_left(pass->rank, pass->count))
			continue;
		vec_accumulate(buffer + begin, stash + begin, 1, count);
		take_partial(pass, shard, count);
	}
}

void ring_pass_begin_reduce(struct ring_pass *pass, float *buffer, size_t size, float weight)
{
	reset(pass, RING_REDUCE_SCATTER, buffer, size, weight);
	begin_first(pass);
}

void ring_pass_begin_gather(struct ring_pass *pass, float *buffer, size_t size)
{
	reset(pass, RING_ALL_GATHER, buffer, size, 0);
	size_t length = ring_shard_size(size, pass->count, pass->rank);
	pass->gathered[pass->rank] = pass->finished = length;
	if (length > 0 && pass->count > 1)
		announce(pass, PHASE_GATHER, pass->rank);
}

/* Where the next chunk of this shard from the left must begin, counted from the begin of the shard; SIZE_MAX: none can come. */
static size_t next_expected(const struct ring_pass *pass, enum chunk_phase phase, uint32_t shard)
{
	if (phase == PHASE_REDUCE)
		return shard == ring_left(pass->rank, pass->count) ? SIZE_MAX : pass->reduced[shard];
	return shard == pass->rank ? SIZE_MAX : pass->gathered[shard];
}

static void accept_reduce(struct ring_pass *pass, const struct chunk *chunk, const void *payload)
{
	pass->reduced[chunk->shard] += chunk->count;
	if (pass->state == RING_EARLY) {
		memcpy(pass->buffer + chunk->offset, payload, chunk->count * sizeof(float));
		return;
	}
	vec_accumulate(pass->buffer + chunk->offset, payload, pass->weight, chunk->count);
	take_partial(pass, chunk->shard, chunk->count);
}

static void accept_gather(struct ring_pass *pass, const struct chunk *chunk, const void *payload, size_t length)
{
	memcpy(pass->buffer + chunk->offset, payload, chunk->count * sizeof(float));
	pass->gathered[chunk->shard] += chunk->count;
	pass->finished += chunk->count;
	if (pass->gathered[chunk->shard] == length)
		pass->square[chunk->shard] = chunk->square_norm;
	announce(pass, PHASE_GATHER, chunk->shard);
}

int ring_pass_accept(struct ring_pass *pass, const struct chunk *chunk, const void *payload)
{
	if (chunk->shard >= pass->count || chunk->count == 0 || pass->count == 1)
		return EDIT_ERROR_MALFORMED;
	bool is_gather = chunk->phase == PHASE_GATHER;
	if ((is_gather && (pass->way == RING_REDUCE_SCATTER || pass->state == RING_EARLY)) ||
	    (!is_gather && pass->way == RING_ALL_GATHER))
		return EDIT_ERROR_MALFORMED;
	size_t begin = ring_shard_begin(pass->size, pass->count, chunk->shard);
	size_t length = ring_shard_size(pass->size, pass->count, chunk->shard);
	size_t expected = next_expected(pass, chunk->phase, chunk->shard);
	if (expected > length || chunk->offset != begin + expected || chunk->count > length - expected)
		return EDIT_ERROR_MALFORMED;
	if (chunk->phase == PHASE_REDUCE)
		accept_reduce(pass, chunk, payload);
	else
		accept_gather(pass, chunk, payload, length);
	return 0;
}

bool ring_pass_has_chunk(const struct ring_pass *pass)
{
	return pass->queue_length > 0;
}

void ring_pass_next(struct ring_pass *pass, size_t chunk_elements, struct chunk *ret_chunk)
{
	CHECK(pass->queue_length > 0);
	CHECK(chunk_elements > 0);
	uint32_t entry = pass->queue[pass->queue_head];
	uint32_t shard = entry / 2;
	enum chunk_phase phase = entry % 2 ? PHASE_GATHER : PHASE_REDUCE;
	size_t *sent = phase == PHASE_REDUCE ? pass->reduce_sent : pass->gather_sent;
	size_t ready = phase == PHASE_REDUCE ? pass->reduced[shard] : pass->gathered[shard];
	size_t count = size_min(ready - sent[shard], chunk_elements);
	CHECK(count > 0);
	*ret_chunk = (struct chunk){.phase = phase, .shard = shard, .count = count,
				    .offset = ring_shard_begin(pass->size, pass->count, shard) + sent[shard]};
	sent[shard] += count;
	if (phase == PHASE_GATHER && sent[shard] == ring_shard_size(pass->size, pass->count, shard))
		ret_chunk->square_norm = pass->square[shard];
	if (sent[shard] < ready)
		return;
	pass->queued[entry] = false;
	pass->queue_head = (pass->queue_head + 1) % (2 * pass->count);
	pass->queue_length--;
}

bool ring_pass_is_done(const struct ring_pass *pass)
{
	if (pass->way != RING_REDUCE_SCATTER)
		return pass->finished == pass->size;
	/* The others' sums pass through here, too: also where the own shard is empty. */
	for (uint32_t shard = 0; shard < pass->count; shard++)
		if (pass->reduced[shard] < ring_shard_size(pass->size, pass->count, shard))
			return false;
	return true;
}

double ring_pass_square_norm(const struct ring_pass *pass)
{
	double sum = 0.0;
	for (uint32_t shard = 0; shard < pass->count; shard++)
		sum += pass->square[shard];
	return sum;
}

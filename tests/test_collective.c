/* Collectives of one replica over a network that loses, repeats and delays: whole layers and means come out equal to the bit,
 * whoever asks first; sums are the same on all nodes. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/node.h"
#include "sim/dice.h"

enum { NODES_MAX = 8, LAYERS = 5, CALLS = 24, SLOTS = 2, SECOND = 1000000, LARGE = 5003 };

static const size_t sizes[LAYERS] = {0, 1, 3, 127, LARGE};

/* A message on its way. */
struct parcel {
	uint64_t at_us, order;
	uint32_t to;
	struct message message;
	char *payload;
	const void *source; /* where the sender has it */
	struct parcel *next;
};

struct mate {
	struct node *node;
	void *block;
	struct layer layers[LAYERS];
	float *numbers;           /* of its pieces */
	float *slots[2 * SLOTS];  /* [LARGE] theta, then gradients */
	uint64_t deadline_us, asked, collected, sums;
	uint64_t next_us;         /* when its worker does the next thing */
	double sum;
	uint64_t arrived;         /* frames with lower numbers have arrived once, from the left */
	bool wants_offer, is_summed;
	bool is_done[CALLS + 1];  /* by number */
};

struct replica {
	uint32_t count;
	uint32_t wanter;          /* whose worker is to offer after the sum; count: nobody's */
	struct dice dice;
	double loss;
	uint64_t now_us, order;
	struct parcel *parcels;
	struct mate mates[NODES_MAX];
	struct actions *actions;
	struct collective_call calls[CALLS + 1]; /* by number, but for the memory */
	uint64_t asked_us[CALLS + 1]; /* when the last node asked for it */
};

/* What a node holds and brings: exact in float32, different everywhere. */
static float theta_of(size_t layer, size_t i) { return (float)(i % 1021) + 2048.0F * (float)layer; }
static float gradient_of(uint32_t node, uint64_t call, size_t i) { return (float)((i * 7 + call) % 61) * (float)(1u << node); }

/* What a node adds to the sum: of these, any other order than that of ranks gives another number (1e16 + 1 is 1e16). */
static double value_of(uint32_t node) { return node % 3 == 0 ? 1e16 : node % 3 == 1 ? 1 : -1e16; }

static void post(struct replica *r, const struct action *action)
{
	int copies = dice_chance(&r->dice, r->loss) ? 0 : 1 + dice_chance(&r->dice, r->loss);
	while (copies-- > 0) {
		struct parcel *parcel = calloc(1, sizeof *parcel);
		assert_non_null(parcel);
		*parcel = (struct parcel){.at_us = r->now_us + dice_between(&r->dice, 100, r->loss > 0 ? 3000 : 100),
					  .order = r->order++, .to = action->to, .message = action->message,
					  .source = action->message.payload, .next = r->parcels};
		if (action->message.payload_bytes > 0) {
			parcel->payload = malloc(action->message.payload_bytes);
			assert_non_null(parcel->payload);
			memcpy(parcel->payload, action->message.payload, action->message.payload_bytes);
			parcel->message.payload = parcel->payload;
		}
		r->parcels = parcel;
	}
}

/* The slot that a call uses: two of each kind, in turn. */
static unsigned slot_of(const struct replica *r, uint64_t number)
{
	unsigned nth = 0;
	for (uint64_t i = 1; i < number; i++)
		nth += r->calls[i].kind == r->calls[number].kind;
	return nth % SLOTS + (r->calls[number].kind == COLLECTIVE_REDUCE ? SLOTS : 0);
}

/* What a finished collective must have left in this node's memory. */
static void check(const struct replica *r, uint32_t node, uint64_t number)
{
	const struct collective_call *call = &r->calls[number];
	const float *numbers = r->mates[node].slots[slot_of(r, number)];
	size_t begin = ring_shard_begin(call->size, r->count, node), end = begin + ring_shard_size(call->size, r->count, node);
	for (size_t i = 0; i < call->size && call->kind == COLLECTIVE_GATHER; i++)
		assert_true(numbers[i] == theta_of(call->layer_index, i));
	for (size_t i = begin; i < end && call->kind == COLLECTIVE_REDUCE; i++) {
		float sum = 0, weight = 1.0F / (float)r->count;
		/* Round the ring, from the right neighbour of the owner to the owner. */
		for (uint32_t k = 1; k <= r->count; k++)
			sum += weight * gradient_of((node + k) % r->count, number, i);
		assert_true(numbers[i] == sum);
	}
}

/* When the last thing was asked for that a collective may have to wait for: from then on nobody waits for a timer (heartbeats are a
 * second apart), as those who begin say so at once. */
static uint64_t asked_us(const struct replica *r, uint64_t number)
{
	uint64_t last_us = 0;
	for (uint64_t i = 1; i <= number; i++)
		last_us = u64_max(last_us, r->asked_us[i]);
	return last_us;
}

static void step(struct replica *r, uint32_t node, struct event *event)
{
	struct mate *mate = &r->mates[node];
	event->now_us = r->now_us;
	node_step(mate->node, event, r->actions);
	mate->deadline_us = r->actions->deadline_us;
	for (size_t i = 0; i < r->actions->count; i++) {
		const struct action *action = &r->actions->list[i];
		if (action->kind == ACTION_SEND)
			post(r, action);
		if (action->kind == ACTION_COLLECTED) {
			check(r, node, action->number);
			assert_false(mate->is_done[action->number]);
			assert_true(r->loss > 0 || r->now_us - asked_us(r, action->number) < SECOND / 5);
			mate->is_done[action->number] = true;
			mate->collected++;
		}
		if (action->kind == ACTION_SUMMED) {
			assert_int_equal(action->number, mate->sums);
			mate->sum = action->value;
			mate->wants_offer = action->wants_offer;
			mate->is_summed = true;
		}
	}
}

/* Whether a slot is free for this call: the one before it there is done. */
static bool is_free(const struct replica *r, const struct mate *mate, uint64_t number)
{
	uint64_t before = 0;
	for (uint64_t i = 1; i < number; i++)
		if (slot_of(r, i) == slot_of(r, number))
			before = i;
	return before == 0 || mate->is_done[before];
}

/* The worker of a node asks for the next collective, or for the sum behind the last one. */
static void work(struct replica *r, uint32_t node)
{
	struct mate *mate = &r->mates[node];
	struct event event = {.kind = EVENT_SUM};
	mate->next_us = r->now_us + dice_between(&r->dice, 0, 4000) * (dice_chance(&r->dice, 0.1) ? 100 : 1);
	if (mate->asked == CALLS) {
		event.sum.value = value_of(node);
		event.sum.wants_offer = node == r->wanter;
		if (mate->sums++ == 0)
			step(r, node, &event);
		mate->next_us = UINT64_MAX;
		return;
	}
	if (!is_free(r, mate, mate->asked + 1) || !node_can_collect(mate->node))
		return;
	event.kind = EVENT_COLLECT;
	event.collective = r->calls[++mate->asked];
	r->asked_us[mate->asked] = r->now_us;
	event.collective.numbers = mate->slots[slot_of(r, mate->asked)];
	for (size_t i = 0; i < event.collective.size && event.collective.kind == COLLECTIVE_REDUCE; i++)
		event.collective.numbers[i] = gradient_of(node, mate->asked, i);
	step(r, node, &event);
}

/* Payload is sent from the worker's memory: when a frame arrives for the first time it cannot have been acknowledged, so the sender's
 * memory must still be what was sent. */
static void check_source(struct replica *r, const struct parcel *parcel)
{
	struct mate *mate = &r->mates[parcel->to];
	const struct message *message = &parcel->message;
	if (message->kind != MESSAGE_CHUNK || message->sequence < mate->arrived)
		return;
	mate->arrived = message->sequence + 1;
	assert_memory_equal(parcel->source, parcel->payload, message->payload_bytes);
}

static void deliver(struct replica *r)
{
	for (;;) {
		struct parcel **first = NULL;
		for (struct parcel **at = &r->parcels; *at != NULL; at = &(*at)->next)
			if ((*at)->at_us <= r->now_us && (first == NULL || (*at)->at_us < (*first)->at_us ||
							   ((*at)->at_us == (*first)->at_us && (*at)->order < (*first)->order)))
				first = at;
		if (first == NULL)
			return;
		struct parcel *parcel = *first;
		*first = parcel->next;
		check_source(r, parcel);
		struct event event = {.kind = EVENT_MESSAGE, .message = &parcel->message};
		step(r, parcel->to, &event);
		free(parcel->payload);
		free(parcel);
	}
}

static void open_mate(struct replica *r, uint32_t node, const char *const *names, const struct fact *facts)
{
	struct mate *mate = &r->mates[node];
	size_t total = 0;
	for (size_t l = 0; l < LAYERS; l++)
		total += ring_shard_size(sizes[l], r->count, node);
	mate->numbers = calloc(3 * total + 1, sizeof(float));
	float *at = mate->numbers;
	for (size_t l = 0; l < LAYERS; l++) {
		size_t size = ring_shard_size(sizes[l], r->count, node), begin = ring_shard_begin(sizes[l], r->count, node);
		mate->layers[l] = (struct layer){.size = size, .theta = at, .anchor = at + size, .momentum = at + 2 * size};
		for (size_t i = 0; i < size; i++)
			at[i] = theta_of(l, begin + i);
		at += 3 * size;
	}
	for (size_t s = 0; s < 2 * SLOTS; s++)
		mate->slots[s] = calloc(LARGE, sizeof(float));
	struct node_config config = {.member_count = 1, .column = node, .shards = r->count, .incarnation = 77 + node,
				     .names = &names[node], .mates = names, .facts = facts, .fact_count = 1,
				     .layers = mate->layers, .layer_count = LAYERS, .settings = ring_settings_standard(),
				     .heartbeat_us = SECOND, .silence_us = 3 * SECOND, .retry_us = SECOND};
	config.settings.value[WIRE_CHUNK] = 400;
	config.settings.value[WIRE_WINDOW] = 4096;
	mate->block = aligned_alloc(64, node_size(&config));
	mate->node = node_init(mate->block, &config);
	mate->next_us = node == 0 ? 0 : dice_between(&r->dice, 0, SECOND); /* the first one before the ring is complete */
}

static void close_replica(struct replica *r)
{
	for (uint32_t node = 0; node < r->count; node++) {
		struct mate *mate = &r->mates[node];
		for (size_t s = 0; s < 2 * SLOTS; s++)
			free(mate->slots[s]);
		free(mate->numbers);
		free(mate->block);
	}
	while (r->parcels != NULL) {
		struct parcel *next = r->parcels->next;
		free(r->parcels->payload);
		free(r->parcels);
		r->parcels = next;
	}
	free(r->actions);
}

static bool is_over(const struct replica *r)
{
	for (uint32_t node = 0; node < r->count; node++)
		if (!r->mates[node].is_summed || r->mates[node].collected < CALLS)
			return false;
	return true;
}

/* All calls and the sum behind them; returns the frames that were sent again. */
static uint64_t run(uint32_t count, double loss, uint64_t seed)
{
	static const char *const names[NODES_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	static const struct fact facts[] = {{"run", "test"}};
	struct replica *r = calloc(1, sizeof *r);
	uint64_t again = 0;
	assert_non_null(r);
	r->count = count;
	r->wanter = (uint32_t)(seed % (count + 1));
	r->loss = loss;
	r->dice.state = seed;
	r->actions = malloc(sizeof *r->actions);
	for (uint64_t number = 1; number <= CALLS; number++) {
		uint32_t layer = (uint32_t)dice_between(&r->dice, 0, LAYERS - 1);
		r->calls[number] = (struct collective_call){
			.kind = dice_chance(&r->dice, 0.5) ? COLLECTIVE_GATHER : COLLECTIVE_REDUCE,
			.layer_index = layer, .size = sizes[layer]};
	}
	for (uint32_t node = 0; node < count; node++)
		open_mate(r, node, names, facts);
	for (; !is_over(r) && r->now_us < 600ull * SECOND; r->now_us += 100) {
		deliver(r);
		for (uint32_t node = 0; node < count; node++) {
			struct event tick = {.kind = EVENT_TICK};
			if (r->now_us == 0 || r->mates[node].deadline_us <= r->now_us)
				step(r, node, &tick);
			if (r->mates[node].next_us <= r->now_us)
				work(r, node);
		}
	}
	double sum = 0;
	for (uint32_t node = 0; node < count; node++)
		sum += value_of(node);
	for (uint32_t node = 0; node < count; node++) {
		struct mate *mate = &r->mates[node];
		struct node_status status;
		node_status(mate->node, r->now_us, &status);
		again += status.frames_sent_again;
		assert_int_equal(mate->collected, CALLS);
		assert_memory_equal(&mate->sum, &sum, sizeof sum);
		assert_int_equal(mate->wants_offer, r->wanter < count);
		for (size_t l = 0; l < LAYERS; l++) /* what is gathered is read alone */
			for (size_t i = 0; i < mate->layers[l].size; i++)
				assert_true(mate->layers[l].theta[i] == theta_of(l, ring_shard_begin(sizes[l], count, node) + i));
	}
	close_replica(r);
	free(r);
	return again;
}

static void collectives_are_right_whoever_asks_first(void **state)
{
	(void)state;
	for (uint32_t count = 1; count <= NODES_MAX; count++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			run(count, 0, seed);
}

/* A chunk never comes for a collective that is not begun: what is not lost is not sent again. */
static void nothing_is_sent_again_where_nothing_is_lost(void **state)
{
	(void)state;
	for (uint32_t count = 2; count <= NODES_MAX; count += 3)
		assert_int_equal(run(count, 0, 11), 0);
}

static void collectives_survive_loss_repetition_and_reordering(void **state)
{
	(void)state;
	uint64_t again = 0;
	for (uint32_t count = 2; count <= 5; count++)
		for (uint64_t seed = 1; seed <= 4; seed++)
			again += run(count, 0.02, seed);
	assert_true(again > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(collectives_are_right_whoever_asks_first),
		cmocka_unit_test(nothing_is_sent_again_where_nothing_is_lost),
		cmocka_unit_test(collectives_survive_loss_repetition_and_reordering),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

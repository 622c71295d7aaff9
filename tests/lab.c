/* A ring of nodes over a perfect wire. See lab.h. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/lab.h"

/* A message, or the hash of a layer, which the driver tells the node after the step that asked for it. */
struct parcel {
	struct parcel *next;
	uint32_t to;
	struct event event;
	struct message message;
	struct standing standing;
	char payload[];
};

enum { ARRAYS = 6 /* of a layer */ };

struct wire {
	struct lab lab; /* first: a lab is a wire */
	struct parcel *first, **last;
	char (*names)[8];
	const char **name_list; /* [count] by rank: those of a replica follow each other */
	const char **ring_list; /* [count] column by column: those of a ring follow each other */
	float *numbers;
	struct actions *actions;
};

static void *allocate(size_t bytes)
{
	void *block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
	CHECK(block != NULL);
	memset(block, 0, (bytes + 63) / 64 * 64 + 64);
	return block;
}

static void make_node(struct wire *wire, size_t rank, struct node_config config)
{
	struct lab_member *member = &wire->lab.members[rank];
	const size_t shards = wire->lab.shards, rows = wire->lab.count / shards, column = rank % shards;
	config.rank = (uint32_t)(rank / shards);
	config.member_count = (uint32_t)rows;
	config.column = (uint32_t)column;
	config.shards = (uint32_t)shards;
	config.names = wire->ring_list + column * rows;
	config.mates = wire->name_list + rank - column;
	config.layers = member->layers;
	config.layer_count = wire->lab.layer_count;
	config.heartbeat_us = 1000000;
	config.silence_us = 3000000;
	config.retry_us = 500000;
	member->view = config.view == 0 ? VIEW_FIRST : config.view;
	member->schedule = UINT64_MAX;
	member->gradients = false;
	member->node = node_init(allocate(node_size(&config)), &config);
}

static struct lab *open_lab(size_t rows, size_t shards, const size_t *sizes, size_t layer_count,
			    const struct ring_settings *settings, const struct fact *const *facts_of, size_t fact_count)
{
	const size_t count = rows * shards;
	struct wire *wire = allocate(sizeof *wire);
	struct lab *lab = &wire->lab;
	size_t total = 0;
	for (size_t l = 0; l < layer_count; l++)
		total += sizes[l];
	lab->count = count;
	lab->shards = shards;
	lab->layer_count = layer_count;
	lab->now_us = 1000000;
	lab->members = allocate(count * sizeof *lab->members);
	wire->last = &wire->first;
	wire->actions = allocate(sizeof *wire->actions);
	wire->names = allocate(count * sizeof *wire->names);
	wire->name_list = allocate(count * sizeof *wire->name_list);
	wire->ring_list = allocate(count * sizeof *wire->ring_list);
	wire->numbers = allocate(ARRAYS * total * count * sizeof(float));
	float *next = wire->numbers;
	for (size_t n = 0; n < count; n++) {
		snprintf(wire->names[n], sizeof wire->names[n], "n%zu", n % 100000);
		wire->name_list[n] = wire->ring_list[n % shards * rows + n / shards] = wire->names[n];
		struct lab_member *member = &lab->members[n];
		member->order = allocate(count * sizeof *member->order);
		for (size_t m = 0; m < count; m++)
			member->order[m] = m;
		member->layers = allocate(layer_count * sizeof *member->layers);
		for (size_t l = 0; l < layer_count; l++) {
			const size_t size = ring_shard_size(sizes[l], (uint32_t)shards, (uint32_t)(n % shards));
			member->layers[l] = (struct layer){.size = size, .theta = next, .anchor = next + size,
							   .momentum = next + 2 * size, .gradient = next + 3 * size,
							   .base = next + 4 * size, .snapshot = next + 5 * size};
			next += ARRAYS * size;
		}
	}
	for (size_t n = 0; n < count; n++)
		make_node(wire, n, (struct node_config){
			.incarnation = 1000 + n, .facts = facts_of == NULL ? NULL : facts_of[n], .fact_count = fact_count,
			.settings = settings == NULL ? ring_settings_standard() : *settings});
	return lab;
}

struct lab *lab_new(size_t count, const size_t *sizes, size_t layer_count, const struct ring_settings *settings,
		    const struct fact *const *facts_of, size_t fact_count)
{
	return open_lab(count, 1, sizes, layer_count, settings, facts_of, fact_count);
}

struct lab *lab_mesh(size_t rows, size_t shards, const size_t *sizes, size_t layer_count, const struct ring_settings *settings)
{
	return open_lab(rows, shards, sizes, layer_count, settings, NULL, 0);
}

void lab_restart(struct lab *lab, const bool *is_stale)
{
	struct wire *wire = (struct wire *)lab;
	for (size_t n = 0; n < lab->count; n++) {
		struct node *before = lab->members[n].node;
		make_node(wire, n, (struct node_config){.incarnation = 2000 + n, .round = node_layer_round(before, 0),
							.settings = *node_settings(before), .is_stale = is_stale[n]});
		free(before);
	}
}

void lab_free(struct lab *lab)
{
	struct wire *wire = (struct wire *)lab;
	while (wire->first != NULL) {
		struct parcel *parcel = wire->first;
		wire->first = parcel->next;
		free(parcel);
	}
	for (size_t n = 0; n < lab->count; n++) {
		free(lab->members[n].node);
		free(lab->members[n].layers);
		free(lab->members[n].order);
		free(lab->members[n].names);
	}
	free(lab->members);
	free(wire->actions);
	free(wire->names);
	free(wire->name_list);
	free(wire->ring_list);
	free(wire->numbers);
	free(wire);
}

static void post(struct wire *wire, uint32_t from, const struct action *action)
{
	struct lab *lab = &wire->lab;
	const uint32_t to = (uint32_t)lab->members[from].order[action->to];
	if (lab->members[from].dead || lab->members[to].dead)
		return;
	if (lab->filter != NULL && !lab->filter(lab->filter_arg, from, to, &action->message))
		return;
	struct parcel *parcel = allocate(sizeof *parcel + action->message.payload_bytes);
	*parcel = (struct parcel){.to = to, .message = action->message};
	if (action->message.kind == MESSAGE_STANDING) {
		parcel->standing = *action->message.standing;
		parcel->message.standing = &parcel->standing;
	}
	if (action->message.payload_bytes > 0)
		memcpy(parcel->payload, action->message.payload, action->message.payload_bytes);
	parcel->message.payload = parcel->payload;
	parcel->event = (struct event){.kind = EVENT_MESSAGE, .message = &parcel->message};
	*wire->last = parcel;
	wire->last = &parcel->next;
}

uint64_t lab_hash(const struct layer *layer)
{
	return XXH3_64bits(layer->anchor, layer->size * sizeof(float)) ^
	       (XXH3_64bits(layer->momentum, layer->size * sizeof(float)) << 1);
}

static void post_hash(struct wire *wire, size_t rank, const struct action *committed)
{
	uint64_t hash = lab_hash(&wire->lab.members[rank].layers[committed->layer_index]);
	struct parcel *parcel = allocate(sizeof *parcel);
	parcel->to = (uint32_t)rank;
	parcel->event = (struct event){.kind = EVENT_HASHED,
				       .hashed = {.layer_index = committed->layer_index, .hash = hash}};
	*wire->last = parcel;
	wire->last = &parcel->next;
}

static void act(struct wire *wire, size_t rank, const struct action *action)
{
	struct lab_member *member = &wire->lab.members[rank];
	switch (action->kind) {
	case ACTION_SEND: post(wire, (uint32_t)rank, action); break;
	case ACTION_HEALED:
		member->fetched++;
		post_hash(wire, rank, action);
		break;
	case ACTION_HASH:
	case ACTION_COMMITTED: post_hash(wire, rank, action); break;
	case ACTION_PUBLISH:
		member->published++;
		member->verdict = action->verdict;
		break;
	case ACTION_SCHEDULE:
		member->schedule = action->number;
		member->gradients = action->gradients;
		member->scheduled_count++;
		break;
	case ACTION_STEP: member->step = action->number; break;
	case ACTION_PAUSE: member->paused = true; break;
	case ACTION_RESUME: member->paused = false; break;
	case ACTION_CHECKPOINT: member->checkpoint_round = action->round; break;
	case ACTION_COLLECTED:
	case ACTION_SUMMED: break; /* nobody asks here */
	case ACTION_NOTE:
		if (member->note_count < LAB_NOTES_MAX)
			member->notes[member->note_count++] = action->note;
		break;
	}
}

static void step(struct wire *wire, size_t rank, const struct event *event)
{
	struct lab_member *member = &wire->lab.members[rank];
	struct actions *actions = wire->actions;
	node_step(member->node, event, actions);
	member->deadline_us = actions->deadline_us;
	for (size_t i = 0; i < actions->count; i++)
		act(wire, rank, &actions->list[i]);
}

static void deliver(struct wire *wire)
{
	while (wire->first != NULL) {
		struct parcel *parcel = wire->first;
		wire->first = parcel->next;
		if (wire->first == NULL)
			wire->last = &wire->first;
		parcel->event.now_us = wire->lab.now_us;
		if (!wire->lab.members[parcel->to].dead)
			step(wire, parcel->to, &parcel->event);
		free(parcel);
	}
}

void lab_event(struct lab *lab, size_t rank, struct event event)
{
	struct wire *wire = (struct wire *)lab;
	event.now_us = lab->now_us;
	step(wire, rank, &event);
	deliver(wire);
}

static bool tick_due(struct lab *lab)
{
	bool any = false;
	for (size_t n = 0; n < lab->count; n++) {
		if (lab->members[n].dead || lab->members[n].deadline_us > lab->now_us)
			continue;
		lab_event(lab, n, (struct event){.kind = EVENT_TICK});
		any = true;
	}
	return any;
}

void lab_pass(struct lab *lab, uint64_t us)
{
	uint64_t end_us = lab->now_us + us;
	while (lab->now_us < end_us) {
		while (tick_due(lab))
			;
		lab->now_us = u64_min(end_us, lab->now_us + 1000);
	}
}

void lab_gather(struct lab *lab)
{
	for (size_t n = 0; n < lab->count; n++)
		if (!lab->members[n].dead)
			lab_event(lab, n, (struct event){.kind = EVENT_TICK});
	lab_pass(lab, 1000000);
}

/* What is under way to a member is of its old view, or owed to its old node. */
static void forget(struct wire *wire, size_t rank)
{
	for (struct parcel *parcel = wire->first; parcel != NULL; parcel = parcel->next)
		if (parcel->to == rank && parcel->event.kind == EVENT_HASHED)
			parcel->event = (struct event){.kind = EVENT_TICK};
}

void lab_enter(struct lab *lab, size_t rank, uint64_t view, const size_t *order, size_t count, const struct node_config *before)
{
	struct wire *wire = (struct wire *)lab;
	struct lab_member *member = &lab->members[rank];
	struct node_config config = before == NULL ? (struct node_config){.settings = *node_settings(member->node)} : *before;
	struct node *old = member->node;
	const char **names = allocate(count * sizeof *names);
	size_t *ranks = allocate(count * sizeof *ranks);
	for (size_t r = 0; r < count; r++) {
		ranks[r] = order[r];
		names[r] = wire->names[order[r]];
		if (order[r] == rank)
			config.rank = (uint32_t)r;
	}
	config.view = view;
	config.member_count = (uint32_t)count;
	config.fanout = (uint32_t)lab->fanout;
	config.names = names;
	config.incarnation = 1000 + rank + (before == NULL ? 0 : 1000 * view);
	config.layers = member->layers;
	config.layer_count = lab->layer_count;
	config.heartbeat_us = 1000000;
	config.silence_us = 3000000;
	config.retry_us = 500000;
	void *block = allocate(node_size(&config));
	member->node = before == NULL ? node_succeed(block, &config, old) : node_init(block, &config);
	member->dead = false;
	member->view = view;
	member->deadline_us = 0;
	free(old);
	free(member->order);
	free(member->names);
	member->order = ranks;
	member->names = names;
	forget(wire, rank);
}

void lab_view(struct lab *lab, uint64_t view, const size_t *order, size_t count)
{
	for (size_t r = 0; r < count; r++)
		if (!lab->members[order[r]].dead)
			lab_enter(lab, order[r], view, order, count, NULL);
	lab_pass(lab, 1000000);
}

void lab_offer(struct lab *lab, size_t rank, bool is_final)
{
	lab->members[rank].published = lab->members[rank].fetched = 0;
	lab->members[rank].done += 10;
	struct event event = {.kind = EVENT_OFFER,
			      .offer = {.step = lab->members[rank].done, .steps = 10, .tokens = 1000, .loss = 2.5 + (double)rank, .final = is_final}};
	lab_event(lab, rank, event);
	event = (struct event){.kind = EVENT_WANT, .wanted = (uint32_t)lab->layer_count - 1};
	lab_event(lab, rank, event);
}

size_t lab_notes(const struct lab *lab, size_t rank, enum note_code code)
{
	size_t count = 0;
	for (size_t i = 0; i < lab->members[rank].note_count; i++)
		count += lab->members[rank].notes[i].code == code;
	return count;
}

const struct note *lab_note(const struct lab *lab, size_t rank, enum note_code code)
{
	for (size_t i = lab->members[rank].note_count; i-- > 0;)
		if (lab->members[rank].notes[i].code == code)
			return &lab->members[rank].notes[i];
	return NULL;
}

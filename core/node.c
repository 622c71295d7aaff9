/* One member of a ring: hello and heartbeats with its neighbours, the ring stream, and the rounds on it. Every event ends
 * the same way: do what can be done, send what may be sent, say when to come back. */

#include <string.h>

#include "core/node.h"
#include "core/node_rings.h"
#include "core/heal.h"
#include "core/part.h"
#include "core/round.h"
#include "core/standing.h"

#define SEND_MAX 128         /* frames of one stream in one step */
#define STALL_REPEAT 20      /* a stall is noted again after silence_us times this */

/* ---- Memory ---- */

static struct sync_config sync_config_of(const struct node_config *config)
{
	return (struct sync_config){.rank = config->rank, .count = config->member_count, .layers = config->layers,
				    .layer_count = (uint32_t)config->layer_count, .round = config->round,
				    .view = node_view_number(config), .since = config->since,
				    .layer_rounds = config->layer_rounds, .layer_since = config->layer_since,
				    .layer_rolled_back = config->layer_rolled_back, .is_outdated = config->is_outdated,
				    .finished = config->finished, .is_stale = config->is_stale, .step = config->step,
				    .detectors = config->detectors, .settings = &config->settings,
				    .column = config->column, .shards = node_shards(config),
				    .fanout = node_fanout(config)};
}

size_t node_size(const struct node_config *config)
{
	struct sync_config sync = sync_config_of(config);
	size_t bytes = block_part(sizeof(struct node)) + sync_size(&sync) + block_part(collectives_size(node_shards(config)));
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		struct circle_config circle = node_circle_config(config, which);
		bytes += circle_size(&circle);
	}
	return bytes;
}

struct node *node_init(void *block, const struct node_config *config)
{
	CHECK(config->member_count >= 1);
	CHECK(node_shards(config) <= MEMBER_COUNT_MAX / config->member_count);
	CHECK(config->rank < config->member_count);
	CHECK(config->member_count % node_fanout(config) == 0);
	CHECK(node_fanout(config) > 1 || config->member_count == 1);
	CHECK(config->layer_count >= 1);
	CHECK(config->layer_count <= LAYER_COUNT_MAX);
	CHECK(config->incarnation != 0);
	/* The members of a mesh do not change: pieces of a replica would have to move. */
	CHECK(node_shards(config) == 1 || node_view_number(config) == VIEW_FIRST);
	CHECK(node_shards(config) == 1 || config->layer_rounds == NULL);
	CHECK(node_shards(config) == 1 || !config->is_outdated);
	struct node *node = block;
	char *rest = (char *)block + block_part(sizeof *node);
	memset(node, 0, sizeof *node);
	node->config = *config;
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		struct circle_config circle = node_circle_config(config, which);
		circle_init(&node->circles[which], rest, &circle);
		rest += circle_size(&circle);
	}
	struct sync_config sync = sync_config_of(config);
	sync_init(&node->sync, rest, &sync, &node->circles[RING].link, &node->circles[CROSS].link, &node->circles[ROW].link);
	rest += sync_size(&sync);
	collectives_init(&node->collectives, rest, config->column, node_shards(config), config->layers, &node->circles[ROW].link);
	part_init(&node->sync);
	return node;
}

/* Rank in the old view of the member with this name; the count of that one if it was not in it. */
static uint32_t rank_by_name(const struct node_config *old, const char *name)
{
	uint32_t rank = 0;
	for (; rank < old->member_count; rank++) {
		const char *other = old->names[rank];
		size_t i = 0;
		while (name[i] != 0 && name[i] == other[i])
			i++;
		if (name[i] == other[i])
			break;
	}
	return rank;
}

struct node *node_succeed(void *block, const struct node_config *config, const struct node *old)
{
	CHECK(node_view_number(config) > node_view_number(&old->config));
	CHECK(config->layer_count == old->config.layer_count);
	struct node *node = node_init(block, config);
	uint32_t *from = (uint32_t *)node->sync.norms; /* scratch */
	for (uint32_t rank = 0; rank < config->member_count; rank++)
		from[rank] = rank_by_name(&old->config, config->names[rank]);
	standing_inherit(&node->sync, &old->sync, from);
	node->inherits = true;
	node->now_us = old->now_us;
	return node;
}

/* ---- Sending ---- */

static size_t window_bytes(const struct node *node)
{
	size_t bytes = (size_t)node->sync.settings.value[WIRE_WINDOW];
	return node->config.window_max_bytes == 0 ? bytes : size_min(bytes, node->config.window_max_bytes);
}

static bool next_chunk(struct node *node, int which, struct frame *ret_chunk)
{
	size_t chunk_bytes = (size_t)node->sync.settings.value[WIRE_CHUNK];
	if (which != ROW)
		return heal_next_chunk(&node->sync, which == CROSS, window_bytes(node), ret_chunk) ||
		       round_next_chunk(&node->sync, which == CROSS, window_bytes(node), ret_chunk);
	const struct neighbour *right = view_side(&node->circles[ROW].view, VIEW_RIGHT);
	return collectives_next_chunk(&node->collectives, right->collectives, chunk_bytes, window_bytes(node), ret_chunk);
}

/* Sends what the stream has room for: first what must be sent again, then small frames, then chunks. */
static void pump(struct node *node, int which, struct actions *actions)
{
	struct circle *circle = &node->circles[which];
	struct link *link = &circle->link;
	if (!circle_can_send(circle))
		return;
	const uint32_t right = ring_right(circle->view.rank, circle->view.count);
	link_retry(link, node->now_us);
	uint32_t sent = 0;
	while (sent < SEND_MAX) {
		uint64_t sequence;
		const struct frame *frame = link_next(link, &sequence);
		struct frame chunk;
		if (frame != NULL) {
			struct message message;
			if (which == ROW && frame->kind == MESSAGE_CHUNK)
				collectives_message(&node->collectives, frame, &message);
			else
				sync_message(&node->sync, frame, which == CROSS, &message);
			message.sequence = sequence;
			circle_send(circle, right, &message, actions);
			sent++;
		} else if (link_launch_waiting(link, window_bytes(node), node->now_us)) {
			continue;
		} else if (next_chunk(node, which, &chunk)) {
			link_launch(link, &chunk, node->now_us);
		} else {
			break;
		}
	}
	actions_wake(actions, sent == SEND_MAX ? node->now_us : link_retry_at(link));
}

/* ---- Receiving ---- */

/* What the next heartbeats say. */
static void tell_circles(struct node *node)
{
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		node->circles[which].round = node->sync.round;
		node->circles[which].waiting_for_worker = !node->sync.offered && !node->sync.waiting;
	}
	node->circles[ROW].collectives = node->collectives.begun;
}

/* One of the rings has just become complete: with the last of them the run begins. */
static void complete(struct node *node, struct actions *actions)
{
	for (int which = 0; which < CIRCLE_COUNT; which++)
		if (!node->circles[which].view.complete && node->circles[which].view.count > 1)
			return;
	node->complete = true;
	actions_note(actions, (struct note){.code = NOTE_RING_COMPLETE, .a = sync_peer_count(&node->sync),
					    .b = node_view_number(&node->config)});
	if (node->sync.stands) {
		standing_begin(&node->sync, node->now_us);
		return;
	}
	node->sync.is_new = false;
	part_begin(&node->sync, node->now_us, actions);
}

/* A frame of a stream, in its place. */
static int take_in_order(struct node *node, int which, const struct message *message, struct actions *actions)
{
	struct sync *sync = &node->sync;
	if (message->kind == MESSAGE_ROLL) {
		if (message->roll_origin >= node->circles[which].view.count)
			return EDIT_ERROR_MALFORMED;
		if (circle_roll(&node->circles[which], message->roll_origin))
			complete(node, actions);
		return 0;
	}
	if (message->kind == MESSAGE_CHANGE && sync->is_ready)
		return sync_change(sync, &message->change, which == node_home(node), actions);
	if (which == ROW && message->kind == MESSAGE_CHUNK)
		return collectives_chunk(&node->collectives, &message->chunk, message->payload, node->now_us);
	if (which == ROW)
		return message->kind == MESSAGE_SCALAR ? sync_scalar(sync, &message->scalar, node->now_us) : EDIT_ERROR_MALFORMED;
	const bool is_healing = message->kind == MESSAGE_CHUNK && message->chunk.phase == PHASE_HEAL;
	if (is_healing)
		return heal_chunk(sync, &message->chunk, which == CROSS, message->payload, node->now_us, actions);
	switch (message->kind) {
	case MESSAGE_STANDING: return standing_take(sync, message->standing, node->now_us);
	case MESSAGE_HOLDING: return standing_hold(sync, &message->holding, node->now_us);
	default: break;
	}
	if (!sync->is_ready)
		return EDIT_ERROR_MALFORMED;
	switch (message->kind) {
	case MESSAGE_RECORD: return sync_record(sync, &message->record, node->now_us);
	case MESSAGE_CHUNK: return round_chunk(sync, &message->chunk, which == CROSS, message->payload, node->now_us);
	case MESSAGE_CONFIRM: return sync_confirm(sync, &message->confirm, actions);
	default: return EDIT_ERROR_MALFORMED;
	}
}

static void take_stream(struct node *node, int which, const struct message *message, struct actions *actions)
{
	/* Not acknowledged either, so it comes again: what there is no room for, and, until all rings are complete here, all but
	 * rolls. A neighbour's new incarnation may still be let in then, and what waits for the old one is dropped: rolls are
	 * said again, nothing else could be. */
	struct link *link = &node->circles[which].link;
	bool is_full = false;
	for (int other = 0; other < CIRCLE_COUNT; other++)
		is_full |= node->circles[other].link.waiting_count >= node->circles[other].frames_owed;
	if ((!node->complete && message->kind != MESSAGE_ROLL) || is_full) {
		node->dropped++;
		return;
	}
	if (!link_accept(link, message->sequence, message->payload_bytes, window_bytes(node), node->now_us))
		return;
	if (take_in_order(node, which, message, actions) != 0)
		node->dropped++;
}

static void take_message(struct node *node, const struct message *message, struct actions *actions)
{
	/* Who is with us in one ring is not in another; whoever is in none is a stranger to the first. */
	int which = CIRCLE_COUNT;
	while (which-- > 1) {
		const struct circle *other = &node->circles[which];
		if (other->view.count > 1 && circle_local(other, message->from) < other->view.count)
			break;
	}
	struct circle *circle = &node->circles[which];
	bool moved;
	if (circle_message(circle, circle_local(circle, message->from), message, node->now_us, &moved, actions))
		take_stream(node, which, message, actions);
	if (moved)
		node->sync.progress_us = node->now_us;
}

/* ---- Time ---- */

/* Whom a round that does not move waits for; the number of members if it moves or waits for a worker that is alive. */
static uint32_t stalled_by(const struct node *node)
{
	const struct sync *sync = &node->sync;
	const uint32_t nobody = sync_peer_count(sync);
	if (!node->complete || !sync->is_ready || (!sync->offered && !sync->waiting) || node->now_us - sync->progress_us < node->config.silence_us)
		return nobody;
	uint32_t down = node_first_down(node), waits_for = sync_waits_for(sync);
	if (down < nobody)
		return down;
	if (waits_for == nobody)
		return node_home_left(node);
	return waits_for / sync->row.count == sync->rank && waits_for != node_rank(node) ? waits_for : nobody;
}

static void watch_round(struct node *node, struct actions *actions)
{
	uint32_t by = stalled_by(node);
	if (by == sync_peer_count(&node->sync)) {
		node->stall_note_at_us = node->now_us;
		return;
	}
	if (node->now_us < node->stall_note_at_us)
		return;
	node->stall_note_at_us = node->now_us + STALL_REPEAT * node->config.silence_us;
	actions_note(actions, (struct note){.code = NOTE_STALLED, .peer = by, .round = node->sync.round + 1,
					    .a = (node->now_us - node->sync.progress_us) / 1000});
}

/* ---- The heart ---- */

static void take_event(struct node *node, const struct event *event, struct actions *actions)
{
	struct sync *sync = &node->sync;
	switch (event->kind) {
	case EVENT_TICK: break;
	case EVENT_MESSAGE: take_message(node, event->message, actions); break;
	case EVENT_OFFER: part_offer(sync, &event->offer, node->now_us); break;
	case EVENT_GRADIENT: part_gradient(sync, event->gradient.layer_index, event->gradient.absent); break;
	case EVENT_WANT: part_want(sync, event->wanted); break;
	case EVENT_HASHED:
		CHECK(event->hashed.layer_index < sync->layer_count);
		if (sync->is_ready)
			sync_hashed(sync, event->hashed.layer_index, event->hashed.hash, actions);
		else
			standing_hashed(sync, event->hashed.layer_index, event->hashed.hash, actions);
		break;
	case EVENT_CHANGE: {
		struct change change = event->change;
		int error = node->complete && sync->is_ready ? sync_propose(sync, &change, actions) : EDIT_ERROR_UNHEALTHY;
		if (error != 0)
			actions_note(actions, (struct note){.code = NOTE_CHANGE_REFUSED, .detail = error});
		break;
	}
	case EVENT_COLLECT: CHECK(collectives_ask(&node->collectives, &event->collective, node->now_us) == 0); break;
	case EVENT_SUM: sync_sum(sync, event->sum.value, event->sum.wants_offer, node->now_us); break;
	default: CHECK(false); /* an event */
	}
}

void node_step(struct node *node, const struct event *event, struct actions *actions)
{
	CHECK(event->now_us >= node->now_us);
	actions->count = 0;
	actions->deadline_us = UINT64_MAX;
	node->now_us = event->now_us;
	if (!node->begun) {
		node->begun = true;
		node->begin_us = event->now_us;
		for (int which = 0; which < CIRCLE_COUNT; which++)
			circle_begin(&node->circles[which], event->now_us);
		/* The first interval begins here: workers train while the ring is gathering. */
		if (!node->inherits)
			node->sync.done_us = node->sync.part_us = event->now_us;
	}
	tell_circles(node);
	take_event(node, event, actions);
	for (int which = 0; which < CIRCLE_COUNT; which++)
		if (circle_join(&node->circles[which]) && !node->complete)
			complete(node, actions);
	if (node->complete)
		standing_advance(&node->sync, node->now_us, actions);
	if (node->complete && node->sync.is_ready) {
		round_advance(&node->sync, node->now_us, actions);
		collectives_advance(&node->collectives, node->now_us, actions);
		sync_advance_sum(&node->sync, node->now_us, actions);
	}
	tell_circles(node);
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		pump(node, which, actions);
		circle_watch(&node->circles[which], node->now_us, actions);
	}
	watch_round(node, actions);
}

bool node_can_collect(const struct node *node)
{
	return collectives_can_ask(&node->collectives);
}

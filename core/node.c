/* One member of a ring: hello and heartbeats with its neighbours, the ring stream, and the rounds on it. Every event ends
 * the same way: do what can be done, send what may be sent, say when to come back. */

#include <string.h>

#include "core/circle.h"
#include "core/collective.h"
#include "core/node.h"
#include "core/part.h"
#include "core/round.h"

#define SEND_MAX 128         /* frames of one stream in one step */
#define STALL_REPEAT 20      /* a stall is noted again after silence_us times this */

/* The rings that a node is in. */
enum {
	RING,  /* of the members, or of a group of them */
	CROSS, /* across the groups, of the members with the same place in theirs */
	ROW,   /* of the nodes of the replica */
	CIRCLE_COUNT
};

struct node {
	struct node_config config;
	struct circle circles[CIRCLE_COUNT];
	struct sync sync;
	struct collectives collectives;
	bool begun;              /* the first event has come */
	bool complete;           /* so are all rings that this node is in */
	uint64_t now_us;         /* of the last event */
	uint64_t stall_note_at_us; /* not before */
	uint64_t begin_us;       /* of the gathering */
	uint64_t dropped;        /* frames that fit nowhere */
};

/* ---- Memory ---- */

static uint32_t shards_of(const struct node_config *config) { return config->shards == 0 ? 1 : config->shards; }

static uint32_t fanout_of(const struct node_config *config)
{
	return config->fanout == 0 ? config->member_count : config->fanout;
}

static uint32_t own_rank(const struct node *node) { return sync_peer(&node->sync, node->sync.rank); }

static struct sync_config sync_config_of(const struct node_config *config)
{
	return (struct sync_config){.rank = config->rank, .count = config->member_count, .layers = config->layers,
				    .layer_count = (uint32_t)config->layer_count, .round = config->round,
				    .finished = config->finished, .is_stale = config->is_stale,
				    .detectors = config->detectors, .settings = &config->settings,
				    .column = config->column, .shards = shards_of(config),
				    .fanout = fanout_of(config)};
}

/* Small frames that may wait before frames from the left are turned away, and room for what the member then still adds of
 * its own: a correct ring never comes to the first, and nobody can force the second. */
static struct circle_config circle_config_of(const struct node_config *config, int which)
{
	const uint32_t shards = shards_of(config), layer_count = (uint32_t)config->layer_count;
	struct circle_config circle = {.facts = config->facts, .fact_count = config->fact_count,
				       .incarnation = config->incarnation, .heartbeat_us = config->heartbeat_us,
				       .silence_us = config->silence_us, .retry_us = config->retry_us};
	const uint32_t fanout = fanout_of(config), group = config->rank / fanout, place = config->rank % fanout;
	circle.name_stride = 1;
	circle.frames_owed = sync_frames_max(layer_count, config->member_count, shards);
	switch (which) {
	case RING:
		circle.rank = place;
		circle.count = fanout;
		circle.first = group * fanout * shards + config->column;
		circle.stride = shards;
		circle.names = config->names + (size_t)group * fanout;
		break;
	case CROSS:
		circle.rank = group;
		circle.count = config->member_count / fanout;
		circle.first = place * shards + config->column;
		circle.stride = fanout * shards;
		circle.names = config->names + place;
		circle.name_stride = fanout;
		break;
	default:
		circle.rank = config->column;
		circle.count = shards;
		circle.first = config->rank * shards;
		circle.stride = 1;
		circle.names = config->mates;
		circle.frames_owed = sync_row_frames_max(layer_count, config->member_count, shards);
	}
	circle.frames_max = circle.frames_owed + 4 * config->layer_count + 4 * PROPOSAL_EACH_MAX;
	return circle;
}

size_t node_size(const struct node_config *config)
{
	struct sync_config sync = sync_config_of(config);
	size_t bytes = block_part(sizeof(struct node)) + sync_size(&sync) + block_part(collectives_size(shards_of(config)));
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		struct circle_config circle = circle_config_of(config, which);
		bytes += circle_size(&circle);
	}
	return bytes;
}

struct node *node_init(void *block, const struct node_config *config)
{
	CHECK(config->member_count >= 1);
	CHECK(shards_of(config) <= MEMBER_COUNT_MAX / config->member_count);
	CHECK(config->rank < config->member_count);
	CHECK(config->member_count % fanout_of(config) == 0);
	CHECK(fanout_of(config) > 1 || config->member_count == 1);
	CHECK(config->layer_count >= 1);
	CHECK(config->layer_count <= LAYER_COUNT_MAX);
	CHECK(config->incarnation != 0);
	struct node *node = block;
	char *rest = (char *)block + block_part(sizeof *node);
	memset(node, 0, sizeof *node);
	node->config = *config;
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		struct circle_config circle = circle_config_of(config, which);
		circle_init(&node->circles[which], rest, &circle);
		rest += circle_size(&circle);
	}
	struct sync_config sync = sync_config_of(config);
	sync_init(&node->sync, rest, &sync, &node->circles[RING].link, &node->circles[CROSS].link, &node->circles[ROW].link);
	rest += sync_size(&sync);
	collectives_init(&node->collectives, rest, config->column, shards_of(config), config->layers, &node->circles[ROW].link);
	part_init(&node->sync);
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
		return round_next_chunk(&node->sync, which == CROSS, window_bytes(node), ret_chunk);
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
	actions_note(actions, (struct note){.code = NOTE_RING_COMPLETE, .a = sync_peer_count(&node->sync)});
	part_begin(&node->sync, node->now_us, actions);
}

/* The first ring that the member is not alone in. */
static int home(const struct node *node)
{
	int which = RING;
	while (which + 1 < CIRCLE_COUNT && node->circles[which].view.count == 1)
		which++;
	return which;
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
	if (message->kind == MESSAGE_CHANGE)
		return sync_change(sync, &message->change, which == home(node), actions);
	if (which == ROW && message->kind == MESSAGE_CHUNK)
		return collectives_chunk(&node->collectives, &message->chunk, message->payload, node->now_us);
	if (which == ROW)
		return message->kind == MESSAGE_SCALAR ? sync_scalar(sync, &message->scalar, node->now_us) : EDIT_ERROR_MALFORMED;
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

/* A member known to be down, by its rank in the mesh; the number of members: none. */
static uint32_t first_down(const struct node *node)
{
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		const struct circle *circle = &node->circles[which];
		uint32_t down = view_first_down(&circle->view);
		if (down < circle->view.count)
			return circle_global(circle, down);
	}
	return sync_peer_count(&node->sync);
}

/* The left neighbour, from whom the ring's numbers come. */
static uint32_t home_left(const struct node *node)
{
	const struct circle *circle = &node->circles[home(node)];
	return circle_global(circle, ring_left(circle->view.rank, circle->view.count));
}

/* Whom of its replica the own worker waits for in the middle of a step, and since when; the number of members: nobody. */
static uint32_t step_waits_for(const struct node *node, uint64_t *ret_since_us)
{
	const struct sync *sync = &node->sync;
	const struct circle *row = &node->circles[ROW];
	*ret_since_us = node->collectives.progress_us;
	if (sync->summed < sync->sums) {
		*ret_since_us = u64_max(sync->sum_us, sync->row.told_us);
		uint32_t column = row_waits_for(&sync->row, SCALAR_STEP, 0, sync->sums);
		return column < row->view.count ? circle_global(row, column) : sync_peer_count(sync);
	}
	if (!collectives_are_open(&node->collectives))
		return sync_peer_count(sync);
	/* Who has begun fewer is waited for; further off, it is one of those that the left neighbour waits for. */
	for (uint32_t i = 0; i < row->view.side_count; i++)
		if (row->view.side[i].collectives < node->collectives.begun)
			return circle_global(row, row->view.side[i].rank);
	return circle_global(row, ring_left(row->view.rank, row->view.count));
}

/* Whom a round that does not move waits for; the number of members if it moves or waits for a worker that is alive. */
static uint32_t stalled_by(const struct node *node)
{
	const struct sync *sync = &node->sync;
	const uint32_t nobody = sync_peer_count(sync);
	if (!node->complete || (!sync->offered && !sync->waiting) || node->now_us - sync->progress_us < node->config.silence_us)
		return nobody;
	uint32_t down = first_down(node), waits_for = sync_waits_for(sync);
	if (down < nobody)
		return down;
	if (waits_for == nobody)
		return home_left(node);
	return waits_for / sync->row.count == sync->rank && waits_for != own_rank(node) ? waits_for : nobody;
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
	case EVENT_HASHED: sync_hashed(sync, event->hashed.layer_index, event->hashed.hash, actions); break;
	case EVENT_CHANGE: {
		struct change change = event->change;
		int error = node->complete ? sync_propose(sync, &change, actions) : EDIT_ERROR_UNHEALTHY;
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
		node->sync.done_us = node->sync.part_us = event->now_us;
	}
	tell_circles(node);
	take_event(node, event, actions);
	for (int which = 0; which < CIRCLE_COUNT; which++)
		if (circle_join(&node->circles[which]) && !node->complete)
			complete(node, actions);
	if (node->complete) {
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

/* ---- Looking ---- */

static enum node_phase phase_of(const struct node *node)
{
	if (node->sync.finished)
		return NODE_FINISHED;
	if (!node->complete)
		return NODE_GATHERING;
	if (node->sync.offered || node->sync.waiting)
		return NODE_SYNCING;
	return node->sync.paused ? NODE_PAUSED : NODE_TRAINING;
}

static uint32_t gathering_waits_for(const struct node *node)
{
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		const struct circle *circle = &node->circles[which];
		const struct view *view = &circle->view;
		for (uint32_t i = 0; i < view->side_count; i++)
			if (view->side[i].incarnation == 0 || !view->side[i].accepts_us || view->side[i].down)
				return circle_global(circle, view->side[i].rank);
		for (uint32_t rank = 0; rank < view->count; rank++)
			if (!view->rolled[rank])
				return circle_global(circle, rank);
	}
	return sync_peer_count(&node->sync);
}

void node_status(const struct node *node, uint64_t now_us, struct node_status *ret_status)
{
	const struct sync *sync = &node->sync;
	*ret_status = (struct node_status){
		.phase = phase_of(node), .round = sync->round, .round_bytes = sync->round_bytes, .sync_us = sync->sync_us,
		.frames_dropped = node->dropped, .waiting_for = sync_peer_count(sync),
		.pending_changes = (uint32_t)sync->proposals.count};
	for (int which = 0; which < CIRCLE_COUNT; which++) {
		ret_status->frames_sent_again += node->circles[which].link.sent_again;
		ret_status->frames_dropped += node->circles[which].dropped;
	}
	switch (ret_status->phase) {
	case NODE_GATHERING:
		ret_status->waiting_for = gathering_waits_for(node);
		ret_status->stalled_us = now_us - node->begin_us;
		break;
	case NODE_SYNCING:
		ret_status->waiting_for = sync_waits_for(sync);
		if (now_us - sync->progress_us < node->config.silence_us)
			break;
		ret_status->stalled_us = now_us - sync->progress_us;
		if (ret_status->waiting_for == sync_peer_count(sync))
			ret_status->waiting_for = home_left(node);
		break;
	case NODE_TRAINING: {
		uint64_t since_us;
		uint32_t mate = step_waits_for(node, &since_us);
		if (mate == sync_peer_count(sync) || now_us - since_us < node->config.silence_us)
			break;
		ret_status->waiting_for = mate;
		ret_status->stalled_us = now_us - since_us;
		break;
	}
	default: break;
	}
	uint32_t down = first_down(node);
	if (down < sync_peer_count(sync))
		ret_status->waiting_for = down;
}

/* What is known of a member of a ring that this one is in. */
static void look_at(const struct view *view, uint32_t rank, uint64_t now_us, struct node_peer *ret_peer)
{
	ret_peer->state = view->rolled[rank] ? PEER_LIVE : PEER_UNKNOWN;
	if (view_is_down(view, rank))
		ret_peer->state = PEER_DOWN;
	for (uint32_t i = 0; i < view->side_count; i++) {
		const struct neighbour *side = &view->side[i];
		if (side->rank != rank)
			continue;
		ret_peer->is_neighbour = true;
		ret_peer->round = side->round;
		ret_peer->waits_for_worker = side->waiting_for_worker;
		if (side->incarnation != 0) {
			ret_peer->silent_us = now_us - side->heard_us;
			ret_peer->state = side->down ? PEER_DOWN : PEER_LIVE;
		}
		if (side->refused == REFUSAL_RESTARTED)
			ret_peer->state = PEER_RESTARTED;
		else if (side->incarnation == 0 && (side->refused != 0 || side->refuses_us != 0))
			ret_peer->state = PEER_REFUSED;
	}
}

void node_peer(const struct node *node, uint32_t rank, uint64_t now_us, struct node_peer *ret_peer)
{
	CHECK(rank < node->sync.count);
	*ret_peer = (struct node_peer){.state = node->complete ? PEER_LIVE : PEER_UNKNOWN,
				       .lateness_us = node->sync.lateness_us[rank],
				       .lateness_mean_us = (uint64_t)node->sync.lateness_mean_us[rank]};
	for (int which = RING; which <= CROSS; which++) {
		const struct circle *circle = &node->circles[which];
		uint32_t local = circle_local(circle, sync_peer(&node->sync, rank));
		if (circle->view.count > 1 && local < circle->view.count)
			look_at(&circle->view, local, now_us, ret_peer);
	}
}

void node_mesh_peer(const struct node *node, uint32_t global, uint64_t now_us, struct node_peer *ret_peer)
{
	const struct sync *sync = &node->sync;
	const struct circle *row = &node->circles[ROW];
	uint32_t mate = circle_local(row, global);
	CHECK(global < sync_peer_count(sync));
	*ret_peer = (struct node_peer){.state = PEER_UNKNOWN};
	if (global % sync->row.count == sync->row.rank)
		node_peer(node, global / sync->row.count, now_us, ret_peer);
	else if (mate < row->view.count)
		look_at(&row->view, mate, now_us, ret_peer);
}

const struct ring_settings *node_settings(const struct node *node) { return &node->sync.settings; }
const struct ring_settings *node_next_settings(const struct node *node) { return &node->sync.next_settings; }

uint64_t node_setting_round(const struct node *node, enum ring_setting setting)
{
	return node->sync.setting_round[setting];
}

const struct record *node_record(const struct node *node, size_t layer_index, uint32_t rank)
{
	return sync_record_at(&node->sync, node_layer_round(node, layer_index), (uint32_t)layer_index, rank);
}

double node_weight(const struct node *node, size_t layer_index, uint32_t rank)
{
	return *sync_weight_at(&node->sync, node_layer_round(node, layer_index), (uint32_t)layer_index, rank);
}

uint64_t node_hash(const struct node *node, size_t layer_index, uint32_t rank, unsigned back, uint64_t *ret_round)
{
	CHECK(back < 2);
	uint64_t round = node_layer_round(node, layer_index);
	const struct sync_confirm *confirm = sync_confirm_at(&node->sync, round + back, (uint32_t)layer_index, rank);
	*ret_round = confirm->round;
	return confirm->hash;
}

bool node_averages_gradients(const struct node *node)
{
	return node->sync.next_gradients;
}

bool node_is_aligning(const struct node *node)
{
	return node->sync.aligns;
}

const struct detector *node_detector(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return &node->sync.state[layer_index].detector;
}

uint64_t node_layer_round(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return node->sync.state[layer_index].round;
}

enum node_layer_state node_layer_state(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	const struct sync_layer *layer = &node->sync.state[layer_index];
	switch (layer->phase) {
	case LAYER_OFFERED: return NODE_LAYER_OFFERED;
	case LAYER_SCALARS: return NODE_LAYER_SCALARS;
	case LAYER_MEAN: return layer->own_shard_done ? NODE_LAYER_GATHER : NODE_LAYER_REDUCE;
	default: return NODE_LAYER_WORKER;
	}
}

void node_layer_times(const struct node *node, size_t layer_index, uint64_t ret_us[3])
{
	CHECK(layer_index < node->sync.layer_count);
	memcpy(ret_us, node->sync.state[layer_index].times_us, 3 * sizeof(uint64_t));
}

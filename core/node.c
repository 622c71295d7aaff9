/* One member of a ring: hello and heartbeats with its neighbours, the ring stream, and the rounds on it. Every event ends
 * the same way: do what can be done, send what may be sent, say when to come back. */

#include <string.h>

#include "core/node.h"
#include "core/part.h"
#include "core/round.h"
#include "core/view.h"

#define SEND_MAX 128         /* ring stream frames of one step */
#define HELLO_PER_HEARTBEAT 4 /* hellos are said so many times as often */
#define STALL_REPEAT 20      /* a stall is noted again after silence_us times this */

struct node {
	struct node_config config;
	struct view view;
	struct link link;
	struct sync sync;
	bool begun;              /* the first event has come */
	bool own_roll;           /* told that both neighbours are there */
	uint64_t now_us;         /* of the last event */
	uint64_t heartbeat_at_us, hello_at_us;
	uint64_t stall_note_at_us; /* not before */
	uint64_t begin_us;       /* of the gathering */
	uint64_t dropped;        /* frames from strangers, of another incarnation, or malformed */
};

/* ---- Memory ---- */

static struct sync_config sync_config_of(const struct node_config *config)
{
	return (struct sync_config){.rank = config->rank, .count = config->member_count, .layers = config->layers,
				    .layer_count = (uint32_t)config->layer_count, .round = config->round,
				    .finished = config->finished, .is_stale = config->is_stale,
				    .detectors = config->detectors, .settings = &config->settings};
}

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Small frames that may wait before frames from the left are turned away, and room for what the member then still adds of
 * its own: a correct ring never comes to the first, and nobody can force the second. */
static size_t frames_owed(const struct node_config *config)
{
	return sync_frames_max((uint32_t)config->layer_count, config->member_count);
}

static size_t frames_max(const struct node_config *config)
{
	return frames_owed(config) + 4 * config->layer_count + 4 * PROPOSAL_EACH_MAX;
}

size_t node_size(const struct node_config *config)
{
	struct sync_config sync = sync_config_of(config);
	return round_up(sizeof(struct node)) + round_up(view_size(config->member_count)) +
	       round_up(link_size(frames_max(config))) + sync_size(&sync);
}

struct node *node_init(void *block, const struct node_config *config)
{
	CHECK(config->member_count >= 1);
	CHECK(config->member_count <= MEMBER_COUNT_MAX);
	CHECK(config->rank < config->member_count);
	CHECK(config->layer_count >= 1);
	CHECK(config->layer_count <= LAYER_COUNT_MAX);
	CHECK(config->incarnation != 0);
	struct node *node = block;
	char *rest = (char *)block + round_up(sizeof *node);
	memset(node, 0, sizeof *node);
	node->config = *config;
	view_init(&node->view, rest, config->rank, config->member_count, config->names, config->facts,
		  config->fact_count, config->silence_us);
	rest += round_up(view_size(config->member_count));
	link_init(&node->link, rest, frames_max(config), config->retry_us);
	rest += round_up(link_size(frames_max(config)));
	struct sync_config sync = sync_config_of(config);
	sync_init(&node->sync, rest, &sync, &node->link);
	part_init(&node->sync);
	return node;
}

/* ---- Sending ---- */

static void send(struct node *node, uint32_t to, const struct message *message, struct actions *actions)
{
	const struct neighbour *neighbour = view_neighbour(&node->view, to);
	struct action *action = actions_add(actions, ACTION_SEND);
	action->to = to;
	action->message = *message;
	action->message.from = node->config.rank;
	action->message.incarnation = node->config.incarnation;
	action->message.receiver = neighbour != NULL ? neighbour->incarnation : 0;
	action->message.view = VIEW_NUMBER;
}

static void send_hello(struct node *node, const struct neighbour *to, struct actions *actions)
{
	struct message message = {.kind = MESSAGE_HELLO};
	message.hello = (struct hello){.name = node->config.names[node->config.rank], .facts = node->config.facts,
				       .fact_count = node->config.fact_count};
	send(node, to->rank, &message, actions);
}

static void send_heartbeat(struct node *node, const struct neighbour *to, struct actions *actions)
{
	struct message message = {.kind = MESSAGE_HEARTBEAT};
	struct heartbeat *heartbeat = &message.heartbeat;
	heartbeat->round = node->sync.round;
	heartbeat->waiting_for_worker = !node->sync.offered;
	heartbeat->suspect_count = view_suspects(&node->view, to, heartbeat->suspects);
	if (to == view_side(&node->view, VIEW_LEFT))
		link_report(&node->link, &heartbeat->received, &heartbeat->resend);
	send(node, to->rank, &message, actions);
}

static size_t window_bytes(const struct node *node)
{
	size_t bytes = (size_t)node->sync.settings.value[WIRE_WINDOW];
	return node->config.window_max_bytes == 0 ? bytes : size_min(bytes, node->config.window_max_bytes);
}

/* Sends what the link has room for: first what must be sent again, then small frames, then chunks. */
static void pump(struct node *node, struct actions *actions)
{
	struct neighbour *right = view_side(&node->view, VIEW_RIGHT);
	if (right == NULL || right->incarnation == 0 || !right->accepts_us || right->down)
		return;
	link_retry(&node->link, node->now_us);
	uint32_t sent = 0;
	while (sent < SEND_MAX) {
		uint64_t sequence;
		const struct frame *frame = link_next(&node->link, &sequence);
		struct frame chunk;
		if (frame != NULL) {
			struct message message;
			sync_message(&node->sync, frame, &message);
			message.sequence = sequence;
			send(node, right->rank, &message, actions);
			sent++;
		} else if (link_launch_waiting(&node->link, window_bytes(node), node->now_us)) {
			continue;
		} else if (round_next_chunk(&node->sync, window_bytes(node), &chunk)) {
			link_launch(&node->link, &chunk, node->now_us);
		} else {
			break;
		}
	}
	actions_wake(actions, sent == SEND_MAX ? node->now_us : link_retry_at(&node->link));
}

/* ---- Hello and view ---- */

static void push_roll(struct node *node, uint32_t origin)
{
	struct frame frame = {.kind = MESSAGE_ROLL, .origin = origin};
	if (node->config.member_count > 1 && origin != ring_right(node->config.rank, node->config.member_count))
		CHECK(link_push(&node->link, &frame) == 0);
}

static void roll(struct node *node, uint32_t rank, struct actions *actions)
{
	if (!view_roll(&node->view, rank))
		return;
	push_roll(node, rank);
	if (node->view.rolled_count < node->view.count || node->view.complete)
		return;
	node->view.complete = true;
	actions_note(actions, (struct note){.code = NOTE_RING_COMPLETE, .a = node->view.count});
	part_begin(&node->sync, node->now_us, actions);
}

/* A neighbour's new incarnation has been accepted: the streams with it start afresh. */
static void welcome(struct node *node, struct neighbour *neighbour, struct actions *actions)
{
	actions_note(actions, (struct note){.code = NOTE_PEER_HEARD, .peer = neighbour->rank});
	if (neighbour == view_side(&node->view, VIEW_LEFT))
		link_reset_left(&node->link);
	if (neighbour == view_side(&node->view, VIEW_RIGHT)) {
		link_reset_right(&node->link);
		for (uint32_t rank = 0; rank < node->view.count; rank++)
			if (node->view.rolled[rank])
				push_roll(node, rank);
	}
	send_heartbeat(node, neighbour, actions);
	send_hello(node, neighbour, actions);
}

static void take_hello(struct node *node, const struct message *message, struct actions *actions)
{
	bool is_new;
	struct message answer = {.kind = MESSAGE_REFUSE};
	struct neighbour *neighbour = view_neighbour(&node->view, message->from);
	if (view_hello(&node->view, message, node->now_us, &is_new, &answer.refuse) == 0) {
		if (is_new)
			welcome(node, neighbour, actions);
		return;
	}
	send(node, message->from, &answer, actions);
	if (neighbour == NULL) {
		node->dropped++;
		return;
	}
	bool is_known = neighbour->refused_incarnation == message->incarnation && neighbour->refused == answer.refuse.reason;
	neighbour->refused = answer.refuse.reason;
	neighbour->refused_incarnation = message->incarnation;
	if (is_known)
		return;
	actions_note(actions, (struct note){
		.code = answer.refuse.reason == REFUSAL_RESTARTED ? NOTE_PEER_RESTARTED : NOTE_PEER_REFUSED,
		.peer = message->from, .a = answer.refuse.fact_index, .detail = (int)answer.refuse.reason});
}

static void take_refuse(struct node *node, const struct message *message, struct actions *actions)
{
	struct neighbour *neighbour = view_neighbour(&node->view, message->from);
	if (neighbour == NULL || neighbour->refuses_us == message->refuse.reason)
		return;
	neighbour->refuses_us = message->refuse.reason;
	actions_note(actions, (struct note){.code = NOTE_REFUSED_BY, .peer = message->from,
					    .a = message->refuse.fact_index, .detail = (int)message->refuse.reason});
}

static void take_heartbeat(struct node *node, struct neighbour *from, const struct heartbeat *heartbeat)
{
	from->suspect_count = 0;
	for (uint32_t i = 0; i < heartbeat->suspect_count; i++)
		if (heartbeat->suspects[i] < node->view.count && from->suspect_count < SUSPECT_COUNT_MAX)
			from->suspects[from->suspect_count++] = heartbeat->suspects[i];
	if (from == view_side(&node->view, VIEW_RIGHT) && from->accepts_us &&
	    link_acknowledge(&node->link, heartbeat->received, heartbeat->resend, node->now_us))
		node->sync.progress_us = node->now_us;
}

/* A frame of the ring stream, in its place. */
static int take_in_order(struct node *node, const struct message *message, struct actions *actions)
{
	switch (message->kind) {
	case MESSAGE_ROLL:
		if (message->roll_origin >= node->view.count)
			return EDIT_ERROR_MALFORMED;
		roll(node, message->roll_origin, actions);
		return 0;
	case MESSAGE_RECORD: return sync_record(&node->sync, &message->record, node->now_us);
	case MESSAGE_CHUNK: return round_chunk(&node->sync, &message->chunk, message->payload, node->now_us);
	case MESSAGE_CONFIRM: return sync_confirm(&node->sync, &message->confirm, actions);
	case MESSAGE_CHANGE: return sync_change(&node->sync, &message->change, actions);
	default: return EDIT_ERROR_MALFORMED;
	}
}

static void take_stream(struct node *node, const struct message *message, struct actions *actions)
{
	/* Not acknowledged either, so it comes again: what there is no room for, and, until the ring is complete here, all but
	 * rolls. A neighbour's new incarnation may still be let in then, and what waits for the old one is dropped: rolls are
	 * said again, nothing else could be. */
	bool is_early = !node->view.complete && message->kind != MESSAGE_ROLL;
	if (is_early || node->link.waiting_count >= frames_owed(&node->config)) {
		node->dropped++;
		return;
	}
	if (!link_accept(&node->link, message->sequence, message->payload_bytes, window_bytes(node), node->now_us))
		return;
	if (take_in_order(node, message, actions) != 0)
		node->dropped++;
}

static void take_message(struct node *node, const struct message *message, struct actions *actions)
{
	if (message->kind == MESSAGE_HELLO) {
		take_hello(node, message, actions);
		return;
	}
	if (message->kind == MESSAGE_REFUSE) {
		take_refuse(node, message, actions);
		return;
	}
	bool is_for_us = message->receiver == node->config.incarnation;
	struct neighbour *from = view_neighbour(&node->view, message->from);
	if (from == NULL || !view_is_known(from, message->incarnation) || message->view != VIEW_NUMBER) {
		node->dropped++;
		return;
	}
	uint64_t was_down_us = view_heard(from, node->now_us);
	if (was_down_us > 0)
		actions_note(actions, (struct note){.code = NOTE_PEER_UP, .peer = from->rank, .a = was_down_us / 1000});
	if (is_for_us && !from->accepts_us)
		from->refuses_us = 0;
	from->accepts_us = is_for_us;
	if (message->kind == MESSAGE_HEARTBEAT)
		take_heartbeat(node, from, &message->heartbeat);
	else if (is_for_us && from == view_side(&node->view, VIEW_LEFT))
		take_stream(node, message, actions);
	else
		node->dropped++;
}

/* ---- Time ---- */

static void watch_neighbours(struct node *node, struct actions *actions)
{
	bool heartbeat_is_due = node->now_us >= node->heartbeat_at_us;
	bool hello_is_due = node->now_us >= node->hello_at_us;
	for (uint32_t i = 0; i < node->view.side_count; i++) {
		struct neighbour *side = &node->view.side[i];
		if (view_check_silence(&node->view, side, node->now_us))
			actions_note(actions, (struct note){.code = NOTE_PEER_DOWN, .peer = side->rank,
							    .a = (node->now_us - side->heard_us) / 1000});
		if (hello_is_due && (side->incarnation == 0 || !side->accepts_us || side->down))
			send_hello(node, side, actions);
		bool must_report = side == view_side(&node->view, VIEW_LEFT) && link_must_report(&node->link, node->now_us);
		if (side->incarnation != 0 && (heartbeat_is_due || must_report))
			send_heartbeat(node, side, actions);
		if (side->incarnation != 0 && !side->down)
			actions_wake(actions, side->heard_us + node->config.silence_us);
	}
	if (heartbeat_is_due)
		node->heartbeat_at_us = node->now_us + node->config.heartbeat_us;
	if (hello_is_due)
		node->hello_at_us = node->now_us + node->config.heartbeat_us / HELLO_PER_HEARTBEAT;
	if (node->view.side_count == 0)
		return;
	actions_wake(actions, node->heartbeat_at_us);
	actions_wake(actions, node->hello_at_us);
	actions_wake(actions, node->link.report_at_us);
}

/* Whom a round that does not move waits for; member_count if it moves or waits for a worker that is alive. */
static uint32_t stalled_by(const struct node *node)
{
	const struct sync *sync = &node->sync;
	if (!node->view.complete || !sync->offered || node->now_us - sync->progress_us < node->config.silence_us)
		return node->view.count;
	uint32_t down = view_first_down(&node->view);
	if (down < node->view.count)
		return down;
	return sync_waits_for(sync) == sync->count ? ring_left(sync->rank, sync->count) : sync->count;
}

static void watch_round(struct node *node, struct actions *actions)
{
	uint32_t by = stalled_by(node);
	if (by == node->view.count) {
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
		int error = node->view.complete ? sync_propose(sync, &change, actions) : EDIT_ERROR_UNHEALTHY;
		if (error != 0)
			actions_note(actions, (struct note){.code = NOTE_CHANGE_REFUSED, .detail = error});
		break;
	}
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
		node->begin_us = node->heartbeat_at_us = node->hello_at_us = event->now_us;
		/* The first interval begins here: workers train while the ring is gathering. */
		node->sync.done_us = node->sync.part_us = event->now_us;
	}
	take_event(node, event, actions);
	if (!node->own_roll && view_is_joined(&node->view)) {
		node->own_roll = true;
		roll(node, node->config.rank, actions);
	}
	if (node->view.complete)
		round_advance(&node->sync, node->now_us, actions);
	pump(node, actions);
	watch_neighbours(node, actions);
	watch_round(node, actions);
}

/* ---- Looking ---- */

static enum node_phase phase_of(const struct node *node)
{
	if (node->sync.finished)
		return NODE_FINISHED;
	if (!node->view.complete)
		return NODE_GATHERING;
	if (node->sync.offered)
		return NODE_SYNCING;
	return node->sync.paused ? NODE_PAUSED : NODE_TRAINING;
}

static uint32_t gathering_waits_for(const struct node *node)
{
	for (uint32_t i = 0; i < node->view.side_count; i++)
		if (node->view.side[i].incarnation == 0 || !node->view.side[i].accepts_us || node->view.side[i].down)
			return node->view.side[i].rank;
	for (uint32_t rank = 0; rank < node->view.count; rank++)
		if (!node->view.rolled[rank])
			return rank;
	return node->view.count;
}

void node_status(const struct node *node, uint64_t now_us, struct node_status *ret_status)
{
	const struct sync *sync = &node->sync;
	*ret_status = (struct node_status){
		.phase = phase_of(node), .round = sync->round, .round_bytes = sync->round_bytes, .sync_us = sync->sync_us,
		.frames_sent_again = node->link.sent_again, .frames_dropped = node->dropped,
		.waiting_for = node->view.count, .pending_changes = (uint32_t)sync->proposals.count};
	switch (ret_status->phase) {
	case NODE_GATHERING:
		ret_status->waiting_for = gathering_waits_for(node);
		ret_status->stalled_us = now_us - node->begin_us;
		break;
	case NODE_SYNCING:
		ret_status->waiting_for = sync_waits_for(sync);
		if (now_us - sync->progress_us >= node->config.silence_us)
			ret_status->stalled_us = now_us - sync->progress_us;
		break;
	default: break;
	}
	uint32_t down = view_first_down(&node->view);
	if (down < node->view.count)
		ret_status->waiting_for = down;
}

void node_peer(const struct node *node, uint32_t rank, uint64_t now_us, struct node_peer *ret_peer)
{
	CHECK(rank < node->view.count);
	*ret_peer = (struct node_peer){.state = node->view.rolled[rank] ? PEER_LIVE : PEER_UNKNOWN,
				       .lateness_us = node->sync.lateness_us[rank],
				       .lateness_mean_us = (uint64_t)node->sync.lateness_mean_us[rank]};
	if (view_is_down(&node->view, rank))
		ret_peer->state = PEER_DOWN;
	for (uint32_t i = 0; i < node->view.side_count; i++) {
		const struct neighbour *side = &node->view.side[i];
		if (side->rank != rank)
			continue;
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

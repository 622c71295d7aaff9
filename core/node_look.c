/* What can be seen of a node. Changes nothing. */

#include <string.h>

#include "core/heal.h"
#include "core/node.h"
#include "core/node_rings.h"
#include "core/standing.h"

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

static enum node_phase phase_of(const struct node *node)
{
	if (node->sync.finished)
		return NODE_FINISHED;
	if (!node->complete || !node->sync.is_ready)
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
			ret_status->waiting_for = node_home_left(node);
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
	uint32_t down = node_first_down(node);
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

uint64_t node_since(const struct node *node) { return node->sync.since; }
bool node_is_ready(const struct node *node)
{
	return node->complete && node->sync.is_ready;
}

bool node_offer_waits(const struct node *node)
{
	return node->sync.waiting;
}

bool node_averages_gradients(const struct node *node)
{
	return node->sync.next_gradients;
}

bool node_is_aligning(const struct node *node)
{
	return node->sync.aligns;
}

bool node_layer_is_rolled_back(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return node->sync.state[layer_index].is_rolled_back;
}

const struct detector *node_detector(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return &node->sync.state[layer_index].detector;
}

uint64_t node_layer_round(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return node->sync.state[layer_index].is_nothing ? LAYER_NOTHING : node->sync.state[layer_index].round;
}

uint64_t node_layer_since(const struct node *node, size_t layer_index)
{
	CHECK(layer_index < node->sync.layer_count);
	return node->sync.state[layer_index].since;
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

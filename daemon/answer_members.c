/* Answers about the members: peers and penalties. Only looks. */

#include <math.h>
#include <string.h>

#include "daemon/answer.h"
#include "daemon/log.h"
#include "daemon/rounds.h"

const char *answer_state_text(enum peer_state state)
{
	switch (state) {
	case PEER_UNKNOWN: return "unknown";
	case PEER_LIVE: return "live";
	case PEER_DOWN: return "down";
	case PEER_REFUSED: return "refused";
	case PEER_RESTARTED: return "restarted";
	}
	return "unknown";
}

const char *answer_member_text(const struct daemon *daemon, uint32_t rank, const struct node_peer *known)
{
	if (rank == daemon->config.rank)
		return "self";
	struct dealer_trouble trouble;
	if (known->state != PEER_LIVE && transport_trouble(daemon->transport, rank, &trouble))
		return trouble.word;
	return answer_state_text(known->state);
}

/* What keys have to do with it: the state of one that is not live, and why. */
static void put_trouble(struct answer *answer, Edit__Control__Peer *peer, uint32_t global, bool is_live)
{
	struct dealer_trouble trouble;
	bool is_trouble = transport_trouble(answer->daemon->transport, global, &trouble);
	peer->key_failures = trouble.failures;
	if (!is_trouble)
		return;
	peer->refusal = answer_text(answer, trouble.text);
	if (!is_live)
		peer->state = answer_text(answer, trouble.word);
}

static Edit__Control__Peer *make_peer(struct answer *answer, uint32_t rank)
{
	const struct daemon *daemon = answer->daemon;
	uint32_t own = daemon->config.row, count = daemon->config.replicas;
	uint32_t global = rank * daemon->config.shards + daemon->config.column;
	Edit__Control__Peer *peer = answer_take(answer, sizeof *peer);
	edit__control__peer__init(peer);
	peer->name = daemon->config.peers[rank];
	peer->address = daemon->config.addresses[global];
	peer->neighbour = rank != own && (rank == (own + 1) % count || own == (rank + 1) % count);
	peer->state = answer_text(answer, rank == own ? "self" : "unknown");
	peer->loss = NAN;
	if (daemon->driver.refusal[0] && daemon->driver.refusal_rank == global)
		peer->refusal = answer_text(answer, daemon->driver.refusal);
	const struct node *node = daemon->driver.node;
	if (!node) {
		put_trouble(answer, peer, global, false);
		return peer;
	}

	struct node_peer known;
	node_peer(node, rank, daemon->now_us, &known);
	if (rank != own)
		peer->state = answer_text(answer, answer_state_text(known.state));
	put_trouble(answer, peer, global, known.state == PEER_LIVE);
	peer->silent_us = known.silent_us;
	peer->lateness_us = known.lateness_us;
	peer->lateness_mean_us = known.lateness_mean_us;
	const struct record *record = node_record(node, 0, rank);
	if (record->round == 0)
		return peer;
	peer->steps = record->steps;
	peer->tokens = record->tokens;
	peer->loss = record->loss;
	peer->tokens_per_second = rounds_speed(record);
	peer->exposed_us = record->exposed_us;
	peer->left_out = rounds_left_out(node, rank, daemon->run.description.layer_count);
	return peer;
}

/* A node of the own replica: it is in no record, so nothing is measured of it. */
static Edit__Control__Peer *make_mate(struct answer *answer, uint32_t rank)
{
	const struct daemon *daemon = answer->daemon;
	struct node_peer known = {.state = PEER_UNKNOWN};
	Edit__Control__Peer *mate = answer_take(answer, sizeof *mate);
	edit__control__peer__init(mate);
	if (daemon->driver.node)
		node_mesh_peer(daemon->driver.node, rank, daemon->now_us, &known);
	mate->name = daemon->config.names[rank];
	mate->address = (char *)(uintptr_t)config_address(&daemon->config, rank);
	mate->state = answer_text(answer, answer_state_text(known.state));
	mate->neighbour = known.is_neighbour;
	mate->silent_us = known.silent_us;
	mate->loss = NAN;
	if (daemon->driver.refusal[0] && daemon->driver.refusal_rank == rank)
		mate->refusal = answer_text(answer, daemon->driver.refusal);
	put_trouble(answer, mate, rank, known.state == PEER_LIVE);
	return mate;
}

static void put_mates(struct answer *answer, Edit__Control__Peers *peers)
{
	const struct config *config = &answer->daemon->config;
	peers->mates = (Edit__Control__Peer **)answer_list(answer, config->shards);
	for (uint32_t column = 0; column < config->shards && peers->mates; column++)
		if (column != config->column)
			peers->mates[peers->n_mates++] = make_mate(answer, config->row * config->shards + column);
}

int answer_peers(struct answer *answer, const struct control_request *request)
{
	(void)request;
	const struct daemon *daemon = answer->daemon;
	Edit__Control__Peers *peers = answer_take(answer, sizeof *peers);
	edit__control__peers__init(peers);
	peers->peers = (Edit__Control__Peer **)answer_list(answer, daemon->config.replicas);
	for (uint32_t rank = 0; rank < daemon->config.replicas && peers->peers; rank++)
		peers->peers[peers->n_peers++] = make_peer(answer, rank);
	peers->round = daemon->driver.node ? daemon->driver.record.round : 0;
	put_mates(answer, peers);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_PEERS;
	answer->reply.peers = peers;
	return 0;
}

static Edit__Control__Penalty *make_penalty(struct answer *answer, size_t layer_index, uint32_t rank)
{
	const struct node *node = answer->daemon->driver.node;
	const struct record *record = node_record(node, layer_index, rank);
	Edit__Control__Penalty *penalty = answer_take(answer, sizeof *penalty);
	edit__control__penalty__init(penalty);
	penalty->layer_index = (uint32_t)layer_index;
	/* The texts of verdicts are constants: no copy, there may be very many of them. */
	penalty->verdict =
		(char *)(uintptr_t)log_verdict_text(record->round > 0 ? (int)record->verdict : VERDICT_ABSENT);
	penalty->norm = penalty->mean = penalty->sd = NAN;
	penalty->round = record->round;
	if (record->round == 0)
		return penalty;
	penalty->norm = record->norm;
	penalty->mean = record->mean;
	penalty->sd = record->sd;
	penalty->z = record->z;
	penalty->weight = node_weight(node, layer_index, rank);
	return penalty;
}

static Edit__Control__PenaltyPeer *make_penalty_peer(struct answer *answer, uint32_t rank)
{
	const struct daemon *daemon = answer->daemon;
	const struct node *node = daemon->driver.node;
	size_t count = daemon->run.description.layer_count;
	struct node_peer known;
	node_peer(node, rank, daemon->now_us, &known);
	const struct record *record = node_record(node, 0, rank);
	Edit__Control__PenaltyPeer *peer = answer_take(answer, sizeof *peer);
	edit__control__penalty_peer__init(peer);
	peer->name = daemon->config.peers[rank];
	peer->steps = record->round > 0 ? record->steps : 0;
	peer->loss = record->round > 0 ? record->loss : NAN;
	peer->lateness_us = known.lateness_us;
	peer->lateness_mean_us = known.lateness_mean_us;
	peer->layers = (Edit__Control__Penalty **)answer_list(answer, count);
	for (size_t i = 0; i < count && peer->layers && !answer->is_short; i++)
		peer->layers[peer->n_layers++] = make_penalty(answer, i, rank);
	return peer;
}

int answer_penalties(struct answer *answer, const struct control_request *request)
{
	(void)request;
	int error = answer_needs_node(answer);
	if (error)
		return error;
	const struct daemon *daemon = answer->daemon;
	size_t count = daemon->run.description.layer_count;
	Edit__Control__Penalties *penalties = answer_take(answer, sizeof *penalties);
	edit__control__penalties__init(penalties);
	penalties->round = daemon->driver.record.round;
	penalties->layer_names = (char **)answer_list(answer, count);
	for (size_t i = 0; i < count && penalties->layer_names; i++)
		penalties->layer_names[penalties->n_layer_names++] = daemon->run.description.layers[i].name;
	penalties->peers = (Edit__Control__PenaltyPeer **)answer_list(answer, daemon->config.replicas);
	for (uint32_t rank = 0; rank < daemon->config.replicas && penalties->peers && !answer->is_short; rank++)
		penalties->peers[penalties->n_peers++] = make_penalty_peer(answer, rank);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_PENALTIES;
	answer->reply.penalties = penalties;
	return 0;
}

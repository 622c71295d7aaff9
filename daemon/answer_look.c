/* Answers about this node and the layers: status, layers, get, hash, change. Only looks. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/advice.h"
#include "daemon/answer.h"
#include "daemon/control.h"
#include "daemon/rounds.h"

static uint64_t resident_bytes(void)
{
	unsigned long pages = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file && fscanf(file, "%lu %lu", &pages, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static const char *phase_text(enum node_phase phase)
{
	switch (phase) {
	case NODE_GATHERING: return "gathering";
	case NODE_TRAINING: return "training";
	case NODE_SYNCING: return "syncing";
	case NODE_PAUSED: return "paused";
	case NODE_FINISHED: return "finished";
	}
	return "unknown";
}

uint32_t answer_waits_for(const struct daemon *daemon, const struct node_status *status)
{
	return daemon->lost_worker[0] ? daemon->config.rank : status->waiting_for;
}

static bool is_live(const struct daemon *daemon, uint32_t rank)
{
	struct node_peer peer;
	node_mesh_peer(daemon->driver.node, rank, daemon->now_us, &peer);
	return rank == daemon->config.rank || peer.state == PEER_LIVE;
}

/* All members of the own rings there and moving, and the own worker too unless the run is over. */
static bool is_healthy(const struct daemon *daemon, const struct node_status *status)
{
	const struct config *config = &daemon->config;
	for (uint32_t row = 0; row < config->replicas; row++)
		if (!is_live(daemon, row * config->shards + config->column))
			return false;
	for (uint32_t column = 0; column < config->shards; column++)
		if (!is_live(daemon, config->row * config->shards + column))
			return false;
	if (status->phase == NODE_GATHERING || status->stalled_us > 0 || daemon->driver.damage[0] ||
	    daemon->health.lost[0])
		return false;
	return status->phase == NODE_FINISHED || daemon->port.phase == PORT_READY;
}

static void put_node(struct answer *answer, Edit__Control__Status *status)
{
	const struct daemon *daemon = answer->daemon;
	const struct driver *driver = &daemon->driver;
	struct node_status node;
	struct round_sum sum;
	uint32_t count = daemon->config.replicas;
	node_status(driver->node, daemon->now_us, &node);
	rounds_sum(driver->node, count, daemon->run.description.layer_count, &sum);
	const struct record *record = node_record(driver->node, 0, daemon->config.row);

	status->phase = answer_text(answer, daemon->lost_worker[0] ? "no-worker" : phase_text(node.phase));
	status->exchange = answer_text(answer, node_averages_gradients(driver->node) ? "gradients" : "parameters");
	status->round = node.round;
	status->loss = driver->loss;
	status->ring_loss = sum.loss;
	status->tokens_per_second = rounds_speed(record);
	status->ring_tokens_per_second = sum.tokens_per_second;
	status->sync_us = node.sync_us;
	status->exposed_us = driver_exposed_us(driver);
	status->round_bytes = node.round_bytes;
	status->outliers = sum.left_out;
	status->stalled_us = node.stalled_us;
	uint32_t waits_for = answer_waits_for(daemon, &node);
	if (waits_for < daemon->config.member_count)
		status->waiting_for = daemon->config.names[waits_for];
	status->frames_sent_again = node.frames_sent_again;
	status->frames_dropped = node.frames_dropped;
	status->hash_differences = daemon->driver.differences;
	status->layers_fetched = daemon->driver.fetched;
	status->healthy = is_healthy(daemon, &node);
	status->interval_us = record->interval_us;
	status->cumulative_sync_us = driver->record.sync_us;

	const struct segment_header *header = daemon->run.segment.header;
	status->step = atomic_load(&header->step);
	status->tokens = atomic_load(&header->tokens);
	status->cumulative_exposed_us = atomic_load(&header->wait_us);
}

int answer_status(struct answer *answer, const struct control_request *request)
{
	(void)request;
	const struct daemon *daemon = answer->daemon;
	struct transport_counts counts;
	char text[256], advice[LINE_BYTES];
	Edit__Control__Status *status = answer_take(answer, sizeof *status);
	edit__control__status__init(status);
	daemon_status_text(daemon, text, sizeof text);
	advice_text(daemon, advice, sizeof advice);
	transport_counts(daemon->transport, &counts);
	status->name = daemon->config.names[daemon->config.rank];
	status->run = answer_text(answer, config_text(&daemon->config, NODE_RUN));
	status->version = answer_text(answer, EDIT_VERSION);
	status->phase = answer_text(answer, "no-worker");
	status->text = answer_text(answer, text);
	status->rank = daemon->config.rank;
	status->member_count = daemon->config.member_count;
	status->rows = daemon->config.replicas;
	status->columns = daemon->config.shards;
	status->row = daemon->config.row;
	status->column = daemon->config.column;
	status->advice = answer_text(answer, advice);
	status->incarnation = daemon->incarnation;
	status->loss = status->ring_loss = NAN;
	if (daemon->driver.node)
		put_node(answer, status);
	status->worker_pid = daemon->port.phase >= PORT_ATTACHED ? (uint64_t)daemon->port.pid : 0;
	status->worker_restarts = daemon->driver.record.worker_restarts;
	status->frames_dropped += counts.stranger_frames + counts.malformed_frames + control_malformed(daemon->control);
	answer_put_heard(daemon, status);
	status->encrypted = daemon->config.is_encrypted;
	status->keys_refused = counts.keys_refused;
	status->handshakes_failed = counts.handshakes_failed;
	status->requests_denied = control_denied(daemon->control);
	status->memory_bytes = resident_bytes();
	status->checkpoint = answer_text(answer, daemon->checkpoint.newest);
	status->uptime_us = daemon->now_us - daemon->begin_us;
	status->degraded = answer_text(answer, daemon_degraded(daemon));
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_STATUS;
	answer->reply.status = status;
	return 0;
}

static const char *layer_text(enum node_layer_state state)
{
	switch (state) {
	case NODE_LAYER_WORKER: return "worker";
	case NODE_LAYER_OFFERED: return "offered";
	case NODE_LAYER_SCALARS: return "scalars";
	case NODE_LAYER_REDUCE: return "reduce";
	case NODE_LAYER_GATHER: return "gather";
	}
	return "unknown";
}

static void put_layer(struct answer *answer, Edit__Control__Layer *layer, size_t index)
{
	const struct daemon *daemon = answer->daemon;
	const struct node *node = daemon->driver.node;
	uint64_t times_us[3];
	double sum = 0;
	edit__control__layer__init(layer);
	node_layer_times(node, index, times_us);
	layer->name = daemon->run.description.layers[index].name;
	layer->size = daemon->run.description.layers[index].size;
	layer->round = node_layer_round(node, index);
	layer->state = answer_text(answer, layer_text(node_layer_state(node, index)));
	layer->scalars_us = times_us[0];
	layer->reduce_us = times_us[1];
	layer->gather_us = times_us[2];
	for (uint32_t rank = 0; rank < daemon->config.replicas; rank++) {
		const struct record *record = node_record(node, index, rank);
		if (record->round == 0 || record->verdict != VERDICT_ACCEPTED)
			continue;
		sum += record->norm;
		layer->accepted++;
	}
	layer->mean_norm = layer->accepted > 0 ? sum / layer->accepted : NAN;
}

int answer_layers(struct answer *answer, const struct control_request *request)
{
	(void)request;
	int error = answer_needs_node(answer);
	if (error)
		return error;
	size_t count = answer->daemon->run.description.layer_count;
	Edit__Control__Layers *layers = answer_take(answer, sizeof *layers);
	edit__control__layers__init(layers);
	layers->layers = (Edit__Control__Layer **)answer_list(answer, count);
	for (size_t i = 0; i < count && layers->layers; i++) {
		layers->layers[i] = answer_take(answer, sizeof *layers->layers[i]);
		put_layer(answer, layers->layers[i], i);
		layers->n_layers++;
	}
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_LAYERS;
	answer->reply.layers = layers;
	return 0;
}

static Edit__Control__Setting *make_setting(struct answer *answer, size_t index)
{
	const struct daemon *daemon = answer->daemon;
	const struct setting *row = setting_at(index);
	char text[SETTING_TEXT_MAX + 1];
	Edit__Control__Setting *setting = answer_take(answer, sizeof *setting);
	edit__control__setting__init(setting);
	setting->name = answer_text(answer, row->name);
	setting->value = answer_text(answer, config_text(&daemon->config, index));
	setting->unit = answer_text(answer, row->unit);
	setting->scope = answer_text(answer, row->is_ring ? "ring" : "node");
	setting->standard = answer_text(answer, setting_standard(index).text);
	setting->help = answer_text(answer, row->help);
	if (row->is_ring && daemon->driver.node) {
		setting->value = answer_text(
			answer, setting_format(index, node_settings(daemon->driver.node)->value[index], text));
		setting->since_round = node_setting_round(daemon->driver.node, (enum ring_setting)index);
	}
	return setting;
}

int answer_get(struct answer *answer, const struct control_request *request)
{
	size_t first = 0, end = SETTING_END;
	if (request->setting[0]) {
		int error = setting_find(request->setting, &first, &answer->why);
		if (error)
			return error;
		end = first + 1;
	}
	Edit__Control__Settings *settings = answer_take(answer, sizeof *settings);
	edit__control__settings__init(settings);
	settings->settings = (Edit__Control__Setting **)answer_list(answer, end - first);
	for (size_t i = first; i < end && settings->settings; i++)
		settings->settings[settings->n_settings++] = make_setting(answer, i);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_SETTINGS;
	answer->reply.settings = settings;
	return 0;
}

/* The hashes of a layer that belong to the latest round of which all members have told theirs; if there is none,
 * those of the latest round, with the missing ones as round 0. */
static void put_hashes(struct answer *answer, Edit__Control__LayerHash *layer, size_t index)
{
	const struct daemon *daemon = answer->daemon;
	uint32_t count = daemon->config.replicas;
	uint64_t round = 0;
	unsigned chosen = 0;
	for (unsigned back = 0; back < 2; back++) {
		uint32_t told = 0;
		uint64_t own_round, other_round;
		node_hash(daemon->driver.node, index, daemon->config.row, back, &own_round);
		for (uint32_t rank = 0; rank < count; rank++) {
			node_hash(daemon->driver.node, index, rank, back, &other_round);
			told += own_round > 0 && other_round == own_round;
		}
		if (told == count && own_round > round) {
			round = own_round;
			chosen = back;
		}
	}
	if (round == 0)
		round = node_layer_round(daemon->driver.node, index);

	edit__control__layer_hash__init(layer);
	layer->layer = daemon->run.description.layers[index].name;
	layer->round = round;
	layer->equal = true;
	layer->members = (Edit__Control__MemberHash **)answer_list(answer, count);
	for (uint32_t rank = 0; rank < count && layer->members; rank++) {
		uint64_t told_round, hash = node_hash(daemon->driver.node, index, rank, chosen, &told_round);
		Edit__Control__MemberHash *member = answer_take(answer, sizeof *member);
		edit__control__member_hash__init(member);
		member->name = daemon->config.peers[rank];
		if (told_round == round && round > 0) {
			member->hash = hash;
			member->round = round;
		}
		layer->members[layer->n_members++] = member;
		layer->equal = layer->equal && member->round == round && member->hash == layer->members[0]->hash;
	}
}

int answer_hash(struct answer *answer, const struct control_request *request)
{
	(void)request;
	int error = answer_needs_node(answer);
	if (error)
		return error;
	size_t count = answer->daemon->run.description.layer_count;
	Edit__Control__Hashes *hashes = answer_take(answer, sizeof *hashes);
	edit__control__hashes__init(hashes);
	hashes->layers = (Edit__Control__LayerHash **)answer_list(answer, count);
	hashes->equal = true;
	for (size_t i = 0; i < count && hashes->layers; i++) {
		Edit__Control__LayerHash *layer = answer_take(answer, sizeof *layer);
		put_hashes(answer, layer, i);
		hashes->layers[hashes->n_layers++] = layer;
		hashes->equal = hashes->equal && layer->equal;
		hashes->round = i == 0 ? layer->round : u64_min(hashes->round, layer->round);
	}
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_HASHES;
	answer->reply.hashes = hashes;
	return 0;
}

int answer_change(struct answer *answer, const struct control_request *request)
{
	const struct change_entry *entry = changes_find(&answer->daemon->driver.changes, request->change);
	if (!entry || request->change == 0)
		return line_fail(&answer->why, EDIT_ERROR_UNKNOWN, "change %016" PRIx64 " is not known here",
				 request->change);
	answer_put_change(answer, entry);
	return 0;
}

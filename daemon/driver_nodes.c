/* The nodes of a driver: the one in force, made when the run begins and again in each view, and those before whose frames are on their way. */

#include "daemon/driver.h"

#include <stdlib.h>

/* A node's memory, in which frames may lie that are on their way. */
struct driver_node {
	struct driver_node *former;
	struct lease lease;
	void *block;
};

/* ---- Memory ---- */

/* Frees the nodes behind `keep` (NULL: all of them) whose frames are out of the transport's hands; all, if the transport is closed. */
static void free_nodes(struct driver *driver, struct driver_node *keep)
{
	struct driver_node **at = keep ? &keep->former : &driver->own;
	while (*at) {
		struct driver_node *one = *at;
		if (keep && !lease_is_free(&one->lease)) {
			at = &one->former;
			continue;
		}
		*at = one->former;
		free(one->block);
		free(one);
	}
}

void driver_free_nodes(struct driver *driver)
{
	free_nodes(driver, driver->own);
}

void driver_close(struct driver *driver)
{
	free_nodes(driver, NULL);
	free(driver->hash_queue);
	history_close(&driver->history);
	free(driver->handed);
	driver->handed = NULL;
	driver->node = NULL;
	driver->hash_queue = NULL;
}

/* ---- Beginning, and going on ---- */

/* layer_rounds, detectors: [layer_count], or NULL where a forerunner knows. */
static struct node_config node_config_of(const struct driver *driver, const uint64_t *layer_rounds, const struct detector *detectors)
{
	const struct config *config = driver->config;
	const struct run *run = driver->run;
	return (struct node_config){
		.rank = config->row, .member_count = config->replicas, .column = config->column, .shards = config->shards,
		.fanout = config->fanout,
		.mates = (const char *const *)config->mates, .incarnation = driver->incarnation,
		.names = (const char *const *)config->peers, .facts = run->facts.list, .fact_count = config->view == VIEW_FIRST ? run->facts.count : run->facts.lasting_count,
		.layers = run->layers, .layer_count = run->description.layer_count, .round = run->state.run->round,
		.view = config->view, .since = run->state.run->since, .layer_rounds = layer_rounds, .is_outdated = run_is_outdated(run),
		.finished = atomic_load(&run->segment.header->stop) == SEGMENT_STOP_ENDED, .is_stale = run_is_stale(run),
		.step = atomic_load(&run->segment.header->step) + atomic_load(&run->segment.header->lead),
		.detectors = detectors, .settings = run->state.run->settings,
		.heartbeat_us = (uint64_t)config_number(config, NODE_HEARTBEAT_MS) * 1000,
		.silence_us = (uint64_t)config_number(config, NODE_SILENCE_MS) * 1000,
		.retry_us = (uint64_t)config_number(config, NODE_RETRY_MS) * 1000,
		.window_max_bytes = (size_t)config_number(config, NODE_WINDOW_MAX)};
}

/* What the worker must know before the ring is complete. */
static void prepare_worker(struct driver *driver)
{
	struct segment_header *header = driver->run->segment.header;
	atomic_store(&header->paused, 0);
	atomic_store(&header->round, driver->record.round);
	driver_tell_overlap(driver);
	const double *settings = driver->record.settings.value;
	bool is_averaging = node_averages_gradients(driver->node);
	/* For an alignment all must come to the same step, whenever the ring is complete. */
	bool is_by_steps = settings[SYNC_PERIOD] == 0 && !is_averaging;
	atomic_store(&header->gradients, is_averaging);
	if (atomic_load(&header->offer_step) == UINT64_MAX && atomic_load(&header->stop) == 0 && is_by_steps)
		driver_schedule(driver, node_is_aligning(driver->node) ? 1 : (uint64_t)settings[SYNC_INTERVAL], false);
	run_give_layers(driver->run);
	driver->must_ring = true;
}

/* Takes memory for a node, before those that are there. NULL: there is none. */
static struct driver_node *add_node(struct driver *driver, const struct node_config *config)
{
	struct driver_node *added = calloc(1, sizeof *added);
	void *block = added ? aligned_alloc(64, node_size(config)) : NULL;
	if (!block) {
		free(added);
		return NULL;
	}
	*added = (struct driver_node){.former = driver->own, .block = block};
	driver->own = added;
	driver->block_bytes = node_size(config);
	transport_lease(driver->transport, &added->lease);
	return added;
}

/* What is here of each layer: LAYER_NOTHING, or of which round it is, and the view in which that was committed. */
static void look_at_layers(const struct state *state, uint64_t *rounds, uint64_t *since, bool *rolled_back, struct detector *detectors)
{
	for (size_t i = 0; i < state->layer_count; i++) {
		bool is_here = !state->places[i].is_damaged;
		rounds[i] = is_here ? state->layers[i].ended_round : LAYER_NOTHING;
		since[i] = is_here ? state->layers[i].since : 0;
		rolled_back[i] = is_here && state->layers[i].is_rolled_back == 1;
		detectors[i] = is_here ? state->layers[i].detector : (struct detector){0};
	}
}

/* Gradients of a step that an earlier daemon has heard of are refused, because its round may have been done with them; only in the first
 * round of all they are taken again, unless some are back with the worker. Returns the last handed_step that is not taken. */
static uint64_t refused_step(const struct run *run)
{
	const struct segment *segment = &run->segment;
	bool is_void = run->state.run->round > 0;
	for (size_t i = 0; i < segment->layer_count; i++)
		is_void |= run->state.places[i].is_damaged || atomic_load(&segment->layers[i].round) > 0;
	return is_void ? atomic_load(&segment->header->handed_step) : 0;
}

int driver_start(struct driver *driver, uint64_t now_us, struct line *why)
{
	CHECK(!driver->node);
	CHECK(driver->run->is_begun);
	const struct state *state = &driver->run->state;
	size_t count = state->layer_count;
	uint64_t restarts = driver->record.worker_restarts;
	uint64_t *rounds = calloc(2 * count, sizeof *rounds); /* and views */
	bool *rolled_back = calloc(count, sizeof *rolled_back);
	struct detector *detectors = calloc(count, sizeof *detectors);
	driver->hash_queue = calloc(count, sizeof *driver->hash_queue);
	driver->handed = calloc(count, sizeof *driver->handed);
	bool has_memory = rounds && rolled_back && detectors && driver->hash_queue && driver->handed &&
			  history_open(&driver->history, driver->config->replicas, count);
	/* Members that begin together, or a mesh: all layers are of one round. */
	bool is_first = driver->config->view == VIEW_FIRST && !driver->run->is_member;
	struct node_config config = node_config_of(driver, is_first ? NULL : rounds, detectors);
	if (has_memory) {
		look_at_layers(state, rounds, rounds + count, rolled_back, detectors);
		config.layer_rolled_back = rolled_back;
		config.layer_since = is_first ? NULL : rounds + count;
	}
	struct driver_node *own = has_memory ? add_node(driver, &config) : NULL;
	if (own)
		driver->node = node_init(own->block, &config);
	free(rounds);
	free(rolled_back);
	free(detectors);
	if (!own) {
		driver_close(driver);
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory for the ring's buffers (%zu bytes)", node_size(&config));
	}

	driver->record = *state->run;
	driver->record.worker_restarts += restarts;
	driver->record.incarnation = driver->incarnation;
	driver->offer.step = driver->taken_step = driver->record.offer_step;
	driver->offer.tokens = driver->record.offer_tokens;
	driver->offer.wait_us = driver->record.offer_wait_us;
	driver->offer_before = driver->offer;
	driver->taken_handed = refused_step(driver->run);
	driver->checkpoint_us = now_us;
	prepare_worker(driver);
	struct event event = {.kind = EVENT_TICK};
	driver_take(driver, &event, now_us);
	return 0;
}

int driver_enter(struct driver *driver, uint64_t now_us, struct line *why)
{
	if (!driver->node)
		return driver_start(driver, now_us, why);
	driver->now_us = now_us;
	if (driver->line.at_us != UINT64_MAX)
		driver_tell(driver);
	const struct node_config config = node_config_of(driver, NULL, NULL);
	struct driver_node *own = add_node(driver, &config);
	if (!own)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory for the ring's buffers (%zu bytes)", node_size(&config));
	driver->node = node_succeed(own->block, &config, driver->node);
	driver->is_complete = false;
	driver->missing[0] = 0;
	driver->hash_count = 0; /* the new node asks for those that it needs */
	driver->refusal[0] = 0;
	history_close(&driver->history);
	if (!history_open(&driver->history, driver->config->replicas, driver->run->state.layer_count))
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory for the history of rounds");
	run_take_seat(driver->run);
	struct event event = {.kind = EVENT_TICK};
	driver_take(driver, &event, now_us);
	return 0;
}

void driver_leave(struct driver *driver)
{
	if (!driver->node)
		return;
	/* Of a run that has ended it still has to be known. */
	if (atomic_load(&driver->run->segment.header->stop) == 0)
		atomic_store(&driver->run->segment.header->stop, SEGMENT_STOP_LEFT);
	driver->must_ring = true;
	driver_ring(driver);
	driver->node = NULL;
	driver->deadline_us = driver->line.at_us = UINT64_MAX;
}

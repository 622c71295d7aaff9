/* Events into node_step, actions out of it. Owns the node's block. What it never does: decide anything that the
 * other members must agree with. */

#include "daemon/driver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/handover.h"
#include "daemon/log.h"
#include "daemon/rounds.h"

enum {
	LINE_DELAY_US = 50000,     /* for the worker to wake up and say how long it has waited */
	GRADIENT_LINE_US = 1000000 /* between lines at level info while gradients are averaged; those between are at debug */
};

void driver_init(struct driver *driver, const struct config *config, struct transport *transport,
		 struct worker_port *port, struct checkpoint *checkpoint, struct run *run, uint64_t incarnation)
{
	memset(driver, 0, sizeof *driver);
	driver->config = config;
	driver->transport = transport;
	driver->port = port;
	driver->checkpoint = checkpoint;
	driver->run = run;
	driver->incarnation = incarnation;
	driver->deadline_us = driver->line.at_us = UINT64_MAX;
	driver->loss = NAN;
}

uint64_t driver_deadline(const struct driver *driver)
{
	return driver->node ? u64_min(driver->deadline_us, driver->line.at_us) : UINT64_MAX;
}

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

uint64_t driver_exposed_us(const struct driver *driver)
{
	if (driver->is_offer_open)
		return driver->exposed_us;
	uint64_t wait_us = load(&driver->run->segment.header->wait_us);
	return wait_us > driver->offer.wait_us ? wait_us - driver->offer.wait_us : 0;
}

/* ---- Notes ---- */

static const char *fact_here(const struct driver *driver, const char *key)
{
	for (size_t i = 0; i < driver->run->facts.count; i++)
		if (strcmp(driver->run->facts.list[i].key, key) == 0)
			return driver->run->facts.list[i].value;
	return "not given";
}

/* What a refusal for a fact is about: note->a is the fact's index in the refused hello. */
static void refusal_detail(const struct driver *driver, const struct note *note, char *text, size_t size)
{
	text[0] = 0;
	if (note->detail != REFUSAL_FACT)
		return;
	const struct run *run = driver->run;
	if (note->code == NOTE_REFUSED_BY && note->a < run->facts.count)
		snprintf(text, size, "%s, here %s", run->facts.list[note->a].key, run->facts.list[note->a].value);
	if (note->code != NOTE_PEER_REFUSED || !driver->heard || driver->heard->kind != MESSAGE_HELLO)
		return;
	const struct hello *hello = &driver->heard->hello;
	if (note->a < hello->fact_count)
		snprintf(text, size, "%s, there %s, here %s", hello->facts[note->a].key, hello->facts[note->a].value,
			 fact_here(driver, hello->facts[note->a].key));
	else
		snprintf(text, size, "it gives %zu facts, here are %zu", hello->fact_count, run->facts.count);
}

/* A note of a change carries its id alone: what it changes stands beside it in the log. */
static void log_note(struct driver *driver, const struct note *note, const char *text)
{
	bool is_change = note->code == NOTE_CHANGE_HERE || note->code == NOTE_CHANGE_HELD ||
			 note->code == NOTE_CHANGE_TAKEN || note->code == NOTE_CHANGE_DROPPED;
	const struct change_entry *entry = is_change ? changes_find(&driver->changes, note->a) : NULL;
	char what[256];
	if (!entry) {
		log_line(log_note_level(note), "%s", text);
		return;
	}
	changes_text(entry, what, sizeof what);
	log_line(log_note_level(note), "%s (%s)", text, what);
}

static void take_note(struct driver *driver, const struct note *note)
{
	char detail[2 * FACT_TEXT_MAX + 64], text[1000];
	struct note_names names = {.members = (const char *const *)driver->config->names,
				   .member_count = driver->config->member_count};
	refusal_detail(driver, note, detail, sizeof detail);
	if (detail[0])
		names.detail = detail;
	log_note_text(note, &names, text, sizeof text);
	changes_note(&driver->changes, note);

	switch (note->code) {
	case NOTE_RING_COMPLETE: driver->is_complete = true; break;
	case NOTE_ROUND_DONE: driver->is_round_done = true; return; /* told with more in it, when the worker has woken up */
	case NOTE_CHANGE_HERE:
		CHECK(driver->proposed);
		driver->proposed->id = driver->change_id = note->a;
		changes_add(&driver->changes, driver->proposed, driver->proposed_before);
		break;
	case NOTE_CHANGE_REFUSED: driver->change_error = note->detail; break;
	case NOTE_PEER_REFUSED:
	case NOTE_REFUSED_BY:
	case NOTE_PEER_RESTARTED:
		driver->refusal_rank = note->peer;
		snprintf(driver->refusal, sizeof driver->refusal, "%.*s", (int)sizeof driver->refusal - 1, text);
		break;
	case NOTE_PEER_HEARD:
		if (driver->refusal_rank == note->peer)
			driver->refusal[0] = 0;
		break;
	case NOTE_VIEW_READY: driver->missing[0] = driver->damage[0] = 0; break;
	case NOTE_LAYER_MISSING:
		snprintf(driver->missing, sizeof driver->missing,
			 "layer \"%.100s\" is lost or damaged on all members that are here: waits for one that holds it; to go back to a "
			 "checkpoint, stop editd and worker on all, remove segment and state in runtime_dir, start them",
			 driver->run->description.layers[note->layer_index].name);
		break;
	case NOTE_LAYER_FETCHED: driver->fetched++; break;
	case NOTE_HASH_DIFFERS:
		driver->differs = true;
		driver->differences++;
		if (!driver->damage[0])
			snprintf(driver->damage, sizeof driver->damage, "%.*s", (int)sizeof driver->damage - 1, text);
		break;
	case NOTE_FINISHED:
		driver->finished = true;
		atomic_store(&driver->run->segment.header->stop, SEGMENT_STOP_ENDED);
		driver->must_ring = true;
		break;
	default: break;
	}
	log_note(driver, note, text);
}

/* Keeps what the line of the round just completed says; it is told when the worker has said how long it waited. */
static void keep_round(struct driver *driver, const struct node_status *status)
{
	struct round_line *line = &driver->line;
	*line = (struct round_line){.at_us = driver->now_us + LINE_DELAY_US, .round = status->round,
				    .sync_us = status->sync_us, .bytes = status->round_bytes};
	rounds_sum(driver->node, driver->config->replicas, driver->run->description.layer_count, &line->sum);
	for (uint32_t rank = 0; rank < driver->config->replicas; rank++) {
		struct node_peer peer;
		node_peer(driver->node, rank, driver->now_us, &peer);
		const struct record *record = node_record(driver->node, 0, rank);
		if (record->steps > 0 && !isfinite(record->loss))
			log_line(LEVEL_WARNING, "round %" PRIu64 ": peer %s: loss is not a number, left out of the mean loss",
				 status->round, driver->config->peers[rank]);
		if (peer.lateness_us > line->lateness_us) {
			line->lateness_us = peer.lateness_us;
			line->latest = rank;
		}
	}
}

void driver_tell(struct driver *driver)
{
	struct round_line *line = &driver->line;
	char late[96] = "";
	bool is_one_of_many = node_averages_gradients(driver->node) && driver->now_us < driver->told_us + GRADIENT_LINE_US;
	if (!is_one_of_many)
		driver->told_us = driver->now_us;
	if (line->lateness_us > 0)
		snprintf(late, sizeof late, ", last %s by %.1f ms", driver->config->peers[line->latest],
			 (double)line->lateness_us / 1e3);
	log_line(is_one_of_many ? LEVEL_DEBUG : LEVEL_INFO,
		 "round %" PRIu64 ": loss %.4f, %" PRIu64
		 " steps, %.0f tokens/s, sync %.1f ms, exposed %.1f ms, %" PRIu64 " bytes sent, %" PRIu32 " left out%s",
		 line->round, line->sum.loss, line->sum.steps, line->sum.tokens_per_second, (double)line->sync_us / 1e3,
		 (double)driver_exposed_us(driver) / 1e3, line->bytes, line->sum.left_out, late);
	line->at_us = UINT64_MAX;
}

/* ---- Actions ---- */

/* The hash of a layer is made, with its entry in the state file, between other work. */
static void ask_hash(struct driver *driver, uint32_t layer_index)
{
	CHECK(driver->hash_count < driver->run->segment.layer_count);
	driver->hash_queue[driver->hash_count++] = layer_index;
}

/* What the worker will read when it has the layer. */
static struct segment_layer *write_words(struct driver *driver, const struct action *action)
{
	struct run *run = driver->run;
	CHECK(action->layer_index < run->segment.layer_count);
	struct segment_layer *words = &run->segment.layers[action->layer_index];
	atomic_store_explicit(&words->verdict, (uint32_t)action->verdict, memory_order_relaxed);
	atomic_store_explicit(&words->round, action->round, memory_order_relaxed);
	return words;
}

static void publish(struct driver *driver, const struct action *action)
{
	struct segment_layer *words = write_words(driver, action);
	atomic_store_explicit(&words->owner, SEGMENT_WORKER, memory_order_release);
	driver->must_ring = true;
}

void driver_tell_overlap(struct driver *driver)
{
	bool is_whole = driver->record.settings.value[SYNC_OVERLAP] == OVERLAP_NONE;
	atomic_store(&driver->run->segment.header->whole, is_whole);
}

void driver_schedule(struct driver *driver, uint64_t steps, bool gradients)
{
	struct segment_header *header = driver->run->segment.header;
	/* 0: it stops when the last round, agreed but still under way, is complete. */
	uint64_t at = steps == 0 || steps > UINT64_MAX - driver->offer.step ? UINT64_MAX : driver->offer.step + steps;
	/* An offer that has come to nothing, when this daemon or the one before was not there: a value below it would be an old one. */
	at = u64_max(at, load(&header->offered_step) + 1);
	atomic_store(&header->gradients, gradients);
	atomic_store(&header->offer_step, at);
	driver->must_ring = true;
}

/* The worker lies still: it has offered, and has nothing back. */
static void lead(struct driver *driver, uint64_t step)
{
	struct segment_header *header = driver->run->segment.header;
	uint64_t own_step = load(&header->step);
	atomic_store(&header->lead, step > own_step ? step - own_step : 0);
}

void driver_ring(struct driver *driver)
{
	if (driver->must_ring)
		worker_port_ring(driver->port);
	driver->must_ring = false;
}

static void begin_checkpoint(struct driver *driver, uint64_t round)
{
	/* The worker goes on while the anchor is copied. */
	driver_ring(driver);
	struct line why;
	driver->checkpoint_us = driver->now_us;
	if (driver->checkpoint->is_busy)
		line_fail(&why, EDIT_ERROR_BUSY,
			  "checkpoint of round %" PRIu64 " not written (round %" PRIu64 " is still being written)", round,
			  driver->checkpoint->round);
	else if (!checkpoint_begin(driver->checkpoint, driver->run, round))
		line_fail(&why, EDIT_ERROR_SYSTEM, "%s", driver->checkpoint->degraded);
	else
		return;
	log_line(LEVEL_WARNING, "%s", why.text);
	changes_failed(&driver->changes, round, why.text);
}

static void act(struct driver *driver, const struct action *action)
{
	struct segment_header *header = driver->run->segment.header;
	switch (action->kind) {
	case ACTION_SEND: transport_send(driver->transport, action->to, &action->message); break;
	case ACTION_COMMITTED:
	case ACTION_HASH:
	case ACTION_HEALED: ask_hash(driver, action->layer_index); break;
	case ACTION_PUBLISH: publish(driver, action); break;
	case ACTION_SCHEDULE: driver_schedule(driver, action->number, action->gradients); break;
	case ACTION_STEP: lead(driver, action->number); break;
	case ACTION_PAUSE:
	case ACTION_RESUME:
		atomic_store(&header->paused, action->kind == ACTION_PAUSE);
		driver->must_ring = true;
		break;
	case ACTION_COLLECTED:
	case ACTION_SUMMED:
		handover_result(driver->run->segment.header, action);
		driver->must_ring = true;
		break;
	case ACTION_CHECKPOINT: driver->checkpoint_round = action->round; break; /* begun when the round's hashes are there */
	case ACTION_NOTE: take_note(driver, &action->note); break;
	}
}

/* With the publish of its last layer the worker steps on: what a checkpoint needs of it is copied before. */
static void prepare_checkpoint(struct driver *driver)
{
	const struct actions *actions = &driver->actions;
	size_t at = 0;
	while (at < actions->count && actions->list[at].kind != ACTION_CHECKPOINT)
		at++;
	if (at == actions->count)
		return;
	for (size_t i = 0; i < at; i++)
		if (actions->list[i].kind == ACTION_PUBLISH)
			write_words(driver, &actions->list[i]);
	checkpoint_prepare(driver->checkpoint, driver->run);
}

static void step(struct driver *driver, const struct event *event)
{
	node_step(driver->node, event, &driver->actions);
	driver->deadline_us = driver->actions.deadline_us;
	/* A worker that gets the last layer of a round finds its number. */
	struct node_status status;
	node_status(driver->node, event->now_us, &status);
	atomic_store_explicit(&driver->run->segment.header->round, status.round, memory_order_relaxed);
	prepare_checkpoint(driver);
	for (size_t i = 0; i < driver->actions.count; i++)
		act(driver, &driver->actions.list[i]);
}

/* All layers of another round are complete, or it goes on from where others are: the state file says so, people are told. */
static void complete_round(struct driver *driver, const struct node_status *status)
{
	struct state_run *record = &driver->record;
	/* The settings noted before are those of this round, the node's those of the next. */
	if (driver->is_round_done)
		history_fill(&driver->history, history_add(&driver->history, status->round), driver->node, &record->settings,
			     driver->now_us);
	record->round = status->round;
	record->since = node_since(driver->node);
	record->settings = *node_settings(driver->node);
	if (driver->is_round_done) {
		const struct driver_offer *offer = node_offer_waits(driver->node) ? &driver->offer_before : &driver->offer;
		record->offer_step = offer->step;
		record->offer_tokens = offer->tokens;
		record->offer_wait_us = offer->wait_us;
	}
	record->sync_us += driver->is_round_done ? status->sync_us : 0;
	state_commit_run(&driver->run->state, record);
	driver_tell_overlap(driver);
	if (!driver->is_round_done)
		return;
	driver->is_offer_open = driver->is_handing = driver->is_round_done = false;
	keep_round(driver, status);
}

/* After every event: hashes that are owed, the end of a round, the end of the run, the bell. */
static void settle(struct driver *driver)
{
	while (driver->hash_count > 0) {
		driver_ring(driver);
		uint64_t layer_index = driver->hash_queue[--driver->hash_count];
		uint64_t hash = state_commit_layer(&driver->run->state, layer_index,
						   node_layer_round(driver->node, layer_index),
						   node_layer_since(driver->node, layer_index),
						   node_layer_is_rolled_back(driver->node, layer_index),
						   node_detector(driver->node, layer_index));
		struct event event = {.kind = EVENT_HASHED, .now_us = driver->now_us};
		event.hashed.layer_index = (uint32_t)layer_index;
		event.hashed.hash = hash;
		step(driver, &event);
	}
	struct node_status status;
	node_status(driver->node, driver->now_us, &status);
	if (status.round != driver->record.round || node_since(driver->node) != driver->record.since)
		complete_round(driver, &status);
	if (driver->checkpoint_round > 0) {
		begin_checkpoint(driver, driver->checkpoint_round);
		driver->checkpoint_round = 0;
	}
	if (driver->finished && !driver->checkpoint->is_busy) {
		driver->finished = false;
		if (config_number(driver->config, CHECKPOINT_AT_END) != 0) {
			checkpoint_prepare(driver->checkpoint, driver->run);
			begin_checkpoint(driver, status.round);
		}
	}
	driver_ring(driver);
}

/* ---- Events ---- */

void driver_take(struct driver *driver, struct event *event, uint64_t now_us)
{
	if (!driver->node)
		return;
	driver->now_us = event->now_us = now_us;
	step(driver, event);
	settle(driver);
}

/* The first member proposes a checkpoint for all when the last one is checkpoint.period ago. */
static void watch_checkpoints(struct driver *driver, uint64_t now_us)
{
	double period_us = 1e6 * node_settings(driver->node)->value[CHECKPOINT_PERIOD];
	if (driver->config->rank != 0 || period_us <= 0 || (double)(now_us - driver->checkpoint_us) < period_us)
		return;
	const struct change_entry *last = changes_find(&driver->changes, driver->checkpoint_change);
	bool is_open = last && (last->state == CHANGE_PROPOSED || last->state == CHANGE_HELD);
	struct node_status status;
	node_status(driver->node, now_us, &status);
	if (is_open || driver->checkpoint->is_busy || (status.phase != NODE_TRAINING && status.phase != NODE_SYNCING))
		return;
	const struct change change = {.kind = CHANGE_CHECKPOINT};
	driver->checkpoint_us = now_us;
	driver_propose(driver, &change, now_us, &driver->checkpoint_change);
}

void driver_tick(struct driver *driver, uint64_t now_us)
{
	if (!driver->node)
		return;
	watch_checkpoints(driver, now_us);
	driver_free_nodes(driver);
	if (now_us >= driver->deadline_us) {
		struct event event = {.kind = EVENT_TICK};
		driver_take(driver, &event, now_us);
	}
	if (now_us >= driver->line.at_us)
		driver_tell(driver);
	/* A checkpoint at the end may have waited for the one before. */
	if (driver->finished && !driver->checkpoint->is_busy)
		settle(driver);
}

void driver_message(struct driver *driver, const struct message *message, uint64_t now_us)
{
	if (!driver->node)
		return;
	if (message->kind == MESSAGE_CHANGE) {
		const struct change *change = &message->change;
		bool is_set = change->kind == CHANGE_SET && change->setting < RING_SETTING_COUNT;
		double before = is_set ? node_settings(driver->node)->value[change->setting] : 0;
		if (is_set || change->kind != CHANGE_SET)
			changes_add(&driver->changes, change, before);
	}
	struct event event = {.kind = EVENT_MESSAGE, .message = message};
	driver->heard = message;
	driver_take(driver, &event, now_us);
	driver->heard = NULL;
}

int driver_propose(struct driver *driver, const struct change *change, uint64_t now_us, uint64_t *ret_id)
{
	if (!driver->node)
		return EDIT_ERROR_UNHEALTHY;
	bool is_set = change->kind == CHANGE_SET;
	CHECK(!is_set || change->setting < RING_SETTING_COUNT);
	struct change proposed = *change;
	driver->proposed = &proposed;
	driver->proposed_before = is_set ? node_settings(driver->node)->value[change->setting] : 0;
	driver->change_id = 0;
	driver->change_error = EDIT_ERROR_REFUSED;
	struct event event = {.kind = EVENT_CHANGE, .change = proposed};
	driver_take(driver, &event, now_us);
	driver->proposed = NULL;
	if (driver->change_id == 0)
		return driver->change_error;
	*ret_id = driver->change_id;
	return 0;
}

void driver_count_restart(struct driver *driver)
{
	driver->record.worker_restarts++;
	if (driver->node)
		state_commit_run(&driver->run->state, &driver->record);
}

/* Finds checkpoints and asks the neighbours about theirs. Owns nothing but its lists; changes no file. */

#include "daemon/recovery.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/manifest.h"
#include "daemon/run.h"

enum { PATIENCE_US = 2000000 /* from a failure to the next try */ };

static const char *run_name(const struct config *config)
{
	return config_text(config, NODE_RUN);
}

static void folder_of(const struct config *config, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%.255s/checkpoints%s%.63s", config_text(config, NODE_STATE_DIR), *name ? "/" : "", name);
}

/* ---- What is here ---- */

static bool has_file(const struct manifest *manifest, const char *name)
{
	for (size_t i = 0; i < manifest->file_count; i++)
		if (strcmp(manifest->files[i].name, name) == 0)
			return true;
	return false;
}

/* Whether the run can go on here from the checkpoint; a line is logged if not. */
static bool check(const struct config *config, const char *name, struct consent_entry *ret_entry)
{
	char path[2 * CONFIG_PATH_MAX];
	struct manifest manifest;
	struct line why = {""};
	folder_of(config, name, path, sizeof path);
	if (manifest_check(path, &manifest, &why) != 0)
		log_line(LEVEL_WARNING, "checkpoint passed over: %s", why.text);
	else if (strcmp(manifest.run, run_name(config)) != 0)
		log_line(LEVEL_WARNING, "checkpoint passed over: %s is of run %s, not %s", path, manifest.run, run_name(config));
	else if (manifest.round != strtoull(name + strlen("round-"), NULL, 10))
		log_line(LEVEL_WARNING, "checkpoint passed over: %s is of round %" PRIu64 " by its manifest", path, manifest.round);
	else if (manifest.shards != config->shards || manifest.column != config->column)
		log_line(LEVEL_WARNING, "checkpoint passed over: %s is of piece %" PRIu64 " of %" PRIu64 ", this member has %u of %u", path,
			 manifest.column + 1, manifest.shards, config->column + 1, config->shards);
	else if (!has_file(&manifest, "state.safetensors"))
		log_line(LEVEL_WARNING, "checkpoint passed over: %s has no state.safetensors; it may serve a new run as --model", path);
	else {
		if (strcmp(manifest.member, config_text(config, NODE_NAME)) != 0)
			log_line(LEVEL_WARNING, "checkpoint %s was written by %s: its inner state and detectors count here too", path,
				 manifest.member);
		/* Pieces differ from column to column. */
		*ret_entry = (struct consent_entry){manifest.round, config->shards == 1 ? manifest.anchor_hash : 0};
		return true;
	}
	return false;
}

/* Intact checkpoints; held[CONSENT_HELD_MAX]. */
static size_t find(struct recovery *recovery, struct consent_entry *held)
{
	char path[CONFIG_PATH_MAX], names[CONSENT_HELD_MAX][FOLDER_NAME_BYTES];
	size_t count = 0;
	folder_of(recovery->config, "", path, sizeof path);
	size_t found_count = folder_list(path, names, CONSENT_HELD_MAX);
	for (size_t i = 0; i < found_count; i++)
		if (check(recovery->config, names[i], &held[count]))
			memcpy(recovery->names[count++], names[i], FOLDER_NAME_BYTES);
	return count;
}

static void agree(struct recovery *recovery)
{
	const struct consent_list *begin = &recovery->consent.begin;
	if (!recovery->is_asking || recovery->is_agreed || !consent_is_agreed(&recovery->consent, &recovery->chosen))
		return;
	recovery->is_agreed = true;
	recovery->failure[0] = 0;
	for (size_t i = 0; i < begin->held_count; i++)
		if (begin->held[i].round == recovery->chosen.round && begin->held[i].hash == recovery->chosen.hash)
			folder_of(recovery->config, recovery->names[i], recovery->folder, sizeof recovery->folder);
	log_line(LEVEL_NOTICE, "no run in %s: goes on from the newest checkpoint that all %" PRIu32 " members hold, round %" PRIu64 " (%s)",
		 config_text(recovery->config, NODE_RUNTIME_DIR), recovery->config->member_count, recovery->chosen.round, recovery->folder);
}

static void choose_newest(struct recovery *recovery, const struct consent_entry *held, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (held[i].round > recovery->chosen.round) {
			recovery->chosen = held[i];
			folder_of(recovery->config, recovery->names[i], recovery->folder, sizeof recovery->folder);
		}
}

void recovery_open(struct recovery *recovery, const struct config *config, struct transport *transport, uint64_t incarnation)
{
	struct consent_entry held[CONSENT_HELD_MAX];
	uint32_t ranks[ROAD_COUNT];
	char path[CONFIG_PATH_MAX];
	size_t count = 1;
	*recovery = (struct recovery){.config = config, .transport = transport, .incarnation = incarnation};
	held[0] = (struct consent_entry){0, 0};
	if (run_look(config, &held[0].round, &held[0].hash)) {
		held[0].hash = config->shards == 1 && held[0].round > 0 ? held[0].hash : 0;
	} else if (config->shards == 1) {
		/* Whoever holds a newer one than this member gives it what it lacks. */
		choose_newest(recovery, held, find(recovery, held));
		return;
	} else {
		count = find(recovery, held);
		recovery->is_asking = count > 0;
		/* On a first start there is nothing to go on from either. */
		if (count == 0 && !run_was_begun(config, path)) {
			held[0] = (struct consent_entry){0, 0};
			count = 1;
		}
	}
	consent_init(&recovery->consent, config->member_count, ranks, config_neighbours(config, ranks), held, count,
		     !recovery->is_asking);
	if (count == 0)
		snprintf(recovery->consent.own.cause, sizeof recovery->consent.own.cause,
			 "%.63s has lost its memory and has no intact checkpoint", config_text(config, NODE_NAME));
	agree(recovery);
}

/* ---- Hellos ---- */

static void say(struct recovery *recovery, uint32_t rank, const struct consent_list *list)
{
	static char texts[CONSENT_FACTS_MAX][2][FACT_TEXT_MAX + 1];
	struct fact facts[CONSENT_FACTS_MAX];
	struct message message = {.kind = MESSAGE_HELLO, .from = recovery->config->rank, .incarnation = recovery->incarnation,
				  .view = VIEW_FIRST};
	message.hello = (struct hello){.name = config_text(recovery->config, NODE_NAME), .facts = facts,
				       .fact_count = consent_facts(list, run_name(recovery->config), texts, facts)};
	transport_send(recovery->transport, rank, &message);
}

static void say_all(struct recovery *recovery, uint64_t now_us)
{
	for (size_t i = 0; i < recovery->consent.neighbour_count; i++)
		say(recovery, recovery->consent.neighbours[i].rank, &recovery->consent.own);
	recovery->say_at_us = now_us + (uint64_t)config_number(recovery->config, NODE_HEARTBEAT_MS) * 1000;
}

/* What a member in need has does not fit what is here: the same is told once. */
static void tell_misfit(struct recovery *recovery, const struct consent_list *asked, const struct consent_entry *here, const char *name)
{
	char text[LINE_BYTES];
	uint64_t newest = 0;
	for (size_t i = 0; i < asked->held_count; i++) {
		if (asked->held[i].round == here->round && asked->held[i].hash == here->hash)
			return;
		newest = u64_max(newest, asked->held[i].round);
	}
	if (asked->held_count == 0)
		return;
	if (here->round == 0)
		snprintf(text, sizeof text,
			 "%s restarts run %s from its checkpoints (newest: round %" PRIu64 "), here the run is at its begin: copy a checkpoint to "
			 "%.150s/checkpoints, empty %.100s and restart editd",
			 name, run_name(recovery->config), newest, config_text(recovery->config, NODE_STATE_DIR),
			 config_text(recovery->config, NODE_RUNTIME_DIR));
	else
		snprintf(text, sizeof text,
			 "%s has lost its memory and holds no checkpoint of round %" PRIu64 ", at which this member is (its newest: round %" PRIu64
			 "); to go back to a checkpoint, stop all members, remove segment and state in each runtime directory, start them again",
			 name, here->round, newest);
	if (strcmp(text, recovery->told) != 0)
		log_line(LEVEL_WARNING, "%s", text);
	memcpy(recovery->told, text, sizeof text);
}

bool recovery_hear(struct recovery *recovery, const struct message *message, const struct consent_entry *memory, uint64_t now_us)
{
	struct consent_list list;
	struct line why = {""};
	if (message->kind != MESSAGE_HELLO || !consent_is_hello(&message->hello))
		return false;
	const char *name = recovery->config->names[message->from];
	if (consent_read(&message->hello, run_name(recovery->config), &list, &why) != 0) {
		if (strncmp(why.text, recovery->told, sizeof why.text) != 0)
			log_line(LEVEL_WARNING, "peer %s: %s", name, why.text);
		memcpy(recovery->told, why.text, sizeof why.text);
		return true;
	}
	struct consent *consent = &recovery->consent;
	if (memory || !recovery->is_asking) {
		struct consent_list own = consent->own;
		if (memory) {
			own = (struct consent_list){.held_count = 1};
			own.held[0] = *memory;
		}
		own.stage = consent->stage_count;
		if (list.stage < consent->stage_count) {
			say(recovery, message->from, &own);
			if (own.held_count > 0)
				tell_misfit(recovery, &list, &own.held[0], name);
		}
		return true;
	}
	if (recovery->is_agreed) {
		if (list.stage < consent->stage_count)
			say(recovery, message->from, &consent->own);
		return true;
	}
	if (consent_hear(consent, message->from, name, &list))
		say_all(recovery, now_us);
	agree(recovery);
	return true;
}

/* ---- Time ---- */

static void tell_failure(struct recovery *recovery, uint64_t now_us)
{
	const char *cause = consent_failure(&recovery->consent);
	char text[LINE_BYTES];
	if (!cause || recovery->restart_at_us > 0)
		return;
	recovery->restart_at_us = now_us + PATIENCE_US;
	snprintf(text, sizeof text,
		 "no checkpoint that all members hold: %.250s; copy one to where it is missing (state_dir/checkpoints) and restart that editd",
		 cause);
	if (strcmp(text, recovery->failure) != 0)
		log_line(LEVEL_ERROR, "%s", text);
	memcpy(recovery->failure, text, sizeof text);
}

uint64_t recovery_tick(struct recovery *recovery, uint64_t now_us)
{
	if (!recovery_is_waiting(recovery))
		return UINT64_MAX;
	tell_failure(recovery, now_us);
	if (recovery->restart_at_us > 0 && now_us >= recovery->restart_at_us) {
		recovery->restart_at_us = 0;
		consent_restart(&recovery->consent);
		recovery->say_at_us = now_us;
	}
	if (now_us >= recovery->say_at_us)
		say_all(recovery, now_us);
	return recovery->restart_at_us > 0 ? u64_min(recovery->say_at_us, recovery->restart_at_us) : recovery->say_at_us;
}

bool recovery_is_waiting(const struct recovery *recovery)
{
	return recovery->is_asking && !recovery->is_agreed;
}

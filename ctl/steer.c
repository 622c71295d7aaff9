/* Commands that change the ring: propose, then follow each proposal until all members hold it (or, with --wait, until it is
 * in force), and tell what became of it. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/request.h"
#include "ctl/session.h"
#include "ctl/table.h"
#include "ctl/verb.h"
#include "proto/setting.h"

#define POLL_S 0.1

/* One proposal and what is known of it. */
struct proposal {
	struct control_request request;
	struct answer answer;     /* the last one */
	uint64_t completed_round; /* of this node, asked together with it */
};

static const Edit__Control__Change *change_of(const struct proposal *proposal)
{
	return proposal->answer.reply->change;
}

static bool state_is(const struct proposal *proposal, const char *state)
{
	return strcmp(change_of(proposal)->state, state) == 0;
}

/* Whether nothing more is worth waiting for. "in-force" tells after which round; that round may still be in progress. */
static bool is_settled(const struct session *session, const struct proposal *proposal)
{
	const Edit__Control__Change *change = change_of(proposal);
	if (state_is(proposal, "dropped"))
		return true;
	if (!session->arguments->wait)
		return state_is(proposal, "held") || state_is(proposal, "in-force");
	if (!state_is(proposal, "in-force") || proposal->completed_round < change->round)
		return false;
	return proposal->request.command != COMMAND_CHECKPOINT || change->folder[0] != '\0' || change->failure[0] != '\0';
}

/* What of this node's status matters here. Returns 0 or an exit status, told already. */
static int ask_status(struct session *session, uint64_t *ret_round, uint32_t *ret_member_count)
{
	struct control_request request = {.command = COMMAND_STATUS};
	struct answer answer;
	int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_STATUS, &answer);
	if (status != 0)
		return status;
	*ret_round = answer.reply->status->round;
	*ret_member_count = answer.reply->status->member_count;
	free(answer.block);
	return 0;
}

/* Sends the proposal itself, or asks how it is going; replaces the answer. Returns 0 or an exit status, told already. */
static int ask(struct session *session, struct proposal *proposal, const struct control_request *request)
{
	struct answer answer;
	int status = session_ask(session, request, EDIT__CONTROL__REPLY__BODY_CHANGE, &answer);
	if (status != 0)
		return status;
	free(proposal->answer.block);
	proposal->answer = answer;
	return session->arguments->wait ? ask_status(session, &proposal->completed_round, &(uint32_t){0}) : 0;
}

/* Returns 0 when all are settled, or when there is no time left (is_settled tells which). */
static int follow(struct session *session, struct proposal *proposals, size_t count)
{
	const struct arguments *arguments = session->arguments;
	double limit_s = arguments->wait ? arguments->limit_s : arguments->timeout_s;
	double begin_s = session_clock_s();
	for (;;) {
		size_t settled = 0;
		for (size_t i = 0; i < count; i++) {
			struct control_request request = {.command = COMMAND_CHANGE, .change = change_of(&proposals[i])->id};
			int status = is_settled(session, &proposals[i]) ? 0 : ask(session, &proposals[i], &request);
			if (status != 0)
				return status;
			settled += is_settled(session, &proposals[i]);
		}
		if (settled == count || (limit_s >= 0 && session_clock_s() - begin_s >= limit_s))
			return 0;
		session_sleep_s(POLL_S);
	}
}

static void tell_text(const struct session *session, const struct proposal *proposal, uint32_t member_count)
{
	const Edit__Control__Change *change = change_of(proposal);
	uint64_t at_round = proposal->request.at_round;
	table_text(stdout, TONE_PLAIN, session->colour, change->text);
	if (state_is(proposal, "in-force"))
		printf(": in force after round %" PRIu64 " on all %" PRIu32 " members", change->round, member_count);
	else if (state_is(proposal, "held") && at_round > 0)
		printf(": held by all %" PRIu32 " members, takes effect after round %" PRIu64, member_count, at_round);
	else if (state_is(proposal, "held"))
		printf(": held by all %" PRIu32 " members, takes effect after the round in progress", member_count);
	else if (state_is(proposal, "dropped"))
		printf(": dropped, not held by all members in time; nothing has changed");
	else
		printf(": proposed, but not held by all members yet (`editctl change %016" PRIx64 "` tells more)", change->id);
	if (change->folder[0] != '\0') {
		printf("; written to ");
		table_text(stdout, TONE_PLAIN, session->colour, change->folder);
	}
	if (change->failure[0] != '\0') {
		printf("; ");
		table_text(stdout, TONE_PLAIN, session->colour, change->failure);
	}
	fputc('\n', stdout);
}

/* Tells what became of each proposal; returns the exit status of the worst. */
static int tell(const struct session *session, const struct proposal *proposals, size_t count, uint32_t member_count)
{
	json_t *changes = json_array();
	int status = 0;
	for (size_t i = 0; i < count; i++) {
		json_array_append_new(changes, json_message(&change_of(&proposals[i])->base));
		if (!session->arguments->json)
			tell_text(session, &proposals[i], member_count);
		if (state_is(&proposals[i], "dropped"))
			status = edit_error_status(EDIT_ERROR_REFUSED);
		else if (change_of(&proposals[i])->failure[0] != '\0')
			status = edit_error_status(EDIT_ERROR_SYSTEM);
		else if (!is_settled(session, &proposals[i]) && status == 0)
			status = edit_error_status(EDIT_ERROR_TIMEOUT);
	}
	if (session->arguments->json) {
		json_t *answer = json_answer(session->arguments->verb->name);
		json_object_set(answer, "changes", changes);
		session_print(answer);
	}
	json_decref(changes);
	return status;
}

/* The settings of the ring in force. Returns 0 or an exit status, told already. */
static int ask_settings(struct session *session, struct ring_settings *ret_settings)
{
	struct control_request request = {.command = COMMAND_GET};
	struct answer answer;
	int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_SETTINGS, &answer);
	if (status != 0)
		return status;
	*ret_settings = ring_settings_standard();
	const Edit__Control__Settings *settings = answer.reply->settings;
	for (size_t i = 0; i < settings->n_settings; i++) {
		size_t index;
		struct setting_value value;
		if (setting_find(settings->settings[i]->name, &index, NULL) == 0 && index < RING_SETTING_COUNT &&
		    setting_parse(index, settings->settings[i]->value, &value, NULL) == 0)
			ret_settings->value[index] = value.number;
	}
	free(answer.block);
	return 0;
}

/* Whether the values, one after the other, have a meaning beside those in force: a dry run sees each by itself. */
static int check_meaning(struct session *session, const struct proposal *proposals, size_t count)
{
	struct ring_settings settings;
	const char *conflict = NULL;
	int status = ask_settings(session, &settings);
	for (size_t i = 0; i < count && status == 0 && !conflict; i++) {
		size_t index;
		struct setting_value value;
		if (setting_find(proposals[i].request.setting, &index, NULL) != 0 || index >= RING_SETTING_COUNT ||
		    setting_parse(index, proposals[i].request.value, &value, NULL) != 0)
			continue; /* the dry run tells */
		setting_take(&settings, index, value.number);
		conflict = setting_conflict(&settings, index);
	}
	return conflict ? session_fail(session, EDIT_ERROR_REFUSED, conflict) : status;
}

/* A dry run of all of them, so that nothing is proposed if one is wrong. */
static int check(struct session *session, const struct proposal *proposals, size_t count, bool is_told)
{
	json_t *checked = json_array();
	int status = check_meaning(session, proposals, count);
	for (size_t i = 0; i < count && status == 0; i++) {
		struct proposal trial = {.request = proposals[i].request};
		trial.request.dry_run = true;
		status = ask(session, &trial, &trial.request);
		if (status == 0 && is_told && !session->arguments->json)
			printf("%s: possible, nothing has changed\n", change_of(&trial)->text);
		if (status == 0)
			json_array_append_new(checked, json_text(change_of(&trial)->text));
		free(trial.answer.block);
	}
	if (status == 0 && is_told && session->arguments->json) {
		json_t *answer = json_answer(session->arguments->verb->name);
		json_object_set(answer, "possible", checked);
		session_print(answer);
	}
	json_decref(checked);
	return status;
}

/* Proposes, follows, tells, and releases the answers. */
static int steer(struct session *session, struct proposal *proposals, size_t count)
{
	uint64_t round;
	uint32_t member_count;
	int status = ask_status(session, &round, &member_count);
	for (size_t i = 0; i < count && status == 0; i++)
		status = ask(session, &proposals[i], &proposals[i].request);
	if (status == 0)
		status = follow(session, proposals, count);
	if (status == 0)
		status = tell(session, proposals, count, member_count);
	for (size_t i = 0; i < count; i++)
		free(proposals[i].answer.block);
	return status;
}

int run_set(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct control_request requests[ARGUMENTS_WORD_MAX];
	struct proposal proposals[ARGUMENTS_WORD_MAX];
	struct line why = {""};
	size_t count = 0;
	int status = 0;
	int error = request_read_set(arguments->words, arguments->word_count, requests, &count, &why);
	if (error != 0)
		return session_fail(session, error, why.text);
	for (size_t i = 0; i < count; i++) {
		proposals[i] = (struct proposal){.request = requests[i]};
		proposals[i].request.at_round = arguments->at_round;
	}
	if (count > 1 || arguments->dry_run)
		status = check(session, proposals, count, arguments->dry_run);
	if (status != 0 || arguments->dry_run)
		return status;
	return steer(session, proposals, count);
}

static int steer_one(struct session *session)
{
	struct proposal proposal = {.request = {.command = (enum command)session->arguments->verb->command,
						.at_round = session->arguments->at_round}};
	return steer(session, &proposal, 1);
}

int run_pause(struct session *session) { return steer_one(session); }
int run_resume(struct session *session) { return steer_one(session); }
int run_checkpoint(struct session *session) { return steer_one(session); }

/* `editctl trace`: what rounds have cost, as JSON lines for programs: one that says what the columns are, then one per round.
 * Asks for page after page, because a daemon keeps more rounds than it puts into one reply. */

#include <stdio.h>
#include <stdlib.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/session.h"
#include "ctl/verb.h"
#include "proto/codec.h"
#include "proto/setting.h"

#define POLL_S 0.2 /* between two looks for a round that has ended */

/* Settings by name: numbers, and words where the setting has words. */
static json_t *settings_of(char *const *names, size_t name_count, const double *values, size_t value_count)
{
	json_t *object = json_or_exit(json_object());
	for (size_t i = 0; i < size_min(name_count, value_count); i++) {
		size_t index;
		char text[SETTING_TEXT_MAX + 1];
		bool is_word = setting_find(names[i], &index, NULL) == 0 && setting_at(index)->type == SETTING_CHOICE &&
			       setting_holds(index, values[i]);
		json_object_set_new(object, names[i],
				    is_word ? json_text(setting_format(index, values[i], text)) : json_number(values[i]));
	}
	return object;
}

/* The first line. */
static void print_head(const struct session *session, const Edit__Control__Reply *reply)
{
	const Edit__Control__Trace *trace = reply->trace;
	json_t *head = json_reply(session->arguments->verb->name, reply);
	json_object_del(head, "rounds");
	json_object_del(head, "setting_names");
	json_object_set_new(head, "settings", settings_of(trace->setting_names, trace->n_setting_names, trace->settings,
							  trace->n_settings));
	session_print(head);
}

static json_t *member_of(const Edit__Control__Trace *trace, const Edit__Control__TraceMember *member, const char *name)
{
	json_t *object = json_or_exit(json_object()), *verdicts = json_or_exit(json_object());
	json_t *fields = json_message(&member->base);
	for (size_t i = 0; i < size_min(member->n_verdicts, trace->n_verdict_names); i++)
		json_object_set_new(verdicts, trace->verdict_names[i], json_integer(member->verdicts[i]));
	json_object_set_new(object, "name", json_text(name));
	json_object_set_new(fields, "verdicts", verdicts);
	json_object_update(object, fields);
	json_decref(fields);
	return object;
}

/* The line of a round. */
static void print_round(const Edit__Control__Trace *trace, const Edit__Control__TraceRound *round)
{
	json_t *object = json_message(&round->base), *members = json_or_exit(json_array());
	json_object_set_new(object, "settings", settings_of(trace->setting_names, trace->n_setting_names, round->settings,
							    round->n_settings));
	for (size_t i = 0; i < size_min(round->n_members, trace->n_members); i++)
		json_array_append_new(members, member_of(trace, round->members[i], trace->members[i]));
	json_object_set_new(object, "members", members);
	session_print(object);
}

/* The round to begin with. */
static uint64_t begin_round(const struct arguments *arguments, const Edit__Control__Trace *trace)
{
	uint64_t begin = u64_max(arguments->since_round, 1);
	if (arguments->last_count != 0 && trace->round >= arguments->last_count)
		begin = u64_max(begin, trace->round - arguments->last_count + 1);
	return begin;
}

/* How far the lines have come. */
struct recount {
	uint64_t next_round;  /* to be asked for */
	uint64_t incarnation; /* of the daemon whose first line stands above */
	bool has_head, is_done;
};

/* Another daemon than the one that was asked before, or the first one: tells what it is and which of its rounds to go on with. */
static void begin(const struct session *session, struct recount *recount, const Edit__Control__Reply *reply)
{
	const Edit__Control__Trace *trace = reply->trace;
	if (!recount->has_head)
		recount->next_round = begin_round(session->arguments, trace);
	else if (trace->round + 1 < recount->next_round)
		recount->next_round = 1; /* another run */
	print_head(session, reply);
	recount->has_head = true;
	recount->incarnation = trace->incarnation;
}

/* Asks once and prints what comes. */
static int recount_page(struct session *session, struct recount *recount)
{
	struct control_request request = {.command = COMMAND_TRACE, .at_round = recount->next_round};
	struct answer answer;
	int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_TRACE, &answer);
	if (status != 0)
		return status;
	const Edit__Control__Trace *trace = answer.reply->trace;
	if (!recount->has_head || trace->incarnation != recount->incarnation) {
		begin(session, recount, answer.reply);
	} else {
		for (size_t i = 0; i < trace->n_rounds; i++) {
			print_round(trace, trace->rounds[i]);
			recount->next_round = trace->rounds[i]->round + 1;
		}
		recount->is_done = trace->n_rounds == 0 && (!session->arguments->follow || trace->finished);
	}
	free(answer.block);
	return session_flush();
}

int run_trace(struct session *session)
{
	/* The first request is for no round that can be: only for the line that tells which there are. */
	struct recount recount = {.next_round = CODEC_NUMBER_END - 1};
	if (session->arguments->since_round >= CODEC_NUMBER_END)
		return session_fail(session, EDIT_ERROR_RANGE, "--since: there is no such round, expected less than 2^53");
	for (;;) {
		uint64_t before = recount.next_round;
		int status = recount_page(session, &recount);
		if (status != 0 || recount.is_done)
			return status;
		if (recount.next_round == before)
			session_sleep_s(POLL_S);
	}
}

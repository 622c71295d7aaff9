/* `editctl leave` and `editctl force`: what changes who is a member. A leave is asked for once and then watched until the
 * others have decided; a forced view is in force with the answer. */

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

#define POLL_S 0.1

static bool has_left(const Edit__Control__View *view)
{
	return strcmp(view->place, "left") == 0;
}

/* A daemon that has been started anew does not know that it was to leave. */
static bool is_leaving(const Edit__Control__View *view)
{
	for (size_t i = 0; i < view->n_members; i++)
		if (strcmp(view->members[i]->state, "self") == 0)
			return view->members[i]->leaving;
	return false;
}

/* The same as JSON, or false: it is to be told as text. */
static bool tell_json(const struct session *session, const Edit__Control__Reply *reply)
{
	if (session->arguments->json)
		session_print(json_reply(session->arguments->verb->name, reply));
	return session->arguments->json;
}

static void tell_left(const struct session *session, const Edit__Control__Reply *reply)
{
	if (tell_json(session, reply))
		return;
	table_text(stdout, TONE_PLAIN, session->colour, reply->view->name);
	printf(" has left the ring: view %" PRIu64 " goes on with %zu member%s\n", reply->view->number, reply->view->n_members,
	       reply->view->n_members == 1 ? "" : "s");
}

static int tell_late(const struct session *session, const Edit__Control__View *view)
{
	struct line line;
	line_fail(&line, EDIT_ERROR_TIMEOUT,
		  "not within %.3g s: %s is in view %" PRIu64 ", of which %" PRIu32 " of %zu members are heard%s; it leaves as soon as "
		  "they have decided",
		  session->arguments->limit_s, view->name, view->number, view->heard, view->n_members,
		  view->majority ? "" : ", no majority");
	return session_fail(session, EDIT_ERROR_TIMEOUT, line.text);
}

int run_leave(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct control_request request = {.command = COMMAND_LEAVE};
	double begin_s = session_clock_s();
	for (;;) {
		struct answer answer;
		bool is_late = arguments->limit_s >= 0 && session_clock_s() - begin_s >= arguments->limit_s;
		int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_VIEW, &answer);
		if (status != 0)
			return status;
		bool is_done = has_left(answer.reply->view), is_lost = !is_done && !is_leaving(answer.reply->view);
		if (is_done)
			tell_left(session, answer.reply);
		else if (is_lost)
			status = session_fail(session, EDIT_ERROR_LOST,
					      "editd has been started anew meanwhile and stays a member; leave again");
		else if (is_late)
			status = tell_late(session, answer.reply->view);
		free(answer.block);
		if (is_done || is_lost || is_late)
			return status;
		request.command = COMMAND_VIEW;
		session_sleep_s(POLL_S);
	}
}

static void tell_forced(const struct session *session, const Edit__Control__Reply *reply)
{
	const Edit__Control__View *view = reply->view;
	if (tell_json(session, reply))
		return;
	printf("view %" PRIu64 " is forced: ", view->number);
	for (size_t i = 0; i < view->n_members; i++) {
		fputs(i > 0 ? ", " : "", stdout);
		table_text(stdout, TONE_PLAIN, session->colour, view->members[i]->name);
	}
	printf(" go%s on\n", view->n_members == 1 ? "es" : "");
}

int run_force(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct control_request request = {.command = COMMAND_FORCE, .force = arguments->force};
	struct answer answer;
	struct line why = {""};
	int error = request_put_names(&request, arguments->words, arguments->word_count, &why);
	if (error != 0)
		return session_fail(session, error, why.text);
	int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_VIEW, &answer);
	if (status != 0)
		return status;
	if (answer.reply->view->trouble[0] != '\0')
		status = session_fail(session, EDIT_ERROR_SYSTEM, answer.reply->view->trouble);
	else
		tell_forced(session, answer.reply);
	free(answer.block);
	return status;
}

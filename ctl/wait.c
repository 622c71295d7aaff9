/* `editctl wait`: asks for the status until a round is done, the run is finished, or the ring is healthy. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/session.h"
#include "ctl/verb.h"

#define POLL_S 0.1

enum wait_kind {
	WAIT_ROUND,
	WAIT_FINISHED,
	WAIT_HEALTHY
};

/* EDIT_ERROR_INVALID if the words are not `round N`, `finished` or `healthy`. */
static int read_words(const struct arguments *arguments, enum wait_kind *ret_kind, uint64_t *ret_round)
{
	const char *const *words = arguments->words;
	if (arguments->word_count == 2 && strcmp(words[0], "round") == 0) {
		*ret_kind = WAIT_ROUND;
		return arguments_read_round(words[1], ret_round);
	}
	if (arguments->word_count != 1)
		return EDIT_ERROR_INVALID;
	if (strcmp(words[0], "finished") == 0)
		*ret_kind = WAIT_FINISHED;
	else if (strcmp(words[0], "healthy") == 0)
		*ret_kind = WAIT_HEALTHY;
	else
		return EDIT_ERROR_INVALID;
	return 0;
}

static bool is_reached(const Edit__Control__Status *status, enum wait_kind kind, uint64_t round)
{
	switch (kind) {
	case WAIT_ROUND: return status->round >= round;
	case WAIT_FINISHED: return strcmp(status->phase, "finished") == 0;
	case WAIT_HEALTHY: return status->healthy;
	}
	return false;
}

static int tell(const struct session *session, const Edit__Control__Reply *reply)
{
	if (session->arguments->json)
		session_print(json_reply(session->arguments->verb->name, reply));
	else
		printf("%s: round %" PRIu64 " done, %s, %s\n", reply->status->name, reply->status->round,
		       reply->status->phase, reply->status->healthy ? "healthy" : "not healthy");
	return 0;
}

static int tell_timeout(const struct session *session, const Edit__Control__Status *status)
{
	struct line line;
	line_fail(&line, EDIT_ERROR_TIMEOUT, "not within %.3g s: %s is in round %" PRIu64 ", %s, %s%s%s",
		  session->arguments->limit_s, status->name, status->round + 1, status->phase,
		  status->healthy ? "healthy" : "not healthy", status->waiting_for[0] != '\0' ? ", waiting for " : "",
		  status->waiting_for);
	return session_fail(session, EDIT_ERROR_TIMEOUT, line.text);
}

int run_wait(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct control_request request = {.command = COMMAND_STATUS};
	double begin_s = session_clock_s();
	enum wait_kind kind = WAIT_ROUND;
	uint64_t round = 0;
	if (read_words(arguments, &kind, &round) != 0)
		return session_fail(session, EDIT_ERROR_INVALID, "wait is followed by: round N | finished | healthy");
	for (;;) {
		struct answer answer;
		bool is_late = arguments->limit_s >= 0 && session_clock_s() - begin_s >= arguments->limit_s;
		int status = session_ask(session, &request, EDIT__CONTROL__REPLY__BODY_STATUS, &answer);
		if (status != 0)
			return status;
		const Edit__Control__Status *seen = answer.reply->status;
		bool is_done = is_reached(seen, kind, round);
		bool is_over = !is_done && kind == WAIT_ROUND && strcmp(seen->phase, "finished") == 0;
		if (is_done)
			status = tell(session, answer.reply);
		else if (is_over)
			status = session_fail(session, EDIT_ERROR_REFUSED, "the run is finished, no further round will come");
		else if (is_late)
			status = tell_timeout(session, seen);
		free(answer.block);
		if (is_done || is_over || is_late)
			return status;
		session_sleep_s(POLL_S);
	}
}

/* One run of editctl: asking, failing, printing. */

#include "ctl/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/table.h"
#include "ctl/verb.h"

int session_fail(const struct session *session, int error, const char *text)
{
	int status = edit_error_status(error);
	fflush(stdout);
	fputs("editctl: ", stderr);
	table_text(stderr, TONE_PLAIN, false, text);
	fputc('\n', stderr);
	if (session->arguments->json) {
		json_t *object = json_answer(session->arguments->verb->name);
		json_object_set_new(object, "error", json_text(edit_error_text(error)));
		json_object_set_new(object, "text", json_text(text));
		json_object_set_new(object, "exit_status", json_integer(status));
		session_print(object);
		fflush(stdout);
	}
	return status;
}

static int open_client(struct session *session, struct line *why)
{
	const struct arguments *arguments = session->arguments;
	int timeout_ms = (int)(arguments->timeout_s * 1000);
	if (arguments->host != NULL)
		return client_open_remote(arguments->host, arguments->key_file, arguments->server_file, timeout_ms, why,
					  &session->client);
	return client_open(arguments->socket_path, timeout_ms, why, &session->client);
}

int session_ask(struct session *session, const struct control_request *request, Edit__Control__Reply__BodyCase body,
		struct answer *ret_answer)
{
	struct answer answer = {0};
	struct line why = {""};
	int status;
	int error = 0;
	if (session->client == NULL)
		error = open_client(session, &why);
	if (error == 0)
		error = client_ask(session->client, request, &why, &answer);
	if (error != 0)
		return session_fail(session, error, why.text[0] != '\0' ? why.text : edit_error_text(error));
	error = answer.reply->error;
	if (error == 0 && answer.reply->body_case == body) {
		*ret_answer = answer;
		return 0;
	}
	if (error == 0)
		status = session_fail(session, EDIT_ERROR_MALFORMED, "editd answered something else than was asked for");
	else if (answer.reply->text[0] != '\0')
		status = session_fail(session, error, answer.reply->text);
	else
		status = session_fail(session, error, edit_error_text(error));
	free(answer.block);
	return status;
}

void session_print(json_t *object)
{
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
	fputc('\n', stdout);
	json_decref(object);
}

int session_flush(void)
{
	static bool is_told;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	if (!is_told)
		fprintf(stderr, "editctl: standard output cannot be written (%s)\n", strerror(errno));
	is_told = true;
	return 1;
}

double session_clock_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void session_sleep_s(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds};
	time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		continue;
}

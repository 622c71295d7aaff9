/* Commands that only read: ask, show, and with --watch again and again. On a terminal a watched picture is drawn over the
 * one before; into a pipe it is appended. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/render.h"
#include "ctl/request.h"
#include "ctl/session.h"
#include "ctl/verb.h"

/* Draws text from the upper left corner: each line replaces what stood there, lines are not wrapped, and what does not fit
 * the window's height is counted instead of scrolled. */
static void draw_over(const char *text)
{
	struct winsize window = {0};
	size_t height = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 1 ? window.ws_row - 1U : SIZE_MAX;
	size_t drawn = 0, hidden = 0;
	fputs("\033[?7l\033[H", stdout);
	while (*text != '\0') {
		size_t length = strcspn(text, "\n");
		if (drawn + 1 < height)
			printf("%.*s\033[K\n", (int)length, text);
		else
			hidden++;
		drawn++;
		text += length + (text[length] == '\n');
	}
	if (hidden > 0)
		printf("(and %zu lines more)\033[K", hidden);
	fputs("\033[J\033[?7h", stdout);
}

static void show_text(const struct session *session, const Edit__Control__Reply *reply, bool is_first)
{
	char *text = NULL;
	size_t size_bytes;
	FILE *out;
	if (!session->arguments->watch || !session->is_terminal) {
		if (!is_first)
			fputc('\n', stdout);
		render_reply(stdout, reply, session->colour);
		return;
	}
	out = open_memstream(&text, &size_bytes);
	if (out == NULL)
		return;
	render_reply(out, reply, session->colour);
	if (fclose(out) == 0)
		draw_over(text);
	free(text);
}

/* Asks once and shows the answer. */
static int look_once(struct session *session, const struct control_request *request, Edit__Control__Reply__BodyCase body,
		     bool is_first)
{
	struct answer answer;
	int status = session_ask(session, request, body, &answer);
	if (status != 0)
		return status;
	if (session->arguments->json)
		session_print(json_reply(session->arguments->verb->name, answer.reply));
	else
		show_text(session, answer.reply, is_first);
	if (body == EDIT__CONTROL__REPLY__BODY_HASHES && !answer.reply->hashes->equal)
		status = edit_error_status(EDIT_ERROR_UNHEALTHY);
	free(answer.block);
	return status;
}

/* Once, or watched for as long as the daemon answers; a ring that is not healthy is what people watch for. */
static int look(struct session *session, struct control_request *request, Edit__Control__Reply__BodyCase body)
{
	const struct arguments *arguments = session->arguments;
	double next_s = session_clock_s();
	int status;
	request->command = (enum command)arguments->verb->command;
	if (!arguments->watch)
		return look_once(session, request, body, true);
	if (session->is_terminal && !arguments->json)
		fputs("\033[2J", stdout);
	for (bool is_first = true;; is_first = false) {
		status = look_once(session, request, body, is_first);
		if (session_flush() != 0)
			return 1;
		if (status != 0 && status != edit_error_status(EDIT_ERROR_UNHEALTHY))
			return status;
		double now_s = session_clock_s();
		next_s += arguments->watch_s;
		if (next_s < now_s)
			next_s = now_s; /* answers take longer than the interval: do not hurry after them */
		session_sleep_s(next_s - now_s);
		if (status != 0 && session->is_terminal && !arguments->json)
			fputs("\033[H\033[J", stdout); /* what was told then is not drawn over line by line */
	}
}

int run_status(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_STATUS);
}

int run_peers(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_PEERS);
}

int run_mesh(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_MESH);
}

int run_view(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_VIEW);
}

int run_layers(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_LAYERS);
}

int run_penalties(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_PENALTIES);
}

int run_hash(struct session *session)
{
	return look(session, &(struct control_request){0}, EDIT__CONTROL__REPLY__BODY_HASHES);
}

int run_get(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct control_request request = {0};
	struct line why;
	if (arguments->word_count == 1) {
		int error = request_put_setting(&request, arguments->words[0], &why);
		if (error != 0)
			return session_fail(session, error, why.text);
	}
	return look(session, &request, EDIT__CONTROL__REPLY__BODY_SETTINGS);
}

int run_change(struct session *session)
{
	struct control_request request = {0};
	if (arguments_read_identity(session->arguments->words[0], &request.change) != 0)
		return session_fail(session, EDIT_ERROR_INVALID,
				    "change is followed by an identity, up to 16 hexadecimal digits as `set` prints them");
	return look(session, &request, EDIT__CONTROL__REPLY__BODY_CHANGE);
}

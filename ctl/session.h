#ifndef EDIT_CTL_SESSION_H
#define EDIT_CTL_SESSION_H

/* One run of editctl: arguments, client, and how answers and failures are told. A program's exit status is decided here and
 * in the run_ functions, nowhere else. */

#include <stdbool.h>

#include <jansson.h>

#include "ctl/arguments.h"
#include "ctl/client.h"

struct session {
	const struct arguments *arguments;
	struct client *client; /* NULL: opened by the first request, so that wrong words are told first */
	bool is_terminal; /* standard output is one */
	bool colour;
};

/* Tells a failure on standard error, and with --json as an object {"version", "command", "error", "text", "exit_status"} on
 * standard output too. Returns the exit status that belongs to error. */
int session_fail(const struct session *session, int error, const char *text);

/* Asks the daemon. Returns 0 with *ret_answer filled (the caller free()s its block), or the exit status of a failure, or of
 * an error in the reply, that has been told already; *ret_answer is untouched then. body: what a good reply must hold. */
int session_ask(struct session *session, const struct control_request *request, Edit__Control__Reply__BodyCase body,
		struct answer *ret_answer);

/* Prints object on one line of standard output and releases it. */
void session_print(json_t *object);

/* Writes standard output through; returns 0, or 1 when it could not be written (told the first time). */
int session_flush(void);

/* Seconds on a monotonic clock. */
double session_clock_s(void);
/* Sleeps. */
void session_sleep_s(double seconds);

#endif

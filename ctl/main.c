/* editctl: shows and steers a running ring through the control socket of one member. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/session.h"
#include "ctl/verb.h"
#include "proto/stream.h"

/* Colours only where a person looks who has not said no (no-color.org). */
static bool wants_colour(bool is_terminal)
{
	const char *no_colour = getenv("NO_COLOR");
	return is_terminal && (no_colour == NULL || no_colour[0] == '\0');
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	struct session session = {.arguments = &arguments, .is_terminal = isatty(STDOUT_FILENO) == 1};
	int status;

	stream_open_standard();
	arguments_parse(argc, argv, &arguments);
	session.colour = wants_colour(session.is_terminal);
	status = arguments.verb->run(&session);
	client_close(session.client);
	if (session_flush() != 0 && status == 0)
		status = 1;
	return status;
}

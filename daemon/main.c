/* editd: the peer daemon of one member. Reads options and config, opens the daemon's parts, turns its loop until a
 * signal, closes.
 *
 * Exit status: 0 stopped by a signal, 1 failure, 2 usage or config. */

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "proto/stream.h"

enum { KEY_CHECK_CONFIG = 256 };

struct options {
	const char *file;
	bool is_check;
};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'c': options->file = text; return 0;
	case KEY_CHECK_CONFIG: options->is_check = true; return 0;
	case ARGP_KEY_ARG: argp_error(state, "takes no words, but '%s' is given", text); return EINVAL;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option option_table[] = {
	{"config", 'c', "FILE", 0, "Config file (default: " CONFIG_FILE_STANDARD "); FILE.d/*.conf follow it", 0},
	{"check-config", KEY_CHECK_CONFIG, NULL, 0, "Check the config, say what is wrong, and exit", 0},
	{0}};

static const struct argp parser = {
	option_table, parse_option,
	NULL,         "Peer daemon of an EDiT ring.\vExit status: 0 stopped by a signal, 1 failure, 2 usage or config.",
	NULL,         NULL,
	NULL};

/* Where argp looks for it: not hidden, unlike all else. */
__attribute__((visibility("default"))) const char *argp_program_version = "editd " EDIT_VERSION;

/* Levels of node.log_level, in the order of its choices. */
static const int levels[] = {LEVEL_ERROR, LEVEL_WARNING, LEVEL_NOTICE, LEVEL_INFO, LEVEL_DEBUG};

int main(int argc, char **argv)
{
	/* About 600 KiB, most of it the node's actions: not for the stack. */
	static struct daemon daemon;
	struct options options = {.file = CONFIG_FILE_STANDARD};
	struct line why = {""};
	stream_open_standard();
	argp_err_exit_status = edit_error_status(EDIT_ERROR_INVALID);
	argp_parse(&parser, argc, argv, 0, NULL, &options);

	int error = config_open(options.file, &daemon.config, &why);
	if (!error) {
		error = keyring_open(&daemon.config, &daemon.keyring, &why);
		if (error)
			config_close(&daemon.config);
	}
	if (error) {
		if (options.is_check)
			fprintf(stderr, "%s\n", why.text);
		else
			log_line(LEVEL_ERROR, "%s", why.text);
		/* A config that cannot be read is as good as a wrong one. */
		return edit_error_status(EDIT_ERROR_INVALID);
	}
	if (options.is_check) {
		puts("config ok");
		keyring_close(&daemon.keyring);
		config_close(&daemon.config);
		return 0;
	}
	log_set_level(levels[(size_t)config_number(&daemon.config, NODE_LOG_LEVEL)]);
	error = daemon_open(&daemon);
	if (error)
		return EXIT_FAILURE;
	while (daemon_turn(&daemon))
		;
	daemon_close(&daemon);
	return EXIT_SUCCESS;
}

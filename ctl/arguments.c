/* The command line of editctl, by argp. Checks everything that can be known without a daemon. */

#include "ctl/arguments.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"
#include "ctl/usage.h"
#include "ctl/verb.h"

#define DEFAULT_SOCKET "/run/editd/control.sock"
#define DEFAULT_KEYS "/etc/editd/keys"

enum {
	KEY_WATCH = 'w',
	KEY_AT_ROUND = 0x100,
	KEY_DRY_RUN,
	KEY_WAIT,
	KEY_SINCE,
	KEY_LAST,
	KEY_FOLLOW,
	KEY_TIMEOUT,
	KEY_HOST,
	KEY_KEY,
	KEY_SERVER,
	KEY_OUT,
	KEY_FORCE
};

static const struct argp_option options[] = {
	{NULL, 0, NULL, 0, "Options:", 1},
	{"socket", 's', "PATH", 0, "control socket of editd (default: EDITCTL_SOCKET, then " DEFAULT_SOCKET ")", 0},
	{"host", KEY_HOST, "ADDRESS", 0, "another node, at its control.listen: tcp://HOST:PORT (default: EDITCTL_HOST)", 0},
	{"key", KEY_KEY, "FILE", 0, "with --host: own secret key, of `editctl keygen` (default: EDITCTL_KEY)", 0},
	{"server", KEY_SERVER, "FILE", 0, "with --host: public key of that node (default: EDITCTL_SERVER)", 0},
	{"time", 't', "SECONDS", 0, "longest wait for each answer of editd (default 5)", 0},
	{"json", 'j', NULL, 0, "one JSON object instead of text (with --watch: one per line)", 0},
	{"watch", KEY_WATCH, "SECONDS", OPTION_ARG_OPTIONAL, "commands that read: show again every SECONDS (default 1)", 0},
	{"at-round", KEY_AT_ROUND, "N", 0, "set, pause, checkpoint: after exactly this round, or not at all", 0},
	{"dry-run", KEY_DRY_RUN, NULL, 0, "set: only check", 0},
	{"wait", KEY_WAIT, NULL, 0, "set, pause, resume, checkpoint: until it is in force (checkpoint: written)", 0},
	{"since", KEY_SINCE, "ROUND", 0, "trace: from this round on", 0},
	{"last", KEY_LAST, "N", 0, "trace: the latest N rounds only", 0},
	{"follow", KEY_FOLLOW, NULL, 0, "trace: go on with each round that ends, until the run is finished", 0},
	{"timeout", KEY_TIMEOUT, "SECONDS", 0, "wait, leave, --wait: give up after so long with exit status 6 (default: never)", 0},
	{"out", KEY_OUT, "DIR", 0, "keygen: folder for the keys (default " DEFAULT_KEYS ")", 0},
	{"force", KEY_FORCE, NULL, 0, "keygen: even if there are keys already; force: even if a majority of the members is heard", 0},
	{0},
};

static const char doc_after[] =
	"SETTING VALUE may also be SETTING=VALUE, several times.\n\n"
	"Exit status: 0 ok, 1 failure, 2 usage, 3 editd not reachable, 4 refused, 5 ring not healthy (hash: they differ, or are not all told), "
	"6 timed out.\n\n"
	"JSON: \"version\" is 1; names and units are those of control.proto (_us: microseconds); numbers that are not finite "
	"are the strings \"nan\", \"inf\", \"-inf\"; identities and hashes are strings of 16 hexadecimal digits. trace writes JSON with and without --json.";

/* Where argp looks for it: not hidden, unlike all else. */
__attribute__((visibility("default"))) const char *argp_program_version = "editctl " EDIT_VERSION;

int arguments_read_seconds(const char *text, double low, double high, double *ret_s)
{
	char *end;
	if (text[0] == '\0' || strspn(text, "0123456789.eE+-") != strlen(text))
		return EDIT_ERROR_INVALID;
	double value = strtod(text, &end);
	if (*end != '\0' || !(value >= low && value <= high))
		return EDIT_ERROR_INVALID;
	*ret_s = value;
	return 0;
}

int arguments_read_round(const char *text, uint64_t *ret_round)
{
	if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text))
		return EDIT_ERROR_INVALID;
	errno = 0;
	unsigned long long value = strtoull(text, NULL, 10);
	if (errno != 0 || value == 0 || value > INT64_MAX)
		return EDIT_ERROR_INVALID;
	*ret_round = value;
	return 0;
}

int arguments_read_identity(const char *text, uint64_t *ret_identity)
{
	size_t length = strlen(text);
	if (length == 0 || length > 16 || strspn(text, "0123456789abcdefABCDEF") != length)
		return EDIT_ERROR_INVALID;
	uint64_t value = strtoull(text, NULL, 16);
	if (value == 0)
		return EDIT_ERROR_INVALID;
	*ret_identity = value;
	return 0;
}

static void read_seconds_option(const char *name, const char *text, double low, double *result, struct argp_state *state)
{
	if (arguments_read_seconds(text, low, 86400, result) != 0)
		argp_error(state, "%s %s: a time in seconds from %g to 86400 was expected", name, text, low);
}

static void read_round_option(const char *name, const char *text, uint64_t *result, struct argp_state *state)
{
	if (arguments_read_round(text, result) != 0)
		argp_error(state, "%s %s: a %s from 1 was expected", name, text,
			   strcmp(name, "--last") == 0 ? "number of rounds" : "round number");
}

/* --watch takes its number as --watch=2, and also as --watch 2 because people write it so. */
static void read_watch(const char *text, struct arguments *arguments, struct argp_state *state)
{
	double ignored;
	arguments->watch = true;
	if (text == NULL && state->next < state->argc &&
	    arguments_read_seconds(state->argv[state->next], 0, HUGE_VAL, &ignored) == 0)
		text = state->argv[state->next++];
	if (text != NULL)
		read_seconds_option("--watch", text, 0.1, &arguments->watch_s, state);
}

static void read_word(char *word, struct arguments *arguments, struct argp_state *state)
{
	if (arguments->verb == NULL) {
		arguments->verb = verb_find(word);
		if (arguments->verb == NULL)
			argp_error(state, "unknown command '%s'", word);
	} else if (arguments->word_count == ARGUMENTS_WORD_MAX) {
		argp_error(state, "%s: more than %d words", arguments->verb->name, ARGUMENTS_WORD_MAX);
	} else {
		arguments->words[arguments->word_count++] = word;
	}
}

static void check_option(bool is_given, enum verb_option option, const char *name, const struct arguments *arguments,
			 struct argp_state *state)
{
	if (is_given && !verb_has(arguments->verb, option))
		argp_error(state, "%s does not go with %s", name, arguments->verb->name);
}

/* What can only be said once all words are there. */
static void check_whole(const struct arguments *arguments, struct argp_state *state)
{
	const struct verb *verb = arguments->verb;
	if (verb == NULL)
		argp_error(state, "no command given");
	if (arguments->word_count < verb->words->min || arguments->word_count > verb->words->max) {
		if (verb->words->shown == NULL)
			argp_error(state, "%s takes no words, but '%s' follows", verb->name, arguments->words[0]);
		else
			argp_error(state, "%s is followed by: %s", verb->name, verb->words->shown);
	}
	check_option(arguments->watch, VERB_WATCH, "--watch", arguments, state);
	check_option(arguments->at_round != 0, VERB_AT_ROUND, "--at-round", arguments, state);
	check_option(arguments->dry_run, VERB_DRY_RUN, "--dry-run", arguments, state);
	check_option(arguments->wait, VERB_WAIT, "--wait", arguments, state);
	check_option(arguments->since_round != 0, VERB_SINCE, "--since", arguments, state);
	check_option(arguments->last_count != 0, VERB_LAST, "--last", arguments, state);
	check_option(arguments->follow, VERB_FOLLOW, "--follow", arguments, state);
	check_option(arguments->limit_s >= 0, VERB_TIMEOUT, "--timeout", arguments, state);
	check_option(arguments->out != NULL, VERB_OUT, "--out", arguments, state);
	check_option(arguments->force, VERB_FORCE, "--force", arguments, state);
	if (arguments->host != NULL && (arguments->key_file == NULL || arguments->server_file == NULL))
		argp_error(state, "--host goes with --key FILE and --server FILE");
	if (arguments->limit_s >= 0 && verb_has(verb, VERB_WAIT) && !arguments->wait)
		argp_error(state, "--timeout goes with --wait");
	if (arguments->dry_run && arguments->wait)
		argp_error(state, "--dry-run changes nothing that --wait could wait for");
}

static error_t parse_key(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	switch (key) {
	case 's':
		arguments->socket_path = text;
		arguments->host = NULL; /* the later one counts */
		break;
	case KEY_HOST: arguments->host = text; break;
	case KEY_KEY: arguments->key_file = text; break;
	case KEY_SERVER: arguments->server_file = text; break;
	case KEY_OUT: arguments->out = text; break;
	case KEY_FORCE: arguments->force = true; break;
	case 't': read_seconds_option("--time", text, 0.001, &arguments->timeout_s, state); break;
	case 'j': arguments->json = true; break;
	case KEY_WATCH: read_watch(text, arguments, state); break;
	case KEY_AT_ROUND: read_round_option("--at-round", text, &arguments->at_round, state); break;
	case KEY_SINCE: read_round_option("--since", text, &arguments->since_round, state); break;
	case KEY_LAST: read_round_option("--last", text, &arguments->last_count, state); break;
	case KEY_FOLLOW: arguments->follow = true; break;
	case KEY_DRY_RUN: arguments->dry_run = true; break;
	case KEY_WAIT: arguments->wait = true; break;
	case KEY_TIMEOUT: read_seconds_option("--timeout", text, 0, &arguments->limit_s, state); break;
	case ARGP_KEY_ARG: read_word(text, arguments, state); break;
	case ARGP_KEY_END: check_whole(arguments, state); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* What stands above the options in --help: the table of commands, one line each. */
static void list_commands(FILE *out)
{
	size_t count;
	const struct verb *verbs = verb_list(&count);
	fputs("Shows and steers a running EDiT ring, from any of its members.\n\nCommands:\n", out);
	for (size_t i = 0; i < count; i++) {
		const char *words = verbs[i].words->shown != NULL ? verbs[i].words->shown : "";
		int width = fprintf(out, "  %s %s", verbs[i].name, words);
		fprintf(out, "%*s%s\n", width < 21 ? 21 - width : 1, "", verbs[i].help);
	}
}

/* A variable of the environment; standard if it is not set, or empty. */
static const char *environment_or(const char *name, const char *standard)
{
	const char *value = getenv(name);
	return value != NULL && value[0] != '\0' ? value : standard;
}

void arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
	struct arguments arguments = {.timeout_s = 5, .watch_s = 1, .limit_s = -1};
	struct argp argp = {.options = options, .parser = parse_key, .args_doc = "COMMAND [WORD...]"};
	char *doc = NULL;
	size_t doc_bytes;
	FILE *out = open_memstream(&doc, &doc_bytes);
	arguments.socket_path = environment_or("EDITCTL_SOCKET", DEFAULT_SOCKET);
	arguments.host = environment_or("EDITCTL_HOST", NULL);
	arguments.key_file = environment_or("EDITCTL_KEY", NULL);
	arguments.server_file = environment_or("EDITCTL_SERVER", NULL);
	if (out != NULL) {
		list_commands(out);
		fprintf(out, "\v%s", doc_after);
		if (fclose(out) == 0)
			argp.doc = doc;
	}
	argp_err_exit_status = 2;
	usage_begin(argc, argv);
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	usage_end();
	if (arguments.out == NULL)
		arguments.out = DEFAULT_KEYS;
	free(doc);
	*ret_arguments = arguments;
}

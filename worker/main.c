/* edit-worker: finds the command and hands the rest of the line over to it. */

#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "proto/stream.h"
#include "worker/commands.h"

/* Where argp looks for it: not hidden, unlike all else. */
__attribute__((visibility("default"))) const char *argp_program_version = "edit-worker " EDIT_VERSION;

static const struct command {
	const char *name, *full_name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"train", "edit-worker train", command_train},
	{"eval", "edit-worker eval", command_eval},
	{"sample", "edit-worker sample", command_sample},
	{"join", "edit-worker join", command_join},
};

static const char doc[] =
	"Trains a Llama as one member of an EDiT ring, and measures and samples Llama models.\v"
	"Commands:\n"
	"  train    take part in a ring: the training process beside a running editd\n"
	"  eval     loss, perplexity and bits per byte of a model on a file\n"
	"  sample   let a model continue a text\n"
	"  join     make a model of the checkpoints of a mesh, whose members hold pieces\n"
	"\n"
	"A model is a folder as Hugging Face lays it out: config.json and model.safetensors (or shards with an index), "
	"with float32, bfloat16 or float16 weights. `edit-worker COMMAND --help' tells more.\n"
	"\n" EXIT_STATUS_TEXT ".";

static error_t parse(int key, char *text, struct argp_state *state)
{
	const struct command **command = state->input;
	switch (key) {
	case ARGP_KEY_ARG:
		for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
			if (!strcmp(commands[i].name, text))
				*command = &commands[i];
		if (!*command)
			argp_failure(state, 2, 0, "'%s' is not a command: train, eval, sample or join (--help tells more)", text);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_failure(state, 2, 0, "expected a command: train, eval, sample or join (--help tells more)");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {.parser = parse, .args_doc = "COMMAND [OPTION...]", .doc = doc};
	static char name[32];
	const struct command *command = NULL;
	int first = 1;
	stream_open_standard();
	argp_err_exit_status = 2;
	/* Options before the command are our own (--help, --version); all behind it are the command's. */
	while (first < argc && argv[first][0] == '-')
		first++;
	argp_parse(&argp, first < argc ? first + 1 : argc, argv, ARGP_IN_ORDER, NULL, &command);
	snprintf(name, sizeof(name), "%s", command->full_name);
	argv[first] = name;
	return command->run(argc - first, argv + first);
}

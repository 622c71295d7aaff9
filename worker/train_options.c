/* The command line of edit-worker train. */

#include <math.h>
#include <string.h>

#include "proto/text.h"
#include "worker/cmdline.h"
#include "worker/commands.h"
#include "worker/threads.h"
#include "worker/train_options.h"

enum {
	KEY_SOCKET = 256, KEY_WAIT, KEY_RUN, KEY_MODEL, KEY_DATA, KEY_TYPE, KEY_HOLDOUT, KEY_STEPS, KEY_BATCH, KEY_CONTEXT,
	KEY_ACCUMULATE, KEY_LR, KEY_MIN_LR, KEY_WARMUP, KEY_DECAY, KEY_BETA1, KEY_BETA2, KEY_CLIP, KEY_SEED, KEY_THREADS,
	KEY_LOG, KEY_DRILL
};

static const struct argp_option arguments[] = {
	{NULL, 0, NULL, 0, "The ring:", 1},
	{"socket", KEY_SOCKET, "PATH", 0, "the daemon's worker socket (default /run/editd/worker.sock)", 1},
	{"wait", KEY_WAIT, "SECONDS", 0, "for a daemon on the socket (default 60; inf: for ever)", 1},
	{"run", KEY_RUN, "NAME", 0, "name of the run, the same on all members (default run)", 1},
	{NULL, 0, NULL, 0, "The model:", 2},
	{"model", KEY_MODEL, "DIR|FILE", 0,
	 "folder with config.json; with model.safetensors in it, training begins from these weights, otherwise from the "
	 "seed. Or a config.json", 2},
	{NULL, 0, NULL, 0, "The data:", 3},
	{"data", KEY_DATA, "FILE", 0, "text or tokens", 3},
	{"data-type", KEY_TYPE, "TYPE", 0,
	 "text (bytes), u16, u32 (tokens without a header), llmc (llm.c's header) or auto: llmc by its magic number, .bin "
	 "as u16, or u32 above a vocabulary of 65536, otherwise text (default auto)", 3},
	{"holdout", KEY_HOLDOUT, "F", 0, "fraction at the end of the file that is never trained on (default 0)", 3},
	{"seed", KEY_SEED, "N", 0,
	 "of initial parameters and of the order of samples, the same on all members (default 1)", 3},
	{NULL, 0, NULL, 0, "Steps:", 4},
	{"steps", KEY_STEPS, "N", 0, "local steps of the run (default 1000)", 4},
	{"batch", KEY_BATCH, "N", 0, "sequences at once (default 8)", 4},
	{"context", KEY_CONTEXT, "N", 0, "tokens of a sequence (default 256, or what the model has)", 4},
	{"accumulate", KEY_ACCUMULATE, "N", 0, "batches of one step (default 1)", 4},
	{NULL, 0, NULL, 0, "The inner optimiser, AdamW:", 5},
	{"lr", KEY_LR, "X", 0, "learning rate after warm-up (default 0.001)", 5},
	{"min-lr", KEY_MIN_LR, "X", 0, "learning rate at the end of the cosine (default a tenth of --lr)", 5},
	{"warmup", KEY_WARMUP, "N", 0, "steps of linear warm-up (default a tenth of --steps, up to 100)", 5},
	{"weight-decay", KEY_DECAY, "X", 0, "of matrices (default 0.1)", 5},
	{"beta1", KEY_BETA1, "X", 0, "(default 0.9)", 5},
	{"beta2", KEY_BETA2, "X", 0, "(default 0.95)", 5},
	{"clip", KEY_CLIP, "X", 0, "largest norm of the gradient, 0: any (default 1)", 5},
	{NULL, 0, NULL, 0, "Running:", 6},
	{"threads", KEY_THREADS, "N", 0, "threads of matrix products (default: as many as the process may use)", 6},
	{"log-interval", KEY_LOG, "SECONDS", 0, "between two lines of progress (default 10; 0: a line for each step)", 6},
	{"drill", KEY_DRILL, "KIND@STEP[xFACTOR][+COUNT]", 0,
	 "rehearse an incident from that step on, for COUNT (1) steps: nan (a parameter becomes NaN), scale (steps move "
	 "FACTOR, 100, times as far), slow (steps take FACTOR, 4, times as long); may be given several times", 6},
	{0},
};

static const char doc[] =
	"Trains a Llama as one member of a ring: takes gradient steps on its own part of the data, and hands the "
	"parameters to the daemon beside it whenever a round is due. Parameters, optimiser state and step are kept by the "
	"daemon: killed and started again with the same arguments, it goes on where it was. SIGTERM and SIGINT end it cleanly.\v"
	EXIT_STATUS_TEXT ".";

/* What is not known until all arguments are read. */
struct parsing {
	struct train_options *options;
	bool has_min_lr, has_warmup;
};

static void finish(const struct argp_state *state, const struct parsing *parsing)
{
	struct train_options *options = parsing->options;
	if (!options->model || !options->data)
		cmdline_fail(state, "%s is missing", options->model ? "--data FILE" : "--model DIR");
	options->schedule.total_steps = options->step_count;
	if (!parsing->has_min_lr)
		options->schedule.floor = options->schedule.peak / 10;
	if (!parsing->has_warmup)
		options->schedule.warmup_steps = u64_min(100, options->step_count / 10);
	if (options->schedule.floor > options->schedule.peak)
		cmdline_fail(state, "--min-lr: %g, expected at most --lr (%g)", options->schedule.floor,
			     options->schedule.peak);
	if (options->schedule.warmup_steps > options->step_count)
		cmdline_fail(state, "--warmup: %llu, expected at most --steps (%llu)",
			      (unsigned long long)options->schedule.warmup_steps, (unsigned long long)options->step_count);
}

static void add_drill(const struct argp_state *state, struct train_options *options, const char *text)
{
	if (options->drill_count == DRILL_COUNT_MAX)
		cmdline_fail(state, "--drill: more than %d", DRILL_COUNT_MAX);
	if (drill_read(text, &options->drills[options->drill_count]))
		cmdline_fail(state,
			     "--drill: '%s', expected KIND@STEP[xFACTOR][+COUNT] with nan, scale or slow, such as slow@100x4+50",
			     text);
	options->drill_count++;
}

/* Options of the optimiser; false if key is none. */
static bool parse_adamw(int key, const char *text, const struct argp_state *state, struct parsing *parsing)
{
	struct train_options *options = parsing->options;
	switch (key) {
	case KEY_LR: options->schedule.peak = cmdline_real(state, "--lr", text, 0, 1e6); return true;
	case KEY_MIN_LR:
		options->schedule.floor = cmdline_real(state, "--min-lr", text, 0, 1e6);
		parsing->has_min_lr = true;
		return true;
	case KEY_WARMUP:
		options->schedule.warmup_steps = cmdline_count(state, "--warmup", text, 0, 1000000000);
		parsing->has_warmup = true;
		return true;
	case KEY_DECAY: options->adamw.weight_decay = cmdline_real(state, "--weight-decay", text, 0, 1000); return true;
	case KEY_BETA1: options->adamw.beta1 = cmdline_real(state, "--beta1", text, 0, 0.999999); return true;
	case KEY_BETA2: options->adamw.beta2 = cmdline_real(state, "--beta2", text, 0, 0.999999); return true;
	case KEY_CLIP: options->adamw.clip_norm = cmdline_real(state, "--clip", text, 0, 1e30); return true;
	default: return false;
	}
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct parsing *parsing = state->input;
	struct train_options *options = parsing->options;
	if (parse_adamw(key, text, state, parsing))
		return 0;
	switch (key) {
	case KEY_SOCKET: options->socket_path = text; return 0;
	case KEY_WAIT: options->wait_s = cmdline_real(state, "--wait", text, 0, INFINITY); return 0;
	case KEY_RUN:
		if (!text_is_name(text))
			cmdline_fail(state, "--run: '%s', expected 1 to 63 of a-z, 0-9 and -", text);
		options->run = text;
		return 0;
	case KEY_MODEL: options->model = text; return 0;
	case KEY_DATA: options->data = text; return 0;
	case KEY_TYPE:
		if (corpus_type_find(text, &options->corpus.type))
			cmdline_fail(state, "--data-type: '%s', expected text, u16, u32, llmc or auto", text);
		return 0;
	case KEY_HOLDOUT: options->corpus.holdout = cmdline_real(state, "--holdout", text, 0, 0.99); return 0;
	case KEY_SEED: options->seed = cmdline_count(state, "--seed", text, 0, UINT64_MAX); return 0;
	case KEY_STEPS: options->step_count = cmdline_count(state, "--steps", text, 1, 1000000000); return 0;
	case KEY_BATCH: options->batch = (unsigned)cmdline_count(state, "--batch", text, 1, 65536); return 0;
	case KEY_CONTEXT: options->corpus.context = (uint32_t)cmdline_count(state, "--context", text, 1, 1 << 20); return 0;
	case KEY_ACCUMULATE: options->accumulate = (unsigned)cmdline_count(state, "--accumulate", text, 1, 65536); return 0;
	case KEY_THREADS: options->threads = (unsigned)cmdline_count(state, "--threads", text, 1, 1024); return 0;
	case KEY_LOG: options->log_interval_s = cmdline_real(state, "--log-interval", text, 0, 1e9); return 0;
	case KEY_DRILL: add_drill(state, options, text); return 0;
	case ARGP_KEY_ARG: cmdline_fail(state, "'%s': not expected, only options are", text);
	case ARGP_KEY_END: finish(state, parsing); return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

void train_options_read(int argc, char **argv, struct train_options *ret_options)
{
	static const struct argp argp = {.options = arguments, .parser = parse, .doc = doc};
	*ret_options = (struct train_options){
		.socket_path = "/run/editd/worker.sock",
		.run = "run",
		.corpus.type = CORPUS_AUTO,
		.step_count = 1000,
		.batch = 8,
		.accumulate = 1,
		.adamw = adamw_standard(),
		.schedule.peak = 1e-3,
		.seed = 1,
		.threads = threads_allowed(),
		.wait_s = 60,
		.log_interval_s = 10,
	};
	struct parsing parsing = {.options = ret_options};
	argp_parse(&argp, argc, argv, 0, NULL, &parsing);
}

/* edit-sim: runs simulated rings and prints one line; a failing one prints its seed and the end of its trace. `edit-sim run` runs an
 * experiment instead (sim/study.h), `edit-sim rehearse` a recorded ring (sim/rehearse.h). */

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/layer.h"
#include "sim/rehearse.h"
#include "sim/study.h"
#include "sim/world.h"

/* Where argp looks for it: not hidden, unlike all else. */
__attribute__((visibility("default"))) const char *argp_program_version = "edit-sim " EDIT_VERSION;

static struct trace trace;
static struct world_config running; /* for check_failed */

static const char description[] =
	"Runs rings of simulated peers in virtual time, everything drawn from a seed, and checks every event.\v"
	"What is not given is drawn from the seed. The same seed and numbers give the same hash on every run. Exit status: 0 all "
	"rings ended well, 1 one did not (its seed and the end of its trace are printed), 2 usage.\n\n"
	"`edit-sim run SCENARIO.ini` runs an experiment with the real model instead: see `edit-sim run --help`. "
	"`edit-sim rehearse TRACE.jsonl` tells what a recorded ring would have done under other settings: see `edit-sim rehearse "
	"--help`.";

static const struct argp_option options[] = {
	{"seed", 's', "SEED", 0, "the seed of one ring (default 1)", 0},
	{"seeds", 'n', "A-B", 0, "rings of seeds A to B; a single number means 1 to it", 0},
	{"peers", 'p', "N", 0, "members of the ring", 0},
	{"fanout", 'g', "F", 0, "members of a group of the ring, a divisor of the members; as many: a flat ring", 0},
	{"shards", 'm', "M", 0, "members that share a replica of the model: PEERS x M in all", 0},
	{"layers", 'l', "L", 0, "layers of the model", 0},
	{"rounds", 'r', "R", 0, "rounds until the run ends", 0},
	{"faults", 'f', "LIST", 0, "none, all, or of: loss,reorder,duplicate,slow,poison,nan,crash,change,jitter,cut,restart,death,views", 0},
	{"trace", 't', NULL, 0, "print every event and action to standard error", 0},
	{0},
};

struct arguments {
	struct world_config config;
	uint64_t first, last;
	bool is_many;
};

static uint64_t whole_number(struct argp_state *state, const char *name, const char *text, uint64_t low, uint64_t high)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || *text == '-' || number < low || number > high)
		argp_failure(state, 2, 0, "--%s %s: expected a whole number from %" PRIu64 " to %" PRIu64, name, text, low, high);
	return number;
}

static void read_seeds(struct argp_state *state, struct arguments *arguments, char *text)
{
	char *dash = strchr(text, '-');
	arguments->is_many = true;
	arguments->first = 1;
	if (dash != NULL && dash != text) {
		*dash = '\0';
		arguments->first = whole_number(state, "seeds", text, 0, UINT64_MAX - 1);
		text = dash + 1;
	}
	arguments->last = whole_number(state, "seeds", text, arguments->first, UINT64_MAX - 1);
}

static unsigned fault_of(struct argp_state *state, const char *name)
{
#define X(id, bit, text)                                                                                               \
	if (strcmp(name, text) == 0)                                                                                   \
		return id;
	FAULTS(X)
#undef X
	if (strcmp(name, "all") == 0)
		return FAULT_ALL;
	if (strcmp(name, "none") != 0)
		argp_failure(state, 2, 0, "--faults %s: expected none, all, or a list of loss, reorder, duplicate, slow, poison, nan, "
			     "crash, change, jitter, cut, restart, death, views", name);
	return 0;
}

static unsigned read_faults(struct argp_state *state, char *text)
{
	unsigned faults = 0;
	char *rest = NULL;
	for (char *name = strtok_r(text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
		faults |= fault_of(state, name);
	return faults;
}

static error_t read_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	struct world_config *config = &arguments->config;
	switch (key) {
	case 's': arguments->first = arguments->last = whole_number(state, "seed", text, 0, UINT64_MAX - 1); break;
	case 'n': read_seeds(state, arguments, text); break;
	case 'p': config->peers = (uint32_t)whole_number(state, "peers", text, 1, MEMBER_COUNT_MAX); break;
	case 'g': config->fanout = (uint32_t)whole_number(state, "fanout", text, 2, MEMBER_COUNT_MAX); break;
	case 'm': config->shards = (uint32_t)whole_number(state, "shards", text, 1, MEMBER_COUNT_MAX); break;
	case 'l': config->layer_count = whole_number(state, "layers", text, 1, LAYER_COUNT_MAX); break;
	case 'r': config->rounds = whole_number(state, "rounds", text, 1, 1000000); break;
	case 'f': config->faults = read_faults(state, text); break;
	case 't': trace.live = stderr; break;
	case ARGP_KEY_ARG: argp_failure(state, 2, 0, "%s: expected options only (see --help)", text); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void print_failure(const char *reason)
{
	printf("sim: FAILED seed=%" PRIu64 " peers=%" PRIu32 " layers=%zu rounds=%" PRIu64 ": %s\n", running.seed, running.peers,
	       running.layer_count, running.rounds, reason);
	trace_print(&trace, stdout);
}

/* The core found its own fault: the seed matters most. */
void check_failed(const char *condition, const char *file, int line)
{
	char reason[512];
	snprintf(reason, sizeof reason, "%s:%d: check failed: %s", file, line, condition);
	if (running.peers == 0) { /* in an experiment */
		fprintf(stderr, "edit-sim: %s\n", reason);
		_exit(1);
	}
	print_failure(reason);
	exit(1);
}

static bool run(const struct arguments *arguments, uint64_t seed, struct world_result *ret_result)
{
	running = arguments->config;
	running.seed = seed;
	world_config_draw(&running);
	trace.count = 0;
	world_run(&running, &trace, ret_result);
	if (!ret_result->ok)
		print_failure(ret_result->reason);
	return ret_result->ok;
}

static int run_one(const struct arguments *arguments)
{
	struct world_result result;
	if (!run(arguments, arguments->first, &result))
		return 1;
	printf("sim: ok seed=%" PRIu64 " peers=%" PRIu32 " layers=%zu rounds=%" PRIu64 " events=%" PRIu64 " time=%.6f hash=%016" PRIx64
	       "\n", arguments->first, running.peers, running.layer_count, running.rounds, result.events,
	       (double)result.time_us / 1e6, result.hash);
	return 0;
}

/* What the seeds have covered; false: something has hardly been tried, so the run proves little. */
static bool print_coverage(const uint64_t *coverage, uint64_t worlds, bool is_checked)
{
	static const struct {
		const char *text;
		uint64_t minimum;
	} items[COVERAGE_COUNT] = {
#define X(id, text, minimum) [id] = {text, minimum},
		COVERAGE(X)
#undef X
	};
	bool is_enough = true;
	for (int i = 0; i < COVERAGE_COUNT; i++) {
		/* In few worlds chance rules. */
		uint64_t minimum = is_checked && worlds >= 1000 ? items[i].minimum * worlds / 1000 : 0;
		bool is_low = coverage[i] < minimum;
		printf("  %-14s %12" PRIu64, items[i].text, coverage[i]);
		printf(is_low ? "  too few: at least %" PRIu64 " expected\n" : "\n", minimum);
		is_enough &= !is_low;
	}
	return is_enough;
}

static int run_many(const struct arguments *arguments, bool is_drawn)
{
	uint64_t coverage[COVERAGE_COUNT] = {0}, events = 0, worlds = 0, hash = 0;
	struct world_result result;
	for (uint64_t seed = arguments->first; seed <= arguments->last; seed++) {
		if (!run(arguments, seed, &result))
			return 1;
		for (int i = 0; i < COVERAGE_COUNT; i++)
			coverage[i] += result.coverage[i];
		events += result.events;
		hash = hash * UINT64_C(0x9e3779b97f4a7c15) + result.hash;
		worlds++;
	}
	bool is_enough = print_coverage(coverage, worlds, is_drawn);
	printf("sim: %s seeds=%" PRIu64 "-%" PRIu64 " events=%" PRIu64 " hash=%016" PRIx64 "\n", is_enough ? "ok" : "FAILED (coverage)",
	       arguments->first, arguments->last, events, hash);
	return is_enough ? 0 : 1;
}

int main(int argc, char **argv)
{
	static char run_name[] = "edit-sim run", rehearse_name[] = "edit-sim rehearse";
	if (argc > 1 && strcmp(argv[1], "run") == 0) {
		argv[1] = run_name;
		return study_main(argc - 1, argv + 1);
	}
	if (argc > 1 && strcmp(argv[1], "rehearse") == 0) {
		argv[1] = rehearse_name;
		return rehearse_main(argc - 1, argv + 1);
	}
	struct arguments arguments = {.config = {.faults = UINT_MAX}, .first = 1, .last = 1};
	const struct argp argp = {.options = options, .parser = read_option, .doc = description};
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	const struct world_config *config = &arguments.config;
	bool is_drawn = config->peers == 0 && config->layer_count == 0 && config->rounds == 0 && config->faults == UINT_MAX;
	return arguments.is_many ? run_many(&arguments, is_drawn) : run_one(&arguments);
}

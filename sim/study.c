/* The command line of `edit-sim run`, and the order of things: nothing is computed or written before everything has been
 * checked. */

#include "sim/study.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/cluster.h"
#include "sim/plot.h"
#include "worker/meter.h"
#include "worker/threads.h"

enum { KEY_OUT = 256, KEY_THREADS, KEY_NO_PLOTS, KEY_KEYS, THREADS_MAX = 1024 };

static const char description[] = "Runs an experiment in virtual time: the machines, links and faults of a scenario, with "
				  "the same core as editd and the "
				  "gradients of the real model.\v"
				  "SCENARIO is an INI file with the sections [run], [model], [data], [nodes] and one [node "
				  "NAME] per node that differs; "
				  "--keys lists what may stand in them. In [run], settings of the ring (method, "
				  "sync.interval, ...) stand by their names.\n\n"
				  "Prints a table; --out also leaves lines.json (one JSON object per line: every round of "
				  "every node, every held-out loss, the "
				  "end), loss.tsv, timeline.tsv, pictures, and in model/ the anchor at the end, a Llama "
				  "folder that [model] start of another scenario and edit-worker read. The same scenario "
				  "gives the same bytes in "
				  "all of them, on any number of "
				  "threads.\n\n"
				  "Exit status: 0 the run has ended, 1 something could not be read, written or computed, 2 "
				  "usage or a bad scenario.";

static const struct argp_option options[] = {
	{"out", KEY_OUT, "DIR", 0, "folder for lines, model and pictures, made if it is not there (default: none)", 0},
	{"threads", KEY_THREADS, "N", 0, "threads that compute (default: as many as the process may use)", 0},
	{"no-plots", KEY_NO_PLOTS, NULL, 0, "no pictures", 0},
	{"keys", KEY_KEYS, NULL, 0, "list the keys of a scenario and exit", 0},
	{0},
};

struct arguments {
	const char *scenario, *out;
	unsigned threads;
	bool has_plots;
};

static error_t read_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	char *end;
	switch (key) {
	case KEY_OUT: arguments->out = text; return 0;
	case KEY_THREADS:
		errno = 0;
		arguments->threads = (unsigned)strtoul(text, &end, 10);
		if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9' || strtoul(text, NULL, 10) > THREADS_MAX ||
		    arguments->threads == 0)
			argp_failure(state, 2, 0, "--threads %s: expected a whole number from 1 to %d", text, (int)THREADS_MAX);
		return 0;
	case KEY_NO_PLOTS: arguments->has_plots = false; return 0;
	case KEY_KEYS:
		scenario_print_keys();
		exit(fflush(stdout) == 0 ? 0 : 1);
	case ARGP_KEY_ARG:
		if (arguments->scenario)
			argp_failure(state, 2, 0, "%s: expected one SCENARIO only", text);
		arguments->scenario = text;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->scenario)
			argp_failure(state, 2, 0, "SCENARIO is missing (see --help)");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static int complain_line(int error, const struct line *why)
{
	fprintf(stderr, "edit-sim: %s\n", why->text);
	return edit_error_status(error);
}

static void show(void *arg, double part)
{
	meter_show(arg, part);
}

/* Runs what is open. Returns the exit status. */
static int run(const struct arguments *arguments, const struct scenario *scenario, struct tuition *tuition)
{
	struct line why;
	struct meter meter;
	struct report *report = report_open(arguments->out, scenario, tuition, &why);
	if (!report)
		return complain_line(EDIT_ERROR_SYSTEM, &why);
	meter_begin(&meter);
	bool is_done = cluster_run(scenario, tuition, report, show, &meter, &why);
	meter_end(&meter);
	if (!report_close(report) && is_done) {
		line_fail(&why, EDIT_ERROR_SYSTEM, "the report cannot be written in full");
		return complain_line(EDIT_ERROR_SYSTEM, &why);
	}
	if (!is_done)
		return complain_line(EDIT_ERROR_SYSTEM, &why);
	return 0;
}

int study_main(int argc, char **argv)
{
	struct arguments arguments = {.threads = threads_allowed(), .has_plots = true};
	const struct argp argp = {.options = options, .parser = read_option, .args_doc = "SCENARIO.ini", .doc = description};
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);

	struct scenario scenario;
	struct line why = {""};
	int error = scenario_open(&scenario, arguments.scenario, &why);
	if (error)
		return complain_line(error, &why);
	struct tuition *tuition = NULL;
	bool is_timing = scenario.value[MODEL_TIMING] > 0;
	if (!is_timing)
		tuition = tuition_open(&scenario, arguments.threads, &error, &why);
	int status = error ? complain_line(error, &why) : run(&arguments, &scenario, tuition);
	tuition_close(tuition);
	if (status == 0 && arguments.out && arguments.has_plots)
		status = complain_line(plot_draw(arguments.out, &scenario, !is_timing, &why), &why);
	scenario_close(&scenario);
	return status;
}

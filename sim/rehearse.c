/* The command line of `edit-sim rehearse`, and what it prints. */

#include "sim/rehearse.h"

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/setting.h"
#include "sim/rehearsal.h"

enum { KEY_METHOD = 256, KEY_SET, CHANGES_MAX = 64, CASES = 3, ROUNDS_MIN = 20 };

static const char description[] =
	"What would another interval, method or prefetch have given? Takes a trace of a real ring (editctl trace), replays its "
	"members' step times in virtual time with the same core as editd, first as recorded, then with other settings, and tells "
	"what rounds cost.\v"
	"Step times are replayed in order and repeated, round by round. Links are guessed from how long rounds took from the last "
	"offer to their end, so that line is fitted; the error of a whole round tells how far the rest can be believed. "
	"Whether the model learns as well is not asked: see edit-sim run.\n\n"
	"Rounds count from the last change of the ring's settings on. --method and --set are taken in order, as by editctl set.\n\n"
	"Exit status: 0 told, 1 something could not be read or computed, 2 usage or a bad trace.";

static const struct argp_option options[] = {
	{"method", KEY_METHOD, "M", 0, "another method, with what it presets", 0},
	{"set", KEY_SET, "SETTING=VALUE", 0, "another value of a setting of the ring; several times if wanted", 0},
	{"json", 'j', NULL, 0, "one JSON object instead of text", 0},
	{0},
};

/* A setting and its new value. */
struct wish {
	size_t index;
	double number;
};

struct arguments {
	const char *trace;
	bool json;
	struct wish wishes[CHANGES_MAX];
	size_t wish_count;
};

/* One row of the table. */
struct scene {
	const char *name;
	struct tempo tempo;
};

/* ---- Command line ---- */

static void read_wish(struct argp_state *state, const char *option, const char *name, const char *text)
{
	struct arguments *arguments = state->input;
	struct line why = {""};
	struct setting_value value;
	size_t index = 0;
	int error = setting_find(name, &index, &why);
	if (!error && index >= RING_SETTING_COUNT)
		error = line_fail(&why, EDIT_ERROR_INVALID, "%.200s: a setting of one daemon, expected one of the ring", name);
	if (!error)
		error = setting_parse(index, text, &value, &why);
	if (error)
		argp_failure(state, 2, 0, "%s: %s", option, why.text);
	if (arguments->wish_count == CHANGES_MAX)
		argp_failure(state, 2, 0, "%s: more than %d settings", option, (int)CHANGES_MAX);
	arguments->wishes[arguments->wish_count++] = (struct wish){index, value.number};
}

static void read_set(struct argp_state *state, char *text)
{
	char *sign = strchr(text, '=');
	if (sign == NULL)
		argp_failure(state, 2, 0, "--set %s: expected SETTING=VALUE", text);
	*sign = '\0';
	read_wish(state, "--set", text, sign + 1);
}

static error_t read_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	switch (key) {
	case KEY_METHOD: read_wish(state, "--method", setting_at(METHOD)->name, text); return 0;
	case KEY_SET: read_set(state, text); return 0;
	case 'j': arguments->json = true; return 0;
	case ARGP_KEY_ARG:
		if (arguments->trace)
			argp_failure(state, 2, 0, "%s: expected one TRACE only", text);
		arguments->trace = text;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->trace)
			argp_failure(state, 2, 0, "TRACE is missing (see --help)");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static int complain(int error, const struct line *why)
{
	fprintf(stderr, "edit-sim: %s\n", why->text);
	return edit_error_status(error);
}

/* As the ring would take them. */
static struct ring_settings changed_settings(const struct arguments *arguments, struct ring_settings settings)
{
	for (size_t i = 0; i < arguments->wish_count; i++) {
		const struct wish *wish = &arguments->wishes[i];
		settings.value[wish->index] = wish->number;
		for (enum ring_setting other = 0; wish->index == METHOD && other < RING_SETTING_COUNT; other++)
			method_presets((enum method)wish->number, other, &settings.value[other]);
	}
	return settings;
}

/* "sync.interval=64 method=diloco", or what stands for no change. */
static void name_wishes(const struct arguments *arguments, char *text, size_t size)
{
	char value[SETTING_TEXT_MAX + 1];
	size_t used = 0;
	text[0] = '\0';
	for (size_t i = 0; i < arguments->wish_count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s=%s", i > 0 ? " " : "",
					 setting_at(arguments->wishes[i].index)->name,
					 setting_format(arguments->wishes[i].index, arguments->wishes[i].number, value));
}

/* ---- Text ---- */

static double error_percent(const struct scene *scenes)
{
	return 100 * (scenes[1].tempo.round_s / scenes[0].tempo.round_s - 1);
}

static void print_trace(const struct recording *recording, const struct links *links, const struct scene *scenes)
{
	double elements = 0;
	for (size_t l = 0; l < recording->layer_count; l++)
		elements += (double)recording->layer_sizes[l];
	const struct recorded_round *rounds = recording->rounds;
	printf("trace    by %s: %" PRIu32 " members, %zu layers, %.4g parameters, rounds %" PRIu64 " to %" PRIu64,
	       recording->names[recording->own], recording->member_count, recording->layer_count, elements, rounds[0].round,
	       rounds[recording->round_count - 1].round);
	if (recording->skipped_count > 0)
		printf(" (%zu before had other settings)", recording->skipped_count);
	printf("\n");
	if (recording->member_count > 1)
		printf("links    guessed: %.4g Mbit/s, %.3g ms one way; last offer to end of round %.4g ms, recorded %.4g ms\n",
		       links->mbit, links->latency_ms, 1e-3 * scenes[1].tempo.transfer_us, 1e-3 * scenes[0].tempo.transfer_us);
	printf("check    a round took %.4g s, rehearsed with the same settings %.4g s: error %+.1f %%\n\n", scenes[0].tempo.round_s,
	       scenes[1].tempo.round_s, error_percent(scenes));
}

static void print_text(const struct recording *recording, const struct links *links, const struct scene *scenes, size_t count,
		       const char *wishes)
{
	print_trace(recording, links, scenes);
	printf("%-14s %10s %10s %11s %10s %10s\n", "", "round s", "rounds/h", "tokens/s", "exposed %", "waiting %");
	for (size_t i = 0; i < count; i++) {
		const struct tempo *tempo = &scenes[i].tempo;
		printf("%-14s %10.4g %10.5g %11.1f %10.2f %10.2f%s%s\n", scenes[i].name, tempo->round_s, 3600 / tempo->round_s,
		       tempo->tokens_per_second, tempo->all.exposed, tempo->all.waiting, i == CASES - 1 ? "  " : "",
		       i == CASES - 1 ? wishes : "");
	}
	printf("\n%-18s", "exposed, waiting %");
	for (size_t i = 0; i < count; i++)
		printf(" %16s", scenes[i].name);
	printf("\n");
	for (uint32_t rank = 0; rank < recording->member_count; rank++) {
		printf("%-18s", recording->names[rank]);
		for (size_t i = 0; i < count; i++)
			printf("  %7.2f %7.2f", scenes[i].tempo.members[rank].exposed, scenes[i].tempo.members[rank].waiting);
		printf("\n");
	}
}

/* ---- JSON ---- */

static json_t *tempo_json(const struct recording *recording, const struct tempo *tempo)
{
	json_t *members = json_array();
	for (uint32_t rank = 0; rank < recording->member_count; rank++)
		json_array_append_new(members, json_pack("{s:s, s:f, s:f}", "name", recording->names[rank], "exposed_percent",
							 tempo->members[rank].exposed, "waiting_percent",
							 tempo->members[rank].waiting));
	return json_pack("{s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:o}", "round_s", tempo->round_s, "rounds_per_hour",
			 3600 / tempo->round_s, "tokens_per_second", tempo->tokens_per_second, "transfer_us", tempo->transfer_us,
			 "rounds", (json_int_t)tempo->rounds, "exposed_percent", tempo->all.exposed, "waiting_percent",
			 tempo->all.waiting, "members", members);
}

static json_t *wishes_json(const struct arguments *arguments)
{
	json_t *object = json_object();
	for (size_t i = 0; i < arguments->wish_count; i++) {
		const struct wish *wish = &arguments->wishes[i];
		char text[SETTING_TEXT_MAX + 1];
		bool is_word = setting_at(wish->index)->type == SETTING_CHOICE;
		json_object_set_new(object, setting_at(wish->index)->name,
				    is_word ? json_string(setting_format(wish->index, wish->number, text)) : json_real(wish->number));
	}
	return object;
}

static void print_json(const struct arguments *arguments, const struct recording *recording, const struct links *links,
		       const struct scene *scenes, size_t count)
{
	json_t *object = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:{s:f, s:f}, s:f}", "version", 1, "command", "rehearse", "name",
				   recording->names[recording->own], "first_round", (json_int_t)recording->rounds[0].round, "round",
				   (json_int_t)recording->rounds[recording->round_count - 1].round, "skipped",
				   (json_int_t)recording->skipped_count, "links", "mbit", links->mbit, "latency_ms",
				   links->latency_ms, "error_percent", error_percent(scenes));
	CHECK(object != NULL);
	for (size_t i = 0; i < count; i++)
		json_object_set_new(object, scenes[i].name, tempo_json(recording, &scenes[i].tempo));
	if (count == CASES)
		json_object_set_new(object, "settings", wishes_json(arguments));
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	printf("\n");
	json_decref(object);
}

/* ---- The order of things ---- */

static int check_settings(const struct ring_settings *settings, struct line *why)
{
	const char *conflict = ring_settings_conflict(settings);
	return conflict ? line_fail(why, EDIT_ERROR_INVALID, "--set: %s", conflict) : 0;
}

static int rehearse(const struct arguments *arguments, const struct recording *recording, struct scene *scenes, struct line *why)
{
	struct links links = {0};
	size_t count = arguments->wish_count > 0 ? CASES : CASES - 1;
	uint64_t rounds = 0;
	char wishes[LINE_BYTES];
	struct ring_settings settings = changed_settings(arguments, recording->settings);
	for (size_t i = 0; i < recording->round_count; i++)
		rounds += recording->rounds[i].follows;
	rounds = u64_max(rounds + 2, ROUNDS_MIN); /* the first and the last one are not counted */
	tempo_record(recording, &scenes[0].tempo);
	int error = check_settings(&settings, why);
	if (!error)
		error = rehearsal_fit(recording, &links, why);
	if (!error)
		error = rehearsal_run(recording, &recording->settings, &links, rounds, &scenes[1].tempo, why);
	if (!error && count == CASES)
		error = rehearsal_run(recording, &settings, &links, rounds, &scenes[2].tempo, why);
	if (error)
		return error;
	name_wishes(arguments, wishes, sizeof wishes);
	if (arguments->json)
		print_json(arguments, recording, &links, scenes, count);
	else
		print_text(recording, &links, scenes, count, wishes);
	return 0;
}

int rehearse_main(int argc, char **argv)
{
	struct arguments arguments = {0};
	const struct argp argp = {.options = options, .parser = read_option, .args_doc = "TRACE.jsonl", .doc = description};
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);

	struct scene scenes[CASES] = {{.name = "recorded"}, {.name = "calibrated"}, {.name = "rehearsed"}};
	struct recording recording;
	struct line why = {""};
	int error = recording_open(&recording, arguments.trace, &why);
	if (error)
		return complain(error, &why);
	error = rehearse(&arguments, &recording, scenes, &why);
	for (size_t i = 0; i < CASES; i++)
		tempo_fini(&scenes[i].tempo);
	recording_close(&recording);
	if (error)
		return complain(error, &why);
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	line_fail(&why, EDIT_ERROR_SYSTEM, "standard output cannot be written");
	return complain(EDIT_ERROR_SYSTEM, &why);
}

/* Reading scenarios: sections [run], [model], [data], [nodes] and one [node NAME] per node that differs or is listed. */

#include "sim/scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/inifile.h"
#include "proto/setting.h"

enum { PATH_BYTES = 4096, NODE_PREFIX = 5 /* bytes of "node " */ };

/* A row of one of the tables; section is NULL for keys of a node. */
struct row {
	const char *section, *name;
	enum scenario_type type;
	double standard, low, high;
	const char *unit, *help;
};

#define X(id, section, name, type, standard, low, high, unit, help)                                                    \
	{section, name, SCENARIO_##type, standard, low, high, unit, help},
static const struct row rows[] = {SCENARIO_KEYS(X)};
#undef X
#define X(id, name, type, standard, low, high, unit, help) {NULL, name, SCENARIO_##type, standard, low, high, unit, help},
static const struct row host_rows[] = {HOST_KEYS(X)};
#undef X

/* What has been given so far. */
struct draft {
	struct scenario *scenario;
	const char *path;
	bool is_set[RING_SETTING_COUNT];
	double common[HOST_KEY_COUNT];               /* of [nodes] */
	bool is_common[HOST_KEY_COUNT];
	bool (*is_own)[HOST_KEY_COUNT];              /* [MEMBER_COUNT_MAX] of the listed nodes */
};

/* ---- Values ---- */

static void describe(const struct row *row, char *text, size_t size)
{
	const char *open = row->unit[0] ? " (" : "", *close = row->unit[0] ? ")" : "";
	if (row->type == SCENARIO_FLAG)
		snprintf(text, size, "yes or no");
	else if (row->type == SCENARIO_TEXT)
		snprintf(text, size, "%g to %g bytes of text", row->low, row->high);
	else
		snprintf(text, size, "a %snumber from %.16g to %.16g%s%s%s", row->type == SCENARIO_COUNT ? "whole " : "",
			 row->low, row->high, open, row->unit, close);
}

/* Reads a value that is no text. name: as the file has it, with its section. */
static int read_number(const struct row *row, const char *name, const char *text, double *ret_number, struct line *why)
{
	char expected[128], *end;
	describe(row, expected, sizeof expected);
	if (row->type == SCENARIO_FLAG) {
		bool is_yes = strcmp(text, "yes") == 0;
		if (!is_yes && strcmp(text, "no") != 0)
			return line_fail(why, EDIT_ERROR_INVALID, "%s: \"%.64s\" does not fit, expected %s", name, text,
					 expected);
		*ret_number = is_yes;
		return 0;
	}
	double number = strtod(text, &end);
	if (!text[0] || *end || strspn(text, "+-.0123456789eE") != strlen(text))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: \"%.64s\" is not a number, expected %s", name, text, expected);
	if (!(number >= row->low && number <= row->high))
		return line_fail(why, EDIT_ERROR_RANGE, "%s: %.64s is out of range, expected %s", name, text, expected);
	if (row->type == SCENARIO_COUNT && number != floor(number))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: %.64s does not fit, expected %s", name, text, expected);
	*ret_number = number;
	return 0;
}

/* A path is from the scenario's folder; the caller frees it. */
static char *from_folder(const char *scenario_path, const char *path)
{
	char whole[2 * PATH_BYTES];
	const char *slash = strrchr(scenario_path, '/');
	int folder_bytes = path[0] == '/' || !slash ? 0 : (int)(slash - scenario_path) + 1;
	snprintf(whole, sizeof whole, "%.*s%s", folder_bytes, scenario_path, path);
	return strdup(whole);
}

static int take_text(struct draft *draft, enum scenario_key key, const char *name, const char *text, struct line *why)
{
	size_t bytes = strlen(text);
	char expected[128];
	describe(&rows[key], expected, sizeof expected);
	if ((double)bytes < rows[key].low || (double)bytes > rows[key].high || !text_is_plain(text, bytes))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: \"%.64s\" does not fit, expected %s", name, text, expected);
	bool is_path = key == MODEL_CONFIG || key == MODEL_START || key == DATA_FILE;
	draft->scenario->text[key] = is_path ? from_folder(draft->path, text) : strdup(text);
	CHECK(draft->scenario->text[key] != NULL);
	return 0;
}

static int twice(const char *name, struct line *why)
{
	return line_fail(why, EDIT_ERROR_INVALID, "%.200s: given twice", name);
}

/* ---- Keys ---- */

/* A setting of the ring in [run]. */
static int take_setting(struct draft *draft, const char *key, const char *value, struct line *why)
{
	size_t index;
	struct setting_value parsed;
	int error = setting_find(key, &index, why);
	if (!error && index >= RING_SETTING_COUNT)
		error = line_fail(why, EDIT_ERROR_INVALID, "%.200s: a setting of one daemon, expected one of the ring", key);
	if (!error)
		error = setting_parse(index, value, &parsed, why);
	if (error)
		return error;
	if (draft->is_set[index])
		return twice(key, why);
	draft->is_set[index] = true;
	draft->scenario->settings.value[index] = parsed.number;
	return 0;
}

static int take_host_key(const char *section, const char *key, const char *value, double *values, bool *is_given,
			 struct line *why)
{
	struct line name;
	line_fail(&name, EDIT_ERROR_INVALID, "[%.100s] %.200s", section, key);
	for (enum host_key i = 0; i < HOST_KEY_COUNT; i++) {
		if (strcmp(host_rows[i].name, key) != 0)
			continue;
		if (is_given[i])
			return twice(name.text, why);
		is_given[i] = true;
		return read_number(&host_rows[i], name.text, value, &values[i], why);
	}
	return line_fail(why, EDIT_ERROR_UNKNOWN, "%s: unknown key, expected one of `edit-sim run --help`", name.text);
}

static int take_key(struct draft *draft, const char *section, const char *key, const char *value, int line_number,
		    struct line *why)
{
	struct line name;
	line_fail(&name, EDIT_ERROR_INVALID, "[%.100s] %.200s", section, key);
	for (enum scenario_key i = 0; i < SCENARIO_KEY_COUNT; i++) {
		if (strcmp(rows[i].section, section) != 0 || strcmp(rows[i].name, key) != 0)
			continue;
		if (draft->scenario->line_number[i] > 0)
			return twice(name.text, why);
		draft->scenario->line_number[i] = line_number;
		if (rows[i].type == SCENARIO_TEXT)
			return take_text(draft, i, name.text, value, why);
		return read_number(&rows[i], name.text, value, &draft->scenario->value[i], why);
	}
	if (strcmp(section, "run") == 0)
		return take_setting(draft, key, value, why);
	if (strcmp(section, "nodes") == 0)
		return take_host_key(section, key, value, draft->common, draft->is_common, why);
	return line_fail(why, EDIT_ERROR_UNKNOWN, "%s: unknown key, expected one of `edit-sim run --help`", name.text);
}

/* The place of a node's section among those listed; begins it if it is new. */
static int find_host(struct draft *draft, const char *section, uint32_t *ret_index, struct line *why)
{
	struct scenario *scenario = draft->scenario;
	const char *name = section + NODE_PREFIX;
	if (!text_is_name(name))
		return line_fail(why, EDIT_ERROR_INVALID, "[%.100s]: not a name, expected 1 to 63 of [a-z0-9-]", section);
	for (*ret_index = 0; *ret_index < scenario->host_count; ++*ret_index)
		if (strcmp(scenario->hosts[*ret_index].name, name) == 0)
			return 0;
	if (scenario->host_count == MEMBER_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "[%.100s]: one more than %d nodes", section, (int)MEMBER_COUNT_MAX);
	snprintf(scenario->hosts[scenario->host_count++].name, sizeof scenario->hosts[0].name, "%s", name);
	return 0;
}

static int take(void *arg, const char *section, const char *key, const char *value, int line_number, struct line *why)
{
	struct draft *draft = arg;
	static const char *const sections[] = {"run", "model", "data", "nodes"};
	for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
		if (strcmp(section, sections[i]) == 0)
			return take_key(draft, section, key, value, line_number, why);
	if (section[0] == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%.200s: stands outside a [section]", key);
	if (strncmp(section, "node ", NODE_PREFIX) != 0)
		return line_fail(why, EDIT_ERROR_UNKNOWN,
				 "[%.100s]: unknown section, expected run, model, data, nodes or node NAME", section);
	uint32_t index = 0;
	int error = find_host(draft, section, &index, why);
	if (error)
		return error;
	return take_host_key(section, key, value, draft->scenario->hosts[index].value, draft->is_own[index], why);
}

/* ---- The whole ---- */

/* Gives the nodes their names and what [nodes] says for all. With a count the listed ones must be among n0, n1, ... */
static int settle_hosts(struct draft *draft, struct line *why)
{
	struct scenario *scenario = draft->scenario;
	uint32_t count = (uint32_t)scenario->value[NODES_COUNT], listed = scenario->host_count;
	if (count == 0)
		count = listed;
	if (count == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: no nodes, expected [nodes] count or a [node NAME] for each",
				 draft->path);
	struct host *hosts = calloc(count, sizeof *hosts);
	CHECK(hosts != NULL);
	bool is_counted = scenario->value[NODES_COUNT] > 0;
	for (uint32_t rank = 0; rank < count; rank++) {
		uint32_t own = is_counted ? 0 : rank;
		if (is_counted)
			snprintf(hosts[rank].name, sizeof hosts[rank].name, "n%u", rank);
		else
			memcpy(hosts[rank].name, scenario->hosts[rank].name, sizeof hosts[rank].name);
		while (own < listed && strcmp(scenario->hosts[own].name, hosts[rank].name) != 0)
			own++;
		for (enum host_key i = 0; i < HOST_KEY_COUNT; i++)
			hosts[rank].value[i] = own < listed && draft->is_own[own][i] ? scenario->hosts[own].value[i]
										     : draft->common[i];
		if (own < listed)
			scenario->hosts[own].name[0] = 0; /* has found its place */
	}
	int error = 0;
	for (uint32_t own = 0; own < listed && !error; own++)
		if (scenario->hosts[own].name[0])
			error = line_fail(why, EDIT_ERROR_INVALID,
					  "%s: [node %s]: not one of the nodes, expected n0 to n%u as [nodes] "
					  "count says",
					  draft->path, scenario->hosts[own].name, count - 1);
	free(scenario->hosts);
	scenario->hosts = hosts;
	scenario->host_count = count;
	return error;
}

/* What the method presets holds unless the scenario says otherwise. */
static void settle_method(struct draft *draft)
{
	double *value = draft->scenario->settings.value;
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++)
		if (!draft->is_set[i])
			method_presets((enum method)value[METHOD], i, &value[i]);
}

/* Sizes on the wire for a table of layers that is scaled down. */
static int settle_wire(struct draft *draft, struct line *why)
{
	double *value = draft->scenario->settings.value, scale = draft->scenario->value[MODEL_SCALE];
	static const enum ring_setting sizes[] = {WIRE_CHUNK, WIRE_WINDOW};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		value[sizes[i]] = 4 * floor(value[sizes[i]] / scale / 4);
		if (!setting_holds(sizes[i], value[sizes[i]]))
			return line_fail(why, EDIT_ERROR_RANGE,
					 "%s: [model] scale: %s divided by %g is %g, expected %g or more", draft->path,
					 setting_at(sizes[i])->name, scale, value[sizes[i]], setting_at(sizes[i])->low);
	}
	return 0;
}

static void settle_schedule(struct scenario *scenario)
{
	double *value = scenario->value, speed = 0;
	for (uint32_t rank = 0; rank < scenario->host_count; rank++)
		speed += scenario->hosts[rank].value[HOST_SPEED] / scenario->host_count;
	double by_tokens = value[RUN_TOKENS] / (value[DATA_BATCH] * value[DATA_CONTEXT] * scenario->host_count);
	double by_time = value[RUN_SECONDS] * speed;
	double steps = value[RUN_TOKENS] > 0 && value[RUN_SECONDS] > 0 ? fmin(by_tokens, by_time) : fmax(by_tokens, by_time);
	if (value[DATA_STEPS] < 0)
		value[DATA_STEPS] = fmin(fmax(1, ceil(steps)), 1e9);
	if (value[DATA_MIN_LR] < 0)
		value[DATA_MIN_LR] = value[DATA_LR] / 10;
	if (value[DATA_WARMUP] < 0)
		value[DATA_WARMUP] = fmin(100, floor(value[DATA_STEPS] / 10));
}

static int settle(struct draft *draft, struct line *why)
{
	struct scenario *scenario = draft->scenario;
	double *value = scenario->value;
	int error = settle_hosts(draft, why);
	if (error)
		return error;
	uint32_t fanout = (uint32_t)value[NODES_FANOUT];
	if (fanout == 1 || (fanout > 1 && (scenario->host_count % fanout != 0 || fanout == scenario->host_count)))
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s:%d: [nodes] ring.fanout: %u, expected a divisor of the %u nodes between 1 and %u", draft->path,
				 scenario->line_number[NODES_FANOUT], fanout, scenario->host_count, scenario->host_count);
	settle_method(draft);
	settle_schedule(scenario);
	const char *conflict = ring_settings_conflict(&scenario->settings);
	if (conflict)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: [run] %s", draft->path, conflict);
	if (value[RUN_TOKENS] == 0 && value[RUN_SECONDS] == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: [run] tokens: not given, expected it or [run] seconds",
				 draft->path);
	if (value[DATA_MIN_LR] > value[DATA_LR])
		return line_fail(why, EDIT_ERROR_RANGE, "%s: [data] min_lr: %g, expected at most lr (%g)", draft->path,
				 value[DATA_MIN_LR], value[DATA_LR]);
	if (value[DATA_WARMUP] > value[DATA_STEPS])
		return line_fail(why, EDIT_ERROR_RANGE, "%s: [data] warmup: %g, expected at most steps (%g)", draft->path,
				 value[DATA_WARMUP], value[DATA_STEPS]);
	if (value[MODEL_TIMING] > 0 && scenario->text[MODEL_START])
		return line_fail(why, EDIT_ERROR_INVALID, "%s:%d: [model] start has no meaning with timing = yes", draft->path,
				 scenario->line_number[MODEL_START]);
	if (value[MODEL_TIMING] > 0)
		return settle_wire(draft, why);
	value[MODEL_SCALE] = 1;
	if (!scenario->text[MODEL_CONFIG])
		return line_fail(why, EDIT_ERROR_INVALID, "%s: [model] config: not given, expected it or timing = yes",
				 draft->path);
	if (!scenario->text[DATA_FILE])
		return line_fail(why, EDIT_ERROR_INVALID, "%s: [data] file: not given, expected text to train on", draft->path);
	return 0;
}

void scenario_init(struct scenario *scenario, uint32_t host_count)
{
	*scenario = (struct scenario){.settings = ring_settings_standard(), .host_count = host_count,
				      .hosts = calloc(host_count, sizeof(struct host))};
	CHECK(scenario->hosts != NULL);
	for (enum scenario_key i = 0; i < SCENARIO_KEY_COUNT; i++)
		scenario->value[i] = rows[i].standard;
	for (uint32_t rank = 0; rank < host_count; rank++)
		for (enum host_key i = 0; i < HOST_KEY_COUNT; i++)
			scenario->hosts[rank].value[i] = host_rows[i].standard;
}

int scenario_open(struct scenario *scenario, const char *path, struct line *why)
{
	struct draft draft = {.scenario = scenario, .path = path, .is_own = calloc(MEMBER_COUNT_MAX, sizeof *draft.is_own)};
	CHECK(draft.is_own != NULL);
	scenario_init(scenario, MEMBER_COUNT_MAX);
	scenario->host_count = 0; /* those that are listed */
	scenario->path = strdup(path);
	CHECK(scenario->path != NULL);
	for (enum host_key i = 0; i < HOST_KEY_COUNT; i++)
		draft.common[i] = host_rows[i].standard;
	int error = inifile_read(path, take, &draft, why);
	if (!error)
		error = settle(&draft, why);
	if (error)
		scenario_close(scenario);
	free(draft.is_own);
	return error;
}

void scenario_close(struct scenario *scenario)
{
	for (enum scenario_key i = 0; i < SCENARIO_KEY_COUNT; i++)
		free(scenario->text[i]);
	free(scenario->hosts);
	free(scenario->path);
	*scenario = (struct scenario){0};
}

struct places scenario_places(const struct scenario *scenario)
{
	uint32_t fanout = (uint32_t)scenario->value[NODES_FANOUT];
	return (struct places){.peers = scenario->host_count, .fanout = fanout == 0 ? scenario->host_count : fanout, .shards = 1};
}

bool host_has_burst(const struct host *host, enum host_key from, uint64_t number)
{
	uint64_t begin = (uint64_t)host->value[from], steps = (uint64_t)host->value[from + 1],
		 every = (uint64_t)host->value[from + 2];
	if (begin == 0 || number < begin)
		return false;
	uint64_t since = number - begin;
	return (every > 0 ? since % every : since) < steps;
}

static void print_key(const struct row *row)
{
	char expected[128], standard[32];
	describe(row, expected, sizeof expected);
	snprintf(standard, sizeof standard, row->type == SCENARIO_FLAG ? "; default no" : "; default %.10g", row->standard);
	bool is_plain = row->type == SCENARIO_TEXT || row->standard < 0;
	printf("  %-21s %s\n  %-21s (%s%s)\n", row->name, row->help, "", expected, is_plain ? "" : standard);
}

void scenario_print_keys(void)
{
	const char *section = "";
	for (enum scenario_key i = 0; i < SCENARIO_KEY_COUNT; i++) {
		if (strcmp(section, rows[i].section) != 0)
			printf("[%s]\n", rows[i].section);
		section = rows[i].section;
		print_key(&rows[i]);
	}
	printf("[nodes] for all, [node NAME] for one\n");
	for (enum host_key i = 0; i < HOST_KEY_COUNT; i++)
		print_key(&host_rows[i]);
}

/* Reading a trace line by line. Memory grows with the rounds; a file that is no trace ends at its first line. */

#include "sim/recording.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/setting.h"
#include "sim/memory.h"

#define NUMBER_MAX (INT64_C(1) << 53)

/* What is being read. */
struct reader {
	struct recording *recording;
	const char *path;
	size_t number;      /* of the line */
	size_t capacity;    /* rounds that there is memory for */
	bool has_head;
	uint64_t last;      /* the round before, 0 after a first line */
	uint64_t opening;   /* the daemon's first round; 0: known when it comes */
	struct line *why;
};

/* ---- Values ---- */

static int refuse(const struct reader *reader, const char *what, const char *expected)
{
	return line_fail(reader->why, EDIT_ERROR_INVALID, "%.200s:%zu: %.100s: expected %.100s", reader->path, reader->number, what,
			 expected);
}

static int take_whole(const struct reader *reader, const json_t *object, const char *key, uint64_t *ret_number)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= NUMBER_MAX)
		return refuse(reader, key, "a whole number from 0 to 2^53 - 1");
	*ret_number = (uint64_t)json_integer_value(value);
	return 0;
}

/* A list of low to high values. */
static int take_list(const struct reader *reader, const json_t *object, const char *key, size_t low, size_t high,
		     const json_t **ret_list)
{
	const json_t *list = json_object_get(object, key);
	char expected[64];
	snprintf(expected, sizeof expected, low == high ? "a list of %zu" : "a list of %zu to %zu", low, high);
	if (!json_is_array(list) || json_array_size(list) < low || json_array_size(list) > high)
		return refuse(reader, key, expected);
	*ret_list = list;
	return 0;
}

static int take_name(const struct reader *reader, const json_t *value, const char *key, char name[TEXT_NAME_MAX + 1])
{
	const char *text = json_string_value(value);
	if (!text || !text_is_name(text))
		return refuse(reader, key, "names of 1 to 63 of [a-z0-9-]");
	snprintf(name, TEXT_NAME_MAX + 1, "%s", text);
	return 0;
}

static int take_settings(const struct reader *reader, const json_t *object, struct ring_settings *settings)
{
	json_t *given = json_object_get(object, "settings"), *value;
	const char *name;
	if (!json_is_object(given))
		return refuse(reader, "settings", "an object");
	*settings = ring_settings_standard();
	json_object_foreach(given, name, value) {
		size_t index;
		struct setting_value parsed;
		struct line line = {""};
		int error = setting_find(name, &index, &line);
		if (!error && index >= RING_SETTING_COUNT)
			return refuse(reader, name, "a setting of the ring");
		if (!error && json_is_string(value) && setting_at(index)->type == SETTING_CHOICE)
			error = setting_parse(index, json_string_value(value), &parsed, &line);
		else if (!error && json_is_number(value) && setting_holds(index, json_number_value(value)))
			parsed.number = json_number_value(value);
		else if (!error)
			return refuse(reader, name, "a value that the setting can have");
		if (error)
			return line_fail(reader->why, EDIT_ERROR_INVALID, "%.200s:%zu: settings: %.250s", reader->path, reader->number,
					 line.text);
		settings->value[index] = parsed.number;
	}
	return 0;
}

/* ---- The first line ---- */

/* What the first line says of the ring. */
static int read_facts(const struct reader *reader, const json_t *object, struct recording *ret_facts)
{
	struct recording *facts = ret_facts;
	const json_t *members, *layers;
	char own[TEXT_NAME_MAX + 1];
	int error = take_list(reader, object, "members", 1, MEMBER_COUNT_MAX, &members);
	if (!error)
		error = take_list(reader, object, "layers", 1, LAYER_COUNT_MAX, &layers);
	if (!error)
		error = take_name(reader, json_object_get(object, "name"), "name", own);
	if (error)
		return error;
	facts->own = facts->member_count = (uint32_t)json_array_size(members);
	facts->layer_count = json_array_size(layers);
	facts->names = memory_take(facts->member_count, sizeof *facts->names);
	facts->layer_sizes = memory_take(facts->layer_count, sizeof *facts->layer_sizes);
	for (uint32_t rank = 0; rank < facts->member_count && !error; rank++) {
		error = take_name(reader, json_array_get(members, rank), "members", facts->names[rank]);
		if (!error && strcmp(facts->names[rank], own) == 0)
			facts->own = rank;
	}
	uint64_t all = 0;
	for (size_t l = 0; l < facts->layer_count && !error; l++) {
		error = take_whole(reader, json_array_get(layers, l), "size", &facts->layer_sizes[l]);
		all += error ? 0 : facts->layer_sizes[l];
		if (!error && (facts->layer_sizes[l] > UINT64_C(1) << 40 || all > UINT64_C(1) << 40))
			error = refuse(reader, "size", "at most 2^40 elements in all layers");
	}
	if (!error && facts->own == facts->member_count)
		error = refuse(reader, "name", "one of the members");
	if (!error && all == 0)
		error = refuse(reader, "size", "a layer that is not empty");
	return error;
}

static bool is_same_ring(const struct recording *a, const struct recording *b)
{
	return a->member_count == b->member_count && a->own == b->own && a->layer_count == b->layer_count &&
	       memcmp(a->names, b->names, a->member_count * sizeof *a->names) == 0 &&
	       memcmp(a->layer_sizes, b->layer_sizes, a->layer_count * sizeof *a->layer_sizes) == 0;
}

static int read_head(struct reader *reader, const json_t *object)
{
	struct recording facts = {0};
	const char *command = json_string_value(json_object_get(object, "command"));
	if (!command || strcmp(command, "trace") != 0)
		return refuse(reader, "command", "\"trace\", as editctl trace writes it");
	if (json_integer_value(json_object_get(object, "version")) != 1)
		return refuse(reader, "version", "1");
	int error = take_whole(reader, object, "first_round", &reader->opening);
	if (!error)
		error = read_facts(reader, object, &facts);
	reader->last = 0;
	if (!error && !reader->has_head) {
		reader->has_head = true;
		*reader->recording = facts;
		return 0;
	}
	if (!error && !is_same_ring(&facts, reader->recording))
		error = refuse(reader, "members, layers", "the same ring as in the first line");
	free(facts.names);
	free(facts.layer_sizes);
	return error;
}

/* ---- A round ---- */

static struct recorded_round *add_round(struct reader *reader)
{
	struct recording *recording = reader->recording;
	if (recording->round_count == reader->capacity) {
		reader->capacity = size_max(64, 2 * reader->capacity);
		recording->rounds = realloc(recording->rounds, reader->capacity * sizeof *recording->rounds);
		CHECK(recording->rounds != NULL);
	}
	struct recorded_round *round = &recording->rounds[recording->round_count++];
	*round = (struct recorded_round){.members = memory_take(recording->member_count, sizeof *round->members)};
	return round;
}

static int read_member(const struct reader *reader, const json_t *object, const char *name, struct recorded_member *member)
{
	const char *given = json_string_value(json_object_get(object, "name"));
	if (!given || strcmp(given, name) != 0)
		return refuse(reader, "members", "the members of the first line, in order");
	int error = take_whole(reader, object, "steps", &member->steps);
	if (!error)
		error = take_whole(reader, object, "tokens", &member->tokens);
	if (!error)
		error = take_whole(reader, object, "interval_us", &member->interval_us);
	if (!error)
		error = take_whole(reader, object, "exposed_us", &member->exposed_us);
	if (!error)
		error = take_whole(reader, object, "lateness_us", &member->lateness_us);
	return error;
}

/* A layer that began when others had ended finds all members ready: what its scalars took is the way round the ring. */
static int read_scalars(const struct reader *reader, const json_t *layers, const struct ring_settings *settings,
			struct recorded_round *round)
{
	size_t first_behind = (size_t)settings->value[SYNC_PREFETCH] + 1;
	for (size_t l = 0; l < json_array_size(layers); l++) {
		uint64_t time_us;
		int error = take_whole(reader, json_array_get(layers, l), "scalars_us", &time_us);
		if (error)
			return error;
		if (l >= first_behind && time_us > 0 && (round->scalars_us == 0 || time_us < round->scalars_us))
			round->scalars_us = time_us;
	}
	return 0;
}

static void forget_rounds(struct recording *recording)
{
	for (size_t i = 0; i < recording->round_count; i++)
		free(recording->rounds[i].members);
	recording->skipped_count += recording->round_count;
	recording->round_count = 0;
}

static void drop_last_round(struct recording *recording)
{
	free(recording->rounds[--recording->round_count].members);
}

static int read_round(struct reader *reader, const json_t *object)
{
	struct recording *recording = reader->recording;
	struct ring_settings settings;
	const json_t *members, *layers;
	int error = take_settings(reader, object, &settings);
	if (!error)
		error = take_list(reader, object, "members", recording->member_count, recording->member_count, &members);
	if (!error)
		error = take_list(reader, object, "layers", recording->layer_count, recording->layer_count, &layers);
	if (error)
		return error;
	/* Only rounds alike say what a round costs. */
	if (memcmp(&settings, &recording->settings, sizeof settings) != 0)
		forget_rounds(recording);
	recording->settings = settings;
	struct recorded_round *round = add_round(reader);
	error = take_whole(reader, object, "round", &round->round);
	if (!error)
		error = take_whole(reader, object, "end_us", &round->end_us);
	if (!error)
		error = take_whole(reader, object, "sync_us", &round->sync_us);
	if (!error)
		error = take_whole(reader, object, "bytes", &round->bytes);
	for (uint32_t rank = 0; rank < recording->member_count && !error; rank++)
		error = read_member(reader, json_array_get(members, rank), recording->names[rank], &round->members[rank]);
	if (!error)
		error = read_scalars(reader, layers, &settings, round);
	if (error)
		return error;
	if (reader->last > 0 && round->round <= reader->last)
		return refuse(reader, "round", "more than in the line before");
	bool is_first = reader->last == 0, is_opening = is_first && (reader->opening == 0 || reader->opening == round->round);
	reader->last = round->round;
	round->follows = !is_first && recording->round_count > 1 && round->round == (round - 1)->round + 1;
	if (round->follows && round->end_us <= (round - 1)->end_us)
		return refuse(reader, "end_us", "more than in the line before");
	/* Workers came one by one then: its times tell nothing of later ones. Nor do those of rounds that average the gradients of
	 * single steps before the intervals begin. */
	bool is_warmup = settings.value[SYNC_EXCHANGE] == EXCHANGE_PARAMETERS &&
			 (double)round->round <= settings.value[SYNC_WARMUP_STEPS];
	if (is_opening || is_warmup)
		drop_last_round(recording);
	return 0;
}

/* ---- The file ---- */

static int read_line(struct reader *reader, const char *text, size_t bytes)
{
	json_error_t fault;
	json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
	int error;
	if (!json_is_object(object))
		error = refuse(reader, object ? "not an object" : fault.text, "a line that editctl trace has written");
	else if (json_object_get(object, "command") || !reader->has_head)
		error = read_head(reader, object);
	else
		error = read_round(reader, object);
	json_decref(object);
	return error;
}

/* Members that have done no step in rounds that follow another; NULL: none. */
static const char *find_idle(const struct recording *recording)
{
	for (uint32_t rank = 0; rank < recording->member_count; rank++) {
		bool has_steps = false;
		for (size_t i = 0; i < recording->round_count && !has_steps; i++)
			has_steps = recording->rounds[i].follows && recording->rounds[i].members[rank].steps > 0;
		if (!has_steps)
			return recording->names[rank];
	}
	return NULL;
}

static size_t count_following(const struct recording *recording)
{
	size_t count = 0;
	for (size_t i = 0; i < recording->round_count; i++)
		count += recording->rounds[i].follows;
	return count;
}

int recording_open(struct recording *recording, const char *path, struct line *why)
{
	struct reader reader = {.recording = recording, .path = path, .why = why};
	*recording = (struct recording){0};
	FILE *file = fopen(path, "re");
	if (!file)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be read (%s)", path, strerror(errno));
	char *text = NULL;
	size_t size = 0;
	ssize_t bytes;
	int error = 0;
	while (!error && (bytes = getline(&text, &size, file)) >= 0) {
		reader.number++;
		error = read_line(&reader, text, (size_t)bytes);
	}
	if (!error && ferror(file))
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be read (%s)", path, strerror(errno));
	else if (!error && !reader.has_head)
		error = line_fail(why, EDIT_ERROR_INVALID, "%.400s: empty, expected what editctl trace writes", path);
	else if (!error && count_following(recording) + 1 < RECORDED_ROUNDS_MIN)
		error = line_fail(why, EDIT_ERROR_INVALID,
				  "%.200s:%zu: %zu rounds in a row, after the daemon's first one, with the settings of the last one, "
				  "expected at least %d", path,
				  reader.number, size_min(recording->round_count, count_following(recording) + 1),
				  (int)RECORDED_ROUNDS_MIN);
	else if (!error && find_idle(recording))
		error = line_fail(why, EDIT_ERROR_INVALID, "%.200s:%zu: member %s has done no step, expected some", path, reader.number,
				  find_idle(recording));
	free(text);
	fclose(file);
	if (error)
		recording_close(recording);
	return error;
}

void recording_close(struct recording *recording)
{
	forget_rounds(recording);
	free(recording->rounds);
	free(recording->names);
	free(recording->layer_sizes);
	*recording = (struct recording){0};
}

/* ---- What follows from it ---- */

uint64_t recording_ahead_us(const struct recording *recording, size_t index, uint32_t rank)
{
	const struct recorded_member *members = recording->rounds[index].members;
	uint64_t last_us = 0;
	for (uint32_t other = 0; other < recording->member_count; other++)
		last_us = u64_max(last_us, members[other].lateness_us);
	return last_us - members[rank].lateness_us;
}

uint64_t recording_transfer_us(const struct recording *recording, size_t index)
{
	uint64_t sync_us = recording->rounds[index].sync_us;
	return sync_us - u64_min(sync_us, recording_ahead_us(recording, index, recording->own));
}

/* Whether a member's worker offered in a round; it did not if it was late. */
static bool has_offered(const struct recording *recording, size_t index, uint32_t rank)
{
	return recording->rounds[index].members[rank].steps > 0;
}

uint64_t recording_compute_us(const struct recording *recording, size_t index, uint32_t rank)
{
	const struct recorded_round *round = &recording->rounds[index];
	const struct recorded_member *now = &round->members[rank];
	const double *value = recording->settings.value;
	CHECK(round->follows);
	/* What went on beside the worker from its last offer to the end of that round. */
	uint64_t sync_us = 0;
	bool waits_for_all = value[SYNC_OVERLAP] == OVERLAP_NONE && value[SYNC_EXCHANGE] == EXCHANGE_PARAMETERS;
	if (value[SYNC_OVERLAP] != OVERLAP_STEPS && has_offered(recording, index - 1, rank))
		sync_us = recording_transfer_us(recording, index - 1) + recording_ahead_us(recording, index - 1, rank);
	if (!has_offered(recording, index, rank)) /* it steps on: the rest is in the interval that it tells when it offers again */
		return sync_us;
	/* It waits for nothing but that end, so the two are equal but for the clocks of two machines. */
	if (waits_for_all && has_offered(recording, index - 1, rank))
		return u64_max(1, now->interval_us);
	uint64_t all_us = now->interval_us + sync_us;
	return all_us - u64_min(all_us - 1, now->exposed_us);
}

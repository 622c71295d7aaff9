/* Reads tests/vectors/edit.json with jansson. Every array is a block of its own, listed in `blocks`, freed together. */

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference_edit.h"

struct block {
	struct block *next;
	_Alignas(16) unsigned char bytes[];
};

struct loaded {
	struct reference_edit edit; /* first: what the caller sees */
	struct block *blocks;
};

static _Noreturn void damaged(const char *what)
{
	fprintf(stderr, "%s: %s is missing or of another type or length\n", REFERENCE_EDIT_PATH, what);
	exit(1);
}

static void *take(struct loaded *loaded, size_t count, size_t size)
{
	struct block *block = calloc(1, sizeof *block + count * size);
	if (block == NULL)
		damaged("memory");
	block->next = loaded->blocks;
	loaded->blocks = block;
	return block->bytes;
}

/* A number, one of the strings "nan", "inf", "-inf", or null (as NaN). */
static double number(const json_t *value, const char *what)
{
	if (json_is_number(value))
		return json_number_value(value);
	if (json_is_null(value))
		return NAN;
	const char *text = json_string_value(value);
	if (text != NULL && strcmp(text, "nan") == 0)
		return NAN;
	if (text != NULL && strcmp(text, "inf") == 0)
		return INFINITY;
	if (text != NULL && strcmp(text, "-inf") == 0)
		return -INFINITY;
	damaged(what);
}

static double member(const json_t *object, const char *key)
{
	return number(json_object_get(object, key), key);
}

static const json_t *array(const json_t *object, const char *key, size_t count)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_array(value) || (count > 0 && json_array_size(value) != count))
		damaged(key);
	return value;
}

static const double *numbers(struct loaded *loaded, const json_t *list, size_t count, const char *what)
{
	if (!json_is_array(list) || json_array_size(list) != count)
		damaged(what);
	double *x = take(loaded, count, sizeof *x);
	for (size_t i = 0; i < count; i++)
		x[i] = number(json_array_get(list, i), what);
	return x;
}

static const enum verdict *verdicts(struct loaded *loaded, const json_t *list, size_t count)
{
	enum verdict *x = take(loaded, count, sizeof *x);
	for (size_t i = 0; i < count; i++) {
		const char *text = json_string_value(json_array_get(list, i));
		if (text == NULL)
			damaged("verdict");
		if (strcmp(text, "accepted") == 0)
			x[i] = VERDICT_ACCEPTED;
		else if (strcmp(text, "outlier") == 0)
			x[i] = VERDICT_OUTLIER;
		else if (strcmp(text, "nonfinite") == 0)
			x[i] = VERDICT_NONFINITE;
		else
			damaged("verdict");
	}
	return x;
}

static const struct detector *detectors(struct loaded *loaded, const json_t *list, size_t count)
{
	struct detector *x = take(loaded, count, sizeof *x);
	for (size_t i = 0; i < count; i++) {
		const double *four = numbers(loaded, json_array_get(list, i), 4, "detector");
		x[i] = (struct detector){.count = (uint64_t)four[0], .mean = four[1], .var = four[2],
					 .streak = (uint64_t)four[3]};
	}
	return x;
}

static struct reference_layer layer_of(struct loaded *loaded, const json_t *record, size_t peers, size_t size)
{
	const double **theta = take(loaded, peers, sizeof *theta);
	const json_t *thetas = array(record, "theta", peers);
	for (size_t n = 0; n < peers; n++)
		theta[n] = numbers(loaded, json_array_get(thetas, n), size, "theta");
	return (struct reference_layer){
		.theta = theta,
		.norm = numbers(loaded, array(record, "norm", peers), peers, "norm"),
		.z = numbers(loaded, array(record, "z", peers), peers, "z"),
		.verdict = verdicts(loaded, array(record, "verdict", peers), peers),
		.weight = numbers(loaded, array(record, "weight", peers), peers, "weight"),
		.mean_norm = member(record, "mean_norm"),
		.scale = member(record, "scale"),
		.stepped = json_is_true(json_object_get(record, "stepped")),
		.anchor = numbers(loaded, array(record, "anchor", size), size, "anchor"),
		.momentum = numbers(loaded, array(record, "momentum", size), size, "momentum"),
		.detector = detectors(loaded, array(record, "detector", peers), peers),
	};
}

static struct ring_settings settings_of(const json_t *object)
{
	static const struct {
		const char *key;
		enum ring_setting setting;
	} names[] = {
		{"alpha", PENALTY_ALPHA}, {"threshold", PENALTY_THRESHOLD}, {"warmup", PENALTY_WARMUP},
		{"patience", PENALTY_PATIENCE}, {"temperature", PENALTY_TEMPERATURE}, {"clip", PENALTY_CLIP},
		{"outer_lr", OUTER_LR}, {"momentum", OUTER_MOMENTUM},
	};
	struct ring_settings settings = ring_settings_standard();
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		settings.value[names[i].setting] = member(object, names[i].key);
	return settings;
}

static struct reference_case case_of(struct loaded *loaded, const json_t *object)
{
	const json_t *sizes = array(object, "sizes", 0), *anchors = array(object, "anchor0", 0);
	const json_t *rounds = array(object, "rounds", 0);
	const size_t layer_count = json_array_size(sizes), round_count = json_array_size(rounds);
	const size_t peers = (size_t)member(object, "peers");
	size_t *size = take(loaded, layer_count, sizeof *size);
	const double **anchor0 = take(loaded, layer_count, sizeof *anchor0);
	struct reference_layer *layers = take(loaded, round_count * layer_count, sizeof *layers);
	const char *name = json_string_value(json_object_get(object, "name"));
	if (name == NULL || layer_count == 0 || round_count == 0 || peers == 0)
		damaged("case");

	for (size_t l = 0; l < layer_count; l++) {
		size[l] = (size_t)number(json_array_get(sizes, l), "sizes");
		anchor0[l] = numbers(loaded, json_array_get(anchors, l), size[l], "anchor0");
	}
	for (size_t r = 0; r < round_count; r++) {
		const json_t *round = json_array_get(rounds, r);
		if (json_array_size(round) != layer_count)
			damaged("round");
		for (size_t l = 0; l < layer_count; l++)
			layers[r * layer_count + l] = layer_of(loaded, json_array_get(round, l), peers, size[l]);
	}
	return (struct reference_case){
		.name = strcpy(take(loaded, strlen(name) + 1, 1), name),
		.peers = peers, .layer_count = layer_count, .round_count = round_count, .sizes = size,
		.settings = settings_of(json_object_get(object, "settings")), .anchor0 = anchor0, .layers = layers,
	};
}

struct reference_edit *reference_edit_load(const char *path)
{
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);
	if (root == NULL) {
		fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
		exit(1);
	}
	struct loaded *loaded = calloc(1, sizeof *loaded);
	if (loaded == NULL)
		damaged("memory");
	const json_t *list = array(root, "cases", 0);
	struct reference_case *cases = take(loaded, json_array_size(list), sizeof *cases);
	for (size_t i = 0; i < json_array_size(list); i++)
		cases[i] = case_of(loaded, json_array_get(list, i));
	loaded->edit = (struct reference_edit){.eps = member(root, "eps"), .case_count = json_array_size(list), .cases = cases};
	json_decref(root);
	return &loaded->edit;
}

void reference_edit_free(struct reference_edit *reference)
{
	struct loaded *loaded = (struct loaded *)reference;
	while (loaded->blocks != NULL) {
		struct block *block = loaded->blocks;
		loaded->blocks = block->next;
		free(block);
	}
	free(loaded);
}

const struct reference_layer *reference_layer_at(const struct reference_case *history, size_t round_index, size_t layer_index)
{
	CHECK(round_index < history->round_count);
	CHECK(layer_index < history->layer_count);
	return &history->layers[round_index * history->layer_count + layer_index];
}

void reference_floats(float *ret_x, const double *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ret_x[i] = (float)x[i];
}

double reference_error(const float *x, const double *expected, size_t count, double floor)
{
	double difference = 0.0, scale = 0.0;
	for (size_t i = 0; i < count; i++) {
		difference += ((double)x[i] - expected[i]) * ((double)x[i] - expected[i]);
		scale += expected[i] * expected[i];
	}
	return sqrt(difference) / fmax(sqrt(scale), floor);
}

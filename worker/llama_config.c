/* Reads config.json of a Hugging Face folder. Whatever would make the model another one than the decoder of
 * worker/llama.h is refused by its key; keys that do not touch the numbers are passed over. */

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/layer.h"
#include "worker/complain.h"
#include "worker/inputfile.h"
#include "worker/llama_config.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* What is read from, and where complaints go. */
struct reading {
	const char *path;
	json_t *root;
	char *error;
	size_t error_size;
};

#define REFUSE(reading, code, ...) complain((reading)->error, (reading)->error_size, (code), __VA_ARGS__)

/* The value of a key; NULL if it is absent or null. */
static json_t *value_of(const json_t *object, const char *key)
{
	json_t *value = json_object_get(object, key);
	return json_is_null(value) ? NULL : value;
}

/* A whole number in [low, high]; if the key is absent: absent, or a complaint if that is 0. */
static int read_count(const struct reading *reading, const char *key, unsigned low, unsigned high, unsigned absent,
		      unsigned *ret_count)
{
	const json_t *value = value_of(reading->root, key);
	if (!value && absent) {
		*ret_count = absent;
		return 0;
	}
	if (!json_is_integer(value))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: %s: %s, expected a whole number from %u to %u", reading->path,
				key, value ? "not a whole number" : "missing", low, high);
	json_int_t number = json_integer_value(value);
	if (number < low || number > high)
		return REFUSE(reading, EDIT_ERROR_RANGE,
				"%s: %s: %" JSON_INTEGER_FORMAT ", expected a whole number from %u to %u", reading->path, key, number,
				low, high);
	*ret_count = (unsigned)number;
	return 0;
}

/* A number in (0, high] of `object`, which may be NULL. */
static int read_positive(const struct reading *reading, const json_t *object, const char *key, double high,
		double absent, double *ret_number)
{
	const json_t *value = value_of(object, key);
	if (!value) {
		*ret_number = absent;
		return 0;
	}
	if (!json_is_number(value))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: %s: not a number", reading->path, key);
	double number = json_number_value(value);
	if (!(number > 0 && number <= high))
		return REFUSE(reading, EDIT_ERROR_RANGE, "%s: %s: %g, expected a number above 0 and up to %g", reading->path,
				key, number, high);
	*ret_number = number;
	return 0;
}

static int read_bool(const struct reading *reading, const char *key, bool *ret_value)
{
	const json_t *value = value_of(reading->root, key);
	if (value && !json_is_boolean(value))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: %s: expected true or false", reading->path, key);
	*ret_value = json_is_true(value);
	return 0;
}

/* A text that must be `only`, if it is there. */
static int read_only(const struct reading *reading, const json_t *object, const char *key, const char *only)
{
	const json_t *value = value_of(object, key);
	if (!value)
		return 0;
	if (!json_is_string(value))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: %s: expected a text", reading->path, key);
	if (strcmp(json_string_value(value), only))
		return REFUSE(reading, EDIT_ERROR_INVALID, "%s: %s: \"%.60s\" is not supported, only \"%s\"", reading->path,
				key, json_string_value(value), only);
	return 0;
}

/* A number that must be `only`, if it is there. */
static int read_only_number(const struct reading *reading, const char *key, double only)
{
	const json_t *value = value_of(reading->root, key);
	if (!value)
		return 0;
	if (!json_is_number(value))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: %s: not a number", reading->path, key);
	double number = json_number_value(value);
	if (number < only || number > only)
		return REFUSE(
				reading, EDIT_ERROR_INVALID, "%s: %s: %g is not supported, only %g", reading->path, key, number, only);
	return 0;
}

/* Refuses what would need another decoder. */
static int check_kind(const struct reading *reading)
{
	static const char *const biases[] = {"attention_bias", "mlp_bias"};
	if (!value_of(reading->root, "model_type"))
		return REFUSE(reading, EDIT_ERROR_MALFORMED, "%s: model_type: missing, expected \"llama\"", reading->path);
	int error = read_only(reading, reading->root, "model_type", "llama");
	if (!error)
		error = read_only(reading, reading->root, "hidden_act", "silu");
	for (size_t i = 0; !error && i < sizeof(biases) / sizeof(biases[0]); i++) {
		bool bias;
		error = read_bool(reading, biases[i], &bias);
		if (!error && bias)
			error = REFUSE(
					reading, EDIT_ERROR_INVALID, "%s: %s: true is not supported, only false", reading->path, biases[i]);
	}
	if (!error && value_of(reading->root, "quantization_config"))
		error = REFUSE(reading, EDIT_ERROR_INVALID, "%s: quantization_config: quantised weights are not supported",
			       reading->path);
	if (!error)
		error = read_only_number(reading, "attention_dropout", 0);
	return error ? error : read_only_number(reading, "partial_rotary_factor", 1);
}

/* The base of the rotary frequencies: rope_theta, in newer files inside rope_parameters. Scaled frequencies are
 * refused; the type that means "not scaled" is taken. */
static int read_rope(const struct reading *reading, double *ret_theta)
{
	static const char *const holders[] = {"rope_scaling", "rope_parameters"}, *const types[] = {"rope_type", "type"};
	double theta;
	int error = read_positive(reading, reading->root, "rope_theta", 1e30, 10000, &theta);
	for (size_t i = 0; !error && i < 2; i++) {
		const json_t *holder = value_of(reading->root, holders[i]);
		if (!holder)
			continue;
		const json_t *type = value_of(holder, types[0]) ? value_of(holder, types[0]) : value_of(holder, types[1]);
		const char *text = json_is_string(type) ? json_string_value(type)
		                   : i == 1 && !type    ? "default"
		                                        : "of no known type";
		if (!json_is_object(holder) || strcmp(text, "default"))
			error = REFUSE(reading, EDIT_ERROR_INVALID,
					"%s: %s: \"%.60s\" is not supported, only null or rope_type \"default\"", reading->path, holders[i],
					text);
		else
			error = read_positive(reading, holder, "rope_theta", 1e30, theta, &theta);
	}
	if (!error)
		*ret_theta = theta;
	return error;
}

/* Heads and their size, which depend on one another. */
static int read_heads(const struct reading *reading, struct llama_config *config)
{
	int error = read_count(reading, "num_attention_heads", 1, 65536, 0, &config->head_count);
	if (!error)
		error = read_count(reading, "num_key_value_heads", 1, 65536, config->head_count, &config->kv_head_count);
	if (error)
		return error;
	if (config->head_count % config->kv_head_count)
		return REFUSE(reading, EDIT_ERROR_RANGE, "%s: num_key_value_heads: %u does not divide num_attention_heads (%u)",
			      reading->path, config->kv_head_count, config->head_count);
	if (!value_of(reading->root, "head_dim") && config->hidden_size % config->head_count)
		return REFUSE(reading, EDIT_ERROR_RANGE, "%s: num_attention_heads: %u does not divide hidden_size (%u)",
			      reading->path, config->head_count, config->hidden_size);
	error = read_count(reading, "head_dim", 2, 65536, config->hidden_size / config->head_count, &config->head_dim);
	if (!error && config->head_dim % 2)
		error = REFUSE(reading, EDIT_ERROR_RANGE,
				"%s: head_dim: %u, expected an even number (rotary embedding turns pairs)", reading->path,
				config->head_dim);
	return error;
}

static int read_all(const struct reading *reading, struct llama_config *config)
{
	int error = check_kind(reading);
	if (!error)
		error = read_count(reading, "vocab_size", 1, 1 << 24, 0, &config->vocab_size);
	if (!error)
		error = read_count(reading, "hidden_size", 1, 1 << 20, 0, &config->hidden_size);
	if (!error)
		error = read_count(reading, "intermediate_size", 1, 1 << 22, 0, &config->intermediate_size);
	if (!error)
		error = read_count(reading, "num_hidden_layers", 1, LAYER_COUNT_MAX - 2, 0, &config->layer_count);
	if (!error)
		error = read_heads(reading, config);
	if (!error)
		error = read_count(reading, "max_position_embeddings", 1, 1 << 30, 2048, &config->max_position_embeddings);
	if (!error)
		error = read_positive(reading, reading->root, "rms_norm_eps", 1, 1e-6, &config->rms_norm_eps);
	if (!error)
		error = read_rope(reading, &config->rope_theta);
	return error ? error : read_bool(reading, "tie_word_embeddings", &config->tie_word_embeddings);
}

int llama_config_text(const char *path, char **ret_text, char *error, size_t error_size)
{
	return inputfile_text(path, CONFIG_BYTES_MAX, ret_text, error, error_size);
}

int llama_config_load(const char *path, struct llama_config *ret_config, char *error, size_t error_size)
{
	char *text;
	int result = llama_config_text(path, &text, error, error_size);
	if (result)
		return result;
	json_error_t place;
	struct reading reading = {.path = path, .error = error, .error_size = error_size};
	struct llama_config config;
	memset(&config, 0, sizeof(config));
	reading.root = json_loads(text, JSON_REJECT_DUPLICATES, &place);
	if (!reading.root)
		result = complain(
				error, error_size, EDIT_ERROR_MALFORMED, "%s: line %d: not JSON (%s)", path, place.line, place.text);
	else if (!json_is_object(reading.root))
		result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: expected a JSON object", path);
	else
		result = read_all(&reading, &config);
	json_decref(reading.root);
	free(text);
	if (!result)
		*ret_config = config;
	return result;
}

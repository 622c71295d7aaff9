/* Tells two descriptions apart: the first difference, by name, in the order in which a person would look. */

#include <stdio.h>
#include <string.h>

#include "daemon/run.h"

static const char *fact_value(const struct description *description, const char *key)
{
	for (size_t i = 0; i < description->fact_count; i++)
		if (strcmp(description->facts[i].key, key) == 0)
			return description->facts[i].value;
	return NULL;
}

static bool facts_differ(const struct description *description, const struct description *expected,
			 struct line *ret_line)
{
	for (size_t i = 0; i < expected->fact_count; i++) {
		const struct fact *fact = &expected->facts[i];
		const char *value = fact_value(description, fact->key);
		if (value && strcmp(value, fact->value) == 0)
			continue;
		line_fail(ret_line, EDIT_ERROR_INVALID, "%.200s: %.100s, expected %.100s", fact->key,
			  value ? value : "not given", fact->value);
		return true;
	}
	for (size_t i = 0; i < description->fact_count; i++)
		if (!fact_value(expected, description->facts[i].key)) {
			line_fail(ret_line, EDIT_ERROR_INVALID, "%.200s: given, but not expected",
				  description->facts[i].key);
			return true;
		}
	return false;
}

static bool layers_differ(const struct description *description, const struct description *expected,
			  struct line *ret_line)
{
	if (description->layer_count != expected->layer_count) {
		line_fail(ret_line, EDIT_ERROR_INVALID, "%zu layers, expected %zu", description->layer_count,
			  expected->layer_count);
		return true;
	}
	for (size_t i = 0; i < expected->layer_count; i++) {
		const struct description_layer *a = &description->layers[i];
		const struct description_layer *b = &expected->layers[i];
		if (strcmp(a->name, b->name) != 0 || a->size != b->size) {
			line_fail(ret_line, EDIT_ERROR_INVALID,
				  "layer %zu: \"%.100s\" of %llu elements, expected \"%.100s\" of %llu", i, a->name,
				  (unsigned long long)a->size, b->name, (unsigned long long)b->size);
			return true;
		}
	}
	return false;
}

static bool tensors_differ(const struct description *description, const struct description *expected,
			   struct line *ret_line)
{
	if (description->tensor_count != expected->tensor_count) {
		line_fail(ret_line, EDIT_ERROR_INVALID, "%zu tensors, expected %zu", description->tensor_count,
			  expected->tensor_count);
		return true;
	}
	for (size_t i = 0; i < expected->tensor_count; i++) {
		const struct description_tensor *a = &description->tensors[i];
		const struct description_tensor *b = &expected->tensors[i];
		if (strcmp(a->name, b->name) == 0 && a->layer_index == b->layer_index && a->rank == b->rank &&
		    memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0)
			continue;
		line_fail(ret_line, EDIT_ERROR_INVALID,
			  "tensor %zu: \"%.100s\" differs in name, place or shape from \"%.100s\"", i, a->name,
			  b->name);
		return true;
	}
	return false;
}

bool run_difference(const struct description *description, const struct description *expected, struct line *ret_line)
{
	if (facts_differ(description, expected, ret_line) || layers_differ(description, expected, ret_line) ||
	    tensors_differ(description, expected, ret_line))
		return true;
	if (description->inner_factor != expected->inner_factor) {
		line_fail(ret_line, EDIT_ERROR_INVALID, "inner state: %u numbers per element, expected %u",
			  description->inner_factor, expected->inner_factor);
		return true;
	}
	const char *config = description->config ? description->config : "";
	if (strcmp(config, expected->config ? expected->config : "") != 0) {
		line_fail(ret_line, EDIT_ERROR_INVALID, "text of config.json differs");
		return true;
	}
	return false;
}

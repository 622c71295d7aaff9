/* Reads a folder of tests/vectors/llama_*: config.json and expect.json with jansson, model.safetensors by hand, so
 * that the readers under test are not part of their own measure. */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference_llama.h"

static _Noreturn void damaged(const char *name, const char *what)
{
	fprintf(stderr, "tests/vectors/%s: %s is missing or of another type or length\n", name, what);
	exit(1);
}

static void *take(const char *name, size_t count, size_t size)
{
	void *block = calloc(count, size);
	if (block == NULL)
		damaged(name, "memory");
	return block;
}

static const json_t *member(const char *name, const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	if (value == NULL)
		damaged(name, key);
	return value;
}

static double number(const char *name, const json_t *object, const char *key)
{
	return json_number_value(member(name, object, key));
}

static unsigned count_of(const char *name, const json_t *object, const char *key)
{
	return (unsigned)json_integer_value(member(name, object, key));
}

static json_t *load_json(const char *name, const char *file)
{
	char path[256];
	snprintf(path, sizeof path, "tests/vectors/%s/%s", name, file);
	json_t *root = json_load_file(path, 0, NULL);
	if (root == NULL)
		damaged(name, file);
	return root;
}

static struct llama_config read_config(const char *name)
{
	json_t *root = load_json(name, "config.json");
	struct llama_config config = {
		.vocab_size = count_of(name, root, "vocab_size"),
		.hidden_size = count_of(name, root, "hidden_size"),
		.intermediate_size = count_of(name, root, "intermediate_size"),
		.layer_count = count_of(name, root, "num_hidden_layers"),
		.head_count = count_of(name, root, "num_attention_heads"),
		.kv_head_count = count_of(name, root, "num_key_value_heads"),
		.max_position_embeddings = count_of(name, root, "max_position_embeddings"),
		.rms_norm_eps = number(name, root, "rms_norm_eps"),
		.rope_theta = number(name, root, "rope_theta"),
		.tie_word_embeddings = json_is_true(member(name, root, "tie_word_embeddings")),
	};
	config.head_dim = config.hidden_size / config.head_count;
	json_decref(root);
	return config;
}

/* model.safetensors: length of the header (8 bytes), the header as JSON, then the data. */
static void read_theta(const char *name, struct reference_llama *r)
{
	char path[256];
	uint64_t length;
	snprintf(path, sizeof path, "tests/vectors/%s/model.safetensors", name);
	FILE *file = fopen(path, "rb");
	if (file == NULL || fread(&length, sizeof length, 1, file) != 1 || length > 1 << 20)
		damaged(name, "model.safetensors");
	char *text = take(name, length, 1);
	if (fread(text, 1, length, file) != length)
		damaged(name, "header of model.safetensors");
	json_t *header = json_loadb(text, length, 0, NULL);
	for (unsigned i = 0; i < llama_tensor_count(&r->config); i++) {
		struct llama_tensor tensor;
		llama_tensor_at(&r->config, i, &tensor);
		const json_t *offsets = member(name, member(name, header, tensor.name), "data_offsets");
		long begin = (long)json_integer_value(json_array_get(offsets, 0));
		if (json_integer_value(json_array_get(offsets, 1)) != begin + (long)(tensor.size * sizeof(float)) ||
		    fseek(file, 8 + (long)length + begin, SEEK_SET) != 0 ||
		    fread(r->theta[tensor.layer] + tensor.offset, sizeof(float), tensor.size, file) != tensor.size)
			damaged(name, tensor.name);
	}
	json_decref(header);
	free(text);
	fclose(file);
}

static void read_numbers(const char *name, const char *what, const json_t *array, double *ret_x, size_t count)
{
	if (json_array_size(array) != count)
		damaged(name, what);
	for (size_t i = 0; i < count; i++)
		ret_x[i] = json_number_value(json_array_get(array, i));
}

static void read_tokens(const char *name, struct reference_llama *r, const json_t *batches)
{
	r->step_count = (unsigned)json_array_size(batches);
	r->batch = (unsigned)json_array_size(json_array_get(batches, 0));
	r->time = (unsigned)json_array_size(json_array_get(json_array_get(batches, 0), 0)) - 1;
	size_t width = (size_t)r->time + 1, rows = (size_t)r->step_count * r->batch;
	r->tokens = take(name, rows * width, sizeof *r->tokens);
	for (size_t row = 0; row < rows; row++) {
		const json_t *from = json_array_get(json_array_get(batches, row / r->batch), row % r->batch);
		if (json_array_size(from) != width)
			damaged(name, "batches");
		for (size_t i = 0; i < width; i++)
			r->tokens[row * width + i] = (uint32_t)json_integer_value(json_array_get(from, i));
	}
}

static void read_steps(const char *name, struct reference_llama *r, const json_t *steps)
{
	unsigned tensors = llama_tensor_count(&r->config);
	r->loss = take(name, r->step_count, sizeof *r->loss);
	r->norm = take(name, r->step_count, sizeof *r->norm);
	r->weight_norms = take(name, r->step_count, sizeof *r->weight_norms);
	for (unsigned step = 0; step < r->step_count; step++) {
		const json_t *from = json_array_get(steps, step);
		r->loss[step] = number(name, from, "loss");
		r->norm[step] = number(name, from, "gradient_norm");
		r->weight_norms[step] = take(name, tensors, sizeof(double));
		for (unsigned i = 0; i < tensors; i++) {
			struct llama_tensor tensor;
			llama_tensor_at(&r->config, i, &tensor);
			r->weight_norms[step][i] = number(name, member(name, from, "weight_norm"), tensor.name);
		}
	}
}

static void read_expect(const char *name, struct reference_llama *r)
{
	json_t *root = load_json(name, "expect.json");
	const json_t *adamw = member(name, root, "adamw"), *gradients = member(name, root, "gradients");
	read_tokens(name, r, member(name, root, "batches"));
	size_t logits = (size_t)r->batch * r->time * r->config.vocab_size;
	r->logits = take(name, logits, sizeof *r->logits);
	read_numbers(name, "logits", member(name, root, "logits"), r->logits, logits);
	for (unsigned i = 0; i < llama_tensor_count(&r->config); i++) {
		struct llama_tensor tensor;
		llama_tensor_at(&r->config, i, &tensor);
		read_numbers(name, tensor.name, member(name, gradients, tensor.name),
			     r->gradient[tensor.layer] + tensor.offset, tensor.size);
	}
	r->rate = number(name, adamw, "lr");
	r->adamw = (struct adamw){
		.beta1 = number(name, adamw, "beta1"),
		.beta2 = number(name, adamw, "beta2"),
		.eps = number(name, adamw, "eps"),
		.weight_decay = number(name, adamw, "weight_decay"),
		.clip_norm = number(name, adamw, "clip_norm"),
	};
	read_steps(name, r, member(name, root, "steps"));
	json_decref(root);
}

struct reference_llama *reference_llama_load(const char *name)
{
	struct reference_llama *r = take(name, 1, sizeof *r);
	r->config = read_config(name);
	unsigned layers = llama_layer_count(&r->config);
	r->theta = take(name, layers, sizeof *r->theta);
	r->gradient = take(name, layers, sizeof *r->gradient);
	for (unsigned layer = 0; layer < layers; layer++) {
		r->theta[layer] = take(name, llama_layer_size(&r->config, layer), sizeof(float));
		r->gradient[layer] = take(name, llama_layer_size(&r->config, layer), sizeof(double));
	}
	read_theta(name, r);
	read_expect(name, r);
	return r;
}

void reference_llama_free(struct reference_llama *reference)
{
	for (unsigned layer = 0; layer < llama_layer_count(&reference->config); layer++) {
		free(reference->theta[layer]);
		free(reference->gradient[layer]);
	}
	for (unsigned step = 0; step < reference->step_count; step++)
		free(reference->weight_norms[step]);
	free(reference->weight_norms);
	free(reference->norm);
	free(reference->loss);
	free(reference->logits);
	free(reference->tokens);
	free(reference->gradient);
	free(reference->theta);
	free(reference);
}

/* The model as a member of a ring. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/complain.h"
#include "worker/member.h"
#include "worker/say.h"

enum { INNER_FACTOR = 2 }; /* AdamW: m, then v */

int member_status(int result)
{
	switch (result) {
	case EDIT_WORKER_INVALID: return 2;
	case EDIT_WORKER_UNREACHABLE: return 3;
	case EDIT_WORKER_REFUSED: return 4;
	default: return 1;
	}
}

/* ---- Describing ---- */

static int add_layers(struct edit_worker *worker, const struct llama_config *config)
{
	unsigned next = 0, tensor_count = llama_tensor_count(config);
	for (unsigned layer = 0; layer < llama_layer_count(config); layer++) {
		char name[LLAMA_NAME_MAX];
		llama_layer_name(config, layer, name);
		int result = edit_worker_add_layer(worker, name);
		for (; result >= 0 && next < tensor_count; next++) {
			struct llama_tensor tensor;
			llama_tensor_at(config, next, &tensor);
			if (tensor.layer != layer)
				break;
			result = edit_worker_add_tensor(worker, tensor.name, tensor.dims, tensor.rank);
		}
		if (result < 0)
			return result;
	}
	return 0;
}

/* A fact that is a whole number, a number, or a hash. */
static int add_count(struct edit_worker *worker, const char *key, uint64_t value)
{
	char text[32];
	snprintf(text, sizeof(text), "%" PRIu64, value);
	return edit_worker_add_fact(worker, key, text);
}

static int add_real(struct edit_worker *worker, const char *key, double value)
{
	char text[40];
	snprintf(text, sizeof(text), "%.17g", value);
	return edit_worker_add_fact(worker, key, text);
}

static int add_hash(struct edit_worker *worker, const char *key, uint64_t value)
{
	char text[20];
	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return edit_worker_add_fact(worker, key, text);
}

/* In the order in which a difference is told: what people set comes before what follows from it. */
static int add_facts(struct edit_worker *worker, const struct llama_config *config, const struct train_options *options,
		     uint64_t hash)
{
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{"vocab_size", config->vocab_size},
		{"hidden_size", config->hidden_size},
		{"intermediate_size", config->intermediate_size},
		{"num_hidden_layers", config->layer_count},
		{"num_attention_heads", config->head_count},
		{"num_key_value_heads", config->kv_head_count},
		{"head_dim", config->head_dim},
		{"max_position_embeddings", config->max_position_embeddings},
		{"steps", options->step_count},
		{"seed", options->seed},
		{"context", options->corpus.context},
	};
	int result = edit_worker_add_fact(worker, "run", options->run);
	for (size_t i = 0; !result && i < sizeof(counts) / sizeof(counts[0]); i++)
		result = add_count(worker, counts[i].key, counts[i].value);
	if (!result)
		result = add_real(worker, "rms_norm_eps", config->rms_norm_eps);
	if (!result)
		result = add_real(worker, "rope_theta", config->rope_theta);
	if (!result)
		result = edit_worker_add_fact(worker, "tie_word_embeddings", config->tie_word_embeddings ? "true" : "false");
	if (!result)
		result = edit_worker_add_fact(worker, "dtype", "float32");
	if (!result)
		result = add_real(worker, "holdout", options->corpus.holdout);
	return result ? result : add_hash(worker, "initial parameters", hash);
}

int member_describe(struct edit_worker *worker, const struct origin *origin, const struct train_options *options,
		    char *error, size_t error_size)
{
	uint64_t hash;
	int failed = origin_hash(origin, &hash, error, error_size);
	if (failed)
		return failed;
	int result = add_layers(worker, &origin->config);
	if (!result)
		result = add_facts(worker, &origin->config, options, hash);
	if (!result)
		result = edit_worker_set_config(worker, origin->config_text);
	if (!result)
		result = edit_worker_set_inner(worker, INNER_FACTOR);
	if (result)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: %s", options->model, edit_worker_error(worker));
	return 0;
}

/* ---- Hooks of the model ---- */

/* A layer that was left out because it was not finite begins anew from the anchor: what its optimiser state remembers
 * is not finite either. */
static int acquire(void *arg, unsigned layer)
{
	struct member *member = arg;
	uint64_t nonfinite_round;
	int result = edit_worker_acquire(member->worker, layer, &nonfinite_round);
	if (result || !nonfinite_round)
		return result;
	char name[LLAMA_NAME_MAX];
	const struct llama_config *config = llama_config_of(member->llama);
	llama_layer_name(config, layer, name);
	say(SAY_WARNING, "%s: was not finite and left out of round %" PRIu64 ", begins anew from the anchor", name,
	    nonfinite_round);
	edit_worker_step_begin(member->worker, layer);
	memset(edit_worker_inner(member->worker, layer), 0, INNER_FACTOR * llama_layer_size(config, layer) * sizeof(float));
	edit_worker_step_end(member->worker, layer);
	return 0;
}

static void release(void *arg, unsigned layer)
{
	edit_worker_release(((struct member *)arg)->worker, layer);
}

/* The daemon gets a layer's gradient while the backward pass goes on with the layers before it. */
static void gradient_done(void *arg, unsigned layer)
{
	struct member *member = arg;
	if (!member->ends_step)
		return;
	if (layer + 1 == member->layer_count) {
		member->is_handing = edit_worker_averages_gradients(member->worker);
		member->handed = 0;
	}
	if (member->is_handing && !member->handed)
		member->handed = edit_worker_offer_gradient(member->worker, layer, llama_gradient(member->llama, layer),
							    member->is_final);
}

int member_average(struct member *member)
{
	int result = member->is_handing ? member->handed : 0;
	for (unsigned layer = member->layer_count; member->is_handing && !result && layer-- > 0;)
		result = edit_worker_mean_gradient(member->worker, layer, llama_gradient(member->llama, layer));
	return result;
}

static void step_begin(void *arg, unsigned layer)
{
	edit_worker_step_begin(((struct member *)arg)->worker, layer);
}

static void step_end(void *arg, unsigned layer)
{
	edit_worker_step_end(((struct member *)arg)->worker, layer);
}

/* ---- Making ---- */

/* Initial theta of every layer, zeros for m and v. */
static int fill(struct member *member, const struct origin *origin, char *error, size_t error_size)
{
	for (unsigned layer = 0; layer < member->layer_count; layer++) {
		size_t size = llama_layer_size(&origin->config, layer);
		int failed = origin_fill(origin, layer, edit_worker_theta(member->worker, layer), error, error_size);
		if (failed)
			return EDIT_WORKER_SYSTEM;
		memset(edit_worker_inner(member->worker, layer), 0, INNER_FACTOR * size * sizeof(float));
	}
	return 0;
}

int member_init(struct member *member, struct edit_worker *worker, const struct origin *origin,
		const struct train_options *options, char *error, size_t error_size)
{
	*member = (struct member){.worker = worker, .layer_count = llama_layer_count(&origin->config)};
	const struct llama_limits limits = {.batch = options->batch, .time = options->corpus.context, .training = true};
	int failed = llama_new(&origin->config, &limits, &member->llama);
	if (failed) {
		complain(error, error_size, failed, "a model of this size with batch %u and context %u: %s", options->batch,
			 options->corpus.context, failed == EDIT_ERROR_SYSTEM ? strerror(ENOMEM) : edit_error_text(failed));
		return EDIT_WORKER_SYSTEM;
	}
	for (unsigned layer = 0; layer < member->layer_count; layer++)
		llama_bind(member->llama, layer, edit_worker_theta(worker, layer), edit_worker_inner(worker, layer));
	const struct llama_hooks hooks = {acquire, release, gradient_done, step_begin, step_end, member};
	llama_set_hooks(member->llama, &hooks);
	int result = edit_worker_is_resumed(worker) ? 0 : fill(member, origin, error, error_size);
	if (!result) {
		result = edit_worker_ready(worker);
		if (result < 0)
			complain(error, error_size, EDIT_ERROR_SYSTEM, "%s", edit_worker_error(worker));
	}
	if (result)
		member_fini(member);
	return result;
}

void member_fini(struct member *member)
{
	llama_free(member->llama);
	member->llama = NULL;
}

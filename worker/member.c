/* The model as a member of a ring. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* AdamW begins anew with a piece. */
static void zero_inner(const struct adamw_piece *piece)
{
	if (piece->count > 0)
		memset(piece->inner, 0, INNER_FACTOR * piece->count * sizeof(float));
}

/* A layer that was left out because it was not finite begins anew from the anchor: what its optimiser state remembers
 * is not finite either. */
static int acquire(void *arg, unsigned layer)
{
	struct member *member = arg;
	uint64_t nonfinite_round;
	int result = edit_worker_acquire(member->worker, layer, &nonfinite_round);
	if (!result && member->is_sharded)
		llama_bind(member->llama, layer, edit_worker_theta(member->worker, layer));
	if (result || !nonfinite_round)
		return result;
	char name[LLAMA_NAME_MAX];
	llama_layer_name(llama_config_of(member->llama), layer, name);
	say(SAY_WARNING, "%s: was not finite and left out of round %" PRIu64 ", begins anew from the anchor", name,
	    nonfinite_round);
	edit_worker_step_begin(member->worker, layer);
	zero_inner(&member->pieces[layer]);
	edit_worker_step_end(member->worker, layer);
	return 0;
}

static void release(void *arg, unsigned layer)
{
	edit_worker_release(((struct member *)arg)->worker, layer);
}

/* The daemon gets a layer's gradient while the backward pass goes on with the layers before it. Of layers that pass by it
 * gets one for every pass and adds them up: the next pass needs the memory. */
static void gradient_done(void *arg, unsigned layer)
{
	struct member *member = arg;
	if (!member->ends_step && !member->is_sharded)
		return;
	if (layer + 1 == member->layer_count)
		member->is_handing = edit_worker_averages_gradients(member->worker);
	if (member->is_handing && !member->handed)
		member->handed = edit_worker_offer_gradient(member->worker, layer, llama_gradient(member->llama, layer),
							    member->is_final);
}

/* ---- A step ---- */

void member_begin(struct member *member, bool is_final)
{
	member->ends_step = false;
	member->is_final = is_final;
	member->is_handing = false;
	member->handed = 0;
	llama_gradient_zero(member->llama);
}

int member_average(struct member *member)
{
	int result = member->is_handing ? member->handed : 0;
	for (unsigned layer = member->layer_count; member->is_handing && !result && layer-- > 0;)
		result = edit_worker_mean_gradient(member->worker, layer,
						   member->is_sharded ? NULL : member->pieces[layer].gradient);
	return result;
}

int member_step(struct member *member, const struct adamw *adamw, double rate, uint64_t number, double *ret_norm)
{
	double sum;
	struct adamw_update update;
	int result = edit_worker_sum(member->worker, adamw_square_sum(member->pieces, member->layer_count), &sum);
	if (result)
		return result;
	*ret_norm = sqrt(sum);
	if (!adamw_begin(adamw, *ret_norm, rate, number, &update))
		return 0;
	for (unsigned layer = 0; layer < member->layer_count; layer++) {
		edit_worker_step_begin(member->worker, layer);
		adamw_step_piece(llama_config_of(member->llama), layer, &member->pieces[layer], &update);
		edit_worker_step_end(member->worker, layer);
	}
	return 0;
}

void member_spoil(struct member *member, unsigned layer)
{
	const struct adamw_piece *piece = &member->pieces[layer];
	edit_worker_step_begin(member->worker, layer);
	if (piece->count > 0)
		piece->theta[piece->count / 2] = NAN;
	edit_worker_step_end(member->worker, layer);
}

/* ---- Making ---- */

/* Initial theta of a layer's piece. Only a layer that is not all here needs memory for the rest of it. */
static int fill_piece(const struct origin *origin, unsigned layer, const struct adamw_piece *piece, char *error,
		      size_t error_size)
{
	size_t size = llama_layer_size(&origin->config, layer);
	if (piece->count == size)
		return origin_fill(origin, layer, piece->theta, error, error_size);
	float *whole = malloc(size * sizeof(*whole));
	if (!whole)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "a layer of %zu parameters: %s", size,
				strerror(ENOMEM));
	int failed = origin_fill(origin, layer, whole, error, error_size);
	if (!failed && piece->count > 0)
		memcpy(piece->theta, whole + piece->first, piece->count * sizeof(*whole));
	free(whole);
	return failed;
}

/* Initial theta, zeros for m and v. */
static int fill(struct member *member, const struct origin *origin, char *error, size_t error_size)
{
	for (unsigned layer = 0; layer < member->layer_count; layer++) {
		if (fill_piece(origin, layer, &member->pieces[layer], error, error_size))
			return EDIT_WORKER_SYSTEM;
		zero_inner(&member->pieces[layer]);
	}
	return 0;
}

/* Where gradients of the pieces come: into the model's own, which are whole layers as the pieces are; or, if layers pass by, they
 * stay in the memory shared with the daemon. */
static void place_gradients(struct member *member)
{
	for (unsigned layer = 0; layer < member->layer_count; layer++)
		member->pieces[layer].gradient = member->is_sharded ? edit_worker_gradient(member->worker, layer)
								    : llama_gradient(member->llama, layer);
}

/* The model and the pieces. Theta of a layer that passes by is bound when it comes. */
static int make(struct member *member, const struct origin *origin, const struct train_options *options)
{
	const struct llama_limits limits = {.batch = options->batch,
					    .time = options->corpus.context,
					    .training = true,
					    .passing = member->is_sharded};
	member->pieces = calloc(member->layer_count, sizeof(*member->pieces));
	int failed = member->pieces ? llama_new(&origin->config, &limits, &member->llama) : EDIT_ERROR_SYSTEM;
	for (unsigned layer = 0; !failed && layer < member->layer_count; layer++) {
		struct adamw_piece *piece = &member->pieces[layer];
		piece->theta = edit_worker_piece(member->worker, layer, &piece->first, &piece->count);
		piece->inner = edit_worker_inner(member->worker, layer);
		if (!member->is_sharded)
			llama_bind(member->llama, layer, piece->theta);
	}
	if (!failed)
		place_gradients(member);
	return failed;
}

int member_init(struct member *member, struct edit_worker *worker, const struct origin *origin,
		const struct train_options *options, char *error, size_t error_size)
{
	*member = (struct member){.worker = worker,
				  .layer_count = llama_layer_count(&origin->config),
				  .is_sharded = edit_worker_shards(worker) > 1};
	int failed = make(member, origin, options), result;
	if (failed) {
		complain(error, error_size, failed, "a model of this size with batch %u and context %u: %s", options->batch,
			 options->corpus.context, failed == EDIT_ERROR_SYSTEM ? strerror(ENOMEM) : edit_error_text(failed));
		result = EDIT_WORKER_SYSTEM;
		goto out;
	}
	const struct llama_hooks hooks = {acquire, release, gradient_done, member};
	llama_set_hooks(member->llama, &hooks);
	result = edit_worker_is_resumed(worker) ? 0 : fill(member, origin, error, error_size);
	if (result)
		goto out;
	result = edit_worker_ready(worker);
	if (result < 0)
		complain(error, error_size, EDIT_ERROR_SYSTEM, "%s", edit_worker_error(worker));
out:
	if (result)
		member_fini(member);
	return result;
}

void member_fini(struct member *member)
{
	llama_free(member->llama);
	free(member->pieces);
	*member = (struct member){0};
}

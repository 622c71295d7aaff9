/* The calls of libedit-worker. Training threads wait here only for the daemon's words in the segment; see
 * proto/segment.h for who writes which. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/edit_worker_link.h"
#include "worker/edit_worker_mesh.h"

struct edit_worker *edit_worker_new(const char *socket_path)
{
	struct edit_worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return NULL;
	worker->socket = -1;
	worker->address.sun_family = AF_UNIX;
	/* A path that does not fit stays empty; attach tells. */
	if (strlen(socket_path) < sizeof(worker->address.sun_path))
		strcpy(worker->address.sun_path, socket_path);
	else
		line_fail(&worker->error, EDIT_ERROR_INVALID, "the socket's path is longer than %zu bytes: %.128s...",
			  sizeof(worker->address.sun_path) - 1, socket_path);
	description_init(&worker->description);
	return worker;
}

void edit_worker_free(struct edit_worker *worker)
{
	if (!worker)
		return;
	link_close(worker);
	segment_close(&worker->segment);
	description_fini(&worker->description);
	free(worker->encoded);
	free(worker->layers);
	mesh_close(worker);
	free(worker);
}

const char *edit_worker_error(const struct edit_worker *worker)
{
	return worker->error.text;
}

/* Result of a call for an error code of core/base.h. */
static int result_of(int error)
{
	if (!error)
		return EDIT_WORKER_OK;
	return error == EDIT_ERROR_SYSTEM ? EDIT_WORKER_SYSTEM : EDIT_WORKER_INVALID;
}

int worker_invalid(struct edit_worker *worker, const char *what)
{
	line_fail(&worker->error, EDIT_ERROR_INVALID, "%s", what);
	return EDIT_WORKER_INVALID;
}

/* Refuses calls that belong to another part of a worker's life. */
static int demand_attached(struct edit_worker *worker, bool is_attached)
{
	if (worker->is_attached == is_attached)
		return EDIT_WORKER_OK;
	return worker_invalid(worker, is_attached ? "not attached yet" : "attached already");
}

/* ---- Description ---- */

int edit_worker_add_layer(struct edit_worker *worker, const char *name)
{
	int result = demand_attached(worker, false);
	if (!result)
		result = result_of(description_add_layer(&worker->description, name, &worker->error));
	return result ? result : (int)worker->description.layer_count - 1;
}

int edit_worker_add_tensor(struct edit_worker *worker, const char *name, const uint64_t *dims, size_t rank)
{
	int result = demand_attached(worker, false);
	return result ? result
		      : result_of(description_add_tensor(&worker->description, name, dims, rank, &worker->error));
}

int edit_worker_add_fact(struct edit_worker *worker, const char *key, const char *value)
{
	int result = demand_attached(worker, false);
	return result ? result : result_of(description_add_fact(&worker->description, key, value, &worker->error));
}

int edit_worker_set_config(struct edit_worker *worker, const char *text)
{
	int result = demand_attached(worker, false);
	return result ? result : result_of(description_set_config(&worker->description, text, &worker->error));
}

int edit_worker_set_inner(struct edit_worker *worker, unsigned factor)
{
	int result = demand_attached(worker, false);
	return result ? result : result_of(description_set_inner(&worker->description, factor, &worker->error));
}

/* ---- Attaching ---- */

/* Checks the description and makes its bytes. */
static int description_close(struct edit_worker *worker)
{
	int error = description_check(&worker->description, &worker->error);
	if (error)
		return result_of(error);
	free(worker->encoded);
	worker->encoded_bytes = description_bytes(&worker->description);
	worker->encoded = malloc(worker->encoded_bytes);
	free(worker->layers);
	worker->layers = calloc(worker->description.layer_count, sizeof(worker->layers[0]));
	if (!worker->encoded || !worker->layers)
		return result_of(line_fail(&worker->error, EDIT_ERROR_SYSTEM, "no memory for the description"));
	description_encode(&worker->description, worker->encoded);
	worker->description_hash = description_hash(worker->encoded, worker->encoded_bytes);
	return EDIT_WORKER_OK;
}

/* What an earlier worker left behind: which layers are torn, and whether its last nonfinite verdicts were told. */
static void layers_look(struct edit_worker *worker)
{
	const struct segment *segment = &worker->segment;
	uint64_t offered_step = atomic_load_explicit(&segment->header->offered_step, memory_order_relaxed);
	for (size_t i = 0; i < segment->layer_count; i++) {
		const struct segment_layer *layer = &segment->layers[i];
		uint64_t ended_step = atomic_load_explicit(&layer->ended_step, memory_order_relaxed);
		worker->layers[i].is_restoring = worker->is_resumed && segment_is_torn(segment, i);
		/* A layer that was stepped after the last offer had been told before. */
		worker->layers[i].told_round = ended_step > offered_step ? atomic_load(&layer->round) : UINT64_MAX;
	}
}

static void step_write(struct edit_worker *worker, double loss, uint64_t tokens);

/* A step whose gradients were handed over counts on all members, so it does here, although its worker died: theta is put right by
 * an average of parameters that the next offer asks for. */
static void step_take_over(struct edit_worker *worker)
{
	struct segment_header *header = worker->segment.header;
	uint64_t handed_step = atomic_load_explicit(&header->handed_step, memory_order_relaxed);
	if (!worker->is_resumed || handed_step <= atomic_load_explicit(&header->step, memory_order_relaxed))
		return;
	atomic_store_explicit(&header->realign, 1, memory_order_relaxed);
	step_write(worker, (double)NAN, 0);
}

/* Waits until the daemon has put a torn layer's anchor into its place. */
static int layer_await_anchor(struct edit_worker *worker, size_t index, uint64_t deadline_us)
{
	const struct segment_layer *layer = &worker->segment.layers[index];
	while (atomic_load_explicit(&layer->owner, memory_order_acquire) != SEGMENT_WORKER) {
		if (link_is_stopped(worker))
			return EDIT_WORKER_STOP;
		int result = link_wait(worker);
		if (result)
			return result;
		if (link_now_us() >= deadline_us) {
			line_fail(&worker->error, EDIT_ERROR_UNREACHABLE, "layer %zu is torn, and the daemon does not restore it",
				  index);
			return EDIT_WORKER_UNREACHABLE;
		}
	}
	return EDIT_WORKER_OK;
}

/* Has every torn layer replaced by its anchor; its inner state, torn too, begins at zero. */
static int layers_restore(struct edit_worker *worker, uint64_t deadline_us)
{
	const struct segment *segment = &worker->segment;
	for (size_t i = 0; i < segment->layer_count; i++)
		if (worker->layers[i].is_restoring)
			atomic_store_explicit(&segment->layers[i].owner, SEGMENT_DAEMON, memory_order_release);
	link_tell(worker);
	for (size_t i = 0; i < segment->layer_count; i++) {
		struct segment_layer *layer = &segment->layers[i];
		if (!worker->layers[i].is_restoring)
			continue;
		int result = layer_await_anchor(worker, i, deadline_us);
		if (result)
			return result;
		if (segment->inner_factor > 0)
			memset(segment_inner(segment, i), 0, segment->inner_factor * segment_layer_size(segment, i) * sizeof(float));
		atomic_store_explicit(&layer->begun_step, atomic_load(&layer->ended_step), memory_order_release);
		worker->layers[i].is_restoring = false;
	}
	return EDIT_WORKER_OK;
}

int edit_worker_attach(struct edit_worker *worker, int timeout_ms)
{
	uint64_t deadline_us = timeout_ms < 0 ? LINK_FOREVER : link_now_us() + (uint64_t)timeout_ms * 1000;
	int result = demand_attached(worker, false);
	if (result)
		return result;
	if (!worker->address.sun_path[0])
		return EDIT_WORKER_INVALID; /* edit_worker_new has told why */
	result = description_close(worker);
	if (!result)
		result = link_open(worker, deadline_us);
	if (result)
		return result;
	worker->is_resumed =
		worker->is_resumed && atomic_load_explicit(&worker->segment.header->initialised, memory_order_acquire);
	worker->is_attached = true;
	layers_look(worker);
	result = mesh_open(worker);
	if (!result)
		result = layers_restore(worker, deadline_us);
	if (result) {
		worker->is_attached = false;
		link_close(worker);
		segment_close(&worker->segment);
		return result;
	}
	worker->boundary_us = link_now_us();
	step_take_over(worker);
	return EDIT_WORKER_OK;
}

int edit_worker_is_resumed(const struct edit_worker *worker)
{
	return worker->is_attached && worker->is_resumed;
}

unsigned edit_worker_rank(const struct edit_worker *worker)
{
	return worker->is_attached ? worker->segment.header->member_rank : 0;
}

unsigned edit_worker_count(const struct edit_worker *worker)
{
	return worker->is_attached ? worker->segment.header->member_count : 1;
}

uint64_t edit_worker_lead(const struct edit_worker *worker)
{
	return worker->is_attached ? atomic_load(&worker->segment.header->lead) : 0;
}

int edit_worker_moved(const struct edit_worker *worker, unsigned *rank, unsigned *count)
{
	if (!worker->is_attached)
		return 0;
	const struct segment_header *header = worker->segment.header;
	uint32_t count_now = atomic_load(&header->member_count), rank_now = atomic_load(&header->member_rank);
	/* They are two words: half of a change is none yet. */
	if (rank_now >= count_now || count_now != atomic_load(&header->member_count) || (rank_now == *rank && count_now == *count))
		return 0;
	*rank = rank_now;
	*count = count_now;
	return 1;
}

uint64_t edit_worker_step(const struct edit_worker *worker)
{
	return worker->is_attached ? atomic_load_explicit(&worker->segment.header->step, memory_order_relaxed) : 0;
}

uint64_t edit_worker_round(const struct edit_worker *worker)
{
	return worker->is_attached ? atomic_load_explicit(&worker->segment.header->round, memory_order_acquire) : 0;
}

uint64_t edit_worker_wait_us(const struct edit_worker *worker)
{
	return worker->is_attached ? atomic_load_explicit(&worker->segment.header->wait_us, memory_order_relaxed) : 0;
}

bool worker_has_layer(const struct edit_worker *worker, unsigned layer)
{
	return worker->is_attached && layer < worker->segment.layer_count;
}

float *edit_worker_theta(struct edit_worker *worker, unsigned layer)
{
	if (!worker_has_layer(worker, layer))
		return NULL;
	return mesh_is_cut(worker) ? mesh_theta(worker, layer) : segment_theta(&worker->segment, layer);
}

float *edit_worker_inner(struct edit_worker *worker, unsigned layer)
{
	return worker_has_layer(worker, layer) ? segment_inner(&worker->segment, layer) : NULL;
}

unsigned edit_worker_shards(const struct edit_worker *worker)
{
	return worker->is_attached ? worker->segment.shards : 1;
}

float *edit_worker_piece(struct edit_worker *worker, unsigned layer, size_t *ret_first, size_t *ret_count)
{
	if (!worker_has_layer(worker, layer))
		return NULL;
	*ret_first = segment_first(&worker->segment, layer);
	*ret_count = segment_layer_size(&worker->segment, layer);
	return segment_theta(&worker->segment, layer);
}

int edit_worker_ready(struct edit_worker *worker)
{
	int result = demand_attached(worker, true);
	if (result || worker->is_ready)
		return result;
	/* Release: who sees the word sees theta. */
	atomic_store_explicit(&worker->segment.header->initialised, 1, memory_order_release);
	worker->is_ready = true;
	link_ring(worker, BELL_READY, 0);
	while (!result && worker->socket < 0) {
		if (link_is_stopped(worker))
			return EDIT_WORKER_STOP;
		result = link_wait(worker);
	}
	worker->boundary_us = link_now_us();
	return result;
}

/* ---- Training ---- */

int worker_await_layer(struct edit_worker *worker, unsigned index)
{
	struct segment_header *header = worker->segment.header;
	const struct segment_layer *layer = &worker->segment.layers[index];
	if (atomic_load_explicit(&layer->owner, memory_order_acquire) == SEGMENT_WORKER)
		return EDIT_WORKER_OK;
	uint64_t begin_us = link_now_us();
	uint64_t before_us = atomic_load_explicit(&header->wait_us, memory_order_relaxed);
	int result = EDIT_WORKER_OK;
	while (!result && atomic_load_explicit(&layer->owner, memory_order_acquire) != SEGMENT_WORKER) {
		uint64_t offers = atomic_load_explicit(&header->offers, memory_order_relaxed);
		if (worker->socket >= 0 && worker->layers[index].wanted_offer != offers) {
			worker->layers[index].wanted_offer = offers;
			link_ring(worker, BELL_WANT, index);
		}
		result = link_is_stopped(worker) ? EDIT_WORKER_STOP : link_wait(worker);
	}
	/* A daemon that stops its worker after the last round publishes first: then the layer is here. */
	if (result == EDIT_WORKER_STOP && atomic_load_explicit(&layer->owner, memory_order_acquire) == SEGMENT_WORKER)
		result = EDIT_WORKER_OK;
	atomic_store_explicit(&header->wait_us, before_us + (link_now_us() - begin_us), memory_order_relaxed);
	return result;
}

bool worker_is_handing(const struct edit_worker *worker)
{
	return atomic_load_explicit(&worker->segment.header->handed_step, memory_order_relaxed) > edit_worker_step(worker);
}

int edit_worker_acquire(struct edit_worker *worker, unsigned layer, uint64_t *ret_nonfinite_round)
{
	if (!worker_has_layer(worker, layer))
		return worker_invalid(worker, worker->is_attached ? "acquire: no such layer" : "not attached yet");
	int result = link_is_stopped(worker) ? EDIT_WORKER_STOP : EDIT_WORKER_OK;
	/* The last one first, so that the daemon hears at once that all are wanted. Not while gradients are handed over: the
	 * backward pass goes on with the layers before. */
	if (atomic_load_explicit(&worker->segment.header->whole, memory_order_acquire) && !worker_is_handing(worker))
		for (unsigned i = (unsigned)worker->segment.layer_count; !result && i-- > 0;)
			result = worker_await_layer(worker, i);
	if (!result)
		result = worker_await_layer(worker, layer);
	if (!result && mesh_is_cut(worker))
		result = mesh_acquire(worker, layer);
	if (result)
		return result;
	const struct segment_layer *words = &worker->segment.layers[layer];
	uint64_t round = atomic_load_explicit(&words->round, memory_order_relaxed);
	uint32_t verdict = atomic_load_explicit(&words->verdict, memory_order_relaxed);
	bool is_news = round != worker->layers[layer].told_round;
	if (ret_nonfinite_round) {
		*ret_nonfinite_round = is_news && verdict == VERDICT_NONFINITE ? round : 0;
		worker->layers[layer].told_round = round;
	}
	return EDIT_WORKER_OK;
}

void edit_worker_release(struct edit_worker *worker, unsigned layer)
{
	if (!worker_has_layer(worker, layer))
		worker->is_misused = true;
	else if (mesh_is_cut(worker))
		mesh_release(worker, layer);
}

void edit_worker_step_begin(struct edit_worker *worker, unsigned layer)
{
	if (!worker_has_layer(worker, layer)) {
		worker->is_misused = true;
		return;
	}
	struct segment_layer *words = &worker->segment.layers[layer];
	if (atomic_load_explicit(&words->owner, memory_order_acquire) != SEGMENT_WORKER)
		worker->is_misused = true;
	uint64_t ended_step = atomic_load_explicit(&words->ended_step, memory_order_relaxed);
	uint64_t step = edit_worker_step(worker) + 1;
	/* After a resume the same step is done again: the words must differ all the same. */
	atomic_store_explicit(&words->begun_step, step != ended_step ? step : UINT64_MAX, memory_order_relaxed);
	/* No store to the layer's numbers comes before the mark. */
	atomic_thread_fence(memory_order_release);
}

void edit_worker_step_end(struct edit_worker *worker, unsigned layer)
{
	if (!worker_has_layer(worker, layer)) {
		worker->is_misused = true;
		return;
	}
	struct segment_layer *words = &worker->segment.layers[layer];
	uint64_t step = edit_worker_step(worker) + 1;
	/* First ended = step, which clears the mark of the usual case; then begun, which clears that of a repeated step. */
	atomic_store_explicit(&words->ended_step, step, memory_order_release);
	atomic_store_explicit(&words->begun_step, step, memory_order_release);
}

/* Hands all layers over. They must all be here: waits for those that were not used in this step. */
static int offer(struct edit_worker *worker, bool is_final)
{
	struct segment_header *header = worker->segment.header;
	for (unsigned i = 0; i < worker->segment.layer_count; i++) {
		int result = worker_await_layer(worker, i);
		if (result)
			return result;
		if (segment_is_torn(&worker->segment, i))
			return worker_invalid(worker, "step_done: a layer's step was begun and not ended");
	}
	atomic_store_explicit(&header->final_step, is_final, memory_order_relaxed);
	atomic_store_explicit(&header->is_averaging, 0, memory_order_relaxed);
	atomic_store_explicit(&header->offered_step, edit_worker_step(worker), memory_order_relaxed);
	/* Release: who sees a layer offered sees its theta and the words above. */
	for (size_t i = 0; i < worker->segment.layer_count; i++)
		atomic_store_explicit(&worker->segment.layers[i].owner, SEGMENT_DAEMON, memory_order_release);
	uint64_t offers = atomic_load_explicit(&header->offers, memory_order_relaxed);
	atomic_store_explicit(&header->offers, offers + 1, memory_order_release);
	link_ring(worker, BELL_OFFER, 0);
	return EDIT_WORKER_OK;
}

/* Every layer is with the worker. */
static bool has_all_layers(const struct edit_worker *worker)
{
	for (size_t i = 0; i < worker->segment.layer_count; i++)
		if (atomic_load_explicit(&worker->segment.layers[i].owner, memory_order_acquire) != SEGMENT_WORKER)
			return false;
	return true;
}

/* The round that no step will follow: offers, unless a worker before this one has, and waits until it is complete. */
static int end_with_a_round(struct edit_worker *worker)
{
	int result = has_all_layers(worker) ? offer(worker, true) : EDIT_WORKER_OK;
	for (unsigned i = 0; !result && i < worker->segment.layer_count; i++)
		result = worker_await_layer(worker, i);
	worker->has_ended = !result;
	return result;
}

/* ---- Steps ---- */

/* Writes the step into the table, then makes it count. */
static void step_write(struct edit_worker *worker, double loss, uint64_t tokens)
{
	struct segment_header *header = worker->segment.header;
	uint64_t now_us = link_now_us(), step = edit_worker_step(worker);
	worker->segment.steps[step % SEGMENT_STEP_COUNT] = (struct segment_step){
		.step = step, .tokens = tokens, .step_us = now_us - worker->boundary_us, .loss = loss};
	worker->boundary_us = now_us;
	uint64_t tokens_before = atomic_load_explicit(&header->tokens, memory_order_relaxed);
	atomic_store_explicit(&header->tokens, tokens_before + tokens, memory_order_relaxed);
	/* Release: who sees the step sees its entry. */
	atomic_store_explicit(&header->step, step + 1, memory_order_release);
}

static bool offer_is_due(const struct segment_header *header, uint64_t step)
{
	uint64_t offer_step = atomic_load_explicit(&header->offer_step, memory_order_acquire);
	return step >= offer_step && offer_step > atomic_load_explicit(&header->offered_step, memory_order_relaxed);
}

/* Of a mesh: also settles whether all nodes of the replica offer at the end of this step. */
static int sum_over_replica(struct edit_worker *worker, double value, double *ret_sum)
{
	return mesh_sum(worker, value, offer_is_due(worker->segment.header, edit_worker_step(worker) + 1), ret_sum);
}

int edit_worker_sum(struct edit_worker *worker, double value, double *ret_sum)
{
	int result = demand_attached(worker, true);
	if (result)
		return result;
	if (mesh_is_cut(worker))
		return sum_over_replica(worker, value, ret_sum);
	*ret_sum = value;
	return EDIT_WORKER_OK;
}

/* Of a mesh: all nodes of the replica offer, or none. */
static int settle_offer(struct edit_worker *worker, bool *ret_is_due)
{
	double sum;
	int result = EDIT_WORKER_OK;
	if (!worker->has_summed)
		result = sum_over_replica(worker, 0, &sum);
	*ret_is_due = worker->wants_offer;
	mesh_end_step(worker);
	return result;
}

/* Waits while training is paused; EDIT_WORKER_STOP if it shall end meanwhile. */
static int hold(struct edit_worker *worker)
{
	int result = EDIT_WORKER_OK;
	while (!result && atomic_load_explicit(&worker->segment.header->paused, memory_order_acquire))
		result = link_is_stopped(worker) ? EDIT_WORKER_STOP : link_wait(worker);
	return result;
}

int edit_worker_step_done(struct edit_worker *worker, double loss, uint64_t tokens, int is_final)
{
	int result = demand_attached(worker, true);
	if (result)
		return result;
	if (worker->is_misused)
		return worker_invalid(worker, "step_begin, step_end or release: no such layer, or one that is on the ring");
	struct segment_header *header = worker->segment.header;
	/* The daemon has read it with the gradients of this step. */
	if (worker_is_handing(worker))
		atomic_store_explicit(&header->realign, 0, memory_order_relaxed);
	bool is_due = false;
	if (mesh_is_cut(worker))
		result = settle_offer(worker, &is_due);
	if (result)
		return result;
	step_write(worker, loss, tokens);
	result = link_poll(worker);
	/* Before anything is offered: a member that paused one step earlier has nothing to offer, and a worker that holds
	 * after its offer wants no layer, so the round would not end before the pause does. */
	if (!result)
		result = hold(worker);
	if (!result && is_final)
		return end_with_a_round(worker);
	if (!mesh_is_cut(worker))
		is_due = offer_is_due(header, edit_worker_step(worker));
	if (!result && is_due)
		result = offer(worker, false);
	if (!result)
		result = hold(worker);
	if (!result && link_is_stopped(worker))
		result = EDIT_WORKER_STOP;
	return result;
}

int edit_worker_finish(struct edit_worker *worker)
{
	int result = demand_attached(worker, true);
	if (result)
		return result;
	result = link_poll(worker);
	if (!result && !worker->has_ended && !link_is_stopped(worker))
		result = end_with_a_round(worker);
	if (result < 0)
		return result;
	worker->is_finished = true;
	link_ring(worker, BELL_FINISHED, 0);
	return worker->socket >= 0 ? EDIT_WORKER_OK : EDIT_WORKER_UNREACHABLE;
}

void edit_worker_interrupt(struct edit_worker *worker)
{
	atomic_store_explicit(&worker->interrupted, 1, memory_order_relaxed);
}

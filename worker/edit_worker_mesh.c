/* Gathering layers and handing out gradients through the segment's slots. */

#include <stdlib.h>
#include <string.h>

#include "core/event.h"
#include "worker/edit_worker_mesh.h"

enum { SEQUENCE_FIRST = 64 };

int mesh_open(struct edit_worker *worker)
{
	worker->sequence_room = SEQUENCE_FIRST;
	worker->sequence = calloc(worker->sequence_room, sizeof(*worker->sequence));
	worker->recorded = calloc(worker->sequence_room, sizeof(*worker->recorded));
	worker->gradient_step = calloc(worker->segment.layer_count, sizeof(*worker->gradient_step));
	if (worker->sequence && worker->recorded && worker->gradient_step)
		return EDIT_WORKER_OK;
	line_fail(&worker->error, EDIT_ERROR_SYSTEM, "no memory for the layers of a mesh");
	return EDIT_WORKER_SYSTEM;
}

void mesh_close(struct edit_worker *worker)
{
	free(worker->sequence);
	free(worker->recorded);
	free(worker->gradient_step);
}

/* ---- Waiting ---- */

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

/* Waits until a word of the daemon holds this number; the time is added to *waited_us if that is given. */
static int await(struct edit_worker *worker, const _Atomic uint64_t *word, uint64_t number, _Atomic uint64_t *waited_us)
{
	if (load(word) == number)
		return EDIT_WORKER_OK;
	uint64_t begin_us = link_now_us(), before_us = waited_us ? atomic_load_explicit(waited_us, memory_order_relaxed) : 0;
	int result = EDIT_WORKER_OK;
	while (!result && load(word) != number)
		result = link_is_stopped(worker) ? EDIT_WORKER_STOP : link_wait(worker);
	if (waited_us)
		atomic_store_explicit(waited_us, before_us + (link_now_us() - begin_us), memory_order_relaxed);
	return result;
}

/* ---- Calls ---- */

static struct segment_call *call_of(const struct edit_worker *worker, uint64_t number)
{
	return &worker->segment.header->calls[number % SEGMENT_CALL_COUNT];
}

static int await_call(struct edit_worker *worker, uint64_t number, _Atomic uint64_t *waited_us)
{
	return await(worker, &call_of(worker, number)->done, number, waited_us);
}

/* Asks for a collective in a slot that is free. */
static void ask(struct edit_worker *worker, enum collective_kind kind, unsigned layer, unsigned slot)
{
	struct segment_call *call = call_of(worker, ++worker->calls);
	worker->slots[slot] = (struct edit_worker_slot){.call = worker->calls, .layer = layer};
	call->kind = kind;
	call->layer_index = layer;
	call->slot = slot;
	/* Release: who sees the number sees the words above, and the gradient. */
	atomic_store_explicit(&call->asked, worker->calls, memory_order_release);
	link_ring(worker, BELL_CALL, 0);
}

/* ---- Theta ---- */

static struct edit_worker_slot *theta_slot(struct edit_worker *worker, unsigned layer, bool is_held)
{
	for (unsigned i = 0; i < SEGMENT_THETA_SLOTS; i++) {
		struct edit_worker_slot *slot = &worker->slots[i];
		if (slot->call != 0 && slot->layer == layer && slot->is_held == is_held)
			return slot;
	}
	return NULL;
}

/* A slot for another layer, SEGMENT_THETA_SLOTS if there is none. */
static unsigned free_slot(const struct edit_worker *worker)
{
	unsigned slot = 0;
	while (slot < SEGMENT_THETA_SLOTS && worker->slots[slot].call != 0)
		slot++;
	return slot;
}

/* Gives up layers that were gathered ahead and are not what came next. */
static int drop_ahead(struct edit_worker *worker)
{
	int result = EDIT_WORKER_OK;
	for (unsigned i = 0; i < SEGMENT_THETA_SLOTS && !result; i++) {
		struct edit_worker_slot *slot = &worker->slots[i];
		if (slot->call == 0 || slot->is_held)
			continue;
		result = await_call(worker, slot->call, NULL);
		slot->call = 0;
	}
	return result;
}

/* Notes the order of layers, which is that of the next step too. */
static int record(struct edit_worker *worker, unsigned layer)
{
	if (worker->recorded_count == worker->sequence_room) {
		size_t room = 2 * worker->sequence_room;
		unsigned *sequence = realloc(worker->sequence, room * sizeof(*sequence));
		if (sequence)
			worker->sequence = sequence;
		unsigned *recorded = realloc(worker->recorded, room * sizeof(*recorded));
		if (recorded)
			worker->recorded = recorded;
		if (!sequence || !recorded) {
			line_fail(&worker->error, EDIT_ERROR_SYSTEM, "no memory for the layers of a mesh");
			return EDIT_WORKER_SYSTEM;
		}
		worker->sequence_room = room;
	}
	worker->recorded[worker->recorded_count++] = layer;
	return EDIT_WORKER_OK;
}

/* Asks for the layer that came next in the last step. A layer that is on the ring is asked for when it is acquired: until then
 * nothing else is asked for, so the order stays the same everywhere. */
static void look_ahead(struct edit_worker *worker)
{
	if (!worker->segment.header->looks_ahead || worker->recorded_count >= worker->sequence_count)
		return;
	unsigned next = worker->sequence[worker->recorded_count], slot = free_slot(worker);
	bool is_here = atomic_load_explicit(&worker->segment.layers[next].owner, memory_order_acquire) == SEGMENT_WORKER;
	if (is_here && slot < SEGMENT_THETA_SLOTS && !theta_slot(worker, next, false) && !theta_slot(worker, next, true))
		ask(worker, COLLECTIVE_GATHER, next, slot);
}

int mesh_acquire(struct edit_worker *worker, unsigned layer)
{
	int result = EDIT_WORKER_OK;
	if (theta_slot(worker, layer, true)) {
		line_fail(&worker->error, EDIT_ERROR_INVALID, "acquire: layer %u is acquired and not released", layer);
		return EDIT_WORKER_INVALID;
	}
	struct edit_worker_slot *slot = theta_slot(worker, layer, false);
	if (!slot && free_slot(worker) == SEGMENT_THETA_SLOTS)
		result = drop_ahead(worker);
	if (!result && !slot) {
		unsigned index = free_slot(worker);
		if (index == SEGMENT_THETA_SLOTS) {
			line_fail(&worker->error, EDIT_ERROR_INVALID, "acquire: %d layers are acquired and not released",
				  (int)SEGMENT_THETA_SLOTS);
			return EDIT_WORKER_INVALID;
		}
		ask(worker, COLLECTIVE_GATHER, layer, index);
		slot = &worker->slots[index];
	}
	if (!result)
		result = record(worker, layer);
	if (result)
		return result;
	slot->is_held = true;
	look_ahead(worker);
	return await_call(worker, slot->call, &worker->segment.header->gather_us);
}

void mesh_release(struct edit_worker *worker, unsigned layer)
{
	struct edit_worker_slot *slot = theta_slot(worker, layer, true);
	if (slot)
		*slot = (struct edit_worker_slot){0};
	else
		worker->is_misused = true;
}

float *mesh_theta(struct edit_worker *worker, unsigned layer)
{
	const struct edit_worker_slot *slot = theta_slot(worker, layer, true);
	return slot ? segment_slot(&worker->segment, (size_t)(slot - worker->slots)) : NULL;
}

/* ---- Gradients ---- */

int mesh_await_gradients(struct edit_worker *worker)
{
	struct edit_worker_slot *slot = &worker->slots[SEGMENT_GRADIENT_SLOT];
	if (slot->call == 0)
		return EDIT_WORKER_OK;
	int result = await_call(worker, slot->call, NULL);
	if (result)
		return result;
	const struct segment *segment = &worker->segment;
	const float *mean = segment_slot(segment, SEGMENT_GRADIENT_SLOT) + segment_first(segment, slot->layer);
	float *piece = segment_gradient(segment, slot->layer);
	size_t count = segment_layer_size(segment, slot->layer);
	uint64_t step = edit_worker_step(worker) + 1;
	bool is_first = worker->gradient_step[slot->layer] != step;
	for (size_t i = 0; i < count; i++)
		piece[i] = is_first ? mean[i] : piece[i] + mean[i];
	worker->gradient_step[slot->layer] = step;
	slot->call = 0;
	return EDIT_WORKER_OK;
}

int mesh_offer_gradient(struct edit_worker *worker, unsigned layer, const float *gradient)
{
	int result = mesh_await_gradients(worker);
	if (result)
		return result;
	size_t size = segment_whole_size(&worker->segment, layer);
	if (size > 0)
		memcpy(segment_slot(&worker->segment, SEGMENT_GRADIENT_SLOT), gradient, size * sizeof(float));
	ask(worker, COLLECTIVE_REDUCE, layer, SEGMENT_GRADIENT_SLOT);
	return link_poll(worker);
}

/* ---- Steps ---- */

int mesh_sum(struct edit_worker *worker, double value, bool wants_offer, double *ret_sum)
{
	struct segment_header *header = worker->segment.header;
	uint64_t number = atomic_load_explicit(&header->sums, memory_order_relaxed) + 1;
	header->sum_part = value;
	header->sum_part_wants_offer = wants_offer;
	atomic_store_explicit(&header->sums, number, memory_order_release);
	link_ring(worker, BELL_CALL, 0);
	int result = await(worker, &header->summed, number, NULL);
	if (result)
		return result;
	*ret_sum = header->sum;
	worker->wants_offer = header->sum_wants_offer != 0;
	worker->has_summed = true;
	return EDIT_WORKER_OK;
}

void mesh_end_step(struct edit_worker *worker)
{
	unsigned *before = worker->sequence;
	worker->sequence = worker->recorded;
	worker->sequence_count = worker->recorded_count;
	worker->recorded = before;
	worker->recorded_count = 0;
	worker->has_means = worker->has_summed = false;
}

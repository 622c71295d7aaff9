/* The calls of libedit-worker that hand over gradients: to the ring, or to the other nodes of a replica. */

#include <math.h>
#include <string.h>

#include "worker/edit_worker_link.h"
#include "worker/edit_worker_mesh.h"

/* Whether the gradients of the next step are averaged over the ring. */
static bool is_averaging(const struct edit_worker *worker)
{
	return atomic_load_explicit(&worker->segment.header->gradients, memory_order_acquire) != 0;
}

int edit_worker_averages_gradients(const struct edit_worker *worker)
{
	return worker->is_attached && (mesh_is_cut(worker) || is_averaging(worker));
}

uint64_t edit_worker_inner_step(const struct edit_worker *worker)
{
	return worker->is_attached ? atomic_load_explicit(&worker->segment.header->inner_step, memory_order_relaxed) : 0;
}

/* Members step alike only from equal inner states. A worker that dies here leaves is_averaging as it was, and the next does it
 * again. */
static void inner_begin_anew(struct edit_worker *worker)
{
	struct segment_header *header = worker->segment.header;
	if (atomic_load_explicit(&header->is_averaging, memory_order_relaxed))
		return;
	for (size_t i = 0; i < worker->segment.layer_count && worker->segment.inner_factor > 0; i++)
		memset(segment_inner(&worker->segment, i), 0,
		       worker->segment.inner_factor * segment_layer_size(&worker->segment, i) * sizeof(float));
	atomic_store_explicit(&header->inner_step, edit_worker_step(worker), memory_order_relaxed);
	atomic_store_explicit(&header->is_averaging, 1, memory_order_release);
}

/* The gradient in the segment goes to the ring. */
static void hand_over(struct edit_worker *worker, unsigned layer, bool is_final)
{
	struct segment_header *header = worker->segment.header;
	if (!worker_is_handing(worker)) {
		inner_begin_anew(worker);
		atomic_store_explicit(&header->final_step, is_final, memory_order_relaxed);
		uint64_t offers = atomic_load_explicit(&header->offers, memory_order_relaxed);
		atomic_store_explicit(&header->offers, offers + 1, memory_order_relaxed);
		atomic_store_explicit(&header->handed_step, edit_worker_step(worker) + 1, memory_order_release);
	}
	/* Release: who sees the layer handed over sees its gradient and the words above. */
	atomic_store_explicit(&worker->segment.layers[layer].owner, SEGMENT_DAEMON, memory_order_release);
	link_ring(worker, BELL_GRADIENT, 0);
}

int edit_worker_offer_gradient(struct edit_worker *worker, unsigned layer, const float *gradient, int is_final)
{
	if (!worker_has_layer(worker, layer))
		return worker_invalid(worker, worker->is_attached ? "offer_gradient: no such layer" : "not attached yet");
	size_t size = segment_layer_size(&worker->segment, layer);
	if (atomic_load_explicit(&worker->segment.layers[layer].owner, memory_order_acquire) != SEGMENT_WORKER)
		return worker_invalid(worker, "offer_gradient: the layer is on the ring");
	worker->is_final = is_final != 0;
	if (mesh_is_cut(worker))
		return mesh_offer_gradient(worker, layer, gradient);
	if (size > 0)
		memcpy(segment_gradient(&worker->segment, layer), gradient, size * sizeof(float));
	hand_over(worker, layer, worker->is_final);
	return link_poll(worker);
}

/* Of a mesh: all passes of the step are done. Their mean over the replica is whole, and goes to the ring if the ring averages. */
static int end_passes(struct edit_worker *worker)
{
	int result = mesh_await_gradients(worker);
	worker->has_means = !result;
	for (unsigned i = (unsigned)worker->segment.layer_count; !result && is_averaging(worker) && i-- > 0;)
		hand_over(worker, i, worker->is_final);
	return result;
}

int edit_worker_mean_gradient(struct edit_worker *worker, unsigned layer, float *gradient)
{
	if (!worker_has_layer(worker, layer))
		return worker_invalid(worker, worker->is_attached ? "mean_gradient: no such layer" : "not attached yet");
	int result = mesh_is_cut(worker) && !worker->has_means ? end_passes(worker) : EDIT_WORKER_OK;
	if (!result)
		result = worker_await_layer(worker, layer);
	if (result)
		return result;
	const struct segment_layer *words = &worker->segment.layers[layer];
	size_t size = segment_layer_size(&worker->segment, layer);
	bool is_usable = !worker_is_handing(worker) ||
			 atomic_load_explicit(&words->verdict, memory_order_relaxed) != VERDICT_NONFINITE;
	if (worker_is_handing(worker))
		worker->layers[layer].told_round = atomic_load_explicit(&words->round, memory_order_relaxed);
	if (!gradient)
		gradient = segment_gradient(&worker->segment, layer);
	else if (size > 0)
		memcpy(gradient, segment_gradient(&worker->segment, layer), size * sizeof(float));
	if (size > 0 && !is_usable)
		gradient[0] = NAN;
	return EDIT_WORKER_OK;
}

float *edit_worker_gradient(struct edit_worker *worker, unsigned layer)
{
	return worker_has_layer(worker, layer) ? segment_gradient(&worker->segment, layer) : NULL;
}

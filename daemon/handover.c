/* What the worker hands over, as events. Reads its words in the segment; the node decides what becomes of it. */

#include "daemon/handover.h"

#include <string.h>

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

/* ---- Theta and gradients ---- */

static bool all_offered(const struct segment *segment)
{
	for (size_t i = 0; i < segment->layer_count; i++)
		if (atomic_load_explicit(&segment->layers[i].owner, memory_order_acquire) != SEGMENT_DAEMON)
			return false;
	return true;
}

/* Layers of the last offer of all, with which a worker does nothing any more: those that are back count as handed over again. */
static void take_back(struct segment *segment)
{
	for (size_t i = 0; i < segment->layer_count; i++)
		atomic_store_explicit(&segment->layers[i].owner, SEGMENT_DAEMON, memory_order_release);
}

/* A worker died while it handed layers over, or a daemon while it gave them back: the worker gets them all and offers at its next step. */
static void void_offer(struct driver *driver, uint64_t step_now)
{
	struct segment *segment = &driver->run->segment;
	for (size_t i = 0; i < segment->layer_count; i++)
		if (!segment_is_torn(segment, i))
			atomic_store_explicit(&segment->layers[i].owner, SEGMENT_WORKER, memory_order_release);
	atomic_store(&segment->header->offer_step, step_now + 1);
	worker_port_ring(driver->port);
}

/* Sums up what the worker has done in the steps below step_now, since the last offer. */
static void take_offer(struct driver *driver, uint64_t step_now, struct event *event)
{
	const struct segment_header *header = driver->run->segment.header;
	uint64_t tokens = load(&header->tokens), wait_us = load(&header->wait_us), summed = 0;
	event->kind = EVENT_OFFER;
	event->offer.step = step_now + load(&header->lead);
	event->offer.steps = step_now - driver->offer.step;
	event->offer.tokens = tokens > driver->offer.tokens ? tokens - driver->offer.tokens : 0;
	event->offer.exposed_us = wait_us > driver->offer.wait_us ? wait_us - driver->offer.wait_us : 0;
	segment_sum_steps(&driver->run->segment, driver->offer.step, step_now, &summed, &event->offer.loss);
	event->offer.final = atomic_load(&header->final_step) != 0;
	/* Now the round before is told in full. */
	if (driver->line.at_us != UINT64_MAX)
		driver_tell(driver);
	if (event->offer.steps > 0)
		driver->loss = event->offer.loss;
	driver->exposed_us = event->offer.exposed_us;
	driver->is_offer_open = true;
	driver->offer_before = driver->offer;
	driver->offer.step = step_now;
	driver->offer.tokens = tokens;
	driver->offer.wait_us = wait_us;
}

/* A gradient of a step whose begin an earlier daemon has heard of. No member takes that step. */
static void refuse_gradient(struct driver *driver, size_t layer_index)
{
	struct segment_layer *words = &driver->run->segment.layers[layer_index];
	atomic_store_explicit(&words->verdict, VERDICT_NONFINITE, memory_order_relaxed);
	atomic_store_explicit(&words->owner, SEGMENT_WORKER, memory_order_release);
	driver->must_ring = true;
}

/* The node gets the gradients that the worker has handed over; if it has died, the others are told as absent. */
static void take_gradients(struct driver *driver, bool is_dead, uint64_t now_us)
{
	struct segment *segment = &driver->run->segment;
	for (size_t i = segment->layer_count; i-- > 0;) {
		bool is_here = atomic_load_explicit(&segment->layers[i].owner, memory_order_acquire) == SEGMENT_DAEMON;
		if (!driver->is_handing) {
			if (is_here) {
				refuse_gradient(driver, i);
				driver->taken_handed = load(&segment->header->handed_step); /* as a whole */
			}
			continue;
		}
		if (driver->handed[i] || (!is_here && !is_dead))
			continue;
		driver->handed[i] = true;
		struct event event = {.kind = EVENT_GRADIENT};
		event.gradient.layer_index = (uint32_t)i;
		event.gradient.absent = !is_here;
		driver_take(driver, &event, now_us);
	}
	driver_ring(driver);
}

/* A step whose gradients the worker hands over. */
static void offer_gradients(struct driver *driver, uint64_t now_us)
{
	const struct segment_header *header = driver->run->segment.header;
	uint64_t handed_step = load(&header->handed_step);
	if (handed_step > driver->taken_handed && atomic_load(&header->gradients) != 0) {
		struct event event = {0};
		take_offer(driver, handed_step - 1, &event);
		event.offer.gradients = true;
		event.offer.realign = atomic_load(&header->realign) != 0;
		driver->taken_handed = handed_step;
		driver->is_handing = true;
		memset(driver->handed, 0, driver->run->segment.layer_count * sizeof *driver->handed);
		driver_take(driver, &event, now_us);
	}
	take_gradients(driver, false, now_us);
}

/* The worker is among the gradients of a step that it has announced and not done. */
static bool is_among_gradients(const struct driver *driver)
{
	const struct segment_header *header = driver->run->segment.header;
	return load(&header->handed_step) > load(&header->step);
}

void handover_gradients(struct driver *driver, uint64_t now_us)
{
	if (driver->node && is_among_gradients(driver))
		offer_gradients(driver, now_us);
}

void handover_lose_worker(struct driver *driver, uint64_t now_us)
{
	/* It may have died between its words and the bell: a step that it has announced counts for its successor. */
	handover_gradients(driver, now_us);
	if (driver->node && driver->is_handing)
		take_gradients(driver, true, now_us);
}

void handover_offer(struct driver *driver, uint64_t now_us)
{
	if (!driver->node)
		return;
	if (is_among_gradients(driver)) {
		offer_gradients(driver, now_us);
		return;
	}
	struct segment *segment = &driver->run->segment;
	uint64_t step_now = load(&segment->header->offered_step);
	if (step_now <= driver->taken_step)
		return;
	const bool is_last = atomic_load(&segment->header->final_step) != 0;
	if (!all_offered(segment) && !is_last) {
		void_offer(driver, step_now);
		return;
	}
	if (is_last)
		take_back(segment);
	struct event event = {0};
	take_offer(driver, step_now, &event);
	driver->taken_step = step_now;
	driver_take(driver, &event, now_us);
}

void handover_want(struct driver *driver, uint64_t layer_index, uint64_t now_us)
{
	if (!driver->node || layer_index >= driver->run->segment.layer_count)
		return;
	struct event event = {.kind = EVENT_WANT, .wanted = (uint32_t)layer_index};
	driver_take(driver, &event, now_us);
}

/* ---- Collectives ---- */

/* A call as the worker has written it, each word read once. False: it makes no sense. */
static bool read_call(const struct segment *segment, const struct segment_call *words, struct collective_call *ret_call)
{
	uint32_t kind = *(const volatile uint32_t *)&words->kind, slot = *(const volatile uint32_t *)&words->slot;
	uint32_t layer_index = *(const volatile uint32_t *)&words->layer_index;
	if ((kind != COLLECTIVE_GATHER && kind != COLLECTIVE_REDUCE) || slot >= SEGMENT_SLOT_COUNT ||
	    layer_index >= segment->layer_count)
		return false;
	*ret_call = (struct collective_call){.kind = (enum collective_kind)kind, .layer_index = layer_index,
					     .numbers = segment_slot(segment, slot),
					     .size = segment_whole_size(segment, layer_index)};
	return true;
}

static void take_sum(struct driver *driver, uint64_t now_us)
{
	const struct segment_header *header = driver->run->segment.header;
	if (load(&header->sums) != driver->sums + 1 || load(&header->summed) != driver->sums)
		return;
	driver->sums++;
	struct event event = {.kind = EVENT_SUM};
	event.sum.value = *(const volatile double *)&header->sum_part;
	event.sum.wants_offer = *(const volatile uint32_t *)&header->sum_part_wants_offer != 0;
	driver_take(driver, &event, now_us);
}

void handover_calls(struct driver *driver, uint64_t now_us)
{
	struct segment *segment = &driver->run->segment;
	if (!driver->node || segment->shards == 1)
		return;
	struct event event = {.kind = EVENT_COLLECT};
	for (;;) {
		const struct segment_call *words = &segment->header->calls[(driver->calls + 1) % SEGMENT_CALL_COUNT];
		if (load(&words->asked) != driver->calls + 1 || !read_call(segment, words, &event.collective) ||
		    !node_can_collect(driver->node))
			break;
		driver->calls++;
		driver_take(driver, &event, now_us);
	}
	take_sum(driver, now_us);
	driver_ring(driver);
}

void handover_result(struct segment_header *header, const struct action *action)
{
	if (action->kind == ACTION_COLLECTED) {
		struct segment_call *words = &header->calls[action->number % SEGMENT_CALL_COUNT];
		atomic_store_explicit(&words->done, action->number, memory_order_release);
		return;
	}
	header->sum = action->value;
	header->sum_wants_offer = action->wants_offer;
	atomic_store_explicit(&header->summed, action->number, memory_order_release);
}

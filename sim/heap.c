/* Binary heap of (time, sequence). */

#include <stdlib.h>

#include "sim/heap.h"

static bool is_before(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->time_us != b->time_us ? a->time_us < b->time_us : a->sequence < b->sequence;
}

void heap_push(struct heap *heap, struct heap_entry entry)
{
	if (heap->count == heap->capacity) {
		heap->capacity = size_max(256, 2 * heap->capacity);
		heap->list = realloc(heap->list, heap->capacity * sizeof *heap->list);
		CHECK(heap->list != NULL);
	}
	entry.sequence = heap->sequence++;
	size_t at = heap->count++;
	while (at > 0 && is_before(&entry, &heap->list[(at - 1) / 2])) {
		heap->list[at] = heap->list[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->list[at] = entry;
}

void heap_arm(struct heap *heap, uint64_t *earliest_us, uint64_t now_us, struct heap_entry entry)
{
	if (entry.time_us >= *earliest_us)
		return;
	*earliest_us = entry.time_us = u64_max(entry.time_us, now_us);
	heap_push(heap, entry);
}

bool heap_keeps(const struct heap_entry *entry, uint64_t *earliest_us)
{
	if (entry->time_us != *earliest_us)
		return false;
	*earliest_us = UINT64_MAX;
	return true;
}

bool heap_pop(struct heap *heap, struct heap_entry *ret_entry)
{
	if (heap->count == 0)
		return false;
	*ret_entry = heap->list[0];
	struct heap_entry last = heap->list[--heap->count];
	size_t at = 0;
	for (size_t child = 1; child < heap->count; child = 2 * at + 1) {
		if (child + 1 < heap->count && is_before(&heap->list[child + 1], &heap->list[child]))
			child++;
		if (!is_before(&heap->list[child], &last))
			break;
		heap->list[at] = heap->list[child];
		at = child;
	}
	heap->list[at] = last;
	return true;
}

void heap_fini(struct heap *heap)
{
	free(heap->list);
	*heap = (struct heap){0};
}

#ifndef EDIT_SIM_HEAP_H
#define EDIT_SIM_HEAP_H

/* What is going to happen, soonest first; of two things at one time the one that was put in first. Owns its entries, not what
 * their data points to. */

#include "core/base.h"

struct heap_entry {
	uint64_t time_us;
	uint64_t sequence; /* set by heap_push */
	int kind;          /* the rest is of the world */
	uint32_t rank, item, life;
	uint64_t number;
	void *data;
};

struct heap {
	struct heap_entry *list;
	size_t count, capacity;
	uint64_t sequence;
};

/* Puts an entry in. Ends the program if memory is short. An all-zero heap is empty. */
void heap_push(struct heap *heap, struct heap_entry entry);
/* Puts an entry in for whatever has at most one appointment that counts, at *earliest_us (UINT64_MAX: none), unless there is one as
 * early; not before now_us. The one it replaces stays in, and heap_keeps is false for it. */
void heap_arm(struct heap *heap, uint64_t *earliest_us, uint64_t now_us, struct heap_entry entry);
/* Whether an entry taken out is the appointment that counts; then there is none any more. */
bool heap_keeps(const struct heap_entry *entry, uint64_t *earliest_us);
/* Takes the first entry out; false if there is none. */
bool heap_pop(struct heap *heap, struct heap_entry *ret_entry);
/* Releases the heap's memory. */
void heap_fini(struct heap *heap);

#endif

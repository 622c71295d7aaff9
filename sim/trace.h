#ifndef EDIT_SIM_TRACE_H
#define EDIT_SIM_TRACE_H

/* What happened lately, for the person who looks for a fault: the last events and actions, as numbers until they are printed. */

#include <stdio.h>

#include "core/event.h"

enum { TRACE_KEEP = 96 };

struct trace_entry {
	uint64_t now_us;
	uint32_t rank;
	bool is_action;
	struct event event;     /* its message pointer is not followed */
	struct message message; /* of the event; pointers inside are not followed */
	struct action action;
};

struct trace {
	FILE *live;     /* every line as it happens; NULL: none */
	uint64_t count; /* entries so far; the last TRACE_KEEP are kept */
	struct trace_entry entries[TRACE_KEEP];
};

/* Writes down an event, or one of its actions, of member rank. */
void trace_event(struct trace *trace, uint32_t rank, const struct event *event);
void trace_action(struct trace *trace, uint32_t rank, uint64_t now_us, const struct action *action);
/* Prints what is kept, oldest first. */
void trace_print(const struct trace *trace, FILE *file);

#endif

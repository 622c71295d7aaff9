#ifndef EDIT_DAEMON_LEASE_H
#define EDIT_DAEMON_LEASE_H

/* How many frames on their way out still read somebody's memory. Payloads are sent without a copy, and ZeroMQ reads them in a
 * thread of its own, also for a while after a socket was closed: whoever lent the memory (and the lease) keeps both until it
 * is free. */

#include <stdatomic.h>

#include "core/base.h"

struct lease {
	_Atomic uint64_t frames; /* counted up by who sends, down by any thread of ZeroMQ */
};

/* No frame reads the memory any more. Stays so as long as nothing is sent on this lease. */
static inline bool lease_is_free(const struct lease *lease)
{
	return atomic_load_explicit(&lease->frames, memory_order_acquire) == 0;
}

static inline void lease_take(struct lease *lease)
{
	atomic_fetch_add_explicit(&lease->frames, 1, memory_order_relaxed);
}

static inline void lease_return(struct lease *lease)
{
	atomic_fetch_sub_explicit(&lease->frames, 1, memory_order_release);
}

#endif

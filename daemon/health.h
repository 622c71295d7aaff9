#ifndef EDIT_DAEMON_HEALTH_H
#define EDIT_DAEMON_HEALTH_H

/* What goes wrong around a daemon rather than in it: its files deleted under it, its descriptors used up by others.
 * Looked at once a second; told in the log when it begins and when it ends, and in `status` while it lasts. */

#include <stdbool.h>

#include "core/base.h"
#include "daemon/config.h"
#include "daemon/lock.h"
#include "daemon/transport.h"

struct control;

struct health {
	char lost[LINE_BYTES];    /* what of the runtime directory is gone; empty: nothing */
	char keys[LINE_BYTES];    /* the first neighbour that is out of reach for its key or ours; empty: none */
	char crowded[LINE_BYTES]; /* connections are being refused; empty: none lately */
	uint64_t refused;         /* by the gate, when it was last looked at */
	uint64_t refused_us;      /* when that last grew */
};

/* Looks at everything. has_run: there are files of a run in the runtime directory. While connections are refused it
 * has those of strangers ended, but not those of tools that have asked something. Never fails. */
void health_tick(struct health *health, const struct config *config, const struct lock *lock, bool has_run,
		 struct transport *transport, const struct control *control, uint64_t now_us);

#endif

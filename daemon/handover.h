#ifndef EDIT_DAEMON_HANDOVER_H
#define EDIT_DAEMON_HANDOVER_H

/* From the worker's words in the segment to the node's events: offers of theta, gradients, and what a dead worker owes.
 * Owns nothing; before there is a node nothing happens. */

#include "daemon/driver.h"

/* The worker may have offered: takes the offer if all layers are the daemon's and it is a new one, and the gradients that it has
 * handed over. An offer that a dead worker has left half done is given back. */
void handover_offer(struct driver *driver, uint64_t now_us);
/* The worker has handed over a gradient: takes those that are there. Never touches an offer of theta, which the worker may be
 * about to make when a late bell is read. */
void handover_gradients(struct driver *driver, uint64_t now_us);
/* The worker has died: gradients of a step that it has announced and that it has not handed over will not come. */
void handover_lose_worker(struct driver *driver, uint64_t now_us);
/* Of a mesh: the worker may have asked for collectives and sums. What it asks for that cannot be is passed over. */
void handover_calls(struct driver *driver, uint64_t now_us);
/* Of a mesh: ACTION_COLLECTED and ACTION_SUMMED for the worker. */
void handover_result(struct segment_header *header, const struct action *action);
/* The worker waits for a layer (an index from outside). */
void handover_want(struct driver *driver, uint64_t layer_index, uint64_t now_us);

#endif

#ifndef EDIT_WORKER_EDIT_WORKER_MESH_H
#define EDIT_WORKER_EDIT_WORKER_MESH_H

/* libedit-worker where a replica is cut over several nodes: whole layers come and go through the slots of the segment, in
 * collectives that all nodes of the replica ask for in the same order. They do because all run the same program: what is
 * asked for here depends on the calls alone, never on time. Functions return as those of edit_worker.h. */

#include "worker/edit_worker_link.h"

/* Memory for an attached worker. */
int mesh_open(struct edit_worker *worker);
void mesh_close(struct edit_worker *worker);

/* The layer's own piece is here: gathers the whole, and asks for the one that was acquired next in the last step. */
int mesh_acquire(struct edit_worker *worker, unsigned layer);
void mesh_release(struct edit_worker *worker, unsigned layer);
/* theta of the whole layer while it is acquired, NULL otherwise. */
float *mesh_theta(struct edit_worker *worker, unsigned layer);
/* Hands out a whole layer's gradient; the mean over the replica adds up in the segment's gradient of the piece. */
int mesh_offer_gradient(struct edit_worker *worker, unsigned layer, const float *gradient);
/* Waits until all gradients handed out are there. */
int mesh_await_gradients(struct edit_worker *worker);
/* Sum over the replica; settles, too, whether all offer at the end of this step. */
int mesh_sum(struct edit_worker *worker, double value, bool wants_offer, double *ret_sum);
/* A step is done. */
void mesh_end_step(struct edit_worker *worker);

#endif

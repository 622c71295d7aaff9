#ifndef EDIT_SIM_POOL_H
#define EDIT_SIM_POOL_H

/* Threads that do jobs in the order in which they were added. A job's memory is the caller's, and is left alone between
 * pool_add and pool_wait. One thread, that of the caller, adds and waits. */

#include "core/base.h"

struct job {
	void (*run)(struct job *job, unsigned thread); /* on one of the threads, 0 <= thread < count */
	struct job *next;
	bool is_open; /* added and not done */
};

struct pool;

/* A pool of that many threads, at least 1; NULL if the system has none to give. */
struct pool *pool_new(unsigned thread_count);
/* Waits for what has been added, ends the threads. NULL is allowed. */
void pool_free(struct pool *pool);
/* Adds a job, which must not be open. */
void pool_add(struct pool *pool, struct job *job);
/* Returns when the job is done; at once if it was never added. */
void pool_wait(struct pool *pool, struct job *job);
/* Whether it is done. */
bool pool_is_done(struct pool *pool, const struct job *job);

#endif

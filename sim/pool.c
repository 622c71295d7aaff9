/* One queue, one lock, one condition for workers and one for whoever waits: jobs take milliseconds, so nothing finer pays. */

#include "sim/pool.h"

#include <pthread.h>
#include <stdlib.h>

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t added, done;
	struct job *first, *last;
	bool ends;
	unsigned thread_count, begun;
	pthread_t *threads; /* [thread_count] */
};

/* Does one job; the lock is held before and after. */
static void work_off(struct pool *pool, unsigned thread)
{
	struct job *job = pool->first;
	pool->first = job->next;
	if (pool->first == NULL)
		pool->last = NULL;
	pthread_mutex_unlock(&pool->lock);
	job->run(job, thread);
	pthread_mutex_lock(&pool->lock);
	job->is_open = false;
	pthread_cond_broadcast(&pool->done);
}

static void *serve(void *arg)
{
	struct pool *pool = arg;
	pthread_mutex_lock(&pool->lock);
	unsigned thread = pool->begun++;
	while (pool->first != NULL || !pool->ends)
		if (pool->first != NULL)
			work_off(pool, thread);
		else
			pthread_cond_wait(&pool->added, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct pool *pool_new(unsigned thread_count)
{
	struct pool *pool = calloc(1, sizeof *pool);
	CHECK(thread_count > 0);
	CHECK(pool != NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->added, NULL);
	pthread_cond_init(&pool->done, NULL);
	pool->threads = calloc(thread_count, sizeof *pool->threads);
	CHECK(pool->threads != NULL);
	for (; pool->thread_count < thread_count; pool->thread_count++)
		if (pthread_create(&pool->threads[pool->thread_count], NULL, serve, pool) != 0) {
			pool_free(pool);
			return NULL;
		}
	return pool;
}

void pool_free(struct pool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->ends = true;
	pthread_cond_broadcast(&pool->added);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->done);
	pthread_cond_destroy(&pool->added);
	pthread_mutex_destroy(&pool->lock);
	free(pool->threads);
	free(pool);
}

void pool_add(struct pool *pool, struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	CHECK(!job->is_open);
	job->is_open = true;
	job->next = NULL;
	if (pool->last != NULL)
		pool->last->next = job;
	else
		pool->first = job;
	pool->last = job;
	pthread_cond_signal(&pool->added);
	pthread_mutex_unlock(&pool->lock);
}

void pool_wait(struct pool *pool, struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	while (job->is_open)
		pthread_cond_wait(&pool->done, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

bool pool_is_done(struct pool *pool, const struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	bool is_done = !job->is_open;
	pthread_mutex_unlock(&pool->lock);
	return is_done;
}

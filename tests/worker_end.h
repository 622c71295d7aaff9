#ifndef EDIT_TESTS_WORKER_END_H
#define EDIT_TESTS_WORKER_END_H

/* The daemon's end of the worker's socket, in a thread: it speaks the real protocol with a real segment, and does to a round
 * only what a test can see: theta += 1 on every layer, gradients halved. Words of the struct may be set and read while it runs. */

#include <pthread.h>
#include <stdatomic.h>

#include "proto/segment.h"

struct worker_end {
	char socket_path[108], segment_path[108];
	/* what it shall do */
	_Atomic int hold_layer;       /* does not publish this layer and those behind it (gradients: before it); -1: publishes all */
	_Atomic uint32_t verdict;     /* of the layers that it publishes */
	_Atomic uint64_t interval;    /* steps to the next offer */
	_Atomic int is_refusing;      /* answers ATTACH with REFUSED */
	_Atomic int is_damaging;      /* spoils the segment before it passes it */
	_Atomic int is_last;          /* stops the worker with the last layer that it publishes */
	_Atomic int is_silent;        /* does not read */
	/* what it heard */
	_Atomic unsigned attaches, readies, offers, gradients, restores, finishes, losses;
	_Atomic unsigned wants[8];      /* by layer */
	struct description description; /* of the last ATTACH */
	/* its own */
	_Atomic int is_dying;
	int listener, connection;
	struct segment segment;
	pthread_t thread;
};

/* Listens and serves; a segment that is there is used again. */
void worker_end_start(struct worker_end *end);
/* Dies at once, like a daemon that was killed: closes everything; the files stay. */
void worker_end_kill(struct worker_end *end);
/* Fills in paths in the scratch folder and defaults; removes old files. */
void worker_end_init(struct worker_end *end);
/* Rings PUBLISH. */
void worker_end_ring(struct worker_end *end);
/* Waits until a word has at least the value, up to ten seconds; fails the test otherwise. */
void worker_end_await(const _Atomic unsigned *word, unsigned value);

#endif

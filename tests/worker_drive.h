#ifndef EDIT_TESTS_WORKER_DRIVE_H
#define EDIT_TESTS_WORKER_DRIVE_H

/* A training program as far as libedit-worker can see one: three layers of 6, 0 and 5 elements with AdamW's inner state. */

#include "worker/edit_worker.h"

enum { LAYERS = 3 };

/* Fails the test with the worker's own words if result is not 0. */
void must(struct edit_worker *worker, int result);
/* A described worker, not attached. */
struct edit_worker *worker_make(const char *socket_path);
/* An attached worker that has said READY; theta all 10 if it is a fresh one. */
struct edit_worker *worker_begin(const char *socket_path);
/* One step: acquires every layer, theta falls by `by`, inner state counts. Result of step_done, or of a failed acquire. */
int worker_step(struct edit_worker *worker, float by, int is_final);

#endif

/* A worker of three small layers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/worker_drive.h"

struct edit_worker *worker_make(const char *socket_path)
{
	static const uint64_t dims[2] = {2, 3}, none[1] = {0}, five[1] = {5};
	struct edit_worker *worker = edit_worker_new(socket_path);
	assert_non_null(worker);
	assert_int_equal(edit_worker_add_layer(worker, "embedding"), 0);
	assert_int_equal(edit_worker_add_tensor(worker, "embed", dims, 2), 0);
	assert_int_equal(edit_worker_add_layer(worker, "empty"), 1);
	assert_int_equal(edit_worker_add_tensor(worker, "none", none, 1), 0);
	assert_int_equal(edit_worker_add_layer(worker, "head"), 2);
	assert_int_equal(edit_worker_add_tensor(worker, "head", five, 1), 0);
	assert_int_equal(edit_worker_add_fact(worker, "hidden_size", "3"), 0);
	assert_int_equal(edit_worker_set_config(worker, "{\n\t\"hidden_size\": 3\n}\n"), 0);
	assert_int_equal(edit_worker_set_inner(worker, 2), 0);
	return worker;
}

void must(struct edit_worker *worker, int result)
{
	if (result)
		fail_msg("%d: %s", result, edit_worker_error(worker));
}

struct edit_worker *worker_begin(const char *socket_path)
{
	struct edit_worker *worker = worker_make(socket_path);
	must(worker, edit_worker_attach(worker, 5000));
	if (!edit_worker_is_resumed(worker))
		for (unsigned i = 0; i < LAYERS; i++)
			for (unsigned j = 0; j < (i == 0 ? 6 : i == 2 ? 5 : 0); j++)
				edit_worker_theta(worker, i)[j] = 10;
	must(worker, edit_worker_ready(worker));
	return worker;
}

int worker_step(struct edit_worker *worker, float by, int is_final)
{
	for (unsigned i = 0; i < LAYERS; i++) {
		int result = edit_worker_acquire(worker, i, NULL);
		if (result)
			return result;
		edit_worker_release(worker, i);
	}
	for (unsigned i = 0; i < LAYERS; i++) {
		unsigned size = i == 0 ? 6 : i == 2 ? 5 : 0;
		edit_worker_step_begin(worker, i);
		for (unsigned j = 0; j < size; j++) {
			edit_worker_theta(worker, i)[j] -= by;
			edit_worker_inner(worker, i)[j] += 1;
		}
		edit_worker_step_end(worker, i);
	}
	return edit_worker_step_done(worker, 2.5, 100, is_final);
}

/* libedit-worker when the daemon dies, and what a worker that died leaves to the next one. */

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "tests/worker_drive.h"
#include "tests/worker_end.h"
#include "worker/edit_worker_link.h"

static struct worker_end end;

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int end_start(void **state)
{
	(void)state;
	worker_end_init(&end);
	worker_end_start(&end);
	return 0;
}

static int end_stop(void **state)
{
	(void)state;
	worker_end_kill(&end);
	return 0;
}

/* ---- Deaths ---- */

static void *kill_and_return(void *argument)
{
	(void)argument;
	usleep(100000);
	worker_end_kill(&end);
	usleep(300000);
	worker_end_start(&end);
	/* It is said again: the daemon died with the first. That it was, the test's own thread asserts. */
	for (int i = 0; i < 5000 && atomic_load(&end.offers) < 2; i++)
		usleep(1000);
	atomic_store(&end.hold_layer, -1);
	return NULL;
}

static void daemon_that_dies_while_a_layer_is_awaited_is_awaited_too(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	atomic_store(&end.hold_layer, 0);
	must(worker, worker_step(worker, 0, 0));
	worker_end_await(&end.offers, 1);
	pthread_t helper;
	pthread_create(&helper, NULL, kill_and_return, NULL);
	float *theta = edit_worker_theta(worker, 0);
	must(worker, edit_worker_acquire(worker, 0, NULL));
	pthread_join(helper, NULL);
	assert_true(theta[0] == 11);
	assert_ptr_equal(theta, edit_worker_theta(worker, 0));
	worker_end_await(&end.attaches, 2);
	worker_end_await(&end.readies, 2);
	worker_end_await(&end.offers, 2);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	must(worker, edit_worker_acquire(worker, 2, NULL));
	assert_true(edit_worker_theta(worker, 2)[0] == 12);
	edit_worker_free(worker);
}

static void daemon_that_dies_between_steps_does_not_stop_them(void **state)
{
	(void)state;
	atomic_store(&end.interval, 100);
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 1, 0));
	worker_end_kill(&end);
	uint64_t begin = now_ms();
	for (int step = 0; step < 20; step++)
		must(worker, worker_step(worker, 1, 0));
	assert_true(now_ms() - begin < 2000);
	worker_end_start(&end);
	must(worker, worker_step(worker, 1, 0));
	worker_end_await(&end.attaches, 2);
	assert_int_equal(edit_worker_step(worker), 22);
	assert_int_equal(atomic_load(&end.segment.header->step), 22);
	edit_worker_free(worker);
}

static void daemon_that_is_back_with_another_segment_is_refused(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 1, 0));
	worker_end_kill(&end);
	unlink(end.segment_path);
	worker_end_start(&end);
	assert_int_equal(worker_step(worker, 1, 0), EDIT_WORKER_REFUSED);
	assert_non_null(strstr(edit_worker_error(worker), "another segment"));
	edit_worker_free(worker);
}

static size_t descriptors_count(void)
{
	size_t count = 0;
	DIR *folder = opendir("/proc/self/fd");
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void descriptors_stay_flat_over_reconnects(void **state)
{
	(void)state;
	atomic_store(&end.interval, 1000000);
	struct edit_worker *worker = worker_begin(end.socket_path);
	size_t before = descriptors_count();
	for (unsigned i = 0; i < 30; i++) {
		worker_end_kill(&end);
		worker_end_start(&end);
		must(worker, worker_step(worker, 0, 0));
		worker_end_await(&end.attaches, i + 2);
	}
	assert_int_equal(descriptors_count(), before);
	edit_worker_free(worker);
}

/* Runs a worker in a process of its own until it kills itself: in_step: between step_begin and step_end of layer 2. */
static void worker_die(int steps, bool in_step)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct edit_worker *worker = worker_begin(end.socket_path);
		for (int step = 0; step < steps; step++)
			if (worker_step(worker, 1, 0))
				_exit(1);
		if (in_step) {
			edit_worker_step_begin(worker, 2);
			edit_worker_theta(worker, 2)[0] = NAN;
		}
		raise(SIGKILL);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	worker_end_await(&end.losses, 1);
}

static void killed_worker_is_resumed_where_it_was(void **state)
{
	(void)state;
	atomic_store(&end.interval, 100);
	worker_die(3, false);
	struct edit_worker *worker = worker_make(end.socket_path);
	must(worker, edit_worker_attach(worker, 5000));
	assert_true(edit_worker_is_resumed(worker));
	assert_int_equal(edit_worker_step(worker), 3);
	assert_true(edit_worker_theta(worker, 0)[0] == 7);
	assert_true(edit_worker_inner(worker, 0)[0] == 3);
	assert_int_equal(atomic_load(&end.restores), 0);
	edit_worker_free(worker);
}

static void torn_layer_gets_its_anchor_and_a_fresh_inner_state(void **state)
{
	(void)state;
	atomic_store(&end.interval, 100);
	worker_die(3, true);
	struct edit_worker *worker = worker_make(end.socket_path);
	must(worker, edit_worker_attach(worker, 5000));
	assert_true(edit_worker_is_resumed(worker));
	assert_int_equal(atomic_load(&end.restores), 1);
	assert_true(edit_worker_theta(worker, 0)[0] == 7);
	for (unsigned j = 0; j < 5; j++)
		assert_true(edit_worker_theta(worker, 2)[j] == 42);
	for (unsigned j = 0; j < 10; j++)
		assert_true(edit_worker_inner(worker, 2)[j] == 0);
	assert_false(segment_is_torn(&end.segment, 2));
	must(worker, edit_worker_ready(worker));
	must(worker, worker_step(worker, 1, 0));
	assert_true(edit_worker_theta(worker, 2)[0] == 41);
	assert_false(segment_is_torn(&end.segment, 2));
	edit_worker_free(worker);
}

static void worker_killed_in_a_repeated_step_is_torn_too(void **state)
{
	(void)state;
	atomic_store(&end.interval, 100);
	/* The first worker ends the step of layer 2 but not the whole step; the next one repeats it and dies inside. */
	pid_t child = fork();
	if (child == 0) {
		struct edit_worker *worker = worker_begin(end.socket_path);
		edit_worker_step_begin(worker, 2);
		edit_worker_step_end(worker, 2);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	worker_end_await(&end.losses, 1);
	atomic_store(&end.losses, 0);
	worker_die(0, true);
	struct edit_worker *worker = worker_begin(end.socket_path);
	assert_int_equal(atomic_load(&end.restores), 1);
	assert_true(edit_worker_theta(worker, 2)[0] == 42);
	edit_worker_free(worker);
}

static void worker_that_died_before_it_was_ready_is_not_resumed(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct edit_worker *worker = worker_make(end.socket_path);
		if (edit_worker_attach(worker, 5000) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	worker_end_await(&end.losses, 1);
	struct edit_worker *worker = worker_make(end.socket_path);
	must(worker, edit_worker_attach(worker, 5000));
	assert_false(edit_worker_is_resumed(worker));
	edit_worker_free(worker);
}

/* A replica of one node that says it is cut: it is only asked what it does without its daemon. */
static struct edit_worker *worker_of_a_mesh_without_its_daemon(void)
{
	struct edit_worker *worker = worker_begin(end.socket_path);
	worker->segment.shards = 2;
	worker_end_kill(&end);
	return worker;
}

static void end_worker(struct edit_worker *worker)
{
	worker->segment.shards = 1;
	edit_worker_free(worker);
	worker_end_start(&end);
}

static void worker_of_a_mesh_ends_with_its_daemon(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_of_a_mesh_without_its_daemon();
	assert_int_equal(link_poll(worker), EDIT_WORKER_SYSTEM);
	assert_string_equal(edit_worker_error(worker),
			    "the daemon of a mesh has ended; start the worker anew, it goes on from the last round");
	end_worker(worker);
}

static void worker_of_a_mesh_that_is_told_to_stop_does_though_its_daemon_went_first(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_of_a_mesh_without_its_daemon();
	edit_worker_interrupt(worker);
	assert_int_equal(link_poll(worker), EDIT_WORKER_OK);
	assert_true(link_is_stopped(worker));
	end_worker(worker);
}

static void run_of_a_mesh_that_has_ended_stays_so_without_the_daemon(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_of_a_mesh_without_its_daemon();
	atomic_store(&worker->segment.header->stop, 1);
	assert_int_equal(link_poll(worker), EDIT_WORKER_OK);
	end_worker(worker);
}

#define END_TEST(name) cmocka_unit_test_setup_teardown(name, end_start, end_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		END_TEST(daemon_that_dies_while_a_layer_is_awaited_is_awaited_too),
		END_TEST(daemon_that_dies_between_steps_does_not_stop_them),
		END_TEST(daemon_that_is_back_with_another_segment_is_refused),
		END_TEST(descriptors_stay_flat_over_reconnects),
		END_TEST(killed_worker_is_resumed_where_it_was),
		END_TEST(torn_layer_gets_its_anchor_and_a_fresh_inner_state),
		END_TEST(worker_killed_in_a_repeated_step_is_torn_too),
		END_TEST(worker_that_died_before_it_was_ready_is_not_resumed),
		END_TEST(worker_of_a_mesh_ends_with_its_daemon),
		END_TEST(worker_of_a_mesh_that_is_told_to_stop_does_though_its_daemon_went_first),
		END_TEST(run_of_a_mesh_that_has_ended_stays_so_without_the_daemon),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

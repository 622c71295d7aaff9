/* libedit-worker against the daemon's end of its protocol: attaching, training, stopping. */

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

/* ---- Attaching ---- */

static void worker_without_daemon_is_told_so_in_time(void **state)
{
	(void)state;
	worker_end_init(&end);
	struct edit_worker *worker = worker_make(end.socket_path);
	uint64_t begin = now_ms();
	assert_int_equal(edit_worker_attach(worker, 150), EDIT_WORKER_UNREACHABLE);
	assert_true(now_ms() - begin >= 150);
	assert_true(now_ms() - begin < 3000);
	assert_non_null(strstr(edit_worker_error(worker), end.socket_path));
	assert_non_null(strstr(edit_worker_error(worker), "start editd"));
	edit_worker_free(worker);
}

static void worker_waits_for_a_daemon_that_comes_later(void **state)
{
	(void)state;
	worker_end_init(&end);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct edit_worker *worker = worker_make(end.socket_path);
		_exit(edit_worker_attach(worker, -1) == 0 && edit_worker_rank(worker) == 1 ? 0 : 1);
	}
	usleep(250000);
	worker_end_start(&end);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	worker_end_kill(&end);
}

static void fresh_worker_finds_zeros_and_describes_itself(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_make(end.socket_path);
	must(worker, edit_worker_attach(worker, 5000));
	assert_false(edit_worker_is_resumed(worker));
	assert_int_equal(edit_worker_rank(worker), 1);
	assert_int_equal(edit_worker_count(worker), 4);
	assert_int_equal(edit_worker_step(worker), 0);
	assert_int_equal(edit_worker_round(worker), 0);
	for (unsigned j = 0; j < 6; j++)
		assert_true(edit_worker_theta(worker, 0)[j] == 0);
	for (unsigned j = 0; j < 12; j++)
		assert_true(edit_worker_inner(worker, 0)[j] == 0);
	assert_int_equal((uintptr_t)edit_worker_theta(worker, 2) % 64, 0);
	assert_null(edit_worker_theta(worker, LAYERS));
	assert_int_equal(end.description.layer_count, 3);
	assert_string_equal(end.description.layers[2].name, "head");
	assert_int_equal(end.description.layers[0].size, 6);
	assert_string_equal(end.description.facts[0].key, "hidden_size");
	assert_string_equal(end.description.config, "{\n\t\"hidden_size\": 3\n}\n");
	assert_int_equal(end.description.inner_factor, 2);
	must(worker, edit_worker_ready(worker));
	worker_end_await(&end.readies, 1);
	edit_worker_free(worker);
	worker_end_await(&end.losses, 1);
}

static void description_larger_than_the_socket_holds_goes_through(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_make(end.socket_path);
	char *config = malloc(1000001);
	memset(config, 'x', 1000000);
	config[1000000] = 0;
	assert_int_equal(edit_worker_set_config(worker, config), 0);
	must(worker, edit_worker_attach(worker, 5000));
	assert_int_equal(strlen(end.description.config), 1000000);
	free(config);
	edit_worker_free(worker);
}

static void refused_worker_is_told_why(void **state)
{
	(void)state;
	atomic_store(&end.is_refusing, 1);
	struct edit_worker *worker = worker_make(end.socket_path);
	assert_int_equal(edit_worker_attach(worker, 5000), EDIT_WORKER_REFUSED);
	assert_string_equal(edit_worker_error(worker), "the daemon refuses: another worker is attached (pid 1)");
	atomic_store(&end.is_refusing, 0);
	must(worker, edit_worker_attach(worker, 5000)); /* nothing is left of the first try */
	edit_worker_free(worker);
}

static void damaged_segment_is_refused(void **state)
{
	(void)state;
	atomic_store(&end.is_damaging, 1);
	struct edit_worker *worker = worker_make(end.socket_path);
	assert_int_equal(edit_worker_attach(worker, 5000), EDIT_WORKER_SYSTEM);
	assert_non_null(strstr(edit_worker_error(worker), "segment: "));
	edit_worker_free(worker);
}

static void silent_daemon_is_given_up_in_time(void **state)
{
	(void)state;
	atomic_store(&end.is_silent, 1);
	struct edit_worker *worker = worker_make(end.socket_path);
	assert_int_equal(edit_worker_attach(worker, 300), EDIT_WORKER_UNREACHABLE);
	assert_non_null(strstr(edit_worker_error(worker), "does not answer"));
	edit_worker_free(worker);
}

static void path_that_cannot_be_a_socket_is_refused(void **state)
{
	(void)state;
	char path[200];
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	struct edit_worker *worker = edit_worker_new(path);
	edit_worker_add_layer(worker, "a");
	assert_int_equal(edit_worker_attach(worker, 1000), EDIT_WORKER_INVALID);
	assert_non_null(strstr(edit_worker_error(worker), "longer than 107 bytes"));
	edit_worker_free(worker);
}

static void calls_out_of_order_are_invalid(void **state)
{
	(void)state;
	struct edit_worker *worker = edit_worker_new(end.socket_path);
	static const uint64_t dims[1] = {1};
	assert_int_equal(edit_worker_attach(worker, 1000), EDIT_WORKER_INVALID); /* no layer */
	assert_int_equal(edit_worker_add_tensor(worker, "t", dims, 1), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_ready(worker), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_acquire(worker, 0, NULL), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_step_done(worker, 1, 1, 0), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_finish(worker), EDIT_WORKER_INVALID);
	edit_worker_free(worker);
	worker = worker_begin(end.socket_path);
	assert_int_equal(edit_worker_add_layer(worker, "late"), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_attach(worker, 1000), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_acquire(worker, LAYERS, NULL), EDIT_WORKER_INVALID);
	edit_worker_free(worker);
	edit_worker_free(NULL);
}

/* ---- Training ---- */

static void rounds_change_theta_and_count(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	for (int step = 0; step < 6; step++)
		must(worker, worker_step(worker, 0.5f, 0));
	for (unsigned i = 0; i < LAYERS; i++)
		must(worker, edit_worker_acquire(worker, i, NULL));
	assert_int_equal(edit_worker_step(worker), 6);
	assert_int_equal(edit_worker_round(worker), 3); /* every second step */
	worker_end_await(&end.offers, 3);
	assert_true(edit_worker_theta(worker, 0)[5] == 10 - 6 * 0.5f + 3);
	assert_true(edit_worker_theta(worker, 2)[0] == 10 - 6 * 0.5f + 3);
	uint64_t tokens;
	double loss;
	segment_sum_steps(&end.segment, 4, 6, &tokens, &loss);
	assert_int_equal(tokens, 200);
	assert_true(loss == 2.5);
	edit_worker_free(worker);
}

static void *release_later(void *argument)
{
	(void)argument;
	for (int i = 0; i < 4; i++) {
		usleep(30000);
		worker_end_ring(&end); /* news of something else */
	}
	atomic_store(&end.hold_layer, -1);
	return NULL;
}

static void layer_in_flight_is_waited_for_and_wanted_once(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	atomic_store(&end.hold_layer, 2);
	must(worker, worker_step(worker, 0, 0));
	must(worker, edit_worker_acquire(worker, 0, NULL)); /* those before it go on */
	must(worker, edit_worker_acquire(worker, 1, NULL));
	uint64_t before = edit_worker_wait_us(worker);
	pthread_t helper;
	pthread_create(&helper, NULL, release_later, NULL);
	must(worker, edit_worker_acquire(worker, 2, NULL));
	pthread_join(helper, NULL);
	assert_true(edit_worker_wait_us(worker) - before >= 100000);
	assert_true(edit_worker_theta(worker, 2)[0] == 11);
	uint64_t after = edit_worker_wait_us(worker);
	must(worker, edit_worker_acquire(worker, 2, NULL)); /* at once, and not counted */
	assert_true(edit_worker_wait_us(worker) == after);
	edit_worker_free(worker);
	worker_end_await(&end.losses, 1); /* everything was heard */
	assert_int_equal(atomic_load(&end.wants[2]), 1);
}

static void first_layer_waits_for_all_if_the_round_is_whole(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.segment.header->whole, 1);
	must(worker, worker_step(worker, 0, 0));
	atomic_store(&end.hold_layer, 2);
	must(worker, worker_step(worker, 0, 0));
	pthread_t helper;
	pthread_create(&helper, NULL, release_later, NULL);
	uint64_t before = edit_worker_wait_us(worker);
	must(worker, edit_worker_acquire(worker, 0, NULL));
	pthread_join(helper, NULL);
	assert_true(edit_worker_wait_us(worker) - before >= 100000);
	assert_true(edit_worker_theta(worker, 2)[0] == 11);
	edit_worker_free(worker);
	worker_end_await(&end.losses, 1);
	assert_int_equal(atomic_load(&end.wants[2]), 1); /* and so all before it, at once */
}

static void nonfinite_verdict_is_told_once_per_round(void **state)
{
	(void)state;
	uint64_t nonfinite = 7;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, edit_worker_acquire(worker, 0, &nonfinite));
	assert_int_equal(nonfinite, 0);
	atomic_store(&end.verdict, VERDICT_NONFINITE);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	must(worker, edit_worker_acquire(worker, 0, &nonfinite));
	assert_int_equal(nonfinite, atomic_load(&end.segment.layers[0].round));
	assert_true(nonfinite > 0);
	must(worker, edit_worker_acquire(worker, 0, &nonfinite));
	assert_int_equal(nonfinite, 0);
	must(worker, edit_worker_acquire(worker, 2, &nonfinite));
	assert_int_equal(nonfinite, atomic_load(&end.segment.layers[2].round));
	atomic_store(&end.verdict, VERDICT_OUTLIER);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	must(worker, edit_worker_acquire(worker, 0, &nonfinite));
	assert_int_equal(nonfinite, 0);
	edit_worker_free(worker);
}

static void *resume_later(void *argument)
{
	(void)argument;
	usleep(150000);
	atomic_store(&end.segment.header->paused, 0);
	worker_end_ring(&end);
	return NULL;
}

static uint64_t offers_while_paused;

static void *look_and_resume_later(void *context)
{
	usleep(150000);
	offers_while_paused = atomic_load(&end.segment.header->offers);
	return resume_later(context);
}

static void paused_worker_ends_its_step_and_waits(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.segment.header->paused, 1);
	pthread_t helper;
	pthread_create(&helper, NULL, resume_later, NULL);
	uint64_t begin = now_ms();
	must(worker, worker_step(worker, 0, 0));
	assert_true(now_ms() - begin >= 120);
	assert_int_equal(edit_worker_step(worker), 1);
	pthread_join(helper, NULL);
	edit_worker_free(worker);
}

static void paused_worker_offers_nothing_before_it_is_resumed(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	/* Due at the next boundary, where the pause is seen too. */
	atomic_store(&end.segment.header->offer_step, 1);
	atomic_store(&end.segment.header->paused, 1);
	pthread_t helper;
	pthread_create(&helper, NULL, look_and_resume_later, NULL);
	must(worker, worker_step(worker, 0, 0));
	pthread_join(helper, NULL);
	assert_int_equal(offers_while_paused, 0);
	worker_end_await(&end.offers, 1);
	edit_worker_free(worker);
}

static void stopped_worker_leaves_its_loop(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	atomic_store(&end.segment.header->stop, 1);
	assert_int_equal(worker_step(worker, 0, 0), EDIT_WORKER_STOP);
	assert_int_equal(edit_worker_acquire(worker, 0, NULL), EDIT_WORKER_STOP);
	must(worker, edit_worker_finish(worker));
	worker_end_await(&end.finishes, 1);
	edit_worker_free(worker);
}

static struct edit_worker *interrupted;

static void interrupt_handle(int number)
{
	(void)number;
	edit_worker_interrupt(interrupted);
}

static void signal_ends_a_wait(void **state)
{
	(void)state;
	struct edit_worker *worker = interrupted = worker_begin(end.socket_path);
	signal(SIGALRM, interrupt_handle);
	atomic_store(&end.hold_layer, 0);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	alarm(1);
	uint64_t begin = now_ms();
	assert_int_equal(edit_worker_acquire(worker, 0, NULL), EDIT_WORKER_STOP);
	assert_true(now_ms() - begin < 3000);
	signal(SIGALRM, SIG_DFL);
	edit_worker_free(worker);
}

static void final_step_offers_and_waits_for_its_round(void **state)
{
	(void)state;
	atomic_store(&end.interval, 1000);
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 1));
	assert_int_equal(edit_worker_round(worker), 1);
	assert_true(edit_worker_theta(worker, 2)[4] == 11);
	assert_int_equal(atomic_load(&end.segment.header->final_step), 1);
	must(worker, edit_worker_finish(worker));
	worker_end_await(&end.finishes, 1);
	edit_worker_free(worker);
}

static void final_round_that_stops_the_worker_is_complete_all_the_same(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.is_last, 1); /* sets the stop word once all layers are published */
	must(worker, worker_step(worker, 0, 1));
	assert_true(edit_worker_theta(worker, 2)[4] == 11);
	assert_int_equal(edit_worker_acquire(worker, 0, NULL), EDIT_WORKER_STOP);
	edit_worker_free(worker);
}

/* Dies between the last step and its offer: what stays behind is the step's entry and the grown step word. */
static void final_offer_that_a_killed_worker_owed_is_made_by_the_next_one(void **state)
{
	(void)state;
	atomic_store(&end.interval, 1000);
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	edit_worker_free(worker);
	worker = worker_begin(end.socket_path);
	assert_int_equal(edit_worker_step(worker), 1);
	must(worker, edit_worker_finish(worker));
	assert_int_equal(atomic_load(&end.segment.header->final_step), 1);
	assert_int_equal(edit_worker_round(worker), 1);
	worker_end_await(&end.finishes, 1);
	assert_int_equal(atomic_load(&end.offers), 1);
	edit_worker_free(worker);
}

static void final_round_under_way_is_waited_for_and_not_offered_again(void **state)
{
	(void)state;
	atomic_store(&end.interval, 1000);
	struct edit_worker *worker = interrupted = worker_begin(end.socket_path);
	atomic_store(&end.hold_layer, 1);
	signal(SIGALRM, interrupt_handle);
	alarm(1);
	assert_int_equal(worker_step(worker, 0, 1), EDIT_WORKER_STOP);
	edit_worker_free(worker);
	worker = worker_begin(end.socket_path);
	atomic_store(&end.hold_layer, -1);
	worker_end_ring(&end);
	must(worker, edit_worker_finish(worker));
	assert_int_equal(atomic_load(&end.segment.header->offers), 1);
	assert_true(edit_worker_theta(worker, 2)[4] == 11);
	edit_worker_free(worker);
}

static void old_offer_step_is_not_offered_twice(void **state)
{
	(void)state;
	atomic_store(&end.interval, 0); /* the daemon leaves the old number */
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.segment.header->offer_step, 1);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	assert_int_equal(atomic_load(&end.segment.header->offers), 1);
	edit_worker_free(worker);
}

static void stepping_a_layer_on_the_ring_is_told(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.hold_layer, 0);
	must(worker, worker_step(worker, 0, 0));
	must(worker, worker_step(worker, 0, 0));
	edit_worker_step_begin(worker, 1);
	edit_worker_step_end(worker, 1);
	assert_int_equal(edit_worker_step_done(worker, 1, 1, 0), EDIT_WORKER_INVALID);
	assert_non_null(strstr(edit_worker_error(worker), "on the ring"));
	edit_worker_free(worker);
}

static void step_that_is_not_ended_is_told_at_the_offer(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	must(worker, worker_step(worker, 0, 0));
	edit_worker_step_begin(worker, 1);
	assert_int_equal(edit_worker_step_done(worker, 1, 1, 0), EDIT_WORKER_INVALID);
	assert_int_equal(atomic_load(&end.segment.header->offers), 0);
	edit_worker_free(worker);
}

#define END_TEST(name) cmocka_unit_test_setup_teardown(name, end_start, end_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(worker_without_daemon_is_told_so_in_time),
		cmocka_unit_test(worker_waits_for_a_daemon_that_comes_later),
		END_TEST(fresh_worker_finds_zeros_and_describes_itself),
		END_TEST(description_larger_than_the_socket_holds_goes_through),
		END_TEST(refused_worker_is_told_why),
		END_TEST(damaged_segment_is_refused),
		END_TEST(silent_daemon_is_given_up_in_time),
		cmocka_unit_test(path_that_cannot_be_a_socket_is_refused),
		END_TEST(calls_out_of_order_are_invalid),
		END_TEST(rounds_change_theta_and_count),
		END_TEST(layer_in_flight_is_waited_for_and_wanted_once),
		END_TEST(first_layer_waits_for_all_if_the_round_is_whole),
		END_TEST(nonfinite_verdict_is_told_once_per_round),
		END_TEST(paused_worker_ends_its_step_and_waits),
		END_TEST(paused_worker_offers_nothing_before_it_is_resumed),
		END_TEST(stopped_worker_leaves_its_loop),
		END_TEST(signal_ends_a_wait),
		END_TEST(final_step_offers_and_waits_for_its_round),
		END_TEST(final_round_that_stops_the_worker_is_complete_all_the_same),
		END_TEST(final_offer_that_a_killed_worker_owed_is_made_by_the_next_one),
		END_TEST(final_round_under_way_is_waited_for_and_not_offered_again),
		END_TEST(old_offer_step_is_not_offered_twice),
		END_TEST(stepping_a_layer_on_the_ring_is_told),
		END_TEST(step_that_is_not_ended_is_told_at_the_offer),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

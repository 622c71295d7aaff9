/* libedit-worker while gradients are exchanged: handing over, taking back, and what a worker that died leaves to the next one. */

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "tests/worker_drive.h"
#include "tests/worker_end.h"

static struct worker_end end;

static int end_start(void **state)
{
	(void)state;
	worker_end_init(&end);
	atomic_store(&end.interval, 1000);
	worker_end_start(&end);
	return 0;
}

static int end_stop(void **state)
{
	(void)state;
	worker_end_kill(&end);
	return 0;
}

static const float gradient[6] = {2, 4, 6, 8, 10, 12};
static const unsigned sizes[LAYERS] = {6, 0, 5}; /* of worker_drive.h */

static void acquire_all(struct edit_worker *worker)
{
	for (unsigned i = 0; i < LAYERS; i++)
		must(worker, edit_worker_acquire(worker, i, NULL));
}

/* Hands over layers from the last one on, `count` of them. */
static int hand_over(struct edit_worker *worker, unsigned count, int is_final)
{
	int result = 0;
	for (unsigned i = LAYERS; !result && i-- > LAYERS - count;)
		result = edit_worker_offer_gradient(worker, i, gradient, is_final);
	return result;
}

/* theta falls by `by`, inner state counts. */
static void change_all(struct edit_worker *worker, float by)
{
	for (unsigned i = 0; i < LAYERS; i++) {
		edit_worker_step_begin(worker, i);
		for (unsigned j = 0; j < sizes[i]; j++) {
			edit_worker_theta(worker, i)[j] -= by;
			edit_worker_inner(worker, i)[j] += 1;
		}
		edit_worker_step_end(worker, i);
	}
}

/* A whole step whose gradients are averaged. */
static void gradient_step(struct edit_worker *worker)
{
	float mean[6];
	acquire_all(worker);
	assert_int_equal(edit_worker_averages_gradients(worker), 1);
	must(worker, hand_over(worker, LAYERS, 0));
	for (unsigned i = LAYERS; i-- > 0;)
		must(worker, edit_worker_mean_gradient(worker, i, mean));
	change_all(worker, 1);
	must(worker, edit_worker_step_done(worker, 2.5, 100, 0));
}

static struct edit_worker *begin_with_gradients(void)
{
	struct edit_worker *worker = worker_begin(end.socket_path);
	atomic_store(&end.segment.header->gradients, 1);
	return worker;
}

/* ---- One step ---- */

static void gradients_come_back_as_means_and_theta_stays(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	const struct segment_header *header = end.segment.header;
	float mean[6] = {-1, -1, -1, -1, -1, -1};
	assert_int_equal(edit_worker_averages_gradients(worker), 0);
	atomic_store(&end.segment.header->gradients, 1);
	acquire_all(worker);
	assert_int_equal(edit_worker_averages_gradients(worker), 1);
	must(worker, hand_over(worker, LAYERS, 1));
	/* One offer for all layers, of the step in progress. */
	assert_int_equal(atomic_load(&header->offers), 1);
	assert_int_equal(atomic_load(&header->handed_step), 1);
	assert_int_equal(atomic_load(&header->step), 0);
	assert_int_equal(atomic_load(&header->final_step), 1);
	must(worker, edit_worker_mean_gradient(worker, 2, mean));
	for (unsigned j = 0; j < 5; j++)
		assert_true(mean[j] == gradient[j] / 2);
	assert_true(mean[5] == -1);
	must(worker, edit_worker_mean_gradient(worker, 1, mean));
	must(worker, edit_worker_mean_gradient(worker, 0, mean));
	for (unsigned j = 0; j < 6; j++) {
		assert_true(mean[j] == gradient[j] / 2);
		assert_true(edit_worker_theta(worker, 0)[j] == 10);
	}
	must(worker, edit_worker_step_done(worker, 2.5, 100, 0));
	assert_int_equal(atomic_load(&header->step), 1);
	assert_int_equal(atomic_load(&header->offered_step), 0); /* of theta there was no offer */
	edit_worker_free(worker);
	worker_end_await(&end.losses, 1); /* everything was heard */
	assert_int_equal(atomic_load(&end.gradients), LAYERS);
	assert_int_equal(atomic_load(&end.offers), 0);
}

static void *stop_later(void *argument)
{
	(void)argument;
	usleep(100000);
	atomic_store(&end.segment.header->stop, 1);
	worker_end_ring(&end);
	return NULL;
}

static void *let_go_later(void *argument)
{
	(void)argument;
	usleep(100000);
	atomic_store(&end.hold_layer, -1);
	worker_end_ring(&end);
	return NULL;
}

/* Also where a round is whole (sync.overlap = none): the backward pass needs the layers before those that it has handed over. */
static void backward_goes_on_while_a_layer_is_on_the_ring(void **state)
{
	(void)state;
	float mean[6];
	struct edit_worker *worker = begin_with_gradients();
	atomic_store(&end.segment.header->whole, 1);
	atomic_store(&end.hold_layer, 2);
	acquire_all(worker);
	must(worker, edit_worker_offer_gradient(worker, 2, gradient, 0));
	uint64_t before_us = edit_worker_wait_us(worker);
	must(worker, edit_worker_acquire(worker, 1, NULL));
	must(worker, edit_worker_acquire(worker, 0, NULL));
	assert_true(edit_worker_wait_us(worker) == before_us);
	must(worker, edit_worker_offer_gradient(worker, 1, gradient, 0));
	must(worker, edit_worker_offer_gradient(worker, 0, gradient, 0));
	pthread_t helper;
	pthread_create(&helper, NULL, let_go_later, NULL);
	must(worker, edit_worker_mean_gradient(worker, 2, mean));
	pthread_join(helper, NULL);
	/* The wait is exposed, and the daemon knows which layer it is for. */
	assert_true(edit_worker_wait_us(worker) - before_us >= 50000);
	assert_int_equal(atomic_load(&end.wants[2]), 1);
	edit_worker_free(worker);
}

static void wait_for_a_mean_ends_when_training_does(void **state)
{
	(void)state;
	float mean[6];
	struct edit_worker *worker = begin_with_gradients();
	atomic_store(&end.hold_layer, 2);
	acquire_all(worker);
	must(worker, hand_over(worker, LAYERS, 0));
	pthread_t helper;
	pthread_create(&helper, NULL, stop_later, NULL);
	assert_int_equal(edit_worker_mean_gradient(worker, 2, mean), EDIT_WORKER_STOP);
	pthread_join(helper, NULL);
	edit_worker_free(worker);
}

static void mean_of_nobody_is_not_a_number(void **state)
{
	(void)state;
	float mean[6];
	uint64_t nonfinite = 7;
	struct edit_worker *worker = begin_with_gradients();
	atomic_store(&end.verdict, VERDICT_NONFINITE);
	acquire_all(worker);
	must(worker, hand_over(worker, LAYERS, 0));
	for (unsigned i = 0; i < LAYERS; i++)
		must(worker, edit_worker_mean_gradient(worker, i, mean));
	assert_true(isnan(mean[0]));
	must(worker, edit_worker_step_done(worker, 2.5, 100, 0));
	/* It was the gradient's: theta and inner state are as good as before. */
	must(worker, edit_worker_acquire(worker, 0, &nonfinite));
	assert_int_equal(nonfinite, 0);
	edit_worker_free(worker);
}

static void calls_out_of_order_are_refused(void **state)
{
	(void)state;
	float mean[6];
	struct edit_worker *stranger = worker_make(end.socket_path);
	assert_int_equal(edit_worker_averages_gradients(stranger), 0);
	assert_int_equal(edit_worker_offer_gradient(stranger, 0, gradient, 0), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_mean_gradient(stranger, 0, mean), EDIT_WORKER_INVALID);
	edit_worker_free(stranger);
	struct edit_worker *worker = begin_with_gradients();
	atomic_store(&end.hold_layer, 2);
	acquire_all(worker);
	assert_int_equal(edit_worker_offer_gradient(worker, LAYERS, gradient, 0), EDIT_WORKER_INVALID);
	assert_int_equal(edit_worker_mean_gradient(worker, LAYERS, mean), EDIT_WORKER_INVALID);
	must(worker, edit_worker_offer_gradient(worker, 2, gradient, 0));
	assert_int_equal(edit_worker_offer_gradient(worker, 2, gradient, 0), EDIT_WORKER_INVALID);
	assert_non_null(strstr(edit_worker_error(worker), "on the ring"));
	/* Theta must not change before the mean is back. */
	edit_worker_step_begin(worker, 2);
	assert_int_equal(edit_worker_step_done(worker, 1, 1, 0), EDIT_WORKER_INVALID);
	edit_worker_free(worker);
}

/* ---- Inner state ---- */

static void inner_state_begins_anew_with_the_first_gradients_alone(void **state)
{
	(void)state;
	struct edit_worker *worker = worker_begin(end.socket_path);
	struct segment_header *header = end.segment.header;
	for (int step = 0; step < 3; step++)
		must(worker, worker_step(worker, 1, 0));
	assert_true(edit_worker_inner(worker, 0)[0] == 3);
	assert_int_equal(edit_worker_inner_step(worker), 0);
	atomic_store(&header->gradients, 1);
	gradient_step(worker);
	gradient_step(worker);
	assert_true(edit_worker_inner(worker, 0)[0] == 2);
	assert_true(edit_worker_inner(worker, 2)[4] == 2);
	assert_int_equal(edit_worker_inner_step(worker), 3);
	/* Nothing is begun anew when parameters follow; but gradients after them begin anew again. */
	atomic_store(&header->gradients, 0);
	atomic_store(&header->offer_step, 6);
	must(worker, worker_step(worker, 1, 0));
	assert_true(edit_worker_inner(worker, 0)[0] == 3);
	assert_int_equal(edit_worker_inner_step(worker), 3);
	acquire_all(worker); /* the round of parameters is done */
	assert_int_equal(atomic_load(&header->offered_step), 6);
	atomic_store(&header->gradients, 1);
	gradient_step(worker);
	assert_true(edit_worker_inner(worker, 0)[0] == 1);
	assert_int_equal(edit_worker_inner_step(worker), 6);
	edit_worker_free(worker);
}

/* ---- Deaths ---- */

static void *kill_and_return(void *argument)
{
	(void)argument;
	usleep(50000);
	worker_end_kill(&end);
	unsigned before = atomic_load(&end.gradients);
	worker_end_start(&end);
	for (int i = 0; i < 5000 && atomic_load(&end.gradients) == before; i++)
		usleep(1000);
	atomic_store(&end.hold_layer, -1);
	worker_end_ring(&end);
	return NULL;
}

static void daemon_that_comes_back_is_told_of_gradients_and_of_no_offer(void **state)
{
	(void)state;
	float mean[6];
	struct edit_worker *worker = begin_with_gradients();
	atomic_store(&end.hold_layer, 2);
	acquire_all(worker);
	must(worker, hand_over(worker, LAYERS, 0));
	worker_end_await(&end.gradients, LAYERS);
	pthread_t helper;
	pthread_create(&helper, NULL, kill_and_return, NULL);
	must(worker, edit_worker_mean_gradient(worker, 2, mean));
	pthread_join(helper, NULL);
	assert_true(mean[0] == 1);
	assert_int_equal(atomic_load(&end.gradients), LAYERS + 1);
	assert_int_equal(atomic_load(&end.offers), 0);
	edit_worker_free(worker);
}

enum death { DIE_BEFORE, DIE_AMONG, DIE_AFTER_MEANS, DIE_STEPPING };

/* Two whole steps, then a third one in which the worker is killed. */
static void die_in_a_third_step(enum death death)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		float mean[6];
		struct edit_worker *worker = worker_begin(end.socket_path);
		while (!edit_worker_averages_gradients(worker))
			usleep(1000);
		gradient_step(worker);
		gradient_step(worker);
		acquire_all(worker);
		if (death != DIE_BEFORE)
			must(worker, hand_over(worker, death == DIE_AMONG ? 1 : LAYERS, 0));
		for (unsigned i = 0; death > DIE_AMONG && i < LAYERS; i++)
			must(worker, edit_worker_mean_gradient(worker, i, mean));
		if (death == DIE_STEPPING) {
			edit_worker_step_begin(worker, 2);
			edit_worker_theta(worker, 2)[0] = NAN;
		}
		raise(SIGKILL);
	}
	worker_end_await(&end.readies, 1);
	atomic_store(&end.segment.header->gradients, 1);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	worker_end_await(&end.losses, 1);
}

/* The step that was announced counts, without a loss, and asks for an alignment until the next one is done. */
static void check_taken_over(float theta_2)
{
	uint64_t tokens;
	double loss;
	const struct segment_header *header = end.segment.header;
	struct edit_worker *worker = worker_begin(end.socket_path);
	assert_int_equal(edit_worker_is_resumed(worker), 1);
	assert_int_equal(edit_worker_step(worker), 3);
	assert_int_equal(atomic_load(&header->realign), 1);
	assert_int_equal(atomic_load(&header->tokens), 200);
	segment_sum_steps(&end.segment, 2, 3, &tokens, &loss);
	assert_int_equal(tokens, 0);
	assert_true(isnan(loss));
	assert_true(edit_worker_theta(worker, 0)[0] == 8);
	assert_true(edit_worker_theta(worker, 2)[0] == theta_2);
	gradient_step(worker);
	assert_int_equal(edit_worker_step(worker), 4);
	assert_int_equal(atomic_load(&header->realign), 0);
	edit_worker_free(worker);
}

static void step_that_was_announced_counts_for_the_next_worker(void **state)
{
	(void)state;
	die_in_a_third_step(DIE_AMONG);
	check_taken_over(8);
}

static void step_whose_means_came_back_counts_too(void **state)
{
	(void)state;
	die_in_a_third_step(DIE_AFTER_MEANS);
	check_taken_over(8);
}

static void layer_torn_among_gradients_gets_its_anchor(void **state)
{
	(void)state;
	die_in_a_third_step(DIE_STEPPING);
	check_taken_over(42);
	assert_int_equal(atomic_load(&end.restores), 1);
}

static void step_that_was_not_announced_is_done_again(void **state)
{
	(void)state;
	die_in_a_third_step(DIE_BEFORE);
	struct edit_worker *worker = worker_begin(end.socket_path);
	assert_int_equal(edit_worker_step(worker), 2);
	assert_int_equal(atomic_load(&end.segment.header->realign), 0);
	gradient_step(worker);
	assert_int_equal(edit_worker_step(worker), 3);
	/* Its inner state is that of the first one: gradients have not begun anew. */
	assert_true(edit_worker_inner(worker, 0)[0] == 3);
	edit_worker_free(worker);
}

#define END_TEST(name) cmocka_unit_test_setup_teardown(name, end_start, end_stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		END_TEST(gradients_come_back_as_means_and_theta_stays),
		END_TEST(backward_goes_on_while_a_layer_is_on_the_ring),
		END_TEST(wait_for_a_mean_ends_when_training_does),
		END_TEST(mean_of_nobody_is_not_a_number),
		END_TEST(calls_out_of_order_are_refused),
		END_TEST(inner_state_begins_anew_with_the_first_gradients_alone),
		END_TEST(daemon_that_comes_back_is_told_of_gradients_and_of_no_offer),
		END_TEST(step_that_was_announced_counts_for_the_next_worker),
		END_TEST(step_whose_means_came_back_counts_too),
		END_TEST(layer_torn_among_gradients_gets_its_anchor),
		END_TEST(step_that_was_not_announced_is_done_again),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

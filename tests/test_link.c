/* The ring stream's ends: order, acknowledgement, resend, bounds. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/link.h"

enum { CAPACITY = 4096, WINDOW = 1000, RETRY_US = 1000000 };

struct pair {
	struct link *left, *right; /* left sends to right */
};

static struct link *new_link(void)
{
	struct link *link = malloc(sizeof *link + link_size(CAPACITY));
	link_init(link, link + 1, CAPACITY, RETRY_US);
	return link;
}

static int set_up(void **state)
{
	static struct pair pair;
	pair = (struct pair){new_link(), new_link()};
	*state = &pair;
	return 0;
}

static int tear_down(void **state)
{
	struct pair *pair = *state;
	free(pair->left);
	free(pair->right);
	return 0;
}

static struct frame numbered(uint32_t number)
{
	return (struct frame){.kind = MESSAGE_ROLL, .origin = number};
}

static struct frame chunk_of(size_t bytes)
{
	return (struct frame){.kind = MESSAGE_CHUNK, .chunk = {.count = bytes / sizeof(float)}};
}

static void push_all(struct link *link, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct frame frame = numbered(i);
		assert_int_equal(link_push(link, &frame), 0);
	}
}

static unsigned next_random(unsigned *random)
{
	return *random = *random * 1664525u + 1013904223u, *random >> 16;
}

/* Acknowledges what right has, unless this report is lost. */
static void report(struct pair *pair, uint64_t now_us, bool is_lost)
{
	uint64_t received;
	bool resend;
	link_report(pair->right, &received, &resend);
	if (!is_lost)
		link_acknowledge(pair->left, received, resend, now_us);
}

static void link_delivers_all_in_order_over_loss_and_repetition(void **state)
{
	struct pair *pair = *state;
	for (unsigned seed = 1; seed <= 50; seed++) {
		unsigned random = seed;
		uint32_t taken = 0, total = 3000;
		uint64_t now_us = 0;
		link_reset_right(pair->left);
		link_reset_left(pair->right);
		push_all(pair->left, total);
		while (taken < total) {
			now_us += 1000;
			link_retry(pair->left, now_us);
			while (link_launch_waiting(pair->left, WINDOW, now_us))
				;
			uint64_t sequence;
			const struct frame *frame;
			while ((frame = link_next(pair->left, &sequence)) != NULL) {
				unsigned copies = next_random(&random) % 8 == 0 ? next_random(&random) % 3 : 1;
				while (copies-- > 0)
					if (link_accept(pair->right, sequence, 0, WINDOW, now_us))
						assert_int_equal(frame->origin, taken++);
				if (link_must_report(pair->right, now_us))
					report(pair, now_us, next_random(&random) % 4 == 0);
			}
			if (link_must_report(pair->right, now_us + LINK_ACK_DELAY_US))
				report(pair, now_us, next_random(&random) % 4 == 0);
			if (now_us > UINT64_C(10000000000)) {
				print_message("seed %u\n", seed);
				fail();
			}
		}
	}
}

static void link_bounds_payload_by_the_window_and_frames_by_the_flight(void **state)
{
	struct pair *pair = *state;
	struct frame big = chunk_of(4 * WINDOW), small = chunk_of(400);
	assert_true(link_has_room(pair->left, 4 * WINDOW, WINDOW)); /* the first goes, whatever its size */
	link_launch(pair->left, &big, 0);
	assert_false(link_has_room(pair->left, 4, WINDOW));
	assert_true(link_acknowledge(pair->left, 1, false, 0));
	link_launch(pair->left, &small, 0);
	link_launch(pair->left, &small, 0);
	assert_false(link_has_room(pair->left, 400, WINDOW));
	assert_true(link_has_room(pair->left, 200, WINDOW));
	link_acknowledge(pair->left, 3, false, 0);
	push_all(pair->left, LINK_FLIGHT_MAX + 5);
	int launched = 0;
	while (link_launch_waiting(pair->left, WINDOW, 0))
		launched++;
	assert_int_equal(launched, LINK_FLIGHT_MAX);
}

static void link_ignores_an_acknowledgement_of_what_was_never_sent(void **state)
{
	struct pair *pair = *state;
	push_all(pair->left, 3);
	while (link_launch_waiting(pair->left, WINDOW, 0))
		;
	assert_false(link_acknowledge(pair->left, 4, false, 0));
	assert_false(link_acknowledge(pair->left, UINT64_MAX, true, 0));
	assert_true(link_acknowledge(pair->left, 2, false, 0));
	assert_false(link_acknowledge(pair->left, 1, true, 0)); /* an old one */
	assert_int_equal(pair->left->acknowledged, 2);
}

static void link_resends_at_doubling_intervals_while_nothing_moves(void **state)
{
	struct pair *pair = *state;
	uint64_t sequence, now_us = 0, last_us = 0;
	push_all(pair->left, 1);
	assert_true(link_launch_waiting(pair->left, WINDOW, now_us));
	assert_non_null(link_next(pair->left, &sequence));
	for (uint64_t expected_us = RETRY_US; expected_us <= 8 * RETRY_US; expected_us *= 2) {
		while (link_next(pair->left, &sequence) == NULL) {
			now_us = link_retry_at(pair->left);
			link_retry(pair->left, now_us);
		}
		assert_int_equal(now_us - last_us, expected_us);
		last_us = now_us;
	}
	link_acknowledge(pair->left, 1, false, now_us);
	assert_true(link_retry_at(pair->left) == UINT64_MAX);
}

static void link_asks_once_for_a_gap_and_is_served_once(void **state)
{
	struct pair *pair = *state;
	uint64_t sequence, received;
	bool resend;
	push_all(pair->left, 10);
	while (link_launch_waiting(pair->left, WINDOW, 0))
		;
	while (link_next(pair->left, &sequence) != NULL)
		if (sequence != 4)
			link_accept(pair->right, sequence, 0, WINDOW, 0);
	assert_true(link_must_report(pair->right, 0));
	link_report(pair->right, &received, &resend);
	assert_int_equal(received, 4);
	assert_true(resend);
	link_accept(pair->right, 9, 0, WINDOW, 0); /* the same gap */
	link_report(pair->right, &received, &resend);
	assert_false(resend);
	link_acknowledge(pair->left, 4, true, 0);
	link_acknowledge(pair->left, 4, true, 0); /* a copy of the request */
	assert_int_equal(pair->left->sent_again, 6);
	assert_non_null(link_next(pair->left, &sequence));
	assert_int_equal(sequence, 4);
}

static void link_says_when_it_is_full(void **state)
{
	struct pair *pair = *state;
	push_all(pair->left, CAPACITY);
	struct frame frame = numbered(0);
	assert_int_equal(link_push(pair->left, &frame), EDIT_ERROR_FULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(link_delivers_all_in_order_over_loss_and_repetition, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_bounds_payload_by_the_window_and_frames_by_the_flight, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_ignores_an_acknowledgement_of_what_was_never_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_resends_at_doubling_intervals_while_nothing_moves, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_asks_once_for_a_gap_and_is_served_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(link_says_when_it_is_full, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

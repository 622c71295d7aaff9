/* What the nodes of a replica tell each other: answers kept by number, one ahead at most, summed in the order of ranks. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/row.h"

enum { LAYERS = 3, COUNT = 4, OWN = 1 };

struct fixture {
	struct row row;
	struct link link;
	void *blocks[2];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	size_t frames = row_frames_max(LAYERS, COUNT);
	f->blocks[0] = aligned_alloc(64, row_size(LAYERS, COUNT));
	f->blocks[1] = malloc(link_size(frames));
	link_init(&f->link, f->blocks[1], frames, 1000);
	row_init(&f->row, f->blocks[0], LAYERS, OWN, COUNT, &f->link);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	free(f->blocks[0]);
	free(f->blocks[1]);
	free(f);
	return 0;
}

static struct scalar answer(uint32_t origin, uint64_t number, double value)
{
	return (struct scalar){.kind = SCALAR_NORM, .layer_index = 2, .origin = origin, .number = number, .value = value};
}

static int take(struct fixture *f, uint32_t origin, uint64_t number, double value)
{
	const struct scalar scalar = answer(origin, number, value);
	return row_take(&f->row, &scalar, 7, 0);
}

static void tell(struct fixture *f, uint64_t number, double value)
{
	const struct scalar scalar = answer(99, number, value);
	row_tell(&f->row, &scalar, 0);
}

static void answers_are_whole_when_all_are_there(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(row_waits_for(&f->row, SCALAR_NORM, 2, 7), 0);
	assert_false(row_has_told(&f->row, SCALAR_NORM, 2, 7));
	tell(f, 7, 1e300);
	assert_true(row_has_told(&f->row, SCALAR_NORM, 2, 7));
	assert_int_equal(take(f, 3, 7, 4), 0);
	assert_int_equal(take(f, 0, 7, 1), 0);
	assert_false(row_is_whole(&f->row, SCALAR_NORM, 2, 7));
	assert_int_equal(row_waits_for(&f->row, SCALAR_NORM, 2, 7), 2);
	assert_int_equal(take(f, 2, 7, -1e300), 0);
	assert_true(row_is_whole(&f->row, SCALAR_NORM, 2, 7));
	assert_int_equal(row_waits_for(&f->row, SCALAR_NORM, 2, 7), COUNT);
	/* In the order of ranks: (1 + 1e300) - 1e300 + 4. In the order in which they came it would be 1 + 4 or 0 + 1. */
	assert_true(row_sum(&f->row, SCALAR_NORM, 2, 7) == 4);
	assert_true(row_at(&f->row, SCALAR_NORM, 2, 7, 3)->value == 4);
	assert_int_equal(row_at(&f->row, SCALAR_NORM, 2, 7, OWN)->origin, OWN);
	/* Another layer and another question know nothing of it. */
	assert_false(row_is_whole(&f->row, SCALAR_NORM, 1, 7));
	assert_false(row_is_whole(&f->row, SCALAR_MEAN, 2, 7));
}

static void one_number_ahead_is_kept_beside_the_present_one(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(take(f, 0, 8, 10), 0);
	assert_int_equal(take(f, 0, 7, 1), 0);
	assert_int_equal(take(f, 2, 7, 1), 0);
	assert_int_equal(take(f, 3, 7, 1), 0);
	tell(f, 7, 1);
	assert_true(row_is_whole(&f->row, SCALAR_NORM, 2, 7));
	assert_true(row_sum(&f->row, SCALAR_NORM, 2, 7) == 4);
	assert_false(row_is_whole(&f->row, SCALAR_NORM, 2, 8));
	assert_true(row_at(&f->row, SCALAR_NORM, 2, 8, 0)->value == 10);
	tell(f, 9, 5); /* in the place of 7 */
	assert_false(row_is_whole(&f->row, SCALAR_NORM, 2, 7));
	assert_false(row_is_whole(&f->row, SCALAR_NORM, 2, 9));
}

static void answers_that_cannot_be_are_refused_and_change_nothing(void **state)
{
	struct fixture *f = *state;
	struct scalar scalar = answer(0, 7, 1);
	assert_int_equal(take(f, 0, 6, 1), EDIT_ERROR_MALFORMED);
	assert_int_equal(take(f, 0, 9, 1), EDIT_ERROR_MALFORMED);
	assert_int_equal(take(f, OWN, 7, 1), EDIT_ERROR_MALFORMED);
	assert_int_equal(take(f, COUNT, 7, 1), EDIT_ERROR_MALFORMED);
	scalar.layer_index = LAYERS;
	assert_int_equal(row_take(&f->row, &scalar, 7, 0), EDIT_ERROR_MALFORMED);
	assert_int_equal(take(f, 0, 7, 1), 0);
	assert_int_equal(take(f, 0, 7, 2), EDIT_ERROR_MALFORMED); /* said already */
	assert_true(row_at(&f->row, SCALAR_NORM, 2, 7, 0)->value == 1);
	assert_int_equal(f->link.waiting_count, 1);
}

static void answers_are_passed_on_until_they_have_been_everywhere(void **state)
{
	struct fixture *f = *state;
	struct message message;
	tell(f, 7, 3);
	assert_int_equal(take(f, 0, 7, 1), 0);
	assert_int_equal(take(f, 3, 7, 4), 0);
	assert_int_equal(take(f, 2, 7, 2), 0); /* the right neighbour's own */
	assert_int_equal(f->link.waiting_count, 3);
	row_message(&f->row, &f->link.waiting[2], &message);
	assert_int_equal(message.kind, MESSAGE_SCALAR);
	assert_int_equal(message.scalar.origin, 3);
	assert_true(message.scalar.value == 4);
}

static void node_alone_knows_everything_at_once(void **state)
{
	(void)state;
	struct row row;
	void *block = aligned_alloc(64, row_size(1, 1));
	row_init(&row, block, 1, 0, 1, NULL);
	const struct scalar scalar = {.kind = SCALAR_ROUND, .number = 1, .value = 2};
	row_tell(&row, &scalar, 0);
	assert_true(row_is_whole(&row, SCALAR_ROUND, 0, 1));
	assert_true(row_sum(&row, SCALAR_ROUND, 0, 1) == 2);
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers_are_whole_when_all_are_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_number_ahead_is_kept_beside_the_present_one, set_up, tear_down),
		cmocka_unit_test_setup_teardown(answers_that_cannot_be_are_refused_and_change_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(answers_are_passed_on_until_they_have_been_everywhere, set_up, tear_down),
		cmocka_unit_test(node_alone_knows_everything_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

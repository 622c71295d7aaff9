/* Rehearsals: which texts are one, and on which steps they are on. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "worker/drill.h"

static struct drill read_good(const char *text)
{
	struct drill drill;
	if (drill_read(text, &drill))
		fail_msg("'%s' is refused", text);
	return drill;
}

static void drills_are_read(void **state)
{
	(void)state;
	struct drill drill = read_good("nan@200");
	assert_true(drill.kind == DRILL_NAN && drill.step == 200 && drill.count == 1);
	drill = read_good("scale@200x50.5+5");
	assert_true(drill.kind == DRILL_SCALE && drill.step == 200 && drill.factor == 50.5 && drill.count == 5);
	drill = read_good("scale@1");
	assert_true(drill.factor == 100 && drill.count == 1);
	drill = read_good("slow@7+9");
	assert_true(drill.kind == DRILL_SLOW && drill.step == 7 && drill.factor == 4 && drill.count == 9);
	drill = read_good("slow@1x0.5+18446744073709551615");
	assert_true(drill.factor == 0.5 && drill.count == UINT64_MAX);
}

static void other_texts_are_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"", "nan", "nan@", "@5", "nan@0", "nan@-1", "nan@ 1", "nan@+1", "nan@1x2",
			"nann@1", "na@1", "scale@1x", "scale@1x0", "scale@1x-2", "scale@1xinf", "scale@1x1e5", "scale@1x1.2.3",
			"scale@1x2+", "scale@1x2+0", "scale@1+2x3", "slow@1 ", "slow@99999999999999999999",
			"slow@1x1111111111111111111111111111111111"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct drill drill;
		if (!drill_read(bad[i], &drill))
			fail_msg("'%s' is taken", bad[i]);
	}
}

static void drill_is_on_for_its_steps_only(void **state)
{
	(void)state;
	const struct drill drills[] = {
			read_good("scale@10x3+2"), read_good("slow@11x5"), read_good("scale@11x7+18446744073709551615")};
	static const double scales[] = {1, 3, 21, 7, 7};
	for (uint64_t step = 9; step < 14; step++) {
		double factor;
		assert_int_equal(drill_is_on(drills, 3, DRILL_SCALE, step, &factor), step > 9);
		assert_true(factor == scales[step - 9]);
		assert_int_equal(drill_is_on(drills, 3, DRILL_SLOW, step, &factor), step == 11);
		assert_true(factor == (step == 11 ? 5 : 1));
		assert_false(drill_is_on(drills, 3, DRILL_NAN, step, &factor));
	}
	double factor;
	assert_true(drill_is_on(drills, 3, DRILL_SCALE, UINT64_MAX, &factor));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drills_are_read),
		cmocka_unit_test(other_texts_are_refused),
		cmocka_unit_test(drill_is_on_for_its_steps_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The joined table of settings: every row holds together, values read and write, what does not fit is told in one line. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/setting.h"

static size_t index_of(const char *name)
{
	size_t index = SETTING_END;
	assert_int_equal(setting_find(name, &index, NULL), 0);
	return index;
}

static void ring_settings_come_first_and_keep_their_numbers(void **state)
{
	(void)state;
	struct ring_settings standard = ring_settings_standard();
	assert_int_equal(index_of("sync.interval"), SYNC_INTERVAL);
	assert_int_equal(index_of("node.name"), RING_SETTING_COUNT);
	assert_int_equal(index_of("node.name"), NODE_NAME);
	for (size_t i = 0; i < SETTING_END; i++) {
		assert_int_equal(setting_at(i)->is_ring, i < RING_SETTING_COUNT);
		if (i < RING_SETTING_COUNT)
			assert_true(setting_standard(i).number == standard.value[i]);
	}
}

static void defaults_are_those_of_the_first_method(void **state)
{
	(void)state;
	struct ring_settings standard = ring_settings_standard();
	assert_string_equal(setting_standard(METHOD).text, "edit");
	assert_string_equal(setting_standard(SYNC_OVERLAP).text, "forward");
	size_t count = 0;
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++)
		for (enum method method = 0; method < METHOD_COUNT; method++) {
			double preset;
			if (!method_presets(method, i, &preset))
				continue;
			assert_true(setting_holds(i, preset));
			assert_true(method != METHOD_EDIT || preset == standard.value[i]);
			count++;
		}
	assert_int_equal(count, 9 * METHOD_COUNT);
}

static void every_row_holds_together(void **state)
{
	(void)state;
	for (size_t i = 0; i < SETTING_END; i++) {
		const struct setting *setting = setting_at(i);
		char buffer[SETTING_TEXT_MAX + 1];
		assert_int_equal(index_of(setting->name), i); /* no name twice */
		assert_true(i == METHOD || strchr(setting->name, '.'));
		assert_true(setting->help[0] != 0);
		assert_true(setting->low <= setting->high);
		assert_true(strlen(setting_expected(i, buffer)) > 0);
		struct setting_value value = setting_standard(i);
		if (setting->type != SETTING_CHOICE || !setting->is_ring)
			assert_string_equal(value.text, setting->standard);
		if (setting->type != SETTING_NAME && setting->type != SETTING_PATH && setting->type != SETTING_ADDRESS) {
			struct setting_value again;
			setting_format(i, value.number, buffer);
			assert_int_equal(setting_parse(i, buffer, &again, NULL), 0);
			assert_true(again.number == value.number);
		}
	}
}

static void ends_of_ranges_are_accepted_and_beyond_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < SETTING_END; i++) {
		const struct setting *setting = setting_at(i);
		if (setting->type != SETTING_COUNT && setting->type != SETTING_REAL && setting->type != SETTING_BYTES)
			continue;
		char text[64];
		struct setting_value value;
		const double ends[2] = {setting->low, setting->high};
		for (size_t j = 0; j < 2; j++) {
			snprintf(text, sizeof(text), "%.17g", ends[j]);
			assert_int_equal(setting_parse(i, text, &value, NULL), 0);
			assert_true(value.number == ends[j]);
			double beyond = ends[j] + (j ? 1 : -1) * fmax(4, fabs(ends[j]));
			snprintf(text, sizeof(text), "%.17g", beyond);
			assert_int_equal(setting_parse(i, text, &value, NULL), EDIT_ERROR_RANGE);
			assert_true(setting_holds(i, ends[j]));
			assert_false(setting_holds(i, beyond));
		}
		assert_false(setting_holds(i, NAN));
		assert_false(setting_holds(i, INFINITY));
	}
}

/* What a bad value is told. */
static void tell(const char *name, const char *text, int error, const char *expected)
{
	struct line why = {"untouched"};
	struct setting_value value = {.number = 4711};
	assert_int_equal(setting_parse(index_of(name), text, &value, &why), error);
	assert_string_equal(why.text, expected);
	assert_true(value.number == 4711);
}

static void bad_values_are_told_in_one_line(void **state)
{
	(void)state;
	tell("sync.interval", "0", EDIT_ERROR_RANGE,
	     "sync.interval: 0 is out of range, expected a whole number from 1 to 1000000000 (steps)");
	tell("sync.interval", "2.5", EDIT_ERROR_INVALID,
	     "sync.interval: 2.5 does not fit, expected a whole number from 1 to 1000000000 (steps)");
	tell("sync.interval", "ten", EDIT_ERROR_INVALID,
	     "sync.interval: \"ten\" is not a number, expected a whole number from 1 to 1000000000 (steps)");
	tell("sync.interval", "", EDIT_ERROR_INVALID,
	     "sync.interval: \"\" is not a number, expected a whole number from 1 to 1000000000 (steps)");
	tell("outer.lr", "-1", EDIT_ERROR_RANGE, "outer.lr: -1 is out of range, expected a number from 0 to 10");
	tell("outer.lr", "nan", EDIT_ERROR_INVALID, "outer.lr: \"nan\" is not a number, expected a number from 0 to 10");
	tell("outer.lr", "0x1", EDIT_ERROR_INVALID, "outer.lr: \"0x1\" is not a number, expected a number from 0 to 10");
	tell("outer.lr", "1e999", EDIT_ERROR_RANGE, "outer.lr: 1e999 is out of range, expected a number from 0 to 10");
	tell("wire.chunk", "1022", EDIT_ERROR_INVALID,
	     "wire.chunk: 1022 does not fit, expected a multiple of 4 from 64 to 4194304 (bytes)");
	tell("node.name", "A b", EDIT_ERROR_INVALID, "node.name: \"A b\" does not fit, expected up to 63 of a-z, 0-9 and -");
	tell("node.run", "", EDIT_ERROR_INVALID, "node.run: \"\" does not fit, expected up to 63 of a-z, 0-9 and -");
	tell("node.runtime_dir", "run", EDIT_ERROR_INVALID,
	     "node.runtime_dir: \"run\" does not fit, expected an absolute path of up to 255 bytes");
	tell("node.listen", "1.2.3.4", EDIT_ERROR_INVALID,
	     "node.listen: \"1.2.3.4\" does not fit, expected tcp://HOST:PORT or ipc://PATH");
	tell("node.plain", "yes", EDIT_ERROR_INVALID, "node.plain: \"yes\" does not fit, expected one of loopback anywhere");
	tell("node.plain", "loop", EDIT_ERROR_INVALID, "node.plain: \"loop\" does not fit, expected one of loopback anywhere");
	tell("checkpoint.at_end", "true", EDIT_ERROR_INVALID, "checkpoint.at_end: \"true\" does not fit, expected yes or no");
	tell("node.name", "a\nb", EDIT_ERROR_INVALID,
	     "node.name: not plain text of up to 255 bytes, expected up to 63 of a-z, 0-9 and -");
}

static void grace_is_none_or_at_least_one_interval(void **state)
{
	(void)state;
	struct setting_value value;
	tell("straggler.grace", "0.99", EDIT_ERROR_INVALID,
	     "straggler.grace: 0.99 does not fit, expected 0, or a number from 1 to 1000000");
	assert_int_equal(setting_parse(STRAGGLER_GRACE, "0", &value, NULL), 0);
	assert_int_equal(setting_parse(STRAGGLER_GRACE, "1", &value, NULL), 0);
	assert_false(setting_holds(STRAGGLER_GRACE, 1e-9));
}

static void method_is_taken_with_its_presets(void **state)
{
	(void)state;
	struct ring_settings settings = ring_settings_standard();
	setting_take(&settings, SYNC_PERIOD, 5);
	assert_true(settings.value[SYNC_PERIOD] == 5);
	setting_take(&settings, METHOD, METHOD_DDP);
	assert_true(settings.value[METHOD] == METHOD_DDP);
	assert_true(settings.value[SYNC_PERIOD] == 0);
	assert_true(settings.value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS);
	assert_true(settings.value[SYNC_INTERVAL] == 128);
}

static void settings_without_a_meaning_together_are_told(void **state)
{
	(void)state;
	const struct {
		enum ring_setting setting;
		double value;
		const char *begin;
	} cases[] = {{SYNC_PERIOD, 5, "sync.period has no meaning where sync.exchange = gradients"},
		     {SYNC_OVERLAP, OVERLAP_STEPS, "sync.overlap = steps has no meaning where sync.exchange = gradients"},
		     {STRAGGLER_GRACE, 1.5, "straggler.grace has no meaning where sync.exchange = gradients"}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ring_settings settings = ring_settings_standard();
		setting_take(&settings, cases[i].setting, cases[i].value);
		assert_null(setting_conflict(&settings, cases[i].setting));
		setting_take(&settings, SYNC_EXCHANGE, EXCHANGE_GRADIENTS);
		const char *conflict = setting_conflict(&settings, cases[i].setting);
		assert_non_null(conflict);
		assert_ptr_equal(strstr(conflict, cases[i].begin), conflict);
	}
	/* A grace that was set before rests. */
	struct ring_settings settings = ring_settings_standard();
	setting_take(&settings, STRAGGLER_GRACE, 1.5);
	setting_take(&settings, METHOD, METHOD_DDP);
	assert_null(setting_conflict(&settings, METHOD));
	setting_take(&settings, STRAGGLER_GRACE, 0);
	assert_null(setting_conflict(&settings, STRAGGLER_GRACE));
}

static void overlong_values_are_refused(void **state)
{
	(void)state;
	char text[400];
	memset(text, '/', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	struct setting_value value;
	assert_int_equal(setting_parse(index_of("node.state_dir"), text, &value, NULL), EDIT_ERROR_INVALID);
	text[SETTING_TEXT_MAX] = 0;
	assert_int_equal(setting_parse(index_of("node.state_dir"), text, &value, NULL), 0);
}

static void good_values_are_read(void **state)
{
	(void)state;
	struct setting_value value;
	assert_int_equal(setting_parse(SYNC_INTERVAL, "  20\t", &value, NULL), 0);
	assert_true(value.number == 20);
	assert_string_equal(value.text, "20");
	assert_int_equal(setting_parse(NODE_PLAIN, "anywhere", &value, NULL), 0);
	assert_true(value.number == 1);
	assert_int_equal(setting_parse(NODE_LOG_LEVEL, "debug", &value, NULL), 0);
	assert_true(value.number == 4);
	assert_int_equal(setting_parse(CHECKPOINT_AT_END, "no", &value, NULL), 0);
	assert_true(value.number == 0);
	assert_int_equal(setting_parse(NODE_CONTROL, "ipc:///run/a.sock", &value, NULL), 0);
	assert_string_equal(value.text, "ipc:///run/a.sock");
	assert_int_equal(setting_parse(NODE_STATE_DIR, "/var/lib/My Data", &value, NULL), 0);
}

static void numbers_are_written_shortest(void **state)
{
	(void)state;
	char buffer[SETTING_TEXT_MAX + 1];
	assert_string_equal(setting_format(OUTER_LR, 0.8, buffer), "0.8");
	assert_string_equal(setting_format(OUTER_LR, 0.1 + 0.2, buffer), "0.30000000000000004");
	assert_string_equal(setting_format(SYNC_INTERVAL, 1e9, buffer), "1000000000");
	assert_string_equal(setting_format(NODE_PLAIN, 1, buffer), "anywhere");
	assert_string_equal(setting_format(NODE_LOG_LEVEL, 2, buffer), "notice");
	assert_string_equal(setting_format(CHECKPOINT_AT_END, 1, buffer), "yes");
}

static void unknown_names_get_the_nearest_one(void **state)
{
	(void)state;
	struct line why;
	size_t index = 4711;
	assert_int_equal(setting_find("sync.intervall", &index, &why), EDIT_ERROR_UNKNOWN);
	assert_string_equal(why.text, "unknown setting sync.intervall, did you mean sync.interval?");
	assert_int_equal(setting_find("something.else.entirely", &index, &why), EDIT_ERROR_UNKNOWN);
	assert_string_equal(why.text, "unknown setting something.else.entirely");
	assert_int_equal(setting_find("", &index, &why), EDIT_ERROR_UNKNOWN);
	char name[1000];
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(setting_find(name, &index, &why), EDIT_ERROR_UNKNOWN);
	assert_int_equal(index, 4711);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_settings_come_first_and_keep_their_numbers),
		cmocka_unit_test(defaults_are_those_of_the_first_method),
		cmocka_unit_test(every_row_holds_together),
		cmocka_unit_test(ends_of_ranges_are_accepted_and_beyond_is_refused),
		cmocka_unit_test(bad_values_are_told_in_one_line),
		cmocka_unit_test(grace_is_none_or_at_least_one_interval),
		cmocka_unit_test(method_is_taken_with_its_presets),
		cmocka_unit_test(settings_without_a_meaning_together_are_told),
		cmocka_unit_test(overlong_values_are_refused),
		cmocka_unit_test(good_values_are_read),
		cmocka_unit_test(numbers_are_written_shortest),
		cmocka_unit_test(unknown_names_get_the_nearest_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Text, sizes and addresses from outside. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "proto/address.h"

static bool is_plain(const char *text)
{
	return text_is_plain(text, strlen(text));
}

static void valid_text_is_plain(void **state)
{
	(void)state;
	assert_true(is_plain(""));
	assert_true(is_plain("block 0"));
	assert_true(is_plain("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"));
}

static void broken_utf8_is_not_plain(void **state)
{
	(void)state;
	static const char *const broken[] = {
		"\x80", "\xc3", "a\xc3 b", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
		"\xff", "\xe2\x82", "\xf0\x9f\x98"};
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		assert_false(is_plain(broken[i]));
		assert_false(text_is_document(broken[i], strlen(broken[i])));
	}
}

static void control_characters_are_not_plain(void **state)
{
	(void)state;
	assert_false(is_plain("a\nb"));
	assert_false(is_plain("\x1b[2J"));
	assert_false(is_plain("\x7f"));
	assert_false(is_plain("\xc2\x9b" "2J")); /* the one-character form of escape [ */
	assert_false(text_is_plain("a\0b", 3));
	assert_true(text_is_document("{\r\n\t1\n}", 7));
	assert_false(text_is_document("a\0b", 3));
	assert_false(text_is_document("\x1b", 1));
}

static void names_are_short_and_lower_case(void **state)
{
	(void)state;
	assert_true(text_is_name("node-1"));
	assert_true(text_is_name("123456789012345678901234567890123456789012345678901234567890123"));
	assert_false(text_is_name("1234567890123456789012345678901234567890123456789012345678901234"));
	assert_false(text_is_name(""));
	assert_false(text_is_name("Node"));
	assert_false(text_is_name("a b"));
	assert_false(text_is_name("a/b"));
}

static void sizes_read_well(void **state)
{
	(void)state;
	char buffer[SIZE_TEXT_BYTES];
	assert_string_equal(text_size(0, buffer), "0 B");
	assert_string_equal(text_size(1023, buffer), "1023 B");
	assert_string_equal(text_size(1572864, buffer), "1.5 MiB");
	assert_string_equal(text_size(UINT64_MAX, buffer), "16777216.0 TiB");
}

static void long_lines_are_cut_and_give_their_error(void **state)
{
	(void)state;
	struct line line;
	assert_int_equal(line_fail(&line, EDIT_ERROR_RANGE, "%0600d", 1), EDIT_ERROR_RANGE);
	assert_int_equal(strlen(line.text), LINE_BYTES - 1);
	assert_int_equal(line_fail(NULL, EDIT_ERROR_FULL, "x"), EDIT_ERROR_FULL);
}

static void addresses_are_taken_apart(void **state)
{
	(void)state;
	struct address address;
	assert_int_equal(address_parse("tcp://127.0.0.1:7400", &address, NULL), 0);
	assert_int_equal(address.kind, ADDRESS_TCP);
	assert_string_equal(address.host, "127.0.0.1");
	assert_int_equal(address.port, 7400);
	assert_int_equal(address_parse("tcp://[fe80::1]:65535", &address, NULL), 0);
	assert_string_equal(address.host, "fe80::1");
	assert_int_equal(address.port, 65535);
	assert_int_equal(address_parse("tcp://node-1.example.org:1", &address, NULL), 0);
	assert_int_equal(address_parse("tcp://*:7400", &address, NULL), 0);
	assert_string_equal(address.host, "*");
	assert_int_equal(address_parse("ipc:///run/editd/control.sock", &address, NULL), 0);
	assert_int_equal(address.kind, ADDRESS_IPC);
	assert_string_equal(address.path, "/run/editd/control.sock");
}

static void bad_addresses_are_refused_and_quoted(void **state)
{
	(void)state;
	static const char *const bad[] = {"", "127.0.0.1:7400", "tcp://", "tcp://a", "tcp://a:", "tcp://:7400", "tcp://a:0",
					  "tcp://a:65536", "tcp://a:7x", "tcp://a:+7", "tcp://a b:7", "tcp://[::1:7", "tcp://[x]:7",
					  "tcp://::1:7", "tcp://-a:7", "udp://a:7", "ipc://relative", "ipc://", "http://a:7"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct address address = {.port = 4711};
		struct line why;
		if (address_parse(bad[i], &address, &why) != EDIT_ERROR_INVALID)
			fail_msg("accepted: %s", bad[i]);
		assert_int_equal(address.port, 4711);
		assert_non_null(strstr(why.text, bad[i]));
		assert_non_null(strstr(why.text, "expected"));
	}
	char path[200] = "ipc:///";
	memset(path + 7, 'x', 107);
	assert_int_equal(address_parse(path, &(struct address){0}, NULL), EDIT_ERROR_INVALID);
	path[6 + 107] = 0;
	assert_int_equal(address_parse(path, &(struct address){0}, NULL), 0);
}

static bool is_loopback(const char *text)
{
	struct address address;
	assert_int_equal(address_parse(text, &address, NULL), 0);
	return address_is_loopback(&address);
}

static void loopback_is_told_from_networks(void **state)
{
	(void)state;
	assert_true(is_loopback("tcp://127.0.0.1:1"));
	assert_true(is_loopback("tcp://127.1.2.3:1"));
	assert_true(is_loopback("tcp://[::1]:1"));
	assert_true(is_loopback("tcp://localhost:1"));
	assert_true(is_loopback("ipc:///x"));
	assert_false(is_loopback("tcp://*:1"));
	assert_false(is_loopback("tcp://0.0.0.0:1"));
	assert_false(is_loopback("tcp://10.0.0.1:1"));
	assert_false(is_loopback("tcp://[::]:1"));
	assert_false(is_loopback("tcp://127.0.0.1.example.org:1"));
	assert_false(is_loopback("tcp://eth0:1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_text_is_plain),
		cmocka_unit_test(broken_utf8_is_not_plain),
		cmocka_unit_test(control_characters_are_not_plain),
		cmocka_unit_test(names_are_short_and_lower_case),
		cmocka_unit_test(sizes_read_well),
		cmocka_unit_test(long_lines_are_cut_and_give_their_error),
		cmocka_unit_test(addresses_are_taken_apart),
		cmocka_unit_test(bad_addresses_are_refused_and_quoted),
		cmocka_unit_test(loopback_is_told_from_networks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Files of keys: what is taken, and that what is refused is one line that names the file and never the key. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/keyfile.h"
#include "tests/scratch.h"

static struct line why;
static char public_key[KEY_BYTES], secret_key[KEY_BYTES];

static int make_keys(void **state)
{
	if (zmq_curve_keypair(public_key, secret_key) != 0)
		return -1;
	return scratch_make(state);
}

/* A file of that text, in which %s is the key. */
static const char *write_key(const char *format, const char *key, mode_t mode)
{
	char text[500];
	snprintf(text, sizeof text, format, key);
	scratch_unlink("key"); /* it may be somebody else's */
	const char *path = scratch_write("key", text, strlen(text));
	assert_int_equal(chmod(path, mode), 0);
	why.text[0] = 0;
	return path;
}

static void what_libzmq_makes_is_a_key_and_nothing_else_is(void **state)
{
	(void)state;
	uint8_t raw[32];
	char public[KEY_BYTES], secret[KEY_BYTES];
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(zmq_curve_keypair(public, secret), 0);
		assert_true(keyfile_is_key(public));
		assert_true(keyfile_is_key(secret));
	}
	memset(raw, 0xff, sizeof raw);
	zmq_z85_encode(public, raw, sizeof raw);
	assert_true(keyfile_is_key(public));
	public[4]++; /* one more than 32 bits hold */
	assert_false(keyfile_is_key(public));
	assert_false(keyfile_is_key(""));
	assert_false(keyfile_is_key("0123456789012345678901234567890123456789x"));
	assert_false(keyfile_is_key("012345678901234567890123456789012345678"));
	assert_false(keyfile_is_key("012345678901234567890123456789012345678;"));
	assert_false(keyfile_is_key("\xc3\xa4" "34567890123456789012345678901234567890"));
}

static void all_characters_of_a_key_are_read(void **state)
{
	(void)state;
	char key[KEY_BYTES];
	for (int i = 0; i < 200; i++) {
		assert_int_equal(zmq_curve_keypair(public_key, secret_key), 0);
		assert_int_equal(keyfile_read_public(write_key("# of a\npublic = %s\n", public_key, 0644), false, key, NULL, &why), 0);
		assert_string_equal(key, public_key);
		assert_int_equal(keyfile_read_secret(write_key("secret=%s", secret_key, 0600), key, &why), 0);
		assert_string_equal(key, secret_key);
	}
	/* All but the last of the alphabet, and what stands for itself in an INI file. */
	const char *rare = "0#=#:0[]{}0.-:+0^!/*0?&<>0()@%0$abc0zZ09";
	assert_true(keyfile_is_key(rare));
	assert_int_equal(keyfile_read_public(write_key("public = %s\n", rare, 0644), false, key, NULL, &why), 0);
	assert_string_equal(key, rare);
}

static void rights_are_those_of_a_client_alone_and_looking_is_the_least(void **state)
{
	(void)state;
	char key[KEY_BYTES];
	bool may_change = true;
	assert_int_equal(keyfile_read_public(write_key("public = %s\n", public_key, 0644), true, key, &may_change, &why), 0);
	assert_false(may_change);
	const char *path = write_key("rights = change\npublic = %s\n", public_key, 0644);
	assert_int_equal(keyfile_read_public(path, true, key, &may_change, &why), 0);
	assert_true(may_change);
	assert_int_equal(keyfile_read_public(path, false, key, NULL, &why), EDIT_ERROR_INVALID);
	path = write_key("public = %s\nrights = read\n", public_key, 0644);
	assert_int_equal(keyfile_read_public(path, true, key, &may_change, &why), 0);
	assert_false(may_change);
}

static void refuses_public(const char *format, const char *expected)
{
	char key[KEY_BYTES] = "as it was";
	bool may_change = true;
	const char *path = write_key(format, public_key, 0644);
	assert_int_not_equal(keyfile_read_public(path, true, key, &may_change, &why), 0);
	assert_string_equal(key, "as it was");
	assert_true(may_change);
	assert_int_equal(strncmp(why.text, path, strlen(path)), 0);
	assert_non_null(strstr(why.text, expected));
	assert_null(strstr(why.text, public_key));
}

static void public_files_that_hold_something_else_are_refused(void **state)
{
	(void)state;
	refuses_public("", "no key in it, expected public = KEY");
	refuses_public("public = %s1\n", ":1: public: not a key, expected 40 characters");
	refuses_public("# hello\n\npublic =\n", ":3: public: not a key");
	refuses_public("public = %1$s\npublic = %1$s\n", ":2: public: given twice");
	refuses_public("secret = %s\n", "a secret key where a public one was expected; it must not leave its machine");
	refuses_public("[curve]\npublic = %s\n", ":2: a section");
	refuses_public("%s\n", ":1: ");
	refuses_public("public = %s\nrights = all\n", ":2: rights: expected read or change");
	refuses_public("public = %s\nrights = read\nrights = change\n", ":3: rights: given twice");
	refuses_public("key = %s\n", ":1: expected public = KEY");
}

static void file_that_is_not_there_is_told_apart(void **state)
{
	(void)state;
	char key[KEY_BYTES];
	assert_int_equal(keyfile_read_public(scratch_path("absent.pub"), false, key, NULL, &why), EDIT_ERROR_UNKNOWN);
	assert_int_equal(keyfile_read_secret(scratch_path("absent"), key, &why), EDIT_ERROR_UNKNOWN);
	assert_int_equal(keyfile_read_public(scratch_path(""), false, key, NULL, &why), EDIT_ERROR_INVALID);
}

static void refuses_secret(const char *path, int error, const char *expected)
{
	char key[KEY_BYTES] = "as it was";
	why.text[0] = 0;
	assert_int_equal(keyfile_read_secret(path, key, &why), error);
	assert_string_equal(key, "as it was");
	assert_non_null(strstr(why.text, expected));
	assert_null(strstr(why.text, secret_key));
}

static void secret_that_others_can_get_at_is_refused(void **state)
{
	(void)state;
	char key[KEY_BYTES];
	static const mode_t modes[] = {0640, 0604, 0620, 0610, 0601};
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		refuses_secret(write_key("secret = %s\n", secret_key, modes[i]), EDIT_ERROR_REFUSED, "lets others at the secret key, expected 0600");
	const char *path = write_key("secret = %s\n", secret_key, 0600);
	assert_int_equal(chmod(scratch_path(""), 0770), 0);
	refuses_secret(path, EDIT_ERROR_REFUSED, "lets others put keys into it");
	assert_int_equal(chmod(scratch_path(""), 0700), 0);
	assert_int_equal(keyfile_read_secret(path, key, &why), 0);
	if (geteuid() != 0)
		return; /* only root can give a file away */
	assert_int_equal(chown(path, 65534, 65534), 0);
	refuses_secret(path, EDIT_ERROR_REFUSED, "belongs to uid 65534, expected uid 0, the owner of its folder");
	assert_int_equal(chown(scratch_path(""), 65534, 65534), 0);
	assert_int_equal(keyfile_read_secret(path, key, &why), 0);
	assert_int_equal(chown(scratch_path(""), 0, 0), 0);
}

static void secret_that_is_none_is_refused(void **state)
{
	(void)state;
	refuses_secret(write_key("public = %s\n", public_key, 0600), EDIT_ERROR_INVALID, ":1: expected secret = KEY");
	refuses_secret(write_key("secret = %s5\n", secret_key, 0600), EDIT_ERROR_INVALID, ":1: secret: not a key");
	refuses_secret(write_key("%s\n", secret_key, 0600), EDIT_ERROR_INVALID, ":1: ");
	refuses_secret(write_key("", secret_key, 0600), EDIT_ERROR_INVALID, "no key in it");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_libzmq_makes_is_a_key_and_nothing_else_is),
		cmocka_unit_test(all_characters_of_a_key_are_read),
		cmocka_unit_test(rights_are_those_of_a_client_alone_and_looking_is_the_least),
		cmocka_unit_test(public_files_that_hold_something_else_are_refused),
		cmocka_unit_test(file_that_is_not_there_is_told_apart),
		cmocka_unit_test(secret_that_others_can_get_at_is_refused),
		cmocka_unit_test(secret_that_is_none_is_refused),
	};
	return cmocka_run_group_tests(tests, make_keys, scratch_remove);
}

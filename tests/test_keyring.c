/* The folder of keys of one member: what of it is needed, and that what is missing or wrong is one line that names it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#include "daemon/keyring.h"
#include "tests/scratch.h"

enum { A, B, C, TOOL, OTHER, PAIRS };

static struct { char public_key[KEY_BYTES], secret_key[KEY_BYTES]; } pairs[PAIRS];
static const char *const names[] = {"a", "b", "c"};
static struct line why;

static void write_public(const char *name, int pair, const char *rights)
{
	char text[200];
	snprintf(text, sizeof text, "public = %s\n%s", pairs[pair].public_key, rights);
	scratch_write(name, text, strlen(text));
}

static void write_secret(int pair)
{
	char text[200];
	snprintf(text, sizeof text, "secret = %s\n", pairs[pair].secret_key);
	scratch_unlink("keys/secret");
	assert_int_equal(chmod(scratch_write("keys/secret", text, strlen(text)), 0600), 0);
}

/* The folder of a, whole. */
static int make_folder(void **state)
{
	if (scratch_make(state) != 0 || mkdir(scratch_path("keys"), 0700) != 0 || mkdir(scratch_path("keys/clients"), 0700) != 0)
		return -1;
	for (int i = 0; i < PAIRS; i++)
		if (zmq_curve_keypair(pairs[i].public_key, pairs[i].secret_key) != 0)
			return -1;
	write_secret(A);
	write_public("keys/b.pub", B, "");
	write_public("keys/c.pub", C, "");
	return 0;
}

/* The keyring of a, of a ring of three; more: of the config. */
static int open_keyring(const char *more, struct keyring *ret_keyring)
{
	char text[1000];
	struct config config;
	snprintf(text, sizeof text,
		 "[node]\nname = a\nkeys = %s\n%s\n[members]\na = tcp://10.0.0.1:1\nb = tcp://10.0.0.2:1\nc = tcp://10.0.0.3:1\n",
		 scratch_path("keys"), more);
	why.text[0] = 0;
	assert_int_equal(config_open(scratch_write("editd.conf", text, strlen(text)), &config, &why), 0);
	int error = keyring_open(&config, ret_keyring, &why);
	config_close(&config);
	return error;
}

/* a's keyring is refused, and the line begins with the path of a file in its folder. */
static void refuses(const char *more, const char *file, const char *expected)
{
	struct keyring keyring = {.client_count = 77};
	const char *path = scratch_path(file);
	assert_int_not_equal(open_keyring(more, &keyring), 0);
	assert_int_equal(keyring.client_count, 77);
	assert_int_equal(strncmp(why.text, path, strlen(path)), 0);
	assert_non_null(strstr(why.text, expected));
}

static void members_are_known_by_their_keys(void **state)
{
	(void)state;
	struct keyring keyring;
	assert_int_equal(open_keyring("", &keyring), 0);
	assert_true(keyring.has_keys);
	assert_string_equal(keyring.public_key, pairs[A].public_key);
	assert_int_equal(keyring.member_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_string_equal(keyring_member(&keyring, pairs[i].public_key), names[i]);
		assert_string_equal(keyring_key(&keyring, names[i]), pairs[i].public_key);
	}
	assert_null(keyring_member(&keyring, pairs[OTHER].public_key));
	assert_null(keyring_member(&keyring, ""));
	assert_null(keyring_key(&keyring, "d"));
	assert_null(keyring_key(&keyring, ""));
	assert_null(keyring_client(&keyring, pairs[B].public_key));
	keyring_close(&keyring);
}

static void ring_without_encryption_needs_no_key(void **state)
{
	(void)state;
	struct keyring keyring;
	assert_int_equal(open_keyring("curve = no\nplain = anywhere", &keyring), 0);
	assert_false(keyring.has_keys);
	assert_int_equal(keyring.member_count, 0);
	assert_null(keyring_member(&keyring, ""));
	keyring_close(&keyring);
}

static void keys_of_members_that_are_not_in_the_list_are_known_too(void **state)
{
	(void)state;
	struct keyring keyring;
	write_public("keys/later.pub", OTHER, "");
	scratch_write("keys/later.pub.old", "x", 1);
	assert_int_equal(open_keyring("", &keyring), 0);
	assert_int_equal(keyring.member_count, 4);
	assert_string_equal(keyring_member(&keyring, pairs[OTHER].public_key), "later");
	assert_string_equal(keyring_key(&keyring, "later"), pairs[OTHER].public_key);
	keyring_close(&keyring);
	write_public("keys/later.pub", B, "");
	refuses("", "keys/later.pub", "the same key as that of b");
	write_public("keys/later.pub", A, "");
	refuses("", "keys/later.pub", "the same key as that of a");
	scratch_write("keys/later.pub", "", 0);
	refuses("", "keys/later.pub", "no key in it");
	scratch_unlink("keys/later.pub");
	write_public("keys/Later.pub", OTHER, "");
	refuses("", "keys/Later.pub", "not a name, expected 1 to 63 of [a-z0-9-] and .pub");
	scratch_unlink("keys/Later.pub");
	scratch_unlink("keys/later.pub.old");
}

static void member_whose_key_is_missing_is_named(void **state)
{
	(void)state;
	scratch_unlink("keys/c.pub");
	refuses("", "keys/c.pub", "no public key of member c there; copy it from c, where `editctl keygen c` made it");
	scratch_unlink("keys/b.pub");
	refuses("", "keys/b.pub", "no public key of member b there (and 1 more are missing)");
	write_public("keys/b.pub", B, "");
	write_public("keys/c.pub", C, "");
}

static void secret_key_that_is_missing_or_open_is_refused(void **state)
{
	(void)state;
	scratch_unlink("keys/secret");
	refuses("curve = yes", "keys/secret", "no secret key of a there; `editctl keygen a --out ");
	refuses("curve = no\nplain = anywhere\n[control]\nlisten = tcp://*:9", "keys/secret", "no secret key of a there");
	write_secret(A);
	assert_int_equal(chmod(scratch_path("keys/secret"), 0644), 0);
	refuses("", "keys/secret", "mode 0644 lets others at the secret key");
	write_secret(A);
}

static void keys_that_do_not_belong_together_are_refused(void **state)
{
	(void)state;
	struct keyring keyring;
	write_public("keys/a.pub", A, "");
	assert_int_equal(open_keyring("", &keyring), 0);
	keyring_close(&keyring);
	write_public("keys/a.pub", B, "");
	refuses("", "keys/a.pub", "not the public key of the secret one beside it; is node.name = a right");
	scratch_unlink("keys/a.pub");
	write_public("keys/c.pub", B, "");
	refuses("", "keys/c.pub", "the same key as that of b");
	write_public("keys/c.pub", A, "");
	refuses("", "keys/c.pub", "the same key as that of a");
	scratch_write("keys/c.pub", "public = x\n", 11);
	refuses("", "keys/c.pub", ":1: public: not a key");
	write_public("keys/c.pub", C, "rights = change\n");
	refuses("", "keys/c.pub", ":2: expected public = KEY");
	write_public("keys/c.pub", C, "");
}

static void clients_are_read_where_they_may_come_in_and_keep_their_rights(void **state)
{
	(void)state;
	static const char listen[] = "[control]\nlisten = tcp://*:9";
	struct keyring keyring;
	write_public("keys/clients/tool.pub", TOOL, "");
	write_public("keys/clients/boss.pub", OTHER, "rights = change\n");
	assert_int_equal(open_keyring("", &keyring), 0);
	assert_int_equal(keyring.client_count, 0);
	keyring_close(&keyring);
	assert_int_equal(open_keyring(listen, &keyring), 0);
	assert_int_equal(keyring.client_count, 2);
	assert_string_equal(keyring_client(&keyring, pairs[TOOL].public_key)->name, "tool");
	assert_false(keyring_client(&keyring, pairs[TOOL].public_key)->may_change);
	assert_true(keyring_client(&keyring, pairs[OTHER].public_key)->may_change);
	assert_null(keyring_client(&keyring, pairs[B].public_key));
	keyring_close(&keyring);

	write_public("keys/clients/zoe.pub", TOOL, "");
	refuses(listen, "keys/clients/zoe.pub", "the same key as that of tool");
	scratch_unlink("keys/clients/zoe.pub");
	write_public("keys/clients/Zoe.pub", B, "");
	refuses(listen, "keys/clients/Zoe.pub", "not a name");
	scratch_unlink("keys/clients/Zoe.pub");
	scratch_write("keys/clients/tool.pub", "rights = read\n", 14);
	refuses(listen, "keys/clients/tool.pub", "no key in it");
	scratch_unlink("keys/clients/tool.pub");
	scratch_unlink("keys/clients/boss.pub");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_known_by_their_keys),
		cmocka_unit_test(ring_without_encryption_needs_no_key),
		cmocka_unit_test(keys_of_members_that_are_not_in_the_list_are_known_too),
		cmocka_unit_test(member_whose_key_is_missing_is_named),
		cmocka_unit_test(secret_key_that_is_missing_or_open_is_refused),
		cmocka_unit_test(keys_that_do_not_belong_together_are_refused),
		cmocka_unit_test(clients_are_read_where_they_may_come_in_and_keep_their_rights),
	};
	return cmocka_run_group_tests(tests, make_folder, scratch_remove);
}

/* The config file: what is taken, what is refused, and that each refusal is one line that names file, line and key. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/config.h"
#include "tests/scratch.h"

#define MEMBERS "[members]\na = tcp://127.0.0.1:7001\nb = tcp://127.0.0.1:7002\n"

static struct line why;

static const char *write_file(const char *text)
{
	return scratch_write("editd.conf", text, strlen(text));
}

/* What is installed on the machine of the test is no part of it. */
static void write_no_keys(void)
{
	mkdir(scratch_path("editd.conf.d"), 0700);
	scratch_write("editd.conf.d/keys.conf", "[node]\ncurve = no\n", 18);
}

static int make_folder(void **state)
{
	if (scratch_make(state) != 0)
		return -1;
	write_no_keys();
	return 0;
}

/* Reads text; the line on failure is in why. */
static int read_text(const char *text, struct config *ret_config)
{
	why.text[0] = 0;
	return config_open(write_file(text), ret_config, &why);
}

/* text is refused with error, and the line begins with the file's path and then `rest`. */
#define NAMED "[node]\nname = a\n[members]\na = tcp://127.0.0.1:5555\n"

static void refuses(const char *text, int error, const char *rest)
{
	struct config config = {0};
	char expected[600];
	assert_int_equal(read_text(text, &config), error);
	snprintf(expected, sizeof expected, "%s%s", scratch_path("editd.conf"), rest);
	why.text[strlen(expected) < sizeof why.text ? strlen(expected) : 0] = 0;
	assert_string_equal(why.text, expected);
}

static void settings_and_members_are_taken(void **state)
{
	(void)state;
	struct config config;
	assert_int_equal(read_text("# text\n[node]\nname = b ; this one\nrun=x\n[sync]\ninterval = 10\n" MEMBERS, &config), 0);
	assert_int_equal(config.member_count, 2);
	assert_int_equal(config.rank, 1);
	assert_string_equal(config.names[0], "a");
	assert_string_equal(config.addresses[1], "tcp://127.0.0.1:7002");
	assert_string_equal(config.listen, "tcp://127.0.0.1:7002");
	assert_string_equal(config.control, "ipc:///run/editd/control.sock");
	assert_true(config_number(&config, SYNC_INTERVAL) == 10);
	assert_true(config_ring(&config).value[SYNC_INTERVAL] == 10);
	assert_true(config_ring(&config).value[OUTER_LR] == 0.8);
	assert_string_equal(config_text(&config, NODE_RUN), "x");
	config_close(&config);
}

static void drop_ins_follow_in_order_and_win(void **state)
{
	(void)state;
	struct config config;
	mkdir(scratch_path("editd.conf.d"), 0700);
	scratch_write("editd.conf.d/20-last.conf", "[sync]\ninterval = 30\n", 21);
	scratch_write("editd.conf.d/10-first.conf", "[sync]\ninterval = 20\n[outer]\nlr = 0.25\n", 38);
	scratch_write("editd.conf.d/ignored.txt", "nonsense", 8);
	scratch_write("editd.conf.d/30-members.conf", "[members]\na = tcp://127.0.0.1:7009\n", 35);
	assert_int_equal(read_text("[node]\nname = a\n[sync]\ninterval = 10\n" MEMBERS, &config), 0);
	assert_true(config_number(&config, SYNC_INTERVAL) == 30);
	assert_true(config_number(&config, OUTER_LR) == 0.25);
	assert_int_equal(config.member_count, 1);
	assert_string_equal(config.listen, "tcp://127.0.0.1:7009");
	config_close(&config);

	scratch_write("editd.conf.d/20-last.conf", "[sync]\n\ninterval = 0\n", 21);
	assert_int_equal(read_text("[node]\nname = a\n" MEMBERS, &config), EDIT_ERROR_RANGE);
	assert_non_null(strstr(why.text, "20-last.conf:3: sync.interval: 0 is out of range, expected "));
	scratch_unlink("editd.conf.d/20-last.conf");
	scratch_unlink("editd.conf.d/10-first.conf");
	scratch_unlink("editd.conf.d/30-members.conf");
}

static void method_presets_what_no_file_gives(void **state)
{
	(void)state;
	struct config config;
	mkdir(scratch_path("editd.conf.d"), 0700);
	const char *method = "method = diloco\n";
	scratch_write("editd.conf.d/method.conf", method, strlen(method));
	assert_int_equal(read_text("[node]\nname = a\n[outer]\nlr = 0.25\n" MEMBERS, &config), 0);
	scratch_unlink("editd.conf.d/method.conf");
	struct ring_settings ring = config_ring(&config), standard = ring_settings_standard();
	double preset;
	assert_true(ring.value[METHOD] == METHOD_DILOCO);
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++) {
		if (i == METHOD)
			continue;
		if (!method_presets(METHOD_DILOCO, i, &preset))
			preset = standard.value[i];
		assert_true(ring.value[i] == (i == OUTER_LR ? 0.25 : preset));
	}
	assert_string_equal(config_text(&config, SYNC_OVERLAP), "none");
	config_close(&config);
	refuses("method = sgd\n", EDIT_ERROR_INVALID, ":1: method: \"sgd\" does not fit, expected one of edit a-edit diloco local-sgd co2 ddp");
}

static void unknown_names_are_refused_with_file_and_line(void **state)
{
	(void)state;
	refuses("[sync]\n\nintervall = 3\n", EDIT_ERROR_UNKNOWN, ":3: unknown setting sync.intervall, did you mean sync.interval?");
	refuses("[snyc]\ninterval = 3\n", EDIT_ERROR_UNKNOWN, ":2: [snyc]: unknown section, expected node, ");
	refuses("interval = 3\n", EDIT_ERROR_INVALID, ":1: interval: stands outside a [section]");
}

static void values_out_of_range_are_refused_with_the_range(void **state)
{
	(void)state;
	refuses("[sync]\ninterval = 0\n", EDIT_ERROR_RANGE,
		":2: sync.interval: 0 is out of range, expected a whole number from 1 to ");
	refuses("[outer]\nlr = fast\n", EDIT_ERROR_INVALID, ":2: outer.lr: ");
	refuses("[sync]\ninterval = 1.5\n", EDIT_ERROR_INVALID, ":2: sync.interval: ");
	refuses("[node]\nlog_level = loud\n", EDIT_ERROR_INVALID, ":2: node.log_level: ");
	refuses("[straggler]\ngrace = 0.5\n", EDIT_ERROR_INVALID,
		":2: straggler.grace: 0.5 does not fit, expected 0, or a number from 1 to ");
}

static void settings_without_a_meaning_together_are_refused(void **state)
{
	(void)state;
	refuses("method = ddp\n[sync]\nperiod = 5\n" NAMED, EDIT_ERROR_INVALID, ": sync.period has no meaning where ");
	refuses("method = ddp\n[sync]\noverlap = steps\n" NAMED, EDIT_ERROR_INVALID, ": sync.overlap = steps has no meaning where ");
	refuses("method = ddp\n[straggler]\ngrace = 2\n" NAMED, EDIT_ERROR_INVALID, ": straggler.grace has no meaning where ");
	refuses("[sync]\nexchange = gradients\nperiod = 5\n" NAMED, EDIT_ERROR_INVALID, ": sync.period has no meaning where ");
}

static void lines_that_are_no_settings_are_refused(void **state)
{
	(void)state;
	char text[1400] = "[node]\nname = ";
	refuses("[node]\nname\n", EDIT_ERROR_INVALID, ":2: expected [section], key = value or a comment");
	refuses("[node\n", EDIT_ERROR_INVALID, ":1: expected [section], key = value or a comment");
	memset(text + strlen(text), 'x', 1200);
	refuses(text, EDIT_ERROR_RANGE, ":2: line too long, expected at most 1000 bytes");
}

static void what_the_reader_would_pass_over_is_refused(void **state)
{
	(void)state;
	struct config config = {0};
	scratch_write("editd.conf", "[sync]\ninterval = 5\0 0\n", 24);
	assert_int_equal(config_open(scratch_path("editd.conf"), &config, &why), EDIT_ERROR_INVALID);
	assert_non_null(strstr(why.text, ":2: a zero byte, expected text"));
	refuses("[node]\n[sync] interval = 5\n", EDIT_ERROR_INVALID, ":2: more behind [section]");
	refuses("[node]\rname = a\r" MEMBERS, EDIT_ERROR_INVALID, ":1: more behind [section]");
	assert_int_equal(read_text("[node] ; us\r\nname = a\r\n [sync]\t# ours\ninterval = 7\n" MEMBERS, &config), 0);
	assert_true(config_number(&config, SYNC_INTERVAL) == 7);
	config_close(&config);
}

static void fifo_that_nobody_writes_to_is_not_waited_for(void **state)
{
	(void)state;
	struct config config = {0};
	assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
	assert_int_equal(config_open(scratch_path("fifo"), &config, &why), EDIT_ERROR_INVALID);
	assert_non_null(strstr(why.text, "node.name: not given"));
}

static void what_is_given_twice_is_refused(void **state)
{
	(void)state;
	refuses("[sync]\ninterval = 3\ninterval = 3\n", EDIT_ERROR_INVALID, ":3: sync.interval: given twice in this file");
	refuses(MEMBERS "a = tcp://127.0.0.1:7003\n", EDIT_ERROR_INVALID, ":4: members.a: name given twice");
	refuses(MEMBERS "c = tcp://127.0.0.1:7002\n", EDIT_ERROR_INVALID, ":4: members.c: tcp://127.0.0.1:7002 given twice");
}

static void members_that_cannot_be_are_refused(void **state)
{
	(void)state;
	refuses("[members]\nA = tcp://127.0.0.1:7002\n", EDIT_ERROR_INVALID, ":2: members.A: not a name, expected ");
	refuses("[members]\na = tcp://127.0.0.1\n", EDIT_ERROR_INVALID, ":2: members.a: ");
	refuses("[members]\na = ipc:///x\n", EDIT_ERROR_INVALID, ":2: members.a: \"ipc:///x\" is not tcp://HOST:PORT");
	refuses("[members]\na = tcp://*:1\n", EDIT_ERROR_INVALID, ":2: members.a: \"tcp://*:1\" is not tcp://HOST:PORT");
}

static void what_only_the_whole_shows_is_refused(void **state)
{
	(void)state;
	refuses(MEMBERS, EDIT_ERROR_INVALID, ": node.name: not given");
	refuses("[node]\nname = a\n", EDIT_ERROR_INVALID, ": [members]: empty");
	refuses("[node]\nname = c\n" MEMBERS, EDIT_ERROR_INVALID, ": node.name: \"c\" is not in [members]");
	refuses("[node]\nname = a\nheartbeat_ms = 2000\n" MEMBERS, EDIT_ERROR_RANGE, ": node.silence_ms: 3000 is too short");
	refuses("[node]\nname = a\nruntime_dir = /run/"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" MEMBERS,
		EDIT_ERROR_RANGE, ": node.runtime_dir: ");
}

static void plain_tcp_beyond_this_host_must_be_asked_for_by_name(void **state)
{
	(void)state;
	struct config config;
	refuses("[node]\nname = a\nlisten = tcp://*:7001\n" MEMBERS, EDIT_ERROR_INVALID,
		": node.listen: tcp://*:7001 leaves this host unencrypted; make keys (`editctl keygen`), or set node.plain = anywhere");
	refuses("[node]\nname = a\n" MEMBERS "c = tcp://10.0.0.1:7001\n", EDIT_ERROR_INVALID,
		": members.c: tcp://10.0.0.1:7001 leaves this host unencrypted");
	assert_int_equal(read_text("[node]\nname = a\nplain = anywhere\n" MEMBERS "c = tcp://10.0.0.1:7001\n", &config), 0);
	config_close(&config);
}

#define KEYS(curve) "[node]\nname = a\ncurve = " curve "\nkeys = %s\n" MEMBERS "c = tcp://10.0.0.1:7001\n"

/* With a folder of keys, which has a file in the place of the secret key or not. */
static int read_with_keys(const char *format, bool has_secret, struct config *ret_config)
{
	char text[1000];
	scratch_unlink("editd.conf.d/keys.conf");
	scratch_unlink("keys/secret");
	mkdir(scratch_path("keys"), 0700);
	if (has_secret)
		scratch_write("keys/secret", "", 0);
	snprintf(text, sizeof text, format, scratch_path("keys"));
	int error = read_text(text, ret_config);
	write_no_keys();
	return error;
}

static void frames_are_encrypted_if_there_is_a_secret_key_or_if_it_is_said(void **state)
{
	(void)state;
	struct config config = {0};
	static const struct { const char *format; bool has_secret; } yes[] = {
		{KEYS("auto"), true}, {KEYS("yes"), true}, {KEYS("yes"), false}};
	static const struct { const char *format; bool has_secret; } no[] = {{KEYS("auto"), false}, {KEYS("no"), true}, {KEYS("no"), false}};
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(read_with_keys(yes[i].format, yes[i].has_secret, &config), 0);
		assert_true(config.is_encrypted);
		config_close(&config);
		assert_int_equal(read_with_keys(no[i].format, no[i].has_secret, &config), EDIT_ERROR_INVALID);
		assert_non_null(strstr(why.text, "members.c: tcp://10.0.0.1:7001 leaves this host unencrypted"));
	}
}

static void places_where_tools_may_come_in_are_checked(void **state)
{
	(void)state;
	struct config config = {0};
	refuses("[node]\nname = a\n[control]\nlisten = ipc:///x\n" MEMBERS, EDIT_ERROR_INVALID,
		": control.listen: \"ipc:///x\" is not tcp://HOST:PORT");
	refuses("[node]\nname = a\n[control]\nlisten = tcp://127.0.0.1:7001\n" MEMBERS, EDIT_ERROR_INVALID,
		": control.listen: tcp://127.0.0.1:7001 is where the ring listens");
	refuses("[node]\nname = a\n[control]\nread_group = no-such-group\n" MEMBERS, EDIT_ERROR_INVALID,
		": control.read_group: \"no-such-group\" is no group of this host");
	assert_int_equal(read_text("[node]\nname = a\n[control]\nlisten = tcp://*:7000\nread_group = root\n" MEMBERS, &config), 0);
	config_close(&config);
}

/* ---- The mesh ---- */

#define FOUR MEMBERS "c = tcp://127.0.0.1:7003\nd = tcp://127.0.0.1:7004\n"
#define MESH(name) "[node]\nname = " name "\n[mesh]\nshards = 2\n" FOUR
#define PLACED(places) MESH("a") "[places]\n" places
#define SHARD_ADDRESSES(list) MESH("a") "[shard_addresses]\n" list

static void says_order(char *const *names, size_t count, const char *expected)
{
	char text[64] = "";
	for (size_t i = 0; i < count; i++)
		strcat(text, names[i]);
	assert_string_equal(text, expected);
}

static void ring_is_a_mesh_of_one_column(void **state)
{
	(void)state;
	struct config config;
	uint32_t ranks[ROAD_COUNT];
	assert_int_equal(read_text("[node]\nname = b\n" FOUR, &config), 0);
	assert_int_equal(config.shards, 1);
	assert_int_equal(config.replicas, 4);
	assert_int_equal(config.rank, 1);
	assert_int_equal(config.row, 1);
	assert_int_equal(config.column, 0);
	says_order(config.peers, 4, "abcd");
	says_order(config.mates, 1, "b");
	assert_null(config.shard_listen);
	assert_int_equal(config_neighbours(&config, ranks), 2);
	assert_int_equal(ranks[0], 2);
	assert_int_equal(ranks[1], 0);
	config_close(&config);
	assert_int_equal(read_text("[node]\nname = b\n" MEMBERS, &config), 0);
	assert_int_equal(config_neighbours(&config, ranks), 1);
	config_close(&config);
	assert_int_equal(read_text("[node]\nname = a\n[members]\na = tcp://127.0.0.1:7001\n", &config), 0);
	assert_int_equal(config_neighbours(&config, ranks), 0);
	config_close(&config);
}

static void ring_of_rings_has_neighbours_in_its_group_and_across(void **state)
{
	(void)state;
	struct config config;
	uint32_t ranks[ROAD_COUNT];
	assert_int_equal(read_text("[node]\nname = b\n[ring]\nfanout = 2\n" FOUR, &config), 0);
	assert_int_equal(config.fanout, 2);
	assert_int_equal(config_neighbours(&config, ranks), 2);
	assert_int_equal(ranks[0], 0);
	assert_int_equal(ranks[1], 3);
	config_close(&config);
	refuses("[node]\nname = b\n[ring]\nfanout = 3\n" FOUR, EDIT_ERROR_INVALID,
		": ring.fanout: 3, expected a divisor of the ring's 4 members between 1 and that number, or 0");
	refuses("[node]\nname = b\n[ring]\nfanout = 4\n" FOUR, EDIT_ERROR_INVALID, ": ring.fanout: 4, expected");
	refuses("[node]\nname = b\n[ring]\nfanout = 1\n" FOUR, EDIT_ERROR_INVALID, ": ring.fanout: 1, expected");
}

static void places_follow_from_the_order_of_members_row_by_row(void **state)
{
	(void)state;
	struct config config;
	uint32_t ranks[ROAD_COUNT];
	assert_int_equal(read_text(MESH("c"), &config), 0);
	assert_int_equal(config.member_count, 4);
	assert_int_equal(config.shards, 2);
	assert_int_equal(config.replicas, 2);
	assert_int_equal(config.rank, 2);
	assert_int_equal(config.row, 1);
	assert_int_equal(config.column, 0);
	says_order(config.names, 4, "abcd");
	says_order(config.peers, 2, "ac");
	says_order(config.mates, 2, "cd");
	assert_int_equal(config_neighbours(&config, ranks), 2);
	assert_int_equal(ranks[0], 0);
	assert_int_equal(ranks[1], 3);
	assert_null(config.shard_listen);
	config_close(&config);
}

static void places_that_are_given_order_the_ranks(void **state)
{
	(void)state;
	struct config config;
	assert_int_equal(read_text(PLACED("a = 1.1\nb = 0.1\nc = 1.0\nd = 0.00\n"), &config), 0);
	says_order(config.names, 4, "dbca");
	assert_string_equal(config.addresses[0], "tcp://127.0.0.1:7004");
	assert_string_equal(config.listen, "tcp://127.0.0.1:7001");
	assert_int_equal(config.rank, 3);
	says_order(config.peers, 2, "ba");
	says_order(config.mates, 2, "ca");
	config_close(&config);
	assert_int_equal(read_text("[node]\nname = a\n" MEMBERS "[places]\na = 1.0\nb = 0.0\n", &config), 0);
	says_order(config.names, 2, "ba");
	config_close(&config);
}

static void neighbours_of_a_large_mesh_are_four(void **state)
{
	(void)state;
	struct config config;
	uint32_t ranks[ROAD_COUNT];
	char text[1000] = "[node]\nname = m4\n[mesh]\nshards = 3\n[members]\n";
	for (size_t i = 0; i < 9; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "m%zu = tcp://127.0.0.1:%zu\n", i, 7000 + i);
	assert_int_equal(read_text(text, &config), 0);
	assert_int_equal(config_neighbours(&config, ranks), 4);
	const uint32_t expected[] = {7, 1, 5, 3};
	assert_memory_equal(ranks, expected, sizeof expected);
	config_close(&config);
}

static void shard_addresses_are_for_the_own_row(void **state)
{
	(void)state;
	struct config config;
	const char *list = SHARD_ADDRESSES("a = tcp://127.0.0.1:8001\nb = tcp://127.0.0.1:8002\nc = tcp://127.0.0.1:8003\n"
					   "d = tcp://127.0.0.1:7004\n");
	assert_int_equal(read_text(list, &config), 0);
	assert_string_equal(config.listen, "tcp://127.0.0.1:7001");
	assert_string_equal(config.shard_listen, "tcp://127.0.0.1:8001");
	assert_string_equal(config_address(&config, 1), "tcp://127.0.0.1:8002");
	assert_string_equal(config_address(&config, 2), "tcp://127.0.0.1:7003");
	assert_null(config.shard_addresses[3]);
	config_close(&config);

	char text[1000];
	snprintf(text, sizeof text, "%s[node]\nlisten = tcp://127.0.0.1:1\nshard_listen = tcp://127.0.0.2:2\n", list);
	assert_int_equal(read_text(text, &config), 0);
	assert_string_equal(config.listen, "tcp://127.0.0.1:1");
	assert_string_equal(config.shard_listen, "tcp://127.0.0.2:2");
	config_close(&config);
	snprintf(text, sizeof text, "%s[node]\nlisten = tcp://127.0.0.1:1\nshard_listen = tcp://127.0.0.1:1\n", list);
	assert_int_equal(read_text(text, &config), 0);
	assert_null(config.shard_listen);
	config_close(&config);
}

static void lists_of_a_later_file_replace_those_before(void **state)
{
	(void)state;
	struct config config;
	const char *places = "[places]\nd = 0.0\nc = 0.1\nb = 1.0\na = 1.1\n[shard_addresses]\nb = tcp://127.0.0.1:8009\n";
	mkdir(scratch_path("editd.conf.d"), 0700);
	scratch_write("editd.conf.d/places.conf", places, strlen(places));
	int error = read_text(PLACED("a = 0.0\nb = 0.1\nc = 1.0\n[shard_addresses]\na = tcp://127.0.0.1:8001\n"), &config);
	scratch_unlink("editd.conf.d/places.conf");
	assert_int_equal(error, 0);
	says_order(config.names, 4, "dcba");
	assert_null(config.shard_listen);
	assert_string_equal(config.shard_addresses[2], "tcp://127.0.0.1:8009");
	config_close(&config);
}

static void mesh_that_is_no_rectangle_is_refused(void **state)
{
	(void)state;
	refuses("[mesh]\nshards = 3\n[node]\nname = a\n" FOUR, EDIT_ERROR_INVALID, ": mesh.shards: 3 does not divide 4 members");
	refuses("[mesh]\nshards = 8\n[node]\nname = a\n" FOUR, EDIT_ERROR_INVALID, ": mesh.shards: 8 does not divide 4 members");
	refuses("[mesh]\nshards = 2\n" NAMED, EDIT_ERROR_INVALID, ": mesh.shards: 2 does not divide 1 member");
	refuses("[mesh]\nshards = 0\n", EDIT_ERROR_RANGE, ":2: mesh.shards: 0 is out of range, expected a whole number from 1 to 1024");
	refuses("[mesh]\nshrads = 2\n", EDIT_ERROR_UNKNOWN, ":2: unknown setting mesh.shrads, did you mean mesh.shards?");
}

static void places_that_cannot_be_are_refused(void **state)
{
	(void)state;
	refuses("[places]\na = 0.0\nb = 0.0\n", EDIT_ERROR_INVALID,
		":3: places.b: 0.0 is the place of a, expected one of its own");
	refuses("[places]\na = 0.0\na = 0.1\n", EDIT_ERROR_INVALID, ":3: places.a: name given twice");
	static const char *const bad[] = {"0", "0.", ".0", "0.0.0", "-1.0", "0.12345", "0 . 0", "a.0", "0,0"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[64], expected[100];
		snprintf(text, sizeof text, "[places]\na = %s\n", bad[i]);
		snprintf(expected, sizeof expected, ":2: places.a: \"%s\" is not a place, expected ROW.COLUMN as in 0.1", bad[i]);
		refuses(text, EDIT_ERROR_INVALID, expected);
	}
	refuses(PLACED("a = 0.0\nb = 0.1\nc = 1.0\n"), EDIT_ERROR_INVALID,
		": [places]: no place for d, expected ROW.COLUMN for every member");
	refuses(PLACED("a = 0.0\nb = 0.1\nc = 1.0\nd = 0.2\n"), EDIT_ERROR_RANGE,
		": places.d: 0.2 is outside, expected ROW.COLUMN from 0.0 to 1.1 (2 replicas of 2 nodes)");
	refuses(PLACED("a = 2.0\nb = 0.1\nc = 1.0\nd = 0.0\n"), EDIT_ERROR_RANGE, ": places.a: 2.0 is outside, expected ");
	refuses(PLACED("a = 0.0\nb = 0.1\nc = 1.0\nd = 1.1\ne = 1.2\n"), EDIT_ERROR_INVALID,
		": places.e: not in [members], expected the name of a member");
}

static void shard_addresses_that_cannot_be_are_refused(void **state)
{
	(void)state;
	refuses("[shard_addresses]\na = ipc:///x\n", EDIT_ERROR_INVALID,
		":2: shard_addresses.a: \"ipc:///x\" is not tcp://HOST:PORT");
	refuses("[shard_addresses]\na = tcp://*:1\n", EDIT_ERROR_INVALID,
		":2: shard_addresses.a: \"tcp://*:1\" is not tcp://HOST:PORT");
	refuses("[shard_addresses]\na = tcp://127.0.0.1:1\nb = tcp://127.0.0.1:1\n", EDIT_ERROR_INVALID,
		":3: shard_addresses.b: tcp://127.0.0.1:1 given twice");
	refuses(SHARD_ADDRESSES("a = tcp://127.0.0.1:7003\n"), EDIT_ERROR_INVALID,
		": shard_addresses.a: tcp://127.0.0.1:7003 is the address of c in [members], expected one of its own");
	refuses(SHARD_ADDRESSES("e = tcp://127.0.0.1:7009\n"), EDIT_ERROR_INVALID,
		": shard_addresses.e: not in [members], expected the name of a member");
	refuses("[node]\nname = a\n" FOUR "[shard_addresses]\na = tcp://127.0.0.1:8001\n", EDIT_ERROR_INVALID,
		": [shard_addresses] has no meaning where mesh.shards = 1: a replica is one node");
	refuses(MESH("a") "[node]\nshard_listen = tcp://127.0.0.1:8001\n", EDIT_ERROR_INVALID,
		": node.shard_listen: nobody connects there, expected an address of a in [shard_addresses]");
	refuses(SHARD_ADDRESSES("b = tcp://10.0.0.1:7001\n"), EDIT_ERROR_INVALID,
		": shard_addresses.b: tcp://10.0.0.1:7001 leaves this host unencrypted; make keys");
	refuses(SHARD_ADDRESSES("a = tcp://127.0.0.1:8001\n") "[node]\nshard_listen = tcp://*:8001\n", EDIT_ERROR_INVALID,
		": node.shard_listen: tcp://*:8001 leaves this host unencrypted; make keys");
}

static void missing_file_is_one_line(void **state)
{
	(void)state;
	struct config config = {0};
	assert_int_equal(config_open(scratch_path("absent.conf"), &config, &why), EDIT_ERROR_SYSTEM);
	assert_non_null(strstr(why.text, "absent.conf: cannot be read (No such file or directory)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_and_members_are_taken),
		cmocka_unit_test(drop_ins_follow_in_order_and_win),
		cmocka_unit_test(method_presets_what_no_file_gives),
		cmocka_unit_test(unknown_names_are_refused_with_file_and_line),
		cmocka_unit_test(values_out_of_range_are_refused_with_the_range),
		cmocka_unit_test(settings_without_a_meaning_together_are_refused),
		cmocka_unit_test(lines_that_are_no_settings_are_refused),
		cmocka_unit_test(what_the_reader_would_pass_over_is_refused),
		cmocka_unit_test(fifo_that_nobody_writes_to_is_not_waited_for),
		cmocka_unit_test(what_is_given_twice_is_refused),
		cmocka_unit_test(members_that_cannot_be_are_refused),
		cmocka_unit_test(what_only_the_whole_shows_is_refused),
		cmocka_unit_test(plain_tcp_beyond_this_host_must_be_asked_for_by_name),
		cmocka_unit_test(frames_are_encrypted_if_there_is_a_secret_key_or_if_it_is_said),
		cmocka_unit_test(places_where_tools_may_come_in_are_checked),
		cmocka_unit_test(ring_is_a_mesh_of_one_column),
		cmocka_unit_test(ring_of_rings_has_neighbours_in_its_group_and_across),
		cmocka_unit_test(places_follow_from_the_order_of_members_row_by_row),
		cmocka_unit_test(places_that_are_given_order_the_ranks),
		cmocka_unit_test(neighbours_of_a_large_mesh_are_four),
		cmocka_unit_test(shard_addresses_are_for_the_own_row),
		cmocka_unit_test(lists_of_a_later_file_replace_those_before),
		cmocka_unit_test(mesh_that_is_no_rectangle_is_refused),
		cmocka_unit_test(places_that_cannot_be_are_refused),
		cmocka_unit_test(shard_addresses_that_cannot_be_are_refused),
		cmocka_unit_test(missing_file_is_one_line),
	};
	return cmocka_run_group_tests(tests, make_folder, scratch_remove);
}

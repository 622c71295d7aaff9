/* editctl: words of the command line, and a socket behind which no daemon answers. The whole
 * program against real daemons: tests/system/test_editctl.py. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ctl/arguments.h"
#include "ctl/client.h"
#include "ctl/request.h"
#include "ctl/verb.h"

/* ---- Words ---- */

static void words_of_set_are_read_in_both_forms(void **state)
{
	static const char *const pair[] = {"sync.interval", "20"};
	static const char *const list[] = {"sync.interval=20", "outer.lr=0.7"};
	struct control_request requests[2];
	struct line why;
	size_t count = 0;
	(void)state;
	assert_int_equal(request_read_set(pair, 2, requests, &count, &why), 0);
	assert_int_equal(count, 1);
	assert_int_equal(requests[0].command, COMMAND_SET);
	assert_string_equal(requests[0].setting, "sync.interval");
	assert_string_equal(requests[0].value, "20");
	assert_int_equal(request_read_set(list, 2, requests, &count, &why), 0);
	assert_int_equal(count, 2);
	assert_string_equal(requests[1].setting, "outer.lr");
	assert_string_equal(requests[1].value, "0.7");
}

static void words_of_set_that_cannot_be_sent_are_refused(void **state)
{
	char longest[512];
	const char *bad[][2] = {{"sync.interval", NULL}, {"=20", NULL}, {"a=", NULL}, {"a", ""}, {"a=1", "b"}, {longest, "1"},
				{"a", longest}, {longest, NULL}};
	struct control_request requests[2];
	struct line why;
	size_t count = 77;
	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	longest[sizeof(longest) - 2] = '=';
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int error = request_read_set(bad[i], bad[i][1] == NULL ? 1 : 2, requests, &count, &why);
		assert_int_equal(edit_error_status(error), 2);
		assert_true(why.text[0] != '\0');
	}
	assert_int_equal(count, 77);
}

static void names_of_force_are_joined_up_to_what_can_be_sent(void **state)
{
	char longest[CONTROL_VALUE_MAX + 1];
	const char *const names[] = {"node-a", "c"};
	const char *const bad[] = {"", "a b"};
	const char *full[] = {"a", longest + 2}, *over[] = {"a", longest + 1};
	struct control_request request = {.value = "before"};
	struct line why;
	(void)state;
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(request_put_names(&request, names, 2, &why), 0);
	assert_string_equal(request.value, "node-a c");
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(request_put_names(&request, &bad[i], 1, &why), EDIT_ERROR_INVALID);
		assert_non_null(strstr(why.text, "is not the name of a member"));
	}
	assert_int_equal(request_put_names(&request, over, 2, &why), EDIT_ERROR_INVALID);
	assert_string_equal(why.text, "2 names take 256 bytes with the blanks between them, at most 255 can be sent");
	assert_string_equal(request.value, "node-a c");
	assert_int_equal(request_put_names(&request, full, 2, &why), 0);
	assert_int_equal(strlen(request.value), CONTROL_VALUE_MAX);
}

static void numbers_of_the_command_line_are_checked_whole(void **state)
{
	double s = -1;
	uint64_t round = 77, identity = 77;
	static const char *const not_seconds[] = {"", "x", "1x", "nan", "inf", "0x10", " 1", "-1", "1e9", "1,5"};
	static const char *const not_rounds[] = {"", "0", "-1", "+1", "1.5", "9223372036854775808", "99999999999999999999999", "1 "};
	static const char *const not_identities[] = {"", "0", "0x1", "g", "00000000000000001", "-1"};
	(void)state;
	for (size_t i = 0; i < sizeof(not_seconds) / sizeof(not_seconds[0]); i++)
		assert_int_equal(arguments_read_seconds(not_seconds[i], 0, 86400, &s), EDIT_ERROR_INVALID);
	for (size_t i = 0; i < sizeof(not_rounds) / sizeof(not_rounds[0]); i++)
		assert_int_equal(arguments_read_round(not_rounds[i], &round), EDIT_ERROR_INVALID);
	for (size_t i = 0; i < sizeof(not_identities) / sizeof(not_identities[0]); i++)
		assert_int_equal(arguments_read_identity(not_identities[i], &identity), EDIT_ERROR_INVALID);
	assert_true(s == -1 && round == 77 && identity == 77);
	assert_int_equal(arguments_read_seconds("0.25", 0, 86400, &s), 0);
	assert_true(s == 0.25);
	assert_int_equal(arguments_read_round("9223372036854775807", &round), 0);
	assert_int_equal(arguments_read_identity("00000001000000fF", &identity), 0);
	assert_true(identity == UINT64_C(0x1000000ff));
}

/* Parses words in a child, for bad ones end the program. Returns its exit status; 100 if it parsed. */
static int status_of(const char *const *words)
{
	char *argv[16] = {(char *)"editctl"};
	int argc = 1, status;
	for (; words[argc - 1] != NULL; argc++)
		argv[argc] = (char *)words[argc - 1];
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct arguments arguments;
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(99);
		arguments_parse(argc, argv, &arguments);
		_exit(100);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void command_lines_that_make_no_sense_exit_2(void **state)
{
	static const char *const bad[][8] = {
		{NULL},
		{"bogus", NULL},
		{"status", "x", NULL},
		{"set", NULL},
		{"get", "a", "b", NULL},
		{"change", NULL},
		{"status", "--bogus", NULL},
		{"status", "-t", "0", NULL},
		{"status", "-t", "nan", NULL},
		{"status", "--watch=0", NULL},
		{"status", "--watch=x", NULL},
		{"status", "--at-round", "5", NULL},
		{"resume", "--at-round", "5", NULL},
		{"set", "a", "1", "--at-round", "0", NULL},
		{"set", "a", "1", "--watch", NULL},
		{"set", "a", "1", "--timeout", "3", NULL},
		{"set", "a", "1", "--dry-run", "--wait", NULL},
		{"pause", "--dry-run", NULL},
		{"wait", NULL},
		{"status", "--timeout", "3", NULL},
		{"trace", "--watch", NULL},
		{"trace", "--since", "0", NULL},
		{"trace", "--last", "x", NULL},
		{"peers", "--since", "3", NULL},
		{"peers", "--last", "3", NULL},
		{"peers", "--follow", NULL},
		{"keygen", NULL},
		{"keygen", "a", "b", NULL},
		{"keygen", "a", "--watch", NULL},
		{"status", "--out", "/x", NULL},
		{"status", "--force", NULL},
		{"view", "x", NULL},
		{"view", "--force", NULL},
		{"leave", "x", NULL},
		{"leave", "--wait", NULL},
		{"leave", "--force", NULL},
		{"leave", "--watch", NULL},
		{"force", NULL},
		{"force", "a", "--wait", NULL},
		{"force", "a", "--timeout", "3", NULL},
		{"status", "--host", "tcp://a:1", NULL},
		{"status", "--host", "tcp://a:1", "--key", "/x", NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(status_of(bad[i]), 2);
}

static void command_lines_are_read_in_any_order(void **state)
{
	char *argv[] = {(char *)"editctl", (char *)"--json", (char *)"penalties", (char *)"--watch", (char *)"0.5", (char *)"-s",
			(char *)"/x/y.sock", (char *)"-t2", NULL};
	struct arguments arguments;
	(void)state;
	arguments_parse(8, argv, &arguments);
	assert_string_equal(arguments.verb->name, "penalties");
	assert_true(arguments.json);
	assert_true(arguments.watch);
	assert_true(arguments.watch_s == 0.5);
	assert_true(arguments.timeout_s == 2);
	assert_string_equal(arguments.socket_path, "/x/y.sock");
	assert_int_equal(arguments.word_count, 0);
}

static void host_is_asked_unless_a_socket_is_named_after_it(void **state)
{
	char *host[] = {(char *)"editctl", (char *)"status", (char *)"--host=tcp://a:1", (char *)"--key=/k", NULL};
	char *plain[] = {(char *)"editctl", (char *)"status", NULL};
	char *named[] = {(char *)"editctl", (char *)"status", (char *)"-s", (char *)"/s", NULL};
	struct arguments arguments;
	(void)state;
	setenv("EDITCTL_SERVER", "/p", 1);
	arguments_parse(4, host, &arguments);
	assert_string_equal(arguments.host, "tcp://a:1");
	assert_string_equal(arguments.key_file, "/k");
	assert_string_equal(arguments.server_file, "/p");
	setenv("EDITCTL_HOST", "tcp://b:1", 1);
	setenv("EDITCTL_KEY", "/e", 1);
	arguments_parse(2, plain, &arguments);
	assert_string_equal(arguments.host, "tcp://b:1");
	assert_string_equal(arguments.key_file, "/e");
	arguments_parse(4, named, &arguments);
	assert_null(arguments.host);
	unsetenv("EDITCTL_HOST");
	unsetenv("EDITCTL_KEY");
	unsetenv("EDITCTL_SERVER");
}

static void trace_takes_its_options_and_no_others_do(void **state)
{
	char *argv[] = {(char *)"editctl", (char *)"trace", (char *)"--since=7", (char *)"--last", (char *)"3", (char *)"--follow",
			NULL};
	struct arguments arguments;
	size_t count;
	const struct verb *verbs = verb_list(&count);
	(void)state;
	arguments_parse(6, argv, &arguments);
	assert_int_equal(arguments.since_round, 7);
	assert_int_equal(arguments.last_count, 3);
	assert_true(arguments.follow);
	for (size_t i = 0; i < count; i++) {
		bool is_trace = verbs[i].command == COMMAND_TRACE;
		assert_int_equal(verb_has(&verbs[i], VERB_SINCE), is_trace);
		assert_int_equal(verb_has(&verbs[i], VERB_LAST), is_trace);
		assert_int_equal(verb_has(&verbs[i], VERB_FOLLOW), is_trace);
		if (is_trace)
			assert_false(verb_has(&verbs[i], VERB_WATCH));
	}
	assert_true(verb_has(verb_find("peers"), VERB_WATCH));
}

static void leave_takes_a_time_and_force_its_own_name(void **state)
{
	char *leave[] = {(char *)"editctl", (char *)"leave", (char *)"--timeout", (char *)"3", NULL};
	char *force[] = {(char *)"editctl", (char *)"force", (char *)"b", (char *)"--force", (char *)"a", NULL};
	char *view[] = {(char *)"editctl", (char *)"view", (char *)"--watch=2", NULL};
	struct arguments arguments;
	(void)state;
	arguments_parse(4, leave, &arguments);
	assert_int_equal(arguments.verb->command, COMMAND_LEAVE);
	assert_true(arguments.limit_s == 3);
	arguments_parse(5, force, &arguments);
	assert_int_equal(arguments.verb->command, COMMAND_FORCE);
	assert_true(arguments.force);
	assert_int_equal(arguments.word_count, 2);
	assert_string_equal(arguments.words[1], "a");
	arguments_parse(3, view, &arguments);
	assert_true(arguments.watch);
}

static void watch_takes_no_word_that_is_not_a_number(void **state)
{
	char *argv[] = {(char *)"editctl", (char *)"get", (char *)"--watch", (char *)"sync.interval", NULL};
	struct arguments arguments;
	(void)state;
	arguments_parse(4, argv, &arguments);
	assert_true(arguments.watch);
	assert_true(arguments.watch_s == 1);
	assert_int_equal(arguments.word_count, 1);
	assert_string_equal(arguments.words[0], "sync.interval");
}

static void socket_comes_from_option_then_environment_then_default(void **state)
{
	char *plain[] = {(char *)"editctl", (char *)"status", NULL};
	char *named[] = {(char *)"editctl", (char *)"status", (char *)"--socket=/a", NULL};
	struct arguments arguments;
	(void)state;
	unsetenv("EDITCTL_SOCKET");
	arguments_parse(2, plain, &arguments);
	assert_string_equal(arguments.socket_path, "/run/editd/control.sock");
	setenv("EDITCTL_SOCKET", "/b", 1);
	arguments_parse(2, plain, &arguments);
	assert_string_equal(arguments.socket_path, "/b");
	arguments_parse(3, named, &arguments);
	assert_string_equal(arguments.socket_path, "/a");
	unsetenv("EDITCTL_SOCKET");
}

/* ---- Sockets without a daemon ---- */

struct folder {
	char path[64];   /* of a folder of its own */
	char socket[96]; /* in it */
};

static int folder_make(void **state)
{
	static struct folder folder;
	const char *base = getenv("TMPDIR");
	snprintf(folder.path, sizeof(folder.path), "%.40s/ctl-XXXXXX", base != NULL ? base : P_tmpdir);
	if (mkdtemp(folder.path) == NULL)
		return -1;
	snprintf(folder.socket, sizeof(folder.socket), "%s/control.sock", folder.path);
	*state = &folder;
	return 0;
}

static int folder_remove(void **state)
{
	struct folder *folder = *state;
	unlink(folder->socket);
	return rmdir(folder->path);
}

static void assert_unreachable(const char *path, const char *expected)
{
	struct client *client = NULL;
	struct line why = {""};
	int error = client_open(path, 200, &why, &client);
	assert_int_equal(error, EDIT_ERROR_UNREACHABLE);
	assert_int_equal(edit_error_status(error), 3);
	assert_null(client);
	assert_non_null(strstr(why.text, path));
	assert_non_null(strstr(why.text, expected));
}

static void missing_socket_says_what_to_start(void **state)
{
	struct folder *folder = *state;
	assert_unreachable(folder->socket, "no socket");
	assert_unreachable(folder->socket, "systemctl start editd");
}

static int bound_socket(const struct folder *folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	memcpy(address.sun_path, folder->socket, strlen(folder->socket));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void socket_left_by_a_dead_daemon_is_told_apart(void **state)
{
	struct folder *folder = *state;
	close(bound_socket(folder));
	assert_unreachable(folder->socket, "nobody listens");
}

static void file_that_is_no_socket_is_told_apart(void **state)
{
	struct folder *folder = *state;
	FILE *file = fopen(folder->socket, "w");
	assert_non_null(file);
	fclose(file);
	assert_unreachable(folder->socket, folder->socket);
}

static void path_longer_than_a_socket_address_is_refused(void **state)
{
	char path[200];
	struct client *client = NULL;
	struct line why = {""};
	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(client_open(path, 200, &why, &client), EDIT_ERROR_INVALID);
	assert_non_null(strstr(why.text, "199 bytes"));
	assert_int_equal(client_open("", 200, &why, &client), EDIT_ERROR_INVALID);
	assert_null(client);
}

static void silent_daemon_ends_in_time_and_is_told_apart(void **state)
{
	struct folder *folder = *state;
	struct control_request request = {.command = COMMAND_STATUS};
	struct client *client = NULL;
	struct answer answer = {0};
	struct line why = {""};
	int fd = bound_socket(folder);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(client_open(folder->socket, 100, &why, &client), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(client_ask(client, &request, &why, &answer), EDIT_ERROR_UNREACHABLE);
		assert_non_null(strstr(why.text, "no answer within 0.1 s"));
		assert_null(answer.block);
	}
	close(fd);
	assert_int_equal(client_ask(client, &request, &why, &answer), EDIT_ERROR_UNREACHABLE);
	assert_non_null(strstr(why.text, "nobody listens"));
	client_close(client);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_of_set_are_read_in_both_forms),
		cmocka_unit_test(words_of_set_that_cannot_be_sent_are_refused),
		cmocka_unit_test(names_of_force_are_joined_up_to_what_can_be_sent),
		cmocka_unit_test(numbers_of_the_command_line_are_checked_whole),
		cmocka_unit_test(command_lines_that_make_no_sense_exit_2),
		cmocka_unit_test(command_lines_are_read_in_any_order),
		cmocka_unit_test(host_is_asked_unless_a_socket_is_named_after_it),
		cmocka_unit_test(trace_takes_its_options_and_no_others_do),
		cmocka_unit_test(leave_takes_a_time_and_force_its_own_name),
		cmocka_unit_test(watch_takes_no_word_that_is_not_a_number),
		cmocka_unit_test(socket_comes_from_option_then_environment_then_default),
		IN_FOLDER(missing_socket_says_what_to_start),
		IN_FOLDER(socket_left_by_a_dead_daemon_is_told_apart),
		IN_FOLDER(file_that_is_no_socket_is_told_apart),
		cmocka_unit_test(path_longer_than_a_socket_address_is_refused),
		IN_FOLDER(silent_daemon_ends_in_time_and_is_told_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

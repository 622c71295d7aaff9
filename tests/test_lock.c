/* The lock of a runtime directory: one holder at a time, and nothing is removed that is not a stale socket. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base.h"
#include "daemon/lock.h"
#include "tests/scratch.h"

static void second_holder_learns_the_pid_of_the_first(void **state)
{
	(void)state;
	struct lock lock, other;
	pid_t holder = 0;
	assert_int_equal(lock_open(scratch_path(""), &lock, &holder), 0);
	assert_int_equal(lock_open(scratch_path(""), &other, &holder), EDIT_ERROR_BUSY);
	assert_int_equal(holder, getpid());
	lock_close(&lock);
	assert_int_equal(lock_open(scratch_path(""), &other, &holder), 0);
	lock_close(&other);
}

static void lock_of_a_killed_holder_is_free(void **state)
{
	(void)state;
	struct lock lock;
	pid_t holder = 0;
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		if (lock_open(scratch_path(""), &lock, &holder) != 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(lock_open(scratch_path(""), &lock, &holder), EDIT_ERROR_BUSY);
	assert_int_equal(holder, child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(lock_open(scratch_path(""), &lock, &holder), 0);
	lock_close(&lock);
	close(ready[0]);
	close(ready[1]);
}

static void only_sockets_are_removed(void **state)
{
	(void)state;
	struct lock lock;
	pid_t holder = 0;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strncpy(address.sun_path, scratch_path("stale"), sizeof address.sun_path - 1);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);

	assert_int_equal(lock_open(scratch_path(""), &lock, &holder), 0);
	assert_int_equal(lock_remove_stale(&lock, scratch_path("stale")), 0);
	assert_int_equal(access(scratch_path("stale"), F_OK), -1);
	assert_int_equal(lock_remove_stale(&lock, scratch_path("stale")), 0);
	scratch_write("file", "x", 1);
	assert_int_equal(lock_remove_stale(&lock, scratch_path("file")), EDIT_ERROR_INVALID);
	assert_int_equal(access(scratch_path("file"), F_OK), 0);
	lock_close(&lock);
}

static void directory_that_is_not_there_is_an_error(void **state)
{
	(void)state;
	struct lock lock = {.fd = -2};
	pid_t holder = 0;
	assert_int_equal(lock_open(scratch_path("absent"), &lock, &holder), EDIT_ERROR_SYSTEM);
	assert_int_equal(lock.fd, -2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(second_holder_learns_the_pid_of_the_first),
		cmocka_unit_test(lock_of_a_killed_holder_is_free),
		cmocka_unit_test(only_sockets_are_removed),
		cmocka_unit_test(directory_that_is_not_there_is_an_error),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* A child under ptrace. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/traced.h"

pid_t traced_start(int (*work)(void *), void *with)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(99);
		raise(SIGSTOP);
		_exit(work(with));
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSTOPPED(status)); /* else it may not be traced here */
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
	return child;
}

bool traced_step(pid_t child, int *ret_status)
{
	assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
	assert_int_equal(waitpid(child, ret_status, 0), child);
	return !WIFEXITED(*ret_status);
}

long traced_call(pid_t child)
{
	struct __ptrace_syscall_info info;
	memset(&info, 0, sizeof info);
	assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0);
	return info.op == PTRACE_SYSCALL_INFO_ENTRY ? (long)info.entry.nr : -1;
}

bool traced_is_rename(long call)
{
#ifdef SYS_rename
	if (call == SYS_rename)
		return true;
#endif
	return call == SYS_renameat || call == SYS_renameat2;
}

bool traced_kill_at(int (*work)(void *), void *with, unsigned at)
{
	int status = 0;
	bool is_running = true;
	pid_t child = traced_start(work, with);
	for (unsigned i = 0; i < at && is_running; i++)
		is_running = traced_step(child, &status);
	if (is_running) {
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
	} else {
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	return is_running;
}

#ifdef __x86_64__

static bool is_of_the_disk(long call)
{
	static const long calls[] = {SYS_write, SYS_fsync, SYS_rename, SYS_renameat, SYS_renameat2, SYS_mkdir, SYS_mkdirat,
				     SYS_sync_file_range, SYS_utimensat, SYS_close};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (call == calls[i])
			return true;
	return false;
}

int traced_fail_at(int (*work)(void *), void *with, unsigned at, int error, bool *ret_failed)
{
	int status;
	unsigned seen = 0;
	pid_t child = traced_start(work, with);
	while (traced_step(child, &status)) {
		if (!is_of_the_disk(traced_call(child)) || seen++ != at)
			continue;
		/* No call is made, and what it returns is an error. */
		assert_int_equal(ptrace(PTRACE_POKEUSER, child, offsetof(struct user_regs_struct, orig_rax), -1L), 0);
		assert_true(traced_step(child, &status));
		assert_int_equal(ptrace(PTRACE_POKEUSER, child, offsetof(struct user_regs_struct, rax), (long)-error), 0);
	}
	*ret_failed = seen > at;
	return WEXITSTATUS(status);
}

#endif

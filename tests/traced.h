#ifndef EDIT_TESTS_TRACED_H
#define EDIT_TESTS_TRACED_H

/* Work that is killed, or whose disk fails, at a system call of one's choice. It runs in a child under ptrace. */

#include <stdbool.h>
#include <sys/types.h>

/* A child that stops before it begins; it exits with what work(with) returns. */
pid_t traced_start(int (*work)(void *), void *with);
/* Lets the child run to the next entry or exit of a system call. False: it has ended, with *ret_status. */
bool traced_step(pid_t child, int *ret_status);
/* Number of the system call that the child is about to make; -1: it has just made one. */
long traced_call(pid_t child);
/* Whether that call renames a file. */
bool traced_is_rename(long call);

/* Kills the work at its step number `at`. False: it had ended before, with 0. */
bool traced_kill_at(int (*work)(void *), void *with, unsigned at);

#ifdef __x86_64__
/* Lets the number `at` of the calls that go to the disk fail with `error`. Returns the exit status; *ret_failed: there was
 * one. */
int traced_fail_at(int (*work)(void *), void *with, unsigned at, int error, bool *ret_failed);
#endif

#endif

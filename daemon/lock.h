#ifndef EDIT_DAEMON_LOCK_H
#define EDIT_DAEMON_LOCK_H

/* One daemon per directory, runtime_dir and state_dir: a flock on the file `lock` in it, with the holder's pid written in. The lock goes
 * away with the process, however it dies; so whatever socket file is found under the lock is stale. */

#include <sys/types.h>

struct lock {
	int fd;
};

/* Takes the lock of directory. EDIT_ERROR_BUSY: another process has it, *ret_holder is its pid (0 if it cannot be
 * read). EDIT_ERROR_SYSTEM: errno tells. *ret_lock is set on success only. */
int lock_open(const char *directory, struct lock *ret_lock, pid_t *ret_holder);

/* Gives the lock back. The file stays: removing it would let two daemons hold two locks of one name. */
void lock_close(struct lock *lock);

/* Removes a socket file left behind by a dead daemon. The caller holds the lock. 0 also if there is none;
 * EDIT_ERROR_INVALID: path is something else than a socket and is left alone; EDIT_ERROR_SYSTEM: errno tells. */
int lock_remove_stale(const struct lock *lock, const char *path);

#endif

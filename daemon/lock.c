/* The lock of a runtime directory. Owns one file descriptor; never removes anything without holding the lock. */

#include "daemon/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base.h"

static pid_t read_pid(int fd)
{
	char text[32] = "";
	ssize_t got = pread(fd, text, sizeof text - 1, 0);
	return got > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

int lock_open(const char *directory, struct lock *ret_lock, pid_t *ret_holder)
{
	char path[4096];
	int length = snprintf(path, sizeof path, "%s/lock", directory);
	if (length < 0 || (size_t)length >= sizeof path) {
		errno = ENAMETOOLONG;
		return EDIT_ERROR_SYSTEM;
	}
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (fd < 0)
		return EDIT_ERROR_SYSTEM;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		int error = errno == EWOULDBLOCK ? EDIT_ERROR_BUSY : EDIT_ERROR_SYSTEM;
		if (error == EDIT_ERROR_BUSY)
			*ret_holder = read_pid(fd);
		close(fd);
		return error;
	}

	char text[32];
	int size = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)size, 0) != size) {
		int saved = errno;
		close(fd);
		errno = saved;
		return EDIT_ERROR_SYSTEM;
	}
	ret_lock->fd = fd;
	return 0;
}

void lock_close(struct lock *lock)
{
	CHECK(lock->fd >= 0);
	close(lock->fd);
	lock->fd = -1;
}

int lock_remove_stale(const struct lock *lock, const char *path)
{
	CHECK(lock->fd >= 0);
	struct stat found;
	if (lstat(path, &found) != 0)
		return errno == ENOENT ? 0 : EDIT_ERROR_SYSTEM;
	if (!S_ISSOCK(found.st_mode))
		return EDIT_ERROR_INVALID;
	return unlink(path) == 0 ? 0 : EDIT_ERROR_SYSTEM;
}

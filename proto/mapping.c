/* Files in memory. Space is reserved before a file is used: a full tmpfs is an error message here, not a SIGBUS
 * later. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/mapping.h"

enum { NAME_BYTES = 4096 };

/* Name of the file that is being made. */
static int name_aside(const char *path, char ret_name[NAME_BYTES], struct line *why)
{
	int length = snprintf(ret_name, NAME_BYTES, "%s.new", path);
	if (length < 0 || length >= NAME_BYTES)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.200s...: the path is too long", path);
	return 0;
}

/* Maps size_bytes of fd; on failure fd is closed. */
static int mapping_make(int fd, const char *name, size_t size_bytes, int protection, struct mapping *ret_mapping,
			struct line *why)
{
	void *base = NULL;
	if (size_bytes > 0) {
		base = mmap(NULL, size_bytes, protection, MAP_SHARED, fd, 0);
		if (base == MAP_FAILED) {
			int cause = errno;
			close(fd);
			return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be mapped (%s)", name, strerror(cause));
		}
	}
	*ret_mapping = (struct mapping){.base = base, .size_bytes = size_bytes, .fd = fd};
	return 0;
}

/* Maps all of fd, which must be a regular file; takes fd over. */
static int mapping_make_whole(int fd, const char *name, int protection, struct mapping *ret_mapping, struct line *why)
{
	struct stat status;
	if (fstat(fd, &status)) {
		int cause = errno;
		close(fd);
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", name, strerror(cause));
	}
	if (!S_ISREG(status.st_mode)) {
		close(fd);
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: not a regular file", name);
	}
	return mapping_make(fd, name, (size_t)status.st_size, protection, ret_mapping, why);
}

/* Reserves size_bytes for a new file. */
static int mapping_reserve(int fd, const char *path, size_t size_bytes, struct line *why)
{
	char need[SIZE_TEXT_BYTES], free_text[SIZE_TEXT_BYTES];
	struct statvfs system;
	if (fstatvfs(fd, &system))
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(errno));
	/* A size that off_t cannot hold is certainly more than there is. */
	uint64_t available = (uint64_t)system.f_bavail * system.f_frsize;
	bool is_limited = system.f_blocks > 0; /* a tmpfs without a limit counts no blocks */
	int cause = size_bytes > INT64_MAX || (is_limited && size_bytes > available) ? ENOSPC : 0;
	if (!cause && size_bytes > 0)
		cause = posix_fallocate(fd, 0, (off_t)size_bytes);
	if (cause == ENOSPC || cause == EFBIG)
		return line_fail(why, EDIT_ERROR_FULL, "%s: needs %s, the file system has %s free", path,
				 text_size(size_bytes, need), text_size(available, free_text));
	if (cause)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(cause));
	return 0;
}

int mapping_create(const char *path, size_t size_bytes, struct mapping *ret_mapping, struct line *why)
{
	char name[NAME_BYTES];
	int error = name_aside(path, name, why);
	if (error)
		return error;
	if (unlink(name) && errno != ENOENT)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", name, strerror(errno));
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0660);
	if (fd < 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be created (%s)", name, strerror(errno));
	if (fchmod(fd, 0660)) /* whatever the umask: the worker may run as another user of the group */
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: %s", name, strerror(errno));
	if (!error)
		error = mapping_reserve(fd, path, size_bytes, why);
	if (error)
		close(fd);
	else
		error = mapping_make(fd, path, size_bytes, PROT_READ | PROT_WRITE, ret_mapping, why);
	if (error)
		unlink(name);
	return error;
}

int mapping_rename(const char *path, struct line *why)
{
	char name[NAME_BYTES];
	int error = name_aside(path, name, why);
	if (!error && rename(name, path))
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be renamed (%s)", name, strerror(errno));
	return error;
}

static int mapping_open_as(const char *path, int flags, int protection, struct mapping *ret_mapping, struct line *why)
{
	/* O_NONBLOCK: a FIFO in the file's place is refused, not waited for. */
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return line_fail(why, errno == ENOENT ? EDIT_ERROR_UNKNOWN : EDIT_ERROR_SYSTEM, "%s: %s", path,
				 strerror(errno));
	return mapping_make_whole(fd, path, protection, ret_mapping, why);
}

int mapping_open(const char *path, struct mapping *ret_mapping, struct line *why)
{
	return mapping_open_as(path, O_RDWR, PROT_READ | PROT_WRITE, ret_mapping, why);
}

int mapping_open_read(const char *path, struct mapping *ret_mapping, struct line *why)
{
	return mapping_open_as(path, O_RDONLY, PROT_READ, ret_mapping, why);
}

int mapping_adopt(int fd, const char *name, struct mapping *ret_mapping, struct line *why)
{
	return mapping_make_whole(fd, name, PROT_READ | PROT_WRITE, ret_mapping, why);
}

void mapping_close(struct mapping *mapping)
{
	if (mapping->base)
		munmap(mapping->base, mapping->size_bytes);
	if (mapping->fd >= 0)
		close(mapping->fd);
	*mapping = (struct mapping){.fd = -1};
}

void mapping_prefer_huge(void *block, size_t size_bytes)
{
	const uintptr_t page = 2 << 20;
	uintptr_t begin = ((uintptr_t)block + page - 1) / page * page, end = ((uintptr_t)block + size_bytes) / page * page;
	if (begin < end)
		(void)madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* a kernel without them refuses: no harm */
}

void *mapping_take(size_t size_bytes)
{
	void *block = mmap(NULL, size_bytes > 0 ? size_bytes : 1, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return block == MAP_FAILED ? NULL : block;
}

void mapping_free(void *block, size_t size_bytes)
{
	if (block != NULL)
		munmap(block, size_bytes > 0 ? size_bytes : 1);
}

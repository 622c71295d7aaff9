/* Folders of checkpoints. Owns nothing; removes only what bears the names of checkpoints. */

#include "daemon/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct found {
	char name[FOLDER_NAME_BYTES];
	struct timespec time; /* of manifest.json, written last */
};

int folder_make(const char *path)
{
	return mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : EDIT_ERROR_SYSTEM;
}

int folder_write(const char *path, const void *bytes, size_t size_bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return EDIT_ERROR_SYSTEM;
	const char *from = bytes;
	size_t left = size_bytes;
	while (left > 0) {
		ssize_t got = write(fd, from, left);
		if (got <= 0)
			break;
		from += got;
		left -= (size_t)got;
	}
	bool is_written = left == 0 && fsync(fd) == 0;
	int saved = errno;
	close(fd);
	errno = saved;
	return is_written ? 0 : EDIT_ERROR_SYSTEM;
}

static int sync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return EDIT_ERROR_SYSTEM;
	int error = fsync(fd) == 0 ? 0 : EDIT_ERROR_SYSTEM;
	close(fd);
	return error;
}

int folder_put(const char *aside, const char *place)
{
	char parent[PATH_MAX];
	snprintf(parent, sizeof parent, "%s", place);
	if (sync_folder(aside) != 0)
		return EDIT_ERROR_SYSTEM;
	if (rename(aside, place) != 0) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			return EDIT_ERROR_SYSTEM;
		if (renameat2(AT_FDCWD, aside, AT_FDCWD, place, RENAME_EXCHANGE) != 0)
			return EDIT_ERROR_SYSTEM;
		folder_remove(aside);
	}
	/* The name stands; a sync that fails now is no reason to call the checkpoint missing. */
	sync_folder(dirname(parent));
	return 0;
}

void folder_remove(const char *path)
{
	DIR *folder = opendir(path);
	if (!folder)
		return;
	struct dirent *entry;
	while ((entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
	rmdir(path);
}

/* Whether name is prefix, digits, suffix. */
static bool is_named(const char *name, const char *prefix, const char *suffix)
{
	size_t begin = strlen(prefix);
	if (strncmp(name, prefix, begin) != 0)
		return false;
	size_t digits = strspn(name + begin, "0123456789");
	return digits >= 6 && strcmp(name + begin + digits, suffix) == 0;
}

void folder_clean(const char *checkpoints)
{
	DIR *folder = opendir(checkpoints);
	if (!folder)
		return;
	struct dirent *entry;
	char path[PATH_MAX];
	while ((entry = readdir(folder)))
		if (is_named(entry->d_name, ".round-", ".partial")) {
			snprintf(path, sizeof path, "%s/%s", checkpoints, entry->d_name);
			folder_remove(path);
		}
	closedir(folder);
}

static int newest_first(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	if (x->time.tv_sec != y->time.tv_sec)
		return x->time.tv_sec > y->time.tv_sec ? -1 : 1;
	if (x->time.tv_nsec != y->time.tv_nsec)
		return x->time.tv_nsec > y->time.tv_nsec ? -1 : 1;
	return -strcmp(x->name, y->name);
}

/* Whole checkpoints, newest first; *ret_list is the caller's to free. */
static size_t list(const char *checkpoints, struct found **ret_list)
{
	struct found *all = NULL;
	size_t count = 0, capacity = 0;
	DIR *folder = opendir(checkpoints);
	struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		char path[PATH_MAX];
		struct stat about;
		if (!is_named(entry->d_name, "round-", "") || strlen(entry->d_name) >= sizeof all->name)
			continue;
		snprintf(path, sizeof path, "%s/%s/manifest.json", checkpoints, entry->d_name);
		if (stat(path, &about) != 0)
			continue;
		if (count == capacity) {
			capacity = capacity ? 2 * capacity : 16;
			struct found *more = realloc(all, capacity * sizeof *all);
			if (!more)
				break;
			all = more;
		}
		snprintf(all[count].name, sizeof all[count].name, "%s", entry->d_name);
		all[count++].time = about.st_mtim;
	}
	if (folder)
		closedir(folder);
	if (count > 1)
		qsort(all, count, sizeof *all, newest_first);
	*ret_list = all;
	return count;
}

void folder_date(const char *checkpoints, const char *aside)
{
	struct found *all;
	char path[PATH_MAX];
	struct stat about;
	snprintf(path, sizeof path, "%s/manifest.json", aside);
	if (list(checkpoints, &all) > 0 && stat(path, &about) == 0) {
		const struct timespec *own = &about.st_mtim, *last = &all[0].time;
		/* A whole second, because there are file systems that keep no less. */
		struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = last->tv_sec + 1, .tv_nsec = last->tv_nsec}};
		if (own->tv_sec < last->tv_sec || (own->tv_sec == last->tv_sec && own->tv_nsec <= last->tv_nsec))
			utimensat(AT_FDCWD, path, times, 0);
	}
	free(all);
}

void folder_newest(const char *checkpoints, char *path, size_t size)
{
	struct found *all;
	size_t count = list(checkpoints, &all);
	path[0] = 0;
	if (count > 0)
		snprintf(path, size, "%s/%s", checkpoints, all[0].name);
	free(all);
}

size_t folder_list(const char *checkpoints, char names[][FOLDER_NAME_BYTES], size_t count)
{
	struct found *all;
	size_t found_count = size_min(list(checkpoints, &all), count);
	for (size_t i = 0; i < found_count; i++)
		memcpy(names[i], all[i].name, FOLDER_NAME_BYTES);
	free(all);
	return found_count;
}

void folder_prune(const char *checkpoints, size_t keep, const char *spared)
{
	struct found *all;
	char path[PATH_MAX];
	size_t count = list(checkpoints, &all);
	for (size_t i = keep; i < count; i++) {
		snprintf(path, sizeof path, "%s/%s", checkpoints, all[i].name);
		if (strcmp(path, spared) != 0)
			folder_remove(path);
	}
	free(all);
}

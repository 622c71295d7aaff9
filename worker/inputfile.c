/* Reading files that people give: config, weights, data. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/complain.h"
#include "worker/inputfile.h"

int inputfile_open(const char *path, int *ret_fd, uint64_t *ret_size_bytes, char *error, size_t error_size)
{
	/* Not to wait for the other end if somebody names a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be opened: %s", path, strerror(errno));
	struct stat about;
	if (fstat(fd, &about)) {
		int cause = errno;
		close(fd);
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be looked at: %s", path, strerror(cause));
	}
	if (!S_ISREG(about.st_mode)) {
		close(fd);
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: expected a regular file", path);
	}
	*ret_fd = fd;
	*ret_size_bytes = (uint64_t)about.st_size;
	return 0;
}

int inputfile_read(int fd, const char *path, uint64_t offset, void *ret_bytes, size_t size, char *error,
		   size_t error_size)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = pread(fd, (char *)ret_bytes + done, size - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: cannot be read at byte %" PRIu64 ": %s", path,
					offset + done, strerror(errno));
		if (got == 0)
			return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: has become shorter, ends at byte %" PRIu64, path,
					offset + done);
		done += (size_t)got;
	}
	return 0;
}

int inputfile_text(const char *path, size_t max_bytes, char **ret_text, char *error, size_t error_size)
{
	int fd;
	uint64_t size;
	int result = inputfile_open(path, &fd, &size, error, error_size);
	if (result)
		return result;
	char *text = NULL;
	if (size > max_bytes)
		result = complain(error, error_size, EDIT_ERROR_INVALID, "%s: %" PRIu64 " bytes, expected at most %zu", path,
				size, max_bytes);
	else if (!(text = malloc((size_t)size + 1)))
		result = complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	else
		result = inputfile_read(fd, path, 0, text, (size_t)size, error, error_size);
	close(fd);
	if (result) {
		free(text);
		return result;
	}
	text[size] = 0;
	*ret_text = text;
	return 0;
}

/* The three standard streams. Owns nothing: what it opens stays open until the program ends. */

#include "proto/stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void stream_open_standard(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* The wrong way round: what is read or written fails, as it would without. open() takes the lowest
		 * number that is free, which is fd. Without /dev/null there is nothing safe to do and nobody to tell. */
		if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(EXIT_FAILURE);
	}
}

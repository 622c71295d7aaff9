/* Addresses of this host. */

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/loopback.h"

enum { COUNT_MAX = 16 };

int loopback_find(char addresses[][LOOPBACK_BYTES], size_t count)
{
	int sockets[COUNT_MAX];
	if (count > COUNT_MAX)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t bytes = sizeof address;
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(sockets[i], (struct sockaddr *)&address, bytes) != 0 ||
		    getsockname(sockets[i], (struct sockaddr *)&address, &bytes) != 0)
			return -1;
		snprintf(addresses[i], LOOPBACK_BYTES, "tcp://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
	}
	for (size_t i = 0; i < count; i++)
		close(sockets[i]);
	return 0;
}

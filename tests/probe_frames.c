/* A stranger for tests: sends frames to a socket of a daemon as no daemon or tool would.
 *
 *     probe_frames ENDPOINT KIND      KIND: garbage, parts, empty, large N; request N: one frame of garbage, prints the
 *                                     size of the reply; deaf N: N good requests whose replies it never takes, prints
 *                                     "sent" and stays until its input ends
 *     probe_frames HOST PORT raw      garbage that is not even ZeroMQ */

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

enum { FRAMES = 200, LARGE_FRAMES = 4, PATIENCE_MS = 3000 };

/* Bytes from a fixed generator, so that a failure repeats. */
static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
	uint32_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		bytes[i] = (unsigned char)x;
	}
}

static int send_raw(const char *host, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	unsigned char bytes[4096];
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		return 2;
	for (unsigned i = 0; i < 20; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
			return 1;
		fill(bytes, sizeof bytes, i);
		if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) < 0)
			perror("send");
		close(fd);
	}
	return 0;
}

static void send_frames(void *socket, const char *kind, size_t size)
{
	unsigned char *bytes = malloc(size + 256);
	bool is_large = strcmp(kind, "large") == 0;
	for (unsigned i = 0; i < (is_large ? LARGE_FRAMES : FRAMES); i++) {
		fill(bytes, size + 256, i);
		if (strcmp(kind, "garbage") == 0)
			zmq_send(socket, bytes, 1 + i, 0);
		else if (strcmp(kind, "empty") == 0)
			zmq_send(socket, bytes, 0, 0);
		else if (strcmp(kind, "parts") == 0)
			for (unsigned part = 0; part < 10; part++)
				zmq_send(socket, bytes, 1 + i, part < 9 ? ZMQ_SNDMORE : 0);
		else if (is_large)
			zmq_send(socket, bytes, size, 0);
	}
	free(bytes);
}

/* Requests for penalties (version 1, command 4), the longest answers that there are. */
static void send_requests(void *socket, size_t count)
{
	for (size_t i = 0; i < count; i++)
		zmq_send(socket, "\x08\x01\x10\x04", 4, 0);
	puts("sent");
	fflush(stdout);
	while (getchar() != EOF)
		;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[3], "raw") == 0)
		return send_raw(argv[1], atoi(argv[2]));
	if (argc < 3)
		return 2;
	int patience = PATIENCE_MS, linger = PATIENCE_MS;
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
	zmq_setsockopt(socket, ZMQ_SNDTIMEO, &patience, sizeof patience);
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof patience);
	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
	bool is_deaf = strcmp(argv[2], "deaf") == 0;
	int one = 1;
	if (is_deaf && zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof one) != 0)
		return 1;
	if (zmq_connect(socket, argv[1]) != 0)
		return 1;
	size_t size = argc > 3 ? (size_t)atoll(argv[3]) : 0;
	if (strcmp(argv[2], "request") == 0) {
		unsigned char *bytes = malloc(size + 1), reply[65536];
		fill(bytes, size + 1, 1);
		zmq_send(socket, bytes, size, 0);
		int got = zmq_recv(socket, reply, sizeof reply, 0);
		free(bytes);
		printf("%d\n", got);
	} else if (is_deaf) {
		send_requests(socket, size);
	} else {
		send_frames(socket, argv[2], size);
	}
	zmq_close(socket);
	zmq_ctx_term(context);
	return 0;
}

/* The control socket. Owns the ROUTER; everything that is said on it is made in daemon/answer*.c. */

#include "daemon/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "daemon/answer.h"
#include "proto/control_codec.h"

enum {
	FRAME_MAX = 65536,   /* larger ones end the connection; between CONTROL_REQUEST_MAX and this they are told */
	CLIENT_QUEUE_MAX = 16, /* replies that a client has not read; more are dropped */
	HANDSHAKE_MS = 5000
};

struct control {
	void *socket;
	char path[112];
	uint64_t malformed;
};

static bool set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

int control_open(void *context, const char *address, struct control **ret_control, struct line *why)
{
	int64_t frame_max = FRAME_MAX;
	struct control *control = calloc(1, sizeof *control);
	if (!control)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	CHECK(strncmp(address, "ipc://", 6) == 0);
	CHECK(strlen(address + 6) < sizeof control->path);
	control->socket = zmq_socket(context, ZMQ_ROUTER);
	mode_t before = umask(0117);
	bool is_open = control->socket && set_int(control->socket, ZMQ_LINGER, 0) &&
		       set_int(control->socket, ZMQ_SNDHWM, CLIENT_QUEUE_MAX) &&
		       set_int(control->socket, ZMQ_RCVHWM, CLIENT_QUEUE_MAX) &&
		       set_int(control->socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
		       zmq_setsockopt(control->socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0 &&
		       zmq_bind(control->socket, address) == 0;
	int saved = errno;
	umask(before);
	if (!is_open) {
		if (control->socket)
			zmq_close(control->socket);
		free(control);
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot listen (%s)", address, zmq_strerror(saved));
	}
	strcpy(control->path, address + 6);
	*ret_control = control;
	return 0;
}

void control_close(struct control *control)
{
	zmq_close(control->socket);
	unlink(control->path);
	free(control);
}

void *control_socket(struct control *control)
{
	return control->socket;
}

uint64_t control_malformed(const struct control *control)
{
	return control->malformed;
}

static void free_reply(void *bytes, void *hint)
{
	(void)hint;
	free(bytes);
}

/* Sends reply bytes (taken over) to the client id. A client that does not read loses its replies, nobody else's. */
static void send_reply(struct control *control, zmq_msg_t *id, void *bytes, size_t size_bytes)
{
	zmq_msg_t frame;
	if (zmq_msg_init_data(&frame, bytes, size_bytes, free_reply, NULL) != 0) {
		free(bytes);
		return;
	}
	if (zmq_send(control->socket, zmq_msg_data(id), zmq_msg_size(id), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
	    zmq_msg_send(&frame, control->socket, ZMQ_DONTWAIT) < 0)
		zmq_msg_close(&frame);
}

static answer_function *answer_of(enum command command)
{
	static const struct {
		enum command command;
		answer_function *function;
	} table[] = {
#define X(id, number, name, right, function, help) {id, answer_##function},
		COMMANDS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (table[i].command == command)
			return table[i].function;
	return NULL;
}

/* Takes what is left of a message; returns how many parts that was. */
static size_t drain(void *socket, bool more)
{
	size_t parts = 0;
	while (more) {
		zmq_msg_t part;
		zmq_msg_init(&part);
		more = zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&part);
		zmq_msg_close(&part);
		parts++;
	}
	return parts;
}

/* Answers one request frame. */
static void serve(struct control *control, struct daemon *daemon, zmq_msg_t *id, zmq_msg_t *frame, size_t extra_parts)
{
	struct answer answer;
	struct control_request request;
	answer_init(&answer, daemon);
	int error = 0;
	if (extra_parts > 0)
		error = line_fail(&answer.why, EDIT_ERROR_MALFORMED, "a request of %zu frames, expected one",
				  extra_parts + 1);
	else if (zmq_msg_size(frame) > CONTROL_REQUEST_MAX)
		error = line_fail(&answer.why, EDIT_ERROR_MALFORMED, "a request of %zu bytes, expected at most %d",
				  zmq_msg_size(frame), CONTROL_REQUEST_MAX);
	else
		error = control_request_decode(zmq_msg_data(frame), zmq_msg_size(frame), &request, &answer.why);
	if (error)
		control->malformed++;
	else
		error = answer_of(request.command)(&answer, &request);
	size_t size_bytes = 0;
	void *bytes = answer_pack(&answer, error, &size_bytes);
	if (bytes)
		send_reply(control, id, bytes, size_bytes);
	answer_fini(&answer);
}

bool control_serve(struct control *control, struct daemon *daemon, unsigned budget)
{
	for (; budget > 0; budget--) {
		zmq_msg_t id, frame;
		zmq_msg_init(&id);
		zmq_msg_init(&frame);
		bool is_there = zmq_msg_recv(&id, control->socket, ZMQ_DONTWAIT) >= 0;
		if (is_there && zmq_msg_more(&id) && zmq_msg_recv(&frame, control->socket, ZMQ_DONTWAIT) >= 0)
			serve(control, daemon, &id, &frame, drain(control->socket, zmq_msg_more(&frame)));
		zmq_msg_close(&id);
		zmq_msg_close(&frame);
		if (!is_there)
			return false;
	}
	return true;
}

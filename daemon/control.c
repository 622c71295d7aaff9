/* The control sockets. Owns the ROUTERs; everything that is said on them is made in daemon/answer*.c. */

#include "daemon/control.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "daemon/answer.h"
#include "daemon/log.h"
#include "daemon/socket.h"
#include "daemon/zap.h"
#include "proto/control_codec.h"

enum {
	FRAME_MAX = 65536,   /* larger ones end the connection; between CONTROL_REQUEST_MAX and this they are told */
	CLIENT_QUEUE_MAX = 16, /* replies that a client has not read; more are dropped */
	HANDSHAKE_MS = 5000
};

enum right {
	RIGHT_CHANGE,
	RIGHT_READ,
	RIGHT_OF_KEY
};

/* One socket, and what may be done through it. */
struct door {
	void *socket;
	char path[CONFIG_PATH_MAX]; /* of a unix socket; else empty */
	enum right right;
};

struct control {
	const struct config *config;
	const struct keyring *keyring;
	struct door doors[CONTROL_DOORS_MAX];
	size_t door_count;
	size_t turn;             /* the door to look at next */
	int tools[TRANSPORT_KEPT_MAX];
	size_t tool_count, tool_next;
	uint64_t malformed, denied;
};

/* Bounds for those who ask. */
static bool set_bounds(void *socket)
{
	int64_t frame_max = FRAME_MAX;
	return socket_set_int(socket, ZMQ_LINGER, 0) && socket_set_int(socket, ZMQ_SNDHWM, CLIENT_QUEUE_MAX) &&
	       socket_set_int(socket, ZMQ_RCVHWM, CLIENT_QUEUE_MAX) && socket_set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
	       zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0;
}

/* Listens at a unix socket. group: who may use it; NULL: the daemon's own. */
static int open_local(struct control *control, void *context, const char *address, enum right right, const char *group,
		      struct line *why)
{
	struct door *door = &control->doors[control->door_count++];
	snprintf(door->path, sizeof door->path, "%s", address + strlen("ipc://"));
	door->right = right;
	door->socket = zmq_socket(context, ZMQ_ROUTER);
	mode_t before = umask(0117);
	bool is_open = door->socket && set_bounds(door->socket) && zmq_bind(door->socket, address) == 0;
	int saved = errno;
	umask(before);
	if (!is_open)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot listen (%s)", address, zmq_strerror(saved));
	const struct group *found = group ? getgrnam(group) : NULL;
	if (group && !found)
		return line_fail(why, EDIT_ERROR_INVALID, "control.read_group: %s is no group of this host", group);
	if (group && chown(door->path, (uid_t)-1, found->gr_gid) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "control.read_group: %s cannot be given to %s (%s); the user of editd must be in it",
				 door->path, group, strerror(errno));
	return 0;
}

/* Listens for other hosts. */
static int open_remote(struct control *control, void *context, const char *address, struct line *why)
{
	struct door *door = &control->doors[control->door_count++];
	door->right = RIGHT_OF_KEY;
	door->socket = socket_open(context, ZMQ_ROUTER, address);
	if (!door->socket || !set_bounds(door->socket) || !socket_guard(door->socket, control->keyring, ZAP_CONTROL) ||
	    zmq_bind(door->socket, address) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "control.listen: cannot listen on %s (%s)", address, zmq_strerror(errno));
	log_line(LEVEL_NOTICE, "editctl may come in at %s with %zu keys", address, control->keyring->client_count);
	return 0;
}

int control_open(void *context, const struct config *config, const struct keyring *keyring, struct control **ret_control,
		 struct line *why)
{
	char path[CONFIG_PATH_MAX], address[CONFIG_PATH_MAX + 8];
	const char *group = config_text(config, CONTROL_READ_GROUP), *remote = config_text(config, CONTROL_LISTEN);
	struct control *control = calloc(1, sizeof *control);
	if (!control)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	control->config = config;
	control->keyring = keyring;
	int error = open_local(control, context, config->control, RIGHT_CHANGE, NULL, why);
	if (!error && group[0]) {
		snprintf(address, sizeof address, "ipc://%s",
			 config_runtime_path(config, CONTROL_READ_SOCKET, path, sizeof path));
		error = open_local(control, context, address, RIGHT_READ, group, why);
	}
	if (!error && remote[0])
		error = open_remote(control, context, remote, why);
	if (error) {
		control_close(control);
		return error;
	}
	*ret_control = control;
	return 0;
}

void control_close(struct control *control)
{
	for (size_t i = 0; i < control->door_count; i++) {
		if (control->doors[i].socket)
			zmq_close(control->doors[i].socket);
		if (control->doors[i].path[0])
			unlink(control->doors[i].path);
	}
	free(control);
}

size_t control_sources(const struct control *control, struct transport_source ret_sources[CONTROL_DOORS_MAX])
{
	for (size_t i = 0; i < control->door_count; i++)
		ret_sources[i].socket = control->doors[i].socket;
	return control->door_count;
}

size_t control_tools(const struct control *control, int ret_fds[TRANSPORT_KEPT_MAX])
{
	memcpy(ret_fds, control->tools, control->tool_count * sizeof *ret_fds);
	return control->tool_count;
}

uint64_t control_malformed(const struct control *control)
{
	return control->malformed;
}

uint64_t control_denied(const struct control *control)
{
	return control->denied;
}

static void free_reply(void *bytes, void *hint)
{
	(void)hint;
	free(bytes);
}

/* Sends reply bytes (taken over) to the client id. A client that does not read loses its replies, nobody else's. */
static void send_reply(void *socket, zmq_msg_t *id, void *bytes, size_t size_bytes)
{
	zmq_msg_t frame;
	if (zmq_msg_init_data(&frame, bytes, size_bytes, free_reply, NULL) != 0) {
		free(bytes);
		return;
	}
	if (zmq_send(socket, zmq_msg_data(id), zmq_msg_size(id), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
	    zmq_msg_send(&frame, socket, ZMQ_DONTWAIT) < 0)
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

/* A connection that has asked something is not ended to make room for others. */
static void keep_tool(struct control *control, zmq_msg_t *frame)
{
	int fd = zmq_msg_get(frame, ZMQ_SRCFD);
	for (size_t i = 0; i < control->tool_count; i++)
		if (control->tools[i] == fd)
			return;
	control->tools[control->tool_next++ % TRANSPORT_KEPT_MAX] = fd;
	control->tool_count = size_min(control->tool_next, TRANSPORT_KEPT_MAX);
}

/* Whether who sent frame through door may do this. What a key may is looked up each time, for it may have been taken away. */
static int check_right(struct control *control, const struct door *door, zmq_msg_t *frame, enum command command, struct line *why)
{
	const char *keys = config_text(control->config, NODE_KEYS);
	if (door->right == RIGHT_CHANGE || (door->right == RIGHT_READ && !control_command_changes(command)))
		return 0;
	if (door->right == RIGHT_READ)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s: no right to change: %s is for looking, %s is open to those who may",
				 control_command_name(command), door->path, control->doors[0].path);
	const char *key = zmq_msg_gets(frame, "User-Id");
	const struct keyring_client *client = key ? keyring_client(control->keyring, key) : NULL;
	if (!client)
		return line_fail(why, EDIT_ERROR_REFUSED, "this key is no longer known here");
	keep_tool(control, frame);
	if (client->may_change || !control_command_changes(command))
		return 0;
	return line_fail(why, EDIT_ERROR_REFUSED, "%s: no right to change: the key of %s may only look, as long as %.200s/" KEYFILE_CLIENTS
			 "/%s" KEYFILE_ENDING " does not say rights = change", control_command_name(command), client->name, keys,
			 client->name);
}

/* Answers one request frame. */
static void serve(struct control *control, const struct door *door, struct daemon *daemon, zmq_msg_t *id, zmq_msg_t *frame,
		  size_t extra_parts)
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
	control->malformed += error != 0;
	if (!error) {
		error = check_right(control, door, frame, request.command, &answer.why);
		control->denied += error != 0;
		if (!error)
			error = answer_of(request.command)(&answer, &request);
	}
	size_t size_bytes = 0;
	void *bytes = answer_pack(&answer, error, &size_bytes);
	if (bytes)
		send_reply(door->socket, id, bytes, size_bytes);
	answer_fini(&answer);
}

/* One request, if there is one. */
static bool serve_door(struct control *control, const struct door *door, struct daemon *daemon)
{
	zmq_msg_t id, frame;
	zmq_msg_init(&id);
	zmq_msg_init(&frame);
	bool is_there = zmq_msg_recv(&id, door->socket, ZMQ_DONTWAIT) >= 0;
	if (is_there && zmq_msg_more(&id) && zmq_msg_recv(&frame, door->socket, ZMQ_DONTWAIT) >= 0)
		serve(control, door, daemon, &id, &frame, drain(door->socket, zmq_msg_more(&frame)));
	zmq_msg_close(&id);
	zmq_msg_close(&frame);
	return is_there;
}

/* The doors take turns, so that a flood at one does not keep those at another waiting. */
bool control_serve(struct control *control, struct daemon *daemon, unsigned budget)
{
	for (size_t idle = 0; budget > 0 && idle < control->door_count;) {
		const struct door *door = &control->doors[control->turn];
		control->turn = (control->turn + 1) % control->door_count;
		bool is_there = serve_door(control, door, daemon);
		idle = is_there ? 0 : idle + 1;
		budget -= is_there;
	}
	return budget == 0;
}

#ifndef EDIT_PROTO_COMMAND_H
#define EDIT_PROTO_COMMAND_H

/* Commands of the control socket, once: daemon/control.c dispatches by this table, ctl/ and `editctl --help` expand it. */

enum {
	CONTROL_VERSION = 1,
	CONTROL_REQUEST_MAX = 4096, /* bytes of a request frame; larger ones are refused */
	CONTROL_REPLY_MAX = 64 << 20
};

/* id, number on the wire, name, right (READ, CHANGE), function of the daemon, help */
#define COMMANDS(X)                                                                                                    \
	X(COMMAND_STATUS, 1, "status", READ, status, "this node and the ring at a glance")                                 \
	X(COMMAND_PEERS, 2, "peers", READ, peers, "members: state, steps, loss, lateness")                                 \
	X(COMMAND_LAYERS, 3, "layers", READ, layers, "layers: size, round, time on the ring")                              \
	X(COMMAND_PENALTIES, 4, "penalties", READ, penalties, "verdicts and weights per member and layer")                 \
	X(COMMAND_GET, 5, "get", READ, get, "settings and since when they hold")                                           \
	X(COMMAND_HASH, 6, "hash", READ, hash, "anchor hashes of every member and layer")                                  \
	X(COMMAND_CHANGE, 7, "change", READ, change, "how a proposed change is going")                                     \
	X(COMMAND_TRACE, 8, "trace", READ, trace, "what each round has cost, as JSON lines for programs")              \
	X(COMMAND_MESH, 9, "mesh", READ, mesh, "replicas and pieces: who is where, who waits for whom, memory")           \
	X(COMMAND_VIEW, 10, "view", READ, view, "who is a member, who is heard, what is being decided")                    \
	X(COMMAND_SET, 16, "set", CHANGE, set, "change a ring setting on all members at one round")                        \
	X(COMMAND_PAUSE, 17, "pause", CHANGE, pause, "stop all workers after the round in progress")                       \
	X(COMMAND_RESUME, 18, "resume", CHANGE, resume, "let all workers go on")                                           \
	X(COMMAND_CHECKPOINT, 19, "checkpoint", CHANGE, checkpoint, "every member writes the anchor of one agreed round") \
	X(COMMAND_LEAVE, 20, "leave", CHANGE, leave, "this node leaves the ring; ends when it is out")                     \
	X(COMMAND_FORCE, 21, "force", CHANGE, force, "after the loss of a majority: go on with these members")

enum command {
#define X(id, number, name, right, function, help) id = (number),
	COMMANDS(X)
#undef X
};

#endif

#ifndef EDIT_DAEMON_ANSWER_H
#define EDIT_DAEMON_ANSWER_H

/* Answers to the requests of the control socket: one function per command of proto/command.h. They look at the
 * daemon and fill the reply; those with the right CHANGE propose a change to the node. Everything a reply points
 * to lies in the answer's own blocks or in the daemon, and is packed before anything else happens. */

#include "daemon/daemon.h"
#include "proto/command.h"
#include "proto/control.pb-c.h"
#include "proto/control_codec.h"

struct answer_block;

struct answer {
	struct daemon *daemon;
	Edit__Control__Reply reply;
	struct line why;             /* why the request is refused, when a function returns an error */
	struct answer_block *blocks; /* memory of the reply */
	size_t taken_bytes;
	bool is_short;               /* of memory, or the reply grew beyond what can be sent */
};

/* An empty answer about daemon (borrowed). */
void answer_init(struct answer *answer, struct daemon *daemon);
/* Releases its memory, and with it all that the reply points to. */
void answer_fini(struct answer *answer);

/* Zeroed memory until answer_fini. Never NULL: when there is none left or the answer grows too large, is_short is
 * set and a block is handed out that may be written but will not be sent. bytes: at most ANSWER_PART_MAX. */
enum { ANSWER_PART_MAX = 65536 };
void *answer_take(struct answer *answer, size_t bytes);
/* A copy of text, cut at 511 bytes. */
char *answer_text(struct answer *answer, const char *text);
/* A list of count pointers, to be filled; NULL if is_short. */
void **answer_list(struct answer *answer, size_t count);

/* The reply as bytes, the caller's to free: the body, or the error with the line why. NULL if memory is short. */
void *answer_pack(struct answer *answer, int error, size_t *ret_bytes);

/* One per command: 0 and answer->reply filled, or an error code and answer->why. EDIT_ERROR_UNHEALTHY: no run yet. */
typedef int answer_function(struct answer *answer, const struct control_request *request);

#define X(id, number, name, right, function, help) answer_function answer_##function;
COMMANDS(X)
#undef X

/* The node must exist for this command: 0, or EDIT_ERROR_UNHEALTHY with a line. */
int answer_needs_node(struct answer *answer);

/* A member's state as people read it. */
const char *answer_state_text(enum peer_state state);
/* The same of a member by its rank in the mesh, with "self", and what keys have to do with it. known: of the node; all zero: there is
 * none. Points to a constant. */
const char *answer_member_text(const struct daemon *daemon, uint32_t rank, const struct node_peer *known);

/* Of the list of members that this node knows: its number, the members in it, and how many of them are heard: live, and in reach along
 * the ring by way of live ones, for of what lies behind a gap nobody tells. This node is one of them if it is a member. */
void answer_put_heard(const struct daemon *daemon, Edit__Control__Status *status);

/* Rank in the mesh of the member that this one waits for: itself if its own worker has died; member_count: nobody. status: of the
 * node, now. */
uint32_t answer_waits_for(const struct daemon *daemon, const struct node_status *status);

/* What is known of a change; fills the reply's body. */
void answer_put_change(struct answer *answer, const struct change_entry *entry);

#endif

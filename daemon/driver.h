#ifndef EDIT_DAEMON_DRIVER_H
#define EDIT_DAEMON_DRIVER_H

/* Drives the core's node in the real world: events in, actions carried out on sockets, segment and state. All
 * rules of the protocol are the node's. Owns the node's block; borrows the rest. */

#include "core/node.h"
#include "daemon/changes.h"
#include "daemon/checkpoint.h"
#include "daemon/history.h"
#include "daemon/rounds.h"
#include "daemon/run.h"
#include "daemon/transport.h"
#include "daemon/worker_port.h"

/* What the log line of a round says, until it is due. */
struct round_line {
	uint64_t at_us; /* UINT64_MAX: none is due */
	uint64_t round, sync_us, bytes;
	struct round_sum sum;
	uint32_t latest; /* rank */
	uint64_t lateness_us;
};

struct driver {
	const struct config *config;
	struct transport *transport;
	struct worker_port *port;
	struct checkpoint *checkpoint;
	struct run *run;
	uint64_t incarnation;

	struct driver_node *own; /* the node and those of earlier views; NULL until the run is begun */
	struct node *node;       /* of the view in force */
	size_t block_bytes;      /* of its memory */
	uint64_t now_us;         /* of the turn */
	uint64_t deadline_us;    /* that the node asked for */
	uint64_t taken_step;     /* offered_step of the last offer taken */
	struct state_run record; /* what the state file says of the run, kept up to date */
	struct driver_offer { uint64_t step, tokens, wait_us; } offer, offer_before; /* the worker's words at the last offer, and the one before */
	double loss;             /* mean of the last interval of the own worker; NaN: none yet */
	bool must_ring;          /* the worker shall look again */
	bool finished;
	bool is_complete;        /* the ring of the view in force has been complete */
	bool is_round_done;      /* the node has just completed a round, rather than taken over where others are */
	uint64_t checkpoint_round; /* just completed, to be written; 0: none */
	uint64_t checkpoint_change; /* the last one proposed here by time; 0: none */
	uint64_t checkpoint_us;  /* when the last one was begun or asked for, or the run began here */
	struct round_line line;
	bool is_offer_open;      /* the last offer's round is not complete */
	uint64_t exposed_us;     /* that the worker told with its last offer: of the round before */
	uint64_t taken_handed;   /* handed_step of the last gradients taken */
	bool is_handing;         /* they are in the round in progress */
	uint64_t calls, sums;    /* of a mesh: the last ones that the worker has asked for and the node knows of */
	bool *handed;            /* [layer_count] the node has this one, or knows that there is none */
	uint64_t told_us;        /* of the last line of a round at level info */
	uint64_t *hash_queue;    /* [layer_count] layers committed and not hashed yet */
	size_t hash_count;
	const struct message *heard; /* message of the event being taken, NULL otherwise */
	struct change *proposed; /* the change being proposed, NULL otherwise */
	double proposed_before;  /* CHANGE_SET: the value in force */
	uint64_t change_id;      /* its id; 0 if it was refused with change_error */
	int change_error;
	struct changes changes;
	struct history history;  /* of this daemon's rounds; open when there is a node */
	struct actions actions;
	char refusal[LINE_BYTES]; /* why some neighbour is not accepted, or does not accept us; empty: all well */
	uint32_t refusal_rank;
	char missing[LINE_BYTES];     /* a layer that nobody in the view holds; empty: none */
	char damage[LINE_BYTES];      /* a hash that differs from another member's; empty: none has in this view */
	bool differs;                 /* that was just found */
	uint64_t differences, fetched; /* hashes that differed, layers that were fetched, since the start */
};

/* Borrows everything; nothing runs yet. */
void driver_init(struct driver *driver, const struct config *config, struct transport *transport,
		 struct worker_port *port, struct checkpoint *checkpoint, struct run *run, uint64_t incarnation);
void driver_close(struct driver *driver);

/* The run is begun: makes the node and starts it. EDIT_ERROR_SYSTEM if memory is short. */
int driver_start(struct driver *driver, uint64_t now_us, struct line *why);

/* The config has the members of a newer view: goes on in it, with what this member has. The node's forerunner stays in memory for as long
 * as frames of it may be on their way. EDIT_ERROR_SYSTEM: no memory, and it has not entered. */
int driver_enter(struct driver *driver, uint64_t now_us, struct line *why);

/* This member takes part no more: its worker is told to stop, and there is no node from now on. */
void driver_leave(struct driver *driver);

/* Takes one event (its now_us is set here) and carries out what follows. Nothing happens while there is no node. */
void driver_take(struct driver *driver, struct event *event, uint64_t now_us);
/* The deadline may have passed. */
void driver_tick(struct driver *driver, uint64_t now_us);
/* A message from a neighbour. */
void driver_message(struct driver *driver, const struct message *message, uint64_t now_us);
/* Proposes a change; *ret_id is its id. Errors as node_step's NOTE_CHANGE_REFUSED; EDIT_ERROR_UNHEALTHY while
 * there is no node. */
int driver_propose(struct driver *driver, const struct change *change, uint64_t now_us, uint64_t *ret_id);
/* A worker has come after another died. */
void driver_count_restart(struct driver *driver);

/* Writes the line of the round kept last: what it cost and what came of it. */
void driver_tell(struct driver *driver);
/* Rings the worker's bell if there is a reason to; many reasons make one bell. */
void driver_ring(struct driver *driver);

/* For daemon/driver_nodes.c and .c: how the worker is to treat a round, by the settings in force; after how many steps it offers, of
 * which kind. Frees nodes of earlier views, as far as they are not needed any more. */
void driver_tell_overlap(struct driver *driver);
void driver_schedule(struct driver *driver, uint64_t steps, bool gradients);
void driver_free_nodes(struct driver *driver);

/* When driver_tick has something to do, UINT64_MAX: never. */
uint64_t driver_deadline(const struct driver *driver);
/* Microseconds that the worker has waited for the last complete round. */
uint64_t driver_exposed_us(const struct driver *driver);

#endif

#ifndef EDIT_DAEMON_MEMBERSHIP_H
#define EDIT_DAEMON_MEMBERSHIP_H

/* Drives the council (core/council.h) in the real world: its vote on disk, its messages, its time, its doubts. Says when this member enters
 * a view; what follows from that is the daemon's. Only where mesh.shards is 1: the members of a mesh do not change. Owns council and vote. */

#include "core/council.h"
#include "core/node.h"
#include "daemon/facts.h"
#include "daemon/transport.h"

enum membership_place {
	MEMBERSHIP_FIRST,   /* view 1, whose members are those of the config, is not complete */
	MEMBERSHIP_IN,      /* a member of the view that is in force */
	MEMBERSHIP_OUT,     /* not in it, or not this start of it: asks to be taken in as soon as there is a worker */
	MEMBERSHIP_LEFT     /* out by its own wish */
};

struct membership {
	const struct config *config;
	const struct facts *facts;   /* of what the worker trains; NULL: there is none yet */
	struct transport *transport;
	bool is_active;              /* false: the members do not change */
	enum membership_place place;
	bool wants_out;              /* was told to leave */
	bool has_vote;               /* the disk knew of a view when this daemon started */
	struct council *council;
	struct council_actions *actions;
	void *block, *vote_block;
	struct vote vote;            /* as read from the disk at the start */
	char path[CONFIG_PATH_MAX];  /* of the vote file */
	struct roster entered;       /* to be entered now: number 0: none; seats are the council's */
	uint64_t deadline_us;        /* that the council asked for */
	uint64_t persist_at_us;      /* the disk has failed: when it is tried again; 0: nothing is owed */
	uint64_t watch_at_us;        /* neighbours are looked at */
	uint64_t entered_us;         /* the present view */
	bool has_met_all;            /* since this daemon's last entry its ring was complete */
	uint32_t vain_entries;       /* one after the other in which that never was so */
	uint64_t rejoin_at_us;       /* asks to be taken in not before; 0: at once */
	bool is_doubted[ROAD_COUNT]; /* neighbours, as of config_neighbours */
	uint64_t renewed_us;         /* when a view was last asked for because hashes differ; 0: never */
	uint64_t refused_told_us;    /* when a refusal was last told */
	char trouble[LINE_BYTES];    /* why the vote cannot be written; empty: it can */
};

/* Reads the vote file, and seats the config as it says. 0; or an error with a line: the file is damaged, or no memory. */
int membership_open(struct membership *membership, struct config *config, uint64_t incarnation, struct line *why);
void membership_close(struct membership *membership);

/* Whether this member was in a ring that has begun, by its disk: then it waits for a view before it starts a node. */
bool membership_waits(const struct membership *membership);

/* This member can train what the facts say, which stay the caller's for as long as it runs: asks to be taken in, unless it is in the view or has left. */
void membership_ready(struct membership *membership, const struct facts *facts, uint64_t now_us);
/* The ring of the view that was entered last is complete: all have said hello. */
void membership_met(struct membership *membership);
/* View 1 is complete. */
void membership_begin(struct membership *membership, uint64_t now_us);
/* A decree has come in. node: as neighbours are known here; NULL: there is none. */
void membership_hear(struct membership *membership, const struct decree *decree, const struct node *node, uint64_t now_us);
/* The members do not hold the same: asks for a view in which whoever holds something else gets what most hold. Not again within half a
 * minute: what comes back has a cause that this does not cure. */
void membership_renew(struct membership *membership, uint64_t now_us);
/* Time passes. */
void membership_tick(struct membership *membership, const struct node *node, uint64_t now_us);
/* When membership_tick has something to do. */
uint64_t membership_deadline(const struct membership *membership);

/* The view to be entered now, NULL: none. Valid until the next call here; asked for until it is NULL. */
const struct roster *membership_take(struct membership *membership, uint64_t now_us);

/* The present view as this member knows it. */
const struct roster *membership_roster(const struct membership *membership);

/* Leaves for good: until this daemon starts again. EDIT_ERROR_REFUSED (why): not a member, or the last one, or a mesh. */
int membership_leave(struct membership *membership, uint64_t now_us, struct line *why);
/* The way out without a majority: the named members go on. EDIT_ERROR_REFUSED (mesh), or as council_force; why tells. */
int membership_force(struct membership *membership, const char *const *names, size_t count, uint64_t now_us, struct line *why);

#endif

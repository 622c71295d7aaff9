#ifndef EDIT_DAEMON_RECOVERY_H
#define EDIT_DAEMON_RECOVERY_H

/* What happens when the runtime directory is empty and the disk is not, as after a loss of power: looks for intact checkpoints of the run.
 * Without a mesh that is all: the newest one is taken up, and whoever holds a newer one than this member gives it what it lacks. The members
 * of a mesh agree with their neighbours on the newest that all hold (daemon/consent.h); one that needs none of that answers the others.
 * Sends hellos of its own kind, which the node never sees. Borrows config and transport. */

#include "daemon/config.h"
#include "daemon/consent.h"
#include "daemon/folder.h"
#include "daemon/transport.h"

struct recovery {
	const struct config *config;
	struct transport *transport;
	uint64_t incarnation;
	bool is_asking;      /* there are checkpoints here, and no memory: the run goes on from one of them */
	bool is_agreed;
	struct consent consent;
	struct consent_entry chosen; /* once it is agreed */
	char folder[CONFIG_PATH_MAX]; /* of it; empty: none is chosen */
	char names[CONSENT_HELD_MAX][FOLDER_NAME_BYTES]; /* folder of each entry of consent.begin */
	uint64_t say_at_us, restart_at_us; /* the own list is said again; after a failure all is begun again */
	char failure[LINE_BYTES];    /* why there is nothing that all hold, for people; empty: there may be */
	char told[LINE_BYTES];       /* what was logged last of a neighbour that asks in vain */
};

/* Looks at runtime and state directory. Reads every checkpoint of the run in full, unless there is memory; each that is not intact is
 * logged and passed over. With one member it is agreed at once. */
void recovery_open(struct recovery *recovery, const struct config *config, struct transport *transport, uint64_t incarnation);
/* Takes a hello, if it is of the kind that is sent here; false: it is not. round and hash are those of the run in memory, which is here
 * since, NULL: none is. */
bool recovery_hear(struct recovery *recovery, const struct message *message, const struct consent_entry *memory, uint64_t now_us);
/* Says what is due. Returns when to come back. */
uint64_t recovery_tick(struct recovery *recovery, uint64_t now_us);
/* A run must not begin yet. */
bool recovery_is_waiting(const struct recovery *recovery);

#endif

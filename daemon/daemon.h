#ifndef EDIT_DAEMON_DAEMON_H
#define EDIT_DAEMON_DAEMON_H

/* One daemon as a whole: its parts, opened in the order in which they stand here and closed the other way round,
 * and one turn of its loop. Everything that lives as long as the process hangs on this one struct. */

#include "daemon/checkpoint.h"
#include "daemon/config.h"
#include "daemon/driver.h"
#include "daemon/health.h"
#include "daemon/keyring.h"
#include "daemon/lock.h"
#include "daemon/membership.h"
#include "daemon/notify.h"
#include "daemon/recovery.h"
#include "daemon/run.h"
#include "daemon/transport.h"
#include "daemon/worker_port.h"

struct control;

struct daemon {
	struct config config;
	struct keyring keyring;
	struct notify notify;
	int signal_fd;
	struct lock lock, state_lock; /* of runtime_dir and of state_dir */
	struct transport *transport;
	struct control *control;
	struct worker_port port;
	struct run run;
	struct checkpoint checkpoint;
	struct recovery recovery;
	uint64_t recovery_at_us;       /* it has something to do then */
	struct membership membership;
	struct driver driver;
	struct health health;

	uint64_t incarnation;
	uint64_t begin_us, now_us;     /* monotonic */
	bool is_stopping;
	bool had_worker;               /* one was ready before: the next one is a restart */
	char refused_worker[LINE_BYTES]; /* why the last worker that came was not admitted; empty: it was */
	char lost_worker[LINE_BYTES];    /* of a mesh: its worker died in mid-run, and none can take its place; empty: no */
	char advised[LINE_BYTES];        /* the advice that was logged last, while it holds; empty: none does */
	bool worker_has_finished;
	uint64_t strangers_told_us;    /* when frames of strangers were last told, and how many there were then */
	uint64_t strangers_told;
	uint64_t status_at_us;         /* the status line is made anew */
};

/* Opens all parts. Config and keyring are read already and become the daemon's. On failure one line has been logged and
 * what was opened is closed again; returns a code of core/base.h. */
int daemon_open(struct daemon *daemon);
void daemon_close(struct daemon *daemon);

/* One turn: waits for something to happen, and handles a bounded part of what has. False: it is time to stop. */
bool daemon_turn(struct daemon *daemon);

/* The line that systemd and `editctl status` show, into text[size]. */
void daemon_status_text(const struct daemon *daemon, char *text, size_t size);

/* Why the daemon is degraded, "" if it is not. */
const char *daemon_degraded(const struct daemon *daemon);

#endif

#ifndef EDIT_DAEMON_NOTIFY_H
#define EDIT_DAEMON_NOTIFY_H

/* What systemd is told: ready, one status line, signs of life, stopping. Every call is cheap and does nothing when
 * the daemon was not started by systemd. Called from the main loop only, so a loop that hangs stops the watchdog. */

#include "core/base.h"

struct notify {
	uint64_t watchdog_us; /* interval between signs of life; 0: none wanted */
	uint64_t fed_us;      /* when the last one was given */
	char status[256];     /* the line sent last */
};

/* Learns from the environment whether a watchdog is on. */
void notify_init(struct notify *notify);

/* The daemon is up: settings read, lock held, sockets open. Once. */
void notify_ready(struct notify *notify);

/* The status line; sent only if it has changed. */
void notify_status(struct notify *notify, const char *status);

/* A sign of life, sent when one is due at now_us. Returns the time at which the next is due (UINT64_MAX: none). */
uint64_t notify_alive(struct notify *notify, uint64_t now_us);

/* The daemon has begun to stop. */
void notify_stopping(struct notify *notify);

#endif

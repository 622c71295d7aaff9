#ifndef EDIT_DAEMON_ENTRY_H
#define EDIT_DAEMON_ENTRY_H

/* What follows for this daemon from who is a member: which view it enters, with which neighbours, and what it says of it. */

#include "daemon/daemon.h"

/* The members of the config, as the transport wants them told; texts are the config's. */
struct transport_view entry_view(const struct config *config);
/* The worker is ready: starts the node where the run begins, or lets the members know that this one can take part. A line, if memory is
 * short. */
int entry_ready(struct daemon *daemon, struct line *why);
/* A turn: time passes for the council, and views that it has decided are entered. */
void entry_step(struct daemon *daemon);
/* Why this member is in no ring, into text[size]. False: it is in one. */
bool entry_status_text(const struct daemon *daemon, char *text, size_t size);

#endif

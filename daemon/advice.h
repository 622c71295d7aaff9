#ifndef EDIT_DAEMON_ADVICE_H
#define EDIT_DAEMON_ADVICE_H

/* What to do about a mesh that stands still: one line for a person who did not build it. Only looks. */

#include "daemon/daemon.h"

/* The one way on for a replica that has lost a part. Workers too: one that has outlived its daemon is in the middle of a step that the
 * new daemon knows nothing of. */
#define ADVICE_RESTART "restart all members (editd and worker)"

/* Who is missing and what to do, as seen from here, into text[size]; "" if the mesh moves, and always without a mesh. Returns whether
 * it is worth a line of the log: not what was logged already, nor what may be a worker that is only slow. */
bool advice_text(const struct daemon *daemon, char *text, size_t size);

#endif

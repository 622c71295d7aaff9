#ifndef EDIT_DAEMON_RESTORE_H
#define EDIT_DAEMON_RESTORE_H

/* From a checkpoint back to a run: fills the files of the runtime directory as the daemon and the worker would have left them at the end
 * of that round. Reads numbers straight into their places; believes nothing that does not fit the description, to the byte. */

#include "daemon/run.h"

/* Fills the run's segment (made, not initialised) and state (made, not begun) from a checkpoint of `round` in folder, for the layers of
 * description. Then the state file has its name at state_path, and the segment counts as initialised: everything is as after a stop.
 * EDIT_ERROR_REFUSED: the checkpoint is of another model or round, cut otherwise, or damaged; EDIT_ERROR_SYSTEM: it cannot be read, or
 * no memory. Then why tells, and what was made is of no use. */
int restore_run(struct run *run, const char *folder, uint64_t round, const struct description *description, const char *state_path,
		struct line *why);

#endif

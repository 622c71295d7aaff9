#ifndef EDIT_DAEMON_FACTS_H
#define EDIT_DAEMON_FACTS_H

/* What must be equal on all members, as facts for the hello. */

#include "daemon/config.h"
#include "daemon/state.h"

/* Makes the facts of a run; the anchor's hash is that of the state's layer entries. Equal on all members except by
 * mistake: same keys in the same order. *ret_facts [*ret_count] and *ret_text are the caller's to free.
 * EDIT_ERROR_REFUSED with a line if they do not fit a hello, EDIT_ERROR_SYSTEM. */
int facts_make(const struct description *description, const struct config *config, const struct state *state,
	       struct fact **ret_facts, char **ret_text, size_t *ret_count, struct line *why);

#endif

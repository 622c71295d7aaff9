#ifndef EDIT_DAEMON_FACTS_H
#define EDIT_DAEMON_FACTS_H

/* What must be equal on all members, as facts for the hello. First come those that hold for as long as the run: the worker's, because they
 * are what people mistake, then node.run and the layers. Those behind them hold where the members of the config's list begin together:
 * settings, members, the round and the anchor to start from. Later views agree on these otherwise. */

#include "daemon/config.h"
#include "daemon/state.h"

struct facts {
	struct fact *list; /* [count], owned */
	char *text;        /* owned */
	size_t count, lasting_count;
	uint32_t *hashes;     /* [lasting_count], owned */
	uint64_t fingerprint; /* of the lasting ones; never 0 */
};

/* Makes the facts of a run; the anchor's hash is that of the state's layer entries. Equal on all members except by
 * mistake: same keys in the same order. *ret_facts is the caller's to facts_free.
 * EDIT_ERROR_REFUSED with a line if they do not fit a hello, EDIT_ERROR_SYSTEM. */
int facts_make(const struct description *description, const struct config *config, const struct state *state,
	       struct facts *ret_facts, struct line *why);
/* The first lasting fact whose hash is not that of hashes[count] in its place, as "KEY: VALUE"; false: there is none here. */
bool facts_tell_difference(const struct facts *facts, const uint32_t *hashes, size_t count, char *text, size_t size);
/* All zero afterwards. */
void facts_free(struct facts *facts);

#endif

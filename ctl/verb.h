#ifndef EDIT_CTL_VERB_H
#define EDIT_CTL_VERB_H

/* The table of editctl's commands: those of proto/command.h, `wait`, which is status asked again and again, and `keygen`, which asks
 * nobody. A command
 * added there does not link before a run_ function for it stands in ctl/. */

#include <stdbool.h>
#include <stddef.h>

#include "proto/command.h"

struct session;

/* Options that belong to some verbs only. */
enum verb_option {
	VERB_WATCH = 1,
	VERB_AT_ROUND = 2,
	VERB_DRY_RUN = 4,
	VERB_WAIT = 8,
	VERB_TIMEOUT = 16,
	VERB_SINCE = 32,
	VERB_LAST = 64,
	VERB_FOLLOW = 128,
	VERB_OUT = 256,
	VERB_FORCE = 512
};

struct verb_words {
	const char *shown; /* as usage shows them; NULL if there are none */
	size_t min, max;
	unsigned options;  /* enum verb_option, beyond those of the right */
	unsigned without;  /* those of the right that make no sense here */
};

struct verb {
	int command; /* enum command; 0: wait, keygen */
	const char *name;
	const char *help;
	const struct verb_words *words;
	unsigned options; /* enum verb_option of the right (READ, CHANGE) */
	int (*run)(struct session *session); /* returns the exit status */
};

/* All verbs, in the order of the table; *ret_count of them. */
const struct verb *verb_list(size_t *ret_count);
/* The verb of that name, or NULL. */
const struct verb *verb_find(const char *name);
/* Does the verb take that option? */
bool verb_has(const struct verb *verb, enum verb_option option);

/* One run_ function per command, each returning an exit status: */
#define X(id, number, name, right, function, help) int run_##function(struct session *session);
COMMANDS(X)
#undef X
int run_wait(struct session *session);
int run_keygen(struct session *session);

#endif

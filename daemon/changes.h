#ifndef EDIT_DAEMON_CHANGES_H
#define EDIT_DAEMON_CHANGES_H

/* The changes that this daemon has heard of, for people who ask how theirs is going: the last CHANGE_LOG_MAX of
 * them. The core decides; this only remembers what its notes said. */

#include "core/event.h"

enum { CHANGE_LOG_MAX = 64, CHANGE_FOLDER_MAX = 512, CHANGE_FAILURE_MAX = 512 };

enum change_state { CHANGE_PROPOSED, CHANGE_HELD, CHANGE_IN_FORCE, CHANGE_DROPPED };

struct change_entry {
	struct change change;
	double before;           /* CHANGE_SET: value in force when it was proposed */
	enum change_state state;
	uint64_t round;          /* CHANGE_IN_FORCE: after this round */
	char folder[CHANGE_FOLDER_MAX];   /* CHANGE_CHECKPOINT: once written; empty until then */
	char failure[CHANGE_FAILURE_MAX]; /* CHANGE_CHECKPOINT: why it could not be written; empty unless so */
};

struct changes {
	struct change_entry entries[CHANGE_LOG_MAX];
	uint64_t count; /* ever added */
};

/* Remembers a change, unless it is known already. The oldest gives way. */
void changes_add(struct changes *changes, const struct change *change, double before);
/* The entry of an id, NULL if it is not known (any more). */
struct change_entry *changes_find(struct changes *changes, uint64_t id);
/* What a note says of a change; notes about others are no news. */
void changes_note(struct changes *changes, const struct note *note);
/* Puts into settings what changes under way will have set when one for at_round (0: as soon as may be) is taken, in the order of
 * their effect: those that name no round, then by round. One that is bound to a later round does not count. */
void changes_foresee(const struct changes *changes, uint64_t at_round, struct ring_settings *settings);
/* A checkpoint of round stands in folder. */
void changes_written(struct changes *changes, uint64_t round, const char *folder);
/* The checkpoint of round could not be written; why is a line. */
void changes_failed(struct changes *changes, uint64_t round, const char *why);

/* "proposed", "held", "in-force", "dropped". */
const char *changes_state_text(enum change_state state);
/* "sync.interval 10 -> 20", "pause". Writes into text[size]. */
void changes_text(const struct change_entry *entry, char *text, size_t size);

#endif

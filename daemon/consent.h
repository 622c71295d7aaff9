#ifndef EDIT_DAEMON_CONSENT_H
#define EDIT_DAEMON_CONSENT_H

/* How members whose memory is gone agree on the checkpoint to go on from: the newest that all hold intact. Pure: no I/O, no clock.
 *
 * Each member says to its neighbours, in hellos of their own kind, a stage k and a list: the checkpoints that all members within k links
 * of it hold. At stage k, with both neighbours' lists of stage k or later, the intersection is that of stage k + 1. Lists only become
 * shorter, so a later stage in place of an earlier one does no harm. After as many stages as the member list is long everybody has
 * everybody's answer, and takes the entry with the highest round. A member whose memory is intact, or that begins anew, has one thing to
 * offer and says so as a last word, with the last stage. A list that becomes empty ends it: its member says whose list did that,
 * which is not taken for an answer but passed on as the cause, and all begin again. */

#include "core/event.h"
#include "core/places.h"
#include "proto/text.h"

enum { CONSENT_HELD_MAX = 16, CONSENT_NEIGHBOURS_MAX = ROAD_COUNT, CONSENT_FACTS_MAX = CONSENT_HELD_MAX + 4 };

/* What can be gone on from: a round with the hash of its anchor; round 0 stands for beginning anew. */
struct consent_entry {
	uint64_t round, hash;
};

struct consent_list {
	uint64_t stage;
	struct consent_entry held[CONSENT_HELD_MAX];
	size_t held_count;
	char cause[FACT_TEXT_MAX + 1]; /* why there is nothing that all hold; empty: there may be something */
};

struct consent_neighbour {
	uint32_t rank;
	bool is_heard;
	struct consent_list list; /* what it said last */
};

struct consent {
	uint64_t stage_count;     /* of members */
	struct consent_list own, begin; /* now; as it was at stage 0 */
	struct consent_neighbour neighbours[CONSENT_NEIGHBOURS_MAX];
	size_t neighbour_count;
};

/* What this member can go on from: held[held_count], the first CONSENT_HELD_MAX of them. is_last_word: whatever the others hold.
 * Without neighbours it is agreed at once. */
void consent_init(struct consent *consent, uint32_t member_count, const uint32_t *neighbours, size_t neighbour_count,
		  const struct consent_entry *held, size_t held_count, bool is_last_word);
/* A neighbour has said a list. Names of members are for the cause: name is that of the neighbour. True: the own list or stage is another
 * one now, and the neighbours should hear it. */
bool consent_hear(struct consent *consent, uint32_t rank, const char *name, const struct consent_list *list);
/* From stage 0 again, with nothing heard: some time after a failure, when members may have changed. */
void consent_restart(struct consent *consent);
/* Agreed: *ret_entry is what all go on from. */
bool consent_is_agreed(const struct consent *consent, struct consent_entry *ret_entry);
/* Why there is nothing that all hold, as found here or told by a neighbour; NULL if there may be something. */
const char *consent_failure(const struct consent *consent);
/* The first neighbour that has not said what this stage needs; UINT32_MAX: none. */
uint32_t consent_waits_for(const struct consent *consent);

/* A list as facts of a hello, whose first key tells it from other hellos. texts[CONSENT_FACTS_MAX][2][] holds what is made here.
 * Returns their number. */
size_t consent_facts(const struct consent_list *list, const char *run, char texts[CONSENT_FACTS_MAX][2][FACT_TEXT_MAX + 1],
		     struct fact facts[CONSENT_FACTS_MAX]);
/* Whether the hello is of this kind. */
bool consent_is_hello(const struct hello *hello);
/* Reads such a hello. EDIT_ERROR_MALFORMED; EDIT_ERROR_REFUSED: it is of another run (named in why). */
int consent_read(const struct hello *hello, const char *run, struct consent_list *ret_list, struct line *why);

#endif

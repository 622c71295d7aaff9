#ifndef EDIT_SIM_BALLOT_H
#define EDIT_SIM_BALLOT_H

/* Whether the members did the same with the changes proposed: each one is taken up by all after one round, or by none, and
 * exactly after the round that it is bound to; checkpoints come at equal rounds; a member is paused from the end of a round after which
 * a pause is taken until it hears that this pause, or a later one, is over. Watches notes and actions; changes nothing. */

#include "core/event.h"

enum { BALLOT_FAULT_BYTES = 200, BALLOT_CHANGE_MAX = 256 };

struct ballot_change {
	uint64_t id, at_round; /* 0: not bound */
	enum change_kind kind;
	uint64_t round;        /* taken after it */
	uint64_t ends;         /* of a resume: the pause after this round, and earlier ones */
	bool *taken, *dropped; /* [peers] */
	bool any_taken, any_dropped;
};

struct ballot_member {
	uint64_t checkpoint_rounds; /* digest, compared at the end */
	uint64_t pause_round, resume_round; /* the last pause taken; the latest one that is over */
	bool paused;
};

struct ballot {
	uint32_t peers;
	bool is_loose;         /* members change: what was agreed may be taken back, and whoever was away has missed some */
	struct ballot_change changes[BALLOT_CHANGE_MAX];
	size_t change_count;
	struct ballot_member *members; /* [peers] */
	uint64_t pauses, checkpoints, refused;
	char fault[BALLOT_FAULT_BYTES]; /* of the first fault; empty: none */
};

/* An empty ballot; takes memory. */
void ballot_init(struct ballot *ballot, uint32_t peers);
/* Releases it. */
void ballot_fini(struct ballot *ballot);
/* A change was proposed at the member `rank` in this event, and the member's actions: was it accepted (NOTE_CHANGE_HERE) or refused? Exactly
 * one of them. *ret_id: its id, 0 if refused. */
bool ballot_propose(struct ballot *ballot, uint32_t rank, const struct change *change, const struct actions *actions,
		    uint64_t *ret_id);
/* Any action of a member, which has completed `round` rounds. false: fault. */
bool ballot_action(struct ballot *ballot, uint32_t rank, const struct action *action, uint64_t round);
/* All actions of an event are told: is the member paused as it should be? false: fault. */
bool ballot_look(struct ballot *ballot, uint32_t rank);
/* The run is over for all members. false: fault. */
bool ballot_end(struct ballot *ballot);
/* Members that are paused now. */
uint32_t ballot_paused_count(const struct ballot *ballot);

#endif

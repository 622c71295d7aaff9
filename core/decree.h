#ifndef EDIT_CORE_DECREE_H
#define EDIT_CORE_DECREE_H

/* What goes into a council and what comes out: messages, events, actions. Plain data; nothing here acts.
 *
 * Pointers are borrowed: those in an event until the actions of that step have been carried out, those in an action until the
 * next call with the same council. Names are SEAT_NAME_BYTES, addresses SEAT_ADDRESS_BYTES bytes, padded with zeros. */

#include "core/vote.h"

enum {
	DETAIL_BYTES = 516,
	DOUBT_COUNT_MAX = 8, /* members that one promise can name as not heard */
	COUNCIL_ACTION_COUNT_MAX = 2 * MEMBER_COUNT_MAX + 64
};

/* ---- Messages ---- */

enum decree_kind {
	DECREE_PREPARE = 1, /* I want to propose with this ballot: what have you accepted, whom do you not hear? */
	DECREE_PROMISE,     /* nothing below the ballot any more; what has been accepted until now; doubts */
	DECREE_ACCEPT,      /* accept this roster */
	DECREE_ACCEPTED,
	DECREE_NACK,        /* a higher ballot has been promised */
	DECREE_DECIDED,     /* this is a view; also the answer to whatever is about an earlier one */
	DECREE_ASK,         /* that is the view I know: send a newer one if you have it */
	DECREE_JOIN,        /* I want to be a member */
	DECREE_LEAVE,       /* I want to be none any more */
	DECREE_REFUSED,     /* to a joiner: not now */
	DECREE_KIND_END
};

enum decree_refusal {
	DECREE_REFUSAL_FULL = 1, /* the view, or the list of joiners, has no more room: it may be tried again */
	DECREE_REFUSAL_TAKEN,    /* the asked member itself has this name */
	DECREE_REFUSAL_OTHER,    /* the joiner trains something else */
	DECREE_REFUSAL_END
};

struct decree {
	enum decree_kind kind;
	const char *sender;       /* name of who says it, also when it is passed on */
	uint64_t incarnation;     /* of the sender */
	uint64_t disk;            /* of the sender */
	uint64_t fingerprint;     /* of what the sender trains: model, data, run; 0: nothing, it has no worker yet */
	const char *receiver;     /* name of whom it is for; NULL: whoever gets it */
	const char *relay;        /* name of the member that passes it on; NULL: none, it comes from the sender itself */
	uint64_t view;            /* that it is about: the one that the sender knows; DECIDED: the roster's */
	uint64_t ballot;          /* PREPARE to ACCEPTED; NACK: the promised one */
	uint64_t accepted_ballot; /* PROMISE; 0: nothing accepted, and no roster */
	struct roster roster;     /* PROMISE: accepted; ACCEPT: proposed; DECIDED */
	uint32_t doubt_count;
	uint32_t doubts[DOUBT_COUNT_MAX]; /* PROMISE: ranks that the sender does not hear */
	const char *address;      /* JOIN: of the sender */
	const uint32_t *facts;    /* JOIN: [fact_count] a hash of each fact of what the sender trains, in order, up to FACT_COUNT_MAX */
	uint32_t fact_count;
	const char *detail;       /* REFUSED: the fact that is another one, "KEY: VALUE", up to DETAIL_BYTES - 1 bytes; NULL: none is told */
	enum decree_refusal refusal;
};

/* Could a correct member have said this? Looks at everything that does not depend on which view it is about; capacity: members
 * that a roster may have. 0, or EDIT_ERROR_MALFORMED. */
int decree_check(const struct decree *decree, uint32_t capacity);

/* ---- Events ---- */

enum council_event_kind {
	COUNCIL_EVENT_TICK = 1,  /* start, or the asked for deadline has passed */
	COUNCIL_EVENT_DECREE,    /* a message came; a JOIN under a name that is in the view is handed over only once the incarnation
				  * there is known not to answer */
	COUNCIL_EVENT_PERSISTED, /* answer to COUNCIL_ACTION_PERSIST */
	COUNCIL_EVENT_BEGIN,     /* view 1 is complete: all of the config's list have said hello */
	COUNCIL_EVENT_DOUBT,     /* a member is not heard any more */
	COUNCIL_EVENT_HEARD,     /* it is heard again */
	COUNCIL_EVENT_JOIN,      /* this incarnation wants to be a member */
	COUNCIL_EVENT_LEAVE,     /* this member wants to leave */
	COUNCIL_EVENT_RENEW,     /* members of the view do not hold the same: it shall be begun anew, with those who are there */
	COUNCIL_EVENT_READY,     /* this member can train: its worker has described itself */
	COUNCIL_EVENT_KIND_END
};

struct council_event {
	enum council_event_kind kind;
	uint64_t now_us;             /* monotonic; only differences matter; never goes back */
	const struct decree *decree; /* DECREE */
	const char *name;            /* DOUBT, HEARD */
	const char *detail;          /* DECREE: what to tell a joiner that trains something else; NULL: nothing */
	uint64_t fingerprint;        /* READY */
};

/* ---- Actions ---- */

enum council_action_kind {
	COUNCIL_ACTION_SEND = 1, /* the decree to a seat; may be lost, the council says it again */
	COUNCIL_ACTION_PERSIST,  /* write the vote to the disk, to stay; then COUNCIL_EVENT_PERSISTED. Until then the council neither
				  * answers nor decides; if the disk fails, try again */
	COUNCIL_ACTION_INSTALL,  /* the roster is the view from now on, this incarnation is in it, its vote is on disk */
	COUNCIL_ACTION_OUT,      /* this incarnation is not in the roster: it has left, was dropped, or is not in yet; it may join */
	COUNCIL_ACTION_REFUSED   /* asked to take this one in, a member has refused */
};

struct council_action {
	enum council_action_kind kind;
	const struct seat *to;       /* SEND; NULL: back to where the message of this event came from */
	struct decree decree;        /* SEND */
	const struct vote *vote;     /* PERSIST */
	const struct roster *roster; /* INSTALL, OUT */
	enum decree_refusal refusal; /* REFUSED */
	const char *detail;          /* REFUSED: as of the decree */
};

/* The caller's; council_step fills it anew. When it returns, the driver carries out list[0..count) in order and calls
 * again with COUNCIL_EVENT_TICK at deadline_us (UINT64_MAX: no need) if nothing happened before. */
struct council_actions {
	size_t count;
	uint64_t deadline_us;
	struct council_action list[COUNCIL_ACTION_COUNT_MAX];
};

/* The driver shall come back at at_us, if it has not been asked to come earlier. */
static inline void council_actions_wake(struct council_actions *actions, uint64_t at_us)
{
	actions->deadline_us = u64_min(actions->deadline_us, at_us);
}

#endif

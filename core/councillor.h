#ifndef EDIT_CORE_COUNCILLOR_H
#define EDIT_CORE_COUNCILLOR_H

/* A council's memory, and what its acceptor, proposer and learner share: saying something, owing something to the disk, going
 * on to the next view. For core/council.c and core/proposer.c; drivers use core/council.h. */

#include "core/seating.h"

#define COUNCIL_NEVER UINT64_MAX

enum {
	JOIN_COUNT_MAX = 16 /* joiners that a member keeps in mind */
};

struct council_config {
	struct seat self;          /* incarnation and disk not 0; disk: of vote, or a new one */
	const struct roster *list; /* view 1 as the config has it, incarnations 0; the own name need not be in it */
	const struct vote *vote;   /* read from the disk; NULL: there is none */
	uint32_t capacity;         /* members of a view at most, to MEMBER_COUNT_MAX; list and vote fit in */
	uint32_t fanout;           /* wanted: see roster_fanout */
	uint64_t patience_us;      /* a ring neighbour is not heard for so long before that is a reason */
	uint64_t gather_us;        /* a proposer waits for promises so long; other times are multiples of it */
	uint64_t rank_us;          /* whoever has a reason waits so long times its rank */
	uint64_t fingerprint;      /* of what this member trains; 0: it cannot yet, COUNCIL_EVENT_READY will tell */
};

enum council_stage { COUNCIL_IDLE, COUNCIL_PREPARING, COUNCIL_ACCEPTING };

/* What happens when what was given to the disk is there. */
enum council_debt { COUNCIL_DEBT_NONE, COUNCIL_DEBT_DISK, COUNCIL_DEBT_PROMISE, COUNCIL_DEBT_ACCEPTED, COUNCIL_DEBT_INSTALL };

/* Another member as this one hears it. */
struct doubt {
	bool is_held;
	uint64_t since_us;
	uint64_t until_us; /* of one that is no neighbour, and so will not be heard; UINT64_MAX: as long as the driver says */
};

/* What has happened since the start, for people and tests. */
struct council_counts {
	uint64_t installed;      /* views */
	uint64_t attempts;       /* own proposals begun */
	uint64_t given_way;      /* of those, to another member's ballot */
	uint64_t adopted;        /* of those, with what others had accepted */
	uint64_t reordered;      /* of those, with other neighbours for members that stay */
	uint64_t asked;
	uint64_t relayed;        /* messages of others passed on */
	uint64_t dropped;        /* malformed, or from somebody who could not have said it */
	uint64_t contradictions; /* another roster of the own view's number: only if a view was forced while others lived */
};

struct council {
	struct council_config config;
	struct vote vote;       /* vote.roster is the view that this member knows; it is in force if is_member */
	bool is_member;         /* this incarnation is in it; an earlier one on this disk leaves the vote to this one */
	bool wants_in, wants_out;
	bool wants_renewal;     /* another view, even if it has the same members */
	bool is_on_disk;        /* there is a vote file, so that the disk's id stays */
	/* towards the disk: one thing at a time; whatever comes meanwhile and would need another counts as lost */
	enum council_debt debt;
	uint32_t debt_rank;     /* who gets the answer; the own rank: the proposer here */
	char debt_relay[SEAT_NAME_BYTES]; /* by whom; empty: straight */
	/* reasons */
	struct doubt *doubts;   /* [capacity] by rank */
	struct seat joins[JOIN_COUNT_MAX];
	uint64_t join_until_us[JOIN_COUNT_MAX];
	uint32_t join_count;
	bool *leaving;          /* [capacity] by rank */
	uint64_t propose_at_us; /* UINT64_MAX: no reason */
	uint32_t failures;      /* of attempts, since there is a reason */
	/* the proposer */
	enum council_stage stage;
	uint64_t ballot;
	uint64_t highest;       /* ballot heard of in this view */
	uint64_t until_us;      /* the stage ends */
	struct opinion *opinions; /* [capacity] by rank */
	uint64_t best_ballot;   /* of what was accepted, as promises tell; 0: nothing */
	bool *accepted;         /* [capacity] by rank: it has accepted the own ballot */
	struct roster value;    /* what is proposed; while preparing, what best_ballot has accepted */
	struct roster list;     /* the config's: whom a joiner asks besides the members that it knows */
	struct roster former;   /* the view before, whose seats actions may still name */
	struct doubt *former_doubts; /* [capacity] */
	/* what is said again and again */
	uint64_t resend_at_us, ask_at_us, knock_at_us;
	uint32_t turn;          /* whose turn it is to be asked, or to pass on */
	void *seating;          /* seating_size(capacity) */
	const char *detail;     /* of the event at hand */
	uint64_t now_us;
	struct council_counts counts;
};

/* Rank of this member's name in the view that it knows, whatever the incarnation; its count if it is not there. */
uint32_t council_rank(const struct council *council);

/* ---- For the other files of the council ---- */

/* Appends an action of a kind, all else zero, for filling in. */
struct council_action *councillor_act(struct council_actions *actions, enum council_action_kind kind);
/* A message of this member about the view that it knows, all else zero. */
struct decree councillor_compose(const struct council *council, enum decree_kind kind);
/* The same with that view's roster: DECREE_DECIDED. */
struct decree councillor_compose_decided(const struct council *council);
/* Sends to a seat; NULL: back to where the message of this event came from. */
void councillor_post(const struct seat *to, const struct decree *decree, struct council_actions *actions);
/* Sends by way of the member with the name `relay`; not at all if that is none. */
void councillor_post_by(const struct council *council, const char *relay, const char *receiver, const struct decree *decree,
			struct council_actions *actions);
/* Sends to a member of the view, straight, and if it is not heard by way of another too. */
void councillor_tell(struct council *council, uint32_t rank, const struct decree *decree, struct council_actions *actions);
/* Sends back the way that the message `to` of this event came. */
void councillor_answer(const struct council *council, const struct decree *to, const struct decree *decree,
		       struct council_actions *actions);
/* Members that are not heard, neighbours first. Returns how many. */
uint32_t councillor_list_doubts(const struct council *council, uint32_t ret_doubts[DOUBT_COUNT_MAX]);
/* Gives the vote to the disk; nothing else may be owed. What then is due to a member, by a relay's name or straight
 * (NULL), is done when the disk has it. */
void councillor_owe(struct council *council, enum council_debt debt, uint32_t rank, const char *relay,
		struct council_actions *actions);
/* Takes a joiner from the list. */
void councillor_forget_join(struct council *council, uint32_t index);
/* A decided roster of a higher number, valid, becomes the view. Nothing may be owed to the disk. */
void councillor_install(struct council *council, const struct roster *roster, struct council_actions *actions);
/* council->value, for whatever reason, is the next view: installs it and tells everybody of the old and the new one, once;
 * who does not hear it will ask. */
void councillor_decide(struct council *council, struct council_actions *actions);

#endif

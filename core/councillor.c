/* What a member of a council says, what it owes to its disk, and how it goes on to the next view. */

#include <string.h>

#include "core/councillor.h"

enum { DOUBT_GATHERS = 60 /* that two members, neighbours no more, did not hear each other is forgotten after so long */ };

uint32_t council_rank(const struct council *council)
{
	return roster_find(&council->vote.roster, council->config.self.name);
}

/* ---- Saying ---- */

struct council_action *councillor_act(struct council_actions *actions, enum council_action_kind kind)
{
	CHECK(actions->count < COUNCIL_ACTION_COUNT_MAX);
	struct council_action *action = &actions->list[actions->count++];
	*action = (struct council_action){.kind = kind};
	return action;
}

struct decree councillor_compose(const struct council *council, enum decree_kind kind)
{
	return (struct decree){.kind = kind, .sender = council->config.self.name, .incarnation = council->config.self.incarnation,
			       .disk = council->config.self.disk, .fingerprint = council->config.fingerprint,
			       .view = council->vote.roster.number};
}

struct decree councillor_compose_decided(const struct council *council)
{
	struct decree decree = councillor_compose(council, DECREE_DECIDED);
	decree.roster = council->vote.roster;
	return decree;
}

void councillor_post(const struct seat *to, const struct decree *decree, struct council_actions *actions)
{
	struct council_action *action = councillor_act(actions, COUNCIL_ACTION_SEND);
	action->to = to;
	action->decree = *decree;
}

/* By way of another member, if that is one of this view. */
void councillor_post_by(const struct council *council, const char *relay, const char *receiver, const struct decree *decree,
		    struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	uint32_t rank = roster_find(roster, relay);
	if (rank == roster->count)
		return;
	struct decree passed = *decree;
	passed.receiver = receiver;
	passed.relay = roster->seats[rank].name;
	councillor_post(&roster->seats[rank], &passed, actions);
}

/* The next member, in turn, that is heard and is neither this one nor the receiver; count if there is none. */
static uint32_t next_relay(struct council *council, uint32_t receiver)
{
	const struct roster *roster = &council->vote.roster;
	uint32_t own = council_rank(council);
	for (uint32_t tries = 0; tries < roster->count; tries++) {
		uint32_t rank = council->turn++ % roster->count;
		if (rank != own && rank != receiver && !council->doubts[rank].is_held)
			return rank;
	}
	return roster->count;
}

/* To a member of the view, straight, and if it is not heard also by way of another. */
void councillor_tell(struct council *council, uint32_t rank, const struct decree *decree, struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	councillor_post(&roster->seats[rank], decree, actions);
	uint32_t relay = council->doubts[rank].is_held ? next_relay(council, rank) : roster->count;
	if (relay < roster->count)
		councillor_post_by(council, roster->seats[relay].name, roster->seats[rank].name, decree, actions);
}

/* The same way back. */
void councillor_answer(const struct council *council, const struct decree *to, const struct decree *decree,
		struct council_actions *actions)
{
	if (to->relay == NULL)
		councillor_post(NULL, decree, actions);
	else
		councillor_post_by(council, to->relay, to->sender, decree, actions);
}

uint32_t councillor_list_doubts(const struct council *council, uint32_t ret_doubts[DOUBT_COUNT_MAX])
{
	const struct roster *roster = &council->vote.roster;
	uint32_t own = council_rank(council), count = 0;
	for (int is_next = 1; is_next >= 0; is_next--)
		for (uint32_t rank = 0; rank < roster->count && count < DOUBT_COUNT_MAX; rank++)
			if (council->doubts[rank].is_held && roster_is_next(roster, own, rank) == is_next)
				ret_doubts[count++] = rank;
	return count;
}

/* ---- Disk ---- */

/* The vote goes to the disk; what is owed to a member, reached by a relay or straight (NULL), is paid when it is there. */
void councillor_owe(struct council *council, enum council_debt debt, uint32_t rank, const char *relay,
		struct council_actions *actions)
{
	CHECK(council->debt == COUNCIL_DEBT_NONE);
	council->debt = debt;
	council->is_on_disk = true;
	council->debt_rank = rank;
	memset(council->debt_relay, 0, sizeof council->debt_relay);
	if (relay != NULL)
		memcpy(council->debt_relay, relay, sizeof council->debt_relay);
	councillor_act(actions, COUNCIL_ACTION_PERSIST)->vote = &council->vote;
}

/* ---- A new view ---- */

/* A doubt about somebody who is a neighbour now is the driver's to raise again; about others it is kept for a while, so
 * that an order that has failed is not tried again at once. */
static void carry_doubts(struct council *council)
{
	const struct roster *roster = &council->vote.roster, *former = &council->former;
	struct doubt *doubts = council->former_doubts;
	memset(doubts, 0, council->config.capacity * sizeof *doubts);
	uint32_t own = council_rank(council);
	for (uint32_t rank = 0; rank < former->count; rank++) {
		uint32_t now = roster_find(roster, former->seats[rank].name);
		if (!council->doubts[rank].is_held || own == roster->count || now == roster->count || roster_is_next(roster, own, now) ||
		    !seat_admits(&former->seats[rank], roster->seats[now].incarnation))
			continue;
		doubts[now] = council->doubts[rank];
		doubts[now].until_us = u64_min(doubts[now].until_us, council->now_us + DOUBT_GATHERS * council->config.gather_us);
	}
	council->former_doubts = council->doubts;
	council->doubts = doubts;
}

void councillor_forget_join(struct council *council, uint32_t index)
{
	council->join_count--;
	council->joins[index] = council->joins[council->join_count];
	council->join_until_us[index] = council->join_until_us[council->join_count];
}

void councillor_install(struct council *council, const struct roster *roster, struct council_actions *actions)
{
	struct roster former = council->vote.roster;
	council->vote.roster = council->former;
	council->former = former;
	const struct seat *self = &council->config.self;
	bool is_in = roster_find_seat(roster, self) < roster->count;
	/* An earlier start on this disk may have the seat, but has ended before the disk had the view: nobody has used its vote. */
	uint32_t rank = roster_find(roster, self->name);
	bool is_voter = is_in || (rank < roster->count && roster->seats[rank].disk == self->disk);
	vote_begin(&council->vote, roster, is_voter);
	carry_doubts(council);
	for (uint32_t i = council->join_count; i-- > 0;)
		if (roster_find_seat(roster, &council->joins[i]) < roster->count)
			councillor_forget_join(council, i);
	memset(council->leaving, 0, council->config.capacity * sizeof(bool));
	council->wants_renewal = false;
	council->stage = COUNCIL_IDLE;
	council->highest = council->best_ballot = 0;
	council->failures = 0;
	council->propose_at_us = COUNCIL_NEVER;
	council->ask_at_us = council->knock_at_us = council->now_us;
	if (is_in) {
		council->wants_in = false;
		council->leaving[council_rank(council)] = council->wants_out;
	} else {
		council->wants_out = false;
		if (council->is_member)
			councillor_act(actions, COUNCIL_ACTION_OUT)->roster = &council->vote.roster;
	}
	council->is_member = is_in;
	if (is_voter)
		councillor_owe(council, COUNCIL_DEBT_INSTALL, 0, NULL, actions);
}

/* The value is the next view: everybody of the old and the new one is told, once; who does not hear it will ask. */
void councillor_decide(struct council *council, struct council_actions *actions)
{
	councillor_install(council, &council->value, actions);
	struct decree decree = councillor_compose_decided(council);
	uint32_t own = council_rank(council);
	for (uint32_t rank = 0; rank < decree.roster.count; rank++)
		if (rank != own)
			councillor_tell(council, rank, &decree, actions);
	for (uint32_t rank = 0; rank < council->former.count; rank++) {
		const struct seat *seat = &council->former.seats[rank];
		if (!seat_is_of(seat, council->config.self.name) && roster_find(&decree.roster, seat->name) == decree.roster.count)
			councillor_post(seat, &decree, actions);
	}
}

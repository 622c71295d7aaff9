/* One member's part in deciding the next view. */

#include <string.h>

#include "core/council.h"
#include "core/proposer.h"

enum {
	ASK_GATHERS = 4, /* a neighbour is asked for a newer view so seldom */
	JOIN_GATHERS = 8 /* a joiner that says no more is forgotten after so long */
};

/* ---- Memory ---- */

static size_t seats_size(uint32_t capacity)
{
	return block_part(capacity * sizeof(struct seat));
}

static void *cut(char **at, size_t bytes)
{
	void *part = *at;
	*at += block_part(bytes);
	return part;
}

size_t council_size(uint32_t capacity)
{
	return vote_size(capacity) + 3 * seats_size(capacity) + 2 * block_part(capacity * sizeof(struct doubt)) +
	       2 * block_part(capacity * sizeof(bool)) + block_part(capacity * sizeof(struct opinion)) + seating_size(capacity);
}

void council_init(struct council *council, void *block, const struct council_config *config)
{
	const uint32_t capacity = config->capacity;
	CHECK(capacity >= 1 && capacity <= MEMBER_COUNT_MAX);
	CHECK(config->self.incarnation != 0);
	CHECK(config->self.disk != 0);
	CHECK(seat_is_valid(&config->self));
	char *at = block;
	memset(block, 0, council_size(capacity));
	*council = (struct council){.config = *config, .propose_at_us = COUNCIL_NEVER};
	vote_init(&council->vote, cut(&at, vote_size(capacity)), capacity);
	council->value.seats = cut(&at, seats_size(capacity));
	council->former.seats = cut(&at, seats_size(capacity));
	council->list.seats = cut(&at, seats_size(capacity));
	council->doubts = cut(&at, capacity * sizeof(struct doubt));
	council->former_doubts = cut(&at, capacity * sizeof(struct doubt));
	council->leaving = cut(&at, capacity * sizeof(bool));
	council->accepted = cut(&at, capacity * sizeof(bool));
	council->opinions = cut(&at, capacity * sizeof(struct opinion));
	council->seating = at;
	CHECK(roster_check(config->list, capacity) == 0);
	roster_copy(&council->list, config->list);
	if (config->vote != NULL) {
		CHECK(vote_check(config->vote, capacity) == 0);
		CHECK(config->vote->disk == config->self.disk);
		council->is_on_disk = true;
	}
	if (config->vote != NULL && config->vote->is_voter) {
		vote_copy(&council->vote, config->vote);
	} else {
		vote_begin(&council->vote, config->list, false);
	}
	council->vote.disk = config->self.disk;
	/* borrowed until here */
	council->config.vote = NULL;
	council->config.list = NULL;
	council->is_member = roster_find_seat(&council->vote.roster, &council->config.self) < council->vote.roster.count;
}

/* ---- Acceptor ---- */

static void say_promise(struct council *council, struct decree *ret_decree)
{
	*ret_decree = councillor_compose(council, DECREE_PROMISE);
	ret_decree->ballot = council->vote.promised;
	ret_decree->accepted_ballot = council->vote.accepted_ballot;
	if (council->vote.accepted_ballot != 0)
		ret_decree->roster = council->vote.accepted;
	ret_decree->doubt_count = councillor_list_doubts(council, ret_decree->doubts);
}

static void say_accepted(struct council *council, struct decree *ret_decree)
{
	*ret_decree = councillor_compose(council, DECREE_ACCEPTED);
	ret_decree->ballot = council->vote.accepted_ballot;
}

static void refuse_ballot(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	struct decree nack = councillor_compose(council, DECREE_NACK);
	nack.ballot = council->vote.promised;
	councillor_answer(council, decree, &nack, actions);
}

static void take_prepare(struct council *council, uint32_t from, const struct decree *decree, struct council_actions *actions)
{
	struct vote *vote = &council->vote;
	if (decree->ballot < vote->promised) {
		refuse_ballot(council, decree, actions);
	} else if (vote_promise(vote, decree->ballot)) {
		if (council->stage == COUNCIL_PREPARING) {
			council->stage = COUNCIL_IDLE;
			council->counts.given_way++;
		}
		proposer_hold_off(council);
		councillor_owe(council, COUNCIL_DEBT_PROMISE, from, decree->relay, actions);
	} else {
		struct decree promise;
		say_promise(council, &promise);
		councillor_answer(council, decree, &promise, actions);
	}
}

static void take_accept(struct council *council, uint32_t from, const struct decree *decree, struct council_actions *actions)
{
	struct vote *vote = &council->vote;
	if (decree->ballot == vote->accepted_ballot) {
		struct decree accepted;
		say_accepted(council, &accepted);
		councillor_answer(council, decree, &accepted, actions);
	} else if (vote_accept(vote, decree->ballot, &decree->roster)) {
		proposer_hold_off(council);
		councillor_owe(council, COUNCIL_DEBT_ACCEPTED, from, decree->relay, actions);
	} else {
		refuse_ballot(council, decree, actions);
	}
}

static void pay(struct council *council, struct council_actions *actions)
{
	const enum council_debt debt = council->debt;
	const struct roster *roster = &council->vote.roster;
	council->debt = COUNCIL_DEBT_NONE;
	if (debt == COUNCIL_DEBT_INSTALL) {
		if (!council->is_member)
			return;
		council->counts.installed++;
		councillor_act(actions, COUNCIL_ACTION_INSTALL)->roster = roster;
		return;
	}
	if (debt == COUNCIL_DEBT_DISK)
		return;
	bool is_promise = debt == COUNCIL_DEBT_PROMISE;
	if (council->debt_rank == council_rank(council)) {
		(is_promise ? proposer_begin_gathering : proposer_begin_accepting)(council, actions);
		return;
	}
	struct decree decree;
	(is_promise ? say_promise : say_accepted)(council, &decree);
	const struct seat *to = &roster->seats[council->debt_rank];
	if (council->debt_relay[0] == 0)
		councillor_post(to, &decree, actions);
	else
		councillor_post_by(council, council->debt_relay, to->name, &decree, actions);
}

/* ---- Joiners, leavers ---- */

static void refuse_join(struct council *council, const struct decree *decree, enum decree_refusal refusal,
		struct council_actions *actions)
{
	struct decree refused = councillor_compose(council, DECREE_REFUSED);
	refused.refusal = refusal;
	refused.detail = refusal == DECREE_REFUSAL_OTHER ? council->detail : NULL;
	councillor_answer(council, decree, &refused, actions);
}

static void answer_decided(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	struct decree decided = councillor_compose_decided(council);
	councillor_answer(council, decree, &decided, actions);
}

/* Joiners that take no seat of the view. */
static uint32_t new_joins(const struct council *council)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < council->join_count; i++)
		count += roster_find(&council->vote.roster, council->joins[i].name) == council->vote.roster.count;
	return count;
}

static void take_join(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	uint32_t rank = roster_find(roster, decree->sender), i = 0;
	if (seat_is_of(&council->config.self, decree->sender)) {
		refuse_join(council, decree, DECREE_REFUSAL_TAKEN, actions);
		return;
	}
	if (rank < roster->count && roster->seats[rank].incarnation == decree->incarnation) {
		answer_decided(council, decree, actions);
		return;
	}
	if (decree->fingerprint != council->config.fingerprint) {
		/* Who cannot train itself cannot judge. */
		if (council->config.fingerprint != 0)
			refuse_join(council, decree, DECREE_REFUSAL_OTHER, actions);
		return;
	}
	while (i < council->join_count && !seat_is_of(&council->joins[i], decree->sender))
		i++;
	bool is_full = rank == roster->count && roster->count + new_joins(council) >= council->config.capacity;
	if (i == council->join_count && (is_full || i == JOIN_COUNT_MAX)) {
		refuse_join(council, decree, DECREE_REFUSAL_FULL, actions);
		return;
	}
	CHECK(seat_make(decree->sender, decree->address, decree->incarnation, decree->disk, &council->joins[i]) == 0);
	council->join_until_us[i] = council->now_us + JOIN_GATHERS * council->config.gather_us;
	council->join_count += i == council->join_count;
}

static void take_leave(struct council *council, uint32_t from, const struct decree *decree)
{
	if (from < council->vote.roster.count && seat_admits(&council->vote.roster.seats[from], decree->incarnation))
		council->leaving[from] = true;
}

static void forget_joins(struct council *council, struct council_actions *actions)
{
	for (uint32_t i = council->join_count; i-- > 0;)
		if (council->now_us >= council->join_until_us[i])
			councillor_forget_join(council, i);
	for (uint32_t i = 0; i < council->join_count; i++)
		council_actions_wake(actions, council->join_until_us[i]);
}

/* ---- Hearing ---- */

static void take_nack(struct council *council, const struct decree *decree)
{
	council->highest = u64_max(council->highest, decree->ballot);
	if (council->stage == COUNCIL_IDLE || decree->ballot <= council->ballot)
		return;
	council->counts.given_way++;
	proposer_back_off(council);
}

static void take_decided(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	if (decree->view > council->vote.roster.number)
		councillor_install(council, &decree->roster, actions);
	else if (!roster_is_equal(&decree->roster, &council->vote.roster))
		council->counts.contradictions++;
}

/* Of a member of the view that this one is in, about that view. */
static void take_ballot(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	const uint32_t count = council->vote.roster.count, from = roster_find(&council->vote.roster, decree->sender);
	bool is_own = decree->kind == DECREE_PREPARE || decree->kind == DECREE_ACCEPT;
	bool is_right = from < count && ballot_is_valid(decree->ballot, count) && (!is_own || ballot_rank(decree->ballot) == from);
	for (uint32_t i = 0; i < decree->doubt_count; i++)
		is_right &= decree->doubts[i] < count;
	if (!is_right) {
		council->counts.dropped++;
		return;
	}
	if (!council->vote.is_voter)
		return;
	if (is_own)
		council->highest = u64_max(council->highest, decree->ballot);
	if (decree->kind == DECREE_PREPARE)
		take_prepare(council, from, decree, actions);
	else if (decree->kind == DECREE_ACCEPT)
		take_accept(council, from, decree, actions);
	else if (decree->kind == DECREE_PROMISE)
		proposer_take_promise(council, from, decree);
	else if (decree->kind == DECREE_NACK)
		take_nack(council, decree);
	else if (council->stage == COUNCIL_ACCEPTING && decree->ballot == council->ballot)
		council->accepted[from] = true;
}

static void take(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	switch (decree->kind) {
	case DECREE_JOIN:
		if (council->vote.is_voter)
			take_join(council, decree, actions);
		break;
	case DECREE_LEAVE:
		take_leave(council, roster_find(&council->vote.roster, decree->sender), decree);
		break;
	case DECREE_REFUSED:
		if (council->wants_in)
			*councillor_act(actions, COUNCIL_ACTION_REFUSED) = (struct council_action){
				.kind = COUNCIL_ACTION_REFUSED, .refusal = decree->refusal, .detail = decree->detail};
		break;
	case DECREE_ASK: break;
	default: take_ballot(council, decree, actions);
	}
}

static void pass_on(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	uint32_t rank = roster_find(roster, decree->receiver);
	if (rank == roster->count || decree->relay == NULL || !seat_is_of(&council->config.self, decree->relay)) {
		council->counts.dropped++;
		return;
	}
	council->counts.relayed++;
	councillor_post(&roster->seats[rank], decree, actions);
}

static void hear(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	const struct seat *self = &council->config.self;
	const uint64_t number = council->vote.roster.number;
	if (decree_check(decree, council->config.capacity) != 0) {
		council->counts.dropped++;
		return;
	}
	if (seat_is_of(self, decree->sender) && decree->incarnation == self->incarnation)
		return;
	if (decree->receiver != NULL && !seat_is_of(self, decree->receiver)) {
		pass_on(council, decree, actions);
		return;
	}
	if (decree->view < number)
		answer_decided(council, decree, actions);
	/* as if it had been lost: it will be said again */
	if (council->debt != COUNCIL_DEBT_NONE)
		return;
	if (decree->kind == DECREE_DECIDED && decree->view >= number) {
		take_decided(council, decree, actions);
	} else if (decree->view > number) {
		struct decree ask = councillor_compose(council, DECREE_ASK);
		council->counts.asked++;
		councillor_answer(council, decree, &ask, actions);
	} else if (decree->view == number) {
		take(council, decree, actions);
	}
}

/* ---- What the driver says ---- */

static void take_doubt(struct council *council, const char *name, bool is_held)
{
	const struct roster *roster = &council->vote.roster;
	uint32_t rank = roster_find(roster, name), own = council_rank(council);
	if (rank == roster->count || own == roster->count || rank == own)
		return;
	struct doubt *doubt = &council->doubts[rank];
	if (is_held && !doubt->is_held)
		doubt->since_us = council->now_us;
	doubt->is_held = is_held;
	doubt->until_us = COUNCIL_NEVER;
}

static void want_out(struct council *council, struct council_actions *actions)
{
	if (!council->is_member || council->vote.roster.count == 1) {
		councillor_act(actions, COUNCIL_ACTION_OUT)->roster = &council->vote.roster;
		return;
	}
	council->wants_out = true;
	council->leaving[council_rank(council)] = true;
	council->knock_at_us = council->now_us;
}

static void begin_view_1(struct council *council, struct council_actions *actions)
{
	struct vote *vote = &council->vote;
	/* The driver says it until it is so: amid a debt, say to a disk that is full, it is as if it had not been said. */
	if (council->debt != COUNCIL_DEBT_NONE || vote->is_voter || vote->roster.number != 1 || !council->is_member)
		return;
	vote_begin(vote, &vote->roster, true);
	council->wants_in = false;
	councillor_owe(council, COUNCIL_DEBT_INSTALL, 0, NULL, actions);
}

/* ---- Time ---- */

static void forget_doubts(struct council *council)
{
	for (uint32_t rank = 0; rank < council->vote.roster.count; rank++)
		if (council->doubts[rank].is_held && council->now_us >= council->doubts[rank].until_us)
			council->doubts[rank].is_held = false;
}

/* Asks one neighbour after the other: who has missed a view hears of it though nobody is missing. */
static void ask(struct council *council, struct council_actions *actions)
{
	uint32_t own = council_rank(council), neighbours[ROAD_COUNT];
	const struct roster *roster = &council->vote.roster;
	size_t count = own < roster->count ? roster_neighbours(roster, own, neighbours) : 0;
	if (count == 0)
		return;
	if (council->now_us >= council->ask_at_us) {
		struct decree decree = councillor_compose(council, DECREE_ASK);
		council->counts.asked++;
		councillor_tell(council, neighbours[council->turn++ % count], &decree, actions);
		council->ask_at_us = council->now_us + ASK_GATHERS * council->config.gather_us;
	}
	council_actions_wake(actions, council->ask_at_us);
}

/* At the tie-holder's door; in turn at another's; a joiner, whose view may be long gone, also at one's of the config's
 * list. */
static void knock(struct council *council, struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	if (!council->wants_in && !council->wants_out)
		return;
	if (council->now_us >= council->knock_at_us) {
		struct decree decree = councillor_compose(council, council->wants_out ? DECREE_LEAVE : DECREE_JOIN);
		decree.address = council->config.self.address;
		uint32_t own = council_rank(council), turn = council->turn++, other = turn % roster->count;
		const struct seat *listed = &council->list.seats[turn % council->list.count];
		if (roster->holder != own)
			councillor_tell(council, roster->holder, &decree, actions);
		if (other != own && other != roster->holder)
			councillor_tell(council, other, &decree, actions);
		if (council->wants_in && roster_find(roster, listed->name) == roster->count && !seat_is_of(&council->config.self,
				listed->name))
			councillor_post(listed, &decree, actions);
		council->knock_at_us = council->now_us + council->config.gather_us;
	}
	council_actions_wake(actions, council->knock_at_us);
}

static void watch(struct council *council, struct council_actions *actions)
{
	/* nothing goes on before the disk has it */
	if (council->debt != COUNCIL_DEBT_NONE)
		return;
	if (council->wants_in && !council->is_on_disk) {
		/* whoever joins tells its disk's id: that must still be true after a restart */
		councillor_owe(council, COUNCIL_DEBT_DISK, 0, NULL, actions);
		return;
	}
	forget_doubts(council);
	forget_joins(council, actions);
	proposer_watch(council, actions);
	ask(council, actions);
	knock(council, actions);
}

void council_step(struct council *council, const struct council_event *event, struct council_actions *actions)
{
	CHECK(event->now_us >= council->now_us);
	council->now_us = event->now_us;
	council->detail = event->detail;
	actions->count = 0;
	actions->deadline_us = COUNCIL_NEVER;
	switch (event->kind) {
	case COUNCIL_EVENT_TICK: break;
	case COUNCIL_EVENT_DECREE: hear(council, event->decree, actions); break;
	case COUNCIL_EVENT_PERSISTED: pay(council, actions); break;
	case COUNCIL_EVENT_BEGIN: begin_view_1(council, actions); break;
	case COUNCIL_EVENT_DOUBT: take_doubt(council, event->name, true); break;
	case COUNCIL_EVENT_HEARD: take_doubt(council, event->name, false); break;
	case COUNCIL_EVENT_JOIN:
		council->wants_in = true;
		council->knock_at_us = event->now_us;
		break;
	case COUNCIL_EVENT_LEAVE: want_out(council, actions); break;
	case COUNCIL_EVENT_RENEW: council->wants_renewal = council->is_member; break;
	case COUNCIL_EVENT_READY: council->config.fingerprint = event->fingerprint; break;
	case COUNCIL_EVENT_KIND_END: CHECK(false); break;
	}
	watch(council, actions);
}

int council_force(struct council *council, const char *names, uint32_t count, uint64_t now_us,
		struct council_actions *actions)
{
	const struct roster *roster = &council->vote.roster;
	struct roster *value = &council->value;
	const uint32_t own = council_rank(council);
	bool is_named[MEMBER_COUNT_MAX] = {false};
	if (council->debt != COUNCIL_DEBT_NONE)
		return EDIT_ERROR_BUSY;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t rank = roster_find(roster, names + (size_t)i * SEAT_NAME_BYTES);
		if (rank == roster->count)
			return EDIT_ERROR_UNKNOWN;
		if (is_named[rank])
			return EDIT_ERROR_INVALID;
		is_named[rank] = true;
	}
	if (own == roster->count || !is_named[own])
		return EDIT_ERROR_INVALID;
	CHECK(now_us >= council->now_us);
	council->now_us = now_us;
	actions->count = 0;
	actions->deadline_us = COUNCIL_NEVER;
	*value = (struct roster){.number = roster->number + 1, .fanout = roster_fanout(count, council->config.fanout),
			.seats = value->seats};
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		if (!is_named[rank])
			continue;
		if (rank == roster->holder)
			value->holder = value->count;
		value->seats[value->count++] = roster->seats[rank];
	}
	value->seats[roster_find(value, council->config.self.name)] = council->config.self;
	councillor_decide(council, actions);
	return 0;
}

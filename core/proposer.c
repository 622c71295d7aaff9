/* The proposer's way: prepare, gather promises, choose, ask for votes. */

#include <string.h>

#include "core/proposer.h"

enum {
	RESENDS_PER_GATHER = 5, /* what is lost is said again so often while promises are gathered */
	BACKOFF_DOUBLINGS = 3,
	START_GATHERS = 4
};

void proposer_back_off(struct council *council)
{
	const struct council_config *config = &council->config;
	uint64_t delay_us = config->gather_us + (council_rank(council) + 1) * config->rank_us;
	council->stage = COUNCIL_IDLE;
	council->propose_at_us = council->now_us + (delay_us << u64_min(council->failures, BACKOFF_DOUBLINGS));
	council->failures++;
}

void proposer_hold_off(struct council *council)
{
	const struct council_config *config = &council->config;
	uint64_t until_us = council->now_us + 2 * config->gather_us + council_rank(council) * config->rank_us;
	if (council->propose_at_us == COUNCIL_NEVER || council->propose_at_us < until_us)
		council->propose_at_us = until_us;
}

/* To all who have not answered, has[rank] of them; soon again. */
static void tell_rest(struct council *council, const struct decree *decree, struct council_actions *actions)
{
	uint32_t own = council_rank(council);
	for (uint32_t rank = 0; rank < council->vote.roster.count; rank++) {
		bool has_answered = council->stage == COUNCIL_PREPARING ? council->opinions[rank].is_present : council->accepted[rank];
		if (rank != own && !has_answered)
			councillor_tell(council, rank, decree, actions);
	}
	council->resend_at_us = council->now_us + council->config.gather_us / RESENDS_PER_GATHER;
}

static void ask_promises(struct council *council, struct council_actions *actions)
{
	struct decree decree = councillor_compose(council, DECREE_PREPARE);
	decree.ballot = council->ballot;
	tell_rest(council, &decree, actions);
}

static void ask_votes(struct council *council, struct council_actions *actions)
{
	struct decree decree = councillor_compose(council, DECREE_ACCEPT);
	decree.ballot = council->ballot;
	decree.roster = council->value;
	tell_rest(council, &decree, actions);
}

void proposer_prepare(struct council *council, struct council_actions *actions)
{
	uint64_t counter = ballot_counter(u64_max(council->highest, council->vote.promised)) + 1;
	if (counter > BALLOT_COUNTER_MAX) {
		proposer_back_off(council);
		return;
	}
	council->counts.attempts++;
	council->ballot = ballot_make(counter, council_rank(council));
	CHECK(vote_promise(&council->vote, council->ballot));
	councillor_owe(council, COUNCIL_DEBT_PROMISE, council_rank(council), NULL, actions);
}

void proposer_begin_gathering(struct council *council, struct council_actions *actions)
{
	const uint32_t own = council_rank(council);
	memset(council->opinions, 0, council->config.capacity * sizeof *council->opinions);
	struct opinion *opinion = &council->opinions[own];
	*opinion = (struct opinion){.is_present = true, .incarnation = council->config.self.incarnation,
				    .disk = council->config.self.disk, .is_ready = true};
	opinion->doubt_count = councillor_list_doubts(council, opinion->doubts);
	council->best_ballot = council->vote.accepted_ballot;
	if (council->best_ballot != 0)
		roster_copy(&council->value, &council->vote.accepted);
	council->stage = COUNCIL_PREPARING;
	council->until_us = council->now_us + council->config.gather_us;
	ask_promises(council, actions);
}

void proposer_begin_accepting(struct council *council, struct council_actions *actions)
{
	memset(council->accepted, 0, council->config.capacity * sizeof(bool));
	council->accepted[council_rank(council)] = true;
	council->stage = COUNCIL_ACCEPTING;
	council->until_us = council->now_us + 2 * council->config.gather_us;
	ask_votes(council, actions);
}

/* Nobody waits for a member that has said JOIN, or that no ring neighbour hears which has promised. */
static bool is_given_up(const struct council *council, uint32_t rank)
{
	const struct roster *roster = &council->vote.roster;
	for (uint32_t i = 0; i < council->join_count; i++)
		if (seat_is_of(&council->joins[i], roster->seats[rank].name))
			return true;
	uint32_t neighbours[ROAD_COUNT], deaf = 0;
	size_t count = roster_neighbours(roster, rank, neighbours);
	for (size_t i = 0; i < count; i++) {
		const struct opinion *opinion = &council->opinions[neighbours[i]];
		bool doubts = false;
		for (uint32_t j = 0; j < opinion->doubt_count; j++)
			doubts |= opinion->doubts[j] == rank;
		if (opinion->is_present && !doubts)
			return false;
		deaf += doubts;
	}
	return deaf > 0;
}

static bool has_all_promises(const struct council *council)
{
	for (uint32_t rank = 0; rank < council->vote.roster.count; rank++)
		if (!council->opinions[rank].is_present && !is_given_up(council, rank))
			return false;
	return true;
}

static bool has_quorum(const struct council *council)
{
	bool has[MEMBER_COUNT_MAX];
	for (uint32_t rank = 0; rank < council->vote.roster.count; rank++)
		has[rank] = council->opinions[rank].is_present;
	return roster_is_quorum(&council->vote.roster, has);
}

static bool is_reordered(const struct council *council)
{
	uint32_t last = 0;
	for (uint32_t place = 0; place < council->value.count; place++) {
		uint32_t rank = roster_find(&council->vote.roster, council->value.seats[place].name);
		if (rank < last)
			return true;
		last = rank;
	}
	return false;
}

/* false: there is nothing to change. */
static bool choose(struct council *council)
{
	struct seat joins[JOIN_COUNT_MAX + 1];
	uint32_t join_count = council->join_count;
	if (join_count > 0)
		memcpy(joins, council->joins, join_count * sizeof joins[0]);
	if (council->wants_in)
		joins[join_count++] = council->config.self;
	const struct seating seating = {.now = &council->vote.roster, .opinions = council->opinions, .leaving = council->leaving,
					.joins = joins, .join_count = join_count, .fanout = council->config.fanout,
					.capacity = council->config.capacity, .block = council->seating};
	bool is_other = seating_choose(&seating, &council->value);
	if (!is_other && (!council->wants_renewal || council->value.count == 0))
		return false;
	council->counts.reordered += is_reordered(council);
	return true;
}

static void propose(struct council *council, struct council_actions *actions)
{
	council->stage = COUNCIL_IDLE;
	if (council->best_ballot != 0) {
		council->counts.adopted++;
	} else if (!choose(council)) {
		proposer_back_off(council);
		return;
	}
	if (!vote_accept(&council->vote, council->ballot, &council->value)) {
		council->counts.given_way++;
		proposer_hold_off(council);
		return;
	}
	councillor_owe(council, COUNCIL_DEBT_ACCEPTED, council_rank(council), NULL, actions);
}

void proposer_take_promise(struct council *council, uint32_t from, const struct decree *decree)
{
	if (council->stage != COUNCIL_PREPARING || decree->ballot != council->ballot)
		return;
	struct opinion *opinion = &council->opinions[from];
	*opinion = (struct opinion){.is_present = true, .incarnation = decree->incarnation, .disk = decree->disk,
				    .is_ready = decree->fingerprint == council->config.fingerprint,
				    .doubt_count = decree->doubt_count};
	memcpy(opinion->doubts, decree->doubts, sizeof opinion->doubts);
	if (decree->accepted_ballot > council->best_ballot) {
		council->best_ballot = decree->accepted_ballot;
		roster_copy(&council->value, &decree->roster);
	}
}

/* ---- Time ---- */

static bool has_joins(const struct council *council)
{
	return council->join_count > 0 || council->wants_in;
}

static bool has_leavers(const struct council *council)
{
	bool has = false;
	for (uint32_t rank = 0; rank < council->vote.roster.count; rank++)
		has |= council->leaving[rank];
	return has;
}

/* A neighbour that is not heard; wakes when one has not been for long enough. */
static bool has_deaf_side(const struct council *council, struct council_actions *actions)
{
	uint32_t own = council_rank(council), neighbours[ROAD_COUNT];
	size_t count = own < council->vote.roster.count ? roster_neighbours(&council->vote.roster, own, neighbours) : 0;
	bool has = false;
	for (size_t i = 0; i < count; i++) {
		const struct doubt *doubt = &council->doubts[neighbours[i]];
		if (!doubt->is_held)
			continue;
		uint64_t at_us = doubt->since_us + council->config.patience_us;
		if (council->now_us >= at_us)
			has = true;
		else
			council_actions_wake(actions, at_us);
	}
	return has;
}

static void consider(struct council *council, struct council_actions *actions)
{
	uint32_t own = council_rank(council);
	/* Who cannot train leaves it to those who can. */
	if (!council->vote.is_voter || own == council->vote.roster.count || council->config.fingerprint == 0)
		return;
	bool is_deaf = has_deaf_side(council, actions);
	if (!is_deaf && !has_joins(council) && !has_leavers(council) && !council->wants_renewal && council->vote.accepted_ballot == 0) {
		council->propose_at_us = COUNCIL_NEVER;
		council->failures = 0;
		return;
	}
	/* Whoever has just started leaves it to those who have been there; if all have just started, they come together. */
	bool is_start = council->counts.installed == 0 && council->vote.roster.count > 1;
	uint64_t delay_us = own * council->config.rank_us + (is_start ? START_GATHERS * council->config.gather_us : 0);
	if (council->propose_at_us == COUNCIL_NEVER)
		council->propose_at_us = council->now_us + delay_us;
	if (council->now_us >= council->propose_at_us)
		proposer_prepare(council, actions);
	else
		council_actions_wake(actions, council->propose_at_us);
}

/* true: nobody answers any more. */
static bool must_end(struct council *council, struct council_actions *actions)
{
	if (council->now_us >= council->until_us)
		return true;
	if (council->now_us >= council->resend_at_us)
		(council->stage == COUNCIL_PREPARING ? ask_promises : ask_votes)(council, actions);
	council_actions_wake(actions, u64_min(council->until_us, council->resend_at_us));
	return false;
}

void proposer_watch(struct council *council, struct council_actions *actions)
{
	if (council->stage == COUNCIL_PREPARING) {
		bool is_over = must_end(council, actions);
		if ((is_over || has_all_promises(council)) && has_quorum(council))
			propose(council, actions);
		else if (is_over)
			proposer_back_off(council);
	} else if (council->stage == COUNCIL_ACCEPTING) {
		if (roster_is_quorum(&council->vote.roster, council->accepted))
			councillor_decide(council, actions);
		else if (must_end(council, actions))
			proposer_back_off(council);
	}
	if (council->stage == COUNCIL_IDLE && council->debt == COUNCIL_DEBT_NONE)
		consider(council, actions);
}

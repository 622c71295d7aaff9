/* See the header. Decides nothing about members but one thing: whether somebody who asks for a member's seat may have it. */

#include "daemon/membership.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/log.h"
#include "daemon/votefile.h"

enum {
	GATHER_US = 500000,    /* a proposer waits so long for promises */
	RANK_US = 50000,       /* whoever has a reason waits so long times its rank */
	PERSIST_US = 1000000,  /* from a failure of the disk to the next try */
	WATCH_US = 100000,     /* neighbours are looked at so often */
	ENTER_US = 1000000,    /* beside node.silence_ms: for a neighbour to hear of the view */
	REFUSED_US = 60000000, /* the same refusal is told so often */
	REJOIN_US = 2000000,   /* after an entry in vain the next one waits so long, and twice as long each time */
	REJOIN_DOUBLINGS = 7,
	RENEW_US = 30000000
};

static uint64_t config_us(const struct membership *membership, size_t setting)
{
	return (uint64_t)config_number(membership->config, setting) * 1000;
}

/* ---- Opening ---- */

static uint64_t draw(void)
{
	uint64_t number = 0;
	while (number == 0)
		if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
			number = 0;
	return number;
}

/* Files that were copied from another machine, say with all of its disk, hold the vote of that one. */
static int check_owner(const struct membership *membership, struct line *why)
{
	const char *name = config_text(membership->config, NODE_NAME);
	const struct roster *roster = &membership->vote.roster;
	uint32_t rank = 0;
	while (rank < roster->count && strcmp(roster->seats[rank].name, name) != 0)
		rank++;
	/* Seats of view 1 have no disks. */
	if (rank < roster->count && (roster->number == VIEW_FIRST || roster->seats[rank].disk == membership->vote.disk))
		return 0;
	return line_fail(why, EDIT_ERROR_REFUSED, "%.300s: is the vote of another node than %s: remove it, and this node joins the ring anew",
			 membership->path, name);
}

/* The vote as the disk has it; a disk without one gets an id. */
static int read_vote(struct membership *membership, uint64_t *ret_disk, struct line *why)
{
	vote_init(&membership->vote, membership->vote_block, MEMBER_COUNT_MAX);
	int error = votefile_read(membership->path, MEMBER_COUNT_MAX, membership->vote_block, &membership->vote, why);
	if (error && error != EDIT_ERROR_UNKNOWN)
		return error;
	membership->has_vote = error == 0 && membership->vote.is_voter;
	*ret_disk = error == 0 ? membership->vote.disk : draw();
	return membership->has_vote ? check_owner(membership, why) : 0;
}

static int make_council(struct membership *membership, struct config *config, uint64_t incarnation, uint64_t disk, bool is_on_disk,
			const struct roster *list, struct line *why)
{
	struct council_config council = {.list = list, .vote = is_on_disk ? &membership->vote : NULL, .capacity = MEMBER_COUNT_MAX,
					 .fanout = (uint32_t)config_number(config, RING_FANOUT), .gather_us = GATHER_US,
					 .rank_us = RANK_US};
	if (seat_make(config_text(config, NODE_NAME), config->address, incarnation, disk, &council.self) != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "members.%s: %.200s cannot be told to others", config_text(config, NODE_NAME),
				 config->address);
	council_init(membership->council, membership->block, &council);
	return 0;
}

/* The disk's list holds: whoever has changed the file should know. */
static void tell_list(const struct config *config, const struct roster *roster)
{
	char text[LINE_BYTES] = "";
	size_t used = 0;
	bool is_same = config->member_count == roster->count;
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		bool is_listed = false;
		for (uint32_t i = 0; i < config->member_count; i++)
			is_listed |= strcmp(config->names[i], roster->seats[rank].name) == 0;
		is_same &= is_listed;
		if (used < sizeof text - 80)
			used += (size_t)snprintf(text + used, sizeof text - used, " %s", roster->seats[rank].name);
	}
	if (!is_same)
		log_line(LEVEL_NOTICE, "the members are those of view %" PRIu64 " (%s), not those of the config's [members], which served to begin",
			 roster->number, text + (text[0] == ' '));
}

int membership_open(struct membership *membership, struct config *config, uint64_t incarnation, struct line *why)
{
	*membership = (struct membership){.config = config, .deadline_us = UINT64_MAX};
	if (config->shards > 1)
		return 0;
	votefile_path(config, membership->path);
	membership->block = aligned_alloc(64, council_size(MEMBER_COUNT_MAX));
	membership->vote_block = aligned_alloc(64, vote_size(MEMBER_COUNT_MAX));
	membership->council = calloc(1, sizeof *membership->council);
	membership->actions = calloc(1, sizeof *membership->actions);
	struct seat *seats = calloc(config->member_count, sizeof *seats);
	uint64_t disk = 0;
	int error = membership->block && membership->vote_block && membership->council && membership->actions && seats ?
			    read_vote(membership, &disk, why) : line_fail(why, EDIT_ERROR_SYSTEM, "no memory for the list of members");
	if (!error) {
		struct roster list;
		config_roster(config, seats, &list);
		error = make_council(membership, config, incarnation, disk, membership->vote.disk != 0, &list, why);
	}
	if (!error && membership->has_vote)
		tell_list(config, &membership->vote.roster);
	/* The members that it knew last are more likely to be there than those of the file. */
	if (!error && membership->has_vote)
		error = config_seat(config, &membership->vote.roster, why);
	free(seats);
	if (error) {
		membership_close(membership);
		return error;
	}
	membership->is_active = true;
	membership->place = membership->has_vote ? MEMBERSHIP_OUT : MEMBERSHIP_FIRST;
	return 0;
}

void membership_close(struct membership *membership)
{
	free(membership->block);
	free(membership->vote_block);
	free(membership->council);
	free(membership->actions);
	*membership = (struct membership){0};
}

bool membership_waits(const struct membership *membership)
{
	return membership->is_active && membership->has_vote;
}

const struct roster *membership_roster(const struct membership *membership)
{
	return &membership->council->vote.roster;
}

/* ---- Actions ---- */

static void step(struct membership *membership, struct council_event event, uint64_t now_us);

/* The council waits for this. */
static bool persist(struct membership *membership, uint64_t now_us)
{
	struct line why = {""};
	int error = votefile_write(membership->path, &membership->council->vote, &why);
	membership->persist_at_us = error ? now_us + PERSIST_US : 0;
	if (error && strcmp(why.text, membership->trouble) != 0)
		log_line(LEVEL_ERROR, "the vote on who is a member cannot be written, so this member cannot vote: %s", why.text);
	if (!error && membership->trouble[0])
		log_line(LEVEL_NOTICE, "%s is written again", membership->path);
	snprintf(membership->trouble, sizeof membership->trouble, "%s", why.text);
	return error == 0;
}

/* Whoever cannot be reached by those who are to be its neighbours would stop the ring at each try, because all wait for it then. */
static void put_off(struct membership *membership, const struct roster *roster, uint64_t now_us)
{
	uint64_t wait_us = (uint64_t)REJOIN_US << u64_min(membership->vain_entries, REJOIN_DOUBLINGS);
	membership->vain_entries++;
	membership->rejoin_at_us = now_us + wait_us;
	log_line(LEVEL_WARNING, "is not in view %" PRIu64 ": was let in, but did not hear all its neighbours, or they not this member: they must "
		 "reach it at %.150s and it them; asks again in %" PRIu64 " s", roster->number, membership->config->address,
		 wait_us / 1000000);
}

static void come_out(struct membership *membership, const struct roster *roster, uint64_t now_us)
{
	if (membership->place == MEMBERSHIP_LEFT)
		return;
	bool is_vain = membership->place == MEMBERSHIP_IN && !membership->has_met_all;
	membership->entered.number = 0;
	membership->place = membership->wants_out ? MEMBERSHIP_LEFT : MEMBERSHIP_OUT;
	if (membership->wants_out)
		log_line(LEVEL_NOTICE, "has left the ring; view %" PRIu64 " goes on with %" PRIu32 " members", roster->number, roster->count);
	else if (membership->entered_us == 0)
		log_line(LEVEL_NOTICE, "view %" PRIu64 " was decided without this start of the member; asks to be taken in", roster->number);
	else if (is_vain)
		put_off(membership, roster, now_us);
	else
		log_line(LEVEL_WARNING, "is not in view %" PRIu64 " (the others have not heard this member for too long); asks to be taken in again",
			 roster->number);
}

static const char *refusal_text(enum decree_refusal refusal)
{
	switch (refusal) {
	case DECREE_REFUSAL_FULL: return "there is no room for another member";
	case DECREE_REFUSAL_TAKEN: return "a member of this name is there";
	case DECREE_REFUSAL_OTHER: return "it trains another model, on other data, or another run (node.run)";
	case DECREE_REFUSAL_END: break;
	}
	return "for an unknown reason";
}

/* Of the fact that the others have: what it is here. */
static const char *fact_here(const struct membership *membership, const char *detail)
{
	const struct facts *facts = membership->facts;
	for (size_t i = 0; facts && i < facts->lasting_count; i++) {
		size_t length = strlen(facts->list[i].key);
		if (strncmp(facts->list[i].key, detail, length) == 0 && strncmp(detail + length, ": ", 2) == 0)
			return facts->list[i].value;
	}
	return "not given";
}

static void tell_refusal(struct membership *membership, enum decree_refusal refusal, const char *detail, uint64_t now_us)
{
	if (membership->refused_told_us > 0 && now_us - membership->refused_told_us < REFUSED_US)
		return;
	membership->refused_told_us = now_us;
	if (detail)
		log_line(LEVEL_WARNING, "not taken in by the ring: %s: there %s, here %s", refusal_text(refusal), detail,
			 fact_here(membership, detail));
	else
		log_line(LEVEL_WARNING, "not taken in by the ring: %s", refusal_text(refusal));
}

/* Where the config's list has a member, if not where the view has it; NULL: there, or not in the list. Which of the two is the newer one
 * cannot be told: all machines may have got new addresses, or the list was not changed when one had. */
static const struct seat *find_elsewhere(const struct membership *membership, const struct seat *seat)
{
	const struct roster *list = &membership->council->list;
	for (uint32_t i = 0; i < list->count; i++)
		if (strcmp(list->seats[i].name, seat->name) == 0)
			return strcmp(list->seats[i].address, seat->address) == 0 ? NULL : &list->seats[i];
	return NULL;
}

/* A joiner says what it trains, fact by fact, so that it can be told what is wrong with it. */
static void post(struct membership *membership, const struct council_action *action, uint64_t now_us)
{
	struct decree decree = action->decree;
	if (decree.kind == DECREE_JOIN && membership->facts) {
		decree.facts = membership->facts->hashes;
		decree.fact_count = (uint32_t)membership->facts->lasting_count;
	}
	transport_post(membership->transport, action->to, &decree, now_us);
	const struct seat *elsewhere = action->to ? find_elsewhere(membership, action->to) : NULL;
	if (elsewhere)
		transport_post(membership->transport, elsewhere, &decree, now_us);
}

/* True: the vote is on disk now. */
static bool carry_out(struct membership *membership, uint64_t now_us)
{
	const struct council_actions *actions = membership->actions;
	bool is_persisted = false;
	membership->deadline_us = actions->deadline_us;
	for (size_t i = 0; i < actions->count; i++) {
		const struct council_action *action = &actions->list[i];
		switch (action->kind) {
		case COUNCIL_ACTION_SEND: post(membership, action, now_us); break;
		case COUNCIL_ACTION_PERSIST: is_persisted = persist(membership, now_us); break;
		case COUNCIL_ACTION_INSTALL: membership->entered = *action->roster; break;
		case COUNCIL_ACTION_OUT: come_out(membership, action->roster, now_us); break;
		case COUNCIL_ACTION_REFUSED: tell_refusal(membership, action->refusal, action->detail, now_us); break;
		}
	}
	return is_persisted;
}

static void step(struct membership *membership, struct council_event event, uint64_t now_us)
{
	event.now_us = now_us;
	council_step(membership->council, &event, membership->actions);
	while (carry_out(membership, now_us)) {
		const struct council_event persisted = {.kind = COUNCIL_EVENT_PERSISTED, .now_us = now_us};
		council_step(membership->council, &persisted, membership->actions);
	}
	/* Who has started again, or was dropped while it was there, comes back. */
	bool is_out = membership->place == MEMBERSHIP_OUT && membership->entered.number == 0 && now_us >= membership->rejoin_at_us;
	if (is_out && membership->council->config.fingerprint != 0 && !membership->council->wants_in)
		step(membership, (struct council_event){.kind = COUNCIL_EVENT_JOIN}, now_us);
}

/* ---- Events ---- */

void membership_ready(struct membership *membership, const struct facts *facts, uint64_t now_us)
{
	if (!membership->is_active)
		return;
	membership->facts = facts;
	step(membership, (struct council_event){.kind = COUNCIL_EVENT_READY, .fingerprint = facts->fingerprint}, now_us);
	/* A ring that has begun without this member, or with an earlier start of it, takes it in; one that begins does not hear it. */
	if (membership->place == MEMBERSHIP_FIRST)
		step(membership, (struct council_event){.kind = COUNCIL_EVENT_JOIN}, now_us);
}

void membership_met(struct membership *membership)
{
	membership->has_met_all = true;
	membership->vain_entries = 0;
}

void membership_begin(struct membership *membership, uint64_t now_us)
{
	if (membership->is_active && membership->place == MEMBERSHIP_FIRST)
		step(membership, (struct council_event){.kind = COUNCIL_EVENT_BEGIN}, now_us);
}

void membership_renew(struct membership *membership, uint64_t now_us)
{
	bool is_soon = membership->renewed_us > 0 && now_us - membership->renewed_us < RENEW_US;
	if (!membership->is_active || membership->place != MEMBERSHIP_IN || is_soon)
		return;
	membership->renewed_us = now_us;
	step(membership, (struct council_event){.kind = COUNCIL_EVENT_RENEW}, now_us);
}

/* Whether the start of a member that has the seat does not answer any more, as far as can be told here. */
static bool is_absent(const struct membership *membership, const struct node *node, uint32_t rank, uint64_t now_us)
{
	struct node_peer peer;
	if (!node || rank >= membership->config->member_count)
		return false;
	node_peer(node, rank, now_us, &peer);
	if (peer.state == PEER_DOWN || peer.state == PEER_RESTARTED)
		return true;
	/* It has missed a heartbeat. */
	return peer.is_neighbour && 2 * peer.silent_us > 3 * config_us(membership, NODE_HEARTBEAT_MS);
}

/* Of two daemons with one name the second is not heard while the first one is there. */
static bool may_have_seat(const struct membership *membership, const struct decree *decree, const struct node *node, uint64_t now_us)
{
	const struct roster *roster = membership_roster(membership);
	if (!decree->sender)
		return true; /* malformed: the council says so */
	uint32_t rank = roster_find(roster, decree->sender);
	if (rank == roster->count || roster->seats[rank].incarnation == decree->incarnation)
		return true;
	/* The same disk: one daemon at a time has it. */
	bool is_same_disk = roster->seats[rank].disk != 0 && roster->seats[rank].disk == decree->disk;
	return is_same_disk || (roster->number == membership->config->view && is_absent(membership, node, rank, now_us));
}

void membership_hear(struct membership *membership, const struct decree *decree, const struct node *node, uint64_t now_us)
{
	if (!membership->is_active || membership->place == MEMBERSHIP_LEFT)
		return;
	if (decree->kind == DECREE_JOIN && !may_have_seat(membership, decree, node, now_us))
		return;
	char detail[DETAIL_BYTES];
	bool has_detail = decree->kind == DECREE_JOIN && membership->facts &&
			  facts_tell_difference(membership->facts, decree->facts, decree->fact_count, detail, sizeof detail);
	step(membership, (struct council_event){.kind = COUNCIL_EVENT_DECREE, .decree = decree, .detail = has_detail ? detail : NULL},
	     now_us);
}

/* Whether a neighbour has not been heard for long enough that the others should go on without it. */
static bool is_silent(const struct membership *membership, const struct node *node, uint32_t rank, uint64_t now_us)
{
	struct node_peer peer;
	uint64_t silence_us = config_us(membership, NODE_SILENCE_MS);
	node_peer(node, rank, now_us, &peer);
	if (peer.state == PEER_LIVE)
		return false;
	/* Those that were never heard in this view may not know of it yet. */
	return peer.state == PEER_DOWN || now_us - membership->entered_us > silence_us + ENTER_US;
}

static void watch_neighbours(struct membership *membership, const struct node *node, uint64_t now_us)
{
	uint32_t ranks[ROAD_COUNT];
	size_t count = config_neighbours(membership->config, ranks);
	const struct roster *roster = membership_roster(membership);
	for (size_t i = 0; i < count && roster->number == membership->config->view; i++) {
		bool is_doubted = is_silent(membership, node, ranks[i], now_us);
		if (is_doubted == membership->is_doubted[i])
			continue;
		membership->is_doubted[i] = is_doubted;
		step(membership, (struct council_event){.kind = is_doubted ? COUNCIL_EVENT_DOUBT : COUNCIL_EVENT_HEARD,
							.name = roster->seats[ranks[i]].name}, now_us);
	}
}

/* When the council is to be asked, or is to ask for this member. */
static uint64_t wake_us(const struct membership *membership)
{
	bool is_put_off = membership->place == MEMBERSHIP_OUT && membership->rejoin_at_us > 0 && !membership->council->wants_in;
	return is_put_off ? u64_min(membership->deadline_us, membership->rejoin_at_us) : membership->deadline_us;
}

void membership_tick(struct membership *membership, const struct node *node, uint64_t now_us)
{
	if (!membership->is_active)
		return;
	if (membership->persist_at_us > 0 && now_us >= membership->persist_at_us && persist(membership, now_us))
		step(membership, (struct council_event){.kind = COUNCIL_EVENT_PERSISTED}, now_us);
	if (now_us >= wake_us(membership))
		step(membership, (struct council_event){.kind = COUNCIL_EVENT_TICK}, now_us);
	if (membership->place == MEMBERSHIP_IN && node && now_us >= membership->watch_at_us) {
		watch_neighbours(membership, node, now_us);
		membership->watch_at_us = now_us + WATCH_US;
	}
}

uint64_t membership_deadline(const struct membership *membership)
{
	if (!membership->is_active)
		return UINT64_MAX;
	uint64_t at_us = membership->persist_at_us > 0 ? membership->persist_at_us : UINT64_MAX;
	at_us = u64_min(at_us, wake_us(membership));
	return membership->place == MEMBERSHIP_IN ? u64_min(at_us, membership->watch_at_us) : at_us;
}

const struct roster *membership_take(struct membership *membership, uint64_t now_us)
{
	if (!membership->is_active || membership->entered.number == 0)
		return NULL;
	membership->entered.number = 0;
	/* Who stays in has met them all before. */
	membership->has_met_all &= membership->place == MEMBERSHIP_IN;
	membership->place = MEMBERSHIP_IN;
	membership->entered_us = now_us;
	memset(membership->is_doubted, 0, sizeof membership->is_doubted);
	return membership_roster(membership);
}

/* ---- What people ask for ---- */

int membership_leave(struct membership *membership, uint64_t now_us, struct line *why)
{
	if (!membership->is_active)
		return line_fail(why, EDIT_ERROR_REFUSED, "the members of a mesh do not change");
	if (membership->place != MEMBERSHIP_IN)
		return line_fail(why, EDIT_ERROR_REFUSED, "this node is not a member of the ring%s",
				 membership->place == MEMBERSHIP_LEFT ? " any more" : "");
	if (membership_roster(membership)->count == 1)
		return line_fail(why, EDIT_ERROR_REFUSED, "this is the last member; to end the run, stop its services");
	membership->wants_out = true;
	step(membership, (struct council_event){.kind = COUNCIL_EVENT_LEAVE}, now_us);
	return 0;
}

int membership_force(struct membership *membership, const char *const *names, size_t count, uint64_t now_us, struct line *why)
{
	static char padded[MEMBER_COUNT_MAX][SEAT_NAME_BYTES];
	if (!membership->is_active)
		return line_fail(why, EDIT_ERROR_REFUSED, "the members of a mesh do not change");
	if (count == 0 || count > MEMBER_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_INVALID, "%zu names, expected 1 to %d", count, MEMBER_COUNT_MAX);
	memset(padded, 0, sizeof padded);
	for (size_t i = 0; i < count; i++)
		snprintf(padded[i], sizeof padded[i], "%s", names[i]);
	int error = council_force(membership->council, padded[0], (uint32_t)count, now_us, membership->actions);
	if (error == EDIT_ERROR_UNKNOWN)
		return line_fail(why, error, "a name is not in view %" PRIu64, membership_roster(membership)->number);
	if (error == EDIT_ERROR_INVALID)
		return line_fail(why, error, "a name is there twice, or this node (%s) is not among them",
				 config_text(membership->config, NODE_NAME));
	if (error)
		return line_fail(why, error, "the disk has not answered yet, try again");
	while (carry_out(membership, now_us)) {
		const struct council_event persisted = {.kind = COUNCIL_EVENT_PERSISTED, .now_us = now_us};
		council_step(membership->council, &persisted, membership->actions);
	}
	return 0;
}

/* Answers about who is a member, and the commands that change it for this node. The council decides; here it is only shown
 * and asked. Of a mesh, which has no council, the config's list is shown. Owns nothing. */

#include "daemon/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/heard.h"

/* ---- Who is heard ---- */

void answer_put_heard(const struct daemon *daemon, Edit__Control__Status *status)
{
	bool has[MEMBER_COUNT_MAX];
	const struct roster roster = heard_roster(daemon);
	status->view = roster.number;
	status->view_members = roster.count;
	status->members_heard = heard_members(daemon, &roster, has);
}

/* ---- The view ---- */

static const char *place_name(const struct membership *membership)
{
	if (!membership->is_active)
		return "fixed";
	switch (membership->place) {
	case MEMBERSHIP_FIRST: return "first";
	case MEMBERSHIP_IN: return "in";
	case MEMBERSHIP_OUT: return "out";
	case MEMBERSHIP_LEFT: return "left";
	}
	return "unknown";
}

/* This node's place in plain words. */
static const char *place_text(const struct daemon *daemon)
{
	const struct membership *membership = &daemon->membership;
	if (!membership->is_active)
		return "a mesh: its members do not change";
	switch (membership->place) {
	case MEMBERSHIP_FIRST: return "view 1 is being gathered: it begins when all members of the config are there";
	case MEMBERSHIP_IN: return membership->wants_out ? "in it; has asked to leave" : "in it";
	case MEMBERSHIP_OUT:
		return daemon->run.is_begun ? "not in it; asks to be taken in" :
					      "not in it; asks to be taken in as soon as there is a worker";
	case MEMBERSHIP_LEFT: return "has left the ring; a restart of editd joins it again";
	}
	return "unknown";
}

static const char *stage_text(const struct council *council)
{
	switch (council->stage) {
	case COUNCIL_IDLE: return "idle";
	case COUNCIL_PREPARING: return "asking";
	case COUNCIL_ACCEPTING: return "deciding";
	}
	return "unknown";
}

static const char *state_of(const struct daemon *daemon, const struct roster *roster, uint32_t rank)
{
	if (heard_is_self(daemon, roster, rank))
		return "self";
	/* The seat is that of an earlier start. */
	if (roster->seats && seat_is_of(&roster->seats[rank], daemon->membership.council->config.self.name))
		return answer_state_text(PEER_RESTARTED);
	if (!heard_is_seated(daemon, roster))
		return answer_state_text(PEER_UNKNOWN);
	const struct node_peer known = heard_peer(daemon, roster, rank);
	return answer_member_text(daemon, rank, &known);
}

static Edit__Control__ViewMember *make_member(struct answer *answer, const struct roster *roster, uint32_t rank)
{
	const struct daemon *daemon = answer->daemon;
	Edit__Control__ViewMember *member = answer_take(answer, sizeof *member);
	edit__control__view_member__init(member);
	member->name = answer_text(answer, roster->seats ? roster->seats[rank].name : daemon->config.names[rank]);
	member->address = answer_text(answer, roster->seats ? roster->seats[rank].address : config_address(&daemon->config, rank));
	member->state = answer_text(answer, state_of(daemon, roster, rank));
	if (roster->seats) {
		member->holder = rank == roster->holder;
		member->leaving = daemon->membership.council->leaving[rank] ||
				  (daemon->membership.wants_out && heard_is_self(daemon, roster, rank));
	}
	return member;
}

static void put_council(struct answer *answer, Edit__Control__View *view)
{
	const struct membership *membership = &answer->daemon->membership;
	const struct council *council = membership->council;
	view->joiners = (char **)answer_list(answer, council->join_count);
	for (uint32_t i = 0; i < council->join_count && view->joiners; i++)
		view->joiners[view->n_joiners++] = answer_text(answer, council->joins[i].name);
	view->council = answer_text(answer, stage_text(council));
	view->trouble = answer_text(answer, membership->trouble);
	view->entered = council->counts.installed;
	view->proposed = council->counts.attempts;
	view->given_way = council->counts.given_way;
	view->failed = council->failures;
	view->contradictions = council->counts.contradictions;
}

static void put_view(struct answer *answer)
{
	const struct daemon *daemon = answer->daemon;
	const struct roster roster = heard_roster(daemon);
	bool has[MEMBER_COUNT_MAX];
	Edit__Control__View *view = answer_take(answer, sizeof *view);
	edit__control__view__init(view);
	view->number = roster.number;
	view->name = answer_text(answer, config_text(&daemon->config, NODE_NAME));
	view->place = answer_text(answer, place_name(&daemon->membership));
	view->text = answer_text(answer, place_text(daemon));
	view->heard = heard_members(daemon, &roster, has);
	view->majority = roster_is_quorum(&roster, has);
	view->members = (Edit__Control__ViewMember **)answer_list(answer, roster.count);
	for (uint32_t rank = 0; rank < roster.count && view->members; rank++) {
		view->members[rank] = make_member(answer, &roster, rank);
		view->members[rank]->heard = has[rank];
		view->n_members++;
	}
	if (daemon->membership.is_active)
		put_council(answer, view);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_VIEW;
	answer->reply.view = view;
}

int answer_view(struct answer *answer, const struct control_request *request)
{
	(void)request;
	put_view(answer);
	return 0;
}

/* ---- What changes it ---- */

int answer_leave(struct answer *answer, const struct control_request *request)
{
	(void)request;
	struct daemon *daemon = answer->daemon;
	int error = membership_leave(&daemon->membership, daemon->now_us, &answer->why);
	if (!error)
		put_view(answer);
	return error;
}

/* Cuts the names apart, in place, and looks for each in the list. */
static int read_names(struct answer *answer, char *value, const struct roster *roster, const char **ret_names,
		      size_t *ret_count)
{
	size_t count = 0;
	char *rest = value, *word;
	while ((word = strsep(&rest, " ")) != NULL) {
		uint32_t rank = 0;
		while (rank < roster->count && strcmp(roster->seats[rank].name, word) != 0)
			rank++;
		if (rank == roster->count)
			return line_fail(&answer->why, EDIT_ERROR_UNKNOWN, "force: '%s' is not in view %" PRIu64, word, roster->number);
		ret_names[count++] = word;
	}
	*ret_count = count;
	return 0;
}

/* Refuses where there is no need, or where nobody here can know. */
static int check_need(struct answer *answer, const struct roster *roster)
{
	const struct membership *membership = &answer->daemon->membership;
	struct line *why = &answer->why;
	bool has[MEMBER_COUNT_MAX];
	uint32_t heard = heard_members(answer->daemon, roster, has);
	if (membership->place == MEMBERSHIP_OUT)
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "force: this start of the node is not in view %" PRIu64 ", so it does not hear whether a majority of it "
				 "lives: if one does, there will be two rings that go on apart, each with a model of its own; --force "
				 "does it all the same", roster->number);
	if (roster_is_quorum(roster, has))
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "force: %" PRIu32 " of %" PRIu32 " members of view %" PRIu64 " are heard, and those can decide by "
				 "themselves: forced, there could be two rings that go on apart, each with a model of its own; --force "
				 "does it all the same", heard, roster->count, roster->number);
	/* Who is not heard along a ring that has just broken may well answer. */
	if (membership->council->failures == 0)
		return line_fail(why, EDIT_ERROR_BUSY,
				 "force: no attempt of this node to decide view %" PRIu64 " with the others has failed yet: wait some "
				 "seconds, `editctl view` counts what has failed; --force does not wait", roster->number + 1);
	return 0;
}

int answer_force(struct answer *answer, const struct control_request *request)
{
	/* One more than there are blanks. */
	const char *names[CONTROL_VALUE_MAX + 1];
	char value[CONTROL_VALUE_MAX + 1];
	struct daemon *daemon = answer->daemon;
	const struct roster roster = heard_roster(daemon);
	size_t count = 0;
	if (!daemon->membership.is_active)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED, "the members of a mesh do not change");
	if (daemon->membership.place != MEMBERSHIP_IN && daemon->membership.place != MEMBERSHIP_OUT)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED, "force: %s", place_text(daemon));
	if (!daemon->run.is_begun)
		return line_fail(&answer->why, EDIT_ERROR_REFUSED, "force: there is nothing to go on with before a worker is at %.200s",
				 daemon->port.path);
	memcpy(value, request->value, sizeof value);
	int error = read_names(answer, value, &roster, names, &count);
	if (!error && !request->force)
		error = check_need(answer, &roster);
	if (!error)
		error = membership_force(&daemon->membership, names, count, daemon->now_us, &answer->why);
	if (!error)
		put_view(answer);
	return error;
}

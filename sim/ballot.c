/* Bookkeeping of changes, pauses and checkpoints over all members. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/ballot.h"

static bool fail(struct ballot *ballot, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(struct ballot *ballot, const char *format, ...)
{
	if (ballot->fault[0] == '\0') {
		va_list list;
		va_start(list, format);
		vsnprintf(ballot->fault, sizeof ballot->fault, format, list);
		va_end(list);
	}
	return false;
}

void ballot_init(struct ballot *ballot, uint32_t peers)
{
	*ballot = (struct ballot){.peers = peers, .members = calloc(peers, sizeof *ballot->members)};
	CHECK(ballot->members != NULL);
}

void ballot_fini(struct ballot *ballot)
{
	for (size_t c = 0; c < ballot->change_count; c++) {
		free(ballot->changes[c].taken);
		free(ballot->changes[c].dropped);
	}
	free(ballot->members);
	*ballot = (struct ballot){0};
}

static struct ballot_change *find(struct ballot *ballot, uint64_t id)
{
	for (size_t c = 0; c < ballot->change_count; c++)
		if (ballot->changes[c].id == id)
			return &ballot->changes[c];
	return NULL;
}

bool ballot_propose(struct ballot *ballot, uint32_t rank, const struct change *change, const struct actions *actions, uint64_t *ret_id)
{
	uint64_t id = 0;
	unsigned answers = 0;
	for (size_t i = 0; i < actions->count; i++) {
		const struct action *action = &actions->list[i];
		if (action->kind != ACTION_NOTE)
			continue;
		answers += action->note.code == NOTE_CHANGE_HERE || action->note.code == NOTE_CHANGE_REFUSED;
		if (action->note.code == NOTE_CHANGE_HERE)
			id = action->note.a;
	}
	if (answers != 1)
		return fail(ballot, "a proposal got %u answers", answers);
	*ret_id = id;
	if (id == 0) {
		ballot->refused++;
		return true;
	}
	if (find(ballot, id) != NULL)
		return fail(ballot, "two changes have the id %jx", (uintmax_t)id);
	CHECK(ballot->change_count < BALLOT_CHANGE_MAX);
	struct ballot_change *entry = &ballot->changes[ballot->change_count++];
	*entry = (struct ballot_change){.id = id, .at_round = change->at_round, .kind = change->kind,
					.ends = ballot->members[rank].pause_round,
					.taken = calloc(ballot->peers, sizeof(bool)),
					.dropped = calloc(ballot->peers, sizeof(bool))};
	CHECK(entry->taken != NULL);
	CHECK(entry->dropped != NULL);
	return true;
}

static bool take(struct ballot *ballot, uint32_t rank, const struct note *note)
{
	struct ballot_change *change = find(ballot, note->a);
	if (change == NULL)
		return fail(ballot, "peer %u: took a change %jx that nobody proposed", rank, (uintmax_t)note->a);
	if (change->taken[rank] || change->dropped[rank])
		return fail(ballot, "peer %u: took change %jx twice", rank, (uintmax_t)note->a);
	if (change->any_dropped)
		return fail(ballot, "peer %u: took change %jx, which another dropped", rank, (uintmax_t)note->a);
	/* A resume is taken up as soon as it is heard of, so it has no round. */
	if (change->kind != CHANGE_RESUME && change->any_taken && change->round != note->round)
		return fail(ballot, "peer %u: took change %jx after round %ju, another after round %ju", rank,
			    (uintmax_t)note->a, (uintmax_t)note->round, (uintmax_t)change->round);
	if (change->at_round != 0 && change->at_round != note->round)
		return fail(ballot, "peer %u: took change %jx after round %ju, not %ju", rank, (uintmax_t)note->a,
			    (uintmax_t)note->round, (uintmax_t)change->at_round);
	struct ballot_member *member = &ballot->members[rank];
	if (change->kind == CHANGE_RESUME && member->resume_round < change->ends)
		member->resume_round = change->ends;
	if (change->kind == CHANGE_PAUSE)
		member->pause_round = note->round;
	change->taken[rank] = change->any_taken = true;
	change->round = note->round;
	return true;
}

static bool drop(struct ballot *ballot, uint32_t rank, const struct note *note)
{
	struct ballot_change *change = find(ballot, note->a);
	if (change == NULL)
		return fail(ballot, "peer %u: dropped a change %jx that nobody proposed", rank, (uintmax_t)note->a);
	if (change->taken[rank] || change->dropped[rank])
		return fail(ballot, "peer %u: dropped change %jx after taking or dropping it", rank, (uintmax_t)note->a);
	if (change->any_taken)
		return fail(ballot, "peer %u: dropped change %jx, which another took", rank, (uintmax_t)note->a);
	change->dropped[rank] = change->any_dropped = true;
	return true;
}

/* Only what is counted, and who is paused. */
static void watch_loosely(struct ballot *ballot, uint32_t rank, const struct action *action)
{
	if (action->kind == ACTION_PAUSE || action->kind == ACTION_RESUME)
		ballot->members[rank].paused = action->kind == ACTION_PAUSE;
	ballot->pauses += action->kind == ACTION_PAUSE;
	ballot->checkpoints += action->kind == ACTION_CHECKPOINT;
}

bool ballot_action(struct ballot *ballot, uint32_t rank, const struct action *action, uint64_t round)
{
	struct ballot_member *member = &ballot->members[rank];
	if (ballot->fault[0] != '\0')
		return false;
	if (ballot->is_loose) {
		watch_loosely(ballot, rank, action);
		return true;
	}
	switch (action->kind) {
	case ACTION_PAUSE:
		if (member->paused)
			return fail(ballot, "peer %u: paused twice", rank);
		member->paused = true;
		ballot->pauses++;
		return true;
	case ACTION_RESUME:
		if (!member->paused)
			return fail(ballot, "peer %u: resumed, but was not paused", rank);
		member->paused = false;
		return true;
	case ACTION_CHECKPOINT:
		if (action->round != round)
			return fail(ballot, "peer %u: checkpoint of round %ju after round %ju", rank,
				    (uintmax_t)action->round, (uintmax_t)round);
		member->checkpoint_rounds = member->checkpoint_rounds * 1000003 + round;
		ballot->checkpoints++;
		return true;
	case ACTION_NOTE:
		if (action->note.code == NOTE_CHANGE_TAKEN)
			return take(ballot, rank, &action->note);
		if (action->note.code == NOTE_CHANGE_DROPPED)
			return drop(ballot, rank, &action->note);
		return true;
	default:
		return true;
	}
}

bool ballot_look(struct ballot *ballot, uint32_t rank)
{
	const struct ballot_member *member = &ballot->members[rank];
	if (ballot->is_loose || ballot->fault[0] != '\0' || member->paused == (member->pause_round > member->resume_round))
		return ballot->fault[0] == '\0';
	return fail(ballot, "peer %u: %s, with the pause of round %ju taken and those until round %ju over", rank,
		    member->paused ? "paused" : "not paused", (uintmax_t)member->pause_round, (uintmax_t)member->resume_round);
}

bool ballot_end(struct ballot *ballot)
{
	for (size_t c = 0; c < ballot->change_count; c++) {
		const struct ballot_change *change = &ballot->changes[c];
		for (uint32_t rank = 0; rank < ballot->peers; rank++)
			if (change->any_taken && !change->taken[rank])
				return fail(ballot, "peer %u: never took change %jx, others did after round %ju", rank,
					    (uintmax_t)change->id, (uintmax_t)change->round);
	}
	for (uint32_t rank = 1; rank < ballot->peers; rank++) {
		const struct ballot_member *first = &ballot->members[0], *member = &ballot->members[rank];
		if (member->paused != first->paused)
			return fail(ballot, "peer %u: %s in the end, peer 0 not so", rank, member->paused ? "paused" : "not paused");
		if (member->checkpoint_rounds != first->checkpoint_rounds)
			return fail(ballot, "peer %u: checkpoints after other rounds than peer 0", rank);
	}
	return true;
}

uint32_t ballot_paused_count(const struct ballot *ballot)
{
	uint32_t count = 0;
	for (uint32_t rank = 0; rank < ballot->peers; rank++)
		count += ballot->members[rank].paused;
	return count;
}

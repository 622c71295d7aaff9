/* See the header. Written from the rules of the daemon, and with no look at what the core remembers. */

#include <math.h>

#include "sim/remains.h"

void remains_leave(struct world *world, uint32_t slot, enum remains remains)
{
	struct replica *replica = world_replica(world, slot);
	replica->remains = remains;
	if (remains == REMAINS_NOTHING)
		return;
	replica->is_apart = true;
	replica->is_refusing = false;
	replica->meets_us = UINT64_MAX;
	ledger_part(world->ledger, slot);
}

void remains_keep(struct world *world, uint32_t slot)
{
	struct citizen *member = &world->members[slot];
	struct node_status status;
	node_status(member->node, world->now_us, &status);
	if (status.round == member->kept_round && node_since(member->node) == member->kept_since)
		return;
	member->kept_round = status.round;
	member->kept_since = node_since(member->node);
	for (size_t i = 0; i < world->actions->count; i++) {
		bool is_done = world->actions->list[i].kind == ACTION_NOTE && world->actions->list[i].note.code == NOTE_ROUND_DONE;
		if (is_done && !world_replica(world, slot)->is_apart)
			member->kept_offers = world_replica(world, slot)->trainee.offers - node_offer_waits(member->node);
	}
}

bool remains_is_outdated(const struct world *world, uint32_t slot)
{
	const struct replica *replica = world_replica(world, slot);
	bool is_held = true;
	for (size_t l = 0; l < world->config->layer_count; l++)
		is_held &= replica->trainee.held[l];
	/* Its layers have never been given to it. */
	bool is_waiting = !is_held && replica->trainee.offers == 0;
	return replica->remains == REMAINS_NOTHING || is_waiting;
}

uint64_t remains_step(const struct world *world, uint32_t slot)
{
	const struct replica *replica = world_replica(world, slot);
	return replica->remains == REMAINS_NOTHING ? 0 : replica->trainee.done + replica->trainee.lead;
}

bool remains_is_stale(const struct world *world, uint32_t slot)
{
	const struct citizen *member = &world->members[slot];
	const struct replica *replica = world_replica(world, slot);
	if (replica->remains == REMAINS_NOTHING)
		return false;
	bool is_any = member->kept_round > 0 && node_settings(member->node)->value[SYNC_OVERLAP] == OVERLAP_STEPS;
	for (size_t l = 0; l < world->config->layer_count; l++)
		is_any |= replica->told_round[l] < member->kept_round;
	return is_any;
}

void remains_prepare(struct world *world, uint32_t slot)
{
	const struct citizen *member = &world->members[slot];
	struct replica *replica = world_replica(world, slot);
	struct trainee *trainee = &replica->trainee;
	struct dice *dice = &world->view_dice;
	const double *settings = node_settings(member->node)->value;
	const bool is_averaging = node_averages_gradients(member->node);
	/* base and snapshot were the dead daemon's */
	for (size_t l = 0; l < world->config->layer_count; l++)
		for (size_t i = 0; i < replica->layers[l].size; i++)
			replica->layers[l].base[i] = replica->layers[l].snapshot[i] = NAN;
	if (replica->remains == REMAINS_MEMORY) {
		trainee_resume(trainee);
		replica->work_us = UINT64_MAX; /* what the last one would have woken for has passed it by */
	}
	replica->paused = 0;
	trainee->paused = false;
	trainee->gradients = is_averaging;
	if (remains_is_outdated(world, slot)) {
		trainee_wait(trainee);
		replica->meets_us = world->now_us;
		world_arm_work(world, slot, replica->meets_us);
		return;
	}
	/* That the run ends at the round's end was told to nobody. */
	if (trainee->stopped && !trainee->ended && !member->finished) {
		trainee->stopped = false;
		trainee->schedule = UINT64_MAX;
	}
	if (trainee->schedule == UINT64_MAX && !trainee->stopped && settings[SYNC_PERIOD] == 0.0 && !is_averaging)
		trainee_schedule(trainee, node_is_aligning(member->node) ? 1 : (uint64_t)settings[SYNC_INTERVAL], false);
	/* Gradients of a step that an earlier daemon has heard of: in the first round of all they are taken again, unless some are back. */
	bool is_void = member->kept_round > 0 || member->is_torn;
	for (size_t l = 0; l < world->config->layer_count; l++)
		is_void |= replica->told_round[l] > 0;
	replica->void_offers = trainee_is_handing(trainee) && is_void ? trainee->offers : 0;
	replica->meets_us = world->now_us + (dice_chance(dice, 0.5) ? 0 : dice_magnitude(dice, 100, 2 * SECOND));
	world_arm_work(world, slot, replica->meets_us);
}

static void give_back(struct world *world, uint32_t slot, size_t layer_index, enum verdict verdict)
{
	struct replica *replica = world_replica(world, slot);
	ledger_give_back(world->ledger, slot, layer_index);
	trainee_publish(&replica->trainee, layer_index, verdict, world->now_us);
}

void remains_refuse(struct world *world, uint32_t slot, size_t layer_index)
{
	give_back(world, slot, layer_index, VERDICT_NONFINITE);
}

/* Gradients of a step that is under way. */
static void meet_gradients(struct world *world, uint32_t slot)
{
	struct replica *replica = world_replica(world, slot);
	struct trainee *trainee = &replica->trainee;
	const size_t layer_count = world->config->layer_count;
	const bool is_taken = trainee->gradients && trainee->offers != replica->void_offers;
	replica->is_refusing = !is_taken;
	if (is_taken) {
		struct event event = {.kind = EVENT_OFFER, .offer = replica->offer};
		world_step(world, slot, &event);
	}
	for (size_t l = layer_count; l-- > 0 && !world->over;) {
		if (!trainee_has_handed(trainee, l) || trainee->held[l])
			continue;
		struct event event = {.kind = EVENT_GRADIENT};
		event.gradient.layer_index = (uint32_t)l;
		event.gradient.absent = ledger_is_absent(world->ledger, slot, l);
		if (is_taken)
			world_step(world, slot, &event);
		else
			remains_refuse(world, slot, l);
	}
	world_cover(world, COVER_REFUSED_STEPS, !is_taken);
}

static size_t held_count(const struct trainee *trainee)
{
	size_t count = 0;
	for (size_t l = 0; l < trainee->config.layer_count; l++)
		count += trainee->held[l];
	return count;
}

void remains_meet(struct world *world, uint32_t slot)
{
	const struct citizen *member = &world->members[slot];
	struct replica *replica = world_replica(world, slot);
	struct trainee *trainee = &replica->trainee;
	const size_t layer_count = world->config->layer_count, held = held_count(trainee);
	replica->is_apart = false;
	trainee->wants = layer_count; /* says so again */
	ledger_meet(world->ledger, slot);
	if (remains_is_outdated(world, slot))
		return; /* the node will give it theta */
	if (trainee_is_handing(trainee)) {
		meet_gradients(world, slot);
		return;
	}
	const bool is_open = trainee->offers > member->kept_offers && !replica->offer.gradients;
	if (is_open && (held == 0 || trainee->ended)) {
		/* After its last offer a worker does nothing with layers any more. */
		for (size_t l = 0; l < layer_count; l++)
			trainee->held[l] = false;
		ledger_offer_again(world->ledger, slot, replica->layers);
		struct event event = {.kind = EVENT_OFFER, .offer = replica->offer};
		world_cover(world, COVER_OFFERED_AGAIN, 1);
		world_step(world, slot, &event);
		return;
	}
	for (size_t l = 0; l < layer_count; l++)
		if (!trainee->held[l])
			give_back(world, slot, l, VERDICT_ACCEPTED);
	if (!is_open)
		return;
	world_cover(world, COVER_VOID_OFFERS, 1);
	trainee_schedule(trainee, 1, trainee->gradients);
}

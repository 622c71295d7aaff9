/* See the header. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/oracle.h"
#include "sim/remains.h"

enum { FALL_STAYS = 1, FALL_LEAVES };

uint32_t oracle_joiners(struct world *world)
{
	world->view_dice = (struct dice){world->config->seed ^ UINT64_C(0x6f7261636c65)};
	return world_has_views(world) ? (uint32_t)dice_between(&world->view_dice, 0, 2) : 0;
}

/* ---- Rosters ---- */

static struct roster *add_roster(struct world *world, const uint32_t *slots, uint32_t count)
{
	CHECK(world->roster_count < ROSTERS_MAX);
	struct roster *roster = &world->rosters[world->roster_count++];
	*roster = (struct roster){.view = world->roster_count, .count = count};
	roster->slots = memory_take(count, sizeof *roster->slots);
	roster->names = memory_take(count, sizeof *roster->names);
	for (uint32_t rank = 0; rank < count; rank++) {
		roster->slots[rank] = slots[rank];
		roster->names[rank] = world->names[slots[rank]];
	}
	return roster;
}

void oracle_fini(struct world *world)
{
	for (size_t i = 0; i < world->roster_count; i++) {
		free(world->rosters[i].slots);
		free(world->rosters[i].names);
	}
	free(world->rosters);
}

/* ---- What will happen ---- */

static void push(struct world *world, enum happening kind, uint32_t slot, uint64_t after_us, uint32_t item, uint64_t number)
{
	heap_push(&world->heap, (struct heap_entry){.time_us = world->now_us + after_us, .kind = (int)kind, .rank = slot,
						    .item = item, .number = number});
}

static void decide_after(struct world *world, uint64_t after_us)
{
	if (!world->decision_pending)
		push(world, HAPPENS_DECIDE, 0, after_us, 0, 0);
	world->decision_pending = true;
}

/* How long somebody is away; 0: for ever. */
static uint64_t draw_absence(struct dice *dice)
{
	return dice_chance(dice, 0.25) ? 0 : dice_magnitude(dice, 1000, 8 * SECOND);
}

void oracle_plan(struct world *world)
{
	const struct world_config *config = world->config;
	struct dice *dice = &world->view_dice;
	uint32_t first[MEMBER_COUNT_MAX];
	for (uint32_t i = 0; i < config->peers; i++)
		first[i] = i;
	world->rosters = memory_take(ROSTERS_MAX, sizeof *world->rosters);
	const struct roster *roster = add_roster(world, first, config->peers);
	for (uint32_t slot = 0; slot < world->count; slot++) {
		world->members[slot].roster = roster;
		ledger_seat(world->ledger, slot / config->shards, roster);
	}
	if (!world_has_views(world))
		return;
	const uint64_t span_us = world->setup.span_us;
	for (uint32_t slot = 0; slot < world->count; slot++) {
		struct citizen *member = &world->members[slot];
		member->ways = memory_take(world->count, sizeof *member->ways);
		for (uint32_t to = 0; to < world->count; to++)
			member->ways[to] = setup_road(&world->setup, dice);
		if (slot < config->peers)
			continue;
		member->crashed = true;
		ledger_fall(world->ledger, slot);
		push(world, HAPPENS_RISE, slot, dice_between(dice, 0, span_us), 0, 0);
	}
	for (uint64_t events = dice_between(dice, 1, 6); events > 0; events--) {
		uint64_t at_us = dice_between(dice, 0, SECOND + span_us);
		uint32_t slot = (uint32_t)dice_between(dice, 0, world->count - 1);
		if (dice_chance(dice, 0.15))
			push(world, HAPPENS_DECIDE, 0, at_us, 0, 0); /* for no reason that members could see */
		else
			push(world, HAPPENS_FALL, slot, at_us, dice_chance(dice, 0.2) ? FALL_LEAVES : FALL_STAYS,
			     draw_absence(dice));
	}
}

/* ---- Falls ---- */

/* Whether a layer that a member holds has had another outcome of the same round in a later view; is_here: and somebody alive has that, or
 * has gone on from it. */
static bool is_outdone(const struct world *world, const struct node *node, bool is_here)
{
	for (size_t l = 0; l < world->config->layer_count; l++) {
		const uint64_t round = node_layer_round(node, l), since = node_layer_since(node, l);
		if (round == LAYER_NOTHING || !ledger_is_outdone(world->ledger, l, round, since))
			continue;
		bool is_held = !is_here;
		for (uint32_t other = 0; other < world->count; other++) {
			const struct citizen *member = &world->members[other];
			uint64_t other_round = node_layer_round(member->node, l);
			is_held |= !member->crashed && other_round != LAYER_NOTHING && other_round >= round &&
				   node_layer_since(member->node, l) > since;
		}
		if (is_held)
			return true;
	}
	return false;
}

/* Whether a member can go on by itself with whoever comes back with damaged layers: it holds all of them, as of the last round or the one
 * before. */
static bool is_whole(const struct world *world, const struct node *node)
{
	uint64_t lowest = UINT64_MAX, highest = 0; /* amid a heal they may be further apart */
	for (size_t l = 0; l < world->config->layer_count; l++) {
		if (node_layer_round(node, l) == LAYER_NOTHING)
			return false;
		for (uint32_t other = 0; other < world->count; other++) {
			uint64_t round = node_layer_round(world->members[other].node, l);
			if (round != LAYER_NOTHING && round > node_layer_round(node, l) + 1)
				return false;
		}
		lowest = u64_min(lowest, node_layer_round(node, l));
		highest = u64_max(highest, node_layer_round(node, l));
	}
	return highest - lowest <= 1 && !is_outdone(world, node, false);
}

/* Whether the others could not go on without this one: of those who have come furthest among them none is whole. */
static bool is_spared(const struct world *world, uint32_t slot)
{
	uint64_t newest = 0;
	for (uint32_t other = 0; other < world->count; other++)
		if (other != slot && !world->members[other].crashed)
			newest = u64_max(newest, node_since(world->members[other].node));
	for (uint32_t other = 0; other < world->count; other++) {
		const struct citizen *member = &world->members[other];
		if (other != slot && !member->crashed && node_since(member->node) == newest && is_whole(world, member->node))
			return false;
	}
	return true;
}

/* Whether somebody alive could give a member a layer that it has lost: as of the round of its newest, or the one before. */
static bool is_elsewhere(const struct world *world, const struct node *node, size_t layer_index)
{
	uint64_t newest = 0;
	for (size_t l = 0; l < world->config->layer_count; l++)
		if (node_layer_round(node, l) != LAYER_NOTHING)
			newest = u64_max(newest, node_layer_round(node, l));
	for (uint32_t other = 0; other < world->count; other++) {
		const struct citizen *member = &world->members[other];
		uint64_t round = node_layer_round(member->node, layer_index);
		if (!member->crashed && member->node != node && round != LAYER_NOTHING && round + 1 >= newest)
			return true;
	}
	return false;
}

static enum remains draw_remains(struct world *world, const struct heap_entry *entry)
{
	struct dice *dice = &world->view_dice;
	if (entry->number == 0 || dice_chance(dice, 0.5))
		return REMAINS_NOTHING;
	return dice_chance(dice, 0.75) ? REMAINS_WORKER : REMAINS_MEMORY;
}

void oracle_fall(struct world *world, const struct heap_entry *entry)
{
	struct citizen *member = &world->members[entry->rank];
	struct dice *dice = &world->view_dice;
	if (member->crashed || is_spared(world, entry->rank))
		return;
	member->crashed = true;
	world->ballot.members[entry->rank].paused = false;
	ledger_fall(world->ledger, entry->rank);
	remains_leave(world, entry->rank, draw_remains(world, entry));
	bool leaves = entry->item == FALL_LEAVES;
	world_cover(world, leaves ? COVER_LEAVES : COVER_FALLS, 1);
	if (entry->number > 0)
		push(world, HAPPENS_RISE, entry->rank, entry->number, 0, 0);
	decide_after(world, leaves ? 0 : dice_magnitude(dice, 1000, 4 * SECOND));
}

void oracle_commit(struct world *world, uint32_t slot)
{
	struct dice *dice = &world->view_dice;
	if (world_has_views(world) && dice_chance(dice, 0.01))
		push(world, HAPPENS_FALL, slot, dice_chance(dice, 0.7) ? 0 : dice_between(dice, 0, 2 * world->setup.latency_us), FALL_STAYS,
		     draw_absence(dice));
}

/* What a member finds of its state when it comes back, with a worker that has nothing or one that has lived on; rounds [layer_count]. */
static void draw_state(struct world *world, uint32_t slot, uint64_t *rounds, struct detector *detectors)
{
	struct citizen *member = &world->members[slot];
	struct replica *replica = world_replica(world, slot);
	struct dice *dice = &world->view_dice;
	const size_t layer_count = world->config->layer_count;
	bool is_nothing = slot >= world->config->peers && node_since(member->node) == 0;
	is_nothing |= replica->remains == REMAINS_NOTHING && dice_chance(dice, 0.3);
	is_nothing |= is_outdone(world, member->node, false) && !is_outdone(world, member->node, true);
	size_t torn = dice_chance(dice, 0.4) ? dice_between(dice, 0, layer_count - 1) : layer_count;
	/* A run that has ended tears nothing any more, and a worker that has ended could not do a round again. */
	if (torn < layer_count && (!is_elsewhere(world, member->node, torn) || replica->trainee.ended))
		torn = layer_count;
	if (is_nothing)
		replica->remains = REMAINS_NOTHING;
	member->is_torn = !is_nothing && torn < layer_count;
	for (size_t l = 0; l < layer_count; l++) {
		struct layer *layer = &member->layers[l];
		rounds[l] = is_nothing || l == torn ? LAYER_NOTHING : node_layer_round(member->node, l);
		detectors[l] = rounds[l] == LAYER_NOTHING ? (struct detector){0} : *node_detector(member->node, l);
		for (size_t i = 0; i < layer->size && replica->remains == REMAINS_NOTHING; i++)
			layer->theta[i] = NAN; /* nobody may take it in */
		for (size_t i = 0; i < layer->size && rounds[l] == LAYER_NOTHING; i++)
			layer->anchor[i] = layer->momentum[i] = is_nothing || i % 2 == 0 ? 1e9F : layer->anchor[i];
	}
	world_cover(world, COVER_SURVIVORS, replica->remains == REMAINS_WORKER);
	world_cover(world, COVER_MEMORIES, replica->remains == REMAINS_MEMORY);
	world_cover(world, is_nothing ? COVER_JOINS : torn < layer_count ? COVER_TORN : COVER_INTACT, 1);
}

void oracle_rise(struct world *world, const struct heap_entry *entry)
{
	struct citizen *member = &world->members[entry->rank];
	if (!member->crashed || member->rises)
		return;
	member->rises = true;
	member->rises_after = world->roster_count;
	decide_after(world, dice_magnitude(&world->view_dice, 100, SECOND));
}

/* ---- Views ---- */

void oracle_decide(struct world *world)
{
	struct dice *dice = &world->view_dice;
	const struct roster *last = &world->rosters[world->roster_count - 1];
	uint32_t slots[MEMBER_COUNT_MAX], count = 0;
	world->decision_pending = false;
	if (world->roster_count == ROSTERS_MAX)
		return;
	for (uint32_t rank = 0; rank < last->count; rank++)
		if (!world->members[last->slots[rank]].crashed)
			slots[count++] = last->slots[rank];
	for (uint32_t slot = 0; slot < world->count; slot++) {
		const struct citizen *member = &world->members[slot];
		bool is_in = roster_rank(last, slot) < last->count && !member->crashed;
		if (!is_in && (member->rises || !member->crashed))
			slots[count++] = slot;
	}
	const struct roster *roster = add_roster(world, slots, count);
	uint64_t spread_us = dice_magnitude(dice, 1, 2 * SECOND);
	for (uint32_t rank = 0; rank < count; rank++)
		push(world, HAPPENS_SEAT, slots[rank], dice_between(dice, 0, spread_us), 0, roster->view);
	/* Somebody falls while the view begins. */
	if (dice_chance(dice, 0.3))
		push(world, HAPPENS_FALL, slots[dice_between(dice, 0, count - 1)],
		     dice_between(dice, 0, spread_us + 20 * world->setup.latency_us), FALL_STAYS, draw_absence(dice));
}

/* What a view that begins has cut off. */
static void note_cut(struct world *world, const struct node *node)
{
	bool lacks = false, has[3] = {false};
	for (size_t l = 0; l < world->config->layer_count; l++) {
		enum node_layer_state state = node_layer_state(node, l);
		has[0] |= state == NODE_LAYER_SCALARS;
		has[1] |= state == NODE_LAYER_REDUCE;
		has[2] |= state == NODE_LAYER_GATHER;
		lacks |= node_layer_round(node, l) == LAYER_NOTHING;
	}
	bool stands = !node_is_ready(node);
	world_cover(world, COVER_CUT_SCALARS, has[0]);
	world_cover(world, COVER_CUT_REDUCE, has[1]);
	world_cover(world, COVER_CUT_GATHER, has[2]);
	world_cover(world, COVER_CUT_STANDING, stands && !lacks);
	world_cover(world, COVER_CUT_HEAL, stands && lacks);
}

/* A daemon has started, and its worker starts too, with nothing. */
static void employ_anew(struct world *world, uint32_t slot, const uint64_t *rounds)
{
	struct citizen *member = &world->members[slot];
	struct replica *replica = world_replica(world, slot);
	replica->work_us = UINT64_MAX; /* what it would have woken for has passed it by */
	replica->is_apart = replica->is_refusing = false;
	memset(replica->told_round, 0, world->config->layer_count * sizeof *replica->told_round);
	trainee_fini(&replica->trainee);
	replica_employ(replica, &world->setup, world->config, member->node, &world->view_dice);
	trainee_wait(&replica->trainee);
	replica->paused = 0;
	member->kept_offers = 0;
	ledger_rise(world->ledger, slot, member->layers, rounds);
}

/* A daemon starts, with what is there. */
static void start_again(struct world *world, uint32_t slot, const struct roster *roster)
{
	struct citizen *member = &world->members[slot];
	struct replica *replica = world_replica(world, slot);
	const size_t layer_count = world->config->layer_count;
	uint64_t *rounds = memory_take(layer_count, sizeof *rounds), *layer_since = memory_take(layer_count, sizeof *layer_since);
	bool *rolled_back = memory_take(layer_count, sizeof *rolled_back);
	struct detector *detectors = memory_take(layer_count, sizeof *detectors);
	struct node_status status;
	node_status(member->node, world->now_us, &status);
	uint64_t since = node_since(member->node);
	struct ring_settings settings = *node_settings(member->node);
	draw_state(world, slot, rounds, detectors);
	bool has_some = false;
	for (size_t l = 0; l < layer_count; l++) {
		has_some |= rounds[l] != LAYER_NOTHING;
		layer_since[l] = node_layer_since(member->node, l);
		rolled_back[l] = node_layer_is_rolled_back(member->node, l);
	}
	member->incarnation = dice_bits(&world->view_dice) | 1;
	struct node_config node = world_node(world, slot, roster);
	node.since = has_some ? since : 0;
	node.round = has_some ? status.round : 0;
	node.finished = has_some && status.phase == NODE_FINISHED;
	node.layer_rounds = rounds;
	node.layer_since = layer_since;
	node.layer_rolled_back = rolled_back;
	node.detectors = detectors;
	node.is_outdated = remains_is_outdated(world, slot);
	node.step = remains_step(world, slot);
	node.is_stale = remains_is_stale(world, slot);
	node.settings = has_some ? settings : world->setup.settings;
	struct citizen before = *member;
	free(member->block);
	free(member->layers);
	citizen_init(member, &world->setup, world->config, replica, &node);
	memcpy(member->roads, before.roads, sizeof member->roads);
	member->ways = before.ways;
	member->roster = before.roster;
	member->life = before.life + 1;
	member->kept_round = node.round;
	member->kept_since = node.since;
	member->kept_offers = before.kept_offers;
	member->is_torn = before.is_torn;
	if (replica->remains == REMAINS_NOTHING) {
		employ_anew(world, slot, rounds);
	} else {
		member->finished = node.finished;
		ledger_survive(world->ledger, slot, member->layers, rounds, node.round, node.is_stale, node.is_outdated);
		remains_prepare(world, slot);
	}
	free(rounds);
	free(layer_since);
	free(rolled_back);
	free(detectors);
}

void oracle_seat(struct world *world, const struct heap_entry *entry)
{
	const uint32_t slot = entry->rank;
	struct citizen *member = &world->members[slot];
	const struct roster *roster = &world->rosters[entry->number - 1];
	if ((member->crashed && !member->rises) || member->roster->view >= roster->view)
		return;
	if (member->crashed && roster->view <= member->rises_after)
		return;
	if (member->crashed) {
		start_again(world, slot, roster);
	} else {
		note_cut(world, member->node);
		struct node_config node = world_node(world, slot, roster);
		citizen_enter(member, world->config, &node);
	}
	member->roster = roster;
	ledger_seat(world->ledger, slot, roster);
	world_cover(world, COVER_VIEWS, 1);
	member->deadline_us = world->now_us;
	world_arm_tick(world, slot);
	world_arm_work(world, slot, world->now_us);
}

/* The world's loop: takes the next thing off the heap, feeds it to a node, carries out the node's actions, has all checked. */

#include <stdlib.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/mishap.h"
#include "sim/oracle.h"
#include "sim/remains.h"
#include "sim/share.h"

static void fold(struct world *world, uint64_t number)
{
	struct dice mixer = {world->result->hash ^ number};
	world->result->hash = dice_bits(&mixer);
}

/* ---- Actions ---- */

static void send_message(struct world *world, uint32_t rank, const struct action *action)
{
	/* A node speaks of ranks in its view. */
	const uint32_t to = world_has_views(world) ? world->members[rank].roster->slots[action->to] : action->to;
	struct road *road = world_way(world, rank, to);
	if (road == NULL) {
		world_fail(world, "peer %" PRIu32 ": message to %" PRIu32 ", who is no neighbour", rank, action->to);
		return;
	}
	bool overtakes, repeats = dice_chance(&world->dice, road->repeat);
	world_cover(world, COVER_MESSAGES, 1);
	for (int copy = 0; copy <= repeats; copy++) {
		uint64_t arrival = road_send(road, &world->dice, world->now_us, parcel_size(&action->message), &overtakes);
		world_cover(world, COVER_OVERTAKING, overtakes);
		world_cover(world, COVER_REPEATED, copy > 0);
		if (dice_chance(&world->dice, road->loss) || world->now_us < road->cut_until_us) {
			world_cover(world, COVER_LOST, 1);
			continue;
		}
		struct parcel *parcel = parcel_new(&action->message);
		parcel->sender = rank;
		world_push(world, HAPPENS_ARRIVAL, to, arrival, parcel);
	}
}

/* What the members of a replica do one by one counts for it when all have. */
static bool all_have(const struct world *world, uint32_t *count)
{
	*count = (*count + 1) % world->config->shards;
	return *count == 0;
}

static void publish_layer(struct world *world, uint32_t rank, const struct action *action)
{
	struct replica *replica = world_replica(world, rank);
	uint32_t row = rank / world->config->shards;
	if (!all_have(world, &replica->published[action->layer_index]))
		return;
	if (!ledger_publish(world->ledger, row, replica->layers, action))
		return;
	replica->told_round[action->layer_index] = action->round;
	trainee_publish(&replica->trainee, action->layer_index, action->verdict, world->now_us);
	world_arm_work(world, row, world->now_us);
}

static void hash_layer(struct world *world, uint32_t rank, const struct action *action)
{
	struct citizen *member = &world->members[rank];
	struct replica *replica = world_replica(world, rank);
	const struct layer *whole = replica->layers;
	uint64_t hash = share_state_hash(&member->layers[action->layer_index]), whole_hash = hash;
	bool is_whole = all_have(world, &replica->committed[action->layer_index]);
	if (is_whole && !ledger_commit(world->ledger, rank / world->config->shards, member->node, whole, action, &whole_hash))
		return;
	fold(world, whole_hash);
	oracle_commit(world, rank);
	uint64_t delay = dice_chance(&world->dice, 0.5) ? 0 : dice_between(&world->dice, 0, 300);
	heap_push(&world->heap, (struct heap_entry){.time_us = world->now_us + delay, .kind = HAPPENS_HASHED, .rank = rank,
						    .number = hash, .item = action->layer_index, .life = member->life});
}

/* The driver is asked for the hash of what is held, or of what was fetched. */
static void hash_held(struct world *world, uint32_t rank, const struct action *action)
{
	struct citizen *member = &world->members[rank];
	uint64_t hash = share_state_hash(&member->layers[action->layer_index]);
	if (action->kind == ACTION_HEALED && !ledger_heal(world->ledger, rank, member->layers, action, &hash))
		return;
	fold(world, hash);
	uint64_t delay = dice_chance(&world->view_dice, 0.5) ? 0 : dice_magnitude(&world->view_dice, 1, 20000);
	heap_push(&world->heap, (struct heap_entry){.time_us = world->now_us + delay, .kind = HAPPENS_HASHED, .rank = rank,
						    .number = hash, .item = action->layer_index, .life = member->life});
}

static void read_note(struct world *world, uint32_t rank, const struct note *note)
{
	if (note->code == NOTE_STALLED)
		world->members[rank].stall_noted = true;
	if (note->code == NOTE_HASH_DIFFERS)
		world_fail(world, "peer %" PRIu32 ": notes a hash that differs", rank);
	if (note->code == NOTE_FETCHED_WRONG || note->code == NOTE_LAYER_MISSING)
		world_fail(world, "peer %" PRIu32 ": layer %" PRIu32 " is missing or fetched wrong", rank, note->layer_index);
	if (note->code == NOTE_RING_COMPLETE)
		world->begun = true;
	if (note->code == NOTE_PEER_RESTARTED)
		world->restart_noted = true;
	bool is_refusal = note->code == NOTE_PEER_REFUSED || note->code == NOTE_REFUSED_BY || note->code == NOTE_PEER_RESTARTED;
	if (is_refusal && world->crashed_rank == world->count)
		world_fail(world, "peer %" PRIu32 ": peer %" PRIu32 " refused or restarted", rank, note->peer);
}

static void carry_out(struct world *world, uint32_t rank, const struct action *action)
{
	struct replica *replica = world_replica(world, rank);
	struct trainee *trainee = &replica->trainee;
	switch (action->kind) {
	case ACTION_SEND: send_message(world, rank, action); break;
	case ACTION_COMMITTED: hash_layer(world, rank, action); break;
	case ACTION_HASH:
	case ACTION_HEALED: hash_held(world, rank, action); break;
	case ACTION_PUBLISH: publish_layer(world, rank, action); break;
	case ACTION_SCHEDULE:
		trainee_schedule(trainee, action->number, action->gradients);
		world_arm_work(world, rank / world->config->shards, world->now_us);
		break;
	case ACTION_PAUSE:
		trainee->paused = ++replica->paused > 0;
		if (!world->resume_pending)
			world_push(world, HAPPENS_RESUME, 0, world->now_us + dice_magnitude(&world->dice, 1, 4 * SECOND), NULL);
		world->resume_pending = true;
		break;
	case ACTION_RESUME:
		trainee->paused = --replica->paused > 0;
		world_arm_work(world, rank / world->config->shards, world->now_us);
		break;
	case ACTION_NOTE: read_note(world, rank, &action->note); break;
	case ACTION_STEP: trainee_align(trainee, action->number); break;
	case ACTION_COLLECTED:
	case ACTION_SUMMED:
	case ACTION_CHECKPOINT: break;
	}
}

/* ---- One event ---- */

/* Whether all members of the replica have come equally far, so that it can be looked at as a whole. */
static bool is_even(const struct world *world, uint32_t rank)
{
	const uint32_t shards = world->config->shards, first = rank / shards * shards;
	for (uint32_t other = first; other < first + shards; other++)
		for (size_t l = 0; l < world->config->layer_count; l++)
			if (node_layer_round(world->members[other].node, l) != node_layer_round(world->members[rank].node, l))
				return false;
	return true;
}

static void check(struct world *world, uint32_t rank)
{
	struct citizen *member = &world->members[rank];
	struct node_status status;
	node_status(member->node, world->now_us, &status);
	for (size_t i = 0; i < world->actions->count; i++)
		ballot_action(&world->ballot, rank, &world->actions->list[i], status.round);
	ballot_look(&world->ballot, rank);
	if (is_even(world, rank))
		ledger_look(world->ledger, rank / world->config->shards, member->node, world_replica(world, rank)->layers,
			    &status);
	if (ledger_fault(world->ledger) != NULL)
		world_fail(world, "%s", ledger_fault(world->ledger));
	if (world->ballot.fault[0] != '\0')
		world_fail(world, "%s", world->ballot.fault);
	if (status.phase == NODE_FINISHED && !member->finished) {
		member->finished = true;
		/* Whoever was late has made fewer offers than there were rounds; after the last gradients there is one more. */
		struct ledger_counts counts = ledger_counts(world->ledger);
		bool may_be_more = counts.lates > 0 || counts.gradients > 0 || world_has_views(world);
		if ((status.round < world->config->rounds && !world_has_views(world)) || (status.round > world->config->rounds && !may_be_more))
			world_fail(world, "peer %" PRIu32 ": finished after %" PRIu64 " rounds", rank, status.round);
	}
}

/* The answer to a proposal, before other actions of the same event name its id. */
static bool look_at_answer(struct world *world, uint32_t rank, const struct change *change)
{
	uint64_t id;
	bool is_valid = change->kind != CHANGE_SET || (change->setting < RING_SETTING_COUNT && change->value >= 0.0);
	if (!ballot_propose(&world->ballot, rank, change, world->actions, &id))
		world_fail(world, "%s", world->ballot.fault);
	else if (id != 0 && !is_valid)
		world_fail(world, "an invalid change was accepted");
	return !world->over;
}

void world_step(struct world *world, uint32_t rank, struct event *event)
{
	struct citizen *member = &world->members[rank];
	event->now_us = world->now_us;
	trace_event(world->trace, rank, event);
	world->result->events++;
	fold(world, world->now_us ^ (uint64_t)event->kind << 56 ^ (uint64_t)rank << 40);

	node_step(member->node, event, world->actions);

	CHECK(world->actions->count <= ACTION_COUNT_MAX);
	if (event->kind == EVENT_CHANGE && !look_at_answer(world, rank, &event->change))
		return;
	member->deadline_us = world->actions->deadline_us;
	for (size_t i = 0; i < world->actions->count; i++) {
		trace_action(world->trace, rank, world->now_us, &world->actions->list[i]);
		carry_out(world, rank, &world->actions->list[i]);
	}
	world_arm_tick(world, rank);
	remains_keep(world, rank);
	check(world, rank);
}

/* ---- What happens ---- */

/* The worker tells all members of its replica; in a mesh they hear of it at different times, but in order. */
static void tell(struct world *world, uint32_t row, struct event *event)
{
	const uint32_t shards = world->config->shards;
	for (uint32_t rank = row * shards; rank < (row + 1) * shards; rank++) {
		struct citizen *member = &world->members[rank];
		if (shards == 1) {
			world_step(world, rank, event);
			return;
		}
		uint64_t at_us = world->now_us + (dice_chance(&world->dice, 0.3) ? dice_magnitude(&world->dice, 1, 20000) : 0);
		member->told_us = u64_max(member->told_us, at_us);
		struct event *copy = malloc(sizeof *copy);
		CHECK(copy != NULL);
		*copy = *event;
		world_push(world, HAPPENS_TOLD, rank, member->told_us, copy);
	}
}

static void work(struct world *world, uint32_t rank)
{
	const uint32_t row = rank / world->config->shards;
	struct replica *replica = &world->replicas[row];
	struct trainee *trainee = &replica->trainee;
	struct event event = {0};
	struct offer offer;
	if (replica->is_apart && world->now_us >= replica->meets_us) {
		remains_meet(world, row);
		world_arm_work(world, row, world->now_us);
		return;
	}
	trainee->whole = node_settings(world->members[rank].node)->value[SYNC_OVERLAP] == OVERLAP_NONE;
	switch (trainee_advance(trainee, world->now_us, &offer)) {
	case TRAINEE_NOTHING:
		world_arm_work(world, row, replica->is_apart ? u64_min(trainee->wake_us, replica->meets_us) : trainee->wake_us);
		return;
	case TRAINEE_OFFERS:
		event = (struct event){.kind = EVENT_OFFER, .offer = offer};
		replica->offer = offer;
		replica->is_refusing = false;
		if (!offer.gradients)
			ledger_offer(world->ledger, row, replica->layers);
		break;
	case TRAINEE_GIVES:
		event = (struct event){.kind = EVENT_GRADIENT};
		event.gradient.layer_index = (uint32_t)trainee->given;
		event.gradient.absent = trainee->is_dead;
		ledger_gradient(world->ledger, row, replica->layers, trainee->given, trainee->is_dead);
		break;
	case TRAINEE_WANTS:
		event = (struct event){.kind = EVENT_WANT, .wanted = (uint32_t)trainee->wants};
		break;
	}
	world_arm_work(world, row, world->now_us);
	if (replica->is_apart)
		return;
	if (replica->is_refusing && event.kind == EVENT_GRADIENT)
		remains_refuse(world, row, trainee->given);
	else
		tell(world, row, &event);
}

/* A payload may be sent without a copy, so the sender's memory must be as it was until the receiver has taken the frame: on the
 * first arrival of a frame it cannot have been acknowledged. */
static void check_payload(struct world *world, uint32_t rank, const struct parcel *parcel)
{
	struct citizen *member = &world->members[rank];
	const struct message *message = &parcel->message;
	const struct citizen *sender = &world->members[parcel->sender];
	uint64_t *taken = &member->taken_from_left[world_has_views(world) ? 0 : world_road(world, rank, message->from)];
	if (message->kind != MESSAGE_CHUNK || message->view != member->roster->view || message->sequence < *taken)
		return;
	if (message->incarnation != sender->incarnation || message->view != sender->roster->view)
		return; /* its memory is gone */
	*taken = message->sequence + 1;
	if (memcmp(parcel->source, message->payload, message->payload_bytes) != 0)
		world_fail(world, "peer %" PRIu32 ": payload of frame %" PRIu64 " was changed before it was acknowledged",
		     message->from, message->sequence);
}

static void arrive(struct world *world, uint32_t rank, struct parcel *parcel)
{
	struct event event = {.kind = EVENT_MESSAGE, .message = &parcel->message};
	check_payload(world, rank, parcel);
	if (!world->over)
		world_step(world, rank, &event);
}

static void tick(struct world *world, uint32_t rank)
{
	struct event event = {.kind = EVENT_TICK};
	if (world->members[rank].deadline_us <= world->now_us)
		world_step(world, rank, &event);
	else
		world_arm_tick(world, rank);
}

/* Somebody asks for the run to go on, again and again until it does. */
static void resume(struct world *world)
{
	struct event event = {.kind = EVENT_CHANGE, .change = {.kind = CHANGE_RESUME}};
	uint32_t rank = (uint32_t)dice_between(&world->dice, 0, world->count - 1);
	world->resume_pending = ballot_paused_count(&world->ballot) > 0;
	if (!world->resume_pending)
		return;
	world_push(world, HAPPENS_RESUME, 0, world->now_us + dice_magnitude(&world->dice, 1000, 2 * SECOND), NULL);
	if (!world->members[rank].crashed)
		world_step(world, rank, &event);
}

static void happen(struct world *world, const struct heap_entry *entry)
{
	struct citizen *member = &world->members[entry->rank];
	struct event event;
	switch ((enum happening)entry->kind) {
	case HAPPENS_TICK:
		if (heap_keeps(entry, &member->tick_us))
			tick(world, entry->rank);
		return;
	case HAPPENS_WORK:
		if (heap_keeps(entry, &world_replica(world, entry->rank)->work_us))
			work(world, entry->rank);
		return;
	case HAPPENS_TOLD: world_step(world, entry->rank, entry->data); return;
	case HAPPENS_ARRIVAL: arrive(world, entry->rank, entry->data); return;
	case HAPPENS_HASHED:
		event = (struct event){.kind = EVENT_HASHED, .hashed = {.layer_index = entry->item, .hash = entry->number}};
		world_step(world, entry->rank, &event);
		return;
	case HAPPENS_CHANGE:
		event = (struct event){.kind = EVENT_CHANGE, .change = setup_change(world->config, &world->dice)};
		world_step(world, entry->rank, &event);
		return;
	case HAPPENS_RESUME: resume(world); return;
	case HAPPENS_CRASH: mishap_crash(world, entry); return;
	case HAPPENS_RESTART: mishap_restart(world, entry->rank); return;
	case HAPPENS_CUT: mishap_cut(world, entry); return;
	case HAPPENS_LOOK: mishap_look(world); return;
	case HAPPENS_FALL: oracle_fall(world, entry); return;
	case HAPPENS_RISE: oracle_rise(world, entry); return;
	case HAPPENS_DECIDE: oracle_decide(world); return;
	case HAPPENS_SEAT: oracle_seat(world, entry); return;
	}
}

/* ---- Begin and end ---- */

static void init(struct world *world)
{
	const struct world_config *config = world->config;
	world->dice.state = config->seed;
	setup_init(&world->setup, config, &world->dice);
	world->count = config->peers * config->shards + oracle_joiners(world);
	world->members = memory_take(world->count, sizeof *world->members);
	world->replicas = memory_take(world->count / config->shards, sizeof *world->replicas);
	world->names = memory_take(world->count, sizeof *world->names);
	world->ring_names = memory_take(world->count, sizeof *world->ring_names);
	world->row_names = memory_take(world->count, sizeof *world->row_names);
	world->actions = memory_take(1, sizeof *world->actions);
	for (uint32_t rank = 0; rank < world->count; rank++) {
		uint32_t row = rank / config->shards, column = rank % config->shards;
		snprintf(world->names[rank], sizeof world->names[rank], "peer-%" PRIu32, rank);
		if (row < config->peers)
			world->ring_names[column * config->peers + row] = world->names[rank];
		world->row_names[rank] = world->names[rank];
	}
	world->facts[0] = (struct fact){"run", "simulated"};
	world->facts[1] = (struct fact){"dtype", "float32"};
	world->facts[2] = (struct fact){"empty", ""};
	for (uint32_t rank = 0; rank < world->count; rank++)
		world_start(world, rank, dice_between(&world->dice, 0, 2 * SECOND));
	world->ledger = ledger_new(world->count / config->shards, world->replicas[0].layers, config->layer_count,
				   world_has_views(world) ? 16 * config->rounds + 16 : 2 * config->rounds + 2,
				   &world->setup.settings);
	ballot_init(&world->ballot, world->count);
	world->ballot.is_loose = world_has_views(world);
	mishap_plan(world);
	oracle_plan(world);
	world_cover(world, COVER_ALONE, world->count == 1);
	world_cover(world, COVER_MESHES, config->shards > 1);
	world_cover(world, COVER_GROUPS, config->fanout < config->peers);
	for (size_t l = 0; l < config->layer_count; l++)
		world_cover(world, COVER_EMPTY, world->setup.sizes[l] == 0);
}

static void count(struct world *world)
{
	struct ledger_counts counts = ledger_counts(world->ledger);
	world_cover(world, COVER_COMMITS, counts.commits);
	world_cover(world, COVER_OUTLIERS, counts.outliers);
	world_cover(world, COVER_NONFINITES, counts.nonfinites);
	world_cover(world, COVER_ROLLBACKS, counts.rollbacks);
	world_cover(world, COVER_HEALS, counts.heals);
	world_cover(world, COVER_REDONE, counts.redone);
	world_cover(world, COVER_COUNTED_AGAIN, counts.again);
	world_cover(world, COVER_LATES, counts.lates);
	world_cover(world, COVER_ABSENTS, counts.absents);
	world_cover(world, COVER_GRADIENTS, counts.gradients);
	world_cover(world, COVER_ALIGNED, counts.aligned);
	for (size_t c = 0; c < world->ballot.change_count; c++) {
		bool is_resume = world->ballot.changes[c].kind == CHANGE_RESUME;
		world_cover(world, COVER_TAKEN, world->ballot.changes[c].any_taken && !is_resume);
		world_cover(world, COVER_DROPPED, world->ballot.changes[c].any_dropped);
	}
	world_cover(world, COVER_REFUSED, world->ballot.refused);
	world_cover(world, COVER_PAUSES, world->ballot.pauses);
	world_cover(world, COVER_CHECKPOINTS, world->ballot.checkpoints);
	for (uint32_t rank = 0; rank < world->count; rank++) {
		struct node_status status;
		node_status(world->members[rank].node, world->now_us, &status);
		world_cover(world, COVER_SENT_AGAIN, status.frames_sent_again);
	}
	for (uint32_t row = 0; row < world->count / world->config->shards; row++)
		world_cover(world, COVER_DEATHS, world->replicas[row].trainee.deaths);
	world->result->time_us = world->now_us;
	fold(world, ledger_hash(world->ledger));
	fold(world, world->result->events);
}

static void fini(struct world *world)
{
	struct heap_entry entry;
	while (heap_pop(&world->heap, &entry))
		free(entry.data);
	heap_fini(&world->heap);
	ledger_free(world->ledger);
	ballot_fini(&world->ballot);
	for (uint32_t rank = 0; rank < world->count; rank++)
		citizen_fini(&world->members[rank]);
	for (uint32_t row = 0; row < world->count / world->config->shards; row++)
		replica_fini(&world->replicas[row]);
	setup_fini(&world->setup, world->config->layer_count);
	oracle_fini(world);
	free(world->members);
	free(world->names);
	free(world->replicas);
	free(world->ring_names);
	free(world->row_names);
	free(world->actions);
}

static bool all_finished(const struct world *world)
{
	for (uint32_t rank = 0; rank < world->count; rank++)
		if (!world->members[rank].finished && !(world_has_views(world) && world->members[rank].crashed))
			return false;
	return true;
}

/* Moves time on; false: the world is over. */
static bool advance(struct world *world, const struct heap_entry *entry)
{
	world->still = entry->time_us == world->now_us ? world->still + 1 : 0;
	world->now_us = entry->time_us;
	if (world->finished_us == 0 && all_finished(world))
		world->finished_us = world->now_us;
	if (world->finished_us != 0 && world->now_us > world->finished_us + DRAIN_US)
		return false;
	if (world->still > 20000 + 2000 * (uint64_t)world->count)
		world_fail(world, "time stands still: %" PRIu64 " events at once", world->still);
	if (world->now_us > world->setup.limit_us)
		world_fail(world, "not finished after %" PRIu64 " s", world->now_us / SECOND);
	return !world->over;
}

/* Whether what was going to happen still can: not to the dead, and a hash not to whoever has come back since. */
static bool is_alive(const struct world *world, const struct heap_entry *entry)
{
	const struct citizen *member = &world->members[entry->rank];
	if (entry->kind == HAPPENS_HASHED && entry->life != member->life)
		return false;
	/* A worker cannot go on without a piece of its model. */
	if (entry->kind == HAPPENS_WORK)
		for (uint32_t i = 0; i < world->config->shards; i++)
			if (world->members[entry->rank + i].crashed)
				return world_replica(world, entry->rank)->remains == REMAINS_WORKER;
	return !member->crashed || entry->kind == HAPPENS_LOOK || entry->kind == HAPPENS_RESUME ||
	       entry->kind == HAPPENS_RESTART || entry->kind == HAPPENS_CUT || entry->kind >= HAPPENS_FALL;
}

void world_run(const struct world_config *config, struct trace *trace, struct world_result *ret_result)
{
	struct world world = {.config = config, .trace = trace, .result = ret_result};
	struct heap_entry entry;
	*ret_result = (struct world_result){.ok = true};
	init(&world);
	while (!world.over) {
		if (!heap_pop(&world.heap, &entry)) {
			if (!all_finished(&world))
				world_fail(&world, "nothing is going to happen any more");
			break;
		}
		if (!advance(&world, &entry)) {
			free(entry.data);
			break;
		}
		if (is_alive(&world, &entry))
			happen(&world, &entry);
		free(entry.data);
	}
	bool is_whole = ret_result->ok && world.crashed_rank == world.count && !world_has_views(&world);
	if (is_whole && !ballot_end(&world.ballot)) {
		world.over = false;
		world_fail(&world, "%s", world.ballot.fault);
	}
	count(&world);
	fini(&world);
}

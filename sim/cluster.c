/* The loop: takes the next thing off the heap, feeds it to a node or a worker, carries out what the node asks for.
 * Everything that knows the core's events and actions is here; what they mean for the worker is in learner.c. */

#include "sim/cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/heap.h"
#include "sim/machine.h"
#include "sim/memory.h"
#include "sim/share.h"

enum happening { HAPPENS_TICK, HAPPENS_ARRIVAL, HAPPENS_WORK, HAPPENS_HASHED };

enum { STILL_MAX = 20000000 /* events without a step or a layer: nothing moves any more */ };

/* When a round began to move. */
struct turn {
	uint32_t offers;
	uint64_t last_offer_us, first_chunk_us;
};

struct cluster {
	const struct scenario *scenario;
	struct tuition *tuition;
	struct report *report;
	struct heap heap;
	uint64_t now_us;
	struct machine *machines; /* [host_count] */
	const char **names;       /* [host_count] */
	size_t layer_count;
	struct actions *actions;
	struct turn *turns;       /* [turn_count] by round */
	size_t turn_count;
	uint64_t tokens, tokens_measured, measured_us; /* so far; at the last measurement */
	uint64_t still;           /* events since something moved */
	uint32_t finished_count;
	bool is_over;             /* the budget is used up */
	struct line *why;
	bool failed;
};

static const struct fact FACT = {"run", "scenario"};

static void fail(struct cluster *cluster, const char *text, uint64_t round)
{
	if (!cluster->failed)
		line_fail(cluster->why, EDIT_ERROR_SYSTEM, "%s (round %" PRIu64 ", %.6f s)", text, round,
			  1e-6 * (double)cluster->now_us);
	cluster->failed = true;
}

/* ---- Appointments ---- */

static void arm_work(struct cluster *cluster, uint32_t rank, uint64_t time_us)
{
	heap_arm(&cluster->heap, &cluster->machines[rank].work_us, cluster->now_us,
		 (struct heap_entry){.time_us = time_us, .kind = HAPPENS_WORK, .rank = rank});
}

static void arm_tick(struct cluster *cluster, uint32_t rank)
{
	struct machine *machine = &cluster->machines[rank];
	heap_arm(&cluster->heap, &machine->tick_us, cluster->now_us,
		 (struct heap_entry){.time_us = machine->deadline_us, .kind = HAPPENS_TICK, .rank = rank});
}

static struct turn *turn_of(struct cluster *cluster, uint64_t round)
{
	if (round >= cluster->turn_count) {
		size_t count = size_max(256, 2 * round);
		cluster->turns = realloc(cluster->turns, count * sizeof *cluster->turns);
		CHECK(cluster->turns != NULL);
		memset(&cluster->turns[cluster->turn_count], 0, (count - cluster->turn_count) * sizeof *cluster->turns);
		cluster->turn_count = count;
	}
	return &cluster->turns[round];
}

/* ---- Actions ---- */

/* The message itself is copied; what it points to stays in place: a payload until it is acknowledged, which is after its
 * arrival, names and facts for ever. */
static void send_message(struct cluster *cluster, uint32_t rank, const struct action *action)
{
	const struct scenario *scenario = cluster->scenario;
	struct machine *machine = &cluster->machines[rank];
	const struct places places = scenario_places(scenario);
	const enum road_end end = places_road(&places, rank, action->to);
	CHECK(end < ROAD_COUNT);
	size_t payload = action->message.payload_bytes, scale = (size_t)scenario->value[MODEL_SCALE];
	size_t header = (parcel_size(&action->message) - payload + scale - 1) / scale;
	struct message *copy = malloc(sizeof *copy);
	CHECK(copy != NULL);
	*copy = action->message;
	if (copy->kind == MESSAGE_CHUNK) {
		struct turn *turn = turn_of(cluster, copy->chunk.round);
		turn->first_chunk_us = turn->first_chunk_us ? turn->first_chunk_us : cluster->now_us;
	}
	machine->bytes += (payload + header) * scale;
	uint64_t arrival_us = machine_send(machine, &cluster->machines[action->to], end, payload + header,
					   cluster->now_us);
	heap_push(&cluster->heap,
		  (struct heap_entry){.time_us = arrival_us, .kind = HAPPENS_ARRIVAL, .rank = action->to, .data = copy});
}

/* The stretch of steps up to begin_us, and the wait behind it. */
static void draw_wait(struct cluster *cluster, uint32_t rank, uint64_t begin_us, uint64_t moved_us)
{
	struct machine *machine = &cluster->machines[rank];
	uint64_t middle_us = u64_min(u64_max(begin_us, moved_us), cluster->now_us);
	report_stretch(cluster->report, rank, STRETCH_COMPUTE, machine->compute_since_us, begin_us);
	report_stretch(cluster->report, rank, STRETCH_WAITING, begin_us, middle_us);
	report_stretch(cluster->report, rank, STRETCH_EXPOSED, middle_us, cluster->now_us);
	machine->compute_since_us = cluster->now_us;
}

static void commit_layer(struct cluster *cluster, uint32_t rank, const struct action *action)
{
	struct machine *machine = &cluster->machines[rank];
	machine->verdicts[node_record(machine->node, action->layer_index, rank)->verdict]++;
	cluster->still = 0;
	heap_push(&cluster->heap, (struct heap_entry){.time_us = cluster->now_us, .kind = HAPPENS_HASHED, .rank = rank,
						      .number = share_state_hash(&machine->layers[action->layer_index]),
						      .item = action->layer_index});
}

static void publish_layer(struct cluster *cluster, uint32_t rank, const struct action *action)
{
	struct machine *machine = &cluster->machines[rank];
	const struct turn *turn = turn_of(cluster, action->round);
	bool have_all_offered = turn->offers >= cluster->scenario->host_count;
	uint64_t moved_us = have_all_offered ? turn->last_offer_us : turn->first_chunk_us;
	uint64_t waited_us = learner_publish(&machine->learner, action->layer_index, action->verdict, moved_us,
					     cluster->now_us);
	if (waited_us > 0)
		draw_wait(cluster, rank, cluster->now_us - waited_us, moved_us);
	cluster->still = 0;
	arm_work(cluster, rank, cluster->now_us);
}

/* Whether the held-out loss is to be measured after this round. */
static bool is_loss_due(const struct cluster *cluster)
{
	const double *value = cluster->scenario->value;
	double tokens = value[RUN_EVAL_TOKENS], seconds = value[RUN_EVAL_SECONDS];
	if (cluster->is_over || (tokens == 0 && seconds == 0))
		return true;
	return (tokens > 0 && (double)(cluster->tokens - cluster->tokens_measured) >= tokens) ||
	       (seconds > 0 && 1e-6 * (double)(cluster->now_us - cluster->measured_us) >= seconds);
}

static void measure_loss(struct cluster *cluster, uint64_t round)
{
	cluster->tokens_measured = cluster->tokens;
	cluster->measured_us = cluster->now_us;
	report_loss(cluster->report, cluster->now_us, cluster->tokens, round, cluster->machines[0].layers);
}

/* How long the round that a node has just completed took from the last offer on, as far as the node knows. */
static uint64_t transfer_us(const struct cluster *cluster, uint32_t rank)
{
	const struct node *node = cluster->machines[rank].node;
	struct node_status status;
	struct node_peer own, peer;
	uint64_t last_us = 0;
	node_status(node, cluster->now_us, &status);
	node_peer(node, rank, cluster->now_us, &own);
	for (uint32_t other = 0; other < cluster->scenario->host_count; other++) {
		node_peer(node, other, cluster->now_us, &peer);
		last_us = u64_max(last_us, peer.lateness_us);
	}
	return status.sync_us - u64_min(status.sync_us, last_us - own.lateness_us);
}

/* What a machine has done since it was told last. */
static void end_round(struct cluster *cluster, uint32_t rank, uint64_t round)
{
	struct machine *machine = &cluster->machines[rank];
	const struct learner_times *times = &machine->learner.times;
	struct lap now = {.time_us = cluster->now_us, .name = machine->told.name, .round = round, .steps = machine->steps,
			    .compute_us = times->compute_us, .exposed_us = times->exposed_us, .waiting_us = times->waiting_us,
			    .bytes = machine->bytes, .loss = node_record(machine->node, 0, rank)->loss};
	memcpy(now.verdicts, machine->verdicts, sizeof now.verdicts);
	struct lap since = now;
	since.steps -= machine->told.steps;
	since.compute_us -= machine->told.compute_us;
	since.exposed_us -= machine->told.exposed_us;
	since.waiting_us -= machine->told.waiting_us;
	since.bytes -= machine->told.bytes;
	for (int v = 0; v < VERDICT_COUNT; v++)
		since.verdicts[v] -= machine->told.verdicts[v];
	machine->told = now;
	since.transfer_us = transfer_us(cluster, rank);
	report_round(cluster->report, rank, &since);
	if (rank == 0 && is_loss_due(cluster))
		measure_loss(cluster, round);
}

static void read_note(struct cluster *cluster, uint32_t rank, const struct note *note)
{
	if (note->code == NOTE_ROUND_DONE)
		end_round(cluster, rank, note->round);
	if (note->code == NOTE_HASH_DIFFERS)
		fail(cluster, "the states of two nodes differ", note->round);
	if (note->code == NOTE_FINISHED && !cluster->machines[rank].finished) {
		cluster->machines[rank].finished = true;
		cluster->finished_count++;
	}
}

static void carry_out(struct cluster *cluster, uint32_t rank, const struct action *action)
{
	switch (action->kind) {
	case ACTION_SEND: send_message(cluster, rank, action); break;
	case ACTION_COMMITTED: commit_layer(cluster, rank, action); break;
	case ACTION_PUBLISH: publish_layer(cluster, rank, action); break;
	case ACTION_SCHEDULE:
		learner_schedule(&cluster->machines[rank].learner, action->number, action->gradients);
		arm_work(cluster, rank, cluster->now_us);
		break;
	case ACTION_NOTE: read_note(cluster, rank, &action->note); break;
	case ACTION_HASH:
	case ACTION_HEALED: /* the members never change here */
	case ACTION_STEP:
	case ACTION_PAUSE:
	case ACTION_RESUME:
	case ACTION_COLLECTED:
	case ACTION_SUMMED:
	case ACTION_CHECKPOINT: break; /* nobody proposes a change here */
	}
}

/* ---- Events ---- */

static void step_node(struct cluster *cluster, uint32_t rank, struct event *event)
{
	struct machine *machine = &cluster->machines[rank];
	event->now_us = cluster->now_us;
	node_step(machine->node, event, cluster->actions);
	machine->deadline_us = cluster->actions->deadline_us;
	for (size_t i = 0; i < cluster->actions->count; i++)
		carry_out(cluster, rank, &cluster->actions->list[i]);
	arm_tick(cluster, rank);
}

static void end_budget(struct cluster *cluster)
{
	cluster->is_over = true;
	for (uint32_t rank = 0; rank < cluster->scenario->host_count; rank++)
		cluster->machines[rank].learner.is_last = true;
}

static void count_step(struct cluster *cluster, uint32_t rank)
{
	const double *value = cluster->scenario->value;
	cluster->machines[rank].steps++;
	cluster->tokens += learner_tokens(&cluster->machines[rank].learner);
	cluster->still = 0;
	bool by_tokens = value[RUN_TOKENS] > 0 && (double)cluster->tokens >= value[RUN_TOKENS];
	bool by_time = value[RUN_SECONDS] > 0 && 1e-6 * (double)cluster->now_us >= value[RUN_SECONDS];
	if (!cluster->is_over && (by_tokens || by_time))
		end_budget(cluster);
}

static void count_offer(struct cluster *cluster, uint32_t rank)
{
	struct node_status status;
	node_status(cluster->machines[rank].node, cluster->now_us, &status);
	/* An offer behind which a round is still on its way is for the one after it. */
	struct machine *machine = &cluster->machines[rank];
	machine->offered_round = u64_max(status.round, machine->offered_round) + 1;
	struct turn *turn = turn_of(cluster, machine->offered_round);
	turn->offers++;
	turn->last_offer_us = cluster->now_us;
}

static void work(struct cluster *cluster, uint32_t rank)
{
	struct machine *machine = &cluster->machines[rank];
	struct learner *learner = &machine->learner;
	struct event event = {0};
	struct offer offer;
	learner->whole = node_settings(machine->node)->value[SYNC_OVERLAP] == OVERLAP_NONE;
	enum learner_deed deed = learner_advance(learner, cluster->now_us, &offer);
	arm_work(cluster, rank, deed == LEARNER_NOTHING ? learner->wake_us : cluster->now_us);
	switch (deed) {
	case LEARNER_NOTHING: return;
	case LEARNER_STEPS: count_step(cluster, rank); return;
	case LEARNER_OFFERS:
		count_offer(cluster, rank);
		event = (struct event){.kind = EVENT_OFFER, .offer = offer};
		break;
	case LEARNER_GIVES:
		turn_of(cluster, machine->offered_round)->last_offer_us = cluster->now_us;
		event = (struct event){.kind = EVENT_GRADIENT, .gradient.layer_index = (uint32_t)learner->given};
		break;
	case LEARNER_WANTS: event = (struct event){.kind = EVENT_WANT, .wanted = (uint32_t)learner->wants}; break;
	}
	step_node(cluster, rank, &event);
}

static void happen(struct cluster *cluster, const struct heap_entry *entry)
{
	struct machine *machine = &cluster->machines[entry->rank];
	struct event event = {.kind = EVENT_TICK};
	switch ((enum happening)entry->kind) {
	case HAPPENS_TICK:
		if (!heap_keeps(entry, &machine->tick_us))
			return;
		if (machine->deadline_us > cluster->now_us)
			arm_tick(cluster, entry->rank);
		else
			step_node(cluster, entry->rank, &event);
		return;
	case HAPPENS_WORK:
		if (heap_keeps(entry, &machine->work_us))
			work(cluster, entry->rank);
		return;
	case HAPPENS_ARRIVAL: event = (struct event){.kind = EVENT_MESSAGE, .message = entry->data}; break;
	case HAPPENS_HASHED:
		event = (struct event){.kind = EVENT_HASHED, .hashed = {.layer_index = entry->item, .hash = entry->number}};
		break;
	}
	step_node(cluster, entry->rank, &event);
}

/* ---- Begin and end ---- */

static void init(struct cluster *cluster)
{
	uint32_t count = cluster->scenario->host_count;
	cluster->layer_count = machine_layer_count(cluster->scenario, cluster->tuition);
	cluster->machines = memory_take(count, sizeof *cluster->machines);
	cluster->names = memory_take(count, sizeof *cluster->names);
	cluster->actions = memory_take(1, sizeof *cluster->actions);
	for (uint32_t rank = 0; rank < count; rank++)
		cluster->names[rank] = cluster->scenario->hosts[rank].name;
	for (uint32_t rank = 0; rank < count; rank++) {
		machine_init(&cluster->machines[rank], cluster->scenario, rank, cluster->tuition, cluster->names, &FACT);
		arm_tick(cluster, rank);
		arm_work(cluster, rank, 0);
	}
}

static void fini(struct cluster *cluster)
{
	struct heap_entry entry;
	while (heap_pop(&cluster->heap, &entry))
		free(entry.data);
	heap_fini(&cluster->heap);
	for (uint32_t rank = 0; rank < cluster->scenario->host_count; rank++)
		machine_fini(&cluster->machines[rank]);
	free(cluster->machines);
	free(cluster->names);
	free(cluster->actions);
	free(cluster->turns);
}

static double used_part(const struct cluster *cluster)
{
	const double *value = cluster->scenario->value;
	double by_tokens = value[RUN_TOKENS] > 0 ? (double)cluster->tokens / value[RUN_TOKENS] : 0;
	double by_time = value[RUN_SECONDS] > 0 ? 1e-6 * (double)cluster->now_us / value[RUN_SECONDS] : 0;
	double part = by_tokens > by_time ? by_tokens : by_time;
	return part < 1 ? part : 1;
}

static void end(struct cluster *cluster)
{
	struct totals totals = {
			.time_us = cluster->now_us, .tokens = cluster->tokens, .rounds = cluster->machines[0].told.round};
	for (uint32_t rank = 0; rank < cluster->scenario->host_count; rank++) {
		const struct machine *machine = &cluster->machines[rank];
		totals.compute_us += machine->learner.times.compute_us;
		totals.exposed_us += machine->learner.times.exposed_us;
		totals.waiting_us += machine->learner.times.waiting_us;
		totals.bytes += machine->bytes;
		for (int v = 0; v < VERDICT_COUNT; v++)
			totals.left_out += v == VERDICT_ACCEPTED ? 0 : machine->verdicts[v];
		report_stretch(cluster->report, rank, STRETCH_COMPUTE, machine->compute_since_us, cluster->now_us);
	}
	cluster->failed = report_model(cluster->report, cluster->machines[0].layers, cluster->why) != 0;
	if (!cluster->failed)
		report_end(cluster->report, &totals);
}

bool cluster_run(const struct scenario *scenario, struct tuition *tuition, struct report *report, cluster_watch *watch,
		 void *arg, struct line *why)
{
	struct cluster cluster = {.scenario = scenario, .tuition = tuition, .report = report, .why = why};
	struct heap_entry entry;
	init(&cluster);
	measure_loss(&cluster, 0);
	while (!cluster.failed && cluster.finished_count < scenario->host_count && heap_pop(&cluster.heap, &entry)) {
		cluster.now_us = entry.time_us;
		if (entry.kind == HAPPENS_WORK)
			watch(arg, used_part(&cluster));
		happen(&cluster, &entry);
		free(entry.data);
		if (++cluster.still > STILL_MAX)
			fail(&cluster, "nothing moves any more", cluster.machines[0].told.round);
	}
	if (!cluster.failed)
		end(&cluster);
	fini(&cluster);
	return !cluster.failed;
}

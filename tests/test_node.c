/* Whole rings of nodes over a perfect wire: the reference's numbers, agreement, hello, stalls. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lab.h"
#include "tests/reference_edit.h"

/* ---- The reference ---- */

/* 1e-4, and 1e-6 of z above 100: with anchor and theta held in float32, exact arithmetic on them already moves the largest z of
 * the reference, 244.8, by 1.2e-4, because the norms behind its standard deviation are known to 6e-8 only. */
static double z_tolerance(double z)
{
	return fmax(1e-4, 1e-6 * fabs(z));
}

static void assert_layer_matches(struct lab *lab, const struct reference_case *history, size_t round_index, size_t l)
{
	const struct reference_layer *expected = reference_layer_at(history, round_index, l);
	size_t size = history->sizes[l];
	for (size_t n = 0; n < lab->count; n++) {
		const struct lab_member *member = &lab->members[n];
		/* all members agree to the bit, and every theta is the anchor */
		assert_memory_equal(member->layers[l].anchor, lab->members[0].layers[l].anchor, size * sizeof(float));
		assert_memory_equal(member->layers[l].momentum, lab->members[0].layers[l].momentum, size * sizeof(float));
		assert_memory_equal(member->layers[l].theta, member->layers[l].anchor, size * sizeof(float));
		for (uint32_t peer = 0; peer < lab->count; peer++) {
			const struct record *record = node_record(member->node, l, peer);
			assert_int_equal(record->round, round_index + 1);
			assert_int_equal(record->verdict, expected->verdict[peer]);
			assert_true(fabs(node_weight(member->node, l, peer) - expected->weight[peer]) < 1e-5);
			if (isfinite(expected->norm[peer])) {
				assert_true(fabs(record->norm - expected->norm[peer]) <= 1e-6 * expected->norm[peer] + 1e-12);
				assert_true(fabs(record->z - expected->z[peer]) < z_tolerance(expected->z[peer]));
			}
			uint64_t round;
			assert_int_equal(node_hash(member->node, l, peer, 0, &round),
					 node_hash(lab->members[0].node, l, 0, 0, &round));
			assert_int_equal(round, round_index + 1);
		}
		const struct detector *detector = node_detector(member->node, l);
		assert_int_equal(detector->count, expected->detector[n].count);
		assert_int_equal(detector->streak, expected->detector[n].streak);
	}
	assert_true(reference_error(lab->members[0].layers[l].anchor, expected->anchor, size, 1e-3) <= 2e-6);
	assert_true(reference_error(lab->members[0].layers[l].momentum, expected->momentum, size, 1e-3) <= 2e-6);
}

static void run_case(const struct reference_case *history)
{
	struct ring_settings settings = history->settings;
	settings.value[WIRE_CHUNK] = 64;
	struct lab *lab = lab_new(history->peers, history->sizes, history->layer_count, &settings, NULL, 0);
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < history->layer_count; l++)
			reference_floats(lab->members[n].layers[l].anchor, history->anchor0[l], history->sizes[l]);
	lab_gather(lab);
	for (size_t r = 0; r < history->round_count; r++) {
		for (size_t n = 0; n < lab->count; n++)
			for (size_t l = 0; l < history->layer_count; l++)
				reference_floats(lab->members[n].layers[l].theta, reference_layer_at(history, r, l)->theta[n],
						 history->sizes[l]);
		for (size_t n = 0; n < lab->count; n++)
			lab_offer(lab, n, false);
		lab_pass(lab, 10000);
		for (size_t l = 0; l < history->layer_count; l++)
			assert_layer_matches(lab, history, r, l);
	}
	lab_free(lab);
}

static void node_reproduces_every_number_of_the_reference(void **state)
{
	(void)state;
	struct reference_edit *reference = reference_edit_load(REFERENCE_EDIT_PATH);
	assert_true(reference->case_count > 10);
	for (size_t i = 0; i < reference->case_count; i++)
		run_case(&reference->cases[i]);
	reference_edit_free(reference);
}

/* ---- Rings of all sizes ---- */

static void move_theta(struct lab *lab, unsigned *random)
{
	for (size_t n = 0; n < lab->count; n++)
		for (size_t l = 0; l < lab->layer_count; l++)
			for (size_t k = 0; k < lab->members[n].layers[l].size; k++) {
				*random = *random * 1664525u + 1013904223u;
				lab->members[n].layers[l].theta[k] += (float)(int)*random * 1e-10f;
			}
}

static void offer_all(struct lab *lab, bool is_final)
{
	for (size_t n = 0; n < lab->count; n++)
		if (!lab->members[n].dead)
			lab_offer(lab, n, is_final);
	lab_pass(lab, 20000);
}

static void rings_of_1_to_64_members_keep_equal_anchors(void **state)
{
	(void)state;
	const size_t sizes[] = {31, 0, 1, 1009, 64};
	struct ring_settings settings = ring_settings_standard();
	settings.value[WIRE_CHUNK] = 128;
	settings.value[WIRE_WINDOW] = 1024;
	unsigned random = 1;
	for (size_t count = 1; count <= 64; count += count < 9 ? 1 : 11) {
		struct lab *lab = lab_new(count, sizes, 5, &settings, NULL, 0);
		lab_gather(lab);
		for (uint64_t r = 1; r <= 3; r++) {
			move_theta(lab, &random);
			offer_all(lab, false);
			for (size_t n = 0; n < count; n++) {
				assert_int_equal(lab->members[n].published, 5);
				for (size_t l = 0; l < 5; l++) {
					assert_int_equal(node_layer_round(lab->members[n].node, l), r);
					assert_memory_equal(lab->members[n].layers[l].anchor,
							    lab->members[0].layers[l].anchor, sizes[l] * sizeof(float));
				}
				assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), 0);
			}
		}
		lab_free(lab);
	}
}

static void node_alone_takes_outer_steps_from_its_own_pseudo_gradient(void **state)
{
	(void)state;
	const size_t size = 3;
	struct lab *lab = lab_new(1, &size, 1, NULL, NULL, 0);
	struct layer *layer = &lab->members[0].layers[0];
	lab_gather(lab);
	float anchor = 1.0f, momentum = 0.0f;
	for (size_t k = 0; k < size; k++)
		layer->anchor[k] = layer->theta[k] = anchor;
	for (int r = 0; r < 3; r++) {
		for (size_t k = 0; k < size; k++)
			layer->theta[k] = layer->anchor[k] - 0.5f; /* pseudo-gradient 0.5 */
		lab_offer(lab, 0, false);
		momentum = 0.85f * momentum + 0.5f;
		anchor -= 0.8f * (0.5f + 0.85f * momentum);
		assert_true(fabsf(layer->anchor[0] - anchor) < 1e-6f);
		assert_true(layer->theta[2] == layer->anchor[2]);
	}
	lab_free(lab);
}

/* ---- Agreement ---- */

static struct event set_event(enum ring_setting setting, double value, uint64_t at_round)
{
	return (struct event){.kind = EVENT_CHANGE,
			      .change = {.kind = CHANGE_SET, .setting = setting, .value = value, .at_round = at_round}};
}

static void change_is_taken_by_all_after_the_same_round(void **state)
{
	(void)state;
	const size_t size = 50;
	struct lab *lab = lab_new(5, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	lab_event(lab, 3, set_event(SYNC_INTERVAL, 20, 0));
	assert_int_equal(lab_notes(lab, 3, NOTE_CHANGE_HELD), 1);
	offer_all(lab, false);
	for (size_t n = 0; n < 5; n++) {
		assert_int_equal(lab->members[n].schedule, 20);
		assert_int_equal(node_setting_round(lab->members[n].node, SYNC_INTERVAL), 1);
		assert_true(node_settings(lab->members[n].node)->value[SYNC_INTERVAL] == 20);
	}
	lab_free(lab);
}

static void method_sets_all_that_it_presets_after_one_round(void **state)
{
	(void)state;
	const size_t size = 50;
	struct lab *lab = lab_new(3, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	lab_event(lab, 2, set_event(METHOD, METHOD_LOCAL_SGD, 0));
	lab_event(lab, 2, set_event(PENALTY_CLIP, 5, 0)); /* later in the same round: wins */
	offer_all(lab, false);
	for (size_t n = 0; n < 3; n++)
		for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++) {
			double preset, value = node_settings(lab->members[n].node)->value[i];
			if (i == PENALTY_CLIP)
				assert_true(value == 5);
			else if (i == METHOD)
				assert_true(value == METHOD_LOCAL_SGD);
			else if (method_presets(METHOD_LOCAL_SGD, i, &preset))
				assert_true(value == preset);
			else
				assert_true(value == ring_settings_standard().value[i]);
		}
	lab_free(lab);
}

static void rounds_by_time_begin_when_the_period_has_passed(void **state)
{
	(void)state;
	const size_t size = 9;
	struct ring_settings settings = ring_settings_standard();
	settings.value[SYNC_PERIOD] = 2;
	settings.value[SYNC_MIN_STEPS] = 3;
	struct lab *lab = lab_new(3, &size, 1, &settings, NULL, 0);
	lab_gather(lab);
	for (int round = 0; round < 3; round++) {
		for (size_t n = 0; n < 3; n++)
			assert_true(lab->members[n].schedule == SCHEDULE_LATER);
		lab_pass(lab, 900000);
		for (size_t n = 0; n < 3; n++)
			assert_true(lab->members[n].schedule == SCHEDULE_LATER);
		lab_pass(lab, 1200000);
		for (size_t n = 0; n < 3; n++)
			assert_int_equal(lab->members[n].schedule, 3);
		uint64_t told = lab->members[0].scheduled_count;
		lab_pass(lab, 3000000); /* steps are long: said once */
		assert_int_equal(lab->members[0].scheduled_count, told);
		if (round == 2)
			lab_event(lab, 1, set_event(SYNC_PERIOD, 0, 0));
		offer_all(lab, false);
	}
	for (size_t n = 0; n < 3; n++)
		assert_int_equal(lab->members[n].schedule, 128);
	lab_pass(lab, 5000000);
	assert_int_equal(lab->members[0].schedule, 128);
	lab_event(lab, 1, set_event(METHOD, METHOD_A_EDIT, 0));
	offer_all(lab, false);
	assert_true(lab->members[2].schedule == SCHEDULE_LATER);
	lab_pass(lab, 600 * 1000000);
	assert_int_equal(lab->members[2].schedule, 3);
	offer_all(lab, true);
	lab_pass(lab, 1300 * 1000000);
	assert_int_equal(lab->members[2].schedule, 0); /* the run is over: nothing is due any more */
	lab_free(lab);
}

/* One that waited in a member alone could be lost with a neighbour's restart, and would then hold up all others for ever. */
static void change_is_refused_until_the_ring_is_complete(void **state)
{
	(void)state;
	const size_t size = 5;
	struct lab *lab = lab_new(3, &size, 1, NULL, NULL, 0);
	lab_event(lab, 1, set_event(SYNC_INTERVAL, 20, 0));
	assert_int_equal(lab_note(lab, 1, NOTE_CHANGE_REFUSED)->detail, EDIT_ERROR_UNHEALTHY);
	lab_gather(lab);
	lab_event(lab, 1, set_event(SYNC_INTERVAL, 30, 0));
	offer_all(lab, false);
	for (size_t n = 0; n < 3; n++)
		assert_int_equal(lab->members[n].schedule, 30);
	lab_free(lab);
}

static void change_bound_to_a_round_is_taken_after_exactly_it(void **state)
{
	(void)state;
	const size_t size = 5;
	struct lab *lab = lab_new(3, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	lab_event(lab, 1, set_event(OUTER_LR, 0.5, 3));
	for (uint64_t r = 1; r <= 3; r++) {
		for (size_t n = 0; n < 3; n++)
			assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == 0.8);
		offer_all(lab, false);
	}
	for (size_t n = 0; n < 3; n++)
		assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == 0.5);
	lab_event(lab, 1, set_event(OUTER_LR, 0.6, 3)); /* has passed */
	assert_int_equal(lab_note(lab, 1, NOTE_CHANGE_REFUSED)->detail, EDIT_ERROR_REFUSED);
	lab_event(lab, 1, set_event(OUTER_LR, -1, 0));
	assert_int_equal(lab_note(lab, 1, NOTE_CHANGE_REFUSED)->detail, EDIT_ERROR_RANGE);
	lab_free(lab);
}

static bool drop_changes_to_2(void *arg, uint32_t from, uint32_t to, const struct message *message)
{
	(void)arg;
	(void)from;
	return !(message->kind == MESSAGE_CHANGE && to == 2);
}

static void change_not_held_by_all_before_its_round_is_dropped_by_all(void **state)
{
	(void)state;
	const size_t size = 5;
	struct lab *lab = lab_new(3, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 3; n++)
		if (n != 1)
			lab_offer(lab, n, false);
	/* the records of 0 and 2 are on their way without it; member 1 proposes for the round in progress */
	lab_event(lab, 1, set_event(OUTER_LR, 0.5, 1));
	lab_offer(lab, 1, false);
	lab_pass(lab, 2000000);
	for (size_t n = 0; n < 3; n++) {
		assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == 0.8);
		assert_int_equal(lab_notes(lab, n, NOTE_CHANGE_DROPPED), 1);
		assert_int_equal(lab_notes(lab, n, NOTE_CHANGE_TAKEN), 0);
	}
	lab->filter = drop_changes_to_2; /* the stream stands still there, so nothing can be taken and no round passes */
	lab_event(lab, 0, set_event(OUTER_LR, 0.4, 0));
	offer_all(lab, false);
	for (size_t n = 0; n < 3; n++)
		assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == 0.8);
	lab->filter = NULL;
	lab_pass(lab, 5000000);
	offer_all(lab, false);
	for (size_t n = 0; n < 3; n++)
		assert_true(node_settings(lab->members[n].node)->value[OUTER_LR] == 0.4);
	lab_free(lab);
}

static void pause_stops_all_and_resume_lets_all_go_on(void **state)
{
	(void)state;
	const size_t size = 5;
	struct lab *lab = lab_new(4, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	lab_event(lab, 2, (struct event){.kind = EVENT_CHANGE, .change = {.kind = CHANGE_RESUME}});
	assert_int_equal(lab_note(lab, 2, NOTE_CHANGE_REFUSED)->detail, EDIT_ERROR_REFUSED); /* nothing to resume */
	lab_event(lab, 2, (struct event){.kind = EVENT_CHANGE, .change = {.kind = CHANGE_PAUSE}});
	lab_event(lab, 1, (struct event){.kind = EVENT_CHANGE, .change = {.kind = CHANGE_CHECKPOINT}});
	offer_all(lab, false);
	for (size_t n = 0; n < 4; n++) {
		assert_true(lab->members[n].paused);
		assert_int_equal(lab->members[n].checkpoint_round, 1);
	}
	lab_event(lab, 3, (struct event){.kind = EVENT_CHANGE, .change = {.kind = CHANGE_PAUSE}});
	assert_int_equal(lab_note(lab, 3, NOTE_CHANGE_REFUSED)->detail, EDIT_ERROR_REFUSED); /* paused already */
	lab_event(lab, 0, (struct event){.kind = EVENT_CHANGE, .change = {.kind = CHANGE_RESUME}});
	for (size_t n = 0; n < 4; n++)
		assert_false(lab->members[n].paused);
	assert_int_equal(lab_notes(lab, 0, NOTE_CHANGE_HELD), 1);
	lab_free(lab);
}

static void run_ends_for_all_when_a_member_has_done_its_last_step(void **state)
{
	(void)state;
	const size_t size = 5;
	struct lab *lab = lab_new(3, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 3; n++)
		lab_offer(lab, n, n == 1);
	lab_pass(lab, 10000);
	for (size_t n = 0; n < 3; n++) {
		struct node_status status;
		node_status(lab->members[n].node, lab->now_us, &status);
		assert_int_equal(status.phase, NODE_FINISHED);
		assert_int_equal(lab->members[n].schedule, 0);
	}
	lab_free(lab);
}

/* ---- Hello, silence, stall ---- */

static void different_fact_is_refused_at_hello_by_name(void **state)
{
	(void)state;
	const struct fact good[] = {{"hidden_size", "128"}, {"heads", "4"}, {"layer 0", "embedding 32768"}};
	const struct fact bad[] = {{"hidden_size", "128"}, {"heads", "8"}, {"layer 0", "embedding 32768"}};
	const struct fact *facts[] = {good, good, bad, good};
	const size_t size = 5;
	struct lab *lab = lab_new(4, &size, 1, NULL, facts, 3);
	lab_gather(lab);
	for (size_t n = 0; n < 4; n++) {
		assert_int_equal(lab_notes(lab, n, NOTE_RING_COMPLETE), 0);
		assert_int_equal(lab->members[n].schedule, UINT64_MAX);
		struct node_status status;
		node_status(lab->members[n].node, lab->now_us, &status);
		assert_int_equal(status.phase, NODE_GATHERING);
	}
	const struct note *note = lab_note(lab, 1, NOTE_PEER_REFUSED);
	assert_non_null(note);
	assert_int_equal(note->peer, 2);
	assert_int_equal(note->detail, REFUSAL_FACT);
	assert_int_equal(note->a, 1); /* "heads" */
	assert_int_equal(lab_notes(lab, 1, NOTE_PEER_REFUSED), 1); /* said once, not at every hello */
	struct node_peer peer;
	node_peer(lab->members[1].node, 2, lab->now_us, &peer);
	assert_int_equal(peer.state, PEER_REFUSED);
	lab_free(lab);
}

static void death_of_a_member_stalls_the_round_and_all_say_so(void **state)
{
	(void)state;
	const size_t size = 100;
	struct lab *lab = lab_new(5, &size, 1, NULL, NULL, 0);
	lab_gather(lab);
	offer_all(lab, false);
	lab->members[2].dead = true;
	offer_all(lab, false);
	lab_pass(lab, 9000000);
	for (size_t n = 0; n < 5; n++) {
		if (n == 2)
			continue;
		struct node_status status;
		node_status(lab->members[n].node, lab->now_us, &status);
		assert_int_equal(status.round, 1);
		assert_int_equal(status.phase, NODE_SYNCING);
		assert_true(status.stalled_us > 3000000);
		assert_int_equal(status.waiting_for, 2);
		struct node_peer peer;
		node_peer(lab->members[n].node, 2, lab->now_us, &peer);
		assert_int_equal(peer.state, PEER_DOWN);
		assert_int_equal(lab_note(lab, n, NOTE_STALLED)->peer, 2);
		assert_true(lab_notes(lab, n, NOTE_STALLED) == 1);
	}
	assert_int_equal(lab_notes(lab, 1, NOTE_PEER_DOWN), 1);
	assert_int_equal(lab_notes(lab, 3, NOTE_PEER_DOWN), 1);
	/* back with its memory, as after a cut cable: the round goes on */
	lab->members[2].dead = false;
	lab_offer(lab, 2, false);
	lab_pass(lab, 10000000);
	for (size_t n = 0; n < 5; n++) {
		struct node_status status;
		node_status(lab->members[n].node, lab->now_us, &status);
		assert_int_equal(status.round, 2);
	}
	assert_int_equal(lab_notes(lab, 1, NOTE_PEER_UP), 1);
	lab_free(lab);
}

static void layers_wait_for_the_worker_when_prefetch_is_0(void **state)
{
	(void)state;
	const size_t sizes[] = {4, 4, 4};
	struct ring_settings settings = ring_settings_standard();
	settings.value[SYNC_PREFETCH] = 0;
	struct lab *lab = lab_new(2, sizes, 3, &settings, NULL, 0);
	lab_gather(lab);
	for (size_t n = 0; n < 2; n++)
		lab_event(lab, n, (struct event){.kind = EVENT_OFFER, .offer = {.steps = 1}});
	lab_pass(lab, 10000);
	for (uint32_t l = 0; l < 3; l++) {
		assert_int_equal(lab->members[0].published, l);
		for (size_t n = 0; n < 2; n++)
			lab_event(lab, n, (struct event){.kind = EVENT_WANT, .wanted = l});
		lab_pass(lab, 10000);
	}
	assert_int_equal(lab->members[0].published, 3);
	lab_free(lab);
}

static void flipped_bit_in_an_anchor_is_noticed_by_all_at_the_next_round(void **state)
{
	(void)state;
	const size_t sizes[] = {9, 33};
	struct lab *lab = lab_new(4, sizes, 2, NULL, NULL, 0);
	lab_gather(lab);
	offer_all(lab, false);
	((unsigned char *)lab->members[3].layers[1].anchor)[17] ^= 4;
	offer_all(lab, false);
	for (size_t n = 0; n < 4; n++) {
		const struct note *note = lab_note(lab, n, NOTE_HASH_DIFFERS);
		assert_non_null(note);
		assert_int_equal(note->layer_index, 1);
		assert_int_equal(lab_notes(lab, n, NOTE_HASH_DIFFERS), n == 3 ? 3 : 1);
	}
	lab_free(lab);
}

/* A message of the ring stream with its fields drawn at random, mostly near what fits. */
static struct message random_message(unsigned *random, uint64_t sequence, const float *payload)
{
	struct message message = {.from = 0, .incarnation = 1000, .receiver = 1001, .view = 1, .sequence = sequence};
	unsigned r[8];
	for (size_t i = 0; i < 8; i++)
		r[i] = (*random = *random * 1664525u + 1013904223u) >> 8;
	uint64_t round = r[0] % 5;
	uint32_t layer = r[1] % 4, rank = r[2] % 4;
	switch (r[3] % 5) {
	case 0:
		message.kind = MESSAGE_RECORD;
		message.record = (struct record){.round = round, .layer_index = layer, .origin = rank,
						 .verdict = VERDICT_ABSENT + r[4] % 4, .norm = r[5] % 3 == 0 ? (double)NAN : r[5]};
		break;
	case 1:
		message.kind = MESSAGE_CHUNK;
		message.chunk = (struct chunk){.round = round, .layer_index = layer, .shard = rank, .offset = r[4] % 40,
					       .phase = PHASE_REDUCE + r[5] % 2, .count = r[6] % 20};
		message.payload = payload;
		message.payload_bytes = message.chunk.count * sizeof(float);
		break;
	case 2:
		message.kind = MESSAGE_CONFIRM;
		message.confirm = (struct confirm){.round = round, .layer_index = layer, .origin = rank};
		break;
	case 3:
		message.kind = MESSAGE_CHANGE;
		message.change = (struct change){.id = (uint64_t)(rank + 1) << 32 | r[4] % 50, .kind = CHANGE_SET + r[5] % 4,
						 .setting = r[6] % 20, .value = r[7] % 9};
		break;
	default:
		message.kind = MESSAGE_ROLL;
		message.roll_origin = rank;
	}
	return message;
}

static void nonsense_from_a_neighbour_is_dropped_and_memory_stays_bounded(void **state)
{
	(void)state;
	const size_t sizes[] = {30, 0, 7};
	static const float payload[32];
	for (unsigned seed = 1; seed <= 20; seed++) {
		struct lab *lab = lab_new(3, sizes, 3, NULL, NULL, 0);
		unsigned random = seed;
		lab_gather(lab);
		lab->members[2].dead = true; /* takes nothing, so all that is relayed piles up */
		for (uint64_t sequence = 2; sequence < 20000; sequence++) {
			struct message message = random_message(&random, sequence, payload);
			lab_event(lab, 1, (struct event){.kind = EVENT_MESSAGE, .message = &message});
			if (sequence % 100 == 0)
				lab_event(lab, 1, (struct event){.kind = EVENT_OFFER, .offer = {.steps = 1}});
		}
		struct node_status status;
		node_status(lab->members[1].node, lab->now_us, &status);
		assert_true(status.frames_dropped > 100);
		lab_free(lab);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_reproduces_every_number_of_the_reference),
		cmocka_unit_test(rings_of_1_to_64_members_keep_equal_anchors),
		cmocka_unit_test(node_alone_takes_outer_steps_from_its_own_pseudo_gradient),
		cmocka_unit_test(change_is_taken_by_all_after_the_same_round),
		cmocka_unit_test(method_sets_all_that_it_presets_after_one_round),
		cmocka_unit_test(rounds_by_time_begin_when_the_period_has_passed),
		cmocka_unit_test(change_is_refused_until_the_ring_is_complete),
		cmocka_unit_test(change_bound_to_a_round_is_taken_after_exactly_it),
		cmocka_unit_test(change_not_held_by_all_before_its_round_is_dropped_by_all),
		cmocka_unit_test(pause_stops_all_and_resume_lets_all_go_on),
		cmocka_unit_test(run_ends_for_all_when_a_member_has_done_its_last_step),
		cmocka_unit_test(different_fact_is_refused_at_hello_by_name),
		cmocka_unit_test(death_of_a_member_stalls_the_round_and_all_say_so),
		cmocka_unit_test(layers_wait_for_the_worker_when_prefetch_is_0),
		cmocka_unit_test(nonsense_from_a_neighbour_is_dropped_and_memory_stays_bounded),
		cmocka_unit_test(flipped_bit_in_an_anchor_is_noticed_by_all_at_the_next_round),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

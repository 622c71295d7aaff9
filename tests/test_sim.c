/* The simulator: hundreds of rings from seeds, every event checked, and the same again. A failing seed prints itself and the
 * end of its trace; `edit-sim --seed SEED --trace` shows all of it. */

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/dice.h"
#include "sim/formula.h"
#include "sim/heap.h"
#include "sim/world.h"
#include "tests/reference_edit.h"

static struct trace trace;

static struct world_result run(struct world_config config)
{
	struct world_result result;
	world_config_draw(&config);
	trace.count = 0;
	world_run(&config, &trace, &result);
	if (!result.ok) {
		trace_print(&trace, stderr);
		fail_msg("seed %ju, %u peers, %zu layers, %ju rounds, faults %x: %s", (uintmax_t)config.seed, config.peers,
			 config.layer_count, (uintmax_t)config.rounds, config.faults, result.reason);
	}
	return result;
}

static void two_hundred_seeds_hold_every_invariant(void **state)
{
	(void)state;
	uint64_t coverage[COVERAGE_COUNT] = {0};
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .faults = UINT_MAX});
		for (int i = 0; i < COVERAGE_COUNT; i++)
			coverage[i] += result.coverage[i];
	}
	static const uint64_t minimum[COVERAGE_COUNT] = {
#define X(id, text, minimum) [id] = minimum,
		COVERAGE(X)
#undef X
	};
	for (int i = 0; i < COVERAGE_COUNT; i++)
		if (coverage[i] < minimum[i] / 5)
			fail_msg("coverage %d: %ju, expected at least %ju", i, (uintmax_t)coverage[i],
				 (uintmax_t)minimum[i] / 5);
}

static void every_single_fault_is_survived(void **state)
{
	(void)state;
	for (unsigned fault = 1; fault < FAULT_ALL; fault *= 2)
		for (uint64_t seed = 1000; seed < 1010; seed++)
			run((struct world_config){.seed = seed, .faults = fault});
}

static void same_seed_gives_the_same_run_to_the_bit(void **state)
{
	(void)state;
	uint64_t last_hash = 0;
	for (uint64_t seed = 500; seed < 520; seed++) {
		struct world_result first = run((struct world_config){.seed = seed, .faults = FAULT_ALL & ~(unsigned)FAULT_CRASH});
		struct world_result second = run((struct world_config){.seed = seed, .faults = FAULT_ALL & ~(unsigned)FAULT_CRASH});
		assert_true(first.hash == second.hash);
		assert_true(first.events == second.events);
		assert_true(first.time_us == second.time_us);
		assert_memory_equal(first.coverage, second.coverage, sizeof first.coverage);
		assert_true(first.hash != last_hash);
		last_hash = first.hash;
	}
}

static void three_hundred_peers_agree(void **state)
{
	(void)state;
	struct world_result result = run((struct world_config){.seed = 1, .peers = 300, .layer_count = 1, .rounds = 2});
	assert_int_equal(result.coverage[COVER_COMMITS], 300 * 2);
}

/* The world itself checks that the others stand still, name the dead one and commit nothing that it has no part in. */
static void ring_stalls_and_says_so_when_a_peer_crashes(void **state)
{
	(void)state;
	uint64_t stalls = 0;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .peers = 4, .rounds = 8, .faults = FAULT_CRASH});
		assert_int_equal(result.coverage[COVER_CRASHES], 1);
		stalls += result.coverage[COVER_STALLS];
	}
	assert_in_range(stalls, 10, 30); /* in the others the run was over first */
}

/* Whoever comes back before the ring has begun takes part; later it is refused by name, and the others say so. */
static void restarted_peer_takes_part_or_is_refused(void **state)
{
	(void)state;
	uint64_t stalls = 0, restarts = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .peers = 4, .rounds = 5,
								       .faults = FAULT_RESTART | FAULT_CHANGE});
		restarts += result.coverage[COVER_RESTARTS];
		stalls += result.coverage[COVER_STALLS];
	}
	assert_in_range(restarts, 40, 60); /* in the others the run was over first */
	assert_in_range(stalls, 10, 50);
}

/* All layers of all members have completed all rounds. Those that somebody is late for, and alignment after gradients, come
 * on top of what a worker offers. */
static void assert_all_rounds(const struct world_result *result, uint64_t places, uint64_t rounds)
{
	assert_int_equal(result->coverage[COVER_COMMITS] % places, 0);
	assert_in_range(result->coverage[COVER_COMMITS], places * rounds, places * (2 * rounds + 2));
}

static void cut_roads_delay_the_ring_and_no_more(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .peers = 4, .layer_count = 2, .rounds = 5,
								       .faults = FAULT_CUT});
		assert_all_rounds(&result, 4 * 2, 5);
	}
}

static void poisoned_peers_are_left_out_and_the_others_go_on(void **state)
{
	(void)state;
	uint64_t outliers = 0, nonfinites = 0;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .peers = 5, .layer_count = 3, .rounds = 10,
								       .faults = FAULT_POISON | FAULT_NAN});
		assert_all_rounds(&result, 5 * 3, 10);
		outliers += result.coverage[COVER_OUTLIERS];
		nonfinites += result.coverage[COVER_NONFINITES];
	}
	assert_true(outliers > 30);
	assert_true(nonfinites > 300);
}

/* ---- Meshes: replicas cut over several members ---- */

static void mesh_of_every_shape_completes_its_rounds(void **state)
{
	(void)state;
	const unsigned roads = FAULT_LOSS | FAULT_REORDER | FAULT_DUPLICATE | FAULT_JITTER;
	for (uint32_t peers = 1; peers <= 8; peers++)
		for (uint32_t shards = 1; shards <= 8; shards++) {
			struct world_result result = run((struct world_config){.seed = 100 * peers + shards, .peers = peers,
									       .shards = shards, .layer_count = 2, .rounds = 2,
									       .faults = (peers + shards) % 2 ? roads : 0});
			assert_all_rounds(&result, peers * 2, 2);
			assert_int_equal(result.coverage[COVER_MESHES], shards > 1);
		}
}

static void mesh_of_two_hundred_and_fifty_six_members_agrees(void **state)
{
	(void)state;
	struct world_result result = run((struct world_config){.seed = 1, .peers = 32, .shards = 8, .layer_count = 1, .rounds = 2});
	assert_all_rounds(&result, 32, 2);
}

static void two_hundred_meshes_hold_every_invariant(void **state)
{
	(void)state;
	uint64_t coverage[COVERAGE_COUNT] = {0};
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct world_result result = run((struct world_config){.seed = 7000 + seed, .peers = 1 + (uint32_t)(seed / 3 % 5),
								       .shards = 2 + (uint32_t)(seed % 3), .faults = UINT_MAX});
		for (int i = 0; i < COVERAGE_COUNT; i++)
			coverage[i] += result.coverage[i];
	}
	assert_int_equal(coverage[COVER_MESHES], 200);
	/* What a replica must do as one. */
	static const enum coverage as_one[] = {COVER_OUTLIERS, COVER_NONFINITES, COVER_ROLLBACKS, COVER_TAKEN, COVER_PAUSES,
					       COVER_CHECKPOINTS, COVER_LATES, COVER_GRADIENTS, COVER_ALIGNED, COVER_CUTS};
	for (size_t i = 0; i < sizeof as_one / sizeof *as_one; i++)
		if (coverage[as_one[i]] < 10)
			fail_msg("coverage %d: %ju", (int)as_one[i], (uintmax_t)coverage[as_one[i]]);
}

static void same_seed_gives_the_same_mesh_to_the_bit(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		const struct world_config config = {.seed = seed, .peers = 3, .shards = 2, .faults = UINT_MAX};
		struct world_result first = run(config), second = run(config);
		assert_true(first.hash == second.hash);
		assert_memory_equal(first.coverage, second.coverage, sizeof first.coverage);
	}
}

/* The world checks that each of the others stands still and says for whom it waits. */
static void mesh_stalls_and_says_so_when_a_member_crashes(void **state)
{
	(void)state;
	uint64_t stalls = 0;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world_result result = run((struct world_config){.seed = seed, .peers = 1 + (uint32_t)(seed % 3),
								       .shards = 2 + (uint32_t)(seed % 2), .rounds = 8,
								       .faults = FAULT_CRASH});
		assert_int_equal(result.coverage[COVER_CRASHES], 1);
		stalls += result.coverage[COVER_STALLS];
	}
	assert_in_range(stalls, 10, 30); /* in the others the run was over first */
}

static void assert_close(double x, double expected, double relative)
{
	if (fabs(x - expected) > relative * fmax(fabs(expected), 1.0))
		fail_msg("%.17g, expected %.17g", x, expected);
}

/* Round after round from the reference's own thetas, in double: anchors drift apart by float32's rounding only, since the
 * formula takes float32 arrays. */
static void formula_layer(const struct reference_case *history, size_t layer_index)
{
	const size_t size = history->sizes[layer_index], peers = history->peers;
	struct formula_detector detectors[8] = {{0}};
	float anchor[16], momentum[16] = {0}, theta[16], deltas[8][16];
	const float *delta_list[8];
	double new_anchor[16], new_momentum[16], weights[8], z, scale;
	struct record records[8] = {{0}};
	reference_floats(anchor, history->anchor0[layer_index], size);
	for (size_t r = 0; r < history->round_count; r++) {
		const struct reference_layer *expected = reference_layer_at(history, r, layer_index);
		for (size_t n = 0; n < peers; n++) {
			reference_floats(theta, expected->theta[n], size);
			for (size_t i = 0; i < size; i++)
				deltas[n][i] = anchor[i] - theta[i];
			delta_list[n] = deltas[n];
			records[n].norm = expected->norm[n];
			records[n].verdict = formula_judge(&detectors[n], &history->settings, expected->norm[n], &z);
			assert_int_equal(records[n].verdict, expected->verdict[n]);
			if (isfinite(expected->norm[n])) {
				assert_close(z, expected->z[n], 1e-12);
				assert_close(formula_norm(deltas[n], size), expected->norm[n], 1e-6);
			}
			assert_close(detectors[n].var, expected->detector[n].var, 1e-12);
		}
		formula_weights(records, peers, &history->settings, weights);
		for (size_t n = 0; n < peers; n++)
			assert_close(weights[n], expected->weight[n], 1e-12);
		if (!expected->stepped)
			continue;
		formula_step(anchor, momentum, delta_list, weights, peers, size, &history->settings, new_anchor, new_momentum,
			     &scale);
		reference_floats(anchor, new_anchor, size);
		reference_floats(momentum, new_momentum, size);
		assert_true(reference_error(anchor, expected->anchor, size, 1e-3) <= 2e-6);
		assert_true(reference_error(momentum, expected->momentum, size, 1.0) <= 2e-6);
	}
}

static void formula_reproduces_the_reference(void **state)
{
	(void)state;
	struct reference_edit *reference = reference_edit_load(REFERENCE_EDIT_PATH);
	for (size_t c = 0; c < reference->case_count; c++)
		for (size_t l = 0; l < reference->cases[c].layer_count; l++)
			formula_layer(&reference->cases[c], l);
	reference_edit_free(reference);
}

static void heap_gives_the_soonest_and_of_equals_the_first(void **state)
{
	(void)state;
	struct heap heap = {0};
	struct heap_entry entry;
	struct dice dice = {7};
	for (uint64_t i = 0; i < 1000; i++)
		heap_push(&heap, (struct heap_entry){.time_us = dice_between(&dice, 0, 50), .number = i});
	uint64_t time_us = 0, number = 0;
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(heap_pop(&heap, &entry));
		assert_true(entry.time_us >= time_us);
		assert_true(i == 0 || entry.time_us > time_us || entry.number > number);
		time_us = entry.time_us;
		number = entry.number;
	}
	assert_false(heap_pop(&heap, &entry));
	heap_fini(&heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap_gives_the_soonest_and_of_equals_the_first),
		cmocka_unit_test(formula_reproduces_the_reference),
		cmocka_unit_test(two_hundred_seeds_hold_every_invariant),
		cmocka_unit_test(every_single_fault_is_survived),
		cmocka_unit_test(same_seed_gives_the_same_run_to_the_bit),
		cmocka_unit_test(three_hundred_peers_agree),
		cmocka_unit_test(ring_stalls_and_says_so_when_a_peer_crashes),
		cmocka_unit_test(restarted_peer_takes_part_or_is_refused),
		cmocka_unit_test(cut_roads_delay_the_ring_and_no_more),
		cmocka_unit_test(poisoned_peers_are_left_out_and_the_others_go_on),
		cmocka_unit_test(mesh_of_every_shape_completes_its_rounds),
		cmocka_unit_test(mesh_of_two_hundred_and_fifty_six_members_agrees),
		cmocka_unit_test(two_hundred_meshes_hold_every_invariant),
		cmocka_unit_test(same_seed_gives_the_same_mesh_to_the_bit),
		cmocka_unit_test(mesh_stalls_and_says_so_when_a_member_crashes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The state file: what was committed is found again to the bit, and what was not is told and not believed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/state.h"
#include "tests/scratch.h"

enum { LAYERS = 3, HASH = 77 };

static struct line why;

static struct description describe(void)
{
	struct description description;
	description_init(&description);
	for (uint64_t i = 0; i < LAYERS; i++) {
		char name[16];
		uint64_t size = i * 17; /* layer 0 is empty */
		snprintf(name, sizeof name, "layer %d", (int)i);
		assert_int_equal(description_add_layer(&description, name, &why), 0);
		assert_int_equal(description_add_tensor(&description, name, &size, 1, &why), 0);
	}
	return description;
}

static const char *path(void)
{
	return scratch_path("state");
}

/* A state at round 0, its numbers from a pattern. */
static struct state make(const struct description *description)
{
	struct state state;
	struct state_run run = {.round = 0, .settings = ring_settings_standard()};
	assert_int_equal(state_create(path(), description, HASH, &(struct segment_seat){.shards = 1}, &state, &why), 0);
	for (size_t i = 0; i < LAYERS; i++)
		for (size_t k = 0; k < state.places[i].size; k++)
			state.places[i].anchor[k] = (float)(i + k) / 3;
	assert_int_equal(access(path(), F_OK), -1);
	assert_int_equal(state_begin(&state, path(), &run, true, &why), 0);
	assert_int_equal(access(path(), F_OK), 0);
	return state;
}

/* All layers take a step to the next round. */
static void commit_round(struct state *state, uint64_t round, size_t layer_count)
{
	for (size_t i = 0; i < layer_count; i++) {
		struct detector detector = {.count = round, .mean = 0.5 * (double)round};
		for (size_t k = 0; k < state->places[i].size; k++)
			state->places[i].momentum[k] += 1;
		state_commit_layer(state, i, round, 1, false, &detector);
	}
	struct state_run run = *state->run;
	run.round = round;
	run.offer_step = 10 * round;
	run.settings.value[SYNC_INTERVAL] = 42;
	if (layer_count == LAYERS)
		state_commit_run(state, &run);
}

static int reopen(const struct description *description, uint64_t hash)
{
	struct state state;
	int error = state_open(path(), description, hash, &(struct segment_seat){.shards = 1}, &state, &why);
	if (error)
		return error;
	error = state_check_whole(&state, path(), description, &why);
	state_close(&state);
	return error;
}

static void committed_rounds_are_found_again_to_the_bit(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description), found;
	commit_round(&state, 1, LAYERS);
	commit_round(&state, 2, LAYERS);
	uint64_t hash = state_hash_layer(&state, 2);
	state_close(&state);

	assert_int_equal(state_open(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &found, &why), 0);
	assert_int_equal(found.run->round, 2);
	assert_int_equal(found.run->offer_step, 20);
	assert_true(found.run->settings.value[SYNC_INTERVAL] == 42);
	assert_int_equal(found.layers[1].detector.count, 2);
	assert_true(found.places[2].anchor[5] == (float)7 / 3);
	assert_true(found.places[2].momentum[33] == 2);
	assert_int_equal(state_hash_layer(&found, 2), hash);
	assert_int_equal((uintptr_t)found.places[2].anchor % 64, 0);
	state_close(&found);
	description_fini(&description);
	scratch_unlink("state");
}

static void state_that_was_never_begun_is_not_there(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state;
	assert_int_equal(state_create(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &state, &why), 0);
	state_close(&state);
	assert_int_equal(reopen(&description, HASH), EDIT_ERROR_UNKNOWN);
	description_fini(&description);
}

static void layer_that_was_being_changed_is_named(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description);
	commit_round(&state, 1, LAYERS);
	state.places[1].anchor[16] += 1;
	state_close(&state);
	assert_int_equal(reopen(&description, HASH), EDIT_ERROR_MALFORMED);
	assert_non_null(strstr(why.text, "layer \"layer 1\" was being changed"));
	description_fini(&description);
	scratch_unlink("state");
}

static void state_in_the_middle_of_a_round_is_told(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description);
	commit_round(&state, 1, LAYERS);
	commit_round(&state, 2, 2);
	state_close(&state);
	assert_int_equal(reopen(&description, HASH), EDIT_ERROR_MALFORMED);
	assert_non_null(strstr(why.text, "in the middle of a round (layer \"layer 0\" at round 2, the run at 1)"));
	description_fini(&description);
	scratch_unlink("state");
}

static void record_of_a_run_torn_while_it_is_written_leaves_the_one_before(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description), found;
	for (uint64_t round = 1; round <= 3; round++)
		commit_round(&state, round, LAYERS);
	size_t slot = state.run == &state.head->slots[1].run;
	memset(&state.head->slots[slot], 0xa5, sizeof(struct state_run) / 2);
	state_close(&state);
	assert_int_equal(state_open(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &found, &why), 0);
	assert_int_equal(found.run->round, 2);
	assert_int_equal(found.layers[2].ended_round, 3);
	assert_false(found.places[2].is_damaged);
	commit_round(&found, 3, LAYERS);
	state_close(&found);
	assert_int_equal(reopen(&description, HASH), 0);
	description_fini(&description);
	scratch_unlink("state");
}

static void layer_that_is_damaged_is_marked_and_the_others_hold(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description), found;
	commit_round(&state, 1, LAYERS);
	commit_round(&state, 2, 2);
	state.places[2].momentum[0] += 1;
	state_close(&state);
	assert_int_equal(state_open(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &found, &why), 0);
	assert_true(found.places[2].is_damaged);
	assert_false(found.places[1].is_damaged);
	assert_int_equal(found.layers[1].ended_round, 2);
	assert_int_equal(found.run->round, 1);
	state_commit_layer(&found, 2, 1, 4, true, &found.layers[2].detector);
	assert_false(found.places[2].is_damaged);
	assert_int_equal(found.layers[2].since, 4);
	assert_int_equal(found.layers[2].is_rolled_back, 1);
	assert_int_equal(found.layers[1].is_rolled_back, 0);
	state_close(&found);
	description_fini(&description);
	scratch_unlink("state");
}

static void state_begun_without_layers_holds_none(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state;
	struct state_run run = {.settings = ring_settings_standard()};
	assert_int_equal(state_create(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &state, &why), 0);
	assert_int_equal(state_begin(&state, path(), &run, false, &why), 0);
	for (size_t i = 0; i < LAYERS; i++)
		assert_true(state.places[i].is_damaged);
	state_close(&state);
	assert_int_equal(state_open(path(), &description, HASH, &(struct segment_seat){.shards = 1}, &state, &why), 0);
	for (size_t i = 0; i < LAYERS; i++)
		assert_true(state.places[i].is_damaged);
	state_close(&state);
	description_fini(&description);
	scratch_unlink("state");
}

static void state_of_another_run_is_refused(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description);
	state_close(&state);
	assert_int_equal(reopen(&description, HASH), 0);
	assert_int_equal(reopen(&description, HASH + 1), EDIT_ERROR_MALFORMED);
	uint64_t size = 5;
	assert_int_equal(description_add_layer(&description, "more", &why), 0);
	assert_int_equal(description_add_tensor(&description, "more", &size, 1, &why), 0);
	assert_int_equal(reopen(&description, HASH), EDIT_ERROR_MALFORMED);
	description_fini(&description);
	scratch_unlink("state");
}

static void damaged_files_are_refused_at_any_length(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description);
	size_t size = state.mapping.size_bytes;
	state.head->slots[0].run.round ^= 1;
	assert_int_equal(reopen(&description, HASH), EDIT_ERROR_MALFORMED);
	state_close(&state);
	for (size_t cut = size; cut-- > 0;) {
		assert_int_equal(truncate(path(), (off_t)cut), 0);
		int error = reopen(&description, HASH);
		assert_true(error == EDIT_ERROR_MALFORMED || error == EDIT_ERROR_SYSTEM);
	}
	description_fini(&description);
	scratch_unlink("state");
}

/* Whether the byte at `offset` is one that the state stands on: not one that only fills up to a multiple of 64. */
static bool means_something(const struct state *state, size_t offset)
{
	const char *base = state->mapping.base, *at = base + offset;
	const char *layers = (const char *)state->layers;
	const char *older = (const char *)&state->head->slots[state->run == &state->head->slots[0].run];
	if (at >= older && at < older + sizeof(struct state_slot))
		return false;
	if (offset < sizeof(struct state_head) || (at >= layers && at < layers + LAYERS * sizeof(struct state_layer)))
		return true;
	for (size_t i = 0; i < LAYERS; i++) {
		const char *anchor = (const char *)state->places[i].anchor, *momentum = (const char *)state->places[i].momentum;
		size_t bytes = state->places[i].size * sizeof(float);
		if ((at >= anchor && at < anchor + bytes) || (at >= momentum && at < momentum + bytes))
			return true;
	}
	return false;
}

static void byte_that_is_damaged_is_never_believed(void **context)
{
	(void)context;
	struct description description = describe();
	struct state state = make(&description);
	uint64_t round, hash;
	commit_round(&state, 1, LAYERS);
	size_t refused = 0;
	for (size_t i = 0; i < state.mapping.size_bytes; i++) {
		unsigned char *byte = (unsigned char *)state.mapping.base + i;
		*byte ^= 0x40;
		assert_int_equal(reopen(&description, HASH), means_something(&state, i) ? EDIT_ERROR_MALFORMED : 0);
		refused += means_something(&state, i);
		*byte ^= 0x40;
	}
	assert_true(refused > sizeof(struct state_head) - sizeof(struct state_slot) + LAYERS * sizeof(struct state_layer));
	assert_true(state_look(path(), &round, &hash));
	assert_int_equal(round, 1);
	assert_int_equal(hash, state_anchor_hash(&state));
	state.head->slots[0].run.offer_step ^= 1;
	state.head->slots[1].run.offer_step ^= 1;
	assert_false(state_look(path(), &round, &hash));
	state_close(&state);
	description_fini(&description);
	scratch_unlink("state");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(committed_rounds_are_found_again_to_the_bit),
		cmocka_unit_test(state_that_was_never_begun_is_not_there),
		cmocka_unit_test(layer_that_was_being_changed_is_named),
		cmocka_unit_test(state_in_the_middle_of_a_round_is_told),
		cmocka_unit_test(record_of_a_run_torn_while_it_is_written_leaves_the_one_before),
		cmocka_unit_test(layer_that_is_damaged_is_marked_and_the_others_hold),
		cmocka_unit_test(state_begun_without_layers_holds_none),
		cmocka_unit_test(state_of_another_run_is_refused),
		cmocka_unit_test(byte_that_is_damaged_is_never_believed),
		cmocka_unit_test(damaged_files_are_refused_at_any_length),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

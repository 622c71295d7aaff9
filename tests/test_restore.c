/* From a checkpoint back to a run: the same bits, or a line that says why not. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/checkpoint.h"
#include "tests/owned_run.h"
#include "tests/scratch.h"

enum { SIZE = 1024, ROUND = 7, STEP = 70 };

static struct owned_run owned;

/* The end of a round as its last layer is about to be published: the first is the worker's again, the second not yet. */
static void end_round(struct run *run)
{
	struct segment_header *header = run->segment.header;
	struct state_run record = *run->state.run;
	for (size_t i = 0; i < 2; i++) {
		const struct detector detector = {.count = 4, .mean = 0.1 + (double)i, .var = 1e-3, .streak = 1, .interval = 10};
		float *inner = segment_inner(&run->segment, i);
		for (size_t k = 0; k < 2 * run->layers[i].size; k++)
			inner[k] = (float)k / 7;
		for (size_t k = 0; k < run->layers[i].size; k++)
			run->layers[i].momentum[k] = (float)k / 3;
		atomic_store(&run->segment.layers[i].begun_step, STEP);
		atomic_store(&run->segment.layers[i].ended_step, STEP);
		state_commit_layer(&run->state, i, ROUND, 3, false, &detector);
	}
	atomic_store(&header->step, STEP);
	atomic_store(&header->offered_step, STEP);
	atomic_store(&header->tokens, 1234);
	atomic_store(&header->inner_step, 20);
	record.round = ROUND;
	record.offer_step = STEP - 3; /* told again, if inner state is left out */
	record.settings.value[OUTER_LR] = 0.3;
	record.sync_us = 99;
	state_commit_run(&run->state, &record);
}

static void set_owner(struct run *run, size_t layer_index, enum segment_owner owner)
{
	atomic_store(&run->segment.layers[layer_index].owner, (uint32_t)owner);
}

static const char *write_checkpoint(struct run *run)
{
	static struct checkpoint checkpoint;
	enum checkpoint_result result;
	checkpoint_init(&checkpoint, &owned.config);
	checkpoint_prepare(&checkpoint, run);
	assert_true(checkpoint_begin(&checkpoint, run, ROUND));
	while ((result = checkpoint_step(&checkpoint)) == CHECKPOINT_GOES_ON)
		;
	assert_int_equal(result, CHECKPOINT_WRITTEN);
	return checkpoint.newest;
}

/* Each test begins with a run at the end of a round and its checkpoint. */
static int make_run(void **state)
{
	(void)state;
	if (owned_run_make(&owned, SIZE) != 0)
		return -1;
	end_round(&owned.run);
	set_owner(&owned.run, 1, SEGMENT_DAEMON);
	return 0;
}

static int remove_run(void **state)
{
	(void)state;
	return owned_run_remove(&owned);
}

/* The run that the next daemon makes of the checkpoint after a loss of power. The description's bytes are those of the last one. */
static int restart(const char *folder, uint64_t round, struct run *run, struct line *why)
{
	size_t bytes = description_bytes(&owned.run.description);
	void *encoded = malloc(bytes);
	description_encode(&owned.run.description, encoded);
	scratch_unlink("segment");
	scratch_unlink("state");
	run_init(run, &owned.config);
	snprintf(run->source.folder, sizeof run->source.folder, "%s", folder);
	run->source.round = round;
	int error = run_attach(run, encoded, bytes, why);
	free(encoded);
	return error;
}

static void expect_numbers(const struct run *run, bool has_inner)
{
	for (size_t i = 0; i < 2; i++) {
		size_t bytes = owned.run.layers[i].size * sizeof(float);
		assert_memory_equal(run->state.places[i].anchor, owned.run.layers[i].anchor, bytes);
		assert_memory_equal(run->state.places[i].momentum, owned.run.layers[i].momentum, bytes);
		assert_memory_equal(segment_theta(&run->segment, i), owned.run.layers[i].anchor, bytes);
		assert_memory_equal(&run->state.layers[i].detector, &owned.run.state.layers[i].detector, sizeof(struct detector));
		if (has_inner)
			assert_memory_equal(segment_inner(&run->segment, i), segment_inner(&owned.run.segment, i), 2 * bytes);
		assert_false(segment_is_torn(&run->segment, i));
		assert_int_equal(atomic_load(&run->segment.layers[i].round), ROUND);
	}
	assert_int_equal(run->state.run->round, ROUND);
	assert_int_equal(run->state.run->sync_us, 99);
	assert_memory_equal(&run->state.run->settings, &owned.run.state.run->settings, sizeof(struct ring_settings));
}

static void checkpoint_comes_back_to_the_bit(void **state)
{
	(void)state;
	struct run run;
	struct line why = {""};
	const char *folder = write_checkpoint(&owned.run);
	assert_int_equal(restart(folder, ROUND, &run, &why), 0);
	assert_true(run.is_restored);
	assert_true(run.is_resumed);
	expect_numbers(&run, true);
	const struct segment_header *header = run.segment.header;
	assert_int_equal(atomic_load(&header->step), STEP);
	assert_int_equal(atomic_load(&header->offered_step), STEP);
	assert_int_equal(run.state.run->offer_step, STEP);
	assert_int_equal(atomic_load(&header->tokens), 1234);
	assert_int_equal(atomic_load(&header->inner_step), 20);
	assert_int_equal(atomic_load(&header->initialised), 1);
	/* The worker gets the layers when it is known when it shall offer. */
	assert_int_equal(atomic_load(&run.segment.layers[0].owner), SEGMENT_DAEMON);
	assert_int_equal(run_begin(&run, 5, &why), 0);
	assert_false(run_is_stale(&run));
	run_give_layers(&run);
	assert_int_equal(atomic_load(&run.segment.layers[0].owner), SEGMENT_WORKER);
	run_close(&run);
}

static void inner_state_of_a_layer_that_was_not_finite_begins_at_zero(void **state)
{
	(void)state;
	struct run run;
	struct line why = {""};
	atomic_store(&owned.run.segment.layers[0].verdict, VERDICT_NONFINITE);
	atomic_store(&owned.run.segment.layers[0].begun_step, STEP + 1); /* its worker is at it already */
	assert_int_equal(restart(write_checkpoint(&owned.run), ROUND, &run, &why), 0);
	for (size_t k = 0; k < 2 * SIZE; k++)
		assert_true(segment_inner(&run.segment, 0)[k] == 0);
	assert_true(segment_inner(&run.segment, 1)[5] == (float)5 / 7);
	run_close(&run);
}

static void worker_that_steps_on_leaves_its_inner_state_out(void **state)
{
	(void)state;
	struct run *from = &owned.run, run;
	struct line why = {""};
	for (int i = 0; i < 3; i++) {
		set_owner(from, 1, i == 0 ? SEGMENT_WORKER : SEGMENT_DAEMON); /* it has all layers */
		atomic_store(&from->segment.layers[0].begun_step, i == 1 ? STEP + 1 : STEP); /* it is in a step */
		atomic_store(&from->segment.header->step, i == 2 ? STEP + 1 : STEP); /* it has done one since */
		assert_int_equal(restart(write_checkpoint(from), ROUND, &run, &why), 0);
		expect_numbers(&run, false);
		assert_true(segment_inner(&run.segment, 0)[5] == 0);
		assert_int_equal(atomic_load(&run.segment.header->step), STEP - 3);
		assert_int_equal(atomic_load(&run.segment.header->inner_step), STEP - 3);
		run_close(&run);
	}
}

/* ---- Damage ---- */

static char *read_file(const char *path, size_t *ret_bytes)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	*ret_bytes = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	return bytes;
}

static void write_file(const char *path, const char *bytes, size_t count)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, count, file), count);
	assert_int_equal(fclose(file), 0);
}

static void file_that_is_damaged_anywhere_or_cut_is_found(void **state)
{
	(void)state;
	static const char *const files[] = {"model.safetensors", "state.safetensors", "config.json"};
	const char *folder = write_checkpoint(&owned.run);
	struct manifest manifest;
	struct line why = {""};
	char path[CONFIG_PATH_MAX + 32];
	assert_int_equal(manifest_check(folder, &manifest, &why), 0);
	assert_int_equal(manifest.round, ROUND);
	assert_int_equal(manifest.anchor_hash, state_anchor_hash(&owned.run.state));
	for (size_t i = 0; i < 3; i++) {
		size_t bytes;
		snprintf(path, sizeof path, "%s/%s", folder, files[i]);
		char *good = read_file(path, &bytes);
		for (size_t at = 0; at < bytes; at += 1 + bytes / 300) {
			good[at] ^= 16;
			write_file(path, good, bytes);
			good[at] ^= 16;
			assert_int_equal(manifest_check(folder, &manifest, &why), EDIT_ERROR_MALFORMED);
			assert_non_null(strstr(why.text, files[i]));
			write_file(path, good, at);
			assert_int_equal(manifest_check(folder, &manifest, &why), EDIT_ERROR_MALFORMED);
		}
		write_file(path, good, bytes);
		assert_int_equal(manifest_check(folder, &manifest, &why), 0);
	}
	unlink(path);
	assert_int_equal(manifest_check(folder, &manifest, &why), EDIT_ERROR_MALFORMED);
	assert_non_null(strstr(why.text, "config.json: No such file or directory"));
}

static void checkpoint_that_does_not_fit_is_refused_and_no_run_is_left(void **state)
{
	(void)state;
	const char *folder = write_checkpoint(&owned.run);
	char path[CONFIG_PATH_MAX + 32];
	struct run run;
	struct line why = {""};
	size_t bytes;
	assert_int_equal(restart(folder, ROUND + 1, &run, &why), EDIT_ERROR_REFUSED);
	assert_non_null(strstr(why.text, "contradicts itself"));
	snprintf(path, sizeof path, "%s/model.safetensors", folder);
	char *good = read_file(path, &bytes);
	good[bytes - 1] ^= 1; /* of the second layer */
	write_file(path, good, bytes);
	assert_int_equal(restart(folder, ROUND, &run, &why), EDIT_ERROR_REFUSED);
	assert_non_null(strstr(why.text, "layer \"second\" is not what its hash says"));
	good[bytes - 1] ^= 1;
	good[100] ^= 1; /* in the header */
	write_file(path, good, bytes);
	assert_int_equal(restart(folder, ROUND, &run, &why), EDIT_ERROR_REFUSED);
	assert_non_null(strstr(why.text, "its tensors are not those of this model"));
	write_file(path, good, bytes - 4);
	assert_int_equal(restart(folder, ROUND, &run, &why), EDIT_ERROR_REFUSED);
	uint64_t round, hash;
	assert_false(run_look(&owned.config, &round, &hash));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(checkpoint_comes_back_to_the_bit, make_run, remove_run),
		cmocka_unit_test_setup_teardown(inner_state_of_a_layer_that_was_not_finite_begins_at_zero, make_run, remove_run),
		cmocka_unit_test_setup_teardown(worker_that_steps_on_leaves_its_inner_state_out, make_run, remove_run),
		cmocka_unit_test_setup_teardown(file_that_is_damaged_anywhere_or_cut_is_found, make_run, remove_run),
		cmocka_unit_test_setup_teardown(checkpoint_that_does_not_fit_is_refused_and_no_run_is_left, make_run, remove_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

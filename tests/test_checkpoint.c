/* Checkpoints: whole folders or none, the newest kept, and a full disk is told and survived. The run under it is made by
 * the same calls as in the daemon. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "daemon/checkpoint.h"
#include "tests/owned_run.h"
#include "tests/scratch.h"

enum { SIZE = 3 << 20 }; /* elements: three slices */

static struct owned_run owned;
static const struct config *config = &owned.config;
static struct run *run = &owned.run;

static int make_run(void **state)
{
	(void)state;
	return owned_run_make(&owned, SIZE);
}

/* Of three elements in four pieces the last is empty. */
enum { SHARDS = 4 };

static int make_first_piece(void **state)
{
	(void)state;
	return owned_run_make_piece(&owned, SIZE, 0, SHARDS);
}

static int make_last_piece(void **state)
{
	(void)state;
	return owned_run_make_piece(&owned, SIZE, SHARDS - 1, SHARDS);
}

static int remove_run(void **state)
{
	(void)state;
	return owned_run_remove(&owned);
}

/* Writes on until it is done or has failed. */
static enum checkpoint_result write_on(struct checkpoint *checkpoint)
{
	enum checkpoint_result result;
	while ((result = checkpoint_step(checkpoint)) == CHECKPOINT_GOES_ON)
		;
	return result;
}

static bool is_there(const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "checkpoints/%s", name);
	return access(scratch_path(path), F_OK) == 0;
}

static char *read_file(const char *name, size_t *ret_bytes)
{
	struct stat about;
	FILE *file = fopen(scratch_path(name), "rb");
	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &about), 0);
	char *bytes = malloc((size_t)about.st_size + 1);
	*ret_bytes = fread(bytes, 1, (size_t)about.st_size, file);
	assert_int_equal(*ret_bytes, about.st_size);
	fclose(file);
	return bytes;
}

static void written_folder_holds_the_anchor_of_its_round(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, config);
	assert_string_equal(checkpoint.newest, "");
	assert_true(checkpoint_begin(&checkpoint, run, 7));
	assert_false(checkpoint_begin(&checkpoint, run, 8));
	/* Training goes on: what is written is what was there at the begin. */
	float before = run->layers[0].anchor[5];
	run->layers[0].anchor[5] = -1;
	assert_int_equal(checkpoint_step(&checkpoint), CHECKPOINT_GOES_ON);
	assert_false(is_there("round-000007"));
	assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);
	run->layers[0].anchor[5] = before;
	assert_true(is_there("round-000007"));
	assert_string_equal(strrchr(checkpoint.newest, '/'), "/round-000007");

	size_t bytes, text_bytes;
	char *model = read_file("checkpoints/round-000007/model.safetensors", &bytes);
	char *text = read_file("checkpoints/round-000007/manifest.json", &text_bytes);
	uint64_t header_bytes;
	memcpy(&header_bytes, model, 8);
	assert_int_equal(bytes, 8 + header_bytes + (SIZE + 3) * sizeof(float));
	assert_memory_equal(model + 8 + header_bytes, run->layers[0].anchor, SIZE * sizeof(float));

	json_error_t error;
	json_t *manifest = json_loadb(text, text_bytes, 0, &error);
	char hash[17];
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(model, bytes));
	json_t *file = json_object_get(json_object_get(manifest, "files"), "model.safetensors");
	assert_string_equal(json_string_value(json_object_get(file, "xxh3")), hash);
	assert_int_equal(json_integer_value(json_object_get(file, "bytes")), bytes);
	json_decref(manifest);
	free(model);
	free(text);
}

static void same_round_again_replaces_the_folder(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, config);
	for (int i = 0; i < 2; i++) {
		assert_true(checkpoint_begin(&checkpoint, run, 9));
		assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);
		assert_true(is_there("round-000009/manifest.json"));
		assert_false(is_there(".round-000009.partial"));
	}
}

static void only_the_newest_are_kept_whatever_their_numbers(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, config);
	const uint64_t rounds[] = {30, 20, 10};
	for (size_t i = 0; i < 3; i++) {
		assert_true(checkpoint_begin(&checkpoint, run, rounds[i]));
		assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);
	}
	assert_true(is_there("round-000010"));
	assert_true(is_there("round-000020"));
	assert_false(is_there("round-000030"));
	checkpoint_init(&checkpoint, config);
	assert_string_equal(strrchr(checkpoint.newest, '/'), "/round-000010");
}

static void write_round(struct checkpoint *checkpoint, uint64_t round)
{
	assert_true(checkpoint_begin(checkpoint, run, round));
	assert_int_equal(write_on(checkpoint), CHECKPOINT_WRITTEN);
}

/* The clock was an hour fast when the first two were written. */
static void clock_that_is_set_back_does_not_make_the_last_one_old(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	const struct timespec later[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};
	checkpoint_init(&checkpoint, config);
	write_round(&checkpoint, 41);
	write_round(&checkpoint, 40);
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("checkpoints/round-000041/manifest.json"), later, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("checkpoints/round-000040/manifest.json"), later, 0), 0);
	write_round(&checkpoint, 42);
	assert_false(is_there("round-000040"));
	write_round(&checkpoint, 39);
	assert_true(is_there("round-000042"));
	assert_false(is_there("round-000041"));
	checkpoint_init(&checkpoint, config);
	assert_string_equal(strrchr(checkpoint.newest, '/'), "/round-000039");
}

static void half_written_folders_are_cleaned_up_and_others_left_alone(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	mkdir(scratch_path("checkpoints"), 0700);
	mkdir(scratch_path("checkpoints/.round-000050.partial"), 0700);
	scratch_write("checkpoints/.round-000050.partial/model.safetensors", "x", 1);
	mkdir(scratch_path("checkpoints/round-mine"), 0700);
	mkdir(scratch_path("checkpoints/round-000051"), 0700); /* without manifest: not whole, not ours */
	checkpoint_init(&checkpoint, config);
	assert_false(is_there(".round-000050.partial"));
	assert_true(is_there("round-mine"));
	assert_true(is_there("round-000051"));
	assert_null(strstr(checkpoint.newest, "51"));
}

static void closing_in_the_middle_leaves_nothing(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, config);
	assert_true(checkpoint_begin(&checkpoint, run, 60));
	assert_int_equal(checkpoint_step(&checkpoint), CHECKPOINT_GOES_ON);
	checkpoint_close(&checkpoint);
	assert_false(is_there("round-000060"));
	assert_false(is_there(".round-000060.partial"));
}

static void full_disk_is_told_and_the_old_checkpoint_stays(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	struct rlimit before, limit;
	checkpoint_init(&checkpoint, config);
	assert_true(checkpoint_begin(&checkpoint, run, 70));
	assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	/* Fails in the first slice, in the second, and at the manifest: model and its header are larger than these. */
	const rlim_t limits[] = {1 << 20, 6 << 20};
	for (size_t i = 0; i < 2; i++) {
		limit = before;
		limit.rlim_cur = limits[i];
		setrlimit(RLIMIT_FSIZE, &limit);
		assert_true(checkpoint_begin(&checkpoint, run, 71));
		enum checkpoint_result result = write_on(&checkpoint);
		setrlimit(RLIMIT_FSIZE, &before);
		assert_int_equal(result, CHECKPOINT_FAILED);
		assert_non_null(strstr(checkpoint.degraded, "checkpoint of round 71 not written: "));
		assert_false(is_there("round-000071"));
		assert_false(is_there(".round-000071.partial"));
		assert_true(is_there("round-000070/manifest.json"));
		assert_false(checkpoint.is_busy);
	}
	assert_true(checkpoint_begin(&checkpoint, run, 72));
	assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);
	assert_string_equal(checkpoint.degraded, "");
}

static void folder_that_cannot_be_made_is_told(void **state)
{
	(void)state;
	struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, config);
	snprintf(checkpoint.folder, sizeof checkpoint.folder, "%s/absent/checkpoints", scratch_path(""));
	assert_false(checkpoint_begin(&checkpoint, run, 80));
	assert_non_null(strstr(checkpoint.degraded, "No such file or directory"));
	assert_false(checkpoint.is_busy);
}

/* Whether the manifest's layer has these numbers and the file of tensors the shape [elements] for it. */
static void expect_piece(const json_t *manifest, size_t index, const char *name, size_t first, size_t elements,
			 const char *header)
{
	char shape[80];
	const json_t *layer = json_array_get(json_object_get(manifest, "layers"), index);
	assert_string_equal(json_string_value(json_object_get(layer, "name")), name);
	assert_int_equal(json_integer_value(json_object_get(layer, "first")), first);
	assert_int_equal(json_integer_value(json_object_get(layer, "elements")), elements);
	snprintf(shape, sizeof shape, "\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu],", name, elements);
	assert_non_null(strstr(header, shape));
}

static void member_of_a_mesh_writes_its_piece(size_t column, size_t second_first, size_t second_elements)
{
	struct checkpoint checkpoint;
	char name[64], path[160];
	size_t bytes, text_bytes, elements = SIZE / SHARDS;
	checkpoint_init(&checkpoint, config);
	assert_true(checkpoint_begin(&checkpoint, run, 5));
	assert_int_equal(write_on(&checkpoint), CHECKPOINT_WRITTEN);
	assert_false(is_there("round-000005/model.safetensors"));
	snprintf(name, sizeof name, "piece-%zu-of-%d.safetensors", column + 1, SHARDS);
	snprintf(path, sizeof path, "checkpoints/round-000005/%s", name);
	char *piece = read_file(path, &bytes);
	char *text = read_file("checkpoints/round-000005/manifest.json", &text_bytes);
	uint64_t header_bytes;
	memcpy(&header_bytes, piece, 8);
	assert_int_equal(bytes, 8 + header_bytes + (elements + second_elements) * sizeof(float));
	const float *numbers = (const float *)(piece + 8 + header_bytes);
	assert_true(numbers[0] == (float)(column * elements));
	assert_true(numbers[elements - 1] == (float)((column + 1) * elements - 1));
	assert_memory_equal(numbers, run->layers[0].anchor, elements * sizeof(float));

	json_error_t error;
	char hash[17];
	json_t *manifest = json_loadb(text, text_bytes, 0, &error);
	assert_int_equal(json_integer_value(json_object_get(manifest, "row")), 0);
	assert_int_equal(json_integer_value(json_object_get(manifest, "column")), column);
	assert_int_equal(json_integer_value(json_object_get(manifest, "shards")), SHARDS);
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(piece, bytes));
	const json_t *file = json_object_get(json_object_get(manifest, "files"), name);
	assert_string_equal(json_string_value(json_object_get(file, "xxh3")), hash);
	assert_int_equal(json_integer_value(json_object_get(file, "bytes")), bytes);
	piece[8 + header_bytes - 1] = 0; /* a space, or the brace */
	expect_piece(manifest, 0, "first", column * elements, elements, piece + 8);
	expect_piece(manifest, 1, "second", second_first, second_elements, piece + 8);
	json_decref(manifest);
	free(piece);
	free(text);
}

static void first_member_of_a_replica_writes_its_piece(void **state)
{
	(void)state;
	member_of_a_mesh_writes_its_piece(0, 0, 1);
}

static void last_member_of_a_replica_writes_its_piece(void **state)
{
	(void)state;
	member_of_a_mesh_writes_its_piece(SHARDS - 1, 3, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_folder_holds_the_anchor_of_its_round),
		cmocka_unit_test(same_round_again_replaces_the_folder),
		cmocka_unit_test(only_the_newest_are_kept_whatever_their_numbers),
		cmocka_unit_test(clock_that_is_set_back_does_not_make_the_last_one_old),
		cmocka_unit_test(half_written_folders_are_cleaned_up_and_others_left_alone),
		cmocka_unit_test(closing_in_the_middle_leaves_nothing),
		cmocka_unit_test(full_disk_is_told_and_the_old_checkpoint_stays),
		cmocka_unit_test(folder_that_cannot_be_made_is_told),
	};
	const struct CMUnitTest pieces[] = {
		cmocka_unit_test_setup_teardown(first_member_of_a_replica_writes_its_piece, make_first_piece, remove_run),
		cmocka_unit_test_setup_teardown(last_member_of_a_replica_writes_its_piece, make_last_piece, remove_run),
	};
	int failed = cmocka_run_group_tests(tests, make_run, remove_run);
	return failed + cmocka_run_group_tests(pieces, NULL, NULL);
}

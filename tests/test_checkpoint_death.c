/* A checkpoint that is killed, or whose disk fails, at every system call that it makes: the one before or the new one loads,
 * never neither and never half of one. The writer runs in a child under ptrace. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/checkpoint.h"
#include "daemon/folder.h"
#include "tests/owned_run.h"
#include "tests/scratch.h"
#include "tests/traced.h"
#include "worker/complain.h"
#include "worker/tensorfolder.h"

enum { SIZE = 2048 };

static struct owned_run owned;

static int make_run(void **state)
{
	(void)state;
	return owned_run_make(&owned, SIZE);
}

static int remove_run(void **state)
{
	(void)state;
	return owned_run_remove(&owned);
}

/* Writes a checkpoint of the round *of; 0 if it was written. */
static int write_round(void *of)
{
	uint64_t round = *(uint64_t *)of;
	struct checkpoint checkpoint;
	enum checkpoint_result result = CHECKPOINT_FAILED;
	checkpoint_init(&checkpoint, &owned.config);
	if (checkpoint_begin(&checkpoint, &owned.run, round))
		while ((result = checkpoint_step(&checkpoint)) == CHECKPOINT_GOES_ON)
			;
	return result == CHECKPOINT_WRITTEN ? 0 : 1;
}

static int write_checkpoint(uint64_t round)
{
	return write_round(&round);
}

/* ---- What is on the disk ---- */

/* The files of a checkpoint are those that its manifest names, to the bit, and the weights load. */
static void assert_whole(const char *name)
{
	static float values[SIZE];
	char path[128], error[COMPLAINT_MAX];
	struct manifest manifest;
	struct line why = {""};
	snprintf(path, sizeof path, "checkpoints/%s", name);
	assert_int_equal(manifest_check(scratch_path(path), &manifest, &why), 0);
	assert_int_equal(manifest.file_count, 3);
	struct tensorfolder *weights;
	assert_int_equal(tensorfolder_open(scratch_path(path), &weights, error, sizeof error), 0);
	assert_int_equal(tensorfolder_read(weights, "first.weight", (const uint64_t[]){1024, SIZE / 1024}, 2, values, error,
					   sizeof error), 0);
	tensorfolder_close(weights);
}

/* What the next daemon finds: a whole checkpoint, nothing half. Returns its name, valid until the next call. */
static const char *look(void)
{
	static struct checkpoint checkpoint;
	checkpoint_init(&checkpoint, &owned.config);
	const char *slash = strrchr(checkpoint.newest, '/');
	assert_non_null(slash);
	assert_whole(slash + 1);
	assert_int_not_equal(access(scratch_path("checkpoints/.round-000002.partial"), F_OK), 0);
	return slash + 1;
}

static void forget(const char *name)
{
	char path[64];
	snprintf(path, sizeof path, "checkpoints/%s", name);
	folder_remove(scratch_path(path));
}

/* Each test begins with one checkpoint, of round 1. */
static int one_checkpoint(void **state)
{
	(void)state;
	forget("round-000002");
	forget("round-000003");
	return write_checkpoint(1);
}

/* ---- Deaths ---- */

static bool kill_at(unsigned at)
{
	uint64_t round = 2;
	return traced_kill_at(write_round, &round, at);
}

static void killed_at_any_call_the_old_or_the_new_one_loads(void **state)
{
	(void)state;
	unsigned old = 0, new = 0;
	for (unsigned at = 1; kill_at(at); at++) {
		const char *name = look();
		bool is_new = strcmp(name, "round-000002") == 0;
		assert_true(is_new || strcmp(name, "round-000001") == 0);
		old += !is_new;
		new += is_new;
		forget("round-000002");
	}
	assert_string_equal(look(), "round-000002");
	assert_true(old > 20);
	assert_true(new > 2);
}

static void killed_while_it_replaces_one_of_its_round_a_whole_one_stays(void **state)
{
	(void)state;
	assert_int_equal(write_checkpoint(2), 0);
	for (unsigned at = 1; kill_at(at); at++) {
		assert_string_equal(look(), "round-000002");
		owned.run.layers[0].anchor[3] = (float)at;
	}
}

/* What is synced before the name stands: model and state, their folder (three times: for their renames and for all files), config and
 * manifest; afterwards the folder of checkpoints. */
static void everything_is_synced_before_it_has_its_name(void **state)
{
	(void)state;
	int status;
	unsigned syncs = 0, before = 0;
	uint64_t round = 3;
	pid_t child = traced_start(write_round, &round);
	while (traced_step(child, &status)) {
		long call = traced_call(child);
		syncs += call == SYS_fsync;
		if (traced_is_rename(call))
			before = syncs; /* of the last rename, in the end */
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(before, 7);
	assert_int_equal(syncs, 8);
}

/* ---- A disk that fails ---- */

#ifdef __x86_64__

static void disk_that_fails_at_any_call_leaves_the_old_or_the_new_one(void **state)
{
	(void)state;
	static const int errors[] = {EIO, ENOSPC};
	for (size_t i = 0; i < 2; i++) {
		bool has_failed = true;
		unsigned refused = 0;
		uint64_t round = 2;
		for (unsigned at = 0; has_failed; at++) {
			int status = traced_fail_at(write_round, &round, at, errors[i], &has_failed);
			assert_string_equal(look(), status == 0 ? "round-000002" : "round-000001");
			refused += status != 0;
			forget("round-000002");
		}
		assert_true(refused >= 14); /* folder, 4 files, their syncs, two closes, three renames */
	}
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(killed_at_any_call_the_old_or_the_new_one_loads, one_checkpoint),
		cmocka_unit_test_setup(killed_while_it_replaces_one_of_its_round_a_whole_one_stays, one_checkpoint),
		cmocka_unit_test_setup(everything_is_synced_before_it_has_its_name, one_checkpoint),
#ifdef __x86_64__
		cmocka_unit_test_setup(disk_that_fails_at_any_call_leaves_the_old_or_the_new_one, one_checkpoint),
#endif
	};
	return cmocka_run_group_tests(tests, make_run, remove_run);
}

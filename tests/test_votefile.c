/* A vote on the disk: it reads back, what is damaged is refused, and after a death or a failing disk the old or the new one is
 * there. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/votefile.h"
#include "tests/scratch.h"
#include "tests/traced.h"

enum { CAPACITY = 4, BYTES_MAX = 8192 };

/* A vote with room of its own. */
struct held {
	struct vote vote;
	void *block;
};

static struct line why;

static struct held held_make(uint32_t capacity)
{
	struct held held = {.block = aligned_alloc(64, vote_size(capacity))};
	assert_non_null(held.block);
	memset(held.block, 0xaa, vote_size(capacity));
	vote_init(&held.vote, held.block, capacity);
	return held;
}

static void roster_make(struct roster *roster, uint64_t number, uint32_t count)
{
	roster->number = number;
	roster->count = roster->fanout = count;
	roster->holder = count - 1;
	for (uint32_t i = 0; i < count; i++) {
		char name[SEAT_NAME_BYTES], address[SEAT_ADDRESS_BYTES];
		snprintf(name, sizeof name, "node-%u", i);
		snprintf(address, sizeof address, "tcp://10.0.0.%u:4711", i + 1);
		assert_int_equal(seat_make(name, address, UINT64_MAX - i, 100 + i, &roster->seats[i]), 0);
	}
}

/* The vote of number `of`: 0 has accepted nothing. */
static struct held held_of(uint64_t of)
{
	struct held held = held_make(CAPACITY);
	roster_make(&held.vote.roster, 7, 4);
	held.vote.disk = 0xfedcba9876543210;
	held.vote.is_voter = true;
	held.vote.promised = ballot_make(3 + of, 1);
	if (of == 0)
		return held;
	held.vote.accepted_ballot = ballot_make(2 + of, 3);
	roster_make(&held.vote.accepted, 8, 3);
	return held;
}

static const char *path(void)
{
	return scratch_path("vote-run");
}

static void write_vote(uint64_t of)
{
	struct held held = held_of(of);
	assert_int_equal(votefile_write(path(), &held.vote, &why), 0);
	free(held.block);
}

static int first_vote(void **state)
{
	(void)state;
	write_vote(1);
	return 0;
}

static bool is_equal(const struct vote *a, const struct vote *b)
{
	return a->disk == b->disk && a->is_voter == b->is_voter && a->promised == b->promised &&
	       a->accepted_ballot == b->accepted_ballot && roster_is_equal(&a->roster, &b->roster) &&
	       a->accepted.count == b->accepted.count && (a->accepted.count == 0 || roster_is_equal(&a->accepted, &b->accepted));
}

static int read_into(struct held *held)
{
	why.text[0] = 0;
	return votefile_read(path(), CAPACITY, held->block, &held->vote, &why);
}

/* The file holds the vote of number `of`. */
static bool holds(uint64_t of)
{
	struct held held = held_make(CAPACITY), expected = held_of(of);
	assert_int_equal(read_into(&held), 0);
	bool is_so = is_equal(&held.vote, &expected.vote);
	free(held.block);
	free(expected.block);
	return is_so;
}

static void vote_reads_back(void **state)
{
	(void)state;
	for (uint64_t of = 0; of < 3; of++) {
		write_vote(of);
		assert_true(holds(of));
	}
	struct held held = held_of(1), got = held_make(CAPACITY);
	held.vote.is_voter = false;
	assert_int_equal(votefile_write(path(), &held.vote, &why), 0);
	assert_int_equal(read_into(&got), 0);
	assert_true(is_equal(&got.vote, &held.vote));
	struct stat about;
	assert_int_equal(stat(path(), &about), 0);
	assert_int_equal(about.st_mode & 0777, 0600);
	free(held.block);
	free(got.block);
}

static void vote_of_the_most_members_reads_back(void **state)
{
	(void)state;
	struct held held = held_make(MEMBER_COUNT_MAX), got = held_make(MEMBER_COUNT_MAX);
	roster_make(&held.vote.roster, 1, MEMBER_COUNT_MAX);
	roster_make(&held.vote.accepted, 2, MEMBER_COUNT_MAX);
	held.vote.disk = 1;
	held.vote.promised = held.vote.accepted_ballot = ballot_make(1, MEMBER_COUNT_MAX - 1);
	assert_int_equal(votefile_write(path(), &held.vote, &why), 0);
	assert_int_equal(votefile_read(path(), MEMBER_COUNT_MAX, got.block, &got.vote, &why), 0);
	assert_true(is_equal(&got.vote, &held.vote));
	assert_int_equal(votefile_read(path(), CAPACITY, got.block, &got.vote, &why), EDIT_ERROR_RANGE);
	assert_non_null(strstr(why.text, "of a view of 1024 members, expected at most 4"));
	free(held.block);
	free(got.block);
}

static void no_file_is_told_from_a_bad_one(void **state)
{
	(void)state;
	struct held held = held_of(1), before = held;
	scratch_unlink("vote-run");
	assert_int_equal(read_into(&held), EDIT_ERROR_UNKNOWN);
	assert_memory_equal(&held, &before, sizeof held);
	assert_int_equal(symlink("elsewhere", path()), 0);
	assert_int_equal(read_into(&held), EDIT_ERROR_SYSTEM);
	assert_non_null(strstr(why.text, "vote-run: cannot be read ("));
	scratch_unlink("vote-run");
	free(held.block);
}

/* What stands in the file is refused, and the line tells what to do. */
static void assert_damaged(const void *bytes, size_t size)
{
	struct held held = held_make(CAPACITY), before = held;
	scratch_write("vote-run", bytes, size);
	assert_int_equal(read_into(&held), EDIT_ERROR_MALFORMED);
	assert_memory_equal(&held, &before, sizeof held);
	assert_int_equal(strncmp(why.text, path(), strlen(path())), 0);
	assert_non_null(strstr(why.text, "damaged ("));
	assert_non_null(strstr(why.text, "remove it, and this node joins the ring anew"));
	free(held.block);
}

static size_t load(unsigned char bytes[BYTES_MAX])
{
	int fd = open(path(), O_RDONLY);
	ssize_t size = read(fd, bytes, BYTES_MAX);
	assert_true(size > 0 && size < BYTES_MAX);
	close(fd);
	return (size_t)size;
}

static void every_flipped_byte_is_refused(void **state)
{
	(void)state;
	static unsigned char bytes[BYTES_MAX];
	size_t size = load(bytes);
	for (size_t i = 0; i < size; i++) {
		bytes[i] ^= 1;
		assert_damaged(bytes, size);
		bytes[i] ^= 1;
	}
	scratch_write("vote-run", bytes, size);
	assert_true(holds(1));
}

static void file_that_is_cut_or_longer_is_refused(void **state)
{
	(void)state;
	static unsigned char bytes[BYTES_MAX];
	size_t size = load(bytes);
	for (size_t cut = 0; cut < size; cut++)
		assert_damaged(bytes, cut);
	assert_damaged(bytes, size + 1);
	static unsigned char zeros[1 << 20];
	assert_damaged(zeros, sizeof zeros);
}

/* Right to the last byte of its hash, but it was never said. */
static void vote_that_cannot_be_is_refused(void **state)
{
	(void)state;
	static unsigned char bytes[BYTES_MAX];
	struct held held = held_of(1);
	held.vote.accepted_ballot = ballot_make(9, 0); /* above what is promised */
	assert_int_equal(votefile_write(path(), &held.vote, &why), 0);
	assert_damaged(bytes, load(bytes));
	free(held.block);
}

static void its_path_is_that_of_the_run(void **state)
{
	(void)state;
	struct config config;
	char text[1000], found[CONFIG_PATH_MAX];
	snprintf(text, sizeof text, "[node]\nname = a\nrun = some-run\nstate_dir = %s\n[members]\na = tcp://127.0.0.1:1\n",
		 scratch_path(""));
	assert_int_equal(config_open(scratch_write("editd.conf", text, strlen(text)), &config, &why), 0);
	votefile_path(&config, found);
	assert_int_equal(strncmp(found, config_text(&config, NODE_STATE_DIR), strlen(config_text(&config, NODE_STATE_DIR))), 0);
	assert_string_equal(strrchr(found, '/'), "/vote-some-run");
	config_close(&config);
}

/* ---- Deaths and failures ---- */

static int write_second(void *with)
{
	struct held held = held_of(2);
	(void)with;
	return votefile_write(path(), &held.vote, &why) == 0 ? 0 : 1;
}

static void killed_at_any_call_the_old_or_the_new_vote_is_there(void **state)
{
	(void)state;
	unsigned old = 0, new = 0;
	for (unsigned at = 1; traced_kill_at(write_second, NULL, at); at++) {
		bool is_new = holds(2);
		assert_true(is_new || holds(1));
		old += !is_new;
		new += is_new;
		write_vote(1);
	}
	assert_true(holds(2));
	assert_true(old >= 8); /* in and out of open, write, fsync, close */
	assert_true(new >= 4); /* of opening the folder, its fsync */
}

static void vote_is_synced_before_it_has_its_name_and_its_folder_after(void **state)
{
	(void)state;
	int status;
	unsigned syncs = 0, before = 0, renames = 0;
	pid_t child = traced_start(write_second, NULL);
	while (traced_step(child, &status)) {
		long call = traced_call(child);
		syncs += call == SYS_fsync;
		if (!traced_is_rename(call))
			continue;
		before = syncs;
		renames++;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(renames, 1);
	assert_int_equal(before, 1);
	assert_int_equal(syncs, 2);
}

#ifdef __x86_64__

static void disk_that_fails_at_any_call_leaves_the_old_or_the_new_vote(void **state)
{
	(void)state;
	static const int errors[] = {EIO, ENOSPC};
	for (size_t i = 0; i < 2; i++) {
		bool has_failed = true;
		unsigned refused = 0;
		for (unsigned at = 0; has_failed; at++) {
			int status = traced_fail_at(write_second, NULL, at, errors[i], &has_failed);
			bool is_new = holds(2);
			assert_true(is_new || holds(1));
			/* What was called written is; of what was not either may be there. */
			assert_true(is_new || status != 0);
			refused += status != 0;
			write_vote(1);
		}
		assert_int_equal(refused, 5); /* write, fsync, close, rename, fsync of the folder */
	}
}

#endif

/* There is room for a part of the file: the disk, or what is allowed to this process, is full. */
static int write_without_room(void)
{
	struct held held = held_of(2);
	struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
	if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0)
		return 99;
	int error = votefile_write(path(), &held.vote, &why);
	return error == EDIT_ERROR_SYSTEM && strstr(why.text, "the vote cannot be written (") ? 7 : 98;
}

static void full_disk_leaves_the_old_vote_and_nothing_half(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(write_without_room());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_true(holds(1));
	assert_int_not_equal(access(scratch_path("vote-run.partial"), F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(vote_reads_back, first_vote),
		cmocka_unit_test(vote_of_the_most_members_reads_back),
		cmocka_unit_test(no_file_is_told_from_a_bad_one),
		cmocka_unit_test_setup(every_flipped_byte_is_refused, first_vote),
		cmocka_unit_test_setup(file_that_is_cut_or_longer_is_refused, first_vote),
		cmocka_unit_test(vote_that_cannot_be_is_refused),
		cmocka_unit_test(its_path_is_that_of_the_run),
		cmocka_unit_test_setup(killed_at_any_call_the_old_or_the_new_vote_is_there, first_vote),
		cmocka_unit_test_setup(vote_is_synced_before_it_has_its_name_and_its_folder_after, first_vote),
#ifdef __x86_64__
		cmocka_unit_test_setup(disk_that_fails_at_any_call_leaves_the_old_or_the_new_vote, first_vote),
#endif
		cmocka_unit_test_setup(full_disk_leaves_the_old_vote_and_nothing_half, first_vote),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

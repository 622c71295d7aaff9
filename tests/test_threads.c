/* How many threads the worker may use: by the affinity mask and the quotas of all its control groups, whatever the host has. */

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "worker/threads.h"

static unsigned processors(void)
{
	cpu_set_t set;
	assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
	return (unsigned)CPU_COUNT(&set);
}

/* What is allowed with these texts in cpu.max of /, /a and /a/b, where we are; NULL: no such file. */
static unsigned allowed(const char *root, const char *a, const char *b)
{
	const char *const names[] = {"cpu.max", "a/cpu.max", "a/b/cpu.max"}, *const texts[] = {root, a, b};
	mkdir(scratch_path("a"), 0700);
	mkdir(scratch_path("a/b"), 0700);
	for (size_t i = 0; i < 3; i++) {
		scratch_unlink(names[i]);
		if (texts[i] != NULL)
			scratch_write(names[i], texts[i], strlen(texts[i]));
	}
	static const char membership[] = "1:name=systemd:/old\n0::/a/b\n";
	return threads_allowed_by(scratch_path(""), scratch_write("cgroup", membership, sizeof membership - 1));
}

static void quota_below_the_processors_counts(void **state)
{
	(void)state;
	assert_int_equal(allowed(NULL, NULL, "100000 100000\n"), 1);
	assert_int_equal(allowed(NULL, NULL, "199999 100000\n"), 1);
	assert_int_equal(allowed(NULL, NULL, "20000 100000\n"), 1); /* never none */
	if (processors() > 1)
		assert_int_equal(allowed(NULL, NULL, "100000 50000\n"), 2);
}

static void tightest_quota_on_the_way_up_counts(void **state)
{
	(void)state;
	assert_int_equal(allowed(NULL, "100000 100000\n", "6400000 100000\n"), 1);
	assert_int_equal(allowed("100000 100000\n", "max 100000\n", "max 100000\n"), 1);
}

static void what_sets_no_quota_leaves_the_processors(void **state)
{
	(void)state;
	assert_int_equal(allowed(NULL, NULL, NULL), processors());
	assert_int_equal(allowed("max 100000\n", "max 100000\n", "max 100000\n"), processors());
	assert_int_equal(allowed("", "one two\n", "-5 100000\n"), processors());
	assert_int_equal(allowed(NULL, NULL, "6400000 100000\n"), processors());
	assert_int_equal(threads_allowed_by(scratch_path("lost"), scratch_path("lost")), processors());
}

static void affinity_counts(void **state)
{
	(void)state;
	cpu_set_t before, one;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	CPU_ZERO(&one);
	for (size_t i = CPU_SETSIZE; i-- > 0;)
		if (CPU_ISSET(i, &before)) {
			CPU_SET(i, &one);
			break;
		}
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	assert_int_equal(threads_allowed(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quota_below_the_processors_counts),
		cmocka_unit_test(tightest_quota_on_the_way_up_counts),
		cmocka_unit_test(what_sets_no_quota_leaves_the_processors),
		cmocka_unit_test(affinity_counts),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

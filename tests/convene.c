/* See the header. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/convene.h"

struct assembly *convene(uint32_t count)
{
	struct assembly *world = assembly_open(7, count, 0);
	assembly_begin(world);
	return world;
}

void convene_run(struct assembly *world, uint64_t us)
{
	assembly_run(world, us);
	assert_string_equal(world->fault, "");
}

void convene_end(struct assembly *world)
{
	assert_string_equal(world->fault, "");
	assembly_close(world);
}

void convene_assert_views(const struct assembly *world, const char *expected)
{
	char all[ASSEMBLY_MAX * (ASSEMBLY_MAX + 2)] = "", view[ASSEMBLY_MAX + 1];
	uint32_t count = 1;
	for (const char *at = expected; *at != 0; at++)
		count += *at == ' ';
	for (uint32_t member = 0; member < count; member++) {
		strcat(all, member > 0 ? " " : "");
		strcat(all, assembly_view(world, member, view));
	}
	assert_string_equal(all, expected);
}

void convene_assert_all_together(const struct assembly *world, uint32_t count)
{
	char view[ASSEMBLY_MAX + 1];
	for (uint32_t member = A; member < count; member++) {
		assert_int_equal(strlen(assembly_view(world, member, view)), count);
		assert_int_equal(world->delegates[member].installed, world->highest);
	}
}

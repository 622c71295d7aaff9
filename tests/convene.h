#ifndef EDIT_TESTS_CONVENE_H
#define EDIT_TESTS_CONVENE_H

/* Short words for tests of councils (tests/assembly.h). All fail the test when a law was broken. */

#include "tests/assembly.h"

#define SECOND UINT64_C(1000000)

enum { A, B, C, D, E };

/* A world of so many members, view 1 complete. */
struct assembly *convene(uint32_t count);
/* Lets us microseconds pass. */
void convene_run(struct assembly *world, uint64_t us);
void convene_end(struct assembly *world); /* releases it */
/* The views that the members a, b, ... are in are as expected, with blanks between. */
void convene_assert_views(const struct assembly *world, const char *expected);
/* The first members, and nobody else, are in the highest view. */
void convene_assert_all_together(const struct assembly *world, uint32_t count);

#endif

#ifndef EDIT_TESTS_CREW_H
#define EDIT_TESTS_CREW_H

/* Labs of members that change: rounds that all of a view do, joiners, views that all enter. For tests of core/standing.h and core/heal.h. */

#include "tests/lab.h"

enum { SIZE = 100, LAYERS = 3, CREW_MAX = 8 };

extern const size_t crew_sizes[LAYERS];
/* Members by index: 0, 1, ... */
extern const size_t all[CREW_MAX];

/* Settings of all crews: several chunks per shard, weights by norm only. */
struct ring_settings small_chunks(void);
/* A flat ring that has gathered. The caller frees. */
struct lab *lab_of(size_t count);
struct node_status status_of(const struct lab *lab, size_t member);
/* Its theta takes a step drawn from random. */
void move_member(struct lab *lab, size_t member, unsigned random);
/* These members move and offer: a round, if all of the view do. */
void work(struct lab *lab, const size_t *order, size_t count, unsigned random);
/* They are ready, have completed this round and hold the same to the bit. */
void assert_equal_members(const struct lab *lab, const size_t *order, size_t count, uint64_t round);

/* The member dies when it has sent so many frames of rounds: filter_arg of a lab whose filter is crew_die_after_frames. */
struct crew_death {
	struct lab *lab;
	uint32_t rank;
	size_t after, sent;
};
bool crew_die_after_frames(void *arg, uint32_t from, uint32_t to, const struct message *message);

/* What a member knows that has never been in the run. */
struct node_config joiner(void);
/* Damages all that a member holds. */
void spoil(struct lab *lab, size_t member);
/* All enter a view, new_member with `before` (lab_enter), and have a second to go on. */
void enter_all(struct lab *lab, uint64_t view, const size_t *order, size_t count, size_t new_member,
	       const struct node_config *before);
/* A lab whose member `lost` has died after round 1; the others are in view 2 and have done round 2. */
struct lab *lab_that_lost(size_t count, size_t lost);

#endif

#ifndef EDIT_TESTS_TINY_H
#define EDIT_TESTS_TINY_H

/* Rings whose members hold one number each, the same in every element of every layer, so that a test can be computed by
 * hand. */

#include "tests/lab.h"

/* The standard settings with a method's presets. */
struct ring_settings tiny_settings(enum method method);
/* A ring with them that has said hello. */
struct lab *tiny_ring(enum method method, size_t count, const size_t *sizes, size_t layer_count);
/* numbers [size] := value; all of a member's theta. */
void tiny_fill(float *numbers, size_t size, float value);
void tiny_set_theta(struct lab *lab, size_t n, float value);
/* Time for acknowledgements, without which nothing new is sent. */
void tiny_settle(struct lab *lab);
/* Everybody offers these parameters [count], and has time for a round. */
void tiny_offer(struct lab *lab, const float *thetas);
/* Member 0 proposes a setting. */
void tiny_change(struct lab *lab, enum ring_setting setting, double value);
/* Fail the test unless all numbers are as expected, to 1e-6: some, a member's theta, everybody's anchors. */
void tiny_assert_all(const float *numbers, size_t size, double expected);
void tiny_assert_theta(const struct lab *lab, size_t n, double expected);
void tiny_assert_anchors(const struct lab *lab, double expected);
/* Rounds that a member, or each, has completed. */
uint64_t tiny_round(const struct lab *lab, size_t n);
void tiny_assert_rounds(const struct lab *lab, uint64_t round);
/* On the first layer of the last round, as member 0 has it. */
enum verdict tiny_verdict(const struct lab *lab, uint32_t n);

#endif

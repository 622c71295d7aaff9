#ifndef EDIT_SIM_DICE_H
#define EDIT_SIM_DICE_H

/* Everything random in a simulated world, from one seed: splitmix64 (Steele, Lea, Flood 2014). No function of the mathematics
 * library is used, so that a seed gives the same world on every machine. A struct dice is copied and owned freely. */

#include "core/base.h"

struct dice {
	uint64_t state;
};

/* 64 random bits. */
static inline uint64_t dice_bits(struct dice *dice)
{
	uint64_t x = dice->state += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Dice of their own for one purpose, independent of how often others are thrown. */
static inline struct dice dice_split(struct dice *dice)
{
	return (struct dice){dice_bits(dice)};
}

/* Dice that depend on a seed and two numbers alone: what is drawn for step b of node a is the same whatever came before. */
static inline struct dice dice_at(uint64_t seed, uint64_t a, uint64_t b)
{
	struct dice dice = {seed};
	dice.state = dice_bits(&dice) ^ a;
	dice.state = dice_bits(&dice) ^ b;
	return dice_split(&dice);
}

/* Even in [0, 1). */
static inline double dice_unit(struct dice *dice)
{
	return (double)(dice_bits(dice) >> 11) / 9007199254740992.0;
}

/* A whole number in [low, high], both included. */
static inline uint64_t dice_between(struct dice *dice, uint64_t low, uint64_t high)
{
	return low + dice_bits(dice) % (high - low + 1);
}

/* true with the given probability. */
static inline bool dice_chance(struct dice *dice, double probability)
{
	return dice_unit(dice) < probability;
}

/* A whole number in [low, high] whose order of magnitude is even; low > 0. */
static inline uint64_t dice_magnitude(struct dice *dice, uint64_t low, uint64_t high)
{
	uint64_t doublings = 0;
	for (uint64_t x = low; x < high; x *= 2)
		doublings++;
	uint64_t top = low << dice_between(dice, 0, doublings);
	return u64_min(high, dice_between(dice, low, u64_max(low, top)));
}

/* Bell-shaped, mean 0, variance 1, within [-3.5, 3.5]: four even numbers added. */
static inline double dice_bell(struct dice *dice)
{
	uint64_t bits = dice_bits(dice);
	double sum = (double)(bits & 0xffff) + (double)(bits >> 16 & 0xffff) + (double)(bits >> 32 & 0xffff) +
		     (double)(bits >> 48);
	return (sum / 65536.0 - 2.0) * 1.7320508075688772;
}

#endif

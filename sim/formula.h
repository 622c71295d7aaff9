#ifndef EDIT_SIM_FORMULA_H
#define EDIT_SIM_FORMULA_H

/* The algorithm once more, in plain double precision and in one piece, written from tests/reference/edit_reference.py and not
 * from core/: what the simulator compares every committed layer with. Only a layer's records are taken over. */

#include "core/event.h"

/* A peer's detector for one layer. All zero is the start. */
struct formula_detector {
	double count, mean, var, streak;
	double interval, period; /* sync.interval and sync.period that it has learned at */
};

/* Judges a norm and advances the detector. *ret_z: 0 where it is not defined. */
enum verdict formula_judge(struct formula_detector *detector, const struct ring_settings *settings, double norm,
			   double *ret_z);

/* ret_weights [count] from the records of all peers. Returns how many are accepted. */
size_t formula_weights(const struct record *records, size_t count, const struct ring_settings *settings, double *ret_weights);

/* Whether a round has equal weights and no detector, by the settings in force for it: of gradients, or the alignment for them. */
bool formula_is_equal(const struct ring_settings *settings, uint64_t round);

/* As formula_weights, for such a round. */
size_t formula_equal_weights(const struct record *records, size_t count, double *ret_weights);

/* ||delta||, [size]. */
double formula_norm(const float *delta, size_t size);

/* ret_mean [size]: sum of weights [peers] (0: not looked at) times deltas [peers][size]. Returns the sum of the weighted norms. */
double formula_mean(const float *const *deltas, const double *weights, size_t peers, size_t size, double *ret_mean);

/* One round of one layer: anchor and momentum [size] before it (float32, the same on all members), deltas [peers][size]
 * (pseudo-gradients), weights [peers]. ret_anchor, ret_momentum: double [size] after it. *ret_scale: what a rounding error
 * of float32 is relative to, in the momentum: the norms of everything that was added up. */
void formula_step(const float *anchor, const float *momentum, const float *const *deltas, const double *weights,
		  size_t peers, size_t size, const struct ring_settings *settings, double *ret_anchor,
		  double *ret_momentum, double *ret_scale);

#endif

#ifndef EDIT_CORE_PENALTY_H
#define EDIT_CORE_PENALTY_H

/* The pseudo-gradient penalty: a z-test of each layer's norm by the peer's own detector, and weights that fall with the
 * norm. Pure functions: a judgement returns the detector's next state, and the caller stores it only when the layer commits,
 * so a round that is done again is not judged twice. */

#include "core/event.h"

/* One per member and layer. Running mean and variance of accepted norms: plain (Welford, population variance) for the first
 * `warmup` samples, exponential afterwards. All zero is the start. */
struct detector {
	uint64_t count;
	double mean, var;
	uint64_t streak;   /* outliers in a row */
	double interval;   /* sync.interval, or minus sync.period, of what it has seen: another one is another level of norms */
};

/* What a norm is judged by: the detector as it is, or a fresh one if the interval or period has changed since. Without this, `set
 * sync.interval` to a larger value would make outliers of everybody, and roll rounds back until patience ends. */
struct detector penalty_begin(const struct detector *detector, const struct ring_settings *settings);

/* Standard deviation, sqrt(var). */
double penalty_sd(const struct detector *detector);

/* Judges norm (>= 0, NaN or infinity); detector is what penalty_begin gave. ret_next: the detector's state if the layer commits. ret_z: (norm - mean) / sd, 0
 * while warming up, if var is 0, and for a nonfinite norm (which leaves the detector as it is). Returns VERDICT_ACCEPTED,
 * _OUTLIER or _NONFINITE. Settings used: alpha, threshold, warmup, patience. Formula: tests/reference/edit_reference.py. */
enum verdict penalty_judge(const struct detector *detector, const struct ring_settings *settings, double norm,
			   struct detector *ret_next, double *ret_z);

/* ret_weights[i] = factors[i] exp(-(norms[i] - min) / temperature) / sum over the accepted, 0 for the others; sums in rank
 * order. factors: all 1, or the local steps (> 0). All arrays [count]. Returns how many are accepted (0: all weights are 0). */
size_t penalty_weights(const double *norms, const enum verdict *verdicts, const double *factors, size_t count,
		       double temperature, double *ret_weights);

#endif

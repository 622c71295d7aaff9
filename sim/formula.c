/* See the header. Slow and plain on purpose. */

#include <math.h>
#include <string.h>

#include "sim/formula.h"

enum verdict formula_judge(struct formula_detector *detector, const struct ring_settings *settings, double norm,
			   double *ret_z)
{
	const double warmup = settings->value[PENALTY_WARMUP], alpha = settings->value[PENALTY_ALPHA];
	*ret_z = 0.0;
	double period = settings->value[SYNC_PERIOD], interval = period > 0.0 ? 0.0 : settings->value[SYNC_INTERVAL];
	if (detector->interval != interval || detector->period != period)
		*detector = (struct formula_detector){.interval = interval, .period = period};
	if (isnan(norm) || isinf(norm))
		return VERDICT_NONFINITE;
	if (detector->count >= warmup && detector->var > 0.0)
		*ret_z = (norm - detector->mean) / sqrt(detector->var);
	if (*ret_z > settings->value[PENALTY_THRESHOLD]) {
		detector->streak += 1.0;
		if (detector->streak < settings->value[PENALTY_PATIENCE])
			return VERDICT_OUTLIER;
		detector->count = detector->mean = detector->var = 0.0;
	}
	detector->streak = 0.0;
	detector->count += 1.0;
	double d = norm - detector->mean;
	if (detector->count <= warmup) {
		detector->mean += d / detector->count;
		detector->var += (d * (norm - detector->mean) - detector->var) / detector->count;
	} else {
		detector->mean += alpha * d;
		detector->var = (1.0 - alpha) * (detector->var + alpha * d * d);
	}
	return VERDICT_ACCEPTED;
}

size_t formula_weights(const struct record *records, size_t count, const struct ring_settings *settings, double *ret_weights)
{
	const double temperature = settings->value[PENALTY_TEMPERATURE];
	const bool is_by_steps = settings->value[PENALTY_BY_STEPS] == 1.0;
	double low = INFINITY, sum = 0.0;
	size_t accepted = 0;
	for (size_t n = 0; n < count; n++)
		if (records[n].verdict == VERDICT_ACCEPTED) {
			low = fmin(low, records[n].norm);
			accepted++;
		}
	for (size_t n = 0; n < count; n++) {
		bool takes_part = records[n].verdict == VERDICT_ACCEPTED;
		ret_weights[n] = takes_part ? exp((low - records[n].norm) / temperature) : 0.0;
		if (is_by_steps)
			ret_weights[n] *= (double)u64_max(records[n].steps, 1);
		sum += ret_weights[n];
	}
	for (size_t n = 0; n < count; n++)
		ret_weights[n] = sum > 0.0 ? ret_weights[n] / sum : 0.0;
	return accepted;
}

bool formula_is_equal(const struct ring_settings *settings, uint64_t round)
{
	return settings->value[SYNC_EXCHANGE] == 1.0 || (double)round <= settings->value[SYNC_WARMUP_STEPS];
}

size_t formula_equal_weights(const struct record *records, size_t count, double *ret_weights)
{
	size_t accepted = 0;
	for (size_t n = 0; n < count; n++)
		accepted += records[n].verdict == VERDICT_ACCEPTED;
	for (size_t n = 0; n < count; n++)
		ret_weights[n] = records[n].verdict == VERDICT_ACCEPTED ? 1.0 / (double)accepted : 0.0;
	return accepted;
}

double formula_norm(const float *delta, size_t size)
{
	double sum = 0.0;
	for (size_t i = 0; i < size; i++)
		sum += (double)delta[i] * (double)delta[i];
	return sqrt(sum);
}

double formula_mean(const float *const *deltas, const double *weights, size_t peers, size_t size, double *ret_mean)
{
	double magnitude = 0.0;
	memset(ret_mean, 0, size * sizeof *ret_mean);
	for (size_t n = 0; n < peers; n++) {
		if (weights[n] <= 0.0)
			continue;
		for (size_t i = 0; i < size; i++)
			ret_mean[i] += weights[n] * (double)deltas[n][i];
		magnitude += weights[n] * formula_norm(deltas[n], size);
	}
	return magnitude;
}

static double length(const double *x, size_t size)
{
	double sum = 0.0;
	for (size_t i = 0; i < size; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

void formula_step(const float *anchor, const float *momentum, const float *const *deltas, const double *weights,
		  size_t peers, size_t size, const struct ring_settings *settings, double *ret_anchor,
		  double *ret_momentum, double *ret_scale)
{
	const double m = settings->value[OUTER_MOMENTUM], lr = settings->value[OUTER_LR];
	double *mean = ret_anchor; /* turned into the anchor at the end */
	double magnitude = formula_mean(deltas, weights, peers, size, mean), before = 0.0;
	double clip = fmin(1.0, settings->value[PENALTY_CLIP] / (length(mean, size) + 1e-6));
	for (size_t i = 0; i < size; i++) {
		double g = clip * mean[i];
		before += (double)momentum[i] * (double)momentum[i];
		ret_momentum[i] = m * (double)momentum[i] + g;
		ret_anchor[i] = (double)anchor[i] - lr * (g + m * ret_momentum[i]);
	}
	*ret_scale = sqrt(before) + clip * magnitude;
}

/* The pseudo-gradient penalty: detector and weights. See the header; the rules are those of
 * tests/reference/edit_reference.py, number for number. Keeps nothing between calls. */

#include <math.h>

#include "core/penalty.h"

double penalty_sd(const struct detector *detector)
{
	return sqrt(detector->var);
}

struct detector penalty_begin(const struct detector *detector, const struct ring_settings *settings)
{
	double period = settings->value[SYNC_PERIOD];
	double interval = period > 0 ? -period : settings->value[SYNC_INTERVAL];
	return detector->interval == interval ? *detector : (struct detector){.interval = interval};
}

static double zscore(const struct detector *detector, double warmup, double norm)
{
	if ((double)detector->count < warmup || detector->var <= 0.0)
		return 0.0;
	return (norm - detector->mean) / penalty_sd(detector);
}

/* Takes an accepted norm into mean and variance. */
static void detector_learn(struct detector *detector, double warmup, double alpha, double norm)
{
	detector->streak = 0;
	detector->count++;
	double before = norm - detector->mean;
	if ((double)detector->count <= warmup) {
		double count = (double)detector->count;
		detector->mean += before / count;
		detector->var += (before * (norm - detector->mean) - detector->var) / count;
	} else {
		detector->mean += alpha * before;
		detector->var = (1.0 - alpha) * (detector->var + alpha * before * before);
	}
}

enum verdict penalty_judge(const struct detector *detector, const struct ring_settings *settings, double norm,
			   struct detector *ret_next, double *ret_z)
{
	const double warmup = settings->value[PENALTY_WARMUP];
	struct detector next = *detector;
	enum verdict verdict = VERDICT_ACCEPTED;
	double z = 0.0;

	if (!isfinite(norm)) {
		verdict = VERDICT_NONFINITE;
	} else {
		z = zscore(detector, warmup, norm);
		if (z > settings->value[PENALTY_THRESHOLD]) {
			next.streak++;
			if ((double)next.streak < settings->value[PENALTY_PATIENCE])
				verdict = VERDICT_OUTLIER;
			else
				next = (struct detector){.interval = next.interval}; /* the level itself has moved: learn it anew */
		}
		if (verdict == VERDICT_ACCEPTED)
			detector_learn(&next, warmup, settings->value[PENALTY_ALPHA], norm);
	}
	*ret_next = next;
	*ret_z = z;
	return verdict;
}

size_t penalty_weights(const double *norms, const enum verdict *verdicts, const double *factors, size_t count,
		       double temperature, double *ret_weights)
{
	size_t accepted = 0;
	double low = 0.0, sum = 0.0;

	for (size_t i = 0; i < count; i++)
		if (verdicts[i] == VERDICT_ACCEPTED && (accepted++ == 0 || norms[i] < low))
			low = norms[i];
	for (size_t i = 0; i < count; i++) {
		ret_weights[i] = verdicts[i] == VERDICT_ACCEPTED ? factors[i] * exp(-(norms[i] - low) / temperature) : 0.0;
		sum += ret_weights[i];
	}
	for (size_t i = 0; i < count && accepted > 0; i++)
		ret_weights[i] /= sum;
	return accepted;
}

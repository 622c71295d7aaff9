#ifndef EDIT_TESTS_REFERENCE_EDIT_H
#define EDIT_TESTS_REFERENCE_EDIT_H

/* tests/vectors/edit.json in memory: short histories of rounds with every input and every expected number, in double
 * precision, made by tests/reference/edit_reference.py. For tests only: a damaged file ends the program. */

#include "core/penalty.h"

#define REFERENCE_EDIT_PATH "tests/vectors/edit.json" /* tests run at the root of the tree */

/* One layer in one round. Arrays [peers] by rank; NaN stands for a z that is not defined. */
struct reference_layer {
	const double *const *theta; /* [peers][size] offered; may hold NaN and infinities */
	const double *norm;
	const double *z;
	const enum verdict *verdict;
	const double *weight;
	double mean_norm, scale;
	bool stepped;                    /* at least one accepted */
	const double *anchor, *momentum; /* [size] after the round */
	const struct detector *detector; /* after the round */
};

struct reference_case {
	const char *name;
	size_t peers, layer_count, round_count;
	const size_t *sizes;                /* [layer_count] */
	struct ring_settings settings;      /* standard, except what the case sets */
	const double *const *anchor0;       /* [layer_count][size]; momentum starts as zeros */
	const struct reference_layer *layers; /* [round_count][layer_count]: see reference_layer_at */
};

struct reference_edit {
	double eps;
	size_t case_count;
	const struct reference_case *cases;
};

/* Loads path; the caller frees. */
struct reference_edit *reference_edit_load(const char *path);
void reference_edit_free(struct reference_edit *reference);

/* Numbers of a layer in a round; round_index from 0. */
const struct reference_layer *reference_layer_at(const struct reference_case *history, size_t round_index, size_t layer_index);

/* ret_x[i] = (float)x[i], arrays [count]. */
void reference_floats(float *ret_x, const double *x, size_t count);

/* ||x - expected|| / max(||expected||, floor), arrays [count], in double. */
double reference_error(const float *x, const double *expected, size_t count, double floor);

#endif

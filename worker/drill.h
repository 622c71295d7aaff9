#ifndef EDIT_WORKER_DRILL_H
#define EDIT_WORKER_DRILL_H

/* Rehearsals: an operator can let one worker misbehave at a step that is known beforehand, and see what the ring, the
 * log and editctl make of it.
 *
 *     KIND@STEP[xFACTOR][+COUNT]     from the step with that number (the first is 1), for COUNT steps
 */

#include "core/base.h"

/* kind, name, factor unless given, help */
#define DRILLS(X)                                                                                                      \
	X(DRILL_NAN, "nan", 1, "after the step, a parameter in the middle of the model becomes NaN")                       \
	X(DRILL_SCALE, "scale", 100, "the step moves the parameters FACTOR (100) times as far")                            \
	X(DRILL_SLOW, "slow", 4, "the step takes FACTOR (4) times as long")

enum drill_kind {
#define X(id, text, factor, help) id,
	DRILLS(X)
#undef X
	DRILL_KIND_COUNT
};

enum { DRILL_COUNT_MAX = 16 }; /* drills of one run */

struct drill {
	enum drill_kind kind;
	uint64_t step, count; /* steps [step, step + count), numbered from 1 */
	double factor;
};

/* Reads one; EDIT_ERROR_INVALID if the text is none (ret_drill is untouched). */
int drill_read(const char *text, struct drill *ret_drill);

/* Whether the step with that number is one of a drill of that kind among drills [count]; ret_factor: the product of
 * their factors, 1 if there is none. */
bool drill_is_on(const struct drill *drills, size_t count, enum drill_kind kind, uint64_t step, double *ret_factor);

#endif

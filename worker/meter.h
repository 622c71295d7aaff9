#ifndef EDIT_WORKER_METER_H
#define EDIT_WORKER_METER_H

/* A bar with the time left, for a person at a terminal: on standard error if that is one, otherwise nowhere. Uses the real
 * clock, and tells nobody else what it says. */

#include "core/base.h"

struct meter {
	bool is_on;
	uint64_t begin_us, shown_us; /* of the real clock */
};

/* Begins; draws nothing yet. */
void meter_begin(struct meter *meter);
/* Draws the part that is done, 0 to 1, if the last time was a while ago. */
void meter_show(struct meter *meter, double part);
/* Wipes the bar. */
void meter_end(struct meter *meter);
/* Real seconds since it began. */
double meter_seconds(const struct meter *meter);

#endif

#ifndef EDIT_SIM_CLUSTER_H
#define EDIT_SIM_CLUSTER_H

/* The machines of a scenario in virtual time: the third driver of node_step. A message takes the slower of two neighbours'
 * links and waits until the line is free; nothing is lost. The run ends with the round in which the budget is used up. */

#include "sim/report.h"

/* Called now and then with the part of the budget that is used, 0 to 1. */
typedef void cluster_watch(void *arg, double part);

/* Runs the scenario to its end, from the first hello on. tuition: NULL for times only. false: the members' states differ,
 * nothing moves any more, or the model cannot be written; why is one line. */
bool cluster_run(const struct scenario *scenario, struct tuition *tuition, struct report *report, cluster_watch *watch,
		 void *arg, struct line *why);

#endif

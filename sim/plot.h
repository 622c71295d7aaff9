#ifndef EDIT_SIM_PLOT_H
#define EDIT_SIM_PLOT_H

/* Pictures of a report by gnuplot: loss over tokens, loss over time, and each node's time, as SVG and PNG. */

#include "sim/scenario.h"

/* The last thing that the program does: it becomes gnuplot, which draws into the folder of a closed report; loss only if
 * has_loss. The script stays there as plot.gp. Returns only on failure: EDIT_ERROR_SYSTEM with one line in why. */
int plot_draw(const char *folder, const struct scenario *scenario, bool has_loss, struct line *why);

#endif

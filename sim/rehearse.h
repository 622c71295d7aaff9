#ifndef EDIT_SIM_REHEARSE_H
#define EDIT_SIM_REHEARSE_H

/* `edit-sim rehearse`: a recorded ring under other settings, from the trace to the table. */

/* Parses argv, of which argv[0] is named "edit-sim rehearse", runs, prints. Returns the exit status; ends the program with 2 and
 * one line if the command line is wrong. */
int rehearse_main(int argc, char **argv);

#endif

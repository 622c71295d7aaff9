#ifndef EDIT_SIM_STUDY_H
#define EDIT_SIM_STUDY_H

/* `edit-sim run`: one scenario from its file to its report. */

/* Parses argv, of which argv[0] is named "edit-sim run", runs, prints. Returns the exit status; ends the program with 2 and
 * one line if the command line is wrong. */
int study_main(int argc, char **argv);

#endif

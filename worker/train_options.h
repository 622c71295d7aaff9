#ifndef EDIT_WORKER_TRAIN_OPTIONS_H
#define EDIT_WORKER_TRAIN_OPTIONS_H

/* The command line of edit-worker train. */

#include "worker/adamw.h"
#include "worker/corpus.h"
#include "worker/drill.h"

struct train_options {
	const char *socket_path, *model, *run;
	const char *data;
	struct corpus_options corpus;  /* vocab_size is left to the model; context 0: as the model allows, up to 256 */
	uint64_t step_count;           /* of the run; training ends after them */
	unsigned batch, accumulate;    /* sequences at once; micro batches of a step */
	struct adamw adamw;
	struct schedule schedule;      /* complete: defaults are filled in */
	uint64_t seed;                 /* of initial parameters and of the order of samples */
	unsigned threads;
	double wait_s;                 /* for a daemon; infinity: for ever */
	double log_interval_s;
	struct drill drills[DRILL_COUNT_MAX]; /* [drill_count] */
	size_t drill_count;
};

/* Reads argv into *ret_options, whose texts point into argv. Ends the program with status 2 and one line if something
 * is wrong, with 0 for --help and --version. */
void train_options_read(int argc, char **argv, struct train_options *ret_options);

#endif

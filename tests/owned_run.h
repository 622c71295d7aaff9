#ifndef EDIT_TESTS_OWNED_RUN_H
#define EDIT_TESTS_OWNED_RUN_H

/* A run of one member in the scratch folder, made by the same calls as in the daemon, for tests of what works on a run. */

#include "daemon/run.h"

struct owned_run {
	struct config config;
	struct run run;
};

/* Makes the scratch folder and in it a run of two layers, "first" of size elements (a multiple of 1024) that count up from 0,
 * and "second" of three zeros; inner state is twice as large. checkpoint.keep is 2. 0, or an error (what it was is printed). */
int owned_run_make(struct owned_run *owned, size_t size);
/* The same for a member of a mesh of one replica, which holds the piece `column` of `shards` (up to 26) of each layer. */
int owned_run_make_piece(struct owned_run *owned, size_t size, unsigned column, unsigned shards);
/* Closes the run and removes the folder. */
int owned_run_remove(struct owned_run *owned);

#endif

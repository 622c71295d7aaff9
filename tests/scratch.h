#ifndef EDIT_TESTS_SCRATCH_H
#define EDIT_TESTS_SCRATCH_H

/* A folder for the files that a test makes, gone when it ends. */

#include <stddef.h>

/* Setup and teardown for cmocka_run_group_tests: the folder, and everything in it. */
int scratch_make(void **state);
int scratch_remove(void **state);

/* Path of `name` in the folder; the text of the last eight calls stays valid. "" is the folder itself. */
const char *scratch_path(const char *name);

/* Makes or replaces the file `name`; returns its path as above. */
const char *scratch_write(const char *name, const void *bytes, size_t size);

/* Removes the file `name`, if it is there. */
void scratch_unlink(const char *name);

#endif

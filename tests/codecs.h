#ifndef EDIT_TESTS_CODECS_H
#define EDIT_TESTS_CODECS_H

/* Two codecs for the tests of frames: one that reads or writes, and another. */

#include "proto/codec.h"

extern struct codec *codec, *other;

/* Setup and teardown for cmocka_run_group_tests. */
int codecs_make(void **state);
int codecs_free(void **state);

#endif

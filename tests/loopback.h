#ifndef EDIT_TESTS_LOOPBACK_H
#define EDIT_TESTS_LOOPBACK_H

/* Addresses of this host for sockets that a test opens. */

#include <stddef.h>

enum { LOOPBACK_BYTES = 64 };

/* Finds `count` addresses of this host, for TCP, no two alike and free when they were looked for.
 * -1: a socket cannot be had, or more than 16 are asked for. */
int loopback_find(char addresses[][LOOPBACK_BYTES], size_t count);

#endif

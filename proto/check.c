/* The end of a program whose CHECK failed: says where and aborts, so that systemd keeps the core and restarts. */

#include <stdio.h>
#include <stdlib.h>

#include "core/base.h"

void check_failed(const char *condition, const char *file, int line)
{
	fprintf(stderr, "<0>%s:%d: check failed: %s\n", file, line, condition);
	abort();
}

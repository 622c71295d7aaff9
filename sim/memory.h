#ifndef EDIT_SIM_MEMORY_H
#define EDIT_SIM_MEMORY_H

/* Memory of the simulator, which has nothing to do without it: the program ends if there is none. */

#include <stdlib.h>

#include "core/base.h"

/* count x size bytes, all zero; never NULL, also for count 0. The caller frees. */
static inline void *memory_take(size_t count, size_t size)
{
	void *block = calloc(size_max(count, 1), size);
	CHECK(block != NULL);
	return block;
}

#endif

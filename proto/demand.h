#ifndef EDIT_PROTO_DEMAND_H
#define EDIT_PROTO_DEMAND_H

/* How a codec's take_... functions refuse: they return the name of the field that is wrong, NULL if none is. */

#include "proto/codec.h"

/* Refuses unless condition. */
#define DEMAND(condition, field)                                                                                       \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			return (field);                                                                                            \
	} while (0)

static inline bool is_number(uint64_t number)
{
	return number < CODEC_NUMBER_END;
}

#endif

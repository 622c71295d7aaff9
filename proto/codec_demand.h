#ifndef EDIT_PROTO_CODEC_DEMAND_H
#define EDIT_PROTO_CODEC_DEMAND_H

/* What the checks of the codec's files share. Each take_... returns NULL, or the name of the field that is wrong. */

#include <math.h>

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

/* Neither NaN nor infinity nor negative. */
static inline bool is_amount(double number)
{
	return isfinite(number) && number >= 0;
}

#endif

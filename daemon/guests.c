/* Counting frames. */

#include "daemon/guests.h"

#include <string.h>

enum { SECOND_US = 1000000 };

bool guests_admit(struct guests *guests, const char *name, uint64_t now_us)
{
	if (now_us - guests->begin_us >= SECOND_US) {
		guests->begin_us = now_us;
		guests->strangers = guests->count = 0;
	}
	uint32_t at = 0;
	while (name && at < guests->count && strcmp(guests->list[at].name, name) != 0)
		at++;
	if (!name || at == MEMBER_COUNT_MAX)
		return guests->strangers++ < STRANGER_FRAMES;
	if (at == guests->count) {
		guests->count++;
		strncpy(guests->list[at].name, name, SEAT_NAME_BYTES - 1);
		guests->list[at].frames = 0;
	}
	return guests->list[at].frames++ < GUEST_FRAMES;
}

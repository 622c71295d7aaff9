/* See the header. */

#include "worker/meter.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 40, PAUSE_US = 200000 };

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void meter_begin(struct meter *meter)
{
	uint64_t now = now_us();
	*meter = (struct meter){.is_on = isatty(STDERR_FILENO), .begin_us = now, .shown_us = now};
}

double meter_seconds(const struct meter *meter)
{
	return 1e-6 * (double)(now_us() - meter->begin_us);
}

void meter_show(struct meter *meter, double part)
{
	if (!meter->is_on || now_us() - meter->shown_us < PAUSE_US)
		return;
	meter->shown_us = now_us();
	int full = (int)(part * BAR_WIDTH);
	fprintf(stderr, "\r[");
	for (int i = 0; i < BAR_WIDTH; i++)
		fputc(i < full ? '=' : ' ', stderr);
	fprintf(stderr, "] %3.0f %%", 100 * part);
	unsigned left_s = part > 0.001 ? (unsigned)(meter_seconds(meter) * (1 - part) / part) : 0;
	if (part > 0.001)
		fprintf(stderr, ", %u:%02u left ", left_s / 60, left_s % 60);
	fflush(stderr);
}

void meter_end(struct meter *meter)
{
	if (meter->is_on)
		fprintf(stderr, "\r\033[K");
}

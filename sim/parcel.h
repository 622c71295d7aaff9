#ifndef EDIT_SIM_PARCEL_H
#define EDIT_SIM_PARCEL_H

/* A message on its way, and the roads between neighbours: latency, jitter, bandwidth with a queue, loss, repetition, overtaking. */

#include "core/event.h"
#include "sim/dice.h"

/* A deep copy of a message, made when it was sent. One block; the receiver of the pointer frees it with free(). */
struct parcel {
	struct message message;
	const void *source; /* the sender's own payload */
	uint32_t sender;    /* its number in the world, set by the world */
};

/* Copies a message with payload, facts and texts. */
struct parcel *parcel_new(const struct message *message);
/* Bytes that a message takes on the wire: payload and a header. */
size_t parcel_size(const struct message *message);

/* One direction between two neighbours. */
struct road {
	uint64_t latency_us, jitter_us;
	uint64_t bytes_per_second;
	double loss, repeat, overtake; /* probability of each message */
	uint64_t busy_until_us;        /* the line is taken by what was sent before */
	uint64_t last_arrival_us;      /* keeps the order, but for overtaking */
	uint64_t cut_until_us;         /* swallows everything until then */
};

/* When a message of size_bytes sent at now_us arrives; advances the road's queue. *ret_overtakes: it does not keep the order. */
uint64_t road_send(struct road *road, struct dice *dice, uint64_t now_us, size_t size_bytes, bool *ret_overtakes);

#endif

/* Copies of messages and their travel times. */

#include <stdlib.h>
#include <string.h>

#include "sim/parcel.h"

enum { HEADER_BYTES = 96 };

static size_t text_bytes(const char *text)
{
	return text == NULL ? 0 : strlen(text) + 1;
}

static size_t hello_bytes(const struct hello *hello)
{
	size_t bytes = text_bytes(hello->name);
	for (size_t i = 0; i < hello->fact_count; i++)
		bytes += text_bytes(hello->facts[i].key) + text_bytes(hello->facts[i].value);
	return bytes;
}

size_t parcel_size(const struct message *message)
{
	size_t more = message->kind == MESSAGE_HELLO ? hello_bytes(&message->hello) : 0;
	if (message->kind == MESSAGE_STANDING)
		more = sizeof *message->standing;
	return HEADER_BYTES + message->payload_bytes + more;
}

static char *put_text(char **at, const char *text)
{
	char *begin = *at;
	size_t bytes = text_bytes(text);
	memcpy(begin, text, bytes);
	*at += bytes;
	return begin;
}

struct parcel *parcel_new(const struct message *message)
{
	size_t facts = message->kind == MESSAGE_HELLO ? message->hello.fact_count : 0;
	size_t texts = message->kind == MESSAGE_HELLO ? hello_bytes(&message->hello) : 0;
	const size_t standing = message->kind == MESSAGE_STANDING ? sizeof *message->standing : 0;
	struct parcel *parcel = malloc(sizeof *parcel + standing + facts * sizeof(struct fact) + texts + message->payload_bytes + 1);
	CHECK(parcel != NULL);
	parcel->message = *message;
	parcel->source = message->payload;

	struct fact *copies = (struct fact *)(parcel + 1);
	char *at = (char *)(copies + facts);
	if (message->kind == MESSAGE_HELLO) {
		parcel->message.hello.name = put_text(&at, message->hello.name);
		parcel->message.hello.facts = copies;
		for (size_t i = 0; i < facts; i++) {
			copies[i].key = put_text(&at, message->hello.facts[i].key);
			copies[i].value = put_text(&at, message->hello.facts[i].value);
		}
	}
	if (standing > 0) {
		memcpy(parcel + 1, message->standing, standing);
		parcel->message.standing = (const struct standing *)(parcel + 1);
	}
	if (message->payload_bytes > 0) {
		/* At an odd address: what the core must cope with. */
		at += (uintptr_t)at % 2 == 0;
		memcpy(at, message->payload, message->payload_bytes);
		parcel->message.payload = at;
	}
	return parcel;
}

uint64_t road_send(struct road *road, struct dice *dice, uint64_t now_us, size_t size_bytes, bool *ret_overtakes)
{
	uint64_t begin = u64_max(now_us, road->busy_until_us);
	road->busy_until_us = begin + size_bytes * 1000000 / road->bytes_per_second;
	uint64_t arrival = road->busy_until_us + road->latency_us;
	if (road->jitter_us > 0)
		arrival += dice_between(dice, 0, road->jitter_us);
	*ret_overtakes = dice_chance(dice, road->overtake);
	if (*ret_overtakes)
		return arrival + dice_between(dice, 0, 4 * (road->latency_us + 1000));
	road->last_arrival_us = u64_max(arrival, road->last_arrival_us);
	return road->last_arrival_us;
}

/* See the header. Owns nothing. */

#include "daemon/consent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_RUN "restart of run"
#define KEY_STAGE "restart stage"
#define KEY_CAUSE "restart cause"
#define KEY_HELD "restart round"

void consent_init(struct consent *consent, uint32_t member_count, const uint32_t *neighbours, size_t neighbour_count,
		  const struct consent_entry *held, size_t held_count, bool is_last_word)
{
	CHECK(neighbour_count <= CONSENT_NEIGHBOURS_MAX);
	*consent = (struct consent){.stage_count = member_count, .neighbour_count = neighbour_count};
	struct consent_list *own = &consent->begin;
	own->held_count = size_min(held_count, CONSENT_HELD_MAX);
	own->stage = is_last_word || neighbour_count == 0 ? member_count : 0;
	for (size_t i = 0; i < own->held_count; i++)
		own->held[i] = held[i];
	for (size_t i = 0; i < neighbour_count; i++)
		consent->neighbours[i].rank = neighbours[i];
	consent->own = consent->begin;
}

static bool list_has(const struct consent_list *list, const struct consent_entry *entry)
{
	for (size_t i = 0; i < list->held_count; i++)
		if (list->held[i].round == entry->round && list->held[i].hash == entry->hash)
			return true;
	return false;
}

/* What a neighbour has, in words, up to a few entries. */
static void tell_held(const struct consent_list *list, char *text, size_t size)
{
	size_t used = 0;
	if (list->held_count == 1 && list->held[0].round == 0) {
		snprintf(text, size, "begins anew, without a checkpoint");
		return;
	}
	if (list->held_count == 0) {
		snprintf(text, size, "holds nothing to go on from");
		return;
	}
	for (size_t i = 0; i < list->held_count && i < 4 && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i == 0 ? "holds round " : ", ", list->held[i].round);
}

/* Takes out of the own list what the neighbour has not. */
static bool intersect(struct consent_list *own, const char *name, const struct consent_list *other)
{
	char before[80], there[80];
	size_t count = 0, had = own->held_count;
	tell_held(own, before, sizeof before);
	for (size_t i = 0; i < own->held_count; i++)
		if (list_has(other, &own->held[i]))
			own->held[count++] = own->held[i];
	own->held_count = count;
	if (had > 0 && count == 0) {
		tell_held(other, there, sizeof there);
		snprintf(own->cause, sizeof own->cause, "%.63s %s; up to there, everybody %s", name, there, before);
	}
	return count != had;
}

/* As many stages on as the neighbours' allow. */
static bool advance(struct consent *consent)
{
	uint64_t stage = consent->stage_count;
	for (size_t i = 0; i < consent->neighbour_count; i++) {
		const struct consent_neighbour *neighbour = &consent->neighbours[i];
		stage = neighbour->is_heard ? u64_min(stage, neighbour->list.stage + 1) : 0;
		if (!neighbour->is_heard)
			break;
	}
	if (stage <= consent->own.stage)
		return false;
	consent->own.stage = stage;
	return true;
}

bool consent_hear(struct consent *consent, uint32_t rank, const char *name, const struct consent_list *list)
{
	bool is_last_word = consent->begin.stage == consent->stage_count;
	for (size_t i = 0; i < consent->neighbour_count && !is_last_word; i++) {
		struct consent_neighbour *neighbour = &consent->neighbours[i];
		if (neighbour->rank != rank)
			continue;
		/* Somebody has found nothing in common: all begin again, and that one too. */
		neighbour->is_heard = list->held_count > 0;
		neighbour->list = *list;
		if (list->held_count == 0) {
			memcpy(consent->own.cause, list->cause, sizeof list->cause);
			return false;
		}
		bool is_new = intersect(&consent->own, name, list);
		return advance(consent) || is_new;
	}
	return false;
}

void consent_restart(struct consent *consent)
{
	consent->own = consent->begin;
	for (size_t i = 0; i < consent->neighbour_count; i++)
		consent->neighbours[i].is_heard = false;
}

bool consent_is_agreed(const struct consent *consent, struct consent_entry *ret_entry)
{
	const struct consent_list *own = &consent->own;
	if (own->stage < consent->stage_count || own->held_count == 0)
		return false;
	*ret_entry = own->held[0];
	for (size_t i = 1; i < own->held_count; i++)
		if (own->held[i].round > ret_entry->round)
			*ret_entry = own->held[i];
	return true;
}

const char *consent_failure(const struct consent *consent)
{
	return consent->own.cause[0] ? consent->own.cause : NULL;
}

uint32_t consent_waits_for(const struct consent *consent)
{
	for (size_t i = 0; i < consent->neighbour_count; i++) {
		const struct consent_neighbour *neighbour = &consent->neighbours[i];
		if (!neighbour->is_heard || (consent->own.stage < consent->stage_count && neighbour->list.stage < consent->own.stage))
			return neighbour->rank;
	}
	return UINT32_MAX;
}

/* ---- Hellos ---- */

static void add(const char *key, const char *value, char texts[CONSENT_FACTS_MAX][2][FACT_TEXT_MAX + 1],
		struct fact facts[CONSENT_FACTS_MAX], size_t *count)
{
	CHECK(*count < CONSENT_FACTS_MAX);
	snprintf(texts[*count][0], FACT_TEXT_MAX + 1, "%s", key);
	snprintf(texts[*count][1], FACT_TEXT_MAX + 1, "%s", value);
	facts[*count] = (struct fact){texts[*count][0], texts[*count][1]};
	++*count;
}

size_t consent_facts(const struct consent_list *list, const char *run, char texts[CONSENT_FACTS_MAX][2][FACT_TEXT_MAX + 1],
		     struct fact facts[CONSENT_FACTS_MAX])
{
	char value[64];
	size_t count = 0;
	add(KEY_RUN, run, texts, facts, &count);
	snprintf(value, sizeof value, "%" PRIu64, list->stage);
	add(KEY_STAGE, value, texts, facts, &count);
	if (list->held_count == 0)
		add(KEY_CAUSE, list->cause, texts, facts, &count);
	for (size_t i = 0; i < list->held_count; i++) {
		snprintf(value, sizeof value, "%" PRIu64 " %016" PRIx64, list->held[i].round, list->held[i].hash);
		add(KEY_HELD, value, texts, facts, &count);
	}
	return count;
}

bool consent_is_hello(const struct hello *hello)
{
	return hello->fact_count > 0 && strcmp(hello->facts[0].key, KEY_RUN) == 0;
}

/* A number of up to 15 decimal digits at text, up to the character `end`. */
static bool read_number(const char *text, char end, uint64_t *ret_number)
{
	size_t digits = strspn(text, "0123456789");
	if (digits == 0 || digits > 15 || text[digits] != end)
		return false;
	*ret_number = strtoull(text, NULL, 10);
	return true;
}

static bool read_held(const char *text, struct consent_entry *ret_entry)
{
	if (!read_number(text, ' ', &ret_entry->round))
		return false;
	text = strchr(text, ' ') + 1;
	if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	ret_entry->hash = strtoull(text, NULL, 16);
	return true;
}

int consent_read(const struct hello *hello, const char *run, struct consent_list *ret_list, struct line *why)
{
	struct consent_list list = {0};
	if (!consent_is_hello(hello) || hello->fact_count < 2 || hello->fact_count > CONSENT_FACTS_MAX ||
	    strcmp(hello->facts[1].key, KEY_STAGE) != 0 || !read_number(hello->facts[1].value, 0, &list.stage))
		return line_fail(why, EDIT_ERROR_MALFORMED, "a hello about restarting that cannot be read");
	if (strcmp(hello->facts[0].value, run) != 0)
		return line_fail(why, EDIT_ERROR_REFUSED, "it restarts run %s, here is run %s", hello->facts[0].value, run);
	for (size_t i = 2; i < hello->fact_count; i++) {
		const struct fact *fact = &hello->facts[i];
		if (strcmp(fact->key, KEY_CAUSE) == 0)
			snprintf(list.cause, sizeof list.cause, "%s", fact->value);
		else if (strcmp(fact->key, KEY_HELD) != 0 || list.held_count == CONSENT_HELD_MAX ||
			 !read_held(fact->value, &list.held[list.held_count++]))
			return line_fail(why, EDIT_ERROR_MALFORMED, "a hello about restarting that cannot be read");
	}
	*ret_list = list;
	return 0;
}

/* A short memory of changes. Owns nothing; decides nothing. */

#include "daemon/changes.h"

#include <stdio.h>

#include "proto/setting.h"

struct change_entry *changes_find(struct changes *changes, uint64_t id)
{
	size_t count = changes->count < CHANGE_LOG_MAX ? (size_t)changes->count : CHANGE_LOG_MAX;
	for (size_t i = 0; i < count; i++)
		if (changes->entries[i].change.id == id)
			return &changes->entries[i];
	return NULL;
}

void changes_add(struct changes *changes, const struct change *change, double before)
{
	if (changes_find(changes, change->id))
		return;
	struct change_entry *entry = &changes->entries[changes->count++ % CHANGE_LOG_MAX];
	*entry = (struct change_entry){.change = *change, .before = before, .state = CHANGE_PROPOSED};
}

void changes_note(struct changes *changes, const struct note *note)
{
	if (note->code != NOTE_CHANGE_HELD && note->code != NOTE_CHANGE_TAKEN && note->code != NOTE_CHANGE_DROPPED)
		return;
	struct change_entry *entry = changes_find(changes, note->a);
	if (!entry)
		return;
	if (note->code == NOTE_CHANGE_HELD)
		entry->state = CHANGE_HELD;
	else if (note->code == NOTE_CHANGE_DROPPED)
		entry->state = CHANGE_DROPPED;
	else {
		entry->state = CHANGE_IN_FORCE;
		entry->round = note->round;
	}
}

/* Whether a takes effect before b does: by round (0: as soon as may be), among those of a round by id. */
static bool is_before(const struct change *a, const struct change *b)
{
	return a->at_round != b->at_round ? a->at_round < b->at_round : a->id < b->id;
}

/* Of the settings under way that which takes effect next after last (NULL: first of all); NULL if there is none. */
static const struct change *next_set(const struct changes *changes, const struct change *last)
{
	const struct change *next = NULL;
	size_t count = changes->count < CHANGE_LOG_MAX ? (size_t)changes->count : CHANGE_LOG_MAX;
	for (size_t i = 0; i < count; i++) {
		const struct change_entry *entry = &changes->entries[i];
		const struct change *change = &entry->change;
		bool is_ahead = entry->state == CHANGE_PROPOSED || entry->state == CHANGE_HELD;
		if (is_ahead && change->kind == CHANGE_SET && (!last || is_before(last, change)) &&
		    (!next || is_before(change, next)))
			next = change;
	}
	return next;
}

void changes_foresee(const struct changes *changes, uint64_t at_round, struct ring_settings *settings)
{
	const struct change *change = next_set(changes, NULL);
	for (; change && change->at_round <= at_round; change = next_set(changes, change))
		setting_take(settings, change->setting, change->value);
}

static bool is_checkpoint_of(const struct change_entry *entry, uint64_t round)
{
	return entry->change.kind == CHANGE_CHECKPOINT && entry->state == CHANGE_IN_FORCE && entry->round == round;
}

void changes_written(struct changes *changes, uint64_t round, const char *folder)
{
	for (size_t i = 0; i < CHANGE_LOG_MAX; i++)
		if (is_checkpoint_of(&changes->entries[i], round))
			snprintf(changes->entries[i].folder, sizeof changes->entries[i].folder, "%s", folder);
}

void changes_failed(struct changes *changes, uint64_t round, const char *why)
{
	for (size_t i = 0; i < CHANGE_LOG_MAX; i++)
		if (is_checkpoint_of(&changes->entries[i], round))
			snprintf(changes->entries[i].failure, sizeof changes->entries[i].failure, "%s", why);
}

const char *changes_state_text(enum change_state state)
{
	switch (state) {
	case CHANGE_PROPOSED: return "proposed";
	case CHANGE_HELD: return "held";
	case CHANGE_IN_FORCE: return "in-force";
	case CHANGE_DROPPED: return "dropped";
	}
	return "unknown";
}

void changes_text(const struct change_entry *entry, char *text, size_t size)
{
	const struct change *change = &entry->change;
	char before[SETTING_TEXT_MAX + 1], after[SETTING_TEXT_MAX + 1];
	switch (change->kind) {
	case CHANGE_SET:
		CHECK(change->setting < RING_SETTING_COUNT);
		snprintf(text, size, "%s %s -> %s", setting_at(change->setting)->name,
			 setting_format(change->setting, entry->before, before),
			 setting_format(change->setting, change->value, after));
		break;
	case CHANGE_PAUSE: snprintf(text, size, "pause"); break;
	case CHANGE_RESUME: snprintf(text, size, "resume"); break;
	case CHANGE_CHECKPOINT: snprintf(text, size, "checkpoint"); break;
	default: snprintf(text, size, "unknown"); break;
	}
}

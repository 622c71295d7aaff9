/* The joined table of settings and what reads and writes their values. */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/address.h"
#include "proto/setting.h"

/* The ring's table holds its defaults as numbers; as text they are what its source says. */
static const struct setting table[] = {
#define X(id, name, type, unit, standard, low, high, help) {name, SETTING_##type, true, unit, #standard, low, high, help},
	RING_SETTINGS(X)
#undef X
#define X(id, name, type, unit, standard, low, high, help) {name, SETTING_##type, false, unit, standard, low, high, help},
	NODE_SETTINGS(X)
#undef X
};
_Static_assert(sizeof(table) / sizeof(table[0]) == SETTING_END, "index and table agree");

const struct setting *setting_at(size_t index)
{
	CHECK(index < SETTING_END);
	return &table[index];
}

/* Edits (one character put in, taken out or changed) from a to b; names are short. */
static size_t name_distance(const char *a, const char *b)
{
	size_t row[64];
	size_t a_length = strlen(a), b_length = strlen(b);
	if (a_length > 63 || b_length > 63)
		return 64;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t changed = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			row[j] = size_min(changed, size_min(row[j], row[j - 1]) + 1);
		}
	}
	return row[b_length];
}

int setting_find(const char *name, size_t *ret_index, struct line *why)
{
	size_t nearest = 0, distance = 64;
	for (size_t i = 0; i < SETTING_END; i++) {
		if (!strcmp(name, table[i].name)) {
			*ret_index = i;
			return 0;
		}
		size_t here = name_distance(name, table[i].name);
		if (here < distance) {
			nearest = i;
			distance = here;
		}
	}
	if (distance <= 4)
		return line_fail(why, EDIT_ERROR_UNKNOWN, "unknown setting %s, did you mean %s?", name, table[nearest].name);
	return line_fail(why, EDIT_ERROR_UNKNOWN, "unknown setting %.64s", name);
}

/* Shortest text that reads back as the same double. */
static void number_format(double number, char *buffer, size_t bytes)
{
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(buffer, bytes, "%.*g", digits, number);
		if (strtod(buffer, NULL) == number)
			return;
	}
}

char *setting_expected(size_t index, char buffer[SETTING_TEXT_MAX + 1])
{
	const struct setting *setting = setting_at(index);
	char low[32], high[32], unit[40] = "";
	number_format(setting->low, low, sizeof(low));
	number_format(setting->high, high, sizeof(high));
	if (setting->unit[0])
		snprintf(unit, sizeof(unit), " (%s)", setting->unit);
	size_t room = SETTING_TEXT_MAX + 1;
	switch (setting->type) {
	case SETTING_COUNT: snprintf(buffer, room, "a whole number from %s to %s%s", low, high, unit); break;
	case SETTING_REAL:
		snprintf(buffer, room, index == STRAGGLER_GRACE ? "%s, or a number from 1 to %s%s" : "a number from %s to %s%s", low,
			 high, unit);
		break;
	case SETTING_BYTES: snprintf(buffer, room, "a multiple of 4 from %s to %s%s", low, high, unit); break;
	case SETTING_NAME: snprintf(buffer, room, "up to %s of a-z, 0-9 and -", high); break;
	case SETTING_PATH: snprintf(buffer, room, "an absolute path of up to %d bytes", (int)SETTING_TEXT_MAX); break;
	case SETTING_ADDRESS: snprintf(buffer, room, "tcp://HOST:PORT or ipc://PATH"); break;
	case SETTING_FLAG: snprintf(buffer, room, "yes or no"); break;
	case SETTING_CHOICE:
		snprintf(buffer, room, "one of %s", setting->unit);
		for (char *at = buffer; *at; at++)
			*at = *at == '|' ? ' ' : *at;
		break;
	}
	return buffer;
}

static bool setting_is_number(const struct setting *setting)
{
	return setting->type == SETTING_COUNT || setting->type == SETTING_REAL || setting->type == SETTING_BYTES;
}

bool setting_holds(size_t index, double number)
{
	const struct setting *setting = setting_at(index);
	if (!(number >= setting->low && number <= setting->high))
		return false;
	if (index < RING_SETTING_COUNT && !ring_setting_fits((enum ring_setting)index, number))
		return false;
	if (setting->type == SETTING_BYTES)
		return fmod(number, 4) == 0;
	return setting->type == SETTING_REAL || number == floor(number);
}

static int number_parse(size_t index, const char *text, double *ret_number, struct line *why)
{
	const struct setting *setting = setting_at(index);
	char expected[SETTING_TEXT_MAX + 1];
	/* Hexadecimal, "inf" and "nan" are strtod's, not ours. */
	char *end;
	double number = strtod(text, &end);
	if (!text[0] || *end || strspn(text, "+-.0123456789eE") != strlen(text))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: \"%.64s\" is not a number, expected %s", setting->name, text,
				 setting_expected(index, expected));
	if (!(number >= setting->low && number <= setting->high))
		return line_fail(why, EDIT_ERROR_RANGE, "%s: %.64s is out of range, expected %s", setting->name, text,
				 setting_expected(index, expected));
	if (!setting_holds(index, number))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: %.64s does not fit, expected %s", setting->name, text,
				 setting_expected(index, expected));
	*ret_number = number;
	return 0;
}

/* Place of word in words, which | divides; false if it is not there. */
static bool choice_find(const char *words, const char *word, double *ret_index)
{
	double index = 0;
	size_t length = strlen(word);
	for (const char *at = words;; at++, index++) {
		size_t span = strcspn(at, "|");
		if (span == length && !memcmp(at, word, length)) {
			*ret_index = index;
			return true;
		}
		at += span;
		if (!*at)
			return false;
	}
}

/* Whether text is one for a setting of a type that holds text or a word; its number, if it has one. */
static bool word_parse(const struct setting *setting, const char *text, double *ret_number)
{
	struct address address;
	size_t length = strlen(text);
	switch (setting->type) {
	case SETTING_NAME:
		return (double)length <= setting->high && (text_is_name(text) || (length == 0 && setting->low == 0));
	case SETTING_PATH: return text[0] == '/';
	case SETTING_ADDRESS: return length == 0 || address_parse(text, &address, NULL) == 0;
	case SETTING_CHOICE: return choice_find(setting->unit, text, ret_number);
	case SETTING_FLAG: return choice_find("no|yes", text, ret_number);
	default: return false;
	}
}

int setting_parse(size_t index, const char *text, struct setting_value *ret_value, struct line *why)
{
	const struct setting *setting = setting_at(index);
	struct setting_value value = {0};
	char expected[SETTING_TEXT_MAX + 1];
	text += strspn(text, " \t");
	size_t length = strlen(text);
	while (length > 0 && strchr(" \t", text[length - 1]))
		length--;
	if (length > SETTING_TEXT_MAX || !text_is_plain(text, length))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: not plain text of up to %d bytes, expected %s", setting->name,
				 (int)SETTING_TEXT_MAX, setting_expected(index, expected));
	memcpy(value.text, text, length);
	if (setting_is_number(setting)) {
		int error = number_parse(index, value.text, &value.number, why);
		if (error)
			return error;
	} else if (!word_parse(setting, value.text, &value.number)) {
		return line_fail(why, EDIT_ERROR_INVALID, "%s: \"%.100s\" does not fit, expected %s", setting->name, value.text,
				 setting_expected(index, expected));
	}
	*ret_value = value;
	return 0;
}

void setting_take(struct ring_settings *settings, size_t index, double number)
{
	CHECK(index < RING_SETTING_COUNT);
	settings->value[index] = number;
	for (size_t i = 0; index == METHOD && i < RING_SETTING_COUNT; i++)
		method_presets((enum method)number, (enum ring_setting)i, &settings->value[i]);
}

const char *setting_conflict(const struct ring_settings *settings, size_t given)
{
	const double *value = settings->value;
	const char *conflict = ring_settings_conflict(settings);
	/* A grace that was set before rests while gradients are exchanged, and works again afterwards. */
	if (!conflict && given == STRAGGLER_GRACE && value[STRAGGLER_GRACE] > 0 && value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS)
		return "straggler.grace has no meaning where sync.exchange = gradients makes every step a round";
	return conflict;
}

struct setting_value setting_standard(size_t index)
{
	const struct setting *setting = setting_at(index);
	struct setting_value value = {0};
	char word[SETTING_TEXT_MAX + 1];
	bool is_index = setting->is_ring && setting->type == SETTING_CHOICE;
	const char *text = is_index ? setting_format(index, strtod(setting->standard, NULL), word) : setting->standard;
	CHECK(setting_parse(index, text, &value, NULL) == 0);
	return value;
}

char *setting_format(size_t index, double number, char buffer[SETTING_TEXT_MAX + 1])
{
	const struct setting *setting = setting_at(index);
	CHECK(setting_is_number(setting) || setting->type == SETTING_CHOICE || setting->type == SETTING_FLAG);
	if (setting_is_number(setting)) {
		number_format(number, buffer, SETTING_TEXT_MAX + 1);
		return buffer;
	}
	CHECK(setting_holds(index, number));
	const char *word = setting->type == SETTING_FLAG ? "no|yes" : setting->unit;
	for (double skip = number; skip > 0; skip--)
		word += strcspn(word, "|") + 1;
	snprintf(buffer, SETTING_TEXT_MAX + 1, "%.*s", (int)strcspn(word, "|"), word);
	return buffer;
}

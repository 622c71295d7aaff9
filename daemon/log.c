/* Lines for people, and the sentences of the core's notes. Writes to standard error only; owns the level. */

#include "daemon/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int level_max = LEVEL_INFO;

static const struct {
	int level;
	const char *text;
} notes[NOTE_COUNT] = {
#define X(code, note_level, note_text) [code] = {note_level, note_text},
	NOTES(X)
#undef X
};

void log_set_level(int level)
{
	level_max = level;
}

void log_line(int level, const char *format, ...)
{
	if (level > level_max)
		return;

	char line[1024];
	/* The journal takes the level from the prefix; on a terminal it is in the way. */
	int prefix = isatty(STDERR_FILENO) == 1 ? 0 : snprintf(line, sizeof line, "<%d>", level);
	size_t used = (size_t)prefix;
	va_list list;
	va_start(list, format);
	int length = vsnprintf(line + used, sizeof line - used - 1, format, list);
	va_end(list);
	if (length < 0)
		return;
	size_t end = size_min(used + (size_t)length, sizeof line - 2);
	for (size_t i = used; i < end; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[end++] = '\n';
	/* One write per line, so that lines of daemons that share a terminal do not mix. A lost line is no reason
	 * to stop. */
	ssize_t written = write(STDERR_FILENO, line, end);
	(void)written;
}

const char *log_verdict_text(int verdict)
{
	switch (verdict) {
#define X(id, text) case id: return text;
	VERDICTS(X)
#undef X
	default: return "unknown";
	}
}

const char *log_refusal_text(int refusal)
{
	switch (refusal) {
	case REFUSAL_DUPLICATE: return "a live daemon has this name already";
	case REFUSAL_FACT: return "a fact differs";
	case REFUSAL_VERSION: return "protocol version differs";
	case REFUSAL_RESTARTED: return "the ring has begun rounds with an earlier start of this member";
	case REFUSAL_KEY: return "the key of this connection is another member's, not that of the one with this name";
	case REFUSAL_STRANGER: return "not a neighbour there; members, places, mesh.shards or the address differ";
	default: return "unknown";
	}
}

int log_note_level(const struct note *note)
{
	CHECK(note->code < NOTE_COUNT);
	return notes[note->code].level;
}

/* Ids of changes and hashes read better in hexadecimal. */
static bool has_hexadecimal(enum note_code code)
{
	return code == NOTE_HASH_DIFFERS || code == NOTE_CHANGE_HERE || code == NOTE_CHANGE_HELD ||
	       code == NOTE_CHANGE_TAKEN || code == NOTE_CHANGE_DROPPED;
}

/* Value of one {word} of a note's sentence. */
static void note_word(const struct note *note, const struct note_names *names, const char *word, char *text, size_t size)
{
	if (strcmp(word, "peer") == 0 && note->peer < names->member_count)
		snprintf(text, size, "%s", names->members[note->peer]);
	else if (strcmp(word, "peer") == 0)
		snprintf(text, size, "%" PRIu32, note->peer);
	else if (strcmp(word, "layer") == 0)
		snprintf(text, size, "%" PRIu32, note->layer_index);
	else if (strcmp(word, "round") == 0)
		snprintf(text, size, "%" PRIu64, note->round);
	else if (strcmp(word, "a") == 0 || strcmp(word, "b") == 0)
		snprintf(text, size, has_hexadecimal(note->code) ? "%016" PRIx64 : "%" PRIu64,
			 word[0] == 'a' ? note->a : note->b);
	else if (strcmp(word, "x") == 0)
		snprintf(text, size, "%.4g", note->x);
	else if (strcmp(word, "y") == 0)
		snprintf(text, size, "%.3g", note->y);
	else if (strcmp(word, "verdict") == 0)
		snprintf(text, size, "%s", log_verdict_text(note->detail));
	else if (strcmp(word, "refusal") == 0)
		snprintf(text, size, "%s%s%s", log_refusal_text(note->detail), names->detail ? ": " : "",
			 names->detail ? names->detail : "");
	else if (strcmp(word, "error") == 0)
		snprintf(text, size, "%s", edit_error_text(note->detail));
	else
		snprintf(text, size, "{%s}", word);
}

void log_note_text(const struct note *note, const struct note_names *names, char *text, size_t size)
{
	CHECK(note->code < NOTE_COUNT);
	CHECK(size > 0);
	const char *in = notes[note->code].text;
	size_t used = 0;

	while (*in && used + 1 < size) {
		const char *end = *in == '{' ? strchr(in, '}') : NULL;
		char word[16];
		if (!end || (size_t)(end - in) > sizeof word) {
			text[used++] = *in++;
			continue;
		}
		size_t length = (size_t)(end - in) - 1;
		memcpy(word, in + 1, length);
		word[length] = 0;
		note_word(note, names, word, text + used, size - used);
		used += strlen(text + used);
		in = end + 1;
	}
	text[used] = 0;
}

#ifndef EDIT_DAEMON_LOG_H
#define EDIT_DAEMON_LOG_H

/* Lines for people: standard error, each begun with a journal priority ("<6>"), so that journald files it rightly.
 * The one place where the core's notes become English. The level is the only thing kept, set once at start. */

#include "core/event.h"

enum log_level { LEVEL_ERROR = 3, LEVEL_WARNING = 4, LEVEL_NOTICE = 5, LEVEL_INFO = 6, LEVEL_DEBUG = 7 };

/* Lines above this level are not written; LEVEL_INFO at start. */
void log_set_level(int level);

/* Writes one line: lower case, subject first, no full stop. Control bytes in it become '?'. Cut at 1,000 bytes. */
__attribute__((format(printf, 2, 3))) void log_line(int level, const char *format, ...);

/* What a note's numbers stand for on this node. */
struct note_names {
	const char *const *members; /* [member_count] */
	size_t member_count;
	const char *detail;         /* what differs, for refusals; NULL if there is nothing to tell */
};

/* Writes the sentence of a note into text[size], cut if need be. Names that are not in the table appear as
 * numbers. */
void log_note_text(const struct note *note, const struct note_names *names, char *text, size_t size);

/* Level of a note by the NOTES table. */
int log_note_level(const struct note *note);

/* Texts of a verdict, a refusal and a note's error code; "unknown" outside the tables. */
const char *log_verdict_text(int verdict);
const char *log_refusal_text(int refusal);

#endif

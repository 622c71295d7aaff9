#ifndef EDIT_PROTO_TEXT_H
#define EDIT_PROTO_TEXT_H

/* Text from outside, and the one line that tells a person what was wrong with it. Owns nothing. */

#include "core/base.h"

enum {
	LINE_BYTES = 512,
	TEXT_NAME_MAX = 63, /* bytes of a member's or run's name */
	SIZE_TEXT_BYTES = 32
};

/* A sentence for a person: lower case, no full stop, no newline. Empty text: nothing to say. */
struct line {
	char text[LINE_BYTES];
};

/* Writes the sentence (cut off if too long) and returns error, so that a check reads `return line_fail(why, ...)`.
 * why may be NULL. */
int line_fail(struct line *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether text of the given length is valid UTF-8 without control characters (so also without newlines and zero
 * bytes): safe to print, to log and to put into JSON. */
bool text_is_plain(const char *text, size_t bytes);

/* As text_is_plain, but newlines and tabs are allowed: a file's contents. */
bool text_is_document(const char *text, size_t bytes);

/* Whether name is one for a member or a run: [a-z0-9-]{1,63}. */
bool text_is_name(const char *name);

/* 12 bytes as "12 B", 1572864 as "1.5 MiB". Returns buffer. */
char *text_size(uint64_t bytes, char buffer[SIZE_TEXT_BYTES]);

#endif

#ifndef EDIT_CTL_TABLE_H
#define EDIT_CTL_TABLE_H

/* Text tables: aligned columns, two spaces between them, no lines drawn. Texts come from other machines, so control
 * characters are shown as '?' and can never steer a terminal; width counts UTF-8 characters. Ends the program with exit
 * status 1 if memory runs out. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum table_tone {
	TONE_PLAIN,
	TONE_TITLE,
	TONE_GOOD,
	TONE_BAD,
	TONE_FAINT
};

struct table;

/* An empty table; alignment has one letter per column, 'l' or 'r'; titles [strlen(alignment)] or NULL: no heading row. */
struct table *table_new(const char *alignment, const char *const *titles);
/* Appends one cell; a row is full after as many cells as there are columns. text is copied. */
void table_cell(struct table *table, enum table_tone tone, const char *text);
/* The same, made by printf; longer than 511 bytes is cut off. */
void table_format(struct table *table, enum table_tone tone, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes all full rows, each ended by a newline, without blanks at its end. colour: tones become ANSI colours. */
void table_print(const struct table *table, FILE *out, bool colour);
/* NULL is allowed. */
void table_free(struct table *table);

/* Writes text in a tone, control characters as '?'. */
void table_text(FILE *out, enum table_tone tone, bool colour, const char *text);

#endif

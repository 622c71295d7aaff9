/* Text tables: collects cells, measures columns, prints. Owns copies of all texts. */

#include "ctl/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base.h"

struct cell {
	char *text;
	enum table_tone tone;
};

struct table {
	char *alignment;
	size_t column_count;
	struct cell *cells; /* row after row */
	size_t cell_count, cell_room;
};

static void *memory_or_exit(void *block)
{
	if (block == NULL) {
		fputs("editctl: out of memory\n", stderr);
		exit(1);
	}
	return block;
}

/* Characters of UTF-8 text: bytes that do not continue one. */
static size_t text_width(const char *text)
{
	size_t width = 0;
	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xC0) != 0x80;
	return width;
}

static void print_padding(FILE *out, size_t width)
{
	for (; width > 0; width--)
		fputc(' ', out);
}

void table_text(FILE *out, enum table_tone tone, bool colour, const char *text)
{
	static const char *const codes[] = {
		[TONE_PLAIN] = "", [TONE_TITLE] = "\033[1m", [TONE_GOOD] = "\033[32m", [TONE_BAD] = "\033[1;31m",
		[TONE_FAINT] = "\033[2m"};
	bool toned = colour && tone != TONE_PLAIN;
	if (toned)
		fputs(codes[tone], out);
	for (; *text != '\0'; text++) {
		unsigned char byte = (unsigned char)*text;
		fputc(byte < 0x20 || byte == 0x7F ? '?' : byte, out);
	}
	if (toned)
		fputs("\033[0m", out);
}

struct table *table_new(const char *alignment, const char *const *titles)
{
	struct table *table = memory_or_exit(calloc(1, sizeof(*table)));
	table->alignment = memory_or_exit(strdup(alignment));
	table->column_count = strlen(alignment);
	CHECK(table->column_count > 0);
	for (size_t i = 0; titles != NULL && i < table->column_count; i++)
		table_cell(table, TONE_TITLE, titles[i]);
	return table;
}

void table_cell(struct table *table, enum table_tone tone, const char *text)
{
	if (table->cell_count == table->cell_room) {
		table->cell_room = size_max(64, 2 * table->cell_room);
		table->cells = memory_or_exit(realloc(table->cells, table->cell_room * sizeof(table->cells[0])));
	}
	table->cells[table->cell_count++] = (struct cell){memory_or_exit(strdup(text)), tone};
}

void table_format(struct table *table, enum table_tone tone, const char *format, ...)
{
	char text[512];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	table_cell(table, tone, text);
}

/* Width of column: the longest of its texts. */
static size_t column_width(const struct table *table, size_t column)
{
	size_t width = 0;
	for (size_t i = column; i < table->cell_count; i += table->column_count)
		width = size_max(width, text_width(table->cells[i].text));
	return width;
}

static bool rest_is_empty(const struct cell *row, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (row[i].text[0] != '\0')
			return false;
	return true;
}

static void print_row(const struct table *table, const struct cell *row, const size_t *widths, FILE *out, bool colour)
{
	for (size_t i = 0; i < table->column_count && !rest_is_empty(row + i, table->column_count - i); i++) {
		size_t padding = widths[i] - text_width(row[i].text);
		if (table->alignment[i] == 'r')
			print_padding(out, padding);
		table_text(out, row[i].tone, colour, row[i].text);
		if (rest_is_empty(row + i + 1, table->column_count - i - 1))
			break;
		print_padding(out, (table->alignment[i] == 'r' ? 0 : padding) + 2);
	}
	fputc('\n', out);
}

void table_print(const struct table *table, FILE *out, bool colour)
{
	size_t *widths = memory_or_exit(calloc(table->column_count, sizeof(widths[0])));
	for (size_t i = 0; i < table->column_count; i++)
		widths[i] = column_width(table, i);
	for (size_t i = 0; i + table->column_count <= table->cell_count; i += table->column_count)
		print_row(table, table->cells + i, widths, out, colour);
	free(widths);
}

void table_free(struct table *table)
{
	if (table == NULL)
		return;
	for (size_t i = 0; i < table->cell_count; i++)
		free(table->cells[i].text);
	free(table->cells);
	free(table->alignment);
	free(table);
}

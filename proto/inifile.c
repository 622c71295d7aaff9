/* Strict reading of INI files. inih gives no line numbers, so they are counted where it asks for lines. */

#include "proto/inifile.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LINE_MAX = 1024 /* bytes of a line, with its end */ };

/* Reading one file. */
struct reader {
	inifile_take *take;
	void *arg;
	FILE *file;
	const char *path;
	int line_number; /* of the line read last */
	int error;
	struct line *why;
};

static int reader_fail(struct reader *reader, int error, const char *text)
{
	if (reader->error == 0)
		reader->error = line_fail(reader->why, error, "%s:%d: %s", reader->path, reader->line_number, text);
	return 0;
}

/* Whether line is a [section] with more behind it than blanks and a comment: inih would take no notice of that. */
static bool has_more_than_section(const char *line)
{
	line += strspn(line, " \t");
	const char *end = line[0] == '[' ? strchr(line, ']') : NULL;
	if (!end)
		return false;
	end += 1 + strspn(end + 1, " \t\r\n");
	return end[0] != 0 && end[0] != ';' && end[0] != '#';
}

/* Bytes that would end a line for inih too early are refused. */
static char *read_line(char *buffer, int size, void *stream)
{
	struct reader *reader = stream;
	int byte = 0, length = 0;
	while (reader->error == 0 && byte != '\n' && (byte = getc(reader->file)) != EOF) {
		if (length == 0)
			reader->line_number++;
		if (byte == 0)
			reader_fail(reader, EDIT_ERROR_INVALID, "a zero byte, expected text");
		else if (length + 2 == size && byte != '\n')
			reader_fail(reader, EDIT_ERROR_RANGE, "line too long, expected at most 1000 bytes");
		else
			buffer[length++] = (char)byte;
	}
	buffer[length] = 0;
	if (reader->error == 0 && has_more_than_section(buffer))
		reader_fail(reader, EDIT_ERROR_INVALID, "more behind [section], expected a line of its own for each setting");
	return reader->error != 0 || length == 0 ? NULL : buffer;
}

/* Opens a file for reading; a FIFO that nobody writes to is empty, and not waited for. NULL: errno tells. */
static FILE *open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "r") : NULL;
	if (!file && fd >= 0)
		close(fd);
	return file;
}

static int take(void *user, const char *section, const char *key, const char *value)
{
	struct reader *reader = user;
	struct line why = {""};
	if (reader->error)
		return 0;
	int error = reader->take(reader->arg, section, key, value, reader->line_number, &why);
	return error ? reader_fail(reader, error, why.text) : 1;
}

int inifile_read(const char *path, inifile_take *taker, void *arg, struct line *why)
{
	struct reader reader = {.take = taker, .arg = arg, .path = path, .why = why, .file = open_file(path)};
	if (!reader.file)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, strerror(errno));

	ini_use_stack = false;
	ini_initial_alloc = FILE_LINE_MAX;
	ini_max_line = FILE_LINE_MAX;
	ini_allow_multiline = false;
	ini_stop_on_first_error = true;
	int line_number = ini_parse_stream(read_line, &reader, take, &reader);
	int cause = ferror(reader.file) ? errno : 0;
	fclose(reader.file);
	if (reader.error)
		return reader.error;
	if (cause)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, strerror(cause));
	if (line_number > 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%s:%d: expected [section], key = value or a comment", path,
				 line_number);
	if (line_number < 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: no memory", path);
	return 0;
}

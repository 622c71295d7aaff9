#ifndef EDIT_PROTO_INIFILE_H
#define EDIT_PROTO_INIFILE_H

/* Reading an INI file with inih, strictly: what inih would pass over (zero bytes, text behind a section) is refused, and each
 * refusal names file and line. Owns nothing. */

#include "proto/text.h"

/* Takes one `key = value` (section "" before the first one) and the number of its line. Nonzero with a line in why: the value is refused, reading ends. */
typedef int inifile_take(void *arg, const char *section, const char *key, const char *value, int line_number, struct line *why);

/* Reads the file at path to its end. Result 0, that of take, EDIT_ERROR_INVALID or _RANGE (why: "FILE:LINE: ..."), or
 * EDIT_ERROR_SYSTEM if it cannot be read ("FILE: ..."). */
int inifile_read(const char *path, inifile_take *take, void *arg, struct line *why);

#endif

/* Lines to stderr. Each goes out in one write, so that lines of several workers in one file do not mix. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/say.h"

void say(enum say_level level, const char *format, ...)
{
	char text[1536];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* systemd sets this variable when stderr is the journal's. */
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s\n", (int)level, text);
	else
		fprintf(stderr, "edit-worker: %s\n", text);
}

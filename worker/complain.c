/* One line about bad input. */

#include <stdarg.h>
#include <stdio.h>

#include "worker/complain.h"

int complain(char *error, size_t error_size, int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error, error_size, format, arguments);
	va_end(arguments);
	for (char *c = error; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return code;
}

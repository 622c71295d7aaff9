/* Checks of text from outside and lines for people. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/text.h"

int line_fail(struct line *why, int error, const char *format, ...)
{
	CHECK(error != 0);
	if (!why)
		return error;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why->text, sizeof(why->text), format, arguments);
	va_end(arguments);
	return error;
}

/* Length of the UTF-8 sequence at text[0, bytes), 0 if it is none: overlong forms, surrogates and what lies beyond
 * U+10FFFF are none. */
static size_t sequence_length(const unsigned char *text, size_t bytes)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char first = text[0];
	size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
	if (length <= 1)
		return length;
	if (length > bytes)
		return 0;
	uint32_t point = first & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (text[i] & 0x3fu);
	}
	bool is_surrogate = point >= 0xd800 && point < 0xe000;
	bool is_control = point < 0xa0; /* C1: terminals act on them */
	return point < least[length] || point > 0x10ffff || is_surrogate || is_control ? 0 : length;
}

static bool text_is_clean(const char *text, size_t bytes, const char *allowed)
{
	const unsigned char *at = (const unsigned char *)text;
	while (bytes > 0) {
		size_t length = sequence_length(at, bytes);
		bool is_control = *at < 0x20 || *at == 0x7f;
		if (length == 0 || (is_control && (*at == 0 || !strchr(allowed, *at))))
			return false;
		at += length;
		bytes -= length;
	}
	return true;
}

bool text_is_plain(const char *text, size_t bytes)
{
	return text_is_clean(text, bytes, "");
}

bool text_is_document(const char *text, size_t bytes)
{
	return text_is_clean(text, bytes, "\n\r\t");
}

bool text_is_name(const char *name)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return length >= 1 && length <= TEXT_NAME_MAX && name[length] == 0;
}

char *text_size(uint64_t bytes, char buffer[SIZE_TEXT_BYTES])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	if (bytes < 1024) {
		snprintf(buffer, SIZE_TEXT_BYTES, "%" PRIu64 " B", bytes);
		return buffer;
	}
	double number = (double)bytes / 1024;
	size_t unit = 0;
	while (number >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		number /= 1024;
		unit++;
	}
	snprintf(buffer, SIZE_TEXT_BYTES, "%.1f %s", number, units[unit]);
	return buffer;
}

/* See the header. Owns nothing. */

#include "daemon/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *fields_count(uint64_t count)
{
	return json_integer((json_int_t)count);
}

json_t *fields_hash(uint64_t hash)
{
	char text[17];
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	return json_string(text);
}

bool fields_read_count(const json_t *object, const char *name, uint64_t *ret_count)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_count = (uint64_t)json_integer_value(value);
	return true;
}

bool fields_read_hash(const json_t *object, uint64_t *ret_hash)
{
	const char *text = json_string_value(json_object_get(object, "xxh3"));
	if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
		return false;
	*ret_hash = strtoull(text, NULL, 16);
	return true;
}

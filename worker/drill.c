/* Rehearsals of incidents: reading them, and whether one is on. */

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/drill.h"

static const struct {
	const char *name;
	double factor;
} kinds[] = {
#define X(id, text, factor, help) [id] = {(text), (factor)},
	DRILLS(X)
#undef X
};

/* A whole number above 0 at *text, which is moved behind it. */
static bool read_count(const char **text, uint64_t *ret_count)
{
	char *end;
	errno = 0;
	if (!isdigit((unsigned char)**text))
		return false;
	*ret_count = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0 && *ret_count > 0;
}

/* A number above 0 at *text, which is moved behind it. A sign would be the mark of a count, and the mark of an
 * exponent is not needed, so only digits and a point are taken. */
static bool read_factor(const char **text, double *ret_factor)
{
	char digits[32];
	size_t size = strspn(*text, "0123456789.");
	if (size == 0 || size >= sizeof(digits))
		return false;
	memcpy(digits, *text, size);
	digits[size] = 0;
	char *end;
	*ret_factor = strtod(digits, &end);
	*text += size;
	return *end == 0 && *ret_factor > 0;
}

int drill_read(const char *text, struct drill *ret_drill)
{
	const char *at = strchr(text, '@');
	struct drill drill = {.kind = DRILL_KIND_COUNT, .count = 1};
	for (int i = 0; at && i < DRILL_KIND_COUNT; i++)
		if (strlen(kinds[i].name) == (size_t)(at - text) && !memcmp(kinds[i].name, text, (size_t)(at - text))) {
			drill.kind = (enum drill_kind)i;
			drill.factor = kinds[i].factor;
		}
	if (drill.kind == DRILL_KIND_COUNT)
		return EDIT_ERROR_INVALID;
	at++;
	if (!read_count(&at, &drill.step))
		return EDIT_ERROR_INVALID;
	if (*at == 'x') {
		at++;
		if (drill.kind == DRILL_NAN || !read_factor(&at, &drill.factor))
			return EDIT_ERROR_INVALID;
	}
	if (*at == '+') {
		at++;
		if (!read_count(&at, &drill.count))
			return EDIT_ERROR_INVALID;
	}
	if (*at)
		return EDIT_ERROR_INVALID;
	*ret_drill = drill;
	return 0;
}

bool drill_is_on(const struct drill *drills, size_t count, enum drill_kind kind, uint64_t step, double *ret_factor)
{
	bool is_on = false;
	*ret_factor = 1;
	for (size_t i = 0; i < count; i++)
		if (drills[i].kind == kind && step >= drills[i].step && step - drills[i].step < drills[i].count) {
			*ret_factor *= drills[i].factor;
			is_on = true;
		}
	return is_on;
}

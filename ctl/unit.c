/* Numbers as people read them. Pure text work: no state, no locale, no output. */

#include "ctl/unit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* value with three figures: 1.23, 12.3, 123. The bounds are those at which rounding would give a fourth figure. */
static struct unit three_figures(double value, const char *unit)
{
	struct unit result;
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	snprintf(result.text, sizeof(result.text), "%.*f %s", decimals, value, unit);
	return result;
}

/* The largest unit in which value is at least 1 once rounded; each unit is 1000 of the one before. */
static struct unit scaled(double value, const char *const *units, size_t count)
{
	size_t i = 0;
	while (i + 1 < count && value >= 999.5) {
		value /= 1000;
		i++;
	}
	return three_figures(value, units[i]);
}

static struct unit two_parts(uint64_t big, const char *big_unit, uint64_t small, const char *small_unit)
{
	struct unit result;
	snprintf(result.text, sizeof(result.text), "%" PRIu64 " %s %" PRIu64 " %s", big, big_unit, small, small_unit);
	return result;
}

struct unit unit_time(uint64_t us)
{
	uint64_t s = us / 1000000;
	struct unit result;
	if (us < 1000) {
		snprintf(result.text, sizeof(result.text), "%" PRIu64 " us", us);
		return result;
	}
	if (us < 999500)
		return three_figures((double)us / 1e3, "ms");
	if (s < 60)
		return three_figures((double)us / 1e6, "s");
	if (s < 3600)
		return two_parts(s / 60, "min", s % 60, "s");
	if (s < 86400)
		return two_parts(s / 3600, "h", s % 3600 / 60, "min");
	return two_parts(s / 86400, "d", s % 86400 / 3600, "h");
}

struct unit unit_bytes(uint64_t bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	struct unit result;
	if (bytes < 1000) {
		snprintf(result.text, sizeof(result.text), "%" PRIu64 " B", bytes);
		return result;
	}
	return scaled((double)bytes, units, sizeof(units) / sizeof(units[0]));
}

struct unit unit_count(uint64_t count)
{
	static const char *const units[] = {"k", "M", "G", "T", "P", "E"};
	struct unit result;
	if (count < 100000) {
		snprintf(result.text, sizeof(result.text), "%" PRIu64, count);
		return result;
	}
	return scaled((double)count / 1e3, units, sizeof(units) / sizeof(units[0]));
}

struct unit unit_real(double value)
{
	struct unit result;
	if (isnan(value))
		snprintf(result.text, sizeof(result.text), "nan");
	else
		snprintf(result.text, sizeof(result.text), "%.4g", value);
	return result;
}

struct unit unit_rate(double per_second)
{
	struct unit result;
	if (!(per_second >= 0 && per_second < 9e18))
		snprintf(result.text, sizeof(result.text), "-");
	else if (per_second < 100)
		snprintf(result.text, sizeof(result.text), "%.1f", per_second);
	else
		return unit_count((uint64_t)(per_second + 0.5));
	return result;
}

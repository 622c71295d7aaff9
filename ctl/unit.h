#ifndef EDIT_CTL_UNIT_H
#define EDIT_CTL_UNIT_H

/* Numbers as people read them: three figures and a unit. Each function returns a small text by value, so that a call can
 * stand as an argument: table_cell(table, TONE_PLAIN, unit_time(us).text). Owns nothing, keeps nothing. */

#include <stdint.h>

struct unit {
	char text[32];
};

/* Microseconds: "850 us", "12.3 ms", "4.21 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
struct unit unit_time(uint64_t us);
/* Bytes in powers of 1000: "512 B", "16.4 kB", "1.23 MB", ... "18.4 EB". */
struct unit unit_bytes(uint64_t bytes);
/* A count: exact below 100,000, then "123 k", "1.23 M", "4.56 G", "7.89 T". */
struct unit unit_count(uint64_t count);
/* A real number in four figures; "nan", "inf", "-inf". */
struct unit unit_real(double value);
/* A rate: like unit_count for whole and large rates, one decimal below 100; "-" if it is nan or negative. */
struct unit unit_rate(double per_second);

#endif

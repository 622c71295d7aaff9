#ifndef EDIT_CORE_BASE_H
#define EDIT_CORE_BASE_H

/* What every file of the project stands on: the assertion, the error table and small arithmetic.
 *
 * The core is pure: no I/O, clock, allocation, globals, log or thread. It owns no memory; callers hand in blocks whose
 * sizes come from *_size() functions. Errors are ints: 0, or one of the negative codes below. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called when a CHECK fails; never returns. Each program links one definition (proto/check.c prints and aborts). */
_Noreturn void check_failed(const char *condition, const char *file, int line);

/* An assertion about our own code, on in release builds too. Never for input from outside. One condition each. */
#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

/* code, value, exit status of a program that ends because of it, text */
#define EDIT_ERRORS(X)                                                                                                 \
	X(EDIT_ERROR_INVALID, -1, 2, "invalid input")                                                                      \
	X(EDIT_ERROR_RANGE, -2, 2, "value out of range")                                                                   \
	X(EDIT_ERROR_UNKNOWN, -3, 2, "unknown name")                                                                       \
	X(EDIT_ERROR_UNREACHABLE, -4, 3, "not reachable")                                                                  \
	X(EDIT_ERROR_REFUSED, -5, 4, "refused")                                                                            \
	X(EDIT_ERROR_UNHEALTHY, -6, 5, "ring not healthy")                                                                 \
	X(EDIT_ERROR_TIMEOUT, -7, 6, "timed out")                                                                          \
	X(EDIT_ERROR_FULL, -8, 1, "no room")                                                                               \
	X(EDIT_ERROR_SYSTEM, -9, 1, "system error")                                                                        \
	X(EDIT_ERROR_MALFORMED, -10, 1, "malformed message or file")                                                       \
	X(EDIT_ERROR_BUSY, -11, 4, "busy")                                                                                 \
	X(EDIT_ERROR_LOST, -12, 1, "connection lost")

enum edit_error {
#define X(code, value, status, text) code = (value),
	EDIT_ERRORS(X)
#undef X
};

/* Text of an error code, in lower case without a full stop; "ok" for 0, "unknown error" for a code not in the table. */
static inline const char *edit_error_text(int error)
{
	switch (error) {
	case 0: return "ok";
#define X(code, value, status, text) case (value): return text;
	EDIT_ERRORS(X)
#undef X
	default: return "unknown error";
	}
}

/* Exit status of a program that ends because of error (0 for 0; the table's column otherwise; 1 if unknown). */
static inline int edit_error_status(int error)
{
	switch (error) {
	case 0: return 0;
#define X(code, value, status, text) case (value): return status;
	EDIT_ERRORS(X)
#undef X
	default: return 1;
	}
}

static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t size_max(size_t a, size_t b) { return a > b ? a : b; }
static inline uint64_t u64_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t u64_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
/* Bytes that a part of a caller's block takes up, so that the next part is 64-byte aligned as the block is. */
static inline size_t block_part(size_t bytes) { return (bytes + 63) / 64 * 64; }

#endif

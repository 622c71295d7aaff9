#ifndef EDIT_SIM_RECORDING_H
#define EDIT_SIM_RECORDING_H

/* A trace of a real ring as `editctl trace` writes it (docs/protocol.md, Trace), read and checked: what `edit-sim rehearse` goes by. */

#include "core/layer.h"
#include "core/option.h"
#include "proto/text.h"

/* One member's part of a round. */
struct recorded_member {
	uint64_t steps, tokens; /* 0: it was late */
	uint64_t interval_us, lateness_us;
	uint64_t exposed_us; /* of the round before */
};

struct recorded_round {
	uint64_t round, end_us, sync_us, bytes; /* as in the trace */
	uint64_t scalars_us;             /* least of the layers that began after others had ended; 0: unknown */
	bool follows;                    /* the round before is the one before this in the recording */
	struct recorded_member *members; /* [member_count] */
};

struct recording {
	uint32_t member_count, own; /* own: rank of the member that wrote it */
	char (*names)[TEXT_NAME_MAX + 1]; /* [member_count] */
	size_t layer_count;
	uint64_t *layer_sizes;      /* [layer_count] elements */
	struct ring_settings settings; /* of all rounds that are kept */
	size_t round_count;         /* without the first round of each daemon, for which the workers came one by one */
	size_t skipped_count;       /* rounds before a change of the settings, which are left away */
	struct recorded_round *rounds; /* [round_count] */
};

enum { RECORDED_ROUNDS_MIN = 3 };

/* Reads the file at path. EDIT_ERROR_INVALID: why is one line with file, line, and what was expected; also if fewer than
 * RECORDED_ROUNDS_MIN rounds with the same settings follow each other at its end. EDIT_ERROR_SYSTEM: it cannot be read. On success
 * the recording is the caller's to recording_close. */
int recording_open(struct recording *recording, const char *path, struct line *why);
void recording_close(struct recording *recording);

/* Microseconds that a member computed from its offer of the round before to that of this one (rounds[index].follows). What it
 * computed while the round before was still under way is what of that time it did not wait. Of a member that was late only the sum
 * up to its next round with steps means something. */
uint64_t recording_compute_us(const struct recording *recording, size_t index, uint32_t rank);
/* From the last member's offer of a round, as it was heard of, to the round's end, microseconds. */
uint64_t recording_transfer_us(const struct recording *recording, size_t index);
/* How long before the last member's a member's offer of a round was. */
uint64_t recording_ahead_us(const struct recording *recording, size_t index, uint32_t rank);

#endif

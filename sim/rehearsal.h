#ifndef EDIT_SIM_REHEARSAL_H
#define EDIT_SIM_REHEARSAL_H

/* What rounds of a recorded ring would have cost under other settings: its members' recorded step times, its layers, and links as
 * its rounds let them be guessed, in virtual time. What is learned, and so whether the model is as good, is not asked here. */

#include "sim/recording.h"

/* One member's waits, of its whole time, percent. */
struct lull {
	double exposed; /* for layers that were on their way */
	double waiting; /* for others to offer */
};

/* What rounds cost. */
struct tempo {
	double round_s;           /* from the end of a round to that of the next, mean */
	double tokens_per_second; /* of all members */
	double transfer_us;       /* mean of recording_transfer_us, or what corresponds to it */
	uint64_t rounds;          /* that it is the mean of */
	struct lull all;          /* mean over members */
	struct lull *members;     /* [member_count] */
};

/* Every link between neighbours. */
struct links {
	double mbit, latency_ms;
};

/* What the rounds of the recording did cost. */
void tempo_record(const struct recording *recording, struct tempo *ret_tempo);
/* Releases it; safe on one that is all zero. */
void tempo_fini(struct tempo *tempo);

/* Lets the recorded members go through about so many rounds under these settings. EDIT_ERROR_SYSTEM: nothing moved any more; why is
 * one line. */
int rehearsal_run(const struct recording *recording, const struct ring_settings *settings, const struct links *links,
		  uint64_t rounds, struct tempo *ret_tempo, struct line *why);
/* Looks for links with which rounds of the recorded settings take as long from the last offer to their end as recorded. Latency is the
 * scalars' way round the ring where it was measured apart from waiting (more layers than sync.prefetch + 1), otherwise small;
 * bandwidth is what remains, so it includes whatever a daemon needs per byte. Errors as rehearsal_run. */
int rehearsal_fit(const struct recording *recording, struct links *ret_links, struct line *why);

#endif

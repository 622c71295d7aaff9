#ifndef EDIT_SIM_REPORT_H
#define EDIT_SIM_REPORT_H

/* What a run leaves behind: in its folder lines.json (JSON, one object a line), loss.tsv and timeline.tsv for plots, the
 * model, and a table on standard output. Nothing in it depends on the time of day or the number of threads. Losses are measured on
 * threads beside the run; lines that come after one that is not ready are held back, so that the order is that of virtual
 * time. */

#include "core/event.h"
#include "sim/tuition.h"

/* A node's part of a round, or of the whole run. */
struct lap {
	uint64_t time_us;
	const char *name;      /* of the node */
	uint64_t round, steps;
	uint64_t compute_us, exposed_us, waiting_us;
	uint64_t bytes;        /* sent */
	uint64_t transfer_us;  /* from the last node's offer, as it was heard of, to the end of the round; of one round only */
	double loss;           /* mean training loss, nats per token; NaN: unknown */
	uint64_t verdicts[VERDICT_COUNT]; /* of its layers */
};

/* Totals for the table. */
struct totals {
	uint64_t time_us, tokens, rounds;
	uint64_t compute_us, exposed_us, waiting_us; /* of all nodes together */
	uint64_t bytes;        /* sent, by all */
	uint64_t left_out;     /* layers with a verdict other than accepted */
};

enum stretch { STRETCH_COMPUTE, STRETCH_EXPOSED, STRETCH_WAITING };

struct report;

/* Begins a report in the folder, which is made if it is not there; NULL: no files. It must outlive the report. tuition: where losses come from, NULL if
 * there are none. NULL: why is one line. */
struct report *report_open(const char *folder, const struct scenario *scenario, struct tuition *tuition, struct line *why);
/* Ends it and releases it; false if something could not be written. NULL is allowed. */
bool report_close(struct report *report);

/* From now on rounds are told to the listener, and nothing is written or printed. */
typedef void report_listener(void *arg, uint32_t rank, const struct lap *lap);
void report_listen(struct report *report, report_listener *listener, void *arg);

/* A node has completed a round. */
void report_round(struct report *report, uint32_t rank, const struct lap *lap);
/* Measures the held-out loss of the anchors in layers at this point of the run. */
void report_loss(struct report *report, uint64_t time_us, uint64_t tokens, uint64_t round, const struct layer *layers);
/* What a node did with its time; the first ones are kept, for a picture. */
void report_stretch(struct report *report, uint32_t rank, enum stretch stretch, uint64_t begin_us, uint64_t end_us);
/* The run has ended with the anchors in layers: leaves them in the folder `model` of the report's folder, if there are both. 0 or
 * EDIT_ERROR_SYSTEM: why is one line. */
int report_model(struct report *report, const struct layer *layers, struct line *why);
/* The run has ended: writes the last line and prints the table. */
void report_end(struct report *report, const struct totals *totals);

/* The last loss that was measured; NaN: none. */
double report_last_loss(struct report *report);

#endif

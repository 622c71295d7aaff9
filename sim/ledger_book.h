#ifndef EDIT_SIM_LEDGER_BOOK_H
#define EDIT_SIM_LEDGER_BOOK_H

/* The inside of the ledger, for sim/ledger.c, which checks rounds, and sim/ledger_views.c, which checks what becomes of members between
 * them. Nobody else includes this. */

#include "sim/ledger.h"
#include "sim/share.h"

enum { MEETINGS = 4 /* of one layer at a time: members are never more than a round apart */ };


/* One layer in one round. */
struct meeting {
	uint64_t round;      /* 0: unused */
	uint32_t committed_count;
	const struct roster *roster; /* of the view in which it was committed first */
	bool first_waits;    /* whoever committed first has brought no gradient, so it has no mean */
	bool is_gradients;   /* the round is of gradients */
	struct record *records; /* [count of roster] as the first member to commit has them */
	double *weights;     /* [count of roster] */
	size_t accepted;
	uint64_t hash;       /* of the result */
	uint64_t mean_hash;  /* of the mean gradient */
};

struct ledger_layer {
	size_t size;
	float *anchor, *momentum; /* [size] after `round` */
	uint64_t round;           /* the last one that any member has committed */
	struct formula_detector *detectors; /* [peers] */
	/* before that round, in case it is done again: those who have committed it may all die */
	float *anchor_before, *momentum_before;
	struct formula_detector *detectors_before;
	struct meeting meetings[MEETINGS];
};

struct ledger_member {
	uint64_t round;     /* completed by all layers */
	struct ring_settings settings;
	const struct roster *roster;
	bool is_gone;       /* has fallen */
	bool is_parted;     /* and its worker lives on */
	bool is_apart;      /* what its worker hands over is not heard */
	bool is_standing;   /* its view has not been ready yet */
	size_t next_check;  /* layer whose memory is checked after the next event */
};

struct ledger {
	uint32_t peers;
	size_t layer_count;
	uint64_t rounds;
	struct ledger_layer *layers;   /* [layer_count] */
	struct share *shares;          /* [peers][layer_count] */
	struct ledger_member *members; /* [peers] */
	struct ring_settings *settings; /* [rounds + 1] in force for the round after each completed one */
	bool *settings_known;          /* [rounds + 1] */
	double *anchor, *momentum;     /* scratch [largest size] */
	const float **deltas;          /* scratch [peers] */
	uint64_t event;                /* number of the one looked at */
	struct ledger_counts counts;
	uint64_t hash;
	char fault[LEDGER_FAULT_BYTES];
};

/* Keeps the text of the first fault; always false. */
bool ledger_fail(struct ledger *ledger, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a member brings to a layer. */
static inline struct share *ledger_share(struct ledger *ledger, uint32_t slot, size_t layer_index)
{
	return &ledger->shares[slot * ledger->layer_count + layer_index];
}
/* A member's node has taken what its worker has offered, if it is there and a view is ready. */
void ledger_hold(struct ledger *ledger, uint32_t slot);
/* A layer goes back to the worker apart from a commit: fetched, or because the worker has none. */
bool ledger_publish_late(struct ledger *ledger, uint32_t slot, size_t layer_index, const struct layer *layer,
			 const struct action *publish);

#endif

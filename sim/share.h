#ifndef EDIT_SIM_SHARE_H
#define EDIT_SIM_SHARE_H

/* What one member brings to the rounds of one layer, as the ledger sees it: theta as offered, the anchor that it began from,
 * what a round behind the worker's steps still owes it, a gradient; and from these the pseudo-gradient and the verdict that
 * the member must have come to. Written from the rules and not from core/. */

#include "core/layer.h"
#include "sim/formula.h"

struct share {
	uint64_t round;   /* committed */
	size_t size;
	bool offered;     /* theta is with the node and must not change */
	bool handed;      /* so is a gradient */
	bool is_absent;   /* there is none */
	bool is_behind;   /* the worker steps on with theta, the round runs with the snapshot */
	bool corrects;    /* what the snapshot has become in a round is still to be added to theta */
	bool is_made_up;  /* that is done, for the offer at hand */
	bool waits;       /* the worker has no theta yet, so the member brings nothing */
	bool is_fetched;  /* the round that the offer was for came from another member, and theta has not gone back yet */
	enum verdict fetched_as; /* the member's own in that round */
	uint64_t own_commit; /* last round that the member has advanced its detector for */
	uint64_t first_view; /* of this life; what others do in earlier ones is with the earlier life */
	bool is_void;     /* theta began from an outcome of a round that no longer holds, so the member may bring nothing */
	bool is_rejected; /* it was left out of that round */
	bool has_fallen;  /* with this detector */
	struct formula_detector detector;
	uint64_t stale;   /* rounds in a row that have gone on without it */
	bool is_unheld;   /* the node has not taken the offer yet: no view is ready, or it has not heard of it */
	bool is_again;    /* the offer at hand was made to an earlier daemon, too */
	struct share *ghost; /* the member's earlier life */
	uint64_t commit_event; /* of the last commit */
	float *theta;     /* [size] as offered */
	float *snapshot;  /* [size] */
	float *reference; /* [size] the anchor that theta began from */
	float *delta;     /* [size] pseudo-gradient or gradient */
	uint64_t theta_hash, state_hash;
};

/* Begins with the layer's anchor; takes memory. */
void share_init(struct share *share, const struct layer *layer);
/* Releases it, and the earlier life's. */
void share_fini(struct share *share);
/* The member begins anew with this layer. had_begun: what it brought in its earlier life counts. */
void share_restart(struct share *share, const struct layer *layer, bool had_begun);
/* The member has fallen and its worker lives on: what was brought until now is its earlier life's from here on. Or it does not after all. */
void share_part(struct share *share);
void share_rejoin(struct share *share);
/* Its next daemon begins with what the last one has left of the layer (is_nothing: nothing), and with a worker that has gone on.
 * is_stale: its theta may have begun from another anchor. */
void share_survive(struct share *share, const struct layer *layer, bool is_nothing, bool is_stale);
/* A layer goes back to the worker as it is, without a round. */
void share_give_back(struct share *share);
/* The worker hands theta over, or a gradient (is_absent: has none). false: it has done so already. */
bool share_offer(struct share *share, const struct layer *layer);
bool share_gradient(struct share *share, const struct layer *layer, bool is_absent);
/* Theta goes back at the offer, its round is still to come. false: it is not what it was, corrected by the last round. */
bool share_return(struct share *share, const struct layer *layer);
/* Theta goes back as the anchor, or a gradient as the mean. */
void share_end(struct share *share, const struct layer *layer);
/* A round is committed with this member's verdict; is_applied: anybody was accepted. */
void share_commit(struct share *share, const struct layer *layer, enum verdict verdict, bool is_applied);
/* Whether the member has brought what a round of gradients, or of parameters, is made of. */
bool share_is_there(const struct share *share, bool is_gradients);
/* Works out delta, once all corrections are in. */
void share_settle(struct share *share);
/* Whether the member has been late so often that it must begin anew. */
bool share_is_too_stale(const struct share *share, const struct ring_settings *settings);
/* The verdict that the member must have come to, where its record says of itself that it is late, or has this norm. detector
 * advances; *ret_z: 0 where it is not defined. */
enum verdict share_judge(const struct share *share, const struct record *record, bool is_gradients,
			 const struct ring_settings *settings, struct formula_detector *detector, double *ret_z);

/* Hashes of a layer's theta and gradient, and of anchor and momentum. */
uint64_t share_theta_hash(const struct layer *layer);
uint64_t share_gradient_hash(const struct layer *layer);
uint64_t share_state_hash(const struct layer *layer);

#endif

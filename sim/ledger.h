#ifndef EDIT_SIM_LEDGER_H
#define EDIT_SIM_LEDGER_H

/* What must be true of a ring at every moment, kept by somebody who sees all members at once. The world shows it every
 * event's outcome; it says what is wrong with the first thing that is. It changes nothing.
 *
 * Anchor and momentum of a layer are equal bits on all members at one round, and equal to the formula applied to all
 * pseudo-gradients, each of theta as it was offered and the anchor that this theta began from; with gradients, to their mean
 * and to theta before the step, so that theta is equal on all members too. Each peer's verdict, z, norm and detector follow
 * from its own thetas. Weights add up to 1 and are 0 for whoever was not accepted. A layer's rounds grow by one, each
 * published once; what is not published is not touched; settings are the same in the same round. sim/share.h keeps what
 * members bring. */

#include "core/node.h"
#include "sim/roster.h"

enum { LEDGER_FAULT_BYTES = 240 };

struct ledger;

/* Anchor 0 of every layer is taken from layers [layer_count]; settings are those of the first round. rounds: of the whole run. */
struct ledger *ledger_new(uint32_t peers, const struct layer *layers, size_t layer_count, uint64_t rounds,
			  const struct ring_settings *settings);
/* NULL is allowed. */
void ledger_free(struct ledger *ledger);

/* Text of the first fault; NULL if there is none. All functions below return false, and keep the first text, after a fault. */
const char *ledger_fault(const struct ledger *ledger);

/* A member's worker hands over all layers, before its node is told. */
bool ledger_offer(struct ledger *ledger, uint32_t rank, const struct layer *layers);
/* It hands over a layer's gradient, or has none. */
bool ledger_gradient(struct ledger *ledger, uint32_t rank, const struct layer *layers, size_t layer_index, bool is_absent);
/* A member has come back with the state of round 0. had_begun: its earlier life had seen the ring complete, so what it
 * offered counts. */
void ledger_restart(struct ledger *ledger, uint32_t rank, const struct layer *layers, bool had_begun);
/* A member enters a view, the first one or another. */
void ledger_seat(struct ledger *ledger, uint32_t slot, const struct roster *roster);
/* A member stops; and comes back with these rounds of its layers (LAYER_NOTHING: damaged or none) and a worker that waits for theta. */
void ledger_fall(struct ledger *ledger, uint32_t slot);
void ledger_rise(struct ledger *ledger, uint32_t slot, const struct layer *layers, const uint64_t *rounds);
/* A member that has fallen has a worker that lives on, or its memory is there for the next one. When it comes back, that worker has what
 * the state says: ledger_survive instead of ledger_rise; kept_round: completed by all
 * layers; is_stale: theta may have begun from another anchor, as far as is known; is_outdated: the worker waits for all of
 * it. Until ledger_meet what the worker hands over
 * is not heard; then it is offered again (what has come back since too), or given back. */
void ledger_part(struct ledger *ledger, uint32_t slot);
void ledger_survive(struct ledger *ledger, uint32_t slot, const struct layer *layers, const uint64_t *rounds, uint64_t kept_round,
		    bool is_stale, bool is_outdated);
void ledger_meet(struct ledger *ledger, uint32_t slot);
void ledger_offer_again(struct ledger *ledger, uint32_t slot, const struct layer *layers);
void ledger_give_back(struct ledger *ledger, uint32_t slot, size_t layer_index);
/* Whether the gradient that was handed over is none. */
bool ledger_is_absent(const struct ledger *ledger, uint32_t slot, size_t layer_index);
/* Whether a layer's round that was committed in view `since` has been done again in a later one. */
bool ledger_is_outdone(const struct ledger *ledger, size_t layer_index, uint64_t round, uint64_t since);
/* For every layer fetched from others. */
bool ledger_heal(struct ledger *ledger, uint32_t slot, const struct layer *layers, const struct action *healed, uint64_t *ret_hash);
/* After every event of a member, and its publishes; status: as of now. */
bool ledger_look(struct ledger *ledger, uint32_t rank, const struct node *node, const struct layer *layers,
		 const struct node_status *status);
/* For every commit among the actions of an event, before its hash is told; *ret_hash: of anchor and momentum. */
bool ledger_commit(struct ledger *ledger, uint32_t rank, const struct node *node, const struct layer *layers,
		   const struct action *committed, uint64_t *ret_hash);
/* For every publish among them. */
bool ledger_publish(struct ledger *ledger, uint32_t rank, const struct layer *layers, const struct action *publish);

/* ---- Counts for the summary ---- */

struct ledger_counts {
	uint64_t commits, outliers, nonfinites, rollbacks;
	uint64_t heals, redone, again; /* again: layers of offers that were taken by the next daemon, and counted */
	uint64_t lates, absents, gradients, aligned; /* verdicts; layers' rounds */
};

/* What has happened so far; verdicts are counted once, not once per member. */
struct ledger_counts ledger_counts(const struct ledger *ledger);
/* Hash of all that was committed, in layer and round order. */
uint64_t ledger_hash(const struct ledger *ledger);

#endif

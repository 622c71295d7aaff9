/* The invariants. One `meeting` per layer and round holds what the members brought to it and what came out. */

#define XXH_INLINE_ALL
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "sim/ledger.h"
#include "sim/ledger_book.h"
#include "sim/memory.h"

#define TOLERANCE 2e-6 /* float32 against double, relative to the size of what was added up */

bool ledger_fail(struct ledger *ledger, const char *format, ...)
{
	if (ledger->fault[0] == '\0') {
		va_list list;
		va_start(list, format);
		vsnprintf(ledger->fault, sizeof ledger->fault, format, list);
		va_end(list);
	}
	return false;
}

const char *ledger_fault(const struct ledger *ledger)
{
	return ledger->fault[0] == '\0' ? NULL : ledger->fault;
}

static uint64_t fold(uint64_t hash, uint64_t number)
{
	return XXH3_64bits_withSeed(&number, sizeof number, hash);
}

/* ---- Life ---- */

struct ledger *ledger_new(uint32_t peers, const struct layer *layers, size_t layer_count, uint64_t rounds,
			  const struct ring_settings *settings)
{
	struct ledger *ledger = memory_take(1, sizeof *ledger);
	*ledger = (struct ledger){.peers = peers, .layer_count = layer_count, .rounds = rounds};
	ledger->layers = memory_take(layer_count, sizeof *ledger->layers);
	ledger->shares = memory_take(peers * layer_count, sizeof *ledger->shares);
	ledger->members = memory_take(peers, sizeof *ledger->members);
	ledger->settings = memory_take(rounds + 1, sizeof *ledger->settings);
	ledger->settings_known = memory_take(rounds + 1, sizeof *ledger->settings_known);
	ledger->settings[0] = *settings;
	ledger->settings_known[0] = true;
	ledger->deltas = memory_take(peers, sizeof *ledger->deltas);
	size_t largest = 0;
	for (size_t l = 0; l < layer_count; l++) {
		struct ledger_layer *layer = &ledger->layers[l];
		layer->size = layers[l].size;
		largest = size_max(largest, layer->size);
		layer->anchor = memory_take(layer->size, sizeof(float));
		layer->momentum = memory_take(layer->size, sizeof(float));
		layer->detectors = memory_take(peers, sizeof *layer->detectors);
		layer->anchor_before = memory_take(layer->size, sizeof(float));
		layer->momentum_before = memory_take(layer->size, sizeof(float));
		layer->detectors_before = memory_take(peers, sizeof *layer->detectors_before);
		memcpy(layer->anchor, layers[l].anchor, layer->size * sizeof(float));
		for (size_t k = 0; k < MEETINGS; k++) {
			struct meeting *meeting = &layer->meetings[k];
			meeting->records = memory_take(peers, sizeof *meeting->records);
			meeting->weights = memory_take(peers, sizeof *meeting->weights);
		}
		for (uint32_t rank = 0; rank < peers; rank++)
			share_init(ledger_share(ledger, rank, l), &layers[l]);
	}
	ledger->anchor = memory_take(largest, sizeof(double));
	ledger->momentum = memory_take(largest, sizeof(double));
	return ledger;
}

void ledger_free(struct ledger *ledger)
{
	if (ledger == NULL)
		return;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct ledger_layer *layer = &ledger->layers[l];
		for (size_t k = 0; k < MEETINGS; k++) {
			free(layer->meetings[k].records);
			free(layer->meetings[k].weights);
		}
		for (uint32_t rank = 0; rank < ledger->peers; rank++)
			share_fini(ledger_share(ledger, rank, l));
		free(layer->anchor);
		free(layer->momentum);
		free(layer->detectors);
		free(layer->anchor_before);
		free(layer->momentum_before);
		free(layer->detectors_before);
	}
	free(ledger->layers);
	free(ledger->shares);
	free(ledger->members);
	free(ledger->settings);
	free(ledger->settings_known);
	free(ledger->deltas);
	free(ledger->anchor);
	free(ledger->momentum);
	free(ledger);
}

/* ---- Offers and memory ---- */

static struct meeting *meeting_of(struct ledger *ledger, const struct roster *roster, size_t layer_index, uint64_t round)
{
	struct meeting *meeting = &ledger->layers[layer_index].meetings[round % MEETINGS];
	if (meeting->round == round)
		return meeting;
	/* Of two members in one view neither is two rounds ahead. */
	if (meeting->round != 0 && meeting->roster == roster && meeting->committed_count < roster->count) {
		ledger_fail(ledger, "layer %zu: round %ju begins before round %ju is done everywhere", layer_index, (uintmax_t)round,
		     (uintmax_t)meeting->round);
		return NULL;
	}
	meeting->round = round;
	meeting->committed_count = 0;
	return meeting;
}

bool ledger_offer(struct ledger *ledger, uint32_t rank, const struct layer *layers)
{
	for (size_t l = 0; l < ledger->layer_count; l++)
		if (!share_offer(ledger_share(ledger, rank, l), &layers[l]))
			return ledger_fail(ledger, "peer %u, layer %zu: offered twice", rank, l);
	ledger_hold(ledger, rank);
	return true;
}

bool ledger_gradient(struct ledger *ledger, uint32_t rank, const struct layer *layers, size_t l, bool is_absent)
{
	if (!share_gradient(ledger_share(ledger, rank, l), &layers[l], is_absent))
		return ledger_fail(ledger, "peer %u, layer %zu: gradient handed over twice", rank, l);
	return true;
}

void ledger_restart(struct ledger *ledger, uint32_t rank, const struct layer *layers, bool had_begun)
{
	ledger->members[rank].round = 0;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct share *share = ledger_share(ledger, rank, l);
		share_restart(share, &layers[l], had_begun);
		share->first_view = had_begun ? UINT64_MAX : 0; /* the others will not have it in theirs, or have nothing yet */
	}
}

/* Whose offer the others have: that of the earlier life, once the ring had begun. */
static struct share *bringer_of(struct ledger *ledger, const struct roster *roster, uint32_t slot, size_t layer_index)
{
	struct share *share = ledger_share(ledger, slot, layer_index);
	while (share->ghost != NULL && roster->view < share->first_view)
		share = share->ghost;
	return share;
}

static bool look_at_memory(struct ledger *ledger, uint32_t rank, const struct layer *layers, size_t l)
{
	const struct share *share = ledger_share(ledger, rank, l);
	bool is_kept = (share->offered && !share->corrects) || share->handed;
	if (is_kept && share_theta_hash(&layers[l]) != share->theta_hash)
		return ledger_fail(ledger, "peer %u, layer %zu: theta was changed before it was published", rank, l);
	if (share_state_hash(&layers[l]) != share->state_hash)
		return ledger_fail(ledger, "peer %u, layer %zu: anchor or momentum changed without a commit", rank, l);
	return true;
}

static bool look_at_settings(struct ledger *ledger, uint32_t rank, const struct node *node, uint64_t round)
{
	struct ledger_member *member = &ledger->members[rank];
	const struct ring_settings *settings = node_settings(node);
	bool is_new = member->round != round;
	if (round > ledger->rounds)
		return ledger_fail(ledger, "peer %u: round %ju of %ju", rank, (uintmax_t)round, (uintmax_t)ledger->rounds);
	if (!ledger->settings_known[round]) {
		ledger->settings[round] = *settings;
		ledger->settings_known[round] = true;
	}
	if (memcmp(settings, &ledger->settings[round], sizeof *settings) != 0)
		return ledger_fail(ledger, "peer %u: settings after round %ju differ from %s", rank, (uintmax_t)round,
			    is_new ? "another peer's" : "its own before");
	return true;
}

/* Whether the node has heard of an offer whose layers are not all back. */
static bool has_offered(const struct ledger *ledger, uint32_t rank)
{
	for (size_t l = 0; l < ledger->layer_count; l++) {
		const struct share *share = &ledger->shares[rank * ledger->layer_count + l];
		if (!share->is_unheld && (share->offered || share->handed || share->is_behind))
			return true;
	}
	return false;
}

bool ledger_look(struct ledger *ledger, uint32_t rank, const struct node *node, const struct layer *layers,
		 const struct node_status *status)
{
	struct ledger_member *member = &ledger->members[rank];
	ledger->event++;
	if (ledger_fault(ledger) != NULL)
		return false;
	if (!node_is_ready(node) && member->is_standing) {
		member->next_check = (member->next_check + 1) % ledger->layer_count;
		return look_at_memory(ledger, rank, layers, member->next_check);
	}
	if (member->is_standing) {
		member->round = status->round;
		member->is_standing = false;
		ledger_hold(ledger, rank);
	}
	if (status->round != member->round && status->round != member->round + 1)
		return ledger_fail(ledger, "peer %u: from round %ju to %ju", rank, (uintmax_t)member->round, (uintmax_t)status->round);
	if (!look_at_settings(ledger, rank, node, status->round))
		return false;
	member->round = status->round;
	uint64_t lowest = UINT64_MAX;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		uint64_t round = node_layer_round(node, l);
		lowest = u64_min(lowest, round);
		if (round != ledger_share(ledger, rank, l)->round)
			return ledger_fail(ledger, "peer %u, layer %zu: round %ju without a commit", rank, l, (uintmax_t)round);
		if (round != status->round && round != status->round + 1)
			return ledger_fail(ledger, "peer %u, layer %zu: round %ju while round %ju is complete", rank, l,
				    (uintmax_t)round, (uintmax_t)status->round);
	}
	/* Others may have done all layers while this one was away: then its round is over with its worker's next offer. */
	bool is_unheard = lowest == status->round + 1 && !has_offered(ledger, rank);
	if (lowest != status->round && !is_unheard)
		return ledger_fail(ledger, "peer %u: all layers at round %ju, status says %ju", rank, (uintmax_t)lowest,
			    (uintmax_t)status->round);
	member->next_check = (member->next_check + 1) % ledger->layer_count;
	return look_at_memory(ledger, rank, layers, member->next_check);
}

/* ---- Commits ---- */

static bool is_near(double x, double expected, double relative, double absolute)
{
	return x == expected || fabs(x - expected) <= relative * fabs(expected) + absolute;
}

/* A peer's record against its own theta and detector. */
static bool check_record(struct ledger *ledger, size_t l, const struct meeting *meeting, uint32_t rank,
			 const struct ring_settings *settings)
{
	const size_t size = ledger->layers[l].size;
	const struct record *record = &meeting->records[rank];
	const uint32_t slot = meeting->roster->slots[rank];
	struct share *share = bringer_of(ledger, meeting->roster, slot, l);
	struct formula_detector earlier = share->detector;
	struct formula_detector *detector = share->has_fallen ? &earlier : &ledger->layers[l].detectors[slot];
	double z;
	if (record->round != meeting->round || record->layer_index != l || record->origin != rank)
		return ledger_fail(ledger, "layer %zu, round %ju: the record of peer %u is another's", l, (uintmax_t)meeting->round,
			    rank);
	if (record->verdict != VERDICT_LATE && !share_is_there(share, meeting->is_gradients))
		return ledger_fail(ledger, "layer %zu, round %ju: peer %u has not offered", l, (uintmax_t)meeting->round, rank);
	enum verdict verdict = share_judge(share, record, meeting->is_gradients, settings, detector, &z);
	if (record->verdict != verdict)
		return ledger_fail(ledger, "layer %zu, round %ju: verdict %d of peer %u, expected %d (norm %.9g, z %.9g)", l,
			    (uintmax_t)meeting->round, (int)record->verdict, rank, (int)verdict, record->norm, z);
	if (verdict == VERDICT_LATE || verdict == VERDICT_ABSENT) {
		ledger->counts.lates += verdict == VERDICT_LATE;
		ledger->counts.absents += verdict == VERDICT_ABSENT;
		return true;
	}
	share_settle(share);
	double norm = formula_norm(share->delta, size);
	if (isfinite(norm) && !is_near(record->norm, norm, 1e-6, 0.0))
		return ledger_fail(ledger, "layer %zu, round %ju: norm %.9g of peer %u, expected %.9g", l, (uintmax_t)meeting->round,
			    record->norm, rank, norm);
	if (!isfinite(norm) && isfinite(record->norm))
		return ledger_fail(ledger, "layer %zu, round %ju: norm %.9g of a nonfinite theta of peer %u", l,
			    (uintmax_t)meeting->round, record->norm, rank);
	if (!is_near(record->z, z, 1e-9, 1e-12))
		return ledger_fail(ledger, "layer %zu, round %ju: z %.12g of peer %u, expected %.12g", l, (uintmax_t)meeting->round,
			    record->z, rank, z);
	ledger->counts.again += share->is_again && verdict == VERDICT_ACCEPTED;
	ledger->counts.outliers += verdict == VERDICT_OUTLIER;
	ledger->counts.nonfinites += verdict == VERDICT_NONFINITE;
	return true;
}

static double distance(const float *x, const double *expected, size_t size)
{
	double sum = 0.0;
	for (size_t i = 0; i < size; i++)
		sum += ((double)x[i] - expected[i]) * ((double)x[i] - expected[i]);
	return sqrt(sum);
}

static bool is_realigned(const struct meeting *meeting)
{
	for (uint32_t rank = 0; rank < meeting->roster->count; rank++)
		if (meeting->records[rank].realign)
			return true;
	return false;
}

/* A round of gradients: their mean, and the anchor that is theta before the step. */
static bool check_mean(struct ledger *ledger, size_t l, struct meeting *meeting, const struct layer *result)
{
	const struct ledger_layer *layer = &ledger->layers[l];
	size_t bytes = layer->size * sizeof(float);
	const float *expected = is_realigned(meeting) ? layer->anchor : result->theta;
	if (memcmp(result->anchor, expected, bytes) != 0 || memcmp(result->momentum, layer->momentum, bytes) != 0)
		return ledger_fail(ledger, "layer %zu, round %ju: the anchor is not theta before the step", l,
			    (uintmax_t)meeting->round);
	if (meeting->accepted == 0 || meeting->first_waits)
		return true;
	double scale = formula_mean(ledger->deltas, meeting->weights, meeting->roster->count, layer->size, ledger->anchor);
	double error = distance(result->gradient, ledger->anchor, layer->size);
	if (!(error <= TOLERANCE * scale + 1e-30))
		return ledger_fail(ledger, "layer %zu, round %ju: the mean gradient is off by %.3g (of %.3g)", l,
			    (uintmax_t)meeting->round, error, scale);
	return true;
}

/* The ring goes on without a member only once more than half have offered. */
static bool check_lates(struct ledger *ledger, size_t l, const struct meeting *meeting, const struct ring_settings *settings)
{
	uint32_t lates = 0;
	bool goes_on = false;
	for (uint32_t rank = 0; rank < meeting->roster->count; rank++) {
		bool is_late = meeting->records[rank].verdict == VERDICT_LATE;
		lates += is_late;
		goes_on |= is_late && !share_is_too_stale(bringer_of(ledger, meeting->roster, meeting->roster->slots[rank], l), settings);
	}
	/* In a later view the others may be fewer than when it was late. */
	if (goes_on && meeting->roster->view == VIEW_FIRST && 2 * lates >= meeting->roster->count)
		return ledger_fail(ledger, "layer %zu, round %ju: %u of %u peers are late", l, (uintmax_t)meeting->round, lates,
			    meeting->roster->count);
	return true;
}

/* The first member to commit: its result against the formula. */
static bool check_result(struct ledger *ledger, size_t l, struct meeting *meeting, const struct layer *result,
			 const struct ring_settings *settings)
{
	struct ledger_layer *layer = &ledger->layers[l];
	double scale;
	bool is_equal = formula_is_equal(settings, meeting->round);
	meeting->accepted = is_equal ? formula_equal_weights(meeting->records, meeting->roster->count, meeting->weights)
				     : formula_weights(meeting->records, meeting->roster->count, settings, meeting->weights);
	ledger->counts.rollbacks += meeting->accepted == 0;
	ledger->counts.gradients += meeting->is_gradients;
	ledger->counts.aligned += is_equal && !meeting->is_gradients;
	for (uint32_t rank = 0; rank < meeting->roster->count; rank++)
		ledger->deltas[rank] = bringer_of(ledger, meeting->roster, meeting->roster->slots[rank], l)->delta;
	if (meeting->is_gradients)
		return check_mean(ledger, l, meeting, result);
	if (meeting->accepted == 0) {
		if (memcmp(result->anchor, layer->anchor, layer->size * sizeof(float)) != 0 ||
		    memcmp(result->momentum, layer->momentum, layer->size * sizeof(float)) != 0)
			return ledger_fail(ledger, "layer %zu, round %ju: changed although nobody was accepted", l,
				    (uintmax_t)meeting->round);
		return true;
	}
	formula_step(layer->anchor, layer->momentum, ledger->deltas, meeting->weights, meeting->roster->count, layer->size, settings,
		     ledger->anchor, ledger->momentum, &scale);
	double momentum_error = distance(result->momentum, ledger->momentum, layer->size);
	double anchor_error = distance(result->anchor, ledger->anchor, layer->size);
	double anchor_scale = formula_norm(layer->anchor, layer->size) + settings->value[OUTER_LR] * 2.0 * scale;
	if (!(momentum_error <= TOLERANCE * scale + 1e-30))
		return ledger_fail(ledger, "layer %zu, round %ju: momentum is off by %.3g (of %.3g)", l, (uintmax_t)meeting->round,
			    momentum_error, scale);
	if (!(anchor_error <= TOLERANCE * anchor_scale + 1e-30))
		return ledger_fail(ledger, "layer %zu, round %ju: anchor is off by %.3g (of %.3g)", l, (uintmax_t)meeting->round,
			    anchor_error, anchor_scale);
	return true;
}

/* Nobody who is there has this round of the layer: all that it has left is forgotten. */
static bool begin_again(struct ledger *ledger, size_t l, struct meeting *meeting, const struct roster *roster)
{
	struct ledger_layer *layer = &ledger->layers[l];
	for (uint32_t rank = 0; rank < roster->count; rank++)
		if (ledger_share(ledger, roster->slots[rank], l)->round >= meeting->round && !ledger->members[roster->slots[rank]].is_gone)
			return ledger_fail(ledger, "layer %zu, round %ju: done again although peer %u has it", l, (uintmax_t)meeting->round,
				    roster->slots[rank]);
	memcpy(layer->anchor, layer->anchor_before, layer->size * sizeof(float));
	memcpy(layer->momentum, layer->momentum_before, layer->size * sizeof(float));
	for (uint32_t slot = 0; slot < ledger->peers; slot++)
		if (ledger_share(ledger, slot, l)->own_commit < meeting->round)
			layer->detectors[slot] = layer->detectors_before[slot];
	layer->round--;
	ledger->settings_known[meeting->round] = false;
	ledger->counts.redone++;
	return true;
}

static void keep_before(struct ledger *ledger, struct ledger_layer *layer)
{
	memcpy(layer->anchor_before, layer->anchor, layer->size * sizeof(float));
	memcpy(layer->momentum_before, layer->momentum, layer->size * sizeof(float));
	memcpy(layer->detectors_before, layer->detectors, ledger->peers * sizeof *layer->detectors);
}

static bool first_commit(struct ledger *ledger, uint32_t first, const struct node *node, size_t l, struct meeting *meeting,
			 const struct layer *result)
{
	struct ledger_layer *layer = &ledger->layers[l];
	if (meeting->round != layer->round + 1)
		return ledger_fail(ledger, "layer %zu: round %ju committed after round %ju", l, (uintmax_t)meeting->round,
			    (uintmax_t)layer->round);
	const struct roster *roster = meeting->roster;
	keep_before(ledger, layer);
	meeting->is_gradients = false;
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const uint32_t slot = roster->slots[rank];
		const struct share *share = bringer_of(ledger, roster, slot, l);
		bool is_unheard = ledger->members[slot].is_apart && share == ledger_share(ledger, slot, l);
		meeting->is_gradients |= share->handed && !is_unheard;
	}
	const struct record *own = node_record(node, l, roster_rank(roster, first));
	meeting->first_waits = !ledger_share(ledger, first, l)->handed || own->verdict == VERDICT_LATE;
	CHECK(ledger->settings_known[meeting->round - 1]);
	const struct ring_settings *settings = &ledger->settings[meeting->round - 1];
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const uint32_t slot = roster->slots[rank];
		meeting->records[rank] = *node_record(node, l, rank);
		if (!check_record(ledger, l, meeting, rank, settings))
			return false;
		/* Who has fallen has not advanced its own. */
		if (ledger->members[slot].is_gone || roster->view < ledger_share(ledger, slot, l)->first_view)
			layer->detectors[slot] = layer->detectors_before[slot];
	}
	if (!check_lates(ledger, l, meeting, settings) || !check_result(ledger, l, meeting, result, settings))
		return false;
	memcpy(layer->anchor, result->anchor, layer->size * sizeof(float));
	memcpy(layer->momentum, result->momentum, layer->size * sizeof(float));
	layer->round = meeting->round;
	meeting->hash = share_state_hash(result);
	meeting->mean_hash = 0;
	ledger->hash = fold(ledger->hash, meeting->hash);
	return true;
}

/* What this member believes of all others, and its own detector. */
static bool check_beliefs(struct ledger *ledger, uint32_t rank, const struct node *node, size_t l,
			  const struct meeting *meeting)
{
	double sum = 0.0;
	for (uint32_t other = 0; other < meeting->roster->count; other++) {
		const struct record *record = node_record(node, l, other), *first = &meeting->records[other];
		double weight = node_weight(node, l, other);
		if (record->round != first->round || record->verdict != first->verdict || record->steps != first->steps ||
		    memcmp(&record->norm, &first->norm, sizeof record->norm) != 0)
			return ledger_fail(ledger, "peer %u, layer %zu, round %ju: its record of peer %u differs", rank, l,
				    (uintmax_t)meeting->round, other);
		if (!is_near(weight, meeting->weights[other], 1e-12, 0.0))
			return ledger_fail(ledger, "peer %u, layer %zu, round %ju: weight %.15g of peer %u, expected %.15g", rank, l,
				    (uintmax_t)meeting->round, weight, other, meeting->weights[other]);
		if (record->verdict != VERDICT_ACCEPTED && weight != 0.0)
			return ledger_fail(ledger, "peer %u, layer %zu, round %ju: peer %u is left out and has weight %.9g", rank, l,
				    (uintmax_t)meeting->round, other, weight);
		sum += weight;
	}
	if (sum != 0.0 && !is_near(sum, 1.0, 1e-12, 0.0))
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: weights add up to %.15g", rank, l,
			    (uintmax_t)meeting->round, sum);
	return true;
}

static bool check_detector(struct ledger *ledger, uint32_t rank, const struct node *node, size_t l, uint64_t round)
{
	const struct detector *detector = node_detector(node, l);
	const struct formula_detector *expected = &ledger->layers[l].detectors[rank];
	if (ledger->layers[l].round != round)
		return true; /* others are a round ahead: the expected one is too */
	if ((double)detector->count != expected->count || (double)detector->streak != expected->streak ||
	    !is_near(detector->mean, expected->mean, 1e-12, 0.0) || !is_near(detector->var, expected->var, 1e-9, 1e-18))
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: detector (%ju, %.9g, %.9g), expected (%.0f, %.9g, %.9g)",
			    rank, l, (uintmax_t)round, (uintmax_t)detector->count, detector->mean, detector->var,
			    expected->count, expected->mean, expected->var);
	return true;
}

bool ledger_commit(struct ledger *ledger, uint32_t rank, const struct node *node, const struct layer *layers,
		   const struct action *committed, uint64_t *ret_hash)
{
	const size_t l = committed->layer_index;
	if (ledger_fault(ledger) != NULL)
		return false;
	if (l >= ledger->layer_count)
		return ledger_fail(ledger, "peer %u: commits layer %zu of %zu", rank, l, ledger->layer_count);
	struct share *share = ledger_share(ledger, rank, l);
	const struct layer *layer = &layers[l];
	if (committed->round != share->round + 1)
		return ledger_fail(ledger, "peer %u, layer %zu: round %ju committed after round %ju", rank, l,
			    (uintmax_t)committed->round, (uintmax_t)share->round);
	const struct roster *roster = ledger->members[rank].roster;
	struct meeting *meeting = meeting_of(ledger, roster, l, committed->round);
	if (meeting == NULL)
		return false;
	if (meeting->committed_count > 0 && meeting->roster != roster) {
		if (!begin_again(ledger, l, meeting, roster))
			return false;
		meeting->committed_count = 0;
	}
	meeting->roster = roster;
	if ((meeting->committed_count++ == 0 && !first_commit(ledger, rank, node, l, meeting, layer)))
		return false;
	uint64_t hash = share_state_hash(layer);
	if (hash != meeting->hash)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: anchor or momentum differs from other peers'", rank, l,
			    (uintmax_t)committed->round);
	/* Whoever has brought none gets none. */
	const enum verdict own = meeting->records[roster_rank(roster, rank)].verdict;
	bool has_mean = meeting->is_gradients && meeting->accepted > 0 && share->handed && own != VERDICT_LATE;
	if (has_mean && meeting->mean_hash == 0)
		meeting->mean_hash = share_gradient_hash(layer);
	if (has_mean && share_gradient_hash(layer) != meeting->mean_hash)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: the mean gradient differs from other peers'", rank, l,
			    (uintmax_t)committed->round);
	if (!check_beliefs(ledger, rank, node, l, meeting) || !check_detector(ledger, rank, node, l, committed->round))
		return false;
	share_commit(share, layer, own, meeting->accepted > 0);
	share->round = share->own_commit = committed->round;
	share->commit_event = ledger->event;
	share->state_hash = hash;
	ledger->counts.commits++;
	*ret_hash = hash;
	return true;
}

bool ledger_publish(struct ledger *ledger, uint32_t rank, const struct layer *layers, const struct action *publish)
{
	const size_t l = publish->layer_index;
	if (ledger_fault(ledger) != NULL)
		return false;
	struct share *share = ledger_share(ledger, rank, l);
	const struct layer *layer = &layers[l];
	if ((!share->offered && !share->handed && !share->waits) || publish->round != share->round)
		return ledger_fail(ledger, "peer %u, layer %zu: published with round %ju after round %ju%s", rank, l,
			    (uintmax_t)publish->round, (uintmax_t)share->round, share->offered ? "" : ", without an offer");
	/* An offer that comes after its round was done, or a gradient for which there is none. */
	const bool is_anchor = memcmp(layer->theta, layer->anchor, layer->size * sizeof(float)) == 0;
	/* Of an empty layer nobody can tell, and it makes no difference where the round runs behind the worker's steps. */
	const bool is_plain = layer->size > 0 || ledger->settings[ledger->members[rank].round].value[SYNC_OVERLAP] != OVERLAP_STEPS;
	const bool is_left_out = publish->verdict == VERDICT_ABSENT && is_anchor && is_plain;
	const bool is_ahead = share->is_void && (share->round > ledger->members[rank].round || is_left_out);
	const bool is_after = share->commit_event != ledger->event && (is_ahead || share->handed);
	if (share->waits || share->is_fetched || is_after)
		return ledger_publish_late(ledger, rank, l, layer, publish);
	if (share->commit_event != ledger->event || share->round == 0) { /* its round is still to come */
		if (!share_return(share, layer))
			return ledger_fail(ledger, "peer %u, layer %zu, round %ju: theta is not what it was, corrected by the last round",
				    rank, l, (uintmax_t)publish->round);
		return true;
	}
	const struct meeting *meeting = &ledger->layers[l].meetings[publish->round % MEETINGS];
	enum verdict verdict = meeting->records[roster_rank(meeting->roster, rank)].verdict;
	if (share->handed)
		verdict = meeting->accepted > 0 ? VERDICT_ACCEPTED : VERDICT_NONFINITE;
	else if (memcmp(layer->theta, layer->anchor, layer->size * sizeof(float)) != 0)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: theta is not the anchor", rank, l,
			    (uintmax_t)publish->round);
	if (publish->verdict != verdict)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: published with another verdict than recorded", rank, l,
			    (uintmax_t)publish->round);
	share_end(share, layer);
	return true;
}

struct ledger_counts ledger_counts(const struct ledger *ledger)
{
	return ledger->counts;
}

uint64_t ledger_hash(const struct ledger *ledger)
{
	uint64_t hash = ledger->hash;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		const struct ledger_layer *layer = &ledger->layers[l];
		hash = fold(hash, layer->round);
		hash = fold(hash, XXH3_64bits(layer->anchor, layer->size * sizeof(float)));
		hash = fold(hash, XXH3_64bits(layer->momentum, layer->size * sizeof(float)));
	}
	return hash;
}

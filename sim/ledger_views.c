/* Members that fall, come back and fetch what they lack. */

#include <string.h>

#include "sim/ledger_book.h"

static bool is_of_roster(const struct meeting *meeting, uint32_t slot)
{
	return roster_rank(meeting->roster, slot) < meeting->roster->count;
}

/* Theta began from what no longer holds: the last round has another outcome, or (is_beyond) the others have gone on without this member. */
static void lose(struct share *share, const struct layer *layer, bool is_beyond)
{
	bool has_part = share->offered || share->is_behind;
	bool is_corrected = share->corrects && !(has_part && share->is_made_up);
	share->fetched_as = VERDICT_ABSENT;
	if (is_beyond && !share->is_behind)
		share->is_fetched = !share->is_unheld && (share->offered || share->handed); /* goes back as it is, or as the anchor */
	share->corrects |= is_beyond && share->is_behind;
	if (is_beyond ? share->is_behind : is_corrected)
		memcpy(share->reference, layer->anchor, share->size * sizeof(float));
	share->is_behind &= !is_beyond;
	share->is_void = true;
}

bool ledger_heal(struct ledger *ledger, uint32_t slot, const struct layer *layers, const struct action *healed, uint64_t *ret_hash)
{
	const size_t l = healed->layer_index;
	if (ledger_fault(ledger) != NULL)
		return false;
	const struct ledger_layer *layer = &ledger->layers[l];
	struct share *share = ledger_share(ledger, slot, l);
	bool is_before = healed->round + 1 == layer->round;
	const float *anchor = is_before ? layer->anchor_before : layer->anchor;
	const float *momentum = is_before ? layer->momentum_before : layer->momentum;
	if (!is_before && healed->round != layer->round)
		return ledger_fail(ledger, "peer %u, layer %zu: fetched as of round %ju, which is not the last one (%ju)", slot, l,
			    (uintmax_t)healed->round, (uintmax_t)layer->round);
	if (memcmp(layers[l].anchor, anchor, layer->size * sizeof(float)) != 0 ||
	    memcmp(layers[l].momentum, momentum, layer->size * sizeof(float)) != 0)
		return ledger_fail(ledger, "peer %u, layer %zu: fetched what is not that of round %ju", slot, l, (uintmax_t)healed->round);
	const struct meeting *meeting = &layer->meetings[healed->round % MEETINGS];
	bool is_next = share->round != LAYER_NOTHING && healed->round == share->round + 1 && !share->waits && is_of_roster(meeting, slot);
	if (is_next && meeting->roster->view >= share->first_view) { /* not an earlier life's */
		const struct record *record = &meeting->records[roster_rank(meeting->roster, slot)];
		const enum verdict verdict = record->verdict;
		/* A late member keeps its theta, unless that is the one that came too late. */
		bool keeps = share->is_behind || (verdict == VERDICT_LATE && record->steps == 0);
		share_commit(share, &layers[l], verdict, meeting->accepted > 0);
		share->own_commit = healed->round;
		share->is_fetched = !keeps;
		share->fetched_as = verdict;
	} else if (!share->waits && (healed->round != share->round || share_state_hash(&layers[l]) != share->state_hash)) {
		lose(share, &layers[l], healed->round != share->round);
	}
	*ret_hash = share_state_hash(&layers[l]);
	share->round = healed->round;
	share->state_hash = *ret_hash;
	ledger->counts.heals++;
	return true;
}

void ledger_seat(struct ledger *ledger, uint32_t slot, const struct roster *roster)
{
	struct ledger_member *member = &ledger->members[slot];
	member->is_standing = member->roster != NULL;
	member->roster = roster;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct share *share = ledger_share(ledger, slot, l);
		if (share->first_view == UINT64_MAX)
			share->first_view = roster->view;
	}
}

void ledger_fall(struct ledger *ledger, uint32_t slot)
{
	ledger->members[slot].is_gone = true;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct ledger_layer *layer = &ledger->layers[l];
		const struct meeting *meeting = &layer->meetings[layer->round % MEETINGS];
		if (layer->round > 0 && is_of_roster(meeting, slot) && ledger_share(ledger, slot, l)->own_commit < layer->round)
			layer->detectors[slot] = layer->detectors_before[slot];
		ledger_share(ledger, slot, l)->has_fallen = true;
		ledger_share(ledger, slot, l)->detector = layer->detectors[slot];
	}
}

bool ledger_is_outdone(const struct ledger *ledger, size_t layer_index, uint64_t round, uint64_t since)
{
	const struct meeting *meeting = &ledger->layers[layer_index].meetings[round % MEETINGS];
	return round > 0 && meeting->round == round && meeting->roster->view > since;
}

void ledger_part(struct ledger *ledger, uint32_t slot)
{
	ledger->members[slot].is_parted = ledger->members[slot].is_apart = true;
	for (size_t l = 0; l < ledger->layer_count; l++)
		share_part(ledger_share(ledger, slot, l));
}

void ledger_survive(struct ledger *ledger, uint32_t slot, const struct layer *layers, const uint64_t *rounds, uint64_t kept_round,
		    bool is_stale, bool is_outdated)
{
	ledger->members[slot].is_gone = ledger->members[slot].is_parted = false;
	/* With one layer all are lost. */
	for (size_t l = 0; l < ledger->layer_count; l++)
		is_stale |= rounds[l] > kept_round;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct share *share = ledger_share(ledger, slot, l);
		const bool is_nothing = rounds[l] == LAYER_NOTHING;
		share_survive(share, &layers[l], is_nothing, is_stale);
		share->waits = is_outdated;
		share->is_unheld = true;
		if (is_nothing)
			ledger->layers[l].detectors[slot] = ledger->layers[l].detectors_before[slot] = (struct formula_detector){0};
	}
}

void ledger_hold(struct ledger *ledger, uint32_t slot)
{
	const struct ledger_member *member = &ledger->members[slot];
	for (size_t l = 0; l < ledger->layer_count; l++)
		ledger_share(ledger, slot, l)->is_unheld = member->is_standing || member->is_apart;
}

void ledger_meet(struct ledger *ledger, uint32_t slot)
{
	ledger->members[slot].is_apart = false;
	ledger_hold(ledger, slot);
}

void ledger_offer_again(struct ledger *ledger, uint32_t slot, const struct layer *layers)
{
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct share *share = ledger_share(ledger, slot, l);
		if (!share->offered)
			share_offer(share, &layers[l]);
		share->is_again = true;
	}
}

void ledger_give_back(struct ledger *ledger, uint32_t slot, size_t layer_index)
{
	share_give_back(ledger_share(ledger, slot, layer_index));
}

bool ledger_is_absent(const struct ledger *ledger, uint32_t slot, size_t layer_index)
{
	return ledger->shares[slot * ledger->layer_count + layer_index].is_absent;
}

void ledger_rise(struct ledger *ledger, uint32_t slot, const struct layer *layers, const uint64_t *rounds)
{
	ledger->members[slot].is_gone = false;
	for (size_t l = 0; l < ledger->layer_count; l++) {
		struct share *share = ledger_share(ledger, slot, l);
		uint64_t own_commit = share->own_commit;
		if (ledger->members[slot].is_parted)
			share_rejoin(share);
		share_restart(share, &layers[l], true);
		share->first_view = UINT64_MAX;
		share->waits = true;
		if (rounds[l] != LAYER_NOTHING) {
			share->round = rounds[l];
			share->own_commit = own_commit;
			continue;
		}
		ledger->layers[l].detectors[slot] = ledger->layers[l].detectors_before[slot] = (struct formula_detector){0};
	}
	ledger->members[slot].is_parted = ledger->members[slot].is_apart = false;
}

bool ledger_publish_late(struct ledger *ledger, uint32_t slot, size_t l, const struct layer *layer, const struct action *publish)
{
	struct share *share = ledger_share(ledger, slot, l);
	if (share->handed && publish->verdict != VERDICT_NONFINITE)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: published as a mean that is not there", slot, l,
			    (uintmax_t)publish->round);
	if (!share->handed && memcmp(layer->theta, layer->anchor, layer->size * sizeof(float)) != 0)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: theta is not the anchor that was fetched", slot, l,
			    (uintmax_t)publish->round);
	enum verdict verdict = share->is_fetched ? share->fetched_as : VERDICT_ABSENT;
	if (!share->handed && !share->waits && publish->verdict != verdict)
		return ledger_fail(ledger, "peer %u, layer %zu, round %ju: published with another verdict than recorded", slot, l,
			    (uintmax_t)publish->round);
	const bool stays_void = share->handed && share->is_void; /* theta did not go back */
	share_end(share, layer);
	share->is_void = stays_void;
	return true;
}

/* See the header. */

#define XXH_INLINE_ALL
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "sim/memory.h"
#include "sim/share.h"

uint64_t share_theta_hash(const struct layer *layer)
{
	return XXH3_64bits(layer->theta, layer->size * sizeof(float));
}

uint64_t share_gradient_hash(const struct layer *layer)
{
	return XXH3_64bits(layer->gradient, layer->size * sizeof(float));
}

uint64_t share_state_hash(const struct layer *layer)
{
	uint64_t anchor = XXH3_64bits(layer->anchor, layer->size * sizeof(float));
	return XXH3_64bits_withSeed(layer->momentum, layer->size * sizeof(float), anchor);
}

static void take_numbers(struct share *share)
{
	share->theta = memory_take(4 * share->size, sizeof(float));
	share->snapshot = share->theta + share->size;
	share->reference = share->theta + 2 * share->size;
	share->delta = share->theta + 3 * share->size;
}

void share_init(struct share *share, const struct layer *layer)
{
	*share = (struct share){.size = layer->size, .state_hash = share_state_hash(layer)};
	take_numbers(share);
	memcpy(share->reference, layer->anchor, layer->size * sizeof(float));
}

void share_fini(struct share *share)
{
	if (share->ghost != NULL)
		share_fini(share->ghost);
	free(share->ghost);
	free(share->theta);
}

void share_restart(struct share *share, const struct layer *layer, bool had_begun)
{
	struct share *ghost = NULL;
	if (had_begun) {
		ghost = memory_take(1, sizeof *ghost);
		*ghost = *share;
	} else {
		share_fini(share);
	}
	share_init(share, layer);
	share->ghost = ghost;
}

void share_part(struct share *share)
{
	struct share *ghost = memory_take(1, sizeof *ghost);
	*ghost = *share;
	take_numbers(share);
	memcpy(share->theta, ghost->theta, 4 * share->size * sizeof(float));
	share->ghost = ghost;
	share->has_fallen = false;
	share->first_view = UINT64_MAX;
}

void share_rejoin(struct share *share)
{
	struct share *ghost = share->ghost;
	free(share->theta);
	*share = *ghost;
	free(ghost);
}

void share_survive(struct share *share, const struct layer *layer, bool is_nothing, bool is_stale)
{
	share->is_void |= is_stale || share->is_behind || share->corrects || share->stale > 0;
	share->is_behind = share->corrects = share->is_fetched = false;
	share->stale = 0;
	share->state_hash = share_state_hash(layer);
	/* As the last daemon has left it. */
	memcpy(share->theta, layer->theta, share->size * sizeof(float));
	share->theta_hash = share_theta_hash(layer);
	if (is_nothing) {
		share->round = LAYER_NOTHING;
		share->own_commit = 0;
	}
}

void share_give_back(struct share *share)
{
	share->offered = share->handed = share->is_again = false;
}

bool share_offer(struct share *share, const struct layer *layer)
{
	if (share->offered || share->handed)
		return false;
	memcpy(share->theta, layer->theta, share->size * sizeof(float));
	share->offered = true;
	share->is_again = share->is_made_up = false;
	share->theta_hash = share_theta_hash(layer);
	return true;
}

bool share_gradient(struct share *share, const struct layer *layer, bool is_absent)
{
	if (share->offered || share->handed)
		return false;
	memcpy(share->delta, layer->gradient, share->size * sizeof(float));
	share->handed = true;
	share->is_absent = is_absent;
	share->theta_hash = share_theta_hash(layer);
	return true;
}

/* Theta as a round behind the worker's steps has left it: what others have brought is added. */
static void make_up(struct share *share)
{
	bool is_due = share->corrects && !share->is_made_up;
	share->is_made_up = true;
	for (size_t i = 0; i < share->size && is_due; i++)
		share->theta[i] = share->is_rejected ? share->reference[i]
						     : share->theta[i] + (share->reference[i] - share->snapshot[i]);
}

bool share_return(struct share *share, const struct layer *layer)
{
	make_up(share);
	memcpy(share->snapshot, share->theta, share->size * sizeof(float));
	share->offered = share->is_void = false;
	share->is_behind = true;
	return memcmp(layer->theta, share->theta, share->size * sizeof(float)) == 0;
}

void share_end(struct share *share, const struct layer *layer)
{
	memcpy(share->reference, layer->anchor, share->size * sizeof(float));
	share->offered = share->handed = share->corrects = share->waits = share->is_fetched = share->is_void = share->is_again = false;
	share->stale = 0;
}

void share_commit(struct share *share, const struct layer *layer, enum verdict verdict, bool is_applied)
{
	share->stale = verdict == VERDICT_LATE ? share->stale + 1 : 0;
	if (!share->is_behind || verdict == VERDICT_LATE)
		return;
	memcpy(share->reference, layer->anchor, share->size * sizeof(float));
	share->is_rejected = !is_applied || verdict == VERDICT_OUTLIER || verdict == VERDICT_NONFINITE;
	share->corrects = true;
	share->is_behind = share->is_void = false;
}

bool share_is_there(const struct share *share, bool is_gradients)
{
	if (share->waits)
		return true;
	return is_gradients ? share->handed : !share->handed && (share->is_behind || share->offered);
}

void share_settle(struct share *share)
{
	if (share->handed)
		return;
	if (!share->is_behind)
		make_up(share);
	const float *theta = share->is_behind ? share->snapshot : share->theta;
	for (size_t i = 0; i < share->size; i++)
		share->delta[i] = share->reference[i] - theta[i];
}

bool share_is_too_stale(const struct share *share, const struct ring_settings *settings)
{
	return (double)share->stale >= settings->value[STRAGGLER_MAX_STALE];
}

enum verdict share_judge(const struct share *share, const struct record *record, bool is_gradients,
			 const struct ring_settings *settings, struct formula_detector *detector, double *ret_z)
{
	bool is_equal = formula_is_equal(settings, record->round);
	*ret_z = 0.0;
	if (share->waits)
		return VERDICT_ABSENT;
	if (share->is_void && (record->verdict == VERDICT_ABSENT || record->verdict == VERDICT_LATE))
		return record->verdict;
	/* It has theta to bring, or what it has is its last and would be heard by nobody. */
	bool is_unfit = is_gradients || share->ghost != NULL;
	if (is_unfit && (share->offered || share->handed) && record->verdict == VERDICT_LATE)
		return VERDICT_LATE;
	if (share_is_too_stale(share, settings) && !is_equal)
		return VERDICT_LATE;
	/* With an offer: one that comes too late to count. */
	bool may_be_late = settings->value[STRAGGLER_GRACE] > 0.0 || share->offered;
	if (record->verdict == VERDICT_LATE && may_be_late && !is_equal)
		return VERDICT_LATE;
	if (is_gradients ? share->is_absent : share->corrects && share->is_rejected)
		return VERDICT_ABSENT;
	if (is_equal)
		return isfinite(record->norm) ? VERDICT_ACCEPTED : VERDICT_NONFINITE;
	return formula_judge(detector, settings, record->norm, ret_z);
}

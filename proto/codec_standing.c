/* See the header. */

#include "core/layer.h"
#include "proto/codec_standing.h"
#include "proto/demand.h"
#include "proto/setting.h"

/* ---- Writing ---- */

void codec_fill_standing(const struct standing *standing, Edit__Peer__Standing *wire)
{
	edit__peer__standing__init(wire);
	wire->origin = standing->origin;
	wire->since = standing->since;
	wire->round = standing->round;
	wire->pause_round = standing->pause_round;
	wire->resume_round = standing->resume_round;
	wire->checkpoint_round = standing->checkpoint_round;
	wire->taken_round = standing->taken_round;
	wire->taken = standing->taken;
	wire->is_new = standing->is_new;
	wire->is_outdated = standing->is_outdated;
	wire->has_offered = standing->has_offered;
	wire->gradients = standing->gradients;
	wire->aligns = standing->aligns;
	wire->has_agreed = standing->has_agreed;
	wire->next_gradients = standing->next_gradients;
	wire->next_aligns = standing->next_aligns;
	wire->finishing = standing->finishing;
	wire->finished = standing->finished;
	wire->ready_in = standing->ready_in;
	wire->is_final = standing->is_final;
	wire->n_settings = wire->n_setting_rounds = RING_SETTING_COUNT;
	wire->settings = (double *)standing->settings.value;
	wire->setting_rounds = (uint64_t *)standing->setting_round;
	if (!standing->has_agreed)
		return;
	wire->n_next_settings = wire->n_next_setting_rounds = RING_SETTING_COUNT;
	wire->next_settings = (double *)standing->next_settings.value;
	wire->next_setting_rounds = (uint64_t *)standing->next_setting_round;
}

void codec_fill_holding(const struct holding *holding, Edit__Peer__Holding *wire)
{
	edit__peer__holding__init(wire);
	wire->origin = holding->origin;
	wire->layer_index = holding->layer_index;
	wire->number = holding->number;
	wire->round = holding->round;
	wire->hash = holding->hash;
	wire->is_nothing = holding->is_nothing;
	wire->is_rolled_back = holding->is_rolled_back;
	wire->since = holding->since;
}

/* ---- Reading ---- */

/* A list of all settings, with the rounds after which they were changed. */
static const char *take_settings(size_t value_count, const double *values, size_t round_count, const uint64_t *rounds,
				 struct ring_settings *settings, uint64_t *setting_rounds)
{
	DEMAND(value_count == RING_SETTING_COUNT && round_count == RING_SETTING_COUNT, "standing.settings");
	for (uint32_t id = 0; id < RING_SETTING_COUNT; id++) {
		DEMAND(setting_holds(id, values[id]), "standing.settings");
		DEMAND(is_number(rounds[id]), "standing.setting_rounds");
		settings->value[id] = values[id];
		setting_rounds[id] = rounds[id];
	}
	return NULL;
}

const char *codec_take_standing(struct arena *arena, const Edit__Peer__Standing *wire, const struct standing **ret_standing)
{
	struct standing *standing = arena_take(arena, sizeof *standing);
	DEMAND(standing, "standing");
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "standing.origin");
	DEMAND(is_number(wire->since), "standing.since");
	DEMAND(is_number(wire->round), "standing.round");
	DEMAND(is_number(wire->pause_round), "standing.pause_round");
	DEMAND(is_number(wire->resume_round), "standing.resume_round");
	DEMAND(is_number(wire->checkpoint_round), "standing.checkpoint_round");
	DEMAND(is_number(wire->taken_round), "standing.taken_round");
	*standing = (struct standing){
		.origin = wire->origin,
		.since = wire->since,
		.round = wire->round,
		.pause_round = wire->pause_round,
		.resume_round = wire->resume_round,
		.checkpoint_round = wire->checkpoint_round,
		.taken_round = wire->taken_round,
		.taken = wire->taken,
		.is_new = wire->is_new,
		.is_outdated = wire->is_outdated,
		.has_offered = wire->has_offered,
		.gradients = wire->gradients,
		.aligns = wire->aligns,
		.has_agreed = wire->has_agreed,
		.next_gradients = wire->next_gradients,
		.next_aligns = wire->next_aligns,
		.finishing = wire->finishing,
		.finished = wire->finished,
		.ready_in = wire->ready_in,
		.is_final = wire->is_final};
	const char *wrong = take_settings(wire->n_settings, wire->settings, wire->n_setting_rounds, wire->setting_rounds,
					  &standing->settings, standing->setting_round);
	if (!wrong && wire->has_agreed)
		wrong = take_settings(wire->n_next_settings, wire->next_settings, wire->n_next_setting_rounds,
				      wire->next_setting_rounds, &standing->next_settings, standing->next_setting_round);
	DEMAND(wire->has_agreed || (wire->n_next_settings == 0 && wire->n_next_setting_rounds == 0), "standing.next_settings");
	*ret_standing = standing;
	return wrong;
}

const char *codec_take_holding(const Edit__Peer__Holding *wire, struct holding *ret_holding)
{
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "holding.origin");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "holding.layer_index");
	DEMAND(wire->number >= 1 && is_number(wire->number), "holding.number");
	DEMAND(is_number(wire->since), "holding.since");
	DEMAND(is_number(wire->round), "holding.round");
	DEMAND(!wire->is_nothing || (wire->since == 0 && wire->round == 0 && wire->hash == 0), "holding.is_nothing");
	*ret_holding = (struct holding){
		.origin = wire->origin,
		.layer_index = wire->layer_index,
		.number = wire->number,
		.round = wire->round,
		.hash = wire->hash,
		.is_nothing = wire->is_nothing,
		.is_rolled_back = wire->is_rolled_back,
		.since = wire->since};
	return NULL;
}

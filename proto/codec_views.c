/* Decrees, standings and holdings <-> peer.proto. */

#include <string.h>

#include "proto/codec_views.h"
#include "proto/setting.h"
#include "proto/text.h"

/* ---- Writing ---- */

void standing_fill(const struct standing *standing, Edit__Peer__Standing *wire)
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

void holding_fill(const struct holding *holding, Edit__Peer__Holding *wire)
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

static void roster_fill(struct arena *arena, const struct roster *roster, Edit__Peer__Roster *wire)
{
	CHECK(roster->count <= MEMBER_COUNT_MAX);
	edit__peer__roster__init(wire);
	Edit__Peer__Seat **list = arena_take(arena, roster->count * sizeof *list);
	Edit__Peer__Seat *seats = arena_take(arena, roster->count * sizeof *seats);
	CHECK(list);
	CHECK(seats);
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const struct seat *seat = &roster->seats[rank];
		edit__peer__seat__init(&seats[rank]);
		seats[rank].name = (char *)seat->name;
		seats[rank].address = (char *)seat->address;
		seats[rank].incarnation = seat->incarnation;
		seats[rank].disk = seat->disk;
		list[rank] = &seats[rank];
	}
	wire->number = roster->number;
	wire->holder = roster->holder;
	wire->fanout = roster->fanout;
	wire->seats = list;
	wire->n_seats = roster->count;
}

/* A text that may be missing, which is an empty one on the wire. */
static char *text_or_none(const char *text)
{
	return (char *)(text ? text : "");
}

void decree_fill(struct arena *arena, const struct decree *decree, struct decree_wire *wire)
{
	CHECK(decree->doubt_count <= DOUBT_COUNT_MAX);
	CHECK(decree->fact_count <= FACT_COUNT_MAX);
	edit__peer__decree__init(&wire->decree);
	wire->decree.kind = decree->kind;
	wire->decree.sender = (char *)decree->sender;
	wire->decree.incarnation = decree->incarnation;
	wire->decree.disk = decree->disk;
	wire->decree.fingerprint = decree->fingerprint;
	wire->decree.receiver = text_or_none(decree->receiver);
	wire->decree.relay = text_or_none(decree->relay);
	wire->decree.view = decree->view;
	wire->decree.ballot = decree->ballot;
	wire->decree.accepted_ballot = decree->accepted_ballot;
	wire->decree.n_doubts = decree->doubt_count;
	wire->decree.doubts = (uint32_t *)decree->doubts;
	wire->decree.address = text_or_none(decree->address);
	wire->decree.refusal = decree->refusal;
	wire->decree.n_facts = decree->fact_count;
	wire->decree.facts = (uint32_t *)decree->facts;
	wire->decree.detail = text_or_none(decree->detail);
	if (decree->roster.count == 0)
		return;
	roster_fill(arena, &decree->roster, &wire->roster);
	wire->decree.roster = &wire->roster;
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

const char *take_standing(struct arena *arena, const Edit__Peer__Standing *wire, const struct standing **ret_standing)
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

const char *take_holding(const Edit__Peer__Holding *wire, struct holding *holding)
{
	DEMAND(wire->origin < MEMBER_COUNT_MAX, "holding.origin");
	DEMAND(wire->layer_index < LAYER_COUNT_MAX, "holding.layer_index");
	DEMAND(wire->number >= 1 && is_number(wire->number), "holding.number");
	DEMAND(is_number(wire->since), "holding.since");
	DEMAND(is_number(wire->round), "holding.round");
	DEMAND(!wire->is_nothing || (wire->since == 0 && wire->round == 0 && wire->hash == 0), "holding.is_nothing");
	*holding = (struct holding){
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

static const char *take_roster(struct arena *arena, const Edit__Peer__Roster *wire, struct roster *roster)
{
	DEMAND(wire->number >= 1 && is_number(wire->number), "roster.number");
	DEMAND(wire->n_seats >= 1 && wire->n_seats <= MEMBER_COUNT_MAX, "roster.seats");
	DEMAND(wire->holder < wire->n_seats, "roster.holder");
	DEMAND(wire->fanout >= 1 && wire->fanout <= wire->n_seats, "roster.fanout");
	struct seat *seats = arena_take(arena, wire->n_seats * sizeof *seats);
	DEMAND(seats, "roster.seats");
	for (size_t rank = 0; rank < wire->n_seats; rank++) {
		const Edit__Peer__Seat *seat = wire->seats[rank];
		DEMAND(seat_make(seat->name, seat->address, seat->incarnation, seat->disk, &seats[rank]) == 0, "roster.seats");
	}
	*roster = (struct roster){.number = wire->number,
				  .count = (uint32_t)wire->n_seats,
				  .holder = wire->holder,
				  .fanout = wire->fanout,
				  .seats = seats};
	return NULL;
}

/* Texts of decrees are compared with those of seats, so they are as long: zeros behind. */
static const char *take_text(struct arena *arena, const char *text, size_t size, const char **ret_text, const char *field)
{
	*ret_text = NULL;
	if (text[0] == 0)
		return NULL;
	char *copy = arena_take(arena, size);
	DEMAND(copy && strlen(text) < size, field);
	memset(copy, 0, size);
	memcpy(copy, text, strlen(text));
	*ret_text = copy;
	return NULL;
}

static const char *take_name(struct arena *arena, const char *text, const char **ret_name, const char *field)
{
	const char *wrong = take_text(arena, text, SEAT_NAME_BYTES, ret_name, field);
	return wrong || !*ret_name || seat_is_name(*ret_name) ? wrong : field;
}

/* 0 is none. */
static bool is_ballot(uint64_t ballot)
{
	return ballot == 0 || ballot_is_valid(ballot, MEMBER_COUNT_MAX);
}

/* Who says it to whom. */
static const char *take_parties(struct arena *arena, const Edit__Peer__Decree *wire, struct decree *decree)
{
	struct seat seat;
	const char *wrong = take_name(arena, wire->sender, &decree->sender, "decree.sender");
	if (!wrong)
		wrong = take_name(arena, wire->receiver, &decree->receiver, "decree.receiver");
	if (!wrong)
		wrong = take_name(arena, wire->relay, &decree->relay, "decree.relay");
	if (!wrong)
		wrong = take_text(arena, wire->address, SEAT_ADDRESS_BYTES, &decree->address, "decree.address");
	if (wrong)
		return wrong;
	DEMAND(decree->sender, "decree.sender");
	DEMAND(!decree->address || seat_make(decree->sender, decree->address, 0, 0, &seat) == 0, "decree.address");
	return NULL;
}

const char *take_decree(struct arena *arena, const Edit__Peer__Decree *wire, const struct decree **ret_decree)
{
	struct decree *decree = arena_take(arena, sizeof *decree);
	DEMAND(decree, "decree");
	DEMAND(wire->kind >= DECREE_PREPARE && wire->kind < DECREE_KIND_END, "decree.kind");
	DEMAND(wire->incarnation != 0, "decree.incarnation");
	DEMAND(wire->disk != 0, "decree.disk");
	DEMAND(wire->view >= 1 && is_number(wire->view), "decree.view");
	DEMAND(is_ballot(wire->ballot), "decree.ballot");
	DEMAND(is_ballot(wire->accepted_ballot), "decree.accepted_ballot");
	DEMAND(wire->n_doubts <= DOUBT_COUNT_MAX, "decree.doubts");
	DEMAND(wire->refusal < DECREE_REFUSAL_END, "decree.refusal");
	DEMAND(wire->n_facts <= FACT_COUNT_MAX, "decree.facts");
	DEMAND(strlen(wire->detail) < DETAIL_BYTES, "decree.detail");
	*decree = (struct decree){.kind = (enum decree_kind)wire->kind,
				  .incarnation = wire->incarnation,
				  .disk = wire->disk,
				  .fingerprint = wire->fingerprint,
				  .view = wire->view,
				  .ballot = wire->ballot,
				  .accepted_ballot = wire->accepted_ballot,
				  .doubt_count = (uint32_t)wire->n_doubts,
				  .facts = wire->facts,
				  .fact_count = (uint32_t)wire->n_facts,
				  .detail = wire->detail[0] ? wire->detail : NULL,
				  .refusal = (enum decree_refusal)wire->refusal};
	for (size_t i = 0; i < wire->n_doubts; i++) {
		DEMAND(wire->doubts[i] < MEMBER_COUNT_MAX, "decree.doubts");
		decree->doubts[i] = wire->doubts[i];
	}
	const char *wrong = take_parties(arena, wire, decree);
	if (!wrong && wire->roster)
		wrong = take_roster(arena, wire->roster, &decree->roster);
	*ret_decree = decree;
	return wrong;
}

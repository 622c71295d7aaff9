/* What a council's message must look like, whatever view it is about. */

#include "core/decree.h"

static bool has_ballot(enum decree_kind kind)
{
	return kind == DECREE_PREPARE || kind == DECREE_PROMISE || kind == DECREE_ACCEPT || kind == DECREE_ACCEPTED ||
			kind == DECREE_NACK;
}

static bool has_roster(const struct decree *decree)
{
	return decree->kind == DECREE_ACCEPT || decree->kind == DECREE_DECIDED ||
	       (decree->kind == DECREE_PROMISE && decree->accepted_ballot != 0);
}

static bool is_roster_right(const struct decree *decree, uint32_t capacity)
{
	uint64_t number = decree->kind == DECREE_DECIDED ? decree->view : decree->view + 1;
	return decree->roster.number == number && roster_check(&decree->roster, capacity) == 0;
}

static bool is_name_or_none(const char *name)
{
	return name == NULL || seat_is_name(name);
}

static bool has_address(const struct decree *decree)
{
	struct seat seat;
	return decree->address != NULL && seat_make(decree->sender, decree->address, 0, 0, &seat) == 0;
}

int decree_check(const struct decree *decree, uint32_t capacity)
{
	if (decree->kind < DECREE_PREPARE || decree->kind >= DECREE_KIND_END || decree->view == 0 || decree->view == UINT64_MAX ||
	    decree->sender == NULL || !seat_is_name(decree->sender) || decree->incarnation == 0 || decree->disk == 0 ||
	    !is_name_or_none(decree->receiver) || !is_name_or_none(decree->relay) ||
	    (decree->relay != NULL && decree->receiver == NULL))
		return EDIT_ERROR_MALFORMED;
	if (has_ballot(decree->kind) && !ballot_is_valid(decree->ballot, capacity))
		return EDIT_ERROR_MALFORMED;
	if (decree->kind == DECREE_PROMISE) {
		if (decree->doubt_count > DOUBT_COUNT_MAX)
			return EDIT_ERROR_MALFORMED;
		for (uint32_t i = 0; i < decree->doubt_count; i++)
			if (decree->doubts[i] >= capacity)
				return EDIT_ERROR_MALFORMED;
		if (decree->accepted_ballot != 0 && !ballot_is_valid(decree->accepted_ballot, capacity))
			return EDIT_ERROR_MALFORMED;
	}
	if (has_roster(decree) && !is_roster_right(decree, capacity))
		return EDIT_ERROR_MALFORMED;
	if (decree->kind == DECREE_JOIN && !has_address(decree))
		return EDIT_ERROR_MALFORMED;
	bool has_refusal = decree->refusal >= DECREE_REFUSAL_FULL && decree->refusal < DECREE_REFUSAL_END;
	return decree->kind == DECREE_REFUSED && !has_refusal ? EDIT_ERROR_MALFORMED : 0;
}

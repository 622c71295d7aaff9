/* One view: hello, liveness and rumours. Decides nothing about rounds. */

#include <string.h>

#include "core/ring.h"
#include "core/view.h"

size_t view_size(uint32_t count)
{
	return (count * sizeof(bool) + 7) / 8 * 8;
}

void view_init(struct view *view, void *block, uint32_t rank, uint32_t count, const char *const *names, size_t stride,
	       const struct fact *facts, size_t fact_count, uint64_t silence_us)
{
	*view = (struct view){.rank = rank, .count = count, .names = names, .stride = stride, .facts = facts, .fact_count = fact_count,
			      .silence_us = silence_us, .rolled = block};
	memset(view->rolled, 0, view_size(count));
	view->side_count = count < 3 ? count - 1 : 2;
	view->side[VIEW_LEFT].rank = ring_left(rank, count);
	view->side[VIEW_RIGHT].rank = ring_right(rank, count);
}

struct neighbour *view_neighbour(struct view *view, uint32_t rank)
{
	for (uint32_t i = 0; i < view->side_count; i++)
		if (view->side[i].rank == rank)
			return &view->side[i];
	return NULL;
}

struct neighbour *view_side(struct view *view, int side)
{
	if (view->side_count == 0)
		return NULL;
	return &view->side[view->side_count == 1 ? 0 : side];
}

bool view_is_known(const struct neighbour *neighbour, uint64_t incarnation)
{
	return neighbour->incarnation != 0 && neighbour->incarnation == incarnation;
}

static bool text_is_equal(const char *a, const char *b)
{
	size_t i = 0;
	while (a[i] != 0 && a[i] == b[i])
		i++;
	return a[i] == b[i];
}

/* Index of the first fact in which a hello differs from ours; fact_count if none does. */
static size_t first_difference(const struct view *view, const struct hello *hello)
{
	size_t common = size_min(view->fact_count, hello->fact_count);
	for (size_t i = 0; i < common; i++)
		if (!text_is_equal(view->facts[i].key, hello->facts[i].key) ||
		    !text_is_equal(view->facts[i].value, hello->facts[i].value))
			return i;
	return view->fact_count == hello->fact_count ? view->fact_count : common;
}

static enum refusal judge(const struct view *view, const struct neighbour *neighbour, const struct message *message,
			  uint64_t now_us, size_t *ret_fact)
{
	if (!text_is_equal(message->hello.name, view->names[neighbour->rank * view->stride]))
		return REFUSAL_STRANGER;
	if (neighbour->incarnation != 0 && !neighbour->down && now_us - neighbour->heard_us < view->silence_us)
		return REFUSAL_DUPLICATE;
	/* Before the facts: those of a run that has moved on differ from those of its begin. */
	if (neighbour->incarnation != 0 && view->complete)
		return REFUSAL_RESTARTED;
	size_t fact = first_difference(view, &message->hello);
	if (fact < size_max(view->fact_count, message->hello.fact_count)) {
		*ret_fact = fact;
		return REFUSAL_FACT;
	}
	return 0;
}

int view_hello(struct view *view, uint32_t from, const struct message *message, uint64_t now_us, bool *ret_is_new,
	       struct refuse *ret_refuse)
{
	struct neighbour *neighbour = view_neighbour(view, from);
	if (neighbour == NULL) {
		*ret_refuse = (struct refuse){.reason = REFUSAL_STRANGER};
		return EDIT_ERROR_REFUSED;
	}
	if (view_is_known(neighbour, message->incarnation)) {
		*ret_is_new = false;
		return 0;
	}
	size_t fact = 0;
	enum refusal refusal = judge(view, neighbour, message, now_us, &fact);
	if (refusal != 0) {
		*ret_refuse = (struct refuse){.reason = refusal, .fact_index = (uint32_t)fact};
		return EDIT_ERROR_REFUSED;
	}
	*neighbour = (struct neighbour){.rank = neighbour->rank, .incarnation = message->incarnation, .heard_us = now_us};
	*ret_is_new = true;
	return 0;
}

uint64_t view_heard(struct neighbour *neighbour, uint64_t now_us)
{
	uint64_t was_silent_us = neighbour->down ? now_us - neighbour->heard_us : 0;
	neighbour->heard_us = now_us;
	neighbour->down = false;
	return was_silent_us;
}

bool view_check_silence(const struct view *view, struct neighbour *neighbour, uint64_t now_us)
{
	if (neighbour->incarnation == 0 || neighbour->down || now_us - neighbour->heard_us < view->silence_us)
		return false;
	neighbour->down = true;
	neighbour->suspect_count = 0;
	return true;
}

bool view_is_joined(const struct view *view)
{
	for (uint32_t i = 0; i < view->side_count; i++)
		if (view->side[i].incarnation == 0 || !view->side[i].accepts_us || view->side[i].down)
			return false;
	return true;
}

bool view_roll(struct view *view, uint32_t rank)
{
	CHECK(rank < view->count);
	if (view->rolled[rank])
		return false;
	view->rolled[rank] = true;
	view->rolled_count++;
	return true;
}

uint32_t view_suspects(const struct view *view, const struct neighbour *to, uint32_t ret_suspects[SUSPECT_COUNT_MAX])
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < view->side_count; i++) {
		const struct neighbour *other = &view->side[i];
		if (other == to)
			continue;
		if (other->down)
			ret_suspects[count++] = other->rank;
		for (uint32_t k = 0; k < other->suspect_count && count < SUSPECT_COUNT_MAX; k++)
			if (other->suspects[k] != view->rank && other->suspects[k] != to->rank)
				ret_suspects[count++] = other->suspects[k];
	}
	return count;
}

bool view_is_down(const struct view *view, uint32_t rank)
{
	for (uint32_t i = 0; i < view->side_count; i++) {
		const struct neighbour *side = &view->side[i];
		if (side->rank == rank)
			return side->down;
	}
	for (uint32_t i = 0; i < view->side_count; i++)
		for (uint32_t k = 0; k < view->side[i].suspect_count; k++)
			if (view->side[i].suspects[k] == rank)
				return true;
	return false;
}

uint32_t view_first_down(const struct view *view)
{
	for (uint32_t rank = 0; rank < view->count; rank++)
		if (rank != view->rank && view_is_down(view, rank))
			return rank;
	return view->count;
}

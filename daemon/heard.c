/* See the header. Owns nothing. */

#include "daemon/heard.h"

#include <string.h>

struct roster heard_roster(const struct daemon *daemon)
{
	if (daemon->membership.is_active)
		return *membership_roster(&daemon->membership);
	return (struct roster){.number = daemon->config.view, .count = daemon->config.member_count};
}

bool heard_is_seated(const struct daemon *daemon, const struct roster *roster)
{
	return roster->number == daemon->config.view && roster->count == daemon->config.member_count;
}

bool heard_is_self(const struct daemon *daemon, const struct roster *roster, uint32_t rank)
{
	if (!daemon->membership.is_active)
		return rank == daemon->config.rank;
	return daemon->membership.council->is_member && seat_is_of(&roster->seats[rank], daemon->membership.council->config.self.name);
}

struct node_peer heard_peer(const struct daemon *daemon, const struct roster *roster, uint32_t rank)
{
	struct node_peer known = {.state = PEER_UNKNOWN};
	if (daemon->driver.node && heard_is_seated(daemon, roster))
		node_mesh_peer(daemon->driver.node, rank, daemon->now_us, &known);
	return known;
}

/* Of those with has[rank] only the ones stay that are in reach of `own` by way of each other. */
static void keep_reach(const struct roster *roster, uint32_t own, bool *has)
{
	uint32_t queue[MEMBER_COUNT_MAX], neighbours[ROAD_COUNT];
	bool is_reached[MEMBER_COUNT_MAX] = {false};
	size_t end = 0;
	if (has[own])
		queue[end++] = own;
	is_reached[own] = has[own];
	for (size_t i = 0; i < end; i++) {
		size_t count = roster_neighbours(roster, queue[i], neighbours);
		for (size_t k = 0; k < count; k++)
			if (has[neighbours[k]] && !is_reached[neighbours[k]]) {
				is_reached[neighbours[k]] = true;
				queue[end++] = neighbours[k];
			}
	}
	memcpy(has, is_reached, roster->count * sizeof *has);
}

uint32_t heard_members(const struct daemon *daemon, const struct roster *roster, bool *has)
{
	const struct membership *membership = &daemon->membership;
	uint32_t own = roster->count, count = 0;
	for (uint32_t rank = 0; rank < roster->count; rank++) {
		const struct node_peer known = heard_peer(daemon, roster, rank);
		bool is_own = heard_is_self(daemon, roster, rank);
		bool is_doubted = membership->is_active && membership->council->doubts[rank].is_held;
		has[rank] = is_own || (known.state == PEER_LIVE && !is_doubted);
		own = is_own ? rank : own;
	}
	/* Who is no member hears none of them as one. */
	if (membership->is_active && own < roster->count)
		keep_reach(roster, own, has);
	else if (membership->is_active)
		memset(has, 0, roster->count * sizeof *has);
	for (uint32_t rank = 0; rank < roster->count; rank++)
		count += has[rank];
	return count;
}

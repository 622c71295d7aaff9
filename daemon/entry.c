/* See the header. Owns nothing. */

#include "daemon/entry.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/handover.h"
#include "daemon/log.h"

int entry_ready(struct daemon *daemon, struct line *why)
{
	int error = 0;
	/* A worker that comes then reads in the segment that it is to stop. */
	if (daemon->membership.place == MEMBERSHIP_LEFT)
		return 0;
	if (!daemon->driver.node && !membership_waits(&daemon->membership))
		error = driver_start(&daemon->driver, daemon->now_us, why);
	if (!error)
		membership_ready(&daemon->membership, &daemon->run.facts, daemon->now_us);
	return error;
}

struct transport_view entry_view(const struct config *config)
{
	uint32_t ranks[ROAD_COUNT];
	struct transport_view view = {.number = config->view, .rank = config->rank, .member_count = config->member_count,
				      .names = (const char *const *)config->names,
				      .neighbour_count = config_neighbours(config, ranks)};
	for (size_t i = 0; i < view.neighbour_count; i++)
		view.neighbours[i] = (struct transport_neighbour){ranks[i], config_address(config, ranks[i])};
	return view;
}

/* Who is new and who is gone, in one line. */
static void tell_view(const struct daemon *daemon, const struct roster *roster)
{
	char text[LINE_BYTES];
	size_t used = 0;
	text[0] = 0;
	for (uint32_t rank = 0; rank < roster->count && used < sizeof text - 80; rank++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", rank > 0 ? " " : "", roster->seats[rank].name);
	log_line(LEVEL_NOTICE, "view %" PRIu64 ": member %" PRIu32 " of %" PRIu32 " (%s)", roster->number, daemon->config.rank + 1,
		 roster->count, text);
}

static void enter(struct daemon *daemon, const struct roster *roster)
{
	struct line why = {""};
	/* View 1 was complete: who is in it has been in it. */
	if (roster->number == daemon->config.view && daemon->driver.node)
		return;
	int error = config_seat(&daemon->config, roster, &why);
	if (!error) {
		const struct transport_view view = entry_view(&daemon->config);
		transport_seat(daemon->transport, &view);
		error = driver_enter(&daemon->driver, daemon->now_us, &why);
	}
	if (error) {
		/* The others find it silent, and go on without it. */
		log_line(LEVEL_ERROR, "view %" PRIu64 " cannot be entered: %s", roster->number, why.text);
		return;
	}
	tell_view(daemon, roster);
	handover_offer(&daemon->driver, daemon->now_us);
}

void entry_step(struct daemon *daemon)
{
	struct membership *membership = &daemon->membership;
	const struct roster *roster;
	if (!membership->is_active)
		return;
	if (daemon->driver.node && daemon->driver.is_complete && daemon->config.view == VIEW_FIRST)
		membership_begin(membership, daemon->now_us);
	if (daemon->driver.node && daemon->driver.is_complete)
		membership_met(membership);
	if (daemon->driver.differs)
		membership_renew(membership, daemon->now_us);
	daemon->driver.differs = false;
	if (daemon->now_us >= membership_deadline(membership))
		membership_tick(membership, daemon->driver.node, daemon->now_us);
	while ((roster = membership_take(membership, daemon->now_us)) != NULL)
		if (daemon->run.is_begun)
			enter(daemon, roster);
	if (membership->place == MEMBERSHIP_LEFT)
		driver_leave(&daemon->driver);
}

bool entry_status_text(const struct daemon *daemon, char *text, size_t size)
{
	const struct membership *membership = &daemon->membership;
	if (!membership->is_active || membership->place == MEMBERSHIP_IN || membership->place == MEMBERSHIP_FIRST)
		return false;
	uint64_t number = membership_roster(membership)->number;
	if (membership->place == MEMBERSHIP_LEFT)
		snprintf(text, size, "has left the ring; a restart joins it again");
	else if (!daemon->run.is_begun)
		snprintf(text, size, "not in the ring: waiting for a worker at %s", daemon->port.path);
	else
		snprintf(text, size, "not in the ring: asks the members of view %" PRIu64 " to be taken in", number);
	return true;
}

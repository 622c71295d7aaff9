/* What to do about a ring without a majority, or a mesh that stands still. Says no more than is known here: of members that share no ring with this one, and of
 * others' workers, that is little, so it says where to look. */

#include "daemon/advice.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/heard.h"

enum { PATIENCE = 3 /* times node.silence_ms: a worker that is waited for longer is worth a line */ };

#define GO_ON ADVICE_RESTART ", they go on from the last round"
/* A daemon that is killed while it commits leaves layers of two rounds, which no restart takes up. */
#define GO_ON_OR_NOT GO_ON ", or from a checkpoint if it was cut short in the middle of one"

/* Of a round or gathering that does not move, what is known of the member that it waits for. */
static void advise_on_stall(const struct daemon *daemon, const char *name, const struct node_peer *peer,
			    const struct node_status *status, char *text, size_t size)
{
	struct dealer_trouble trouble;
	if (transport_trouble(daemon->transport, status->waiting_for, &trouble))
		snprintf(text, size, "%s: %s", name, trouble.text);
	else if (peer->state == PEER_REFUSED)
		snprintf(text, size, "%.280s%s", daemon->driver.refusal,
			 status->round > 0 ? "; if not all members were restarted: " GO_ON : "");
	else if (peer->state == PEER_UNKNOWN && status->phase == NODE_GATHERING)
		snprintf(text, size, "no hello of %s yet: start editd and worker there", name);
	else if (peer->is_neighbour && peer->waits_for_worker)
		snprintf(text, size, "the worker of %s makes no progress: `editctl status` there says why; if it has died, " GO_ON, name);
	else
		snprintf(text, size, "%s waits itself: `editctl status` there says for whom", name);
}

/* Members that could decide a view are not here. */
static bool advise_on_majority(const struct daemon *daemon, char *text, size_t size)
{
	bool has[MEMBER_COUNT_MAX];
	const struct roster roster = heard_roster(daemon);
	if (daemon->membership.place != MEMBERSHIP_IN || roster.number != daemon->config.view)
		return false;
	uint32_t heard = heard_members(daemon, &roster, has);
	/* So soon a neighbour may be on its way into the view. */
	if (roster_is_quorum(&roster, has) || daemon->membership.council->failures == 0)
		return false;
	snprintf(text, size,
		 "%" PRIu32 " of %" PRIu32 " members of view %" PRIu64 " are heard, which is no majority: rounds go on when more are back; if they "
		 "will not come back, `editctl force` goes on with those that are named",
		 heard, roster.count, roster.number);
	return true;
}

bool advice_text(const struct daemon *daemon, char *text, size_t size)
{
	struct node_status status;
	struct node_peer peer;
	text[0] = 0;
	if (!daemon->driver.node)
		return false;
	if (daemon->config.shards == 1)
		return advise_on_majority(daemon, text, size);
	if (daemon->lost_worker[0]) {
		snprintf(text, size, "%s", daemon->lost_worker);
		return true;
	}
	node_status(daemon->driver.node, daemon->now_us, &status);
	bool is_other = status.waiting_for < daemon->config.member_count && status.waiting_for != daemon->config.rank;
	if (status.phase == NODE_FINISHED || !is_other)
		return false;

	const char *name = daemon->config.names[status.waiting_for];
	node_mesh_peer(daemon->driver.node, status.waiting_for, daemon->now_us, &peer);
	if (peer.state == PEER_DOWN) {
		snprintf(text, size, "%s is not heard: the mesh goes on when it is back; if its editd has died, " GO_ON_OR_NOT, name);
		return true;
	}
	if (peer.state == PEER_RESTARTED) {
		snprintf(text, size, "%s was restarted in mid-run and cannot come back alone: " GO_ON_OR_NOT, name);
		return true;
	}
	if (status.stalled_us == 0)
		return false;
	advise_on_stall(daemon, name, &peer, &status, text, size);
	bool is_usual = status.phase == NODE_GATHERING; /* what is not, is in the log: refusals */
	return !is_usual && status.stalled_us >= PATIENCE * 1000 * (uint64_t)config_number(&daemon->config, NODE_SILENCE_MS);
}

/* `editctl status`: one node and the ring at a glance, as lines of a name and what there is to say. */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"
#include "ctl/unit.h"

__attribute__((format(printf, 4, 5))) static void say(struct table *table, const char *name, enum table_tone tone,
						      const char *format, ...)
{
	char text[4352]; /* a path fits */
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	table_cell(table, TONE_TITLE, name);
	table_cell(table, tone, text);
}

static void say_state(struct table *table, const Edit__Control__Status *status)
{
	if (strcmp(status->phase, "no-worker") == 0)
		say(table, "state", TONE_PLAIN, "%s", status->text); /* where one is waited for, or that none can come */
	else if (status->stalled_us > 0 && status->waiting_for[0] != '\0')
		say(table, "state", TONE_BAD, "%s, stalled for %s, waiting for %s", status->phase,
		    unit_time(status->stalled_us).text, status->waiting_for);
	else if (status->stalled_us > 0)
		say(table, "state", TONE_BAD, "%s, stalled for %s", status->phase, unit_time(status->stalled_us).text);
	else if (strcmp(status->phase, "gathering") == 0)
		say(table, "state", TONE_PLAIN, "%s", status->text); /* whom it waits for */
	else
		say(table, "state", TONE_PLAIN, "%s", status->phase);
	say(table, "ring", status->healthy ? TONE_GOOD : TONE_BAD, "%s", status->healthy ? "healthy" : "not healthy");
	if (status->degraded[0] != '\0')
		say(table, "degraded", TONE_BAD, "%s", status->degraded);
	if (status->advice[0] != '\0' && strcmp(status->advice, status->degraded) != 0)
		say(table, "advice", TONE_BAD, "%s", status->advice);
}

static void say_worker(struct table *table, const Edit__Control__Status *status)
{
	if (status->worker_pid == 0)
		say(table, "worker", TONE_BAD, "none attached (step %" PRIu64 ", restarts %" PRIu64 ")", status->step,
		    status->worker_restarts);
	else
		say(table, "worker", TONE_PLAIN, "pid %" PRIu64 ", step %" PRIu64 ", %s tokens, restarts %" PRIu64,
		    status->worker_pid, status->step, unit_count(status->tokens).text, status->worker_restarts);
	if (status->round == 0) {
		say(table, "loss", TONE_PLAIN, "known after the first round");
		return;
	}
	say(table, "loss", isfinite(status->loss) ? TONE_PLAIN : TONE_BAD, "%s here, %s on the ring",
	    unit_real(status->loss).text, unit_real(status->ring_loss).text);
	say(table, "speed", TONE_PLAIN, "%s tokens/s here, %s on the ring", unit_rate(status->tokens_per_second).text,
	    unit_rate(status->ring_tokens_per_second).text);
}

static void say_rounds(struct table *table, const Edit__Control__Status *status)
{
	if (status->exchange[0] != '\0')
		say(table, "exchange", TONE_PLAIN, "%s", status->exchange);
	if (status->round == 0) {
		say(table, "rounds", TONE_PLAIN, "none done");
		return;
	}
	say(table, "rounds", TONE_PLAIN, "%" PRIu64 " done, in all: sync %s, of it exposed %s", status->round,
	    unit_time(status->cumulative_sync_us).text, unit_time(status->cumulative_exposed_us).text);
	say(table, "last round", status->outliers > 0 ? TONE_BAD : TONE_PLAIN,
	    "interval %s, sync %s, exposed %s, sent %s, left out: %" PRIu32 "%s", unit_time(status->interval_us).text,
	    unit_time(status->sync_us).text, unit_time(status->exposed_us).text, unit_bytes(status->round_bytes).text,
	    status->outliers, status->outliers > 0 ? " (see `editctl penalties`)" : "");
}

void render_status(FILE *out, const Edit__Control__Status *status, bool colour)
{
	struct table *table = table_new("ll", NULL);
	say(table, "node", TONE_PLAIN, "%s, rank %" PRIu32 " of %" PRIu32 ", run %s, incarnation %016" PRIx64, status->name,
	    status->rank, status->member_count, status->run, status->incarnation);
	if (status->columns > 1)
		say(table, "place", TONE_PLAIN, "row %" PRIu32 " of %" PRIu32 ", column %" PRIu32 " of %" PRIu32, status->row + 1,
		    status->rows, status->column + 1, status->columns);
	if (status->view > 0 && status->columns <= 1)
		say(table, "members", status->members_heard < status->view_members ? TONE_BAD : TONE_PLAIN,
		    "view %" PRIu64 ", %" PRIu32 " of %" PRIu32 " members heard", status->view, status->members_heard, status->view_members);
	say_state(table, status);
	say_rounds(table, status);
	say_worker(table, status);
	say(table, "frames", TONE_PLAIN, "%" PRIu64 " sent again, %" PRIu64 " dropped", status->frames_sent_again,
	    status->frames_dropped);
	if (status->encrypted || status->keys_refused + status->handshakes_failed + status->requests_denied > 0)
		say(table, "keys", status->keys_refused + status->handshakes_failed > 0 ? TONE_BAD : TONE_PLAIN,
		    "%s; refused: unknown keys %" PRIu64 ", failed handshakes %" PRIu64 ", changes without the right %" PRIu64,
		    status->encrypted ? "frames encrypted" : "frames not encrypted", status->keys_refused, status->handshakes_failed,
		    status->requests_denied);
	say(table, "checkpoint", TONE_PLAIN, "%s", status->checkpoint[0] != '\0' ? status->checkpoint : "none");
	say(table, "editd", TONE_PLAIN, "%s, up %s, memory %s", status->version, unit_time(status->uptime_us).text,
	    unit_bytes(status->memory_bytes).text);
	table_print(table, out, colour);
	table_free(table);
}

/* Events, actions and notes as text. */

#include <inttypes.h>
#include <string.h>

#include "sim/trace.h"

/* ---- Notes: the text of core/event.h with its fields filled in ---- */

static const char *const note_texts[NOTE_COUNT] = {
#define X(code, level, text) [code] = text,
	NOTES(X)
#undef X
};

static const char *const verdict_texts[VERDICT_COUNT] = {
#define X(id, text) [id] = text,
	VERDICTS(X)
#undef X
};

static const char *verdict_text(int verdict)
{
	return verdict >= 0 && verdict < VERDICT_COUNT ? verdict_texts[verdict] : "unknown verdict";
}

/* Numbers a and b of these notes are ids and hashes. */
static bool has_id(enum note_code code)
{
	return code == NOTE_HASH_DIFFERS || code == NOTE_CHANGE_HELD || code == NOTE_CHANGE_TAKEN ||
	       code == NOTE_CHANGE_DROPPED || code == NOTE_CHANGE_HERE;
}

static void print_number(FILE *file, uint64_t number, bool is_id)
{
	if (is_id)
		fprintf(file, "%" PRIx64, number);
	else
		fprintf(file, "%" PRIu64, number);
}

static void print_field(FILE *file, const char *name, size_t length, const struct note *note)
{
	if (strncmp(name, "peer", length) == 0)
		fprintf(file, "%" PRIu32, note->peer);
	else if (strncmp(name, "layer", length) == 0)
		fprintf(file, "%" PRIu32, note->layer_index);
	else if (strncmp(name, "round", length) == 0)
		fprintf(file, "%" PRIu64, note->round);
	else if (strncmp(name, "a", length) == 0)
		print_number(file, note->a, has_id(note->code));
	else if (strncmp(name, "b", length) == 0)
		print_number(file, note->b, has_id(note->code));
	else if (strncmp(name, "x", length) == 0)
		fprintf(file, "%.6g", note->x);
	else if (strncmp(name, "y", length) == 0)
		fprintf(file, "%.6g", note->y);
	else if (strncmp(name, "verdict", length) == 0)
		fputs(verdict_text(note->detail), file);
	else if (strncmp(name, "error", length) == 0)
		fputs(edit_error_text(note->detail), file);
	else
		fprintf(file, "%d", note->detail);
}

static void print_note(FILE *file, const struct note *note)
{
	const char *at = note_texts[note->code];
	while (*at != '\0') {
		const char *end = *at == '{' ? strchr(at, '}') : NULL;
		if (end == NULL) {
			fputc(*at++, file);
			continue;
		}
		print_field(file, at + 1, (size_t)(end - at - 1), note);
		at = end + 1;
	}
}

/* ---- Messages ---- */

static void print_record(FILE *file, const struct record *record)
{
	fprintf(file, "record round %" PRIu64 " layer %" PRIu32 " of %" PRIu32 ": %s norm=%.6g z=%.3g change=%" PRIx64 "%s",
		record->round, record->layer_index, record->origin, verdict_text((int)record->verdict), record->norm, record->z,
		record->change, record->final ? " final" : "");
}

static void print_message(FILE *file, const struct message *message)
{
	fprintf(file, "#%" PRIu64 " ", message->sequence);
	switch (message->kind) {
	case MESSAGE_HELLO: fprintf(file, "hello"); break;
	case MESSAGE_REFUSE: fprintf(file, "refuse reason %d", (int)message->refuse.reason); break;
	case MESSAGE_HEARTBEAT:
		fprintf(file, "heartbeat round %" PRIu64 " received %" PRIu64 "%s%s%s suspects %" PRIu32,
			message->heartbeat.round, message->heartbeat.received, message->heartbeat.resend ? " resend" : "",
			message->receiver != 0 ? " accepted" : "",
			message->heartbeat.waiting_for_worker ? " waiting" : "", message->heartbeat.suspect_count);
		break;
	case MESSAGE_ROLL: fprintf(file, "roll of %" PRIu32, message->roll_origin); break;
	case MESSAGE_RECORD: print_record(file, &message->record); break;
	case MESSAGE_CHUNK:
		fprintf(file, "%s round %" PRIu64 " layer %" PRIu32 " shard %" PRIu32 " [%" PRIu64 ", +%" PRIu64 ")",
			message->chunk.phase == PHASE_REDUCE ? "reduce" : message->chunk.phase == PHASE_GATHER ? "gather" : "heal",
			message->chunk.round,
			message->chunk.layer_index, message->chunk.shard, message->chunk.offset, message->chunk.count);
		break;
	case MESSAGE_CONFIRM:
		fprintf(file, "confirm round %" PRIu64 " layer %" PRIu32 " of %" PRIu32 " hash %" PRIx64, message->confirm.round,
			message->confirm.layer_index, message->confirm.origin, message->confirm.hash);
		break;
	case MESSAGE_CHANGE:
		fprintf(file, "change %" PRIx64 " kind %d setting %" PRIu32 " = %g at %" PRIu64, message->change.id,
			(int)message->change.kind, message->change.setting, message->change.value, message->change.at_round);
		break;
	case MESSAGE_STANDING: fprintf(file, "standing"); break;
	case MESSAGE_HOLDING:
		fprintf(file, "holding %" PRIu64 " layer %" PRIu32 " of %" PRIu32 ": round %" PRIu64 " hash %" PRIx64 "%s",
			message->holding.number, message->holding.layer_index, message->holding.origin, message->holding.round,
			message->holding.hash, message->holding.is_nothing ? " nothing" : "");
		break;
	case MESSAGE_SCALAR:
		fprintf(file, "scalar %d number %" PRIu64 " layer %" PRIu32 " of %" PRIu32 ": %s %.6g change=%" PRIx64,
			(int)message->scalar.kind, message->scalar.number, message->scalar.layer_index, message->scalar.origin,
			verdict_text((int)message->scalar.verdict), message->scalar.value, message->scalar.word);
		break;
	case MESSAGE_DECREE: /* of councils, which have a trace of their own */
	case MESSAGE_KIND_END: break;
	}
}

/* ---- Lines ---- */

static void print_event(FILE *file, const struct event *event, const struct message *message)
{
	switch (event->kind) {
	case EVENT_TICK: fprintf(file, "tick"); break;
	case EVENT_MESSAGE:
		fprintf(file, "from %" PRIu32 ": ", message->from);
		print_message(file, message);
		break;
	case EVENT_OFFER:
		fprintf(file, "offer after %" PRIu64 " steps%s%s%s", event->offer.steps, event->offer.final ? ", final" : "",
			event->offer.gradients ? ", of gradients" : "", event->offer.realign ? ", to be aligned" : "");
		break;
	case EVENT_GRADIENT:
		fprintf(file, "%s gradient of layer %" PRIu32, event->gradient.absent ? "no" : "a", event->gradient.layer_index);
		break;
	case EVENT_WANT: fprintf(file, "worker wants layer %" PRIu32, event->wanted); break;
	case EVENT_HASHED:
		fprintf(file, "layer %" PRIu32 " has hash %" PRIx64, event->hashed.layer_index, event->hashed.hash);
		break;
	case EVENT_CHANGE:
		fprintf(file, "proposed: kind %d setting %" PRIu32 " = %g at %" PRIu64, (int)event->change.kind,
			event->change.setting, event->change.value, event->change.at_round);
		break;
	case EVENT_COLLECT: fprintf(file, "asks for collective of layer %" PRIu32, event->collective.layer_index); break;
	case EVENT_SUM: fprintf(file, "tells %.6g to the sum", event->sum.value); break;
	case EVENT_KIND_END: break;
	}
}

static void print_action(FILE *file, const struct action *action)
{
	switch (action->kind) {
	case ACTION_SEND:
		fprintf(file, "-> %" PRIu32 ": ", action->to);
		print_message(file, &action->message);
		break;
	case ACTION_COMMITTED:
		fprintf(file, "layer %" PRIu32 " has completed round %" PRIu64, action->layer_index, action->round);
		break;
	case ACTION_HASH: fprintf(file, "asks for the hash of layer %" PRIu32, action->layer_index); break;
	case ACTION_HEALED:
		fprintf(file, "layer %" PRIu32 " is fetched, of round %" PRIu64, action->layer_index, action->round);
		break;
	case ACTION_PUBLISH:
		fprintf(file, "publish layer %" PRIu32 " round %" PRIu64 " %s", action->layer_index, action->round,
			verdict_text((int)action->verdict));
		break;
	case ACTION_SCHEDULE:
		fprintf(file, "next offer after %" PRIu64 " steps%s", action->number, action->gradients ? ", gradients" : "");
		break;
	case ACTION_STEP: fprintf(file, "goes on as after %" PRIu64 " steps", action->number); break;
	case ACTION_PAUSE: fprintf(file, "pause"); break;
	case ACTION_RESUME: fprintf(file, "resume"); break;
	case ACTION_COLLECTED: fprintf(file, "collective %" PRIu64 " is done", action->number); break;
	case ACTION_SUMMED: fprintf(file, "sum %" PRIu64 " is %.6g", action->number, action->value); break;
	case ACTION_CHECKPOINT: fprintf(file, "checkpoint of round %" PRIu64, action->round); break;
	case ACTION_NOTE: print_note(file, &action->note); break;
	}
}

static void print_entry(FILE *file, const struct trace_entry *entry)
{
	fprintf(file, "%12.6f peer %-3" PRIu32 " %s", (double)entry->now_us / 1e6, entry->rank, entry->is_action ? "    " : "");
	if (entry->is_action)
		print_action(file, &entry->action);
	else
		print_event(file, &entry->event, &entry->message);
	fputc('\n', file);
}

static struct trace_entry *next_entry(struct trace *trace, uint32_t rank, uint64_t now_us, bool is_action)
{
	struct trace_entry *entry = &trace->entries[trace->count++ % TRACE_KEEP];
	entry->now_us = now_us;
	entry->rank = rank;
	entry->is_action = is_action;
	return entry;
}

void trace_event(struct trace *trace, uint32_t rank, const struct event *event)
{
	struct trace_entry *entry = next_entry(trace, rank, event->now_us, false);
	entry->event = *event;
	if (event->kind == EVENT_MESSAGE)
		entry->message = *event->message;
	if (trace->live != NULL)
		print_entry(trace->live, entry);
}

void trace_action(struct trace *trace, uint32_t rank, uint64_t now_us, const struct action *action)
{
	struct trace_entry *entry = next_entry(trace, rank, now_us, true);
	entry->action = *action;
	if (trace->live != NULL)
		print_entry(trace->live, entry);
}

void trace_print(const struct trace *trace, FILE *file)
{
	uint64_t first = trace->count > TRACE_KEEP ? trace->count - TRACE_KEEP : 0;
	for (uint64_t i = first; i < trace->count; i++)
		print_entry(file, &trace->entries[i % TRACE_KEEP]);
}

/* The answer about past rounds: what is kept of them, a page at a time. Only looks. */

#include <string.h>

#include "daemon/answer.h"
#include "daemon/history.h"
#include "daemon/log.h"

/* Members and layers of all rounds of one reply: about a megabyte, and a few milliseconds of the daemon's one thread. */
enum { PAGE_CELLS = 16384 };

/* Doubles of a message; NULL if memory is short. */
static double *make_settings(struct answer *answer, const struct ring_settings *settings, size_t *ret_count)
{
	double *values = answer_take(answer, sizeof *settings);
	memcpy(values, settings->value, sizeof *settings);
	*ret_count = RING_SETTING_COUNT;
	return values;
}

static Edit__Control__TraceMember *make_member(struct answer *answer, const struct history_member *kept)
{
	Edit__Control__TraceMember *member = answer_take(answer, sizeof *member);
	edit__control__trace_member__init(member);
	member->steps = kept->steps;
	member->tokens = kept->tokens;
	member->interval_us = kept->interval_us;
	member->exposed_us = kept->exposed_us;
	member->lateness_us = kept->lateness_us;
	/* The row stays as it is until the reply is packed. */
	member->verdicts = (uint32_t *)(uintptr_t)kept->verdicts;
	member->n_verdicts = VERDICT_COUNT;
	return member;
}

static Edit__Control__TraceRound *make_round(struct answer *answer, const struct history_round *kept)
{
	const struct history *history = &answer->daemon->driver.history;
	Edit__Control__TraceRound *round = answer_take(answer, sizeof *round);
	edit__control__trace_round__init(round);
	round->round = kept->round;
	round->end_us = kept->end_us - answer->daemon->begin_us;
	round->sync_us = kept->sync_us;
	round->bytes = kept->bytes;
	round->settings = make_settings(answer, &kept->settings, &round->n_settings);
	round->members = (Edit__Control__TraceMember **)answer_list(answer, history->member_count);
	for (uint32_t rank = 0; rank < history->member_count && round->members; rank++)
		round->members[round->n_members++] = make_member(answer, &kept->members[rank]);
	round->layers = (Edit__Control__TraceTimes **)answer_list(answer, history->layer_count);
	for (size_t i = 0; i < history->layer_count && round->layers; i++) {
		Edit__Control__TraceTimes *times = answer_take(answer, sizeof *times);
		edit__control__trace_times__init(times);
		times->scalars_us = kept->layers[i].scalars_us;
		times->reduce_us = kept->layers[i].reduce_us;
		times->gather_us = kept->layers[i].gather_us;
		round->layers[round->n_layers++] = times;
	}
	return round;
}

/* Rounds from `first` on, as many as one reply holds; at least one if there is one. */
static void put_rounds(struct answer *answer, Edit__Control__Trace *trace, uint64_t first)
{
	const struct history *history = &answer->daemon->driver.history;
	first = u64_max(first, history->first);
	if (history->last == 0 || first > history->last)
		return;
	size_t each = size_max(1, PAGE_CELLS / (history->member_count + history->layer_count));
	size_t count = size_min(each, (size_t)(history->last - first + 1));
	trace->rounds = (Edit__Control__TraceRound **)answer_list(answer, count);
	for (size_t i = 0; i < count && trace->rounds && !answer->is_short; i++)
		trace->rounds[trace->n_rounds++] = make_round(answer, history_find(history, first + i));
}

/* What the columns of the rounds are. */
static void put_names(struct answer *answer, Edit__Control__Trace *trace)
{
	const struct daemon *daemon = answer->daemon;
	trace->setting_names = (char **)answer_list(answer, RING_SETTING_COUNT);
	for (size_t i = 0; i < RING_SETTING_COUNT && trace->setting_names; i++)
		trace->setting_names[trace->n_setting_names++] = answer_text(answer, setting_at(i)->name);
	trace->verdict_names = (char **)answer_list(answer, VERDICT_COUNT);
	for (int i = 0; i < VERDICT_COUNT && trace->verdict_names; i++)
		trace->verdict_names[trace->n_verdict_names++] = answer_text(answer, log_verdict_text(i));
	trace->members = daemon->config.peers;
	trace->n_members = daemon->config.replicas;
	size_t count = daemon->run.description.layer_count;
	trace->layers = (Edit__Control__TraceLayer **)answer_list(answer, count);
	for (size_t i = 0; i < count && trace->layers; i++) {
		Edit__Control__TraceLayer *layer = answer_take(answer, sizeof *layer);
		edit__control__trace_layer__init(layer);
		layer->name = daemon->run.description.layers[i].name;
		layer->size = daemon->run.description.layers[i].size;
		trace->layers[trace->n_layers++] = layer;
	}
}

int answer_trace(struct answer *answer, const struct control_request *request)
{
	int error = answer_needs_node(answer);
	if (error)
		return error;
	const struct daemon *daemon = answer->daemon;
	const struct driver *driver = &daemon->driver;
	const struct config *config = &daemon->config;
	struct node_status status;
	node_status(driver->node, daemon->now_us, &status);
	Edit__Control__Trace *trace = answer_take(answer, sizeof *trace);
	edit__control__trace__init(trace);
	trace->name = config->names[config->rank];
	trace->run = answer_text(answer, config_text(config, NODE_RUN));
	trace->version = answer_text(answer, EDIT_VERSION);
	trace->incarnation = daemon->incarnation;
	trace->first_round = driver->history.first;
	trace->round = status.round;
	trace->finished = status.phase == NODE_FINISHED;
	trace->heartbeat_us = (uint64_t)config_number(config, NODE_HEARTBEAT_MS) * 1000;
	trace->silence_us = (uint64_t)config_number(config, NODE_SILENCE_MS) * 1000;
	trace->retry_us = (uint64_t)config_number(config, NODE_RETRY_MS) * 1000;
	trace->window_max_bytes = (uint64_t)config_number(config, NODE_WINDOW_MAX);
	trace->settings = make_settings(answer, node_settings(driver->node), &trace->n_settings);
	put_names(answer, trace);
	put_rounds(answer, trace, request->at_round);
	answer->reply.body_case = EDIT__CONTROL__REPLY__BODY_TRACE;
	answer->reply.trace = trace;
	return 0;
}

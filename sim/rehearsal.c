/* A recording made a scenario, run in virtual time, and read off. */

#include "sim/rehearsal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/setting.h"
#include "sim/cluster.h"
#include "sim/memory.h"

enum {
	ELEMENTS_MAX = 2000000, /* of all members' layers: beyond this sizes are scaled down, times are not */
	FIT_ROUNDS = 6,
	FIT_TRIES = 12,
	LONGER_TRIES = 12
};

#define LATENCY_MS 0.05   /* where it was not measured */
#define MBIT_MAX 1e6      /* as good as no limit */
#define FIT_PART 0.005    /* good enough */

/* Where a member stood at the end of a round, since the run began. */
struct tick {
	uint64_t time_us, steps, exposed_us, waiting_us, transfer_us;
};

/* All ends of rounds. */
struct sheet {
	uint32_t member_count;
	size_t *counts, *capacities; /* [member_count] */
	struct tick **ticks;         /* [member_count][counts] */
};

/* ---- What was recorded ---- */

static double percent(uint64_t part, double all)
{
	return all > 0 ? 100 * (double)part / all : 0;
}

static void mean_members(struct tempo *tempo, uint32_t member_count)
{
	for (uint32_t rank = 0; rank < member_count; rank++) {
		tempo->all.exposed += tempo->members[rank].exposed / member_count;
		tempo->all.waiting += tempo->members[rank].waiting / member_count;
	}
}

/* A member's waits, which it has told with its next offer. */
static struct lull recorded_lull(const struct recording *recording, uint32_t rank)
{
	uint64_t exposed_us = 0, waiting_us = 0, time_us = 0;
	for (size_t i = 0; i + 1 < recording->round_count; i++) {
		const struct recorded_round *round = &recording->rounds[i];
		if (!round->follows || !(round + 1)->follows)
			continue;
		uint64_t all_us = (round + 1)->members[rank].exposed_us;
		uint64_t for_others_us = u64_min(all_us, recording_ahead_us(recording, i, rank));
		waiting_us += for_others_us;
		exposed_us += all_us - for_others_us;
		time_us += round->end_us - (round - 1)->end_us;
	}
	return (struct lull){percent(exposed_us, (double)time_us), percent(waiting_us, (double)time_us)};
}

void tempo_record(const struct recording *recording, struct tempo *ret_tempo)
{
	uint32_t count = recording->member_count;
	struct tempo tempo = {.members = memory_take(count, sizeof *tempo.members)};
	uint64_t time_us = 0, tokens = 0, transfer_us = 0;
	for (size_t i = 0; i < recording->round_count; i++) {
		const struct recorded_round *round = &recording->rounds[i];
		if (!round->follows)
			continue;
		tempo.rounds++;
		time_us += round->end_us - (round - 1)->end_us;
		transfer_us += recording_transfer_us(recording, i);
		for (uint32_t rank = 0; rank < count; rank++)
			tokens += round->members[rank].tokens;
	}
	for (uint32_t rank = 0; rank < count; rank++)
		tempo.members[rank] = recorded_lull(recording, rank);
	tempo.round_s = 1e-6 * (double)time_us / (double)tempo.rounds;
	tempo.tokens_per_second = 1e6 * (double)tokens / (double)time_us;
	tempo.transfer_us = (double)transfer_us / (double)tempo.rounds;
	mean_members(&tempo, count);
	*ret_tempo = tempo;
}

void tempo_fini(struct tempo *tempo)
{
	free(tempo->members);
	*tempo = (struct tempo){0};
}

/* A member's steps, round by round, into paces [round_count]. Returns how many; *ret_mean_us: of a step. */
static size_t make_paces(const struct recording *recording, uint32_t rank, struct pace *paces, double *ret_mean_us)
{
	uint64_t pending_us = 0, time_us = 0, steps = 0;
	size_t count = 0;
	for (size_t i = 0; i < recording->round_count; i++) {
		if (!recording->rounds[i].follows)
			continue;
		uint64_t now = recording->rounds[i].members[rank].steps;
		pending_us += recording_compute_us(recording, i, rank);
		if (now == 0)
			continue; /* its steps count in a later round */
		paces[count++] = (struct pace){.steps = now, .step_us = u64_max(1, (pending_us + now / 2) / now)};
		time_us += pending_us;
		steps += now;
		pending_us = 0;
	}
	*ret_mean_us = steps > 0 ? (double)time_us / (double)steps : 0;
	return count;
}

static double tokens_per_step(const struct recording *recording, uint32_t rank)
{
	double tokens = 0, steps = 0;
	for (size_t i = 0; i < recording->round_count; i++) {
		tokens += (double)recording->rounds[i].members[rank].tokens;
		steps += (double)recording->rounds[i].members[rank].steps;
	}
	return steps > 0 ? tokens / steps : 0;
}

/* ---- A run ---- */

/* How much smaller than the real ones the layers are: as small as the wire's settings let them be, if there are very many numbers. */
static double choose_scale(const struct recording *recording, const struct ring_settings *settings)
{
	double all = 0;
	for (size_t l = 0; l < recording->layer_count; l++)
		all += (double)recording->layer_sizes[l] * recording->member_count;
	double most = fmin(settings->value[WIRE_CHUNK] / setting_at(WIRE_CHUNK)->low,
			   settings->value[WIRE_WINDOW] / setting_at(WIRE_WINDOW)->low);
	return fmax(1, fmin(floor(all / ELEMENTS_MAX), floor(most)));
}

/* Returns about how long a round takes, seconds. */
static double make_scenario(const struct recording *recording, const struct ring_settings *settings, const struct links *links,
			    struct scenario *scenario, struct pace *paces)
{
	static const enum ring_setting sizes[] = {WIRE_CHUNK, WIRE_WINDOW};
	double slowest_us = 0, step_us, scale = choose_scale(recording, settings);
	scenario_init(scenario, recording->member_count);
	scenario->settings = *settings;
	scenario->settings.value[SYNC_WARMUP_STEPS] = 0; /* what comes after it is looked at */
	scenario->layer_sizes = recording->layer_sizes;
	scenario->value[MODEL_TIMING] = 1;
	scenario->value[MODEL_LAYERS] = (double)recording->layer_count;
	scenario->value[MODEL_SCALE] = scale;
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		scenario->settings.value[sizes[i]] = 4 * floor(settings->value[sizes[i]] / scale / 4);
	for (uint32_t rank = 0; rank < recording->member_count; rank++) {
		struct host *host = &scenario->hosts[rank];
		memcpy(host->name, recording->names[rank], sizeof host->name);
		host->value[HOST_LATENCY] = links->latency_ms;
		host->value[HOST_BANDWIDTH] = links->mbit;
		host->paces = &paces[rank * recording->round_count];
		host->pace_count = make_paces(recording, rank, &paces[rank * recording->round_count], &step_us);
		slowest_us = fmax(slowest_us, step_us);
	}
	double period_s = settings->value[SYNC_PERIOD];
	if (settings->value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS)
		return 1e-6 * slowest_us;
	return period_s > 0 ? period_s + 1e-6 * slowest_us : 1e-6 * slowest_us * settings->value[SYNC_INTERVAL];
}

static void listen(void *arg, uint32_t rank, const struct lap *lap)
{
	struct sheet *sheet = arg;
	size_t count = sheet->counts[rank];
	if (count == sheet->capacities[rank]) {
		sheet->capacities[rank] = size_max(64, 2 * count);
		sheet->ticks[rank] = realloc(sheet->ticks[rank], sheet->capacities[rank] * sizeof(struct tick));
		CHECK(sheet->ticks[rank] != NULL);
	}
	struct tick tick = count > 0 ? sheet->ticks[rank][count - 1] : (struct tick){0};
	tick.time_us = lap->time_us;
	tick.steps += lap->steps;
	tick.exposed_us += lap->exposed_us;
	tick.waiting_us += lap->waiting_us;
	tick.transfer_us += lap->transfer_us;
	sheet->ticks[rank][count] = tick;
	sheet->counts[rank]++;
}

static void watch_nothing(void *arg, double part)
{
	(void)arg;
	(void)part;
}

/* From the end of the first round, before which the ring came up, to that of the last one that the budget did not cut short. */
static void read_off(const struct recording *recording, const struct sheet *sheet, struct tempo *ret_tempo)
{
	uint32_t count = sheet->member_count;
	struct tempo tempo = {.members = memory_take(count, sizeof *tempo.members)};
	for (uint32_t rank = 0; rank < count; rank++) {
		const struct tick *begin = sheet->ticks[rank], *end = &sheet->ticks[rank][sheet->counts[rank] - 2];
		double time_us = (double)(end->time_us - begin->time_us);
		tempo.members[rank] = (struct lull){percent(end->exposed_us - begin->exposed_us, time_us),
						    percent(end->waiting_us - begin->waiting_us, time_us)};
		tempo.tokens_per_second +=
			tokens_per_step(recording, rank) * (double)(end->steps - begin->steps) / time_us * 1e6;
		if (rank != recording->own)
			continue;
		tempo.rounds = (uint64_t)(end - begin);
		tempo.round_s = 1e-6 * time_us / (double)tempo.rounds;
		tempo.transfer_us = (double)(end->transfer_us - begin->transfer_us) / (double)tempo.rounds;
	}
	mean_members(&tempo, count);
	*ret_tempo = tempo;
}

static void sheet_fini(struct sheet *sheet)
{
	for (uint32_t rank = 0; rank < sheet->member_count; rank++)
		free(sheet->ticks[rank]);
	free(sheet->ticks);
	free(sheet->counts);
	free(sheet->capacities);
}

/* One run of so many seconds. Fewer than three rounds: *ret_tempo is untouched. */
static int run(const struct recording *recording, struct scenario *scenario, double seconds, struct tempo *ret_tempo,
	       bool *ret_is_enough, struct line *why)
{
	uint32_t count = recording->member_count;
	struct sheet sheet = {.member_count = count, .counts = memory_take(count, sizeof *sheet.counts),
			      .capacities = memory_take(count, sizeof *sheet.capacities),
			      .ticks = memory_take(count, sizeof *sheet.ticks)};
	struct report *report = report_open(NULL, scenario, NULL, why);
	CHECK(report != NULL); /* it opens no file */
	report_listen(report, listen, &sheet);
	scenario->value[RUN_SECONDS] = seconds;
	bool is_done = cluster_run(scenario, NULL, report, watch_nothing, NULL, why);
	report_close(report);
	*ret_is_enough = is_done && sheet.counts[recording->own] >= RECORDED_ROUNDS_MIN;
	if (*ret_is_enough)
		read_off(recording, &sheet, ret_tempo);
	sheet_fini(&sheet);
	return is_done ? 0 : EDIT_ERROR_SYSTEM;
}

int rehearsal_run(const struct recording *recording, const struct ring_settings *settings, const struct links *links,
		  uint64_t rounds, struct tempo *ret_tempo, struct line *why)
{
	struct scenario scenario;
	struct pace *paces = memory_take(recording->member_count * recording->round_count, sizeof *paces);
	double seconds = make_scenario(recording, settings, links, &scenario, paces) * (double)rounds;
	bool is_enough = false;
	int error = 0;
	/* Rounds may take longer than their steps alone. */
	for (int i = 0; i < LONGER_TRIES && !is_enough && !error; i++, seconds *= 3)
		error = run(recording, &scenario, seconds, ret_tempo, &is_enough, why);
	if (!error && !is_enough)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "no %d rounds within %g s", (int)RECORDED_ROUNDS_MIN, seconds / 3);
	scenario_close(&scenario);
	free(paces);
	return error;
}

/* ---- Links ---- */

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return (left > right) - (left < right);
}

static double guess_latency_ms(const struct recording *recording)
{
	uint64_t *times_us = memory_take(recording->round_count, sizeof *times_us);
	size_t count = 0;
	for (size_t i = 0; i < recording->round_count; i++)
		if (recording->rounds[i].scalars_us > 0)
			times_us[count++] = recording->rounds[i].scalars_us;
	qsort(times_us, count, sizeof *times_us, compare);
	double hops = recording->member_count - 1;
	double latency_ms = count > 0 ? 1e-3 * (double)times_us[count / 2] / hops : LATENCY_MS;
	free(times_us);
	return latency_ms;
}

/* Transfer time with links of that bandwidth, given as microseconds per bit, and latency. */
static int transfer_with(const struct recording *recording, double bit_us, double latency_ms, double *ret_us, struct line *why)
{
	struct links links = {.mbit = 1 / bit_us, .latency_ms = latency_ms};
	struct tempo tempo = {0};
	int error = rehearsal_run(recording, &recording->settings, &links, FIT_ROUNDS, &tempo, why);
	if (!error)
		*ret_us = tempo.transfer_us;
	tempo_fini(&tempo);
	return error;
}

/* The largest latency up to *latency_ms with which a link without limit is fast enough. *ret_us: transfer time with it. */
static int lower_latency(const struct recording *recording, double goal_us, double *latency_ms, double *ret_us, struct line *why)
{
	int error = transfer_with(recording, 1 / MBIT_MAX, *latency_ms, ret_us, why);
	for (int i = 0; i < FIT_TRIES && !error && *ret_us > goal_us; i++) {
		*latency_ms = i + 1 < FIT_TRIES ? *latency_ms * fmin(0.9, 0.95 * goal_us / *ret_us) : 0;
		error = transfer_with(recording, 1 / MBIT_MAX, *latency_ms, ret_us, why);
	}
	return error;
}

int rehearsal_fit(const struct recording *recording, struct links *ret_links, struct line *why)
{
	struct tempo recorded;
	double low = 1 / MBIT_MAX, low_us = 0, high_us = 0, bytes = 0;
	if (recording->member_count == 1) {
		*ret_links = (struct links){.mbit = MBIT_MAX};
		return 0;
	}
	tempo_record(recording, &recorded);
	double goal_us = fmax(1, recorded.transfer_us), latency_ms = guess_latency_ms(recording);
	tempo_fini(&recorded);
	for (size_t i = 0; i < recording->round_count; i++)
		bytes += (double)recording->rounds[i].bytes / (double)recording->round_count;
	int error = lower_latency(recording, goal_us, &latency_ms, &low_us, why);
	/* Time is nearly a straight line over 1/bandwidth: a chord, drawn anew with each try. */
	double high = fmax(2 * low, goal_us / fmax(8, 8 * bytes)), best = low;
	if (!error && low_us < goal_us)
		error = transfer_with(recording, high, latency_ms, &high_us, why);
	for (int i = 0; i < FIT_TRIES && !error && low_us < goal_us && high_us < goal_us; i++) {
		high *= 2;
		error = transfer_with(recording, high, latency_ms, &high_us, why);
	}
	for (int i = 0; i < FIT_TRIES && !error && low_us < goal_us && high_us > goal_us; i++) {
		double middle_us = 0, middle = low + (high - low) * (goal_us - low_us) / (high_us - low_us);
		error = transfer_with(recording, middle, latency_ms, &middle_us, why);
		best = middle;
		if (fabs(middle_us - goal_us) <= FIT_PART * goal_us)
			break;
		if (middle_us < goal_us) {
			low = middle;
			low_us = middle_us;
		} else {
			high = middle;
			high_us = middle_us;
		}
	}
	if (!error)
		*ret_links = (struct links){.mbit = 1 / best, .latency_ms = latency_ms};
	return error;
}

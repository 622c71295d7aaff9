/* See the header. Owns its files; a file that cannot be written to is noticed when it is closed. */

#include "sim/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/setting.h"

enum {
	STRETCH_MAX = 20000, /* of a picture */
	NAME_BYTES = 4200
};

/* A measurement that is under way. */
struct mark {
	uint64_t time_us, tokens, round;
};

struct report {
	const struct scenario *scenario;
	struct tuition *tuition;
	const char *folder; /* NULL: no files */
	FILE *lines, *losses, *stretches;
	FILE *held;        /* lines behind the measurement under way; NULL: there is none */
	char *held_text;
	size_t held_size;
	struct mark mark;
	double last_loss;
	unsigned stretch_count;
	report_listener *listener; /* NULL: none */
	void *listener_arg;
	bool failed;
};

static const char *const verdict_names[VERDICT_COUNT] = {
#define X(id, text) [id] = text,
	VERDICTS(X)
#undef X
};

static const char *const stretch_names[] = {"compute", "exposed", "waiting"};

/* ---- Files ---- */

static FILE *open_file(const char *folder, const char *name, struct line *why)
{
	char path[NAME_BYTES];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "we");
	if (!file)
		line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be written (%s)", path, strerror(errno));
	return file;
}

static void close_file(struct report *report, FILE *file)
{
	if (!file)
		return;
	report->failed |= ferror(file) != 0;
	report->failed |= fclose(file) != 0;
}

struct report *report_open(const char *folder, const struct scenario *scenario, struct tuition *tuition, struct line *why)
{
	struct report *report = calloc(1, sizeof *report);
	CHECK(report != NULL);
	report->scenario = scenario;
	report->tuition = tuition;
	report->folder = folder;
	report->last_loss = NAN;
	if (!folder)
		return report;
	if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
		line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be made (%s)", folder, strerror(errno));
		report_close(report);
		return NULL;
	}
	report->lines = open_file(folder, "lines.json", why);
	report->losses = report->lines ? open_file(folder, "loss.tsv", why) : NULL;
	report->stretches = report->losses ? open_file(folder, "timeline.tsv", why) : NULL;
	if (!report->stretches) {
		report_close(report);
		return NULL;
	}
	fprintf(report->losses, "# tokens\tseconds\tloss\n");
	fprintf(report->stretches, "# node\tkind\tbegin\tend\n");
	return report;
}

/* ---- Lines ---- */

/* A number as JSON has it: what is not finite is null. */
static const char *number_text(double number, char text[32])
{
	snprintf(text, 32, isfinite(number) ? "%.9g" : "null", number);
	return text;
}

/* Writes the measurement under way once it is ready, and what was held back behind it. */
static void settle(struct report *report)
{
	char text[32];
	if (!report->held)
		return;
	report->last_loss = tuition_mark(report->tuition);
	const struct mark *mark = &report->mark;
	fclose(report->held);
	report->held = NULL;
	if (report->lines) {
		fprintf(report->lines, "{\"event\":\"eval\",\"time_us\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"round\":%" PRIu64
			",\"loss\":%s}\n", mark->time_us, mark->tokens, mark->round, number_text(report->last_loss, text));
		fwrite(report->held_text, 1, report->held_size, report->lines);
		fprintf(report->losses, "%" PRIu64 "\t%.6f\t%.9g\n", mark->tokens, 1e-6 * (double)mark->time_us,
			report->last_loss);
	}
	free(report->held_text);
	report->held_text = NULL;
}

/* Where the next line goes; NULL: nowhere. */
static FILE *line_file(struct report *report)
{
	if (report->held && tuition_has_mark(report->tuition))
		settle(report);
	return !report->lines ? NULL : report->held ? report->held : report->lines;
}

void report_listen(struct report *report, report_listener *listener, void *arg)
{
	report->listener = listener;
	report->listener_arg = arg;
}

void report_round(struct report *report, uint32_t rank, const struct lap *lap)
{
	if (report->listener)
		report->listener(report->listener_arg, rank, lap);
	FILE *file = line_file(report);
	char loss[32];
	if (!file)
		return;
	fprintf(file,
		"{\"event\":\"round\",\"time_us\":%" PRIu64 ",\"node\":\"%s\",\"round\":%" PRIu64 ",\"steps\":%" PRIu64
		",\"compute_us\":%" PRIu64 ",\"exposed_us\":%" PRIu64 ",\"waiting_us\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"loss\":%s,\"verdicts\":{",
		lap->time_us, lap->name, lap->round, lap->steps, lap->compute_us, lap->exposed_us,
		lap->waiting_us, lap->bytes, number_text(lap->loss, loss));
	const char *comma = "";
	for (int v = 0; v < VERDICT_COUNT; v++)
		if (lap->verdicts[v] > 0) {
			fprintf(file, "%s\"%s\":%" PRIu64, comma, verdict_names[v], lap->verdicts[v]);
			comma = ",";
		}
	fprintf(file, "}}\n");
}

void report_loss(struct report *report, uint64_t time_us, uint64_t tokens, uint64_t round, const struct layer *layers)
{
	if (!report->tuition)
		return;
	settle(report);
	tuition_examine(report->tuition, layers);
	report->mark = (struct mark){time_us, tokens, round};
	report->held = open_memstream(&report->held_text, &report->held_size);
	CHECK(report->held != NULL);
}

double report_last_loss(struct report *report)
{
	settle(report);
	return report->last_loss;
}

void report_stretch(struct report *report, uint32_t rank, enum stretch stretch, uint64_t begin_us, uint64_t end_us)
{
	if (!report->stretches || report->stretch_count >= STRETCH_MAX || end_us <= begin_us)
		return;
	report->stretch_count++;
	fprintf(report->stretches, "%" PRIu32 "\t%s\t%.6f\t%.6f\n", rank, stretch_names[stretch], 1e-6 * (double)begin_us,
		1e-6 * (double)end_us);
}

/* ---- End ---- */

int report_model(struct report *report, const struct layer *layers, struct line *why)
{
	char path[NAME_BYTES];
	if (!report->folder || !report->tuition)
		return 0;
	snprintf(path, sizeof path, "%s/model", report->folder);
	return tuition_save(report->tuition, layers, path, why);
}

static double percent(uint64_t part, const struct totals *totals)
{
	uint64_t all = totals->compute_us + totals->exposed_us + totals->waiting_us;
	return all > 0 ? 100 * (double)part / (double)all : 0;
}

static void print_table(const char *method, const struct totals *totals, double rate, const char *loss, uint64_t bytes)
{
	char size[SIZE_TEXT_BYTES];
	printf("%-10s %12s %12s %10s %8s %9s %9s %7s %11s %9s\n", "method", "tokens", "time s", "tokens/s", "loss", "exposed %",
	       "waiting %", "rounds", "sent/node", "left out");
	printf("%-10s %12" PRIu64 " %12.3f %10.1f %8.6s %9.2f %9.2f %7" PRIu64 " %11s %9" PRIu64 "\n", method,
	       totals->tokens, 1e-6 * (double)totals->time_us, rate, loss, percent(totals->exposed_us, totals),
	       percent(totals->waiting_us, totals), totals->rounds, text_size(bytes, size), totals->left_out);
}

void report_end(struct report *report, const struct totals *totals)
{
	char method[SETTING_TEXT_MAX + 1], loss[32], rate_text[32];
	if (report->listener)
		return;
	settle(report);
	setting_format(METHOD, report->scenario->settings.value[METHOD], method);
	number_text(report->last_loss, loss);
	double rate = totals->time_us > 0 ? 1e6 * (double)totals->tokens / (double)totals->time_us : 0;
	uint64_t bytes = totals->bytes / report->scenario->host_count;
	if (report->lines)
		fprintf(report->lines,
			"{\"event\":\"end\",\"time_us\":%" PRIu64 ",\"method\":\"%s\",\"nodes\":%" PRIu32
			",\"tokens\":%" PRIu64 ",\"tokens_per_second\":%s,\"loss\":%s,\"rounds\":%" PRIu64
			",\"compute_us\":%" PRIu64 ",\"exposed_us\":%" PRIu64 ",\"waiting_us\":%" PRIu64
			",\"bytes_per_node\":%" PRIu64 ",\"left_out\":%" PRIu64 "}\n",
			totals->time_us, method, report->scenario->host_count, totals->tokens, number_text(rate, rate_text),
			loss, totals->rounds, totals->compute_us, totals->exposed_us, totals->waiting_us, bytes,
			totals->left_out);
	print_table(method, totals, rate, loss, bytes);
	report->failed |= fflush(stdout) != 0;
}

bool report_close(struct report *report)
{
	if (!report)
		return true;
	settle(report);
	close_file(report, report->lines);
	close_file(report, report->losses);
	close_file(report, report->stretches);
	bool is_whole = !report->failed;
	free(report);
	return is_whole;
}

/* Writes gnuplot's script and becomes gnuplot: nothing of ours forks (a BLAS that has started threads does not survive it). */

#include "sim/plot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char head[] =
	"set encoding utf8\n"
	"set grid lc rgb '#dddddd'\n"
	"set border 3\n"
	"set tics nomirror out\n";

static const char loss_body[] =
	"set key off\n"
	"set ylabel 'held-out loss, nats per token'\n"
	"set xlabel '%s'\n"
	"plot 'loss.tsv' using %s:3 with linespoints pt 7 ps 0.4 lw 2 lc rgb '#1f5fa8'\n";

/* Each output is drawn by both terminals. */
static void put_outputs(FILE *file, const char *name, unsigned height, const char *body)
{
	fprintf(file, "set terminal svg size 900,%u font 'sans,13' background 'white'\nset output '%s.svg'\n%s", height,
		name, body);
	fprintf(file, "set terminal png size 900,%u font 'sans,11'\nset output '%s.png'\n%sunset output\n", height, name, body);
}

static void put_loss(FILE *file, const char *name, const char *label, const char *column)
{
	char body[sizeof loss_body + 64];
	snprintf(body, sizeof body, loss_body, label, column);
	put_outputs(file, name, 480, body);
}

/* One bar per node, the first on top. The window is where the timeline of the first node ends, at most. */
static void put_timeline(FILE *file, const struct scenario *scenario)
{
	static const char body[] =
		"plot 'timeline.tsv' using 3:(strcol(2) eq 'compute' ? $1 : NaN):3:4:($1-0.38):($1+0.38) "
		"with boxxyerror fs solid 1 noborder lc rgb '#1f5fa8' title 'compute', "
		"'' using 3:(strcol(2) eq 'exposed' ? $1 : NaN):3:4:($1-0.38):($1+0.38) "
		"with boxxyerror fs solid 1 noborder lc rgb '#d9731a' title 'exposed sync', "
		"'' using 3:(strcol(2) eq 'waiting' ? $1 : NaN):3:4:($1-0.38):($1+0.38) "
		"with boxxyerror fs solid 1 noborder lc rgb '#c8c8c8' title 'waiting for others'\n";
	uint32_t count = scenario->host_count;
	fprintf(file, "reset\n%sset xlabel 'virtual time, s'\nunset ylabel\nset key top outside horizontal\n", head);
	fprintf(file, "set yrange [%u.5:-0.5]\nset ytics (", count - 1);
	for (uint32_t rank = 0; rank < count; rank++)
		fprintf(file, "%s'%s' %u", rank > 0 ? "," : "", scenario->hosts[rank].name, rank);
	fprintf(file, ")\nset xrange [0:*]\n");
	put_outputs(file, "timeline", 160 + 28 * (count < 32 ? count : 32), body);
}

static int write_script(const char *folder, const struct scenario *scenario, bool has_loss, struct line *why)
{
	char path[4200];
	snprintf(path, sizeof path, "%s/plot.gp", folder);
	FILE *file = fopen(path, "we");
	if (!file)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be written (%s)", path, strerror(errno));
	fputs(head, file);
	if (has_loss) {
		put_loss(file, "loss-tokens", "tokens, all nodes together", "1");
		put_loss(file, "loss-time", "virtual time, s", "2");
	}
	put_timeline(file, scenario);
	int is_broken = ferror(file);
	if (fclose(file) != 0 || is_broken)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be written (%s)", path, strerror(errno));
	return 0;
}

int plot_draw(const char *folder, const struct scenario *scenario, bool has_loss, struct line *why)
{
	int failed = write_script(folder, scenario, has_loss, why);
	if (failed)
		return failed;
	if (chdir(folder) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be entered (%s)", folder, strerror(errno));
	execlp("gnuplot", "gnuplot", "plot.gp", (char *)NULL);
	return line_fail(why, EDIT_ERROR_SYSTEM, "no pictures: gnuplot cannot be started (%s)", strerror(errno));
}

/* `editctl mesh`: the mesh drawn as a table, a row for each replica, and where the memory of the node asked goes. */

#include <inttypes.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"
#include "ctl/unit.h"

enum { COLUMNS_MAX = 64 /* that are drawn: wider meshes are listed in --json */ };

/* ---- Places ---- */

static bool is_self(const Edit__Control__MeshMember *member)
{
	return strcmp(member->state, "self") == 0;
}

/* What its own words add: that its worker has to come, that it is at another round. */
static void member_words(const Edit__Control__Mesh *mesh, const Edit__Control__MeshMember *member, char *text, size_t size)
{
	char at[32] = "";
	if (member->round != mesh->round)
		snprintf(at, sizeof(at), " at %" PRIu64, member->round);
	if (is_self(member) && mesh->worker_pid == 0)
		snprintf(text, size, "%s no worker", at);
	else
		snprintf(text, size, "%s%s", at, member->waits_for_worker ? " steps" : "");
}

/* A member in its place: name, and what is known of it. */
static void member_cell(struct table *table, const Edit__Control__Mesh *mesh, const Edit__Control__MeshMember *member)
{
	char words[64];
	member_words(mesh, member, words, sizeof(words));
	if (is_self(member))
		table_format(table, mesh->worker_pid > 0 ? TONE_GOOD : TONE_BAD, "[%s]%s", member->name, words);
	else if (strcmp(member->state, "unknown") == 0)
		table_format(table, TONE_FAINT, "%s ?", member->name);
	else if (strcmp(member->state, "live") != 0)
		table_format(table, TONE_BAD, "%s %s", member->name, member->state);
	else if (member->neighbour)
		table_format(table, TONE_GOOD, "%s%s", member->name, words);
	else
		table_format(table, TONE_GOOD, "%s (told)", member->name);
}

/* The words that stand in this drawing, each explained. */
static void explain(FILE *out, const Edit__Control__Mesh *mesh)
{
	bool has_unknown = false, has_told = false, has_steps = false, has_at = false;
	for (size_t i = 0; i < mesh->n_members; i++) {
		const Edit__Control__MeshMember *member = mesh->members[i];
		bool is_live = strcmp(member->state, "live") == 0, is_heard = is_self(member) || (is_live && member->neighbour);
		has_unknown |= strcmp(member->state, "unknown") == 0;
		has_told |= is_live && !member->neighbour;
		has_steps |= is_heard && member->waits_for_worker && !(is_self(member) && mesh->worker_pid == 0);
		has_at |= is_heard && member->round != mesh->round;
	}
	fprintf(out, "[this node]%s%s%s%s\n", has_steps ? "  steps: its worker has not offered this round" : "",
		has_at ? "  at: the last round that it has told" : "",
		has_told ? "  (told): not a neighbour, nobody has told that it is down" : "",
		has_unknown ? "  ?: not heard from here" : "");
}

static void draw(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	char alignment[COLUMNS_MAX + 2], names[COLUMNS_MAX][24];
	const char *titles[COLUMNS_MAX + 1] = {""};
	memset(alignment, 'l', sizeof(alignment));
	alignment[mesh->columns + 1] = '\0';
	for (uint32_t column = 0; column < mesh->columns; column++) {
		snprintf(names[column], sizeof(names[column]), "COLUMN %" PRIu32, column + 1);
		titles[column + 1] = names[column];
	}
	struct table *table = table_new(alignment, titles);
	for (size_t i = 0; i < mesh->n_members; i++) {
		if (i % mesh->columns == 0)
			table_format(table, TONE_TITLE, "row %zu", i / mesh->columns + 1);
		member_cell(table, mesh, mesh->members[i]);
	}
	table_print(table, out, colour);
	table_free(table);
	explain(out, mesh);
}

/* ---- Memory ---- */

static void memory_row(struct table *table, const char *kind, uint64_t bytes)
{
	table_cell(table, TONE_PLAIN, kind);
	table_format(table, TONE_PLAIN, "%" PRIu64, bytes);
	table_format(table, TONE_PLAIN, "%.2f MiB", (double)bytes / (1 << 20));
}

/* What is asked of the system and may be kept from us. */
static void read_row(struct table *table, const char *kind, uint64_t bytes, bool has_process)
{
	if (bytes > 0) {
		memory_row(table, kind, bytes);
		return;
	}
	table_cell(table, TONE_PLAIN, kind);
	table_cell(table, TONE_FAINT, has_process ? "cannot be read" : "no worker");
	table_cell(table, TONE_PLAIN, "");
}

static void tell_memory(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	static const char *const titles[] = {"MEMORY OF THIS NODE", "BYTES", ""};
	bool has_worker = mesh->worker_pid > 0;
	uint64_t sum = mesh->worker_own_bytes;
	struct table *table = table_new("lrr", titles);
	for (size_t i = 0; i < mesh->n_memory; i++) {
		memory_row(table, mesh->memory[i]->kind, mesh->memory[i]->bytes);
		sum += mesh->memory[i]->bytes;
	}
	read_row(table, "worker: activations and other, at its peak", mesh->worker_own_bytes, has_worker);
	memory_row(table, mesh->worker_own_bytes > 0 ? "sum" : "sum, without the worker's own", sum);
	read_row(table, "resident: editd (PSS)", mesh->daemon_bytes, true);
	read_row(table, "resident: worker (PSS)", mesh->worker_bytes, has_worker);
	fputc('\n', out);
	table_print(table, out, colour);
	table_free(table);
}

/* ---- All of it ---- */

static void tell_waiting(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	enum table_tone tone = mesh->stalled_us > 0 || mesh->advice[0] != '\0' ? TONE_BAD : TONE_PLAIN;
	if (mesh->waiting_for[0] != '\0') {
		table_text(out, tone, colour, "waits for ");
		table_text(out, tone, colour, mesh->waiting_for);
		if (mesh->stalled_us > 0)
			fprintf(out, ", for %s", unit_time(mesh->stalled_us).text);
		fputc('\n', out);
	}
	if (mesh->advice[0] != '\0') {
		table_text(out, tone, colour, mesh->advice);
		fputc('\n', out);
	}
}

void render_mesh(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	bool is_whole = mesh->columns >= 1 && mesh->n_members == (size_t)mesh->rows * mesh->columns;
	if (mesh->columns == 1)
		fprintf(out, "no mesh (mesh.shards = 1): a ring of %" PRIu32 " whole replica%s", mesh->rows, mesh->rows == 1 ? "" : "s");
	else
		fprintf(out, "%" PRIu32 " replica%s (rows) in %" PRIu32 " pieces (columns)", mesh->rows, mesh->rows == 1 ? "" : "s",
			mesh->columns);
	if (mesh->fanout > 0 && mesh->fanout < mesh->rows)
		fprintf(out, ", rings of rings in groups of %" PRIu32, mesh->fanout);
	fprintf(out, ", after round %" PRIu64 "\n", mesh->round);
	if (is_whole && mesh->columns <= COLUMNS_MAX)
		draw(out, mesh, colour);
	else if (is_whole)
		fputs("too wide to be drawn: --json lists the members\n", out);
	tell_waiting(out, mesh, colour);
	if (mesh->columns > 1)
		fprintf(out, "the worker has waited %s for whole layers\n", unit_time(mesh->gather_us).text);
	if (mesh->n_memory > 0)
		tell_memory(out, mesh, colour);
}

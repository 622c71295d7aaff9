/* `editctl mesh`: the mesh drawn as a table, a row for each replica, and where the memory of the node asked goes. */

#include <inttypes.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"
#include "ctl/unit.h"

enum { COLUMNS_MAX = 64 /* that are drawn: wider meshes are listed in --json */ };

/* A member in its place: name, and what is known of it. */
static void member_cell(struct table *table, const Edit__Control__MeshMember *member)
{
	bool is_unknown = strcmp(member->state, "unknown") == 0;
	bool is_good = strcmp(member->state, "self") == 0 || strcmp(member->state, "live") == 0;
	enum table_tone tone = is_unknown ? TONE_FAINT : is_good ? TONE_GOOD : TONE_BAD;
	if (strcmp(member->state, "self") == 0)
		table_format(table, tone, "[%s]", member->name);
	else if (is_unknown)
		table_format(table, tone, "%s ?", member->name);
	else if (!is_good)
		table_format(table, tone, "%s %s", member->name, member->state);
	else
		table_format(table, tone, "%s%s", member->name, member->waits_for_worker ? " steps" : "");
}

static void draw(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	char alignment[COLUMNS_MAX + 2], names[COLUMNS_MAX][24];
	const char *titles[COLUMNS_MAX + 1] = {""};
	memset(alignment, 'l', sizeof(alignment));
	alignment[mesh->columns + 1] = '\0';
	for (uint32_t column = 0; column < mesh->columns; column++) {
		snprintf(names[column], sizeof(names[column]), "PIECE %" PRIu32, column);
		titles[column + 1] = names[column];
	}
	struct table *table = table_new(alignment, titles);
	for (size_t i = 0; i < mesh->n_members; i++) {
		if (i % mesh->columns == 0)
			table_format(table, TONE_TITLE, "replica %zu", i / mesh->columns);
		member_cell(table, mesh->members[i]);
	}
	table_print(table, out, colour);
	table_free(table);
	fputs("[own place]  steps: its worker has not offered this round  ?: shares no ring with this node\n", out);
}

static void tell_memory(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	static const char *const titles[] = {"MEMORY OF THIS NODE", ""};
	uint64_t sum = 0;
	struct table *table = table_new("lr", titles);
	for (size_t i = 0; i < mesh->n_memory; i++) {
		table_cell(table, TONE_PLAIN, mesh->memory[i]->kind);
		table_cell(table, TONE_PLAIN, unit_bytes(mesh->memory[i]->bytes).text);
		sum += mesh->memory[i]->bytes;
	}
	table_cell(table, TONE_PLAIN, "set aside, in all");
	table_cell(table, TONE_PLAIN, unit_bytes(sum).text);
	table_cell(table, TONE_PLAIN, "resident: editd");
	table_cell(table, TONE_PLAIN, mesh->daemon_bytes > 0 ? unit_bytes(mesh->daemon_bytes).text : "?");
	table_cell(table, TONE_PLAIN, "resident: worker, with activations");
	table_cell(table, TONE_PLAIN, mesh->worker_bytes > 0 ? unit_bytes(mesh->worker_bytes).text : "?");
	fputc('\n', out);
	table_print(table, out, colour);
	table_free(table);
}

void render_mesh(FILE *out, const Edit__Control__Mesh *mesh, bool colour)
{
	bool is_whole = mesh->columns >= 1 && mesh->n_members == (size_t)mesh->rows * mesh->columns;
	if (mesh->columns == 1)
		fprintf(out, "a ring of %" PRIu32 " whole replicas (mesh.shards = 1)", mesh->rows);
	else
		fprintf(out, "%" PRIu32 " replicas in %" PRIu32 " pieces", mesh->rows, mesh->columns);
	if (mesh->fanout > 0 && mesh->fanout < mesh->rows)
		fprintf(out, ", rings of rings in groups of %" PRIu32, mesh->fanout);
	fprintf(out, ", after round %" PRIu64 "\n", mesh->round);
	if (is_whole && mesh->columns <= COLUMNS_MAX)
		draw(out, mesh, colour);
	if (mesh->waiting_for[0] != '\0') {
		table_text(out, mesh->stalled_us > 0 ? TONE_BAD : TONE_PLAIN, colour, "waits for ");
		table_text(out, mesh->stalled_us > 0 ? TONE_BAD : TONE_PLAIN, colour, mesh->waiting_for);
		if (mesh->stalled_us > 0)
			fprintf(out, ", for %s", unit_time(mesh->stalled_us).text);
		fputc('\n', out);
	}
	if (mesh->columns > 1)
		fprintf(out, "the worker has waited %s for whole layers\n", unit_time(mesh->gather_us).text);
	if (mesh->n_memory > 0)
		tell_memory(out, mesh, colour);
}

/* `editctl view`: who is a member, and what those who decide about it are at. */

#include <inttypes.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"

/* A line in a tone. */
static void line(FILE *out, enum table_tone tone, bool colour, const char *before, const char *text)
{
	table_text(out, tone, colour, before);
	table_text(out, tone, colour, text);
	fputc('\n', out);
}

static void tell_head(FILE *out, const Edit__Control__View *view, bool colour)
{
	bool is_good = strcmp(view->place, "in") == 0 || strcmp(view->place, "fixed") == 0;
	/* Of a mesh a node hears its own row and column. */
	if (strcmp(view->place, "fixed") == 0)
		fprintf(out, "view %" PRIu64 ", %zu members", view->number, view->n_members);
	else
		fprintf(out, "view %" PRIu64 ", %" PRIu32 " of %zu members heard", view->number, view->heard, view->n_members);
	/* Where this node is none of those who decide, others may well have a majority. */
	if (strcmp(view->place, "in") == 0 && !view->majority)
		table_text(out, TONE_BAD, colour, ": no majority, nothing can be decided (see `editctl force`)");
	fputc('\n', out);
	table_text(out, TONE_PLAIN, colour, view->name);
	line(out, is_good ? TONE_PLAIN : TONE_BAD, colour, ": ", view->text);
}

/* Appends a note to text[size]. */
static void note(char *text, size_t size, bool is_so, const char *words)
{
	size_t used = strlen(text);
	if (is_so)
		snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", words);
}

static void member_row(struct table *table, const Edit__Control__ViewMember *member, bool is_fixed)
{
	bool is_unknown = strcmp(member->state, "unknown") == 0;
	enum table_tone tone = member->heard ? TONE_GOOD : is_unknown ? TONE_FAINT : TONE_BAD;
	char notes[64] = "";
	note(notes, sizeof(notes), strcmp(member->state, "self") == 0, "this node");
	note(notes, sizeof(notes), member->holder, "tie-holder");
	note(notes, sizeof(notes), !member->heard && !is_fixed, "not heard");
	note(notes, sizeof(notes), member->leaving, "leaving");
	table_cell(table, TONE_PLAIN, member->name);
	table_cell(table, tone, member->state);
	table_cell(table, TONE_FAINT, member->address);
	table_cell(table, TONE_PLAIN, notes);
}

static void tell_members(FILE *out, const Edit__Control__View *view, bool colour)
{
	static const char *const titles[] = {"MEMBER", "STATE", "ADDRESS", ""};
	struct table *table = table_new("llll", titles);
	bool has_holder = false;
	for (size_t i = 0; i < view->n_members; i++) {
		member_row(table, view->members[i], strcmp(view->place, "fixed") == 0);
		has_holder |= view->members[i]->holder;
	}
	table_print(table, out, colour);
	table_free(table);
	if (has_holder)
		fputs("(tie-holder: of two halves the one with it goes on)\n", out);
}

static const char *stage_words(const char *stage)
{
	if (strcmp(stage, "asking") == 0)
		return "this node asks the others for a next view";
	if (strcmp(stage, "deciding") == 0)
		return "this node has the others accept a next view";
	return stage;
}

static void tell_council(FILE *out, const Edit__Control__View *view, bool colour)
{
	if (view->n_joiners > 0)
		fputs("asks to be taken in:", out);
	for (size_t i = 0; i < view->n_joiners; i++) {
		fputc(' ', out);
		table_text(out, TONE_PLAIN, colour, view->joiners[i]);
	}
	if (view->n_joiners > 0)
		fputc('\n', out);
	if (view->council[0] == '\0')
		return;
	fputs("council: ", out);
	table_text(out, TONE_PLAIN, colour, stage_words(view->council));
	if (view->failed > 0)
		fprintf(out, "; %" PRIu32 " attempt%s failed so far", view->failed, view->failed == 1 ? "" : "s");
	fputc('\n', out);
	fprintf(out, "since the start: %" PRIu64 " view%s entered, %" PRIu64 " proposed, %" PRIu64 " given way\n", view->entered,
		view->entered == 1 ? "" : "s", view->proposed, view->given_way);
}

void render_view(FILE *out, const Edit__Control__View *view, bool colour)
{
	tell_head(out, view, colour);
	tell_members(out, view, colour);
	tell_council(out, view, colour);
	if (view->trouble[0] != '\0')
		line(out, TONE_BAD, colour, "cannot vote: ", view->trouble);
	if (view->contradictions > 0)
		line(out, TONE_BAD, colour, "another list of this number has come: two rings have gone on apart since a view was forced", "");
}

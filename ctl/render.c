/* Replies as text: which body goes where, and the short ones. */

#include "ctl/render.h"

#include <inttypes.h>
#include <string.h>

#include "ctl/table.h"

void render_reply(FILE *out, const Edit__Control__Reply *reply, bool colour)
{
	switch (reply->body_case) {
	case EDIT__CONTROL__REPLY__BODY_STATUS: render_status(out, reply->status, colour); break;
	case EDIT__CONTROL__REPLY__BODY_PEERS: render_peers(out, reply->peers, colour); break;
	case EDIT__CONTROL__REPLY__BODY_LAYERS: render_layers(out, reply->layers, colour); break;
	case EDIT__CONTROL__REPLY__BODY_PENALTIES: render_penalties(out, reply->penalties, colour); break;
	case EDIT__CONTROL__REPLY__BODY_SETTINGS: render_settings(out, reply->settings, colour); break;
	case EDIT__CONTROL__REPLY__BODY_HASHES: render_hashes(out, reply->hashes, colour); break;
	case EDIT__CONTROL__REPLY__BODY_CHANGE: render_change(out, reply->change, colour); break;
	case EDIT__CONTROL__REPLY__BODY_MESH: render_mesh(out, reply->mesh, colour); break;
	case EDIT__CONTROL__REPLY__BODY_VIEW: render_view(out, reply->view, colour); break;
	default: break;
	}
}

void render_settings(FILE *out, const Edit__Control__Settings *settings, bool colour)
{
	static const char *const titles[] = {"SETTING", "VALUE", "UNIT", "DEFAULT", "SCOPE", "SINCE", "WHAT"};
	struct table *table = table_new("lrlrlll", titles);
	for (size_t i = 0; i < settings->n_settings; i++) {
		const Edit__Control__Setting *setting = settings->settings[i];
		table_cell(table, TONE_PLAIN, setting->name);
		table_cell(table, strcmp(setting->value, setting->standard) == 0 ? TONE_PLAIN : TONE_GOOD, setting->value);
		table_cell(table, TONE_FAINT, setting->unit);
		table_cell(table, TONE_FAINT, setting->standard);
		table_cell(table, TONE_FAINT, setting->scope);
		if (setting->since_round > 0)
			table_format(table, TONE_PLAIN, "round %" PRIu64, setting->since_round);
		else
			table_cell(table, TONE_PLAIN, "start");
		table_cell(table, TONE_FAINT, setting->help);
	}
	table_print(table, out, colour);
	table_free(table);
}

void render_change(FILE *out, const Edit__Control__Change *change, bool colour)
{
	bool is_dropped = strcmp(change->state, "dropped") == 0;
	table_text(out, TONE_PLAIN, colour, change->text);
	fputs(": ", out);
	table_text(out, is_dropped ? TONE_BAD : TONE_PLAIN, colour, change->state);
	if (strcmp(change->state, "in-force") == 0)
		fprintf(out, " after round %" PRIu64, change->round);
	if (change->folder[0] != '\0') {
		fputs(", written to ", out);
		table_text(out, TONE_PLAIN, colour, change->folder);
	}
	if (change->failure[0] != '\0') {
		fputs(", ", out);
		table_text(out, TONE_BAD, colour, change->failure);
	}
	fputc('\n', out);
}

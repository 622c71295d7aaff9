/* `editctl layers` and `editctl hash`: the layers of the model, and whether all members hold the same bits of them. */

#include <inttypes.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"
#include "ctl/unit.h"

/* What a round measures; before the layer's first one there is nothing to show. */
static void add_measures(struct table *table, const Edit__Control__Layer *layer)
{
	if (layer->round == 0) {
		for (int i = 0; i < 5; i++)
			table_cell(table, TONE_PLAIN, "-");
		return;
	}
	table_cell(table, TONE_PLAIN, unit_time(layer->scalars_us).text);
	table_cell(table, TONE_PLAIN, unit_time(layer->reduce_us).text);
	table_cell(table, TONE_PLAIN, unit_time(layer->gather_us).text);
	table_cell(table, TONE_PLAIN, unit_real(layer->mean_norm).text);
	table_format(table, TONE_PLAIN, "%" PRIu32, layer->accepted);
}

void render_layers(FILE *out, const Edit__Control__Layers *layers, bool colour)
{
	static const char *const titles[] = {"LAYER", "SIZE", "ROUND", "STATE", "SCALARS", "REDUCE", "GATHER", "MEAN NORM",
					     "ACCEPTED"};
	struct table *table = table_new("lrrlrrrrr", titles);
	uint64_t size = 0;
	for (size_t i = 0; i < layers->n_layers; i++) {
		const Edit__Control__Layer *layer = layers->layers[i];
		size += layer->size;
		table_cell(table, TONE_PLAIN, layer->name);
		table_format(table, TONE_PLAIN, "%" PRIu64, layer->size);
		table_format(table, TONE_PLAIN, "%" PRIu64, layer->round);
		table_cell(table, TONE_PLAIN, layer->state);
		add_measures(table, layer);
	}
	table_print(table, out, colour);
	table_free(table);
	fprintf(out, "%zu layers, %s parameters, %s\n", layers->n_layers, unit_count(size).text, unit_bytes(4 * size).text);
}

/* Whether an earlier member of the layer has the same hash. */
static bool is_seen(const Edit__Control__LayerHash *layer, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (layer->members[i]->hash == layer->members[index]->hash &&
		    layer->members[i]->round == layer->members[index]->round)
			return true;
	return false;
}

/* Names of the members that have the hash of member `first`, ended by "..." where the text is full. */
static void list_members(const Edit__Control__LayerHash *layer, size_t first, char *text, size_t text_bytes)
{
	size_t used = 0;
	for (size_t i = first; i < layer->n_members; i++) {
		const Edit__Control__MemberHash *member = layer->members[i];
		bool is_full = used + strlen(member->name) + sizeof(" ...") >= text_bytes;
		if (member->hash != layer->members[first]->hash || member->round != layer->members[first]->round)
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used > 0 ? " " : "",
					 is_full ? "..." : member->name);
		if (is_full)
			return;
	}
}

/* Whether two members have told different hashes of the layer. Who has told none yet, in a view that has just begun, differs from nobody. */
static bool differs(const Edit__Control__LayerHash *layer)
{
	const Edit__Control__MemberHash *first = NULL;
	for (size_t i = 0; i < layer->n_members; i++) {
		const Edit__Control__MemberHash *member = layer->members[i];
		if (member->round == 0)
			continue;
		if (first && member->hash != first->hash)
			return true;
		first = member;
	}
	return false;
}

/* One row per hash that is about: a single one if all members agree. */
static void add_hashes(struct table *table, const Edit__Control__LayerHash *layer)
{
	const bool is_different = differs(layer), is_told = layer->n_members > 0 && layer->members[0]->round > 0;
	const enum table_tone tone = is_different ? TONE_BAD : layer->equal ? TONE_GOOD : TONE_PLAIN;
	const char *word = is_different ? "DIFFERS" : layer->equal && is_told ? "equal" : "";
	for (size_t i = 0; i < layer->n_members; i++) {
		const Edit__Control__MemberHash *member = layer->members[i];
		char hash[24] = "not heard", members[512] = "";
		if (is_seen(layer, i))
			continue;
		if (member->round > 0)
			snprintf(hash, sizeof(hash), "%016" PRIx64, member->hash);
		list_members(layer, i, members, sizeof(members));
		table_cell(table, TONE_PLAIN, i == 0 ? layer->layer : "");
		table_format(table, TONE_PLAIN, "%" PRIu64, member->round);
		table_cell(table, tone, hash);
		table_cell(table, tone, i > 0 ? "" : word);
		table_cell(table, tone, members);
	}
}

void render_hashes(FILE *out, const Edit__Control__Hashes *hashes, bool colour)
{
	static const char *const titles[] = {"LAYER", "ROUND", "HASH", "", "MEMBERS"};
	struct table *table = table_new("lrlll", titles);
	size_t differing = 0;
	for (size_t i = 0; i < hashes->n_layers; i++) {
		add_hashes(table, hashes->layers[i]);
		differing += differs(hashes->layers[i]);
	}
	table_print(table, out, colour);
	table_free(table);
	char text[128];
	if (hashes->equal && hashes->round == 0)
		snprintf(text, sizeof(text), "before the end of the first round: no hashes to compare yet");
	else if (hashes->equal)
		snprintf(text, sizeof(text), "round %" PRIu64 ": all members hold the same bits", hashes->round);
	else if (differing == 0)
		snprintf(text, sizeof(text), "round %" PRIu64 ": not all members have told their hashes yet", hashes->round);
	else
		snprintf(text, sizeof(text), "round %" PRIu64 ": %zu of %zu layers differ", hashes->round, differing,
			 hashes->n_layers);
	table_text(out, hashes->equal ? TONE_GOOD : differing > 0 ? TONE_BAD : TONE_PLAIN, colour, text);
	fputc('\n', out);
}

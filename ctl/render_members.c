/* `editctl peers` and `editctl penalties`: what the members did in the last round, and what was made of it. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ctl/render.h"
#include "ctl/table.h"
#include "ctl/unit.h"

static void loss_cell(struct table *table, double loss)
{
	if (isfinite(loss))
		table_format(table, TONE_PLAIN, "%.4f", loss);
	else
		table_cell(table, TONE_BAD, unit_real(loss).text);
}

static bool state_is_good(const char *state)
{
	return strcmp(state, "self") == 0 || strcmp(state, "live") == 0;
}

/* What a round measures; before the first one there is nothing to show. */
static void add_measures(struct table *table, const Edit__Control__Peer *peer, bool is_measured)
{
	if (!is_measured) {
		for (int i = 0; i < 5; i++)
			table_cell(table, TONE_PLAIN, "-");
		return;
	}
	loss_cell(table, peer->loss);
	table_cell(table, TONE_PLAIN, unit_rate(peer->tokens_per_second).text);
	table_cell(table, TONE_PLAIN, unit_time(peer->lateness_us).text);
	table_cell(table, TONE_PLAIN, unit_time(peer->lateness_mean_us).text);
	table_cell(table, TONE_PLAIN, unit_time(peer->exposed_us).text);
}

static void add_peer(struct table *table, const Edit__Control__Peer *peer, bool is_measured)
{
	table_cell(table, TONE_PLAIN, peer->name);
	table_cell(table, state_is_good(peer->state) ? TONE_GOOD : TONE_BAD, peer->state);
	table_cell(table, TONE_PLAIN, peer->address);
	table_format(table, TONE_PLAIN, "%" PRIu64, peer->steps);
	table_cell(table, TONE_PLAIN, unit_count(peer->tokens).text);
	add_measures(table, peer, is_measured);
	table_format(table, peer->left_out > 0 ? TONE_BAD : TONE_PLAIN, "%" PRIu32, peer->left_out);
	table_cell(table, TONE_PLAIN, peer->neighbour ? unit_time(peer->silent_us).text : "-");
}

static void tell_refusals(FILE *out, Edit__Control__Peer *const *peers, size_t count, bool colour)
{
	for (size_t i = 0; i < count; i++) {
		if (peers[i]->refusal[0] == '\0')
			continue;
		table_text(out, TONE_BAD, colour, peers[i]->name);
		table_text(out, TONE_BAD, colour, ": ");
		table_text(out, TONE_BAD, colour, peers[i]->refusal);
		fputc('\n', out);
	}
}

static void tell_mates(FILE *out, const Edit__Control__Peers *peers, bool colour)
{
	static const char *const titles[] = {"MATE", "STATE", "ADDRESS", "SILENT"};
	struct table *table = table_new("lllr", titles);
	for (size_t i = 0; i < peers->n_mates; i++) {
		const Edit__Control__Peer *mate = peers->mates[i];
		table_cell(table, TONE_PLAIN, mate->name);
		table_cell(table, state_is_good(mate->state) ? TONE_GOOD : TONE_BAD, mate->state);
		table_cell(table, TONE_PLAIN, mate->address);
		table_cell(table, TONE_PLAIN, mate->neighbour ? unit_time(mate->silent_us).text : "-");
	}
	fputs("\nthe other nodes of this replica\n", out);
	table_print(table, out, colour);
	table_free(table);
	tell_refusals(out, peers->mates, peers->n_mates, colour);
}

void render_peers(FILE *out, const Edit__Control__Peers *peers, bool colour)
{
	static const char *const titles[] = {"PEER", "STATE", "ADDRESS", "STEPS", "TOKENS", "LOSS",
					     "TOKENS/S", "LATE", "LATE, MEAN", "EXPOSED", "LEFT OUT", "SILENT"};
	struct table *table = table_new("lllrrrrrrrrr", titles);
	for (size_t i = 0; i < peers->n_peers; i++)
		add_peer(table, peers->peers[i], peers->round > 0);
	if (peers->round > 0)
		fprintf(out, "after round %" PRIu64 "\n", peers->round);
	else
		fputs("before the end of the first round\n", out);
	table_print(table, out, colour);
	table_free(table);
	tell_refusals(out, peers->peers, peers->n_peers, colour);
	if (peers->n_mates > 0)
		tell_mates(out, peers, colour);
}

/* Everything but "accepted" has weight 0. "absent" before the first round is not a judgement. */
static bool is_left_out(const Edit__Control__Penalty *penalty)
{
	return penalty->round > 0 && strcmp(penalty->verdict, "accepted") != 0;
}

static const char *layer_name(const Edit__Control__Penalties *penalties, const Edit__Control__Penalty *penalty)
{
	return penalty->layer_index < penalties->n_layer_names ? penalties->layer_names[penalty->layer_index] : "?";
}

/* One line that tells all is well, or is not, before the table is read. */
static void summarise(FILE *out, const Edit__Control__Penalties *penalties, bool colour)
{
	size_t left_out = 0, all = 0;
	char text[128];
	for (size_t i = 0; i < penalties->n_peers; i++) {
		for (size_t l = 0; l < penalties->peers[i]->n_layers; l++) {
			all += penalties->peers[i]->layers[l]->round > 0;
			left_out += is_left_out(penalties->peers[i]->layers[l]);
		}
	}
	if (all == 0)
		snprintf(text, sizeof(text), "before the first round: nobody has been judged");
	else
		snprintf(text, sizeof(text), "after round %" PRIu64 ": %zu of %zu left out", penalties->round, left_out, all);
	table_text(out, left_out > 0 ? TONE_BAD : TONE_PLAIN, colour, text);
	fputc('\n', out);
}

static void add_penalty(struct table *table, const Edit__Control__Penalties *penalties,
			const Edit__Control__PenaltyPeer *peer, size_t index)
{
	const Edit__Control__Penalty *penalty = peer->layers[index];
	bool left_out = is_left_out(penalty);
	enum table_tone tone = left_out ? TONE_BAD : TONE_PLAIN;
	bool is_first = index == 0;
	table_cell(table, tone, left_out ? ">" : "");
	table_cell(table, TONE_TITLE, is_first ? peer->name : "");
	table_cell(table, tone, layer_name(penalties, penalty));
	if (penalty->round > 0) {
		table_cell(table, tone, unit_real(penalty->norm).text);
		table_cell(table, tone, unit_real(penalty->mean).text);
		table_cell(table, tone, unit_real(penalty->sd).text);
		table_format(table, tone, "%.2f", penalty->z);
		table_format(table, tone, "%.4f", penalty->weight);
		table_cell(table, tone, penalty->verdict);
	} else {
		for (int i = 0; i < 6; i++)
			table_cell(table, TONE_PLAIN, "-");
	}
	if (is_first && penalty->round > 0) {
		table_format(table, TONE_PLAIN, "%" PRIu64, peer->steps);
		loss_cell(table, peer->loss);
		table_cell(table, TONE_PLAIN, unit_time(peer->lateness_us).text);
		table_cell(table, TONE_PLAIN, unit_time(peer->lateness_mean_us).text);
	} else {
		for (int i = 0; i < 4; i++)
			table_cell(table, TONE_PLAIN, is_first ? "-" : "");
	}
}

void render_penalties(FILE *out, const Edit__Control__Penalties *penalties, bool colour)
{
	static const char *const titles[] = {"", "PEER", "LAYER", "NORM", "MEAN", "SD", "Z",
					     "WEIGHT", "VERDICT", "STEPS", "LOSS", "LATE", "LATE, MEAN"};
	struct table *table = table_new("lllrrrrrlrrrr", titles);
	for (size_t i = 0; i < penalties->n_peers; i++)
		for (size_t l = 0; l < penalties->peers[i]->n_layers; l++)
			add_penalty(table, penalties, penalties->peers[i], l);
	summarise(out, penalties, colour);
	table_print(table, out, colour);
	table_free(table);
}

/* The facts of a run: what must be equal on all members, compared at hello, first difference by name. Owns nothing. */

#include "daemon/facts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* for a hash state of known size */
#include <xxhash.h>

#include "proto/codec.h"

enum { FACT_ROOM = 2 * (FACT_TEXT_MAX + 1), FRAME_SLACK = 1024, FACT_OVERHEAD = 16 };

struct facts_maker {
	struct fact *facts;
	char *text; /* next free byte; each fact has FACT_ROOM */
	size_t count;
};

__attribute__((format(printf, 3, 4))) static void add(struct facts_maker *maker, const char *key, const char *format,
						      ...)
{
	char *value = maker->text + FACT_TEXT_MAX + 1;
	snprintf(maker->text, FACT_TEXT_MAX + 1, "%s", key);
	va_list list;
	va_start(list, format);
	vsnprintf(value, FACT_TEXT_MAX + 1, format, list);
	va_end(list);
	maker->facts[maker->count++] = (struct fact){maker->text, value};
	maker->text += FACT_ROOM;
}

/* Names and shapes of the tensors, as one number. */
static uint64_t tensors_hash(const struct description *description)
{
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	for (size_t i = 0; i < description->tensor_count; i++) {
		const struct description_tensor *tensor = &description->tensors[i];
		uint64_t rank = tensor->rank;
		XXH3_64bits_update(&hash, tensor->name, strlen(tensor->name) + 1);
		XXH3_64bits_update(&hash, &rank, sizeof rank);
		XXH3_64bits_update(&hash, tensor->dims, tensor->rank * sizeof tensor->dims[0]);
	}
	return XXH3_64bits_digest(&hash);
}

/* Nodes of one replica hold different pieces of the anchor, so in a mesh its hash is not the same for all neighbours. */
static bool has_anchor(const struct config *config)
{
	return config->shards == 1;
}

/* What is the same in all views. */
static void add_lasting(struct facts_maker *maker, const struct description *description, const struct config *config)
{
	char key[64];
	for (size_t i = 0; i < description->fact_count; i++)
		add(maker, description->facts[i].key, "%s", description->facts[i].value);
	add(maker, "node.run", "%s", config_text(config, NODE_RUN));
	add(maker, setting_at(MESH_SHARDS)->name, "%" PRIu32, config->shards);
	add(maker, "layer count", "%zu", description->layer_count);
	for (size_t i = 0; i < description->layer_count; i++) {
		snprintf(key, sizeof key, "layer %zu", i);
		add(maker, key, "%s %" PRIu64, description->layers[i].name, description->layers[i].size);
	}
	add(maker, "tensors", "%016" PRIx64, tensors_hash(description));
}

static void add_first(struct facts_maker *maker, const struct config *config, const struct state *state)
{
	char key[64], value[SETTING_TEXT_MAX + 1];
	for (size_t i = 0; i < RING_SETTING_COUNT; i++)
		add(maker, setting_at(i)->name, "%s", setting_format(i, state->run->settings.value[i], value));
	add(maker, "member count", "%" PRIu32, config->member_count);
	add(maker, setting_at(RING_FANOUT)->name, "%s", config_text(config, RING_FANOUT));
	for (uint32_t i = 0; i < config->member_count; i++) {
		snprintf(key, sizeof key, "member %" PRIu32, i);
		add(maker, key, "%s", config->names[i]);
	}
	add(maker, "completed rounds", "%" PRIu64, state->run->round);
	if (has_anchor(config))
		add(maker, "anchor", "%016" PRIx64, state_anchor_hash(state));
	else
		add(maker, setting_at(MESH_PREFETCH)->name, "%s", config_text(config, MESH_PREFETCH));
}

static uint32_t hash_of(const struct fact *fact)
{
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	XXH3_64bits_update(&hash, fact->key, strlen(fact->key) + 1);
	XXH3_64bits_update(&hash, fact->value, strlen(fact->value) + 1);
	return (uint32_t)XXH3_64bits_digest(&hash);
}

static uint64_t fingerprint_of(const struct fact *facts, size_t count)
{
	XXH3_state_t hash;
	XXH3_64bits_reset(&hash);
	for (size_t i = 0; i < count; i++) {
		XXH3_64bits_update(&hash, facts[i].key, strlen(facts[i].key) + 1);
		XXH3_64bits_update(&hash, facts[i].value, strlen(facts[i].value) + 1);
	}
	uint64_t digest = XXH3_64bits_digest(&hash);
	return digest == 0 ? 1 : digest;
}

int facts_make(const struct description *description, const struct config *config, const struct state *state,
	       struct facts *ret_facts, struct line *why)
{
	size_t count =
		description->fact_count + RING_SETTING_COUNT + config->member_count + description->layer_count + 8;
	if (count > FACT_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "%zu facts to share with the other members, expected at most %d", count,
				 FACT_COUNT_MAX);
	struct facts facts = {.list = calloc(count, sizeof *facts.list), .text = malloc(count * FACT_ROOM), .count = count,
			      .hashes = calloc(count, sizeof *facts.hashes)};
	struct facts_maker maker = {.facts = facts.list, .text = facts.text};
	if (!facts.list || !facts.text || !facts.hashes) {
		facts_free(&facts);
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	}
	add_lasting(&maker, description, config);
	facts.lasting_count = maker.count;
	add_first(&maker, config, state);
	CHECK(maker.count == count);
	facts.fingerprint = fingerprint_of(facts.list, facts.lasting_count);
	for (size_t i = 0; i < facts.lasting_count; i++)
		facts.hashes[i] = hash_of(&facts.list[i]);

	size_t bytes = FRAME_SLACK;
	for (size_t i = 0; i < count; i++)
		bytes += strlen(facts.list[i].key) + strlen(facts.list[i].value) + FACT_OVERHEAD;
	if (bytes > CODEC_FRAME_MAX) {
		facts_free(&facts);
		return line_fail(why, EDIT_ERROR_REFUSED,
				 "facts to share with the other members take %zu bytes, expected at most %d", bytes,
				 CODEC_FRAME_MAX);
	}
	*ret_facts = facts;
	return 0;
}

bool facts_tell_difference(const struct facts *facts, const uint32_t *hashes, size_t count, char *text, size_t size)
{
	size_t i = 0;
	while (i < facts->lasting_count && i < count && facts->hashes[i] == hashes[i])
		i++;
	if (i == facts->lasting_count)
		return false;
	snprintf(text, size, "%s: %s", facts->list[i].key, facts->list[i].value);
	return true;
}

void facts_free(struct facts *facts)
{
	free(facts->list);
	free(facts->text);
	free(facts->hashes);
	*facts = (struct facts){0};
}

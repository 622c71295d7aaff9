/* Reads lists of members and puts them in the order of the mesh. Owns the lists' texts. */

#include "daemon/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/address.h"

static const char *const sections[] = {
	[SECTION_MEMBERS] = "members", [SECTION_PLACES] = "places", [SECTION_SHARD_ADDRESSES] = "shard_addresses"};

enum member_section member_section_find(const char *section)
{
	enum member_section found = 0;
	while (found < MEMBER_SECTION_COUNT && strcmp(sections[found], section) != 0)
		found++;
	return found;
}

void members_clear(struct member_lists *lists, enum member_section section)
{
	struct member_list *list = &lists->lists[section];
	for (uint32_t i = 0; i < list->count; i++) {
		free(list->pairs[i].name);
		free(list->pairs[i].value);
	}
	list->count = 0;
}

/* ---- One line of a section ---- */

/* A number of up to four digits at *text, which is moved behind it. */
static bool read_index(const char **text, uint32_t *ret_index)
{
	size_t digits = strspn(*text, "0123456789");
	if (digits == 0 || digits > 4)
		return false;
	*ret_index = (uint32_t)strtoul(*text, NULL, 10);
	*text += digits;
	return true;
}

static bool read_place(const char *text, uint32_t *ret_row, uint32_t *ret_column)
{
	return read_index(&text, ret_row) && *text++ == '.' && read_index(&text, ret_column) && *text == 0;
}

/* Checks value and writes it as it is kept. */
static int read_value(enum member_section section, const char *value, char text[ADDRESS_TEXT_MAX + 1], struct line *why)
{
	uint32_t row, column;
	struct address address;
	if (section == SECTION_PLACES) {
		if (!read_place(value, &row, &column))
			return line_fail(why, EDIT_ERROR_INVALID, "\"%s\" is not a place, expected ROW.COLUMN as in 0.1", value);
		snprintf(text, ADDRESS_TEXT_MAX + 1, "%" PRIu32 ".%" PRIu32, row, column);
		return 0;
	}
	int error = address_parse(value, &address, why);
	if (error)
		return error;
	if (address.kind != ADDRESS_TCP || strcmp(address.host, "*") == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "\"%s\" is not tcp://HOST:PORT", value);
	snprintf(text, ADDRESS_TEXT_MAX + 1, "%s", value);
	return 0;
}

static int check_new(const struct member_list *list, enum member_section section, const char *name, const char *value,
		     struct line *why)
{
	for (uint32_t i = 0; i < list->count; i++) {
		const struct member_pair *pair = &list->pairs[i];
		bool is_name = strcmp(pair->name, name) == 0;
		if (!is_name && strcmp(pair->value, value) != 0)
			continue;
		if (!is_name && section == SECTION_PLACES)
			return line_fail(why, EDIT_ERROR_INVALID, "places.%s: %s is the place of %s, expected one of its own", name,
					 value, pair->name);
		return line_fail(why, EDIT_ERROR_INVALID, "%s.%s: %s given twice", sections[section], name,
				 is_name ? "name" : value);
	}
	if (list->count == MEMBER_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "%s: more than 1024", sections[section]);
	return 0;
}

int members_take(struct member_lists *lists, enum member_section section, const char *name, const char *value,
		 struct line *why)
{
	struct member_list *list = &lists->lists[section];
	struct line detail = {""};
	char text[ADDRESS_TEXT_MAX + 1];
	if (!text_is_name(name))
		return line_fail(why, EDIT_ERROR_INVALID, "%s.%s: not a name, expected 1 to 63 of [a-z0-9-]", sections[section],
				 name);
	int error = read_value(section, value, text, &detail);
	if (error)
		return line_fail(why, error, "%s.%s: %.400s", sections[section], name, detail.text);
	error = check_new(list, section, name, text, why);
	if (error)
		return error;
	struct member_pair pair = {strdup(name), strdup(text)};
	if (!pair.name || !pair.value) {
		free(pair.name);
		free(pair.value);
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	}
	list->pairs[list->count++] = pair;
	return 0;
}

/* ---- The whole ---- */

/* The pair of a name; NULL: not in the list. */
static struct member_pair *find(struct member_list *list, const char *name)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (strcmp(list->pairs[i].name, name) == 0)
			return &list->pairs[i];
	return NULL;
}

static int check_names(struct member_lists *lists, enum member_section section, struct line *why)
{
	const struct member_list *list = &lists->lists[section];
	for (uint32_t i = 0; i < list->count; i++)
		if (!find(&lists->lists[SECTION_MEMBERS], list->pairs[i].name))
			return line_fail(why, EDIT_ERROR_INVALID, "%s.%s: not in [members], expected the name of a member",
					 sections[section], list->pairs[i].name);
	return 0;
}

/* Global rank of each of [members], in their order, into ranks[]. */
static int find_ranks(struct member_lists *lists, uint32_t shards, uint32_t replicas, uint32_t *ranks, struct line *why)
{
	struct member_list *members = &lists->lists[SECTION_MEMBERS], *places = &lists->lists[SECTION_PLACES];
	for (uint32_t i = 0; i < members->count; i++) {
		const char *name = members->pairs[i].name;
		struct member_pair *place = find(places, name);
		uint32_t row = i / shards, column = i % shards;
		if (places->count > 0 && !place)
			return line_fail(why, EDIT_ERROR_INVALID, "[places]: no place for %s, expected ROW.COLUMN for every member",
					 name);
		if (place)
			CHECK(read_place(place->value, &row, &column));
		if (row >= replicas || column >= shards)
			return line_fail(why, EDIT_ERROR_RANGE,
					 "places.%s: %s is outside, expected ROW.COLUMN from 0.0 to %" PRIu32 ".%" PRIu32
					 " (%" PRIu32 " replicas of %" PRIu32 " nodes)",
					 name, place->value, replicas - 1, shards - 1, replicas, shards);
		ranks[i] = row * shards + column;
	}
	return 0;
}

/* An address leads to one member only, whichever list it is in. */
static int check_addresses(struct member_lists *lists, struct line *why)
{
	const struct member_list *members = &lists->lists[SECTION_MEMBERS];
	const struct member_list *shard_addresses = &lists->lists[SECTION_SHARD_ADDRESSES];
	for (uint32_t i = 0; i < shard_addresses->count; i++)
		for (uint32_t j = 0; j < members->count; j++) {
			const struct member_pair *own = &shard_addresses->pairs[i], *other = &members->pairs[j];
			if (strcmp(own->value, other->value) == 0 && strcmp(own->name, other->name) != 0)
				return line_fail(why, EDIT_ERROR_INVALID,
						 "shard_addresses.%s: %s is the address of %s in [members], expected one of its own",
						 own->name, own->value, other->name);
		}
	return 0;
}

static int check_lists(struct member_lists *lists, const struct config *config, uint32_t *ret_ranks, struct line *why)
{
	if (config->member_count % config->shards != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "mesh.shards: %" PRIu32 " does not divide %" PRIu32 " member%s",
				 config->shards, config->member_count, config->member_count == 1 ? "" : "s");
	int error = check_names(lists, SECTION_PLACES, why);
	if (!error)
		error = check_names(lists, SECTION_SHARD_ADDRESSES, why);
	if (!error)
		error = find_ranks(lists, config->shards, config->replicas, ret_ranks, why);
	if (!error)
		error = check_addresses(lists, why);
	if (!error && config->shards == 1 && lists->lists[SECTION_SHARD_ADDRESSES].count > 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "[shard_addresses] has no meaning where mesh.shards = 1: a replica is one node");
	return error;
}

static char *take_text(char **text)
{
	char *taken = *text;
	*text = NULL;
	return taken;
}

static int move_all(struct member_lists *lists, struct config *config, const uint32_t *ranks, struct line *why)
{
	config->names = calloc(config->member_count, sizeof *config->names);
	config->addresses = calloc(config->member_count, sizeof *config->addresses);
	config->shard_addresses = calloc(config->member_count, sizeof *config->shard_addresses);
	if (!config->names || !config->addresses || !config->shard_addresses)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	for (uint32_t i = 0; i < config->member_count; i++) {
		struct member_pair *pair = &lists->lists[SECTION_MEMBERS].pairs[i];
		struct member_pair *shard = find(&lists->lists[SECTION_SHARD_ADDRESSES], pair->name);
		if (shard && strcmp(shard->value, pair->value) != 0)
			config->shard_addresses[ranks[i]] = take_text(&shard->value);
		config->names[ranks[i]] = take_text(&pair->name);
		config->addresses[ranks[i]] = take_text(&pair->value);
	}
	return 0;
}

int members_arrange(struct member_lists *lists, struct config *config, struct line *why)
{
	uint32_t ranks[MEMBER_COUNT_MAX];
	config->member_count = lists->lists[SECTION_MEMBERS].count;
	config->shards = (uint32_t)config_number(config, MESH_SHARDS);
	config->replicas = config->member_count / config->shards;
	CHECK(config->member_count > 0);
	int error = check_lists(lists, config, ranks, why);
	if (!error)
		error = move_all(lists, config, ranks, why);
	for (enum member_section i = 0; i < MEMBER_SECTION_COUNT; i++)
		members_clear(lists, i);
	return error;
}

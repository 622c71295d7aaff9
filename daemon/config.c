/* Reads config file and drop-ins, and checks what only the whole can show. Owns the member lists. */

#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/members.h"
#include "proto/address.h"
#include "proto/inifile.h"
#include "proto/keyfile.h"

enum { SOCKET_NAME_MAX = 19 /* bytes of "/control-read.sock" and the like behind runtime_dir */ };

/* Reading one file. */
struct reader {
	struct config *config;
	bool is_set[SETTING_END];       /* in this file */
	bool *is_given;                 /* [SETTING_END] in any file */
	struct member_lists *lists;
	bool is_begun[MEMBER_SECTION_COUNT]; /* this file has begun its list */
};

static int take_member(struct reader *reader, enum member_section section, const char *name, const char *value,
		       struct line *why)
{
	if (!reader->is_begun[section])
		members_clear(reader->lists, section);
	reader->is_begun[section] = true;
	return members_take(reader->lists, section, name, value, why);
}

static int take_setting(struct reader *reader, const char *section, const char *key, const char *value, struct line *why)
{
	struct line name;
	size_t index;
	struct setting_value parsed;
	line_fail(&name, EDIT_ERROR_INVALID, "%s%s%s", section, section[0] ? "." : "", key);
	int error = setting_find(name.text, &index, why);
	if (!error)
		error = setting_parse(index, value, &parsed, why);
	if (error)
		return error;
	if (reader->is_set[index])
		return line_fail(why, EDIT_ERROR_INVALID, "%.200s: given twice in this file", name.text);
	reader->is_set[index] = reader->is_given[index] = true;
	reader->config->values[index] = parsed;
	return 0;
}

/* What the method presets holds unless a file says otherwise, wherever it says so. */
static void take_method(struct config *config, const bool *is_given)
{
	for (enum ring_setting i = 0; i < RING_SETTING_COUNT; i++) {
		struct setting_value *value = &config->values[i];
		if (!is_given[i] && method_presets((enum method)config->values[METHOD].number, i, &value->number))
			setting_format(i, value->number, value->text);
	}
}

static bool section_is_known(const char *section)
{
	size_t length = strlen(section);
	for (size_t i = 0; i < SETTING_END; i++)
		if (strncmp(setting_at(i)->name, section, length) == 0 && setting_at(i)->name[length] == '.')
			return true;
	return false;
}

static int take(void *arg, const char *section, const char *key, const char *value, int line_number, struct line *why)
{
	struct reader *reader = arg;
	(void)line_number;
	enum member_section list = member_section_find(section);
	if (list != MEMBER_SECTION_COUNT)
		return take_member(reader, list, key, value, why);
	if (section[0] == 0 && strcmp(key, setting_at(METHOD)->name) != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%.200s: stands outside a [section]", key);
	if (section[0] != 0 && !section_is_known(section))
		return line_fail(why, EDIT_ERROR_UNKNOWN,
				 "[%s]: unknown section, expected node, control, mesh, sync, outer, penalty, wire, checkpoint, members, "
				 "places or shard_addresses",
				 section);
	return take_setting(reader, section, key, value, why);
}

/* What all files together have given. */
struct reading {
	bool is_given[SETTING_END];
	struct member_lists lists;
};

static int read_file(struct config *config, struct reading *reading, const char *path, struct line *why)
{
	struct reader reader = {.config = config, .is_given = reading->is_given, .lists = &reading->lists};
	return inifile_read(path, take, &reader, why);
}

static int is_conf(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct config *config, struct reading *reading, const char *file, struct line *why)
{
	char path[4096];
	struct dirent **entries = NULL;
	snprintf(path, sizeof path, "%s.d", file);
	int count = scandir(path, &entries, is_conf, by_name);
	if (count < 0)
		return errno == ENOENT
			       ? 0
			       : line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, strerror(errno));
	int error = 0;
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof path, "%s.d/%s", file, entries[i]->d_name);
		if (!error)
			error = read_file(config, reading, path, why);
		free(entries[i]);
	}
	free(entries);
	return error;
}

/* Whether frames are encrypted. A key that is there but cannot be looked at is no reason to do without. */
static int find_curve(struct config *config, const char *file, struct line *why)
{
	enum { AUTO, YES };
	struct stat found;
	char path[SETTING_TEXT_MAX + 16];
	const int curve = (int)config_number(config, NODE_CURVE);
	config->is_encrypted = curve == YES;
	if (curve != AUTO)
		return 0;
	snprintf(path, sizeof path, "%s/" KEYFILE_SECRET, config_text(config, NODE_KEYS));
	config->is_encrypted = lstat(path, &found) == 0;
	if (config->is_encrypted || errno == ENOENT || errno == ENOTDIR)
		return 0;
	return line_fail(why, EDIT_ERROR_INVALID, "%s: node.keys: %s cannot be looked at (%s): not the user of editd or root? Without keys, say node.curve = no", file,
			 path, strerror(errno));
}

/* An address that frames go along. Plain TCP is for this host only, unless the config says otherwise by name. */
static int check_address(const struct config *config, const char *file, const char *key, const char *text, struct line *why)
{
	struct address address;
	struct line detail = {""};
	int error = address_parse(text, &address, &detail);
	if (error)
		return line_fail(why, error, "%s: %s: %.300s", file, key, detail.text);
	if (address.kind != ADDRESS_TCP)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: %s: \"%s\" is not tcp://HOST:PORT", file, key, text);
	if (!config->is_encrypted && !address_is_loopback(&address) && strcmp(config_text(config, NODE_PLAIN), "anywhere") != 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: %s: %s leaves this host unencrypted; make keys (`editctl keygen`), or set node.plain = anywhere to "
				 "allow it", file, key, text);
	return 0;
}

static int check_folders(struct config *config, const char *file, struct line *why)
{
	const char *folder = config_text(config, NODE_RUNTIME_DIR);
	size_t room = ADDRESS_PATH_MAX - SOCKET_NAME_MAX;
	if (strlen(folder) > room)
		return line_fail(
			why, EDIT_ERROR_RANGE,
			"%s: node.runtime_dir: %zu bytes are too long for the paths of sockets, expected at most %zu",
			file, strlen(folder), room);
	const char *control = config_text(config, NODE_CONTROL);
	if (control[0])
		snprintf(config->control, sizeof config->control, "%s", control);
	else
		snprintf(config->control, sizeof config->control, "ipc://%s/control.sock", folder);
	struct address address;
	struct line detail = {""};
	int error = address_parse(config->control, &address, &detail);
	if (error)
		return line_fail(why, error, "%s: node.control: %.300s", file, detail.text);
	if (address.kind != ADDRESS_IPC)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: node.control: \"%s\" is not ipc://PATH", file,
				 config->control);
	return 0;
}

/* Where this member stands, and who stands with it in its column and its row. */
static int find_place(struct config *config, const char *file, struct line *why)
{
	const char *name = config_text(config, NODE_NAME);
	for (config->rank = 0; config->rank < config->member_count; config->rank++)
		if (strcmp(config->names[config->rank], name) == 0)
			break;
	if (config->rank == config->member_count)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: node.name: \"%s\" is not in [members]", file, name);
	config->fanout = (uint32_t)config_number(config, RING_FANOUT);
	if (config->fanout == 0)
		config->fanout = config->replicas;
	else if (config->fanout == 1 || config->fanout == config->replicas || config->replicas % config->fanout != 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: ring.fanout: %" PRIu32 ", expected a divisor of the ring's %" PRIu32
				 " members between 1 and that number, or 0",
				 file, config->fanout, config->replicas);
	config->view = VIEW_FIRST;
	config->row = config->rank / config->shards;
	config->column = config->rank % config->shards;
	config->peers = calloc(config->replicas, sizeof *config->peers);
	config->mates = calloc(config->shards, sizeof *config->mates);
	if (!config->peers || !config->mates)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	for (uint32_t i = 0; i < config->replicas; i++)
		config->peers[i] = config->names[i * config->shards + config->column];
	for (uint32_t i = 0; i < config->shards; i++)
		config->mates[i] = config->names[config->row * config->shards + i];
	return 0;
}

static int check_members(struct config *config, struct member_lists *lists, const char *file, struct line *why)
{
	struct line detail = {""};
	if (config_text(config, NODE_NAME)[0] == 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: node.name: not given, expected this member's name in [members]", file);
	if (lists->lists[SECTION_MEMBERS].count == 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: [members]: empty, expected NAME = tcp://HOST:PORT per member", file);
	int error = members_arrange(lists, config, &detail);
	return error ? line_fail(why, error, "%s: %.600s", file, detail.text) : find_place(config, file, why);
}

static int check_addresses(struct config *config, const char *file, struct line *why)
{
	const char *listen = config_text(config, NODE_LISTEN), *shard_listen = config_text(config, NODE_SHARD_LISTEN);
	const char *shard_address = config->shard_addresses[config->rank];
	snprintf(config->address, sizeof config->address, "%s", config->addresses[config->rank]);
	config->listen = listen[0] ? listen : config->address;
	if (shard_listen[0] && !shard_address)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: node.shard_listen: nobody connects there, expected an address of %s in [shard_addresses]", file,
				 config->names[config->rank]);
	config->shard_listen = shard_listen[0] ? shard_listen : shard_address;
	int error = check_address(config, file, "node.listen", config->listen, why);
	if (!error && config->shard_listen)
		error = check_address(config, file, "node.shard_listen", config->shard_listen, why);
	for (uint32_t i = 0; i < config->member_count && !error; i++) {
		struct line key;
		line_fail(&key, EDIT_ERROR_INVALID, "members.%s", config->names[i]);
		error = check_address(config, file, key.text, config->addresses[i], why);
		line_fail(&key, EDIT_ERROR_INVALID, "shard_addresses.%s", config->names[i]);
		if (!error && config->shard_addresses[i])
			error = check_address(config, file, key.text, config->shard_addresses[i], why);
	}
	const char *remote = config_text(config, CONTROL_LISTEN);
	struct address address;
	if (!error && remote[0] && address_parse(remote, &address, NULL) == 0 && address.kind != ADDRESS_TCP)
		error = line_fail(why, EDIT_ERROR_INVALID, "%s: control.listen: \"%s\" is not tcp://HOST:PORT", file, remote);
	if (!error && remote[0] && (strcmp(remote, config->listen) == 0 ||
				    (config->shard_listen && strcmp(remote, config->shard_listen) == 0)))
		error = line_fail(why, EDIT_ERROR_INVALID, "%s: control.listen: %s is where the ring listens, expected another port", file,
				  remote);
	/* One socket takes in both. */
	if (config->shard_listen && strcmp(config->listen, config->shard_listen) == 0)
		config->shard_listen = NULL;
	return error;
}

/* What only the whole can show. */
static int check_whole(struct config *config, struct member_lists *lists, const char *file, struct line *why)
{
	int error = check_members(config, lists, file, why);
	if (!error)
		error = find_curve(config, file, why);
	if (!error)
		error = check_addresses(config, file, why);
	if (error)
		return error;
	if (config_number(config, NODE_SILENCE_MS) < 2 * config_number(config, NODE_HEARTBEAT_MS))
		return line_fail(why, EDIT_ERROR_RANGE,
				 "%s: node.silence_ms: %s is too short, expected at least twice node.heartbeat_ms (%s)",
				 file, config_text(config, NODE_SILENCE_MS), config_text(config, NODE_HEARTBEAT_MS));
	struct ring_settings settings = config_ring(config);
	/* Its default is 0: one that is not was given. */
	const char *conflict = setting_conflict(&settings, STRAGGLER_GRACE);
	if (conflict != NULL)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: %s", file, conflict);
	const char *group = config_text(config, CONTROL_READ_GROUP);
	if (group[0] && !getgrnam(group))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: control.read_group: \"%s\" is no group of this host", file, group);
	return check_folders(config, file, why);
}

static int read_all(struct config *config, struct reading *reading, const char *file, struct line *why)
{
	int error = read_file(config, reading, file, why);
	if (!error)
		error = read_drop_ins(config, reading, file, why);
	if (error)
		return error;
	take_method(config, reading->is_given);
	return check_whole(config, &reading->lists, file, why);
}

int config_open(const char *file, struct config *ret_config, struct line *why)
{
	/* The config is wide, and listen may point into it: filled in place, and emptied again on failure. */
	struct config *config = ret_config;
	struct config before = *ret_config;
	struct reading *reading = calloc(1, sizeof *reading);
	if (!reading)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	memset(config, 0, sizeof *config);
	for (size_t i = 0; i < SETTING_END; i++)
		config->values[i] = setting_standard(i);
	int error = read_all(config, reading, file, why);
	for (enum member_section i = 0; i < MEMBER_SECTION_COUNT; i++)
		members_clear(&reading->lists, i);
	free(reading);
	if (error) {
		config_close(config);
		*ret_config = before;
	}
	return error;
}

static void free_texts(char **texts, uint32_t count)
{
	for (uint32_t i = 0; i < count && texts; i++)
		free(texts[i]);
	free(texts);
}

static void free_lists(struct config_lists *lists)
{
	free_texts(lists->names, lists->count);
	free_texts(lists->addresses, lists->count);
	free_texts(lists->shard_addresses, lists->count);
	free(lists->peers);
	*lists = (struct config_lists){0};
}

static struct config_lists lists_of(const struct config *config)
{
	return (struct config_lists){config->member_count, config->names, config->addresses, config->shard_addresses, config->peers};
}

void config_close(struct config *config)
{
	struct config_lists lists = lists_of(config);
	free_lists(&lists);
	free_lists(&config->former);
	free(config->mates);
	config->names = config->addresses = config->shard_addresses = config->peers = config->mates = NULL;
}

/* ---- Views ---- */

void config_roster(const struct config *config, struct seat *seats, struct roster *ret_roster)
{
	*ret_roster = (struct roster){.number = VIEW_FIRST, .count = config->member_count, .fanout = config->fanout, .seats = seats};
	for (uint32_t rank = 0; rank < config->member_count; rank++)
		CHECK(seat_make(config->names[rank], config->addresses[rank], 0, 0, &seats[rank]) == 0);
}

/* Copies of a roster's texts. False: no memory. */
static bool copy_lists(const struct roster *roster, struct config_lists *ret_lists)
{
	struct config_lists *lists = ret_lists;
	const size_t count = roster->count;
	*lists = (struct config_lists){roster->count, calloc(count, sizeof *lists->names), calloc(count, sizeof *lists->addresses),
				       calloc(count, sizeof *lists->shard_addresses), calloc(count, sizeof *lists->peers)};
	bool is_good = lists->names && lists->addresses && lists->shard_addresses && lists->peers;
	for (size_t i = 0; i < count && is_good; i++) {
		lists->peers[i] = lists->names[i] = strdup(roster->seats[i].name);
		lists->addresses[i] = strdup(roster->seats[i].address);
		is_good = lists->names[i] && lists->addresses[i];
	}
	return is_good;
}

int config_seat(struct config *config, const struct roster *roster, struct line *why)
{
	struct config_lists lists;
	CHECK(config->shards == 1);
	if (!copy_lists(roster, &lists)) {
		free_lists(&lists);
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory for the members of view %" PRIu64, roster->number);
	}
	uint32_t rank = 0;
	while (rank < roster->count && strcmp(lists.names[rank], config_text(config, NODE_NAME)) != 0)
		rank++;
	CHECK(rank < roster->count);
	free_lists(&config->former);
	config->former = lists_of(config);
	config->view = roster->number;
	config->member_count = config->replicas = roster->count;
	config->rank = config->row = rank;
	config->fanout = roster->fanout;
	config->names = lists.names;
	config->addresses = lists.addresses;
	config->shard_addresses = lists.shard_addresses;
	config->peers = lists.peers;
	config->mates[0] = lists.names[rank];
	return 0;
}

/* ---- Looking ---- */

size_t config_neighbours(const struct config *config, uint32_t ret_ranks[ROAD_COUNT])
{
	const struct places places = {.peers = config->replicas, .fanout = config->fanout, .shards = config->shards};
	return places_neighbours(&places, config->rank, ret_ranks);
}

const char *config_address(const struct config *config, uint32_t rank)
{
	CHECK(rank < config->member_count);
	bool is_mate = rank / config->shards == config->row;
	return is_mate && config->shard_addresses[rank] ? config->shard_addresses[rank] : config->addresses[rank];
}

double config_number(const struct config *config, size_t setting)
{
	CHECK(setting < SETTING_END);
	return config->values[setting].number;
}

const char *config_text(const struct config *config, size_t setting)
{
	CHECK(setting < SETTING_END);
	return config->values[setting].text;
}

struct ring_settings config_ring(const struct config *config)
{
	struct ring_settings settings;
	for (size_t i = 0; i < RING_SETTING_COUNT; i++)
		settings.value[i] = config->values[i].number;
	return settings;
}

char *config_runtime_path(const struct config *config, const char *name, char *path, size_t size)
{
	int length = snprintf(path, size, "%s/%s", config_text(config, NODE_RUNTIME_DIR), name);
	CHECK(length > 0);
	CHECK((size_t)length < size);
	return path;
}

/* Reads config file and drop-ins, and checks what only the whole can show. Owns the member list. */

#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layer.h"
#include "proto/address.h"
#include "proto/inifile.h"

enum { SOCKET_NAME_MAX = 16 /* bytes of "/control.sock" and the like behind runtime_dir */ };

/* Reading one file. */
struct reader {
	struct config *config;
	bool is_set[SETTING_END];       /* in this file */
	bool *is_given;                 /* [SETTING_END] in any file */
	bool has_members;               /* this file has begun its list */
};

static void members_clear(struct config *config)
{
	for (uint32_t i = 0; i < config->member_count; i++) {
		free(config->names[i]);
		free(config->addresses[i]);
	}
	config->member_count = 0;
}

static int take_member(struct reader *reader, const char *name, const char *value, struct line *why)
{
	struct config *config = reader->config;
	struct line detail = {""};
	struct address address;
	if (!text_is_name(name))
		return line_fail(why, EDIT_ERROR_INVALID, "members.%s: not a name, expected 1 to 63 of [a-z0-9-]", name);
	int error = address_parse(value, &address, &detail);
	if (!error && (address.kind != ADDRESS_TCP || strcmp(address.host, "*") == 0))
		error = line_fail(&detail, EDIT_ERROR_INVALID, "\"%s\" is not tcp://HOST:PORT", value);
	if (error)
		return line_fail(why, error, "members.%s: %.400s", name, detail.text);

	if (!reader->has_members)
		members_clear(config);
	reader->has_members = true;
	for (uint32_t i = 0; i < config->member_count; i++) {
		bool is_name = strcmp(config->names[i], name) == 0;
		if (is_name || strcmp(config->addresses[i], value) == 0)
			return line_fail(why, EDIT_ERROR_INVALID, "members.%s: %s given twice", name, is_name ? "name" : value);
	}
	if (config->member_count == MEMBER_COUNT_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "members: more than 1024");
	config->names[config->member_count] = strdup(name);
	config->addresses[config->member_count] = strdup(value);
	config->member_count++;
	return 0;
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
	if (strcmp(section, "members") == 0)
		return take_member(reader, key, value, why);
	if (section[0] == 0 && strcmp(key, setting_at(METHOD)->name) != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "%.200s: stands outside a [section]", key);
	if (section[0] != 0 && !section_is_known(section))
		return line_fail(why, EDIT_ERROR_UNKNOWN,
				 "[%s]: unknown section, expected node, sync, outer, penalty, wire, checkpoint or members",
				 section);
	return take_setting(reader, section, key, value, why);
}

static int read_file(struct config *config, bool *is_given, const char *path, struct line *why)
{
	struct reader reader = {.config = config, .is_given = is_given};
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

static int read_drop_ins(struct config *config, bool *is_given, const char *file, struct line *why)
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
			error = read_file(config, is_given, path, why);
		free(entries[i]);
	}
	free(entries);
	return error;
}

/* Plain TCP is for this host only, unless the config says otherwise by name. */
static int check_plain(const struct config *config, const char *file, const char *key, const char *text,
		       struct line *why)
{
	struct address address;
	struct line detail = {""};
	int error = address_parse(text, &address, &detail);
	if (error)
		return line_fail(why, error, "%s: %s: %.300s", file, key, detail.text);
	if (address.kind != ADDRESS_TCP)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: %s: \"%s\" is not tcp://HOST:PORT", file, key, text);
	if (!address_is_loopback(&address) && strcmp(config_text(config, NODE_PLAIN), "anywhere") != 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: %s: %s leaves this host unencrypted; set node.plain = anywhere to allow it", file,
				 key, text);
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

/* What only the whole can show. */
static int check_whole(struct config *config, const char *file, struct line *why)
{
	const char *name = config_text(config, NODE_NAME);
	if (name[0] == 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: node.name: not given, expected this member's name in [members]", file);
	if (config->member_count == 0)
		return line_fail(why, EDIT_ERROR_INVALID,
				 "%s: [members]: empty, expected NAME = tcp://HOST:PORT per member", file);
	for (config->rank = 0; config->rank < config->member_count; config->rank++)
		if (strcmp(config->names[config->rank], name) == 0)
			break;
	if (config->rank == config->member_count)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: node.name: \"%s\" is not in [members]", file, name);

	const char *listen = config_text(config, NODE_LISTEN);
	config->listen = listen[0] ? listen : config->addresses[config->rank];
	int error = check_plain(config, file, "node.listen", config->listen, why);
	for (uint32_t i = 0; i < config->member_count && !error; i++) {
		struct line key;
		line_fail(&key, EDIT_ERROR_INVALID, "members.%s", config->names[i]);
		error = check_plain(config, file, key.text, config->addresses[i], why);
	}
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
	return check_folders(config, file, why);
}

int config_open(const char *file, struct config *ret_config, struct line *why)
{
	/* The config is wide, and listen may point into it: filled in place, and emptied again on failure. */
	struct config *config = ret_config;
	struct config before = *ret_config;
	bool is_given[SETTING_END] = {false};
	memset(config, 0, sizeof *config);
	for (size_t i = 0; i < SETTING_END; i++)
		config->values[i] = setting_standard(i);
	config->names = calloc(MEMBER_COUNT_MAX, sizeof *config->names);
	config->addresses = calloc(MEMBER_COUNT_MAX, sizeof *config->addresses);
	int error = config->names && config->addresses ? 0 : line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	if (!error)
		error = read_file(config, is_given, file, why);
	if (!error)
		error = read_drop_ins(config, is_given, file, why);
	if (!error)
		take_method(config, is_given);
	if (!error)
		error = check_whole(config, file, why);
	if (error) {
		config_close(config);
		*ret_config = before;
	}
	return error;
}

void config_close(struct config *config)
{
	members_clear(config);
	free(config->names);
	free(config->addresses);
	config->names = config->addresses = NULL;
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

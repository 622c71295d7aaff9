/* Reads the folder of keys and checks that it is whole: a ring does not start with half of its keys. */

#include "daemon/keyring.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { KEY_PATH_MAX = SETTING_TEXT_MAX + 2 * TEXT_NAME_MAX };

/* FOLDER/NAME.pub into path. */
static void public_path(const struct config *config, const char *name, char path[KEY_PATH_MAX])
{
	snprintf(path, KEY_PATH_MAX, "%s/%s" KEYFILE_ENDING, config_text(config, NODE_KEYS), name);
}

static int read_own(struct keyring *keyring, const struct config *config, struct line *why)
{
	char path[KEY_PATH_MAX], written[KEY_BYTES];
	const char *name = config_text(config, NODE_NAME);
	snprintf(path, sizeof path, "%s/" KEYFILE_SECRET, config_text(config, NODE_KEYS));
	int error = keyfile_read_secret(path, keyring->secret_key, why);
	if (error == EDIT_ERROR_UNKNOWN)
		return line_fail(why, EDIT_ERROR_INVALID, "%s: no secret key of %s there; `editctl keygen %s --out %s` makes one", path, name,
				 name, config_text(config, NODE_KEYS));
	if (error)
		return error;
	if (zmq_curve_public(keyring->public_key, keyring->secret_key) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: no public key can be made of it (%s)", path, zmq_strerror(errno));
	/* Not needed here, but if it is here, it is what others were given. */
	public_path(config, name, path);
	error = keyfile_read_public(path, false, written, NULL, why);
	if (error == EDIT_ERROR_UNKNOWN)
		return 0;
	if (!error && strcmp(written, keyring->public_key) != 0)
		error = line_fail(why, EDIT_ERROR_INVALID,
				  "%s: not the public key of the secret one beside it; is node.name = %s right, and was this file not copied over?",
				  path, name);
	return error;
}

static bool is_own(const struct config *config, const char *name)
{
	return strcmp(name, config_text(config, NODE_NAME)) == 0;
}

static int is_public(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name), ending = strlen(KEYFILE_ENDING);
	return entry->d_name[0] != '.' && length > ending && strcmp(entry->d_name + length - ending, KEYFILE_ENDING) == 0;
}

/* Name of a file of a public key: what stands before its ending. False: that is no name. */
static bool name_of(const char *file, char name[TEXT_NAME_MAX + 1])
{
	size_t length = strlen(file) - strlen(KEYFILE_ENDING);
	if (length > TEXT_NAME_MAX)
		return false;
	snprintf(name, TEXT_NAME_MAX + 1, "%.*s", (int)length, file);
	return text_is_name(name);
}

static int fail_name(const char *path, struct line *why)
{
	return line_fail(why, EDIT_ERROR_INVALID, "%s: not a name, expected 1 to 63 of [a-z0-9-] and " KEYFILE_ENDING, path);
}

/* Takes FILE of the folder; the own key is there already. */
static int read_member(struct keyring *keyring, const struct config *config, const char *file, struct line *why)
{
	char path[2 * KEY_PATH_MAX];
	struct keyring_member member = {0};
	snprintf(path, sizeof path, "%s/%s", config_text(config, NODE_KEYS), file);
	if (!name_of(file, member.name))
		return fail_name(path, why);
	if (is_own(config, member.name))
		return 0;
	if (keyring->member_count == KEYRING_MEMBERS_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "%s: more than %d keys of members", config_text(config, NODE_KEYS),
				 (int)KEYRING_MEMBERS_MAX);
	int error = keyfile_read_public(path, false, member.key, NULL, why);
	const char *same = error ? NULL : keyring_member(keyring, member.key);
	if (same)
		error = line_fail(why, EDIT_ERROR_INVALID, "%s: the same key as that of %s, expected one of its own", path, same);
	if (!error)
		keyring->members[keyring->member_count++] = member;
	return error;
}

/* The config's members all have a key. */
static int check_list(const struct keyring *keyring, const struct config *config, struct line *why)
{
	char path[KEY_PATH_MAX], more[64] = "";
	const char *first = NULL;
	uint32_t missing = 0;
	for (uint32_t rank = 0; rank < config->member_count; rank++)
		if (!keyring_key(keyring, config->names[rank]) && missing++ == 0)
			first = config->names[rank];
	if (missing == 0)
		return 0;
	public_path(config, first, path);
	if (missing > 1)
		snprintf(more, sizeof more, " (and %u more are missing)", missing - 1);
	return line_fail(why, EDIT_ERROR_INVALID,
			 "%s: no public key of member %s there%s; copy it from %s, where `editctl keygen %s` made it", path, first, more,
			 first, first);
}

/* Calls take for each file of a public key in the folder, by name. */
static int read_folder(struct keyring *keyring, const struct config *config, const char *folder, struct line *why,
		       int (*take)(struct keyring *, const struct config *, const char *, struct line *))
{
	struct dirent **entries = NULL;
	int error = 0, count = scandir(folder, &entries, is_public, alphasort);
	if (count < 0)
		return errno == ENOENT ? 0 : line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", folder, strerror(errno));
	for (int i = 0; i < count; i++) {
		if (!error)
			error = take(keyring, config, entries[i]->d_name, why);
		free(entries[i]);
	}
	free(entries);
	return error;
}

static int read_members(struct keyring *keyring, const struct config *config, struct line *why)
{
	keyring->members = calloc(KEYRING_MEMBERS_MAX, sizeof *keyring->members);
	if (!keyring->members)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	struct keyring_member *own = &keyring->members[keyring->member_count++];
	snprintf(own->name, sizeof own->name, "%s", config_text(config, NODE_NAME));
	memcpy(own->key, keyring->public_key, KEY_BYTES);
	int error = read_folder(keyring, config, config_text(config, NODE_KEYS), why, read_member);
	return error ? error : check_list(keyring, config, why);
}

static int read_client(struct keyring *keyring, const struct config *config, const char *file, struct line *why)
{
	char path[2 * KEY_PATH_MAX];
	struct keyring_client client = {0};
	snprintf(path, sizeof path, "%s/" KEYFILE_CLIENTS "/%s", config_text(config, NODE_KEYS), file);
	if (!name_of(file, client.name))
		return fail_name(path, why);
	if (keyring->client_count == KEYRING_CLIENTS_MAX)
		return line_fail(why, EDIT_ERROR_RANGE, "%s/" KEYFILE_CLIENTS ": more than %d keys of clients",
				 config_text(config, NODE_KEYS), (int)KEYRING_CLIENTS_MAX);
	int error = keyfile_read_public(path, true, client.key, &client.may_change, why);
	const struct keyring_client *same = error ? NULL : keyring_client(keyring, client.key);
	if (same)
		error = line_fail(why, EDIT_ERROR_INVALID, "%s: the same key as that of %s, expected one of its own", path, same->name);
	if (!error)
		keyring->clients[keyring->client_count++] = client;
	return error;
}

static int read_clients(struct keyring *keyring, const struct config *config, struct line *why)
{
	char folder[KEY_PATH_MAX];
	snprintf(folder, sizeof folder, "%s/" KEYFILE_CLIENTS, config_text(config, NODE_KEYS));
	keyring->clients = calloc(KEYRING_CLIENTS_MAX, sizeof *keyring->clients);
	if (!keyring->clients)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no memory");
	return read_folder(keyring, config, folder, why, read_client);
}

int keyring_open(const struct config *config, struct keyring *ret_keyring, struct line *why)
{
	struct keyring keyring = {0};
	bool has_remote = config_text(config, CONTROL_LISTEN)[0] != 0;
	int error = 0;
	keyring.has_keys = config->is_encrypted || has_remote;
	if (keyring.has_keys && !zmq_has("curve"))
		return line_fail(why, EDIT_ERROR_SYSTEM, "this libzmq is built without CURVE: keys are of no use with it");
	if (keyring.has_keys)
		error = read_own(&keyring, config, why);
	if (!error && config->is_encrypted)
		error = read_members(&keyring, config, why);
	if (!error && has_remote)
		error = read_clients(&keyring, config, why);
	if (error) {
		keyring_close(&keyring);
		return error;
	}
	*ret_keyring = keyring;
	return 0;
}

void keyring_close(struct keyring *keyring)
{
	free(keyring->members);
	free(keyring->clients);
	explicit_bzero(keyring, sizeof *keyring);
}

const char *keyring_member(const struct keyring *keyring, const char *key)
{
	for (size_t i = 0; i < keyring->member_count; i++)
		if (strcmp(keyring->members[i].key, key) == 0)
			return keyring->members[i].name;
	return NULL;
}

const char *keyring_key(const struct keyring *keyring, const char *name)
{
	for (size_t i = 0; i < keyring->member_count; i++)
		if (strcmp(keyring->members[i].name, name) == 0)
			return keyring->members[i].key;
	return NULL;
}

const struct keyring_client *keyring_client(const struct keyring *keyring, const char *key)
{
	for (size_t i = 0; i < keyring->client_count; i++)
		if (strcmp(keyring->clients[i].key, key) == 0)
			return &keyring->clients[i];
	return NULL;
}

/* Reading files of keys, strictly. */

#include "proto/keyfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/inifile.h"

static const char z85[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

bool keyfile_is_key(const char *text)
{
	if (strlen(text) != KEY_BYTES - 1)
		return false;
	/* Five characters are four bytes; not all numbers of five digits to the base of 85 are. */
	for (size_t i = 0; i < KEY_BYTES - 1; i += 5) {
		uint64_t number = 0;
		for (size_t j = i; j < i + 5; j++) {
			const char *digit = strchr(z85, text[j]);
			if (!digit)
				return false;
			number = number * 85 + (uint64_t)(digit - z85);
		}
		if (number > UINT32_MAX)
			return false;
	}
	return true;
}

/* Reading one file. */
struct reader {
	const char *name; /* of the key: "public" or "secret" */
	bool is_client;
	char key[KEY_BYTES];
	bool has_rights, may_change;
};

static int take_rights(struct reader *reader, const char *value, struct line *why)
{
	if (reader->has_rights)
		return line_fail(why, EDIT_ERROR_INVALID, "rights: given twice");
	if (strcmp(value, "read") != 0 && strcmp(value, "change") != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "rights: expected read or change");
	reader->has_rights = true;
	reader->may_change = value[0] == 'c';
	return 0;
}

static int take(void *arg, const char *section, const char *key, const char *value, int line_number, struct line *why)
{
	struct reader *reader = arg;
	(void)line_number;
	if (section[0] != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "a section, expected %s = KEY alone", reader->name);
	if (reader->is_client && strcmp(key, "rights") == 0)
		return take_rights(reader, value, why);
	if (strcmp(key, "secret") == 0 && strcmp(reader->name, "public") == 0)
		return line_fail(why, EDIT_ERROR_INVALID, "a secret key where a public one was expected; it must not leave its machine");
	if (strcmp(key, reader->name) != 0)
		return line_fail(why, EDIT_ERROR_INVALID, "expected %s = KEY%s", reader->name,
				 reader->is_client ? " or rights = read or change" : "");
	if (reader->key[0])
		return line_fail(why, EDIT_ERROR_INVALID, "%s: given twice", reader->name);
	if (!keyfile_is_key(value))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: not a key, expected 40 characters of Z85 as `editctl keygen` writes them",
				 reader->name);
	memcpy(reader->key, value, KEY_BYTES);
	return 0;
}

static int read_file(const char *path, struct reader *reader, struct line *why)
{
	struct stat found;
	if (stat(path, &found) != 0)
		return line_fail(why, errno == ENOENT || errno == ENOTDIR ? EDIT_ERROR_UNKNOWN : EDIT_ERROR_SYSTEM,
				 "%s: cannot be read (%s)", path, strerror(errno));
	if (!S_ISREG(found.st_mode))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: not a file", path);
	int error = inifile_read(path, take, reader, why);
	if (!error && !reader->key[0])
		error = line_fail(why, EDIT_ERROR_INVALID, "%s: no key in it, expected %s = KEY", path, reader->name);
	return error;
}

int keyfile_read_public(const char *path, bool is_client, char ret_key[KEY_BYTES], bool *ret_may_change, struct line *why)
{
	struct reader reader = {.name = "public", .is_client = is_client};
	int error = read_file(path, &reader, why);
	if (error)
		return error;
	memcpy(ret_key, reader.key, KEY_BYTES);
	if (is_client)
		*ret_may_change = reader.may_change;
	return 0;
}

/* The folder that path is in, into folder[size]. */
static void folder_of(const char *path, char *folder, size_t size)
{
	const char *slash = strrchr(path, '/');
	snprintf(folder, size, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	if (slash == path)
		snprintf(folder, size, "/");
}

static int check_guarded(const char *path, struct line *why)
{
	char folder[4096];
	struct stat found, around;
	folder_of(path, folder, sizeof folder);
	if (stat(path, &found) != 0 || stat(folder, &around) != 0)
		return line_fail(why, errno == ENOENT || errno == ENOTDIR ? EDIT_ERROR_UNKNOWN : EDIT_ERROR_SYSTEM,
				 "%s: cannot be read (%s)", path, strerror(errno));
	if (found.st_mode & 077)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s: mode %04o lets others at the secret key, expected 0600 (chmod 600)", path,
				 (unsigned)(found.st_mode & 07777));
	if (found.st_uid != geteuid() && found.st_uid != around.st_uid)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s: belongs to uid %ld, expected uid %ld, the owner of its folder (chown)", path,
				 (long)found.st_uid, (long)around.st_uid);
	if ((around.st_mode & 022) != 0)
		return line_fail(why, EDIT_ERROR_REFUSED, "%s: mode %04o lets others put keys into it, expected 0750 or less (chmod 750)",
				 folder, (unsigned)(around.st_mode & 07777));
	return 0;
}

int keyfile_read_secret(const char *path, char ret_key[KEY_BYTES], struct line *why)
{
	struct reader reader = {.name = "secret"};
	int error = check_guarded(path, why);
	if (!error)
		error = read_file(path, &reader, why);
	if (!error)
		memcpy(ret_key, reader.key, KEY_BYTES);
	memset(reader.key, 0, sizeof reader.key);
	return error;
}

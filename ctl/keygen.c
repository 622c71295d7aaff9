/* `editctl keygen`: a pair of keys in two files. Both are complete on disk before either has its name. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "core/base.h"
#include "ctl/json.h"
#include "ctl/session.h"
#include "ctl/verb.h"
#include "proto/keyfile.h"

enum { KEY_PATH_MAX = 4096 + TEXT_NAME_MAX + 16 };

/* One file to be: its name, and the one that it has until it is whole. */
struct output {
	char path[KEY_PATH_MAX], begun[KEY_PATH_MAX];
};

static void name_output(struct output *output, const char *folder, const char *name, const char *ending)
{
	snprintf(output->path, sizeof output->path, "%.4096s/%s%s", folder, name, ending);
	snprintf(output->begun, sizeof output->begun, "%.4096s/%s%s.new", folder, name, ending);
}

/* Writes a file whole under its first name, for the owner of the folder if root makes it for him. */
static int write_output(const struct output *output, const struct stat *folder, mode_t mode, const char *text, struct line *why)
{
	size_t bytes = strlen(text);
	unlink(output->begun);
	int fd = open(output->begun, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	bool is_written = fd >= 0 && fchmod(fd, mode) == 0 &&
			  (geteuid() != 0 || fchown(fd, folder->st_uid, folder->st_gid) == 0) &&
			  write(fd, text, bytes) == (ssize_t)bytes && fsync(fd) == 0;
	int saved = errno;
	if (fd >= 0 && close(fd) != 0 && is_written) {
		is_written = false;
		saved = errno;
	}
	return is_written ? 0 : line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be written (%s)", output->begun, strerror(saved));
}

/* Gives a file its name; one of that name is replaced if is_forced. */
static int name_file(const struct output *output, bool is_forced, struct line *why)
{
	if (renameat2(AT_FDCWD, output->begun, AT_FDCWD, output->path, is_forced ? 0 : RENAME_NOREPLACE) == 0)
		return 0;
	return line_fail(why, errno == EEXIST ? EDIT_ERROR_REFUSED : EDIT_ERROR_SYSTEM, "%s: cannot be made (%s)", output->path,
			 strerror(errno));
}

static int check_new(const struct output *output, struct line *why)
{
	struct stat found;
	if (lstat(output->path, &found) != 0)
		return 0;
	return line_fail(why, EDIT_ERROR_REFUSED,
			 "%s: there already; --force makes a new key instead, which all who know the old one must be given", output->path);
}

static int open_folder(const char *path, struct stat *ret_folder, struct line *why)
{
	if (strlen(path) > 4096 - sizeof "/secret.new")
		return line_fail(why, EDIT_ERROR_INVALID, "--out: a path of %zu bytes is too long", strlen(path));
	if (mkdir(path, 0750) != 0 && errno != EEXIST)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be made (%s)", path, strerror(errno));
	if (stat(path, ret_folder) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be looked at (%s)", path, strerror(errno));
	if (!S_ISDIR(ret_folder->st_mode))
		return line_fail(why, EDIT_ERROR_INVALID, "%s: not a folder", path);
	return 0;
}

/* Makes the pair for name; *ret_public is the public key. */
static int generate(const struct arguments *arguments, const struct output *secret, const struct output *public,
		    const struct stat *folder, char ret_public[KEY_BYTES], struct line *why)
{
	char secret_key[KEY_BYTES], text[512];
	int error = arguments->force ? 0 : check_new(secret, why);
	if (!error && !arguments->force)
		error = check_new(public, why);
	if (error)
		return error;
	if (zmq_curve_keypair(ret_public, secret_key) != 0)
		return line_fail(why, EDIT_ERROR_SYSTEM, "no key can be made (%s)", zmq_strerror(errno));
	snprintf(text, sizeof text, "# Secret key of %s (CURVE). It stays on this machine.\nsecret = %s\n", arguments->words[0], secret_key);
	error = write_output(secret, folder, 0600, text, why);
	explicit_bzero(text, sizeof text);
	explicit_bzero(secret_key, sizeof secret_key);
	snprintf(text, sizeof text, "# Public key of %s (CURVE), for those who are to know it.\npublic = %s\n", arguments->words[0],
		 ret_public);
	if (!error)
		error = write_output(public, folder, 0644, text, why);
	if (!error)
		error = name_file(secret, arguments->force, why);
	if (!error)
		error = name_file(public, arguments->force, why);
	if (error) {
		unlink(secret->begun);
		unlink(public->begun);
	}
	return error;
}

static void tell(const struct session *session, const struct output *secret, const struct output *public, const char *key)
{
	const char *name = session->arguments->words[0];
	if (session->arguments->json) {
		json_t *answer = json_answer("keygen");
		json_object_set_new(answer, "name", json_text(name));
		json_object_set_new(answer, "public", json_text(key));
		json_object_set_new(answer, "public_file", json_text(public->path));
		json_object_set_new(answer, "secret_file", json_text(secret->path));
		session_print(answer);
		return;
	}
	printf("public = %s\n\n"
	       "secret key  %s (it stays here)\n"
	       "public key  %s\n\n"
	       "If %s is a member: copy %s" KEYFILE_ENDING " to the folder node.keys of every other member, theirs to here, then `editd --check-config`\n"
	       "on each, and start or restart editd.\n"
	       "If %s is a person with editctl: copy it to node.keys/" KEYFILE_CLIENTS "/ of the nodes to be asked, add a line `rights = change` there\n"
	       "if it may do more than look, and `systemctl reload editd`.\n",
	       key, secret->path, public->path, name, name, name);
}

int run_keygen(struct session *session)
{
	const struct arguments *arguments = session->arguments;
	struct line why = {""};
	struct stat folder;
	struct output secret, public;
	char key[KEY_BYTES];
	if (!text_is_name(arguments->words[0]))
		return session_fail(session, EDIT_ERROR_INVALID, "keygen: not a name, expected 1 to 63 of [a-z0-9-] as in [members]");
	int error = open_folder(arguments->out, &folder, &why);
	if (!error) {
		name_output(&secret, arguments->out, KEYFILE_SECRET, "");
		name_output(&public, arguments->out, arguments->words[0], KEYFILE_ENDING);
		error = generate(arguments, &secret, &public, &folder, key, &why);
	}
	if (error)
		return session_fail(session, error, why.text);
	tell(session, &secret, &public, key);
	return 0;
}

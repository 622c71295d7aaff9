#ifndef EDIT_DAEMON_CONFIG_H
#define EDIT_DAEMON_CONFIG_H

/* The config file: INI, read once at start. A key's section and name are a setting's name of proto/setting.h
 * ("[sync] interval" is sync.interval); [members] lists name = tcp://host:port in ring order. Drop-ins (FILE.d,
 * names that end in .conf) follow in the order of their names: what a later file sets wins, and a later file's
 * [members] replaces the list. */

#include "proto/setting.h"

#define CONFIG_FILE_STANDARD "/etc/editd/editd.conf"

struct config {
	struct setting_value values[SETTING_END];
	uint32_t member_count, rank;
	char **names, **addresses;  /* [member_count] in ring order, owned */
	const char *listen;         /* tcp: where the ring's frames come in */
	char control[SETTING_TEXT_MAX + 1]; /* address of the control socket */
};

/* Reads file and its drop-ins. EDIT_ERROR_INVALID, _RANGE or _UNKNOWN: why is one line with file, line, key and
 * what was expected; EDIT_ERROR_SYSTEM: a file cannot be read. On success the config is the caller's to
 * config_close. */
int config_open(const char *file, struct config *ret_config, struct line *why);
void config_close(struct config *config);

/* A setting as number (COUNT, REAL, BYTES, CHOICE, FLAG) and as text. */
double config_number(const struct config *config, size_t setting);
const char *config_text(const struct config *config, size_t setting);

/* The settings of the ring as configured. */
struct ring_settings config_ring(const struct config *config);

/* Writes runtime_dir/name into path[size], which holds it: checked when the config was read. Returns path. */
char *config_runtime_path(const struct config *config, const char *name, char *path, size_t size);

enum { CONFIG_PATH_MAX = 512 };

#endif

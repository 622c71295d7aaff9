#ifndef EDIT_DAEMON_CONFIG_H
#define EDIT_DAEMON_CONFIG_H

/* The config file: INI, read once at start; its member list holds until the members have decided on another (config_seat). A key's section and name are a setting's name of proto/setting.h
 * ("[sync] interval" is sync.interval); [members] lists name = tcp://host:port in ring order. Drop-ins (FILE.d,
 * names that end in .conf) follow in the order of their names: what a later file sets wins, and a later file's
 * [members] replaces the list.
 *
 * With mesh.shards = M above 1 the members are a mesh of replicas (rows), each cut over M nodes (columns). [places] says
 * who stands where (name = row.column); without it the order of [members] does, row by row. [shard_addresses] says where a
 * member listens for the others of its row, if not at its address in [members]. Both lists are replaced like [members]. */

#include "core/event.h"
#include "core/roster.h"
#include "proto/setting.h"

#define CONFIG_FILE_STANDARD "/etc/editd/editd.conf"

struct config {
	struct setting_value values[SETTING_END];
	uint64_t view;               /* number of the member list: VIEW_FIRST is that of the file */
	uint32_t member_count, rank; /* of the mesh; rank = row x shards + column */
	uint32_t shards, replicas;   /* M columns, N rows; member_count = N x M. A plain ring: M = 1 */
	uint32_t row, column;
	uint32_t fanout;             /* members of a group of the ring; replicas: it is flat */
	char **names, **addresses;   /* [member_count] in order of the ranks, owned */
	char **shard_addresses;      /* [member_count], owned; NULL: not given, or the same as in addresses */
	char **peers;                /* [replicas] names of the own column, by row: the ring that syncs; names borrowed */
	char **mates;                /* [shards] names of the own row, by column: the own replica; names borrowed */
	char address[SETTING_TEXT_MAX + 1]; /* of this member in the file's [members] */
	const char *listen;          /* tcp: where the ring's frames come in */
	const char *shard_listen;    /* tcp: where those of the own row may come in too; NULL: nowhere else */
	bool is_encrypted;           /* frames between members: by node.curve, or because there is a secret key */
	char control[SETTING_TEXT_MAX + 1]; /* address of the control socket */
	struct config_lists {
		uint32_t count;
		char **names, **addresses, **shard_addresses, **peers;
	} former; /* of the view before, owned */
};

/* Reads file and its drop-ins. EDIT_ERROR_INVALID, _RANGE or _UNKNOWN: why is one line with file, line, key and
 * what was expected; EDIT_ERROR_SYSTEM: a file cannot be read. On success the config is the caller's to
 * config_close. */
int config_open(const char *file, struct config *ret_config, struct line *why);
void config_close(struct config *config);

/* The roster of the member list, view 1 of a ring without pieces: seats[member_count] is the caller's. */
void config_roster(const struct config *config, struct seat *seats, struct roster *ret_roster);
/* The members of a view, of which this one is one, take the place of the member list: view, member_count, rank, replicas, row, fanout,
 * names, addresses, peers. Only where mesh.shards is 1. What was in these lists is kept until the next call, because others may still read
 * it. EDIT_ERROR_SYSTEM: no memory, and all is as before. */
int config_seat(struct config *config, const struct roster *roster, struct line *why);

/* A setting as number (COUNT, REAL, BYTES, CHOICE, FLAG) and as text. */
double config_number(const struct config *config, size_t setting);
const char *config_text(const struct config *config, size_t setting);

/* Global ranks of the members to talk to, as of places_neighbours. */
size_t config_neighbours(const struct config *config, uint32_t ret_ranks[ROAD_COUNT]);

/* Where to connect to a neighbour: one of the own row at its shard address, if it has one. */
const char *config_address(const struct config *config, uint32_t rank);

/* The settings of the ring as configured. */
struct ring_settings config_ring(const struct config *config);

/* Writes runtime_dir/name into path[size], which holds it: checked when the config was read. Returns path. */
char *config_runtime_path(const struct config *config, const char *name, char *path, size_t size);

enum { CONFIG_PATH_MAX = 512 };

#endif

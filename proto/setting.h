#ifndef EDIT_PROTO_SETTING_H
#define EDIT_PROTO_SETTING_H

/* Every setting, once: those of the ring (core/option.h, the same on all members, changed live) joined with those of
 * one node (config file only). Config file, `editctl get/set`, man page and completion expand this table. Owns
 * nothing. */

#include "core/option.h"
#include "proto/text.h"

/* id, name, type, unit, default as text, low, high, help. TEXT: low and high are bytes. CHOICE: unit lists the choices,
 * divided by |. An empty default of an address, path or text: see help. */
#define NODE_SETTINGS(X)                                                                                               \
	X(NODE_NAME, "node.name", NAME, "", "", 0, 63, "this member's name, as in [members]")                              \
	X(NODE_RUN, "node.run", NAME, "", "run", 1, 63, "name of the run; the same on all members")                        \
	X(NODE_RUNTIME_DIR, "node.runtime_dir", PATH, "", "/run/editd", 0, 0,                                              \
	  "folder of sockets, segment and state; best on tmpfs")                                                           \
	X(NODE_STATE_DIR, "node.state_dir", PATH, "", "/var/lib/editd", 0, 0, "folder of checkpoints; on disk")            \
	X(NODE_LISTEN, "node.listen", ADDRESS, "", "", 0, 0,                                                               \
	  "where the ring's frames come in; empty: this member's address in [members]")                                    \
	X(NODE_SHARD_LISTEN, "node.shard_listen", ADDRESS, "", "", 0, 0,                                                   \
	  "where frames of the own replica's nodes come in; empty: this member's address in [shard_addresses]")            \
	X(NODE_CONTROL, "node.control", ADDRESS, "", "", 0, 0,                                                             \
	  "control socket; empty: ipc://RUNTIME_DIR/control.sock")                                                         \
	X(NODE_KEYS, "node.keys", PATH, "", "/etc/editd/keys", 0, 0,                                                       \
	  "folder of keys: the own secret, NAME.pub of each other member, clients/NAME.pub of tools on other hosts")       \
	X(NODE_CURVE, "node.curve", CHOICE, "auto|yes|no", "auto", 0, 2,                                                   \
	  "members prove who they are by key and their frames are encrypted; auto: if there is a secret key in node.keys") \
	X(NODE_PLAIN, "node.plain", CHOICE, "loopback|anywhere", "loopback", 0, 1,                                         \
	  "where frames may travel unencrypted if they are: on this host only, or on any network")                         \
	X(NODE_LOG_LEVEL, "node.log_level", CHOICE, "error|warning|notice|info|debug", "info", 0, 4,                       \
	  "least important lines that are logged")                                                                         \
	X(NODE_HEARTBEAT_MS, "node.heartbeat_ms", COUNT, "ms", "1000", 10, 60000, "interval of heartbeats to neighbours")  \
	X(NODE_SILENCE_MS, "node.silence_ms", COUNT, "ms", "3000", 30, 600000,                                             \
	  "a neighbour not heard for so long is down")                                                                     \
	X(NODE_RETRY_MS, "node.retry_ms", COUNT, "ms", "1000", 10, 60000,                                                  \
	  "an unacknowledged frame is sent again after this, doubling to 8 times it")                                      \
	X(NODE_WINDOW_MAX, "node.window_max", BYTES, "bytes", "67108864", 0, 1073741824,                                   \
	  "upper bound of wire.window on this node, for its memory; 0: none")                                              \
	X(CONTROL_LISTEN, "control.listen", ADDRESS, "", "", 0, 0,                                                         \
	  "where editctl may come in from other hosts, with a key in node.keys/clients; empty: nowhere")                   \
	X(CONTROL_READ_GROUP, "control.read_group", NAME, "", "", 0, 63,                                                   \
	  "group of this host that may look and not change, at RUNTIME_DIR/control-read.sock; empty: none")                \
	X(MESH_SHARDS, "mesh.shards", COUNT, "", "1", 1, 1024,                                                             \
	  "nodes that share one replica of the model; the same on all members")                                            \
	X(MESH_PREFETCH, "mesh.prefetch", COUNT, "layers", "1", 0, 1,                                                      \
	  "whole layers that are gathered before the worker needs them; the same on all members")                          \
	X(RING_FANOUT, "ring.fanout", COUNT, "members", "0", 0, 1024,                                                      \
	  "members of a group, where a large ring is a ring of rings: a divisor of their number; 0: a flat ring; the same on all "     \
	  "members")                                                                                                     \
	X(CHECKPOINT_KEEP, "checkpoint.keep", COUNT, "", "3", 1, 1000, "newest checkpoints that are kept")                 \
	X(CHECKPOINT_AT_END, "checkpoint.at_end", FLAG, "", "yes", 0, 1, "write a checkpoint when the run is finished")

enum setting_type {
	SETTING_COUNT,   /* a whole number */
	SETTING_REAL,
	SETTING_BYTES,   /* a whole number, multiple of 4 */
	SETTING_NAME,    /* [a-z0-9-], low to high bytes */
	SETTING_PATH,    /* absolute, at most SETTING_TEXT_MAX bytes */
	SETTING_ADDRESS, /* proto/address.h, or empty */
	SETTING_CHOICE,  /* number: index into the choices */
	SETTING_FLAG     /* yes or no; number: 1 or 0 */
};

/* Index into the joined table: enum ring_setting first, then the node's. */
enum node_setting {
	NODE_SETTING_BEFORE = RING_SETTING_COUNT - 1,
#define X(id, name, type, unit, standard, low, high, help) id,
	NODE_SETTINGS(X)
#undef X
	SETTING_END
};

enum { SETTING_TEXT_MAX = 255 };

struct setting {
	const char *name;
	enum setting_type type;
	bool is_ring;            /* scope ring; else node */
	const char *unit;        /* CHOICE: the choices */
	const char *standard;    /* default, as text; CHOICE of the ring: its index (setting_standard has the word) */
	double low, high;
	const char *help;
};

/* A value: number for COUNT, REAL, BYTES, CHOICE and FLAG, text (as written) for all. */
struct setting_value {
	double number;
	char text[SETTING_TEXT_MAX + 1];
};

/* Row of the table; CHECKs index < SETTING_END. */
const struct setting *setting_at(size_t index);

/* Index of a name. EDIT_ERROR_UNKNOWN with a line that offers the nearest name if one is near. */
int setting_find(const char *name, size_t *ret_index, struct line *why);

/* Reads a value; spaces around it are not part of it. EDIT_ERROR_INVALID or EDIT_ERROR_RANGE with a line like
 * "sync.interval: 0 is out of range, expected a whole number from 1 to 1000000000 (steps)". */
int setting_parse(size_t index, const char *text, struct setting_value *ret_value, struct line *why);

/* The default of a setting. */
struct setting_value setting_standard(size_t index);

/* Whether number is a value of the numeric setting: in range, whole where it must be. False for NaN. */
bool setting_holds(size_t index, double number);

/* Puts a value into the settings of the ring; a method brings its presets. CHECKs index < RING_SETTING_COUNT. */
void setting_take(struct ring_settings *settings, size_t index, double number);
/* Why these settings have no meaning together, or the setting `given` (just named by a person) has none among them; NULL if all is
 * well. */
const char *setting_conflict(const struct ring_settings *settings, size_t given);

/* Writes number as the config file would have it, so that it reads back as the same double. Numeric settings, CHOICE
 * and FLAG; CHECKs that. Returns buffer. */
char *setting_format(size_t index, double number, char buffer[SETTING_TEXT_MAX + 1]);

/* What setting_parse expects, for help and man page: "a whole number from 1 to 1000000000 (steps)". Returns buffer. */
char *setting_expected(size_t index, char buffer[SETTING_TEXT_MAX + 1]);

#endif

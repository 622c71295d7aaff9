#ifndef EDIT_DAEMON_MEMBERS_H
#define EDIT_DAEMON_MEMBERS_H

/* The sections of the config that list members by name, while they are read: who they are, where each stands in the
 * mesh, and where it listens for the nodes of its own replica. */

#include "core/layer.h"
#include "daemon/config.h"

enum member_section {
	SECTION_MEMBERS,         /* NAME = tcp://HOST:PORT */
	SECTION_PLACES,          /* NAME = ROW.COLUMN */
	SECTION_SHARD_ADDRESSES, /* NAME = tcp://HOST:PORT */
	MEMBER_SECTION_COUNT
};

/* One section: pairs in the order of the file that gave them. */
struct member_list {
	uint32_t count;
	struct member_pair {
		char *name, *value; /* owned; of places: ROW.COLUMN without leading zeros */
	} pairs[MEMBER_COUNT_MAX];
};

struct member_lists {
	struct member_list lists[MEMBER_SECTION_COUNT];
};

/* The section of that name; MEMBER_SECTION_COUNT: it lists no members. */
enum member_section member_section_find(const char *section);

/* Takes a line of a section. EDIT_ERROR_INVALID, _RANGE, _SYSTEM: why tells section, name and what was expected. */
int members_take(struct member_lists *lists, enum member_section section, const char *name, const char *value,
		 struct line *why);
/* Empties one section. */
void members_clear(struct member_lists *lists, enum member_section section);

/* Moves the lists, of which [members] is not empty, into config by mesh.shards: member_count, shards, replicas, names,
 * addresses, shard_addresses. Without places the order of [members] is that of the global ranks. The lists are empty
 * afterwards, also on failure. EDIT_ERROR_INVALID, _RANGE, _SYSTEM: why tells section, name and what was expected; what is
 * in config then is still for config_close. */
int members_arrange(struct member_lists *lists, struct config *config, struct line *why);

#endif

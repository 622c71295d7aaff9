#ifndef EDIT_DAEMON_VOTEFILE_H
#define EDIT_DAEMON_VOTEFILE_H

/* A member's vote (core/vote.h) on its disk. A file is replaced as a whole: after a death at any moment the old or the new one
 * is there. A damaged one is never guessed at, because what it said may have been promised to others. Owns nothing. */

#include "core/vote.h"
#include "daemon/config.h"

/* Where the vote of node.run is: node.state_dir/vote-RUN, into path[CONFIG_PATH_MAX]. Returns path. */
const char *votefile_path(const struct config *config, char *path);

/* Reads the vote at path; block (vote_size(capacity) bytes, 64-byte aligned) becomes that of ret_vote and stays the caller's.
 * Otherwise ret_vote is untouched. EDIT_ERROR_UNKNOWN: there is none. EDIT_ERROR_SYSTEM: it cannot be read.
 * EDIT_ERROR_MALFORMED: it is damaged, or made by another version; EDIT_ERROR_RANGE: it has more than capacity members: a
 * person must decide, as why tells. */
int votefile_read(const char *path, uint32_t capacity, void *block, struct vote *ret_vote, struct line *why);

/* Writes the vote to path, to stay: when this returns 0 it is on the disk. EDIT_ERROR_SYSTEM: why tells; after the next start
 * the old or the new vote is there, and it may be tried again. Takes as long as the disk does. */
int votefile_write(const char *path, const struct vote *vote, struct line *why);

#endif

#ifndef EDIT_DAEMON_MANIFEST_H
#define EDIT_DAEMON_MANIFEST_H

/* manifest.json of a checkpoint: which files there are, with their sizes and hashes. Written last, so it also says that the others are
 * there. What is read here serves only to tell whether the files are intact, and which checkpoint this claims to be: what a restart
 * takes up stands in the files themselves. */

#include "daemon/snapshot.h"

enum { MANIFEST_NAME_MAX = 47, MANIFEST_FILES_MAX = 8, MANIFEST_BYTES_MAX = 4 << 20 };

struct manifest_file {
	char name[MANIFEST_NAME_MAX + 1]; /* no slash in it, does not begin with a dot */
	uint64_t bytes, hash;             /* XXH3 of all bytes */
};

struct manifest {
	char run[TEXT_NAME_MAX + 1], member[TEXT_NAME_MAX + 1];
	uint64_t round;
	uint64_t shards, column; /* 1 and 0 without a mesh */
	uint64_t anchor_hash;    /* XXH3 of all layers' hashes: the same on all members of a ring */
	struct manifest_file files[MANIFEST_FILES_MAX];
	size_t file_count;
};

/* The text for manifest (all but anchor_hash) and the layers of the snapshot. NULL if memory is short. The caller's to free. */
char *manifest_text(const struct manifest *manifest, const struct run *run, const struct snapshot *snapshot);
/* Reads such a text, every field checked. EDIT_ERROR_MALFORMED with the first fault. */
int manifest_read(const char *text, size_t bytes, struct manifest *ret_manifest, struct line *why);

/* Reads folder/manifest.json and compares every file that it names, byte by byte, with size and hash. 0: the checkpoint is intact.
 * Otherwise why tells the file and what is wrong with it: EDIT_ERROR_MALFORMED, EDIT_ERROR_SYSTEM. Takes as long as reading it all. */
int manifest_check(const char *folder, struct manifest *ret_manifest, struct line *why);

#endif

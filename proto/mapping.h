#ifndef EDIT_PROTO_MAPPING_H
#define EDIT_PROTO_MAPPING_H

/* Files mapped into memory, the only place that does so: the segment, the daemon's state, and data files that are read.
 * A mapping owns its addresses and its descriptor; mapping_close gives both back. */

#include "proto/text.h"

struct mapping {
	void *base;        /* NULL for an empty file */
	size_t size_bytes;
	int fd;            /* -1: closed already */
};

/* Makes a file of size_bytes zeros, shared and writable, mode 0660, all of its space reserved. The file gets the
 * name path only with mapping_rename, so nobody finds it half made: until then it is path.new, which a failure
 * removes. EDIT_ERROR_FULL if the file system has not that much room (why says both sizes), EDIT_ERROR_SYSTEM. */
int mapping_create(const char *path, size_t size_bytes, struct mapping *ret_mapping, struct line *why);
/* path.new becomes path. EDIT_ERROR_SYSTEM. */
int mapping_rename(const char *path, struct line *why);

/* Maps an existing regular file as it is, shared and writable. EDIT_ERROR_UNKNOWN if there is none,
 * EDIT_ERROR_SYSTEM. */
int mapping_open(const char *path, struct mapping *ret_mapping, struct line *why);
/* The same, read only. */
int mapping_open_read(const char *path, struct mapping *ret_mapping, struct line *why);
/* The same for a descriptor, shared and writable; takes fd over, also on failure. name: for the line. */
int mapping_adopt(int fd, const char *name, struct mapping *ret_mapping, struct line *why);

/* Unmaps and closes. Safe on a mapping that is all zero apart from fd -1. */
void mapping_close(struct mapping *mapping);

/* size_bytes zeros, private to this process; takes memory only where it is touched. NULL if there is no room for it in the address
 * space. The caller gives it back with mapping_free. */
void *mapping_take(size_t size_bytes);
/* NULL is allowed. */
void mapping_free(void *block, size_t size_bytes);

/* A hint to the kernel: the whole pages of 2 MiB inside block, private memory of size_bytes, may be huge ones. Fewer
 * misses in the address cache for arrays that are walked by column. */
void mapping_prefer_huge(void *block, size_t size_bytes);

#endif

#ifndef EDIT_DAEMON_FOLDER_H
#define EDIT_DAEMON_FOLDER_H

/* The folder of checkpoints as a file system sees it: making, replacing, removing whole folders so that a name
 * always stands for a whole one. Knows the names round-NNNNNN and .round-NNNNNN.partial, not what is inside.
 * Errors are told by errno. */

#include "core/base.h"

/* Makes a folder unless it is there; its parent must be. 0 or EDIT_ERROR_SYSTEM. */
int folder_make(const char *path);
/* Writes a file and syncs it. 0 or EDIT_ERROR_SYSTEM. */
int folder_write(const char *path, const void *bytes, size_t size_bytes);
/* Gives the folder aside the name place (same parent) and syncs; a folder of that name is replaced at one blow and
 * removed. 0 or EDIT_ERROR_SYSTEM: place is as it was. */
int folder_put(const char *aside, const char *place);
/* Sees to it that the checkpoint aside, its files written, is younger than all in the folder checkpoints, also if the clock has
 * been set back since these were written: "newest by time" below then means the last one written. */
void folder_date(const char *checkpoints, const char *aside);
/* Removes a folder and the files in it; what cannot be removed is left. */
void folder_remove(const char *path);
/* Removes half-written folders of an earlier daemon from the folder of checkpoints. */
void folder_clean(const char *checkpoints);
/* Writes the path of the newest whole checkpoint by time into path[size], "" if there is none. */
void folder_newest(const char *checkpoints, char *path, size_t size);
/* Names of the whole checkpoints, newest first by time, up to count of them. Returns their number. */
enum { FOLDER_NAME_BYTES = 64 };
size_t folder_list(const char *checkpoints, char names[][FOLDER_NAME_BYTES], size_t count);
/* Removes all whole checkpoints but the `keep` newest by time, and never `spared`. Whatever else is in the folder
 * stays. */
void folder_prune(const char *checkpoints, size_t keep, const char *spared);

#endif

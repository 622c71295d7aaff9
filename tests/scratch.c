/* A folder for the files that a test makes. */

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base.h"
#include "tests/scratch.h"

static char folder[256];

int scratch_make(void **state)
{
	(void)state;
	const char *parent = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/edit-test.XXXXXX", parent ? parent : P_tmpdir);
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
	(void)about, (void)kind, (void)walk;
	return remove(path);
}

int scratch_remove(void **state)
{
	(void)state;
	return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
	static char paths[8][512];
	static size_t turn;
	char *path = paths[turn++ % 8];
	snprintf(path, sizeof(paths[0]), "%s%s%s", folder, *name ? "/" : "", name);
	return path;
}

const char *scratch_write(const char *name, const void *bytes, size_t size)
{
	const char *path = scratch_path(name);
	FILE *file = fopen(path, "wb");
	CHECK(file);
	CHECK(fwrite(bytes, 1, size, file) == size);
	CHECK(fclose(file) == 0);
	return path;
}

void scratch_unlink(const char *name)
{
	unlink(scratch_path(name));
}

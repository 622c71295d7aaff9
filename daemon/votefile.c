/* A vote as bytes, and its file. Numbers are little-endian:
 *
 *   0   "EDITVOTE", version (4), is_voter (4), disk (8), promised (8), accepted_ballot (8)
 *   40  the view's roster, then the accepted one: number (8), count (4), holder (4), fanout (4), zero (4)
 *   88  seats of the first, then of the second: name (64), address (256), incarnation (8), disk (8)
 *       XXH3 of all that (8) */

#include "daemon/votefile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
	FORMAT_VERSION = 1,
	HEAD_BYTES = 88,
	SEAT_BYTES = SEAT_NAME_BYTES + SEAT_ADDRESS_BYTES + 16,
	HASH_BYTES = 8,
	FILE_BYTES_MAX = HEAD_BYTES + 2 * MEMBER_COUNT_MAX * SEAT_BYTES + HASH_BYTES
};

static const char magic[8] = {'E', 'D', 'I', 'T', 'V', 'O', 'T', 'E'};

const char *votefile_path(const struct config *config, char *path)
{
	snprintf(path, CONFIG_PATH_MAX, "%s/vote-%s", config_text(config, NODE_STATE_DIR), config_text(config, NODE_RUN));
	return path;
}

/* ---- Bytes ---- */

static void put(unsigned char **at, uint64_t number, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*(*at)++ = (unsigned char)(number >> 8 * i);
}

static uint64_t take(const unsigned char **at, size_t bytes)
{
	uint64_t number = 0;
	for (size_t i = 0; i < bytes; i++)
		number |= (uint64_t)*(*at)++ << 8 * i;
	return number;
}

static void put_roster(unsigned char **at, const struct roster *roster)
{
	put(at, roster->number, 8);
	put(at, roster->count, 4);
	put(at, roster->holder, 4);
	put(at, roster->fanout, 4);
	put(at, 0, 4);
}

static void take_roster(const unsigned char **at, struct roster *roster)
{
	roster->number = take(at, 8);
	roster->count = (uint32_t)take(at, 4);
	roster->holder = (uint32_t)take(at, 4);
	roster->fanout = (uint32_t)take(at, 4);
	take(at, 4);
}

static void put_seats(unsigned char **at, const struct roster *roster)
{
	for (uint32_t i = 0; i < roster->count; i++) {
		const struct seat *seat = &roster->seats[i];
		memcpy(*at, seat->name, sizeof seat->name);
		memcpy(*at + sizeof seat->name, seat->address, sizeof seat->address);
		*at += sizeof seat->name + sizeof seat->address;
		put(at, seat->incarnation, 8);
		put(at, seat->disk, 8);
	}
}

static void take_seats(const unsigned char **at, struct roster *roster)
{
	for (uint32_t i = 0; i < roster->count; i++) {
		struct seat *seat = &roster->seats[i];
		memcpy(seat->name, *at, sizeof seat->name);
		memcpy(seat->address, *at + sizeof seat->name, sizeof seat->address);
		*at += sizeof seat->name + sizeof seat->address;
		seat->incarnation = take(at, 8);
		seat->disk = take(at, 8);
	}
}

static size_t file_bytes(uint64_t seat_count)
{
	return HEAD_BYTES + (size_t)seat_count * SEAT_BYTES + HASH_BYTES;
}

static size_t encode(const struct vote *vote, unsigned char *bytes)
{
	unsigned char *at = bytes;
	memcpy(at, magic, sizeof magic);
	at += sizeof magic;
	put(&at, FORMAT_VERSION, 4);
	put(&at, vote->is_voter, 4);
	put(&at, vote->disk, 8);
	put(&at, vote->promised, 8);
	put(&at, vote->accepted_ballot, 8);
	put_roster(&at, &vote->roster);
	put_roster(&at, &vote->accepted);
	put_seats(&at, &vote->roster);
	put_seats(&at, &vote->accepted);
	put(&at, XXH3_64bits(bytes, (size_t)(at - bytes)), HASH_BYTES);
	return (size_t)(at - bytes);
}

/* What is wrong with a file of these bytes; NULL: nothing, and its numbers but the seats are in *vote. */
static const char *decode_head(const unsigned char *bytes, size_t size, struct vote *vote)
{
	const unsigned char *at = bytes + sizeof magic;
	if (size < file_bytes(0) || memcmp(bytes, magic, sizeof magic) != 0)
		return "it is no file of a vote";
	const unsigned char *hash = bytes + size - HASH_BYTES;
	if (take(&hash, HASH_BYTES) != XXH3_64bits(bytes, size - HASH_BYTES))
		return "its hash is not that of its bytes";
	if (take(&at, 4) != FORMAT_VERSION)
		return "another version of editd wrote it";
	vote->is_voter = take(&at, 4) != 0;
	vote->disk = take(&at, 8);
	vote->promised = take(&at, 8);
	vote->accepted_ballot = take(&at, 8);
	take_roster(&at, &vote->roster);
	take_roster(&at, &vote->accepted);
	return size == file_bytes((uint64_t)vote->roster.count + vote->accepted.count) ? NULL : "its size is not that of its seats";
}

static int decode(const char *path, const unsigned char *bytes, size_t size, uint32_t capacity, void *block,
		  struct vote *ret_vote, struct line *why)
{
	static const char what_to_do[] = "what was promised in it cannot be known: remove it, and this node joins the ring anew, "
					 "without a vote until it is let in; an old copy must not take its place";
	struct vote vote;
	vote_init(&vote, block, capacity);
	const char *wrong = decode_head(bytes, size, &vote);
	if (wrong)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s: damaged (%s); %s", path, wrong, what_to_do);
	uint32_t most = vote.roster.count > vote.accepted.count ? vote.roster.count : vote.accepted.count;
	if (most > capacity)
		return line_fail(why, EDIT_ERROR_RANGE, "%s: of a view of %u members, expected at most %u", path, most, capacity);
	const unsigned char *at = bytes + HEAD_BYTES;
	take_seats(&at, &vote.roster);
	take_seats(&at, &vote.accepted);
	if (vote_check(&vote, capacity) != 0)
		return line_fail(why, EDIT_ERROR_MALFORMED, "%s: damaged (no vote says such a thing); %s", path, what_to_do);
	*ret_vote = vote;
	return 0;
}

/* ---- The file ---- */

/* Reads up to size bytes. Returns how many, or -1: errno tells. */
static ssize_t read_all(int fd, unsigned char *bytes, size_t size)
{
	size_t done = 0;
	while (done < size) {
		ssize_t got = read(fd, bytes + done, size - done);
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

int votefile_read(const char *path, uint32_t capacity, void *block, struct vote *ret_vote, struct line *why)
{
	/* One byte more shows that there are more. */
	unsigned char *bytes = malloc(FILE_BYTES_MAX + 1);
	if (!bytes)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: no memory", path);
	int error;
	ssize_t size = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		error = EDIT_ERROR_UNKNOWN;
	else if (fd < 0 || (size = read_all(fd, bytes, FILE_BYTES_MAX + 1)) < 0)
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: cannot be read (%s)", path, strerror(errno));
	else
		error = decode(path, bytes, (size_t)size, capacity, block, ret_vote, why);
	if (fd >= 0)
		close(fd);
	free(bytes);
	return error;
}

static bool write_all(int fd, const unsigned char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t got = write(fd, bytes, size);
		if (got < 0)
			return false;
		bytes += got;
		size -= (size_t)got;
	}
	return true;
}

/* A new file of these bytes, on the disk. False: errno tells. */
static bool write_aside(const char *path, const unsigned char *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	bool is_written = write_all(fd, bytes, size) && fsync(fd) == 0;
	int saved = errno;
	bool is_closed = close(fd) == 0;
	if (!is_written)
		errno = saved;
	return is_written && is_closed;
}

/* The names in the folder that path is in are on the disk. False: errno tells. */
static bool sync_folder(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof copy, "%s", path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	bool is_synced = fsync(fd) == 0;
	int saved = errno;
	close(fd);
	errno = saved;
	return is_synced;
}

int votefile_write(const char *path, const struct vote *vote, struct line *why)
{
	char aside[PATH_MAX];
	unsigned char *bytes = malloc(file_bytes((uint64_t)vote->roster.count + vote->accepted.count));
	if (!bytes)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%s: no memory", path);
	size_t size = encode(vote, bytes);
	snprintf(aside, sizeof aside, "%s.partial", path);
	int error = 0;
	if (!write_aside(aside, bytes, size) || rename(aside, path) != 0) {
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: the vote cannot be written (%s)", path, strerror(errno));
		unlink(aside);
	} else if (!sync_folder(path)) {
		error = line_fail(why, EDIT_ERROR_SYSTEM, "%s: the vote is not certain to stay (%s)", path, strerror(errno));
	}
	free(bytes);
	return error;
}

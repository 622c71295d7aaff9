/* What a daemon needs of its surroundings, looked at from time to time. Owns nothing but its lines. */

#include "daemon/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/control.h"
#include "daemon/gate.h"
#include "daemon/log.h"

enum { CALM_US = 10 * 1000 * 1000 }; /* without a refusal for so long, connections are no longer short */

/* Whether the lock that is held is still the one that others find. */
static bool is_lock_there(const struct lock *lock, const char *path)
{
	struct stat held, found;
	return fstat(lock->fd, &held) == 0 && lstat(path, &found) == 0 && held.st_ino == found.st_ino &&
	       held.st_dev == found.st_dev;
}

/* The first file that is missing, in path[size]; NULL: all are there. */
static const char *find_lost(const struct config *config, const struct lock *lock, bool has_run, char *path, size_t size)
{
	static const char *const names[] = {"worker.sock", "segment", "state"};
	struct stat found;
	if (!is_lock_there(lock, config_runtime_path(config, "lock", path, size)))
		return path;
	const char *control = config->control + strlen("ipc://");
	if (control[0] != '@' && lstat(control, &found) != 0)
		return control;
	if (config_text(config, CONTROL_READ_GROUP)[0] &&
	    lstat(config_runtime_path(config, CONTROL_READ_SOCKET, path, size), &found) != 0)
		return path;
	for (size_t i = 0; i < (has_run ? 3 : 1); i++)
		if (lstat(config_runtime_path(config, names[i], path, size), &found) != 0)
			return path;
	return NULL;
}

static void tick_files(struct health *health, const struct config *config, const struct lock *lock, bool has_run)
{
	char path[CONFIG_PATH_MAX];
	const char *lost = find_lost(config, lock, has_run, path, sizeof path);
	bool was_lost = health->lost[0] != 0;
	if (!lost) {
		health->lost[0] = 0;
		return;
	}
	snprintf(health->lost, sizeof health->lost,
		 "%.300s: deleted or replaced under this editd, which its tools and workers may not reach and which after a "
		 "restart could go on from a checkpoint only", lost);
	if (!was_lost)
		log_line(LEVEL_WARNING, "%s", health->lost);
}

static void tick_keys(struct health *health, const struct config *config, const struct transport *transport)
{
	struct dealer_trouble trouble;
	health->keys[0] = 0;
	for (uint32_t rank = 0; rank < config->member_count && !health->keys[0]; rank++)
		if (transport_trouble(transport, rank, &trouble))
			snprintf(health->keys, sizeof health->keys, "peer %s: %s", config->names[rank], trouble.text);
}

static void tick_connections(struct health *health, struct transport *transport, const struct control *control, uint64_t now_us)
{
	int tools[TRANSPORT_KEPT_MAX];
	uint64_t refused = gate_refused();
	if (refused > health->refused) {
		bool was_crowded = health->crowded[0] != 0;
		health->refused = refused;
		health->refused_us = now_us;
		snprintf(health->crowded, sizeof health->crowded,
			 "connections refused, %" PRIu64 " so far: strangers hold all %d descriptors that they may", refused,
			 gate_peer_end());
		if (!was_crowded)
			log_line(LEVEL_WARNING, "%s", health->crowded);
		transport_evict(transport, tools, control_tools(control, tools));
	} else if (health->crowded[0] && now_us - health->refused_us >= CALM_US) {
		health->crowded[0] = 0;
		log_line(LEVEL_NOTICE, "connections are no longer refused, %" PRIu64 " were", refused);
	}
}

void health_tick(struct health *health, const struct config *config, const struct lock *lock, bool has_run,
		 struct transport *transport, const struct control *control, uint64_t now_us)
{
	tick_files(health, config, lock, has_run);
	tick_keys(health, config, transport);
	tick_connections(health, transport, control, now_us);
}

/* How many threads the process may keep busy. */

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "core/base.h"
#include "worker/threads.h"

/* Processors' worth of time that one control group grants (cpu.max: "quota period" or "max period"); infinity if it
 * sets no limit. */
static double group_quota(const char *groups, const char *group)
{
	char path[8192];
	double quota, period, allowed = INFINITY;
	snprintf(path, sizeof(path), "%s%s/cpu.max", groups, group);
	FILE *file = fopen(path, "re");
	if (!file)
		return INFINITY;
	if (fscanf(file, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
		allowed = quota / period;
	fclose(file);
	return allowed;
}

/* The tightest quota on the way from our group to the root of the hierarchy. */
static double quota_of_groups(const char *groups, const char *membership)
{
	char line[4096];
	double allowed = INFINITY;
	FILE *file = fopen(membership, "re");
	if (!file)
		return INFINITY;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::/", 4))
			continue;
		line[strcspn(line, "\n")] = 0;
		char *group = line + 3;
		for (char *slash; (slash = strrchr(group, '/')); *slash = 0)
			allowed = fmin(allowed, group_quota(groups, group));
	}
	fclose(file);
	return fmin(allowed, group_quota(groups, ""));
}

unsigned threads_allowed_by(const char *groups, const char *membership)
{
	cpu_set_t set;
	unsigned count = 1;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		count = (unsigned)CPU_COUNT(&set);
	double quota = quota_of_groups(groups, membership);
	if (quota < count)
		count = (unsigned)quota;
	return count ? count : 1;
}

unsigned threads_allowed(void)
{
	return threads_allowed_by("/sys/fs/cgroup", "/proc/self/cgroup");
}

/* Messages to systemd. Owns nothing. */

#include "daemon/notify.h"

#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

void notify_init(struct notify *notify)
{
	*notify = (struct notify){0};
	uint64_t limit_us = 0;
	if (sd_watchdog_enabled(0, &limit_us) > 0)
		notify->watchdog_us = limit_us / 3;
}

void notify_ready(struct notify *notify)
{
	(void)notify;
	sd_notify(0, "READY=1");
}

void notify_status(struct notify *notify, const char *status)
{
	if (strcmp(notify->status, status) == 0)
		return;
	snprintf(notify->status, sizeof notify->status, "%s", status);
	sd_notifyf(0, "STATUS=%s", notify->status);
}

uint64_t notify_alive(struct notify *notify, uint64_t now_us)
{
	if (notify->watchdog_us == 0)
		return UINT64_MAX;
	if (notify->fed_us == 0 || now_us - notify->fed_us >= notify->watchdog_us) {
		sd_notify(0, "WATCHDOG=1");
		notify->fed_us = now_us;
	}
	return notify->fed_us + notify->watchdog_us;
}

void notify_stopping(struct notify *notify)
{
	notify_status(notify, "stopping");
	sd_notify(0, "STOPPING=1");
}

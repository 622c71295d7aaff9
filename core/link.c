/* The ring stream's two ends at one member: numbering, acknowledgement, resend. Never looks at contents, never blocks. */

#include <string.h>

#include "core/link.h"

#define RETRY_DOUBLINGS 8 /* the interval grows to 8 times the setting */

static size_t frame_bytes(const struct frame *frame)
{
	return frame->kind == MESSAGE_CHUNK ? frame->chunk.count * sizeof(float) : 0;
}

size_t link_size(size_t capacity)
{
	return capacity * sizeof(struct frame);
}

void link_init(struct link *link, void *block, size_t capacity, uint64_t retry_us)
{
	CHECK(capacity > 0);
	CHECK(retry_us > 0);
	memset(link, 0, sizeof *link);
	link->waiting = block;
	link->waiting_capacity = capacity;
	link->retry_us = retry_us;
	link_reset_right(link);
	link_reset_left(link);
}

void link_reset_right(struct link *link)
{
	link->waiting_head = link->waiting_count = 0;
	link->acknowledged = link->cursor = link->end = 0;
	link->flight_bytes = 0;
	link->retry_now_us = link->retry_us;
	link->resend_served = false;
}

void link_reset_left(struct link *link)
{
	link->expected = link->reported = 0;
	link->unreported_bytes = 0;
	link->report_at_us = UINT64_MAX;
	link->gap = link->gap_reported = false;
}

/* ---- To the right ---- */

int link_push(struct link *link, const struct frame *frame)
{
	CHECK(frame->kind != MESSAGE_CHUNK);
	if (link->waiting_count == link->waiting_capacity)
		return EDIT_ERROR_FULL;
	link->waiting[(link->waiting_head + link->waiting_count++) % link->waiting_capacity] = *frame;
	return 0;
}

bool link_has_room(const struct link *link, size_t payload_bytes, size_t window_bytes)
{
	if (link->end == link->acknowledged)
		return true;
	return link->end - link->acknowledged < LINK_FLIGHT_MAX && link->flight_bytes + payload_bytes <= window_bytes;
}

void link_launch(struct link *link, const struct frame *frame, uint64_t now_us)
{
	CHECK(link->end - link->acknowledged < LINK_FLIGHT_MAX);
	if (link->end == link->acknowledged)
		link->progress_us = now_us;
	link->flight[link->end++ % LINK_FLIGHT_MAX] = *frame;
	link->flight_bytes += frame_bytes(frame);
}

bool link_launch_waiting(struct link *link, size_t window_bytes, uint64_t now_us)
{
	if (link->waiting_count == 0 || !link_has_room(link, 0, window_bytes))
		return false;
	link_launch(link, &link->waiting[link->waiting_head], now_us);
	link->waiting_head = (link->waiting_head + 1) % link->waiting_capacity;
	link->waiting_count--;
	return true;
}

const struct frame *link_next(struct link *link, uint64_t *ret_sequence)
{
	if (link->cursor == link->end)
		return NULL;
	*ret_sequence = link->cursor;
	const struct frame *frame = &link->flight[link->cursor++ % LINK_FLIGHT_MAX];
	link->sent_bytes += frame_bytes(frame);
	return frame;
}

static void go_back(struct link *link)
{
	link->sent_again += link->cursor - link->acknowledged;
	link->cursor = link->acknowledged;
}

bool link_acknowledge(struct link *link, uint64_t received, bool resend, uint64_t now_us)
{
	if (received < link->acknowledged || received > link->end)
		return false;
	bool moved = received > link->acknowledged;
	for (; link->acknowledged < received; link->acknowledged++)
		link->flight_bytes -= frame_bytes(&link->flight[link->acknowledged % LINK_FLIGHT_MAX]);
	link->cursor = u64_max(link->cursor, link->acknowledged);
	if (moved) {
		link->progress_us = now_us;
		link->retry_now_us = link->retry_us;
	}
	if (resend && !(link->resend_served && link->resent_for == received)) {
		link->resend_served = true;
		link->resent_for = received;
		go_back(link);
	}
	return moved;
}

void link_retry(struct link *link, uint64_t now_us)
{
	if (now_us < link_retry_at(link))
		return;
	go_back(link);
	link->progress_us = now_us;
	link->retry_now_us = u64_min(2 * link->retry_now_us, RETRY_DOUBLINGS * link->retry_us);
}

uint64_t link_retry_at(const struct link *link)
{
	return link->acknowledged == link->end ? UINT64_MAX : link->progress_us + link->retry_now_us;
}

/* ---- From the left ---- */

bool link_accept(struct link *link, uint64_t sequence, size_t payload_bytes, size_t window_bytes, uint64_t now_us)
{
	link->report_at_us = u64_min(link->report_at_us, now_us + LINK_ACK_DELAY_US);
	if (sequence != link->expected) {
		link->dropped++;
		link->gap |= sequence > link->expected;
		return false;
	}
	link->expected++;
	link->gap = link->gap_reported = false;
	link->unreported_bytes += payload_bytes;
	if (link->expected - link->reported >= LINK_ACK_FRAMES || link->unreported_bytes >= window_bytes / 4)
		link->report_at_us = now_us;
	return true;
}

bool link_must_report(const struct link *link, uint64_t now_us)
{
	return now_us >= link->report_at_us || (link->gap && !link->gap_reported);
}

void link_report(struct link *link, uint64_t *ret_received, bool *ret_resend)
{
	*ret_received = link->expected;
	*ret_resend = link->gap && !link->gap_reported;
	link->gap_reported |= link->gap;
	link->reported = link->expected;
	link->unreported_bytes = 0;
	link->report_at_us = UINT64_MAX;
}

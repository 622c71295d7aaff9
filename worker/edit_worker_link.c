/* Connecting, the handshake, waiting and connecting again. */

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker/edit_worker_link.h"

enum {
	SLICE_US = 250000,       /* a wait looks up this often, for an interrupt */
	RETRY_US = 100000,       /* between two tries to connect */
	HANDSHAKE_US = 30000000 /* a daemon that takes longer to answer is taken for gone */
};

uint64_t link_now_us(void)
{
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool link_is_stopped(const struct edit_worker *worker)
{
	if (atomic_load_explicit(&worker->interrupted, memory_order_relaxed))
		return true;
	return worker->segment.header && atomic_load_explicit(&worker->segment.header->stop, memory_order_acquire);
}

void link_close(struct edit_worker *worker)
{
	if (worker->socket >= 0)
		close(worker->socket);
	worker->socket = -1;
}

/* Sleeps until fd is ready for events (fd -1: not at all), but no longer than a slice and not beyond deadline_us. */
static void slice_wait(int fd, short events, uint64_t slice_us, uint64_t deadline_us)
{
	uint64_t now_us = link_now_us();
	uint64_t wait_us = u64_min(slice_us, deadline_us > now_us ? deadline_us - now_us : 0);
	struct pollfd ready = {.fd = fd, .events = events};
	/* Whatever poll says, the caller looks for itself. */
	(void)poll(&ready, 1, (int)((wait_us + 999) / 1000));
}

/* Whether a wait until deadline_us may go on: EDIT_WORKER_OK, _STOP or _UNREACHABLE. */
static int wait_state(const struct edit_worker *worker, uint64_t deadline_us)
{
	if (atomic_load_explicit(&worker->interrupted, memory_order_relaxed))
		return EDIT_WORKER_STOP;
	return link_now_us() >= deadline_us ? EDIT_WORKER_UNREACHABLE : EDIT_WORKER_OK;
}

/* ---- Handshake ---- */

/* One connection. EDIT_WORKER_UNREACHABLE: nobody listens (now); _SYSTEM: there is something else wrong with the
 * path. */
static int socket_open(struct edit_worker *worker)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		line_fail(&worker->error, EDIT_ERROR_SYSTEM, "socket: %s", strerror(errno));
		return EDIT_WORKER_SYSTEM;
	}
	if (connect(fd, (const struct sockaddr *)&worker->address, sizeof(worker->address)) == 0) {
		worker->socket = fd;
		return EDIT_WORKER_OK;
	}
	int cause = errno;
	close(fd);
	line_fail(&worker->error, EDIT_ERROR_UNREACHABLE, "no daemon on %s (%s); start editd", worker->address.sun_path,
		  strerror(cause));
	bool is_absent = cause == ENOENT || cause == ECONNREFUSED || cause == EAGAIN || cause == EINTR;
	return is_absent ? EDIT_WORKER_UNREACHABLE : EDIT_WORKER_SYSTEM;
}

/* Sends ATTACH and the description. */
static int describe(struct edit_worker *worker, uint64_t deadline_us)
{
	size_t offset = 0;
	bool is_announced = false;
	while (!is_announced || offset < worker->encoded_bytes) {
		int error = is_announced
				    ? bell_send_part(worker->socket, worker->encoded, worker->encoded_bytes, &offset)
				    : bell_send(worker->socket, BELL_ATTACH, worker->encoded_bytes, 0, NULL, -1);
		if (!error) {
			is_announced = true;
			continue;
		}
		/* A daemon that refuses may close before it has read everything; its reason waits to be read. */
		if (error == EDIT_ERROR_LOST)
			return EDIT_WORKER_OK;
		int state = wait_state(worker, deadline_us);
		if (state)
			return state;
		slice_wait(worker->socket, POLLOUT, SLICE_US, deadline_us);
	}
	return EDIT_WORKER_OK;
}

/* Whether two descriptors are the same file. */
static bool file_is_same(int a, int b)
{
	struct stat status_a, status_b;
	return fstat(a, &status_a) == 0 && fstat(b, &status_b) == 0 && status_a.st_dev == status_b.st_dev &&
	       status_a.st_ino == status_b.st_ino;
}

/* Takes the segment's descriptor over: maps it the first time, compares it later. */
static int segment_take(struct edit_worker *worker, int fd)
{
	if (worker->segment.header) {
		bool is_same = file_is_same(fd, worker->segment.mapping.fd);
		close(fd);
		if (is_same)
			return EDIT_WORKER_OK;
		line_fail(&worker->error, EDIT_ERROR_REFUSED, "the daemon is back with another segment; start the worker anew");
		return EDIT_WORKER_REFUSED;
	}
	struct line why;
	struct segment segment;
	if (segment_adopt(fd, &segment, &why)) {
		worker->error = why;
		return EDIT_WORKER_SYSTEM;
	}
	bool is_ours = segment.header->description_hash == worker->description_hash &&
		       segment.layer_count == worker->description.layer_count &&
		       segment.inner_factor == worker->description.inner_factor;
	for (size_t i = 0; is_ours && i < segment.layer_count; i++)
		is_ours = segment_whole_size(&segment, i) == worker->description.layers[i].size;
	if (!is_ours) {
		segment_close(&segment);
		line_fail(&worker->error, EDIT_ERROR_REFUSED, "the daemon's segment belongs to another description");
		return EDIT_WORKER_REFUSED;
	}
	worker->segment = segment;
	return EDIT_WORKER_OK;
}

static int refusal_tell(struct edit_worker *worker, const struct segment_bell *bell)
{
	line_fail(&worker->error, EDIT_ERROR_REFUSED, "the daemon refuses: %s",
		  text_is_plain(bell->text, strlen(bell->text)) ? bell->text : "(no plain text)");
	return EDIT_WORKER_REFUSED;
}

/* Waits for the answer. */
static int answer_take(struct edit_worker *worker, uint64_t deadline_us)
{
	for (;;) {
		struct segment_bell bell;
		int fd;
		int error = bell_receive(worker->socket, &bell, &fd);
		if (error == EDIT_ERROR_BUSY) {
			int state = wait_state(worker, deadline_us);
			if (state) {
				line_fail(&worker->error, EDIT_ERROR_UNREACHABLE, "the daemon on %s does not answer",
					  worker->address.sun_path);
				return state;
			}
			slice_wait(worker->socket, POLLIN, SLICE_US, deadline_us);
			continue;
		}
		if (error) {
			line_fail(&worker->error, error, "the daemon on %s: %s", worker->address.sun_path,
				  error == EDIT_ERROR_REFUSED ? "speaks another version" : edit_error_text(error));
			return error == EDIT_ERROR_LOST ? EDIT_WORKER_UNREACHABLE : EDIT_WORKER_REFUSED;
		}
		if (bell.kind == BELL_ATTACHED && fd >= 0) {
			worker->is_resumed = worker->is_attached ? worker->is_resumed : bell.flags & BELL_FLAG_RESUMED;
			return segment_take(worker, fd);
		}
		if (fd >= 0)
			close(fd);
		if (bell.kind == BELL_REFUSED)
			return refusal_tell(worker, &bell);
		line_fail(&worker->error, EDIT_ERROR_MALFORMED, "the daemon on %s answers with neither segment nor refusal",
			  worker->address.sun_path);
		return EDIT_WORKER_REFUSED;
	}
}

/* One try: connect, describe, take the answer, tell. No connection is left after a failure. */
static int link_try(struct edit_worker *worker, uint64_t deadline_us)
{
	int result = socket_open(worker);
	if (result)
		return result;
	uint64_t answer_us = u64_min(deadline_us, link_now_us() + HANDSHAKE_US);
	result = describe(worker, answer_us);
	if (!result)
		result = answer_take(worker, answer_us);
	if (result)
		link_close(worker);
	else if (worker->is_attached)
		link_tell(worker);
	return result;
}

int link_open(struct edit_worker *worker, uint64_t deadline_us)
{
	for (;;) {
		int result = link_try(worker, deadline_us);
		if (result != EDIT_WORKER_UNREACHABLE)
			return result;
		int state = wait_state(worker, deadline_us);
		if (state)
			return state;
		slice_wait(-1, 0, RETRY_US, deadline_us);
	}
}

/* ---- Ringing and waiting ---- */

void link_ring(struct edit_worker *worker, enum segment_bell_kind kind, uint64_t value)
{
	while (worker->socket >= 0) {
		int error = bell_send(worker->socket, kind, value, 0, NULL, -1);
		if (!error)
			return;
		if (error == EDIT_ERROR_LOST || link_is_stopped(worker))
			link_close(worker);
		else
			slice_wait(worker->socket, POLLOUT, SLICE_US, LINK_FOREVER);
	}
}

void link_tell(struct edit_worker *worker)
{
	const struct segment *segment = &worker->segment;
	bool is_offered = false;
	if (worker->is_ready)
		link_ring(worker, BELL_READY, 0);
	for (size_t i = 0; i < segment->layer_count; i++) {
		if (atomic_load_explicit(&segment->layers[i].owner, memory_order_acquire) != SEGMENT_DAEMON)
			continue;
		worker->layers[i].wanted_offer = 0;
		if (worker->layers[i].is_restoring)
			link_ring(worker, BELL_RESTORE, i);
		else
			is_offered = true;
	}
	bool is_handing = atomic_load_explicit(&segment->header->handed_step, memory_order_relaxed) >
			  atomic_load_explicit(&segment->header->step, memory_order_relaxed);
	if (is_offered && atomic_load_explicit(&segment->header->offers, memory_order_relaxed) > 0)
		link_ring(worker, is_handing ? BELL_GRADIENT : BELL_OFFER, 0);
	if (worker->is_finished)
		link_ring(worker, BELL_FINISHED, 0);
}

/* Takes all bells that are there; closes the connection if it is at its end. */
static int bells_take(struct edit_worker *worker)
{
	while (worker->socket >= 0) {
		struct segment_bell bell;
		int fd;
		int error = bell_receive(worker->socket, &bell, &fd);
		if (error == EDIT_ERROR_BUSY)
			return EDIT_WORKER_OK;
		if (error) {
			link_close(worker);
			continue;
		}
		if (fd >= 0)
			close(fd);
		if (bell.kind == BELL_REFUSED) {
			link_close(worker);
			return refusal_tell(worker, &bell);
		}
		/* PUBLISH: the caller looks at the segment's words. */
	}
	return EDIT_WORKER_OK;
}

/* A try to connect again; that the daemon is not back yet is no failure, and neither is an interrupt. In a mesh there is no way
 * back: the next daemon begins the replica again from the last round, and what this worker waits for will not come. */
static int link_return(struct edit_worker *worker)
{
	if (mesh_is_cut(worker) && !worker->is_finished && !link_is_stopped(worker)) {
		line_fail(&worker->error, EDIT_ERROR_LOST,
			  "the daemon of a mesh has ended; start the worker anew, it goes on from the last round");
		return EDIT_WORKER_SYSTEM;
	}
	int result = link_try(worker, LINK_FOREVER);
	return result == EDIT_WORKER_UNREACHABLE || result == EDIT_WORKER_STOP ? EDIT_WORKER_OK : result;
}

int link_wait(struct edit_worker *worker)
{
	if (worker->socket < 0) {
		slice_wait(-1, 0, RETRY_US, LINK_FOREVER);
		return link_return(worker);
	}
	slice_wait(worker->socket, POLLIN, SLICE_US, LINK_FOREVER);
	return bells_take(worker);
}

int link_poll(struct edit_worker *worker)
{
	int result = bells_take(worker);
	return result || worker->socket >= 0 ? result : link_return(worker);
}

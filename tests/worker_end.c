/* A daemon as far as a worker can see one. */

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "tests/worker_end.h"

void worker_end_init(struct worker_end *end)
{
	*end = (struct worker_end){.hold_layer = -1, .verdict = VERDICT_ACCEPTED, .interval = 2, .listener = -1,
				   .connection = -1};
	snprintf(end->socket_path, sizeof(end->socket_path), "%s", scratch_path("worker.sock"));
	snprintf(end->segment_path, sizeof(end->segment_path), "%s", scratch_path("segment"));
	unlink(end->socket_path);
	unlink(end->segment_path);
}

static void connection_close(struct worker_end *end)
{
	if (end->connection >= 0)
		close(end->connection);
	end->connection = -1;
}

void worker_end_ring(struct worker_end *end)
{
	if (end->connection >= 0)
		bell_send(end->connection, BELL_PUBLISH, 0, 0, NULL, -1);
}

/* Hands the mean back in the place of every gradient that is handed over and not held: half of it. */
static void gradients_publish(struct worker_end *end)
{
	struct segment_header *header = end->segment.header;
	int hold_layer = atomic_load(&end->hold_layer);
	for (size_t i = end->segment.layer_count; i-- > 0;) {
		struct segment_layer *layer = &end->segment.layers[i];
		bool is_held = hold_layer >= 0 && (int)i <= hold_layer;
		if (is_held || atomic_load(&layer->owner) != SEGMENT_DAEMON || segment_is_torn(&end->segment, i))
			continue;
		for (size_t j = 0; j < segment_layer_size(&end->segment, i); j++)
			segment_gradient(&end->segment, i)[j] *= 0.5F;
		atomic_store(&layer->verdict, atomic_load(&end->verdict));
		atomic_store(&layer->round, atomic_load(&header->handed_step));
		atomic_store(&layer->owner, SEGMENT_WORKER);
		worker_end_ring(end);
	}
}

/* Hands every layer back that is offered and not held. */
static void layers_publish(struct worker_end *end)
{
	struct segment_header *header = end->segment.header;
	if (atomic_load(&header->handed_step) > atomic_load(&header->step)) {
		gradients_publish(end);
		return;
	}
	uint64_t round = atomic_load(&header->offers);
	int hold_layer = atomic_load(&end->hold_layer);
	for (size_t i = 0; i < end->segment.layer_count && (hold_layer < 0 || (int)i < hold_layer); i++) {
		struct segment_layer *layer = &end->segment.layers[i];
		if (atomic_load(&layer->owner) != SEGMENT_DAEMON || atomic_load(&header->offers) == 0)
			continue;
		for (size_t j = 0; j < segment_layer_size(&end->segment, i); j++)
			segment_theta(&end->segment, i)[j] += 1;
		if (i + 1 == end->segment.layer_count) {
			atomic_store(&header->offer_step, atomic_load(&header->offered_step) + atomic_load(&end->interval));
			atomic_store(&header->round, round);
		}
		atomic_store(&layer->verdict, atomic_load(&end->verdict));
		atomic_store(&layer->round, round);
		atomic_store(&layer->owner, SEGMENT_WORKER);
		if (i + 1 == end->segment.layer_count && atomic_load(&end->is_last))
			atomic_store(&header->stop, 1);
		worker_end_ring(end);
	}
}

/* Receives the description behind ATTACH and answers. */
static void worker_attach(struct worker_end *end, uint64_t size_bytes)
{
	struct line why;
	char *bytes = malloc(size_bytes);
	size_t offset = 0;
	int error = EDIT_ERROR_BUSY;
	while (offset < size_bytes && !atomic_load(&end->is_dying)) {
		error = bell_receive_part(end->connection, bytes, size_bytes, &offset);
		if (error == EDIT_ERROR_BUSY)
			usleep(1000);
		else
			assert_int_equal(error, 0);
	}
	description_fini(&end->description);
	if (offset == size_bytes)
		assert_int_equal(description_decode(bytes, size_bytes, &end->description, &why), 0);
	atomic_fetch_add(&end->attaches, 1);
	if (atomic_load(&end->is_refusing)) {
		bell_send(end->connection, BELL_REFUSED, 0, 0, "another worker is attached (pid 1)", -1);
	} else if (offset == size_bytes) {
		uint64_t hash = description_hash(bytes, size_bytes);
		segment_close(&end->segment);
		bool is_new = segment_open(end->segment_path, &end->segment, &why) == EDIT_ERROR_UNKNOWN;
		if (is_new) {
			assert_int_equal(
				segment_create(end->segment_path, &end->description, hash,
					       &(struct segment_seat){.rank = 1, .count = 4, .shards = 1}, &end->segment, &why), 0);
			atomic_store(&end->segment.header->offer_step, atomic_load(&end->interval));
		}
		if (atomic_load(&end->is_damaging))
			end->segment.header->theta_offset += 64;
		bell_send(end->connection, BELL_ATTACHED, end->segment.mapping.size_bytes, is_new ? 0 : BELL_FLAG_RESUMED, NULL,
			  end->segment.mapping.fd);
	}
	free(bytes);
}

static void layer_restore(struct worker_end *end, uint64_t index)
{
	assert_true(index < end->segment.layer_count);
	for (size_t j = 0; j < segment_layer_size(&end->segment, index); j++)
		segment_theta(&end->segment, index)[j] = 42;
	atomic_store(&end->segment.layers[index].owner, SEGMENT_WORKER);
	atomic_fetch_add(&end->restores, 1);
	worker_end_ring(end);
}

static void bell_take(struct worker_end *end, const struct segment_bell *bell)
{
	switch (bell->kind) {
	case BELL_ATTACH: worker_attach(end, bell->value); break;
	case BELL_READY: atomic_fetch_add(&end->readies, 1); break;
	case BELL_OFFER: atomic_fetch_add(&end->offers, 1); break;
	case BELL_GRADIENT: atomic_fetch_add(&end->gradients, 1); break;
	case BELL_WANT: atomic_fetch_add(&end->wants[bell->value % 8], 1); break;
	case BELL_RESTORE: layer_restore(end, bell->value); break;
	case BELL_FINISHED: atomic_fetch_add(&end->finishes, 1); break;
	default: fail_msg("bell %u", bell->kind);
	}
}

static void connection_read(struct worker_end *end)
{
	struct segment_bell bell;
	int fd;
	int error = bell_receive(end->connection, &bell, &fd);
	if (error == EDIT_ERROR_LOST) {
		atomic_fetch_add(&end->losses, 1);
		connection_close(end);
	} else if (error != EDIT_ERROR_BUSY) {
		assert_int_equal(error, 0);
		assert_int_equal(fd, -1);
		bell_take(end, &bell);
	}
}

static void *worker_end_serve(void *argument)
{
	struct worker_end *end = argument;
	while (!atomic_load(&end->is_dying)) {
		struct pollfd ready[2] = {{.fd = end->connection < 0 ? end->listener : -1, .events = POLLIN},
					  {.fd = atomic_load(&end->is_silent) ? -1 : end->connection, .events = POLLIN}};
		poll(ready, 2, 2);
		if (ready[0].revents)
			end->connection = accept4(end->listener, NULL, NULL, SOCK_CLOEXEC);
		if (ready[1].revents)
			connection_read(end);
		if (end->segment.header)
			layers_publish(end);
	}
	connection_close(end);
	close(end->listener);
	segment_close(&end->segment);
	return NULL;
}

void worker_end_start(struct worker_end *end)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path, end->socket_path, sizeof(end->socket_path));
	unlink(end->socket_path);
	end->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(end->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(end->listener, 4), 0);
	atomic_store(&end->is_dying, 0);
	assert_int_equal(pthread_create(&end->thread, NULL, worker_end_serve, end), 0);
}

void worker_end_kill(struct worker_end *end)
{
	atomic_store(&end->is_dying, 1);
	pthread_join(end->thread, NULL);
	description_fini(&end->description);
}

void worker_end_await(const _Atomic unsigned *word, unsigned value)
{
	for (int i = 0; i < 10000; i++) {
		if (atomic_load(word) >= value)
			return;
		usleep(1000);
	}
	fail_msg("waited for %u, got %u", value, atomic_load(word));
}

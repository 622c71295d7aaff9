/* Segment, mappings and doorbell: the layout byte by byte, damage refused field by field, no room told. */

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/segment.h"
#include "tests/scratch.h"

static struct description description;
static struct line why;
static char path[128];

static int all_make(void **state)
{
	static const uint64_t dims[2] = {10, 10}, one[1] = {1}, none[1] = {0};
	if (scratch_make(state))
		return -1;
	snprintf(path, sizeof(path), "%s", scratch_path("segment"));
	description_init(&description);
	description_add_layer(&description, "first", NULL);
	description_add_tensor(&description, "a", dims, 2, NULL);
	description_add_layer(&description, "empty", NULL);
	description_add_tensor(&description, "b", none, 1, NULL);
	description_add_layer(&description, "last", NULL);
	description_add_tensor(&description, "c", one, 1, NULL);
	return description_set_inner(&description, 2, NULL);
}

static const struct segment_seat alone = {.count = 1, .shards = 1};

static int all_remove(void **state)
{
	description_fini(&description);
	return scratch_remove(state);
}

static void segment_make(struct segment *segment)
{
	const struct segment_seat seat = {.rank = 3, .count = 4, .shards = 1};
	assert_int_equal(segment_create(path, &description, 0x1122334455667788, &seat, segment, &why), 0);
}

static void layout_is_as_documented(void **state)
{
	(void)state;
	struct segment segment;
	segment_make(&segment);
	const struct segment_header *header = segment.header;
	assert_memory_equal(header, "EDITSEG1", 8);
	assert_int_equal(header->version, 5);
	assert_int_equal(header->layer_count, 3);
	assert_int_equal(header->layers_offset, 4096);
	assert_int_equal(header->steps_offset, 4096 + 3 * sizeof(struct segment_layer));
	assert_int_equal(header->theta_offset, 40960); /* 4096 + 384 + 1024 x 32, up to a page */
	assert_int_equal(header->inner_offset, 45056);
	assert_int_equal(header->gradient_offset, 49152);
	assert_int_equal(header->size_bytes, 53248);
	assert_int_equal(header->inner_factor, 2);
	assert_int_equal(header->member_rank, 3);
	assert_int_equal(header->member_count, 4);
	assert_int_equal(header->shards, 1);
	assert_int_equal(header->column, 0);
	assert_int_equal(header->slot_size, 0);
	assert_int_equal(header->slots_offset, 53248);
	assert_true(header->description_hash == 0x1122334455667788);
	assert_true(atomic_load(&header->offer_step) == UINT64_MAX);
	assert_int_equal(segment.layers[0].theta_offset, 40960);
	assert_int_equal(segment.layers[1].theta_offset, 40960 + 448); /* 400 bytes, up to 64 */
	assert_int_equal(segment.layers[2].theta_offset, 40960 + 448);
	assert_int_equal(segment.layers[2].inner_offset, 45056 + 832); /* 800 bytes, up to 64 */
	assert_int_equal(segment.layers[2].gradient_offset, 49152 + 448);
	struct stat status;
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_size, 53248);
	assert_int_equal(status.st_mode & 0777, 0660);
	assert_true((uint64_t)status.st_blocks * 512 >= 53248); /* reserved */
	assert_int_equal(segment_size(&description, 1), 53248);
	segment_close(&segment);
	segment_close(&segment);
}

/* Offsets of the words in docs/protocol.md. */
static void words_lie_where_the_document_says(void **state)
{
	(void)state;
	assert_int_equal(offsetof(struct segment_header, description_hash), 104);
	assert_int_equal(offsetof(struct segment_header, offer_step), 128);
	assert_int_equal(offsetof(struct segment_header, stop), 148);
	assert_int_equal(offsetof(struct segment_header, gradients), 156);
	assert_int_equal(offsetof(struct segment_header, handed_step), 224);
	assert_int_equal(offsetof(struct segment_header, inner_step), 256);
	assert_int_equal(offsetof(struct segment_header, sum), 160);
	assert_int_equal(offsetof(struct segment_header, summed), 176);
	assert_int_equal(offsetof(struct segment_header, lead), 184);
	assert_int_equal(offsetof(struct segment_header, sums), 288);
	assert_int_equal(offsetof(struct segment_header, calls), 320);
	assert_int_equal(sizeof(struct segment_call), 64);
	assert_int_equal(offsetof(struct segment_call, done), 24);
	assert_int_equal(offsetof(struct segment_header, step), 192);
	assert_int_equal(offsetof(struct segment_header, final_step), 244);
	assert_int_equal(sizeof(struct segment_layer), 128);
	assert_int_equal(offsetof(struct segment_layer, begun_step), 16);
	assert_int_equal(offsetof(struct segment_layer, size), 32);
	assert_int_equal(sizeof(struct segment_step), 32);
	assert_int_equal(sizeof(struct segment_bell), 256);
}

static void what_one_mapping_writes_another_reads(void **state)
{
	(void)state;
	struct segment a, b, c;
	segment_make(&a);
	for (size_t i = 0; i < 100; i++)
		assert_true(segment_theta(&a, 0)[i] == 0);
	assert_int_equal(segment_layer_size(&a, 0), 100);
	segment_theta(&a, 0)[99] = 7;
	segment_theta(&a, 2)[0] = 8;
	segment_inner(&a, 0)[199] = 9;
	segment_inner(&a, 2)[1] = 10;
	assert_int_equal(segment_open(path, &b, &why), 0);
	assert_int_equal(segment_adopt(dup(a.mapping.fd), &c, &why), 0);
	assert_true(segment_theta(&b, 0)[99] == 7);
	assert_true(segment_theta(&b, 2)[0] == 8);
	assert_true(segment_inner(&c, 0)[199] == 9);
	assert_true(segment_inner(&c, 2)[1] == 10);
	assert_int_equal((uintptr_t)segment_theta(&c, 2) % 64, 0);
	assert_int_equal(atomic_load(&b.layers[1].owner), SEGMENT_WORKER);
	segment_close(&a);
	segment_close(&b);
	segment_close(&c);
}

/* 100, 0 and 1 elements in 3 pieces: 34 33 33, 0, 1 0 0. */
static void segment_of_a_mesh_holds_pieces_and_slots(void **state)
{
	(void)state;
	static const size_t sizes[3][3] = {{34, 0, 1}, {33, 0, 0}, {33, 0, 0}}, firsts[3] = {0, 34, 67};
	for (uint32_t column = 0; column < 3; column++) {
		struct segment segment;
		const struct segment_seat seat = {.rank = 3 + column, .count = 6, .column = column, .shards = 3};
		assert_int_equal(segment_create(path, &description, 1, &seat, &segment, &why), 0);
		for (size_t l = 0; l < 3; l++) {
			assert_int_equal(segment_layer_size(&segment, l), sizes[column][l]);
			assert_int_equal(segment_whole_size(&segment, l), description.layers[l].size);
		}
		assert_int_equal(segment_first(&segment, 0), firsts[column]);
		assert_int_equal(segment.slot_size, 100);
		/* 448 bytes each, the last one within the file */
		assert_ptr_equal(segment_slot(&segment, 1), segment_slot(&segment, 0) + 112);
		segment_slot(&segment, SEGMENT_SLOT_COUNT - 1)[99] = 1;
		assert_true(segment.mapping.size_bytes <= segment_size(&description, 3));
		segment_close(&segment);
	}
}

static void segment_without_inner_state_has_none(void **state)
{
	(void)state;
	struct segment segment;
	description.inner_factor = 0;
	segment_make(&segment);
	assert_null(segment_inner(&segment, 0));
	assert_int_equal(segment.header->gradient_offset, segment.header->inner_offset);
	segment_close(&segment);
	description.inner_factor = 2;
}

/* Writes bytes into a good file at an offset; the file must then be refused. */
static void spoil(size_t offset, const void *bytes, size_t count)
{
	struct segment segment, got;
	segment_make(&segment);
	char *at = (char *)segment.mapping.base + offset;
	if (memcmp(at, bytes, count) != 0) {
		memcpy(at, bytes, count);
		int error = segment_open(path, &got, &why);
		if (error != EDIT_ERROR_MALFORMED)
			fail_msg("offset %zu: %d", offset, error);
		assert_memory_equal(why.text, "segment: ", 9);
	}
	segment_close(&segment);
}

static void every_damaged_word_is_refused(void **state)
{
	(void)state;
	static const uint64_t words[] = {0, 1, 64, 4096, UINT64_C(1) << 40, UINT64_C(1) << 62, UINT64_MAX - 63, UINT64_MAX};
	for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
		for (size_t offset = 0; offset < 72; offset += 8) /* up to slots_offset */
			if (offset != 8)
				spoil(offset, &words[w], 8);
		for (size_t layer = 0; layer < 3; layer++)
			for (size_t offset = 32; offset < 72; offset += 8) /* sizes and offsets */
				spoil(4096 + layer * 128 + offset, &words[w], 8);
		spoil(96, &words[w], 8); /* slot_size */
	}
	static const uint32_t halves[] = {0, 5000, UINT32_C(1) << 31, UINT32_MAX};
	for (size_t h = 0; h < sizeof(halves) / sizeof(halves[0]); h++) {
		spoil(8, &halves[h], 4);          /* version */
		spoil(12, &halves[h], 4);         /* layer_count */
		if (halves[h] > 8)
			spoil(72, &halves[h], 4); /* inner_factor */
		spoil(80, &halves[h], 4);         /* member_count */
		spoil(84, &halves[h], 4);         /* shards */
		spoil(88, &halves[h], 4);         /* column */
		if (halves[h] > 3)
			spoil(76, &halves[h], 4); /* member_rank */
		for (size_t layer = 0; layer < 3; layer++)
			spoil(4096 + layer * 128, &halves[h], 4); /* owner */
	}
}

static void cut_and_foreign_files_are_refused(void **state)
{
	(void)state;
	struct segment segment, got;
	static const off_t sizes[] = {0, 1, 4095, 4096, 8192, 53247};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		segment_make(&segment);
		segment_close(&segment);
		assert_int_equal(truncate(path, sizes[i]), 0);
		assert_int_equal(segment_open(path, &got, &why), EDIT_ERROR_MALFORMED);
	}
	assert_int_equal(truncate(path, 53249), 0);
	assert_int_equal(segment_open(path, &got, &why), EDIT_ERROR_MALFORMED);
	assert_int_equal(segment_open(scratch_path("absent"), &got, &why), EDIT_ERROR_UNKNOWN);
	assert_int_equal(segment_open(scratch_path(""), &got, &why), EDIT_ERROR_SYSTEM); /* a folder */
	assert_int_equal(segment_adopt(open("/dev/null", O_RDWR), &got, &why), EDIT_ERROR_SYSTEM);
	assert_string_equal(why.text, "segment: not a regular file");
}

static void no_room_is_told_with_both_sizes_and_leaves_nothing(void **state)
{
	(void)state;
	static const uint64_t dims[1] = {DESCRIPTION_SIZE_MAX};
	struct description huge;
	struct segment segment;
	description_init(&huge);
	description_add_layer(&huge, "huge", NULL);
	assert_int_equal(description_add_tensor(&huge, "t", dims, 1, &why), 0);
	const char *where = scratch_path("huge");
	assert_int_equal(segment_create(where, &huge, 0, &alone, &segment, &why), EDIT_ERROR_FULL);
	assert_non_null(strstr(why.text, "needs 8.0 TiB, the file system has "));
	assert_int_equal(access(where, F_OK), -1);
	assert_int_equal(access(scratch_path("huge.new"), F_OK), -1);
	description_fini(&huge);
	assert_int_equal(segment_create("/nonexistent/segment", &description, 0, &alone, &segment, &why), EDIT_ERROR_SYSTEM);
}

static void torn_layers_show(void **state)
{
	(void)state;
	struct segment segment;
	segment_make(&segment);
	assert_false(segment_is_torn(&segment, 1));
	atomic_store(&segment.layers[1].begun_step, 5);
	assert_true(segment_is_torn(&segment, 1));
	assert_false(segment_is_torn(&segment, 0));
	atomic_store(&segment.layers[1].ended_step, 5);
	assert_false(segment_is_torn(&segment, 1));
	segment_close(&segment);
}

static void sums_of_steps_take_what_is_still_there(void **state)
{
	(void)state;
	struct segment segment;
	uint64_t tokens;
	double loss;
	segment_make(&segment);
	for (uint64_t step = 0; step < 3000; step++)
		segment.steps[step % SEGMENT_STEP_COUNT] =
			(struct segment_step){.step = step, .tokens = 10, .step_us = 1, .loss = (double)step};
	segment_sum_steps(&segment, 2990, 3000, &tokens, &loss);
	assert_int_equal(tokens, 100);
	assert_true(loss == 2994.5);
	segment_sum_steps(&segment, 0, 3000, &tokens, &loss);
	assert_int_equal(tokens, 10 * SEGMENT_STEP_COUNT);
	segment_sum_steps(&segment, 0, UINT64_MAX, &tokens, &loss); /* ends at once */
	assert_int_equal(tokens, 0);
	assert_true(isnan(loss));
	segment.steps[2999 % SEGMENT_STEP_COUNT].loss = NAN;
	segment_sum_steps(&segment, 2998, 3000, &tokens, &loss);
	assert_int_equal(tokens, 20);
	assert_true(isnan(loss));
	segment_sum_steps(&segment, 5, 5, &tokens, &loss);
	assert_int_equal(tokens, 0);
	segment_close(&segment);
}

/* ---- Mappings ---- */

static void new_mapping_has_its_name_only_after_rename(void **state)
{
	(void)state;
	struct mapping mapping, again;
	char file[128];
	snprintf(file, sizeof(file), "%s", scratch_path("state"));
	assert_int_equal(mapping_create(file, 10000, &mapping, &why), 0);
	assert_int_equal(mapping_open(file, &again, &why), EDIT_ERROR_UNKNOWN);
	memcpy(mapping.base, "kept", 5);
	assert_int_equal(mapping_rename(file, &why), 0);
	mapping_close(&mapping);
	mapping_close(&mapping);
	assert_int_equal(mapping_open_read(file, &again, &why), 0);
	assert_int_equal(again.size_bytes, 10000);
	assert_string_equal(again.base, "kept");
	mapping_close(&again);
	scratch_write("none", "", 0);
	assert_int_equal(mapping_open_read(scratch_path("none"), &again, &why), 0);
	assert_null(again.base);
	mapping_close(&again);
	assert_int_equal(mapping_rename(scratch_path("never made"), &why), EDIT_ERROR_SYSTEM);
}

/* ---- Doorbell ---- */

static void bells_and_descriptors_go_through(void **state)
{
	(void)state;
	int ends[2], fd, file = open(scratch_write("passed", "hello", 5), O_RDONLY);
	struct segment_bell bell;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(bell_receive(ends[1], &bell, &fd), EDIT_ERROR_BUSY);
	assert_int_equal(bell_send(ends[0], BELL_ATTACHED, 99, BELL_FLAG_RESUMED, NULL, file), 0);
	char longer[500];
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	assert_int_equal(bell_send(ends[0], BELL_REFUSED, 0, 0, longer, -1), 0);
	assert_int_equal(bell_receive(ends[1], &bell, &fd), 0);
	assert_int_equal(bell.kind, BELL_ATTACHED);
	assert_int_equal(bell.value, 99);
	assert_int_equal(bell.flags, BELL_FLAG_RESUMED);
	char text[6] = {0};
	assert_int_equal(read(fd, text, 5), 5);
	assert_string_equal(text, "hello");
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	assert_int_equal(bell_receive(ends[1], &bell, &fd), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(strlen(bell.text), BELL_TEXT_MAX);
	close(ends[0]);
	assert_int_equal(bell_receive(ends[1], &bell, &fd), EDIT_ERROR_LOST);
	assert_int_equal(bell_send(ends[1], BELL_OFFER, 0, 0, NULL, -1), EDIT_ERROR_LOST);
	close(ends[1]);
	close(file);
}

static void packets_that_are_no_bells_are_refused(void **state)
{
	(void)state;
	int ends[2], fd;
	struct segment_bell bell, got = {.value = 4711};
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	char noise[1000] = {0};
	static const size_t sizes[] = {1, sizeof(bell) - 1, sizeof(bell) + 1, sizeof(noise)};
	for (size_t i = 0; i < 4; i++) {
		memcpy(noise, &(struct segment_bell){.kind = BELL_OFFER, .version = SEGMENT_VERSION}, 16);
		assert_int_equal(send(ends[0], noise, sizes[i], 0), sizes[i]);
		assert_int_equal(bell_receive(ends[1], &got, &fd), EDIT_ERROR_MALFORMED);
	}
	static const uint32_t kinds[] = {0, BELL_END, UINT32_MAX};
	for (size_t i = 0; i < 3; i++) {
		bell = (struct segment_bell){.kind = kinds[i], .version = SEGMENT_VERSION};
		assert_int_equal(send(ends[0], &bell, sizeof(bell), 0), sizeof(bell));
		assert_int_equal(bell_receive(ends[1], &got, &fd), EDIT_ERROR_MALFORMED);
	}
	bell = (struct segment_bell){.kind = BELL_ATTACH, .version = SEGMENT_VERSION + 1};
	assert_int_equal(send(ends[0], &bell, sizeof(bell), 0), sizeof(bell));
	assert_int_equal(bell_receive(ends[1], &got, &fd), EDIT_ERROR_REFUSED);
	assert_int_equal(got.value, 4711);
	bell = (struct segment_bell){.kind = BELL_REFUSED, .version = SEGMENT_VERSION};
	memset(bell.text, 'x', sizeof(bell.text)); /* no final zero */
	assert_int_equal(send(ends[0], &bell, sizeof(bell), 0), sizeof(bell));
	assert_int_equal(bell_receive(ends[1], &got, &fd), 0);
	assert_int_equal(strlen(got.text), BELL_TEXT_MAX);
	close(ends[0]);
	close(ends[1]);
}

static void descriptors_that_come_uninvited_are_closed(void **state)
{
	(void)state;
	int ends[2], fd, next;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	int first = dup(ends[0]);
	close(first);
	/* Two descriptors with a packet that is no bell: neither may stay open. */
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} passage = {0};
	char byte = 1;
	struct iovec part = {&byte, 1};
	struct msghdr packet = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &passage, .msg_controllen = sizeof(passage)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(header), (int[2]){0, 1}, 2 * sizeof(int));
	assert_int_equal(sendmsg(ends[0], &packet, 0), 1);
	struct segment_bell bell;
	assert_int_equal(bell_receive(ends[1], &bell, &fd), EDIT_ERROR_MALFORMED);
	next = dup(ends[0]);
	assert_int_equal(next, first);
	close(next);
	close(ends[0]);
	close(ends[1]);
}

static void parts_must_be_of_their_size(void **state)
{
	(void)state;
	int ends[2];
	static char bytes[BELL_PART_BYTES + 10], got[BELL_PART_BYTES + 10];
	size_t sent = 0, taken = 0;
	memset(bytes, 'd', sizeof(bytes));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(bell_receive_part(ends[1], got, sizeof(got), &taken), EDIT_ERROR_BUSY);
	while (sent < sizeof(bytes))
		assert_int_equal(bell_send_part(ends[0], bytes, sizeof(bytes), &sent), 0);
	while (taken < sizeof(got))
		assert_int_equal(bell_receive_part(ends[1], got, sizeof(got), &taken), 0);
	assert_memory_equal(got, bytes, sizeof(bytes));
	taken = 0;
	assert_int_equal(send(ends[0], bytes, 10, 0), 10); /* shorter than the first part */
	assert_int_equal(bell_receive_part(ends[1], got, sizeof(got), &taken), EDIT_ERROR_MALFORMED);
	assert_int_equal(send(ends[0], bytes, 11, 0), 11); /* longer than what is left */
	taken = BELL_PART_BYTES;
	assert_int_equal(bell_receive_part(ends[1], got, sizeof(got), &taken), EDIT_ERROR_MALFORMED);
	close(ends[0]);
	assert_int_equal(bell_receive_part(ends[1], got, sizeof(got), &taken), EDIT_ERROR_LOST);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout_is_as_documented),
		cmocka_unit_test(words_lie_where_the_document_says),
		cmocka_unit_test(what_one_mapping_writes_another_reads),
		cmocka_unit_test(segment_of_a_mesh_holds_pieces_and_slots),
		cmocka_unit_test(segment_without_inner_state_has_none),
		cmocka_unit_test(every_damaged_word_is_refused),
		cmocka_unit_test(cut_and_foreign_files_are_refused),
		cmocka_unit_test(no_room_is_told_with_both_sizes_and_leaves_nothing),
		cmocka_unit_test(torn_layers_show),
		cmocka_unit_test(sums_of_steps_take_what_is_still_there),
		cmocka_unit_test(new_mapping_has_its_name_only_after_rename),
		cmocka_unit_test(bells_and_descriptors_go_through),
		cmocka_unit_test(packets_that_are_no_bells_are_refused),
		cmocka_unit_test(descriptors_that_come_uninvited_are_closed),
		cmocka_unit_test(parts_must_be_of_their_size),
	};
	return cmocka_run_group_tests(tests, all_make, all_remove);
}

/* The writer of .safetensors files: what stands in the file, byte by byte, and that a file is whole or not there. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "proto/safetensors.h"

static char folder[] = "/tmp/test_safetensors.XXXXXX";
static char path[64], aside[80];

static int folder_make(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/a.safetensors", folder);
	snprintf(aside, sizeof(aside), "%s.partial", path);
	return 0;
}

static int folder_remove(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static size_t file_read(const char *name, char *bytes, size_t room)
{
	FILE *file = fopen(name, "rb");
	assert_non_null(file);
	size_t size = fread(bytes, 1, room, file);
	fclose(file);
	return size;
}

static const uint64_t dims_matrix[] = {3, 5}, dims_empty[] = {0, 7}, dims_vector[] = {2};
static const float matrix[15] = {1, -2, 3, 0.5f, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const double pair[2] = {0.1, -1e300};
static const uint64_t number = UINT64_MAX;
static const struct safetensors_tensor tensors[] = {
	{.name = "model.\"a\\b\"\n", .type = SAFETENSORS_F32, .dims = dims_matrix, .rank = 2, .data = matrix},
	{.name = "empty", .type = SAFETENSORS_F32, .dims = dims_empty, .rank = 2, .data = NULL},
	{.name = "pair", .type = SAFETENSORS_F64, .dims = dims_vector, .rank = 1, .data = pair},
	{.name = "round", .type = SAFETENSORS_U64, .dims = NULL, .rank = 0, .data = &number},
};

static void expect_tensor(const json_t *header, const char *data, const struct safetensors_tensor *tensor,
			  const char *type, uint64_t begin, uint64_t end)
{
	const json_t *entry = json_object_get(header, tensor->name);
	assert_non_null(entry);
	assert_string_equal(json_string_value(json_object_get(entry, "dtype")), type);
	const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
	assert_int_equal(json_array_size(shape), tensor->rank);
	for (size_t i = 0; i < tensor->rank; i++)
		assert_int_equal(json_integer_value(json_array_get(shape, i)), tensor->dims[i]);
	assert_int_equal(json_integer_value(json_array_get(offsets, 0)), begin);
	assert_int_equal(json_integer_value(json_array_get(offsets, 1)), end);
	if (end > begin)
		assert_memory_equal(data + begin, tensor->data, end - begin);
}

static void file_holds_header_and_tensors(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	assert_int_equal(safetensors_write(&writer, path, tensors, 4), 0);
	char bytes[4096];
	size_t size = file_read(path, bytes, sizeof(bytes));
	uint64_t length;
	memcpy(&length, bytes, 8);
	assert_int_equal((8 + length) % 8, 0);
	assert_int_equal(size, 8 + length + 60 + 16 + 8);
	json_error_t error;
	json_t *header = json_loadb(bytes + 8, length, JSON_REJECT_DUPLICATES, &error);
	assert_non_null(header);
	assert_int_equal(json_object_size(header), 5);
	assert_string_equal(json_string_value(json_object_get(json_object_get(header, "__metadata__"), "format")), "pt");
	const char *data = bytes + 8 + length;
	expect_tensor(header, data, &tensors[0], "F32", 0, 60);
	expect_tensor(header, data, &tensors[1], "F32", 60, 60);
	expect_tensor(header, data, &tensors[2], "F64", 60, 76);
	expect_tensor(header, data, &tensors[3], "U64", 76, 84);
	json_decref(header);
	assert_int_not_equal(access(aside, F_OK), 0);
}

static void slices_of_any_size_give_the_same_file(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char whole[4096], sliced[4096];
	assert_int_equal(safetensors_write(&writer, path, tensors, 4), 0);
	size_t size = file_read(path, whole, sizeof(whole));
	for (size_t slice = 1; slice < size + 2; slice += slice < 20 ? 1 : 37) {
		assert_int_equal(safetensors_writer_open(&writer, path, tensors, 4), 0);
		bool done = false;
		size_t steps = 0;
		for (; !done; steps++)
			assert_int_equal(safetensors_writer_step(&writer, slice, &done), 0);
		assert_int_equal(steps, (size + slice - 1) / slice);
		assert_int_equal(safetensors_writer_commit(&writer), 0);
		assert_int_equal(file_read(path, sliced, sizeof(sliced)), size);
		assert_memory_equal(sliced, whole, size);
	}
}

static void no_tensors_is_a_file_too(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char bytes[64];
	assert_int_equal(safetensors_write(&writer, path, NULL, 0), 0);
	assert_int_equal(file_read(path, bytes, sizeof(bytes)), 40);
	assert_memory_equal(bytes + 8, "{\"__metadata__\":{\"format\":\"pt\"}}", 32);
}

/* The file at path is the one that was read before, and nothing is left beside it. */
static void expect_untouched(const char *before, size_t size)
{
	char after[4096];
	assert_int_equal(file_read(path, after, sizeof(after)), size);
	assert_memory_equal(after, before, size);
	assert_int_not_equal(access(aside, F_OK), 0);
}

static void abort_at_any_point_leaves_the_old_file(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char before[4096];
	assert_int_equal(safetensors_write(&writer, path, tensors, 4), 0);
	size_t size = file_read(path, before, sizeof(before));
	for (size_t steps = 0; steps < size / 16 + 2; steps++) {
		bool done = false;
		assert_int_equal(safetensors_writer_open(&writer, path, tensors, 2), 0);
		assert_int_equal(access(aside, F_OK), 0);
		for (size_t i = 0; i < steps; i++)
			assert_int_equal(safetensors_writer_step(&writer, 16, &done), 0);
		safetensors_writer_abort(&writer);
		safetensors_writer_abort(&writer);
		expect_untouched(before, size);
	}
}

static void full_disk_at_any_byte_leaves_the_old_file(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char before[4096];
	assert_int_equal(safetensors_write(&writer, path, tensors, 4), 0);
	size_t size = file_read(path, before, sizeof(before));
	struct rlimit old, tight;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	signal(SIGXFSZ, SIG_IGN);
	for (size_t room = 0; room < size; room += 13) {
		tight = (struct rlimit){.rlim_cur = room, .rlim_max = old.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
		int error = safetensors_write(&writer, path, tensors, 4);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(error, EDIT_ERROR_SYSTEM);
		char expected[160];
		snprintf(expected, sizeof(expected), "%s: write at byte %zu: %s", aside, room, strerror(EFBIG));
		assert_string_equal(writer.error, expected);
		expect_untouched(before, size);
	}
}

static void missing_folder_is_told(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char lost[64];
	snprintf(lost, sizeof(lost), "%s/no/a.safetensors", folder);
	assert_int_equal(safetensors_write(&writer, lost, tensors, 4), EDIT_ERROR_SYSTEM);
	assert_non_null(strstr(writer.error, "/no/a.safetensors.partial: cannot be created: No such file"));
}

static void link_beside_is_not_followed(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	char target[64];
	snprintf(target, sizeof(target), "%s/target", folder);
	assert_int_equal(symlink(target, aside), 0);
	assert_int_equal(safetensors_write(&writer, path, tensors, 4), EDIT_ERROR_SYSTEM);
	assert_int_not_equal(access(target, F_OK), 0);
	assert_int_equal(unlink(aside), 0);
}

static void absurd_sizes_are_refused_before_the_file(void **state)
{
	(void)state;
	struct safetensors_writer writer;
	const uint64_t absurd[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
	const struct safetensors_tensor huge = {.name = "huge", .dims = absurd, .rank = 2, .data = NULL};
	unlink(path);
	assert_int_equal(safetensors_writer_open(&writer, path, &huge, 1), EDIT_ERROR_RANGE);
	assert_non_null(strstr(writer.error, "a.safetensors: tensor huge is too large"));
	assert_int_not_equal(access(aside, F_OK), 0);
	assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_holds_header_and_tensors),
		cmocka_unit_test(slices_of_any_size_give_the_same_file),
		cmocka_unit_test(no_tensors_is_a_file_too),
		cmocka_unit_test(abort_at_any_point_leaves_the_old_file),
		cmocka_unit_test(full_disk_at_any_byte_leaves_the_old_file),
		cmocka_unit_test(missing_folder_is_told),
		cmocka_unit_test(link_beside_is_not_followed),
		cmocka_unit_test(absurd_sizes_are_refused_before_the_file),
	};
	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

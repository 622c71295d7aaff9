/* Reading safetensors files: good ones of each type, and every kind of damage, each with the line that names it. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "worker/complain.h"
#include "worker/tensorfile.h"
#include "worker/tensorfolder.h"

static char error[COMPLAINT_MAX];

/* Writes length word, header text and data as a file; a length of 0 stands for that of the header. */
static const char *make_file(const char *name, uint64_t length, const char *header, const void *data, size_t data_bytes)
{
	char bytes[8192];
	size_t header_bytes = strlen(header);
	assert_true(8 + header_bytes + data_bytes <= sizeof(bytes));
	if (!length)
		length = header_bytes;
	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, header, header_bytes);
	if (data_bytes)
		memcpy(bytes + 8 + header_bytes, data, data_bytes);
	return scratch_write(name, bytes, 8 + header_bytes + data_bytes);
}

/* The file has 16 bytes of data behind the header and must not open, with `line` in the complaint. */
static void expect_damage(uint64_t length, const char *header, const char *line)
{
	static const char data[16];
	struct tensorfile *file = NULL;
	const char *path = make_file("model.safetensors", length, header, data, sizeof(data));
	memset(error, 0, sizeof(error));
	assert_int_equal(tensorfile_open(path, &file, error, sizeof(error)), EDIT_ERROR_MALFORMED);
	assert_null(file);
	assert_null(strchr(error, '\n'));
	assert_non_null(strstr(error, "/model.safetensors: "));
	if (!strstr(error, line))
		fail_msg("'%s' is not in '%s'", line, error);
}

#define ENTRY(name, type, shape, begin, end)                                                                           \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void damaged_length_is_told(void **state)
{
	(void)state;
	expect_damage(UINT64_MAX, "{}", "header is 18446744073709551615 bytes long, expected at most 18");
	expect_damage(UINT64_C(1) << 40, "{}", "header is 1099511627776 bytes long");
	expect_damage(19, "{}", "header is 19 bytes long, expected at most 18");
	struct tensorfile *file;
	const char *path = scratch_write("model.safetensors", "1234567", 7);
	assert_int_equal(tensorfile_open(path, &file, error, sizeof(error)), EDIT_ERROR_MALFORMED);
	assert_non_null(strstr(error, "7 bytes, too short"));
}

static void damaged_json_is_told(void **state)
{
	(void)state;
	expect_damage(0, "{", "header, byte 1: ");
	expect_damage(0, "<html>not here</html>", "header, byte ");
	expect_damage(0, "[]", "expected a JSON object");
	expect_damage(0, "{\"a\\u0000b\":{}}", "header, byte ");
	expect_damage(0, "{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("a", "F32", "[2]", "8", "16") "}", "duplicate");
	char deep[4001];
	memset(deep, '[', 4000);
	deep[4000] = 0;
	expect_damage(0, deep, "header, byte ");
}

static void damaged_entry_is_told(void **state)
{
	(void)state;
	expect_damage(0, "{\"a\":7}", "tensor a: dtype: expected a type's name");
	expect_damage(
			0, "{\"a\":{\"dtype\":\"F32F32F32F32F32F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "tensor a: dtype");
	expect_damage(0, "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", "tensor a: shape: expected");
	expect_damage(0, "{" ENTRY("a", "F32", "[-4]", "0", "16") "}", "tensor a: shape: expected");
	expect_damage(0, "{" ENTRY("a", "F32", "[4.0]", "0", "16") "}", "tensor a: shape: expected");
	expect_damage(0, "{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,4]", "0", "16") "}", "tensor a: shape: expected");
	expect_damage(
			0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "tensor a: data_offsets: expected");
	expect_damage(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", "tensor a: data_offsets");
	expect_damage(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,99999999999999999999]}}", "too big");
}

static void offsets_outside_or_overlapping_are_told(void **state)
{
	(void)state;
	expect_damage(0, "{" ENTRY("a", "F32", "[8]", "0", "32") "}",
			"tensor a: bytes 0 to 32 are not inside the data, which are 16");
	expect_damage(0, "{" ENTRY("a", "F32", "[4]", "16", "0") "}", "tensor a: bytes 16 to 0 are not inside");
	expect_damage(
			0, "{" ENTRY("a", "F32", "[3]", "0", "16") "}", "tensor a: F32 of shape [3] does not fill bytes 0 to 16");
	expect_damage(
			0, "{" ENTRY("a", "F32", "[4]", "1", "16") "}", "tensor a: F32 of shape [4] does not fill bytes 1 to 16");
	expect_damage(0, "{" ENTRY("a", "F32", "[4294967296,4294967296]", "0", "16") "}", "does not fill");
	expect_damage(0, "{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[3]", "4", "16") "}",
		      "tensor b: begins at byte 4 of the data, inside the tensor before it, expected 8");
	expect_damage(0, "{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[1]", "12", "16") "}",
		      "tensor b: begins at byte 12 of the data, behind a gap, expected 8");
	expect_damage(0, "{" ENTRY("a", "F32", "[2]", "0", "8") "}", "16 bytes of data, but the header's tensors end at 8");
	expect_damage(0, "{}", "16 bytes of data, but the header's tensors end at 0");
}

static void names_do_not_break_the_line(void **state)
{
	(void)state;
	expect_damage(0, "{" ENTRY("x\\n\\u001b[31m", "F32", "[8]", "0", "32") "}", "tensor x??[31m: bytes 0 to 32");
}

/* Each byte of a good file's header, changed in eight ways: it opens or it complains, and reading what opens stays
 * inside. */
static void any_changed_byte_is_survived(void **state)
{
	(void)state;
	static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
		ENTRY("a", "F32", "[2,1]", "0", "8") "," ENTRY("b", "BF16", "[4]", "8", "16") "}";
	static const float data[4] = {1, 2, 3, 4};
	char bytes[512];
	size_t size = 8 + sizeof(header) - 1 + sizeof(data), opened = 0;
	uint64_t length = sizeof(header) - 1;
	for (size_t at = 0; at < size - sizeof(data); at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(bytes, &length, 8);
			memcpy(bytes + 8, header, length);
			memcpy(bytes + 8 + length, data, sizeof(data));
			bytes[at] = (char)(bytes[at] ^ 1 << bit);
			const char *path = scratch_write("changed.safetensors", bytes, size);
			struct tensorfile *file;
			if (tensorfile_open(path, &file, error, sizeof(error)))
				continue;
			for (size_t i = 0; i < tensorfile_count(file); i++) {
				struct tensorfile_tensor *tensor = tensorfile_at(file, i);
				float values[8];
				if (!tensorfile_check(tensor, tensor->dims, tensor->rank, error, sizeof(error)))
					assert_int_equal(tensorfile_read(tensor, values, error, sizeof(error)), 0);
			}
			tensorfile_close(file);
			opened++;
		}
	assert_true(opened > 0);
}

static void file_cut_short_is_told_at_any_length(void **state)
{
	(void)state;
	static const char header[] = "{" ENTRY("a", "F32", "[4]", "0", "16") "}";
	static const float data[4] = {1, 2, 3, 4};
	char bytes[512];
	uint64_t length = sizeof(header) - 1;
	size_t size = 8 + length + sizeof(data);
	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, header, length);
	memcpy(bytes + 8 + length, data, sizeof(data));
	struct tensorfile *file;
	for (size_t cut = 0; cut < size; cut++)
		assert_int_equal(tensorfile_open(scratch_write("cut.safetensors", bytes, cut), &file, error, sizeof(error)),
				 EDIT_ERROR_MALFORMED);
	assert_int_equal(tensorfile_open(scratch_write("cut.safetensors", bytes, size), &file, error, sizeof(error)), 0);
	tensorfile_close(file);
}

static void types_become_float32_exactly(void **state)
{
	(void)state;
	static const char header[] = "{"
		ENTRY("f", "F32", "[2]", "0", "8") "," ENTRY("h", "F16", "[8]", "8", "24") ","
		ENTRY("b", "BF16", "[1,4]", "24", "32") "," ENTRY("i", "I64", "[1]", "32", "40") "}";
	static const float plain[2] = {0.1f, -3e38f};
	/* 1, -2, largest, smallest normal, largest subnormal, smallest, -0, infinity */
	static const uint16_t half[8] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x03ff, 0x8001, 0x8000, 0x7c00};
	static const float half_values[8] = {1, -2, 65504, 0x1p-14f, 1023 * 0x1p-24f, -0x1p-24f, -0.0f, INFINITY};
	static const uint16_t brain[4] = {0x3f80, 0xc049, 0x0001, 0x7fc0};
	char data[40] = {0};
	memcpy(data, plain, 8);
	memcpy(data + 8, half, 16);
	memcpy(data + 24, brain, 8);
	const char *path = make_file("types.safetensors", 0, header, data, sizeof(data));
	struct tensorfile *file;
	float values[8];
	assert_int_equal(tensorfile_open(path, &file, error, sizeof(error)), 0);
	assert_int_equal(tensorfile_read(tensorfile_find(file, "f"), values, error, sizeof(error)), 0);
	assert_memory_equal(values, plain, sizeof(plain));
	assert_int_equal(tensorfile_read(tensorfile_find(file, "h"), values, error, sizeof(error)), 0);
	assert_memory_equal(values, half_values, sizeof(half_values));
	assert_int_equal(tensorfile_read(tensorfile_find(file, "b"), values, error, sizeof(error)), 0);
	assert_true(values[0] == 1.0f && values[1] == -3.140625f && values[2] == 0x1p-133f && isnan(values[3]));
	assert_null(tensorfile_find(file, "g"));
	const struct tensorfile_tensor *whole = tensorfile_find(file, "i");
	assert_int_equal(tensorfile_check(whole, whole->dims, 1, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "types.safetensors: tensor i: type I64, expected F32, BF16 or F16"));
	tensorfile_close(file);
	assert_true(isnan(tensorfile_half(0x7e00)));
}

/* All halves against the definition: (-1)^sign 2^(exponent - 15) (1 + fraction / 1024). */
static void every_half_is_exact(void **state)
{
	(void)state;
	for (uint32_t bits = 0; bits < 0x10000; bits++) {
		int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
		if (exponent == 31)
			continue;
		double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
		assert_true((double)tensorfile_half((uint16_t)bits) == (bits & 0x8000 ? -value : value));
	}
}

static void long_tensor_is_converted_in_parts(void **state)
{
	(void)state;
	enum { COUNT = 40001 };
	char header[200], *bytes = malloc(200 + 2 * COUNT);
	float *values = malloc(COUNT * sizeof(float));
	snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", COUNT,
			2 * COUNT);
	uint64_t length = strlen(header);
	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, header, length);
	for (uint32_t i = 0; i < COUNT; i++) {
		uint16_t bits = (uint16_t)(0x3f80 + i % 8192);
		memcpy(bytes + 8 + length + 2 * i, &bits, 2);
	}
	struct tensorfile *file;
	const char *path = scratch_write("long.safetensors", bytes, 8 + length + 2 * COUNT);
	assert_int_equal(tensorfile_open(path, &file, error, sizeof(error)), 0);
	assert_int_equal(tensorfile_read(tensorfile_at(file, 0), values, error, sizeof(error)), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t bits = (0x3f80 + i % 8192) << 16;
		assert_memory_equal(&values[i], &bits, 4);
	}
	tensorfile_close(file);
	free(bytes);
	free(values);
}

/* ---- Folders ---- */

static const uint64_t dims_a[] = {2}, dims_b[] = {2, 2};
static const float data_a[2] = {1, 2}, data_b[4] = {3, 4, 5, 6};

static void write_weights(const char *name, const struct safetensors_tensor *tensors, size_t count)
{
	struct safetensors_writer writer;
	assert_int_equal(safetensors_write(&writer, scratch_path(name), tensors, count), 0);
}

static const struct safetensors_tensor weight_a = {.name = "a", .dims = dims_a, .rank = 1, .data = data_a};
static const struct safetensors_tensor weight_b = {.name = "b", .dims = dims_b, .rank = 2, .data = data_b};

static void write_index(const char *text)
{
	scratch_write("model.safetensors.index.json", text, strlen(text));
}

/* The folder's index is text; it must not open, with `line` in the complaint. */
static void expect_bad_index(const char *text, int code, const char *line)
{
	struct tensorfolder *weights = NULL;
	write_index(text);
	assert_int_equal(tensorfolder_open(scratch_path(""), &weights, error, sizeof(error)), code);
	assert_null(weights);
	if (!strstr(error, line))
		fail_msg("'%s' is not in '%s'", line, error);
}

static int folder_clear(void **state)
{
	(void)state;
	scratch_unlink("model.safetensors");
	scratch_unlink("model.safetensors.index.json");
	return 0;
}

static void file_of_our_writer_is_read(void **state)
{
	(void)state;
	const struct safetensors_tensor all[] = {
			weight_b, weight_a, {.name = "x.rotary_emb.inv_freq", .dims = dims_a, .rank = 1, .data = data_a}};
	write_weights("model.safetensors", all, 3);
	struct tensorfolder *weights;
	const char *extra;
	float values[4];
	assert_true(tensorfolder_has_weights(scratch_path("")));
	assert_int_equal(tensorfolder_open(scratch_path(""), &weights, error, sizeof(error)), 0);
	assert_int_equal(tensorfolder_read(weights, "a", dims_a, 1, values, error, sizeof(error)), 0);
	assert_memory_equal(values, data_a, sizeof(data_a));
	assert_int_equal(tensorfolder_unasked(weights, &extra), 1);
	assert_string_equal(extra, "b");
	assert_int_equal(tensorfolder_read(weights, "b", dims_b, 2, values, error, sizeof(error)), 0);
	assert_memory_equal(values, data_b, sizeof(data_b));
	assert_int_equal(tensorfolder_unasked(weights, &extra), 0);
	assert_null(extra);
	const uint64_t dims_wrong[] = {4, 1};
	assert_int_equal(tensorfolder_read(weights, "b", dims_wrong, 2, values, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "/model.safetensors: tensor b: shape [2, 2], expected [4, 1]"));
	assert_int_equal(tensorfolder_read(weights, "b", dims_wrong, 1, values, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "expected [4]"));
	assert_int_equal(tensorfolder_check(weights, "c", dims_b, 2, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "/model.safetensors: tensor c is missing, expected with shape [2, 2]"));
	tensorfolder_close(weights);
}

static void shards_are_read_by_the_index(void **state)
{
	(void)state;
	/* b is in both files: the index tells which one counts. */
	const struct safetensors_tensor other = {.name = "b", .dims = dims_a, .rank = 1, .data = data_a};
	const struct safetensors_tensor first[] = {weight_a, other};
	write_weights("one.safetensors", first, 2);
	write_weights("two.safetensors", &weight_b, 1);
	write_index("{\"metadata\":{},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
	struct tensorfolder *weights;
	float values[4];
	assert_true(tensorfolder_has_weights(scratch_path("")));
	assert_int_equal(tensorfolder_open(scratch_path(""), &weights, error, sizeof(error)), 0);
	assert_int_equal(tensorfolder_read(weights, "b", dims_b, 2, values, error, sizeof(error)), 0);
	assert_memory_equal(values, data_b, sizeof(data_b));
	assert_int_equal(tensorfolder_read(weights, "a", dims_a, 1, values, error, sizeof(error)), 0);
	assert_int_equal(tensorfolder_check(weights, "c", dims_a, 1, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "index.json: tensor c is missing"));
	tensorfolder_close(weights);
}

static void bad_index_is_told(void **state)
{
	(void)state;
	write_weights("one.safetensors", &weight_a, 1);
	expect_bad_index("{", EDIT_ERROR_MALFORMED, "index.json: line 1: not JSON");
	expect_bad_index("{}", EDIT_ERROR_MALFORMED, "weight_map: expected an object");
	expect_bad_index("{\"weight_map\":[]}", EDIT_ERROR_MALFORMED, "weight_map: expected an object");
	expect_bad_index("{\"weight_map\":{\"a\":1}}", EDIT_ERROR_MALFORMED, "tensor a: \"\" is not the name");
	expect_bad_index("{\"weight_map\":{\"a\":\"../one.safetensors\"}}", EDIT_ERROR_MALFORMED,
			 "tensor a: \"../one.safetensors\" is not the name of a .safetensors file in the same folder");
	expect_bad_index(
			"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", EDIT_ERROR_MALFORMED, "\"/etc/passwd\" is not the name");
	expect_bad_index(
			"{\"weight_map\":{\"a\":\"config.json\"}}", EDIT_ERROR_MALFORMED, "\"config.json\" is not the name");
	expect_bad_index(
			"{\"weight_map\":{\"a\":\"lost.safetensors\"}}", EDIT_ERROR_SYSTEM, "/lost.safetensors: cannot be opened");
	expect_bad_index("{\"weight_map\":{\"b\":\"one.safetensors\"}}", EDIT_ERROR_MALFORMED,
			 "index.json: tensor b is not in one.safetensors, where it should be");
}

static void folder_without_weights_is_told(void **state)
{
	(void)state;
	struct tensorfolder *weights;
	assert_false(tensorfolder_has_weights(scratch_path("")));
	assert_int_equal(tensorfolder_open(scratch_path(""), &weights, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, ": has neither model.safetensors nor model.safetensors.index.json"));
}

static void pipe_or_folder_in_place_of_a_file_is_told(void **state)
{
	(void)state;
	struct tensorfile *file;
	assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
	assert_int_equal(tensorfile_open(scratch_path("pipe"), &file, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "/pipe: expected a regular file"));
	assert_int_equal(tensorfile_open(scratch_path(""), &file, error, sizeof(error)), EDIT_ERROR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_length_is_told),
		cmocka_unit_test(damaged_json_is_told),
		cmocka_unit_test(damaged_entry_is_told),
		cmocka_unit_test(offsets_outside_or_overlapping_are_told),
		cmocka_unit_test(names_do_not_break_the_line),
		cmocka_unit_test(any_changed_byte_is_survived),
		cmocka_unit_test(file_cut_short_is_told_at_any_length),
		cmocka_unit_test(types_become_float32_exactly),
		cmocka_unit_test(every_half_is_exact),
		cmocka_unit_test(long_tensor_is_converted_in_parts),
		cmocka_unit_test_setup(file_of_our_writer_is_read, folder_clear),
		cmocka_unit_test_setup(shards_are_read_by_the_index, folder_clear),
		cmocka_unit_test_setup(bad_index_is_told, folder_clear),
		cmocka_unit_test_setup(folder_without_weights_is_told, folder_clear),
		cmocka_unit_test(pipe_or_folder_in_place_of_a_file_is_told),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

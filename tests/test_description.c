/* A worker's description: what is built reads back, and bytes that are not a description are refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "proto/description.h"

static struct description description;
static struct line why;

static int description_make(void **state)
{
	(void)state;
	static const uint64_t embed[2] = {256, 128}, norm[1] = {128}, none[3] = {3, 0, 5};
	description_init(&description);
	assert_int_equal(description_add_layer(&description, "embedding", &why), 0);
	assert_int_equal(description_add_tensor(&description, "model.embed_tokens.weight", embed, 2, &why), 0);
	assert_int_equal(description_add_layer(&description, "block 0", &why), 0);
	assert_int_equal(description_add_tensor(&description, "a", norm, 1, &why), 0);
	assert_int_equal(description_add_tensor(&description, "b", NULL, 0, &why), 0);
	assert_int_equal(description_add_tensor(&description, "c", none, 3, &why), 0);
	assert_int_equal(description_add_tensor(&description, "d", norm, 1, &why), 0);
	assert_int_equal(description_add_layer(&description, "nothing", &why), 0);
	assert_int_equal(description_add_fact(&description, "hidden_size", "128", &why), 0);
	assert_int_equal(description_add_fact(&description, "empty", "", &why), 0);
	assert_int_equal(description_set_config(&description, "{\n\t\"a\": \"\xc3\xa9\"\n}\n", &why), 0);
	assert_int_equal(description_set_inner(&description, 2, &why), 0);
	return 0;
}

static int description_free(void **state)
{
	(void)state;
	description_fini(&description);
	return 0;
}

/* The bytes of a description; the caller's to free. */
static char *encode(const struct description *of, size_t *ret_size_bytes)
{
	*ret_size_bytes = description_bytes(of);
	char *bytes = malloc(*ret_size_bytes);
	description_encode(of, bytes);
	return bytes;
}

static void sizes_and_offsets_follow_from_dims(void **state)
{
	(void)state;
	assert_int_equal(description.layer_count, 3);
	assert_int_equal(description.layers[0].size, 256 * 128);
	assert_int_equal(description.layers[1].size, 128 + 1 + 0 + 128);
	assert_int_equal(description.layers[2].size, 0);
	assert_int_equal(description.layers[1].first_tensor, 1);
	assert_int_equal(description.layers[1].tensor_count, 4);
	assert_int_equal(description.tensors[2].offset, 128);
	assert_int_equal(description.tensors[2].size, 1);
	assert_int_equal(description.tensors[4].offset, 129);
	assert_int_equal(description.tensors[4].layer_index, 1);
	assert_int_equal(description.size, 256 * 128 + 257);
	size_t index;
	assert_int_equal(description_find_layer(&description, "block 0", &index), 0);
	assert_int_equal(index, 1);
	assert_int_equal(description_find_layer(&description, "block 1", &index), EDIT_ERROR_UNKNOWN);
}

static void description_reads_back(void **state)
{
	(void)state;
	size_t size_bytes, again_bytes;
	char *bytes = encode(&description, &size_bytes);
	struct description got;
	assert_int_equal(description_decode(bytes, size_bytes, &got, &why), 0);
	assert_int_equal(got.inner_factor, 2);
	assert_string_equal(got.config, description.config);
	assert_string_equal(got.layers[1].name, "block 0");
	assert_string_equal(got.tensors[0].name, "model.embed_tokens.weight");
	assert_int_equal(got.tensors[3].rank, 3);
	assert_int_equal(got.tensors[3].dims[2], 5);
	assert_string_equal(got.facts[0].value, "128");
	assert_int_equal(got.size, description.size);
	char *again = encode(&got, &again_bytes);
	assert_int_equal(again_bytes, size_bytes);
	assert_memory_equal(again, bytes, size_bytes);
	assert_true(description_hash(again, again_bytes) == description_hash(bytes, size_bytes));
	again[again_bytes - 1] ^= 1;
	assert_true(description_hash(again, again_bytes) != description_hash(bytes, size_bytes));
	free(again);
	free(bytes);
	description_fini(&got);
}

static void every_cut_and_every_tail_is_refused(void **state)
{
	(void)state;
	size_t size_bytes;
	char *bytes = encode(&description, &size_bytes);
	struct description got = {.layer_count = 4711};
	for (size_t cut = 0; cut < size_bytes; cut++) {
		char *copy = malloc(cut + 1); /* so that a read beyond the cut is seen by the address sanitizer */
		memcpy(copy, bytes, cut);
		assert_int_equal(description_decode(copy, cut, &got, &why), EDIT_ERROR_MALFORMED);
		free(copy);
	}
	char *longer = realloc(bytes, size_bytes + 1);
	longer[size_bytes] = 0;
	assert_int_equal(description_decode(longer, size_bytes + 1, &got, &why), EDIT_ERROR_MALFORMED);
	assert_string_equal(why.text, "description: bytes behind its end");
	assert_int_equal(got.layer_count, 4711);
	free(longer);
}

/* Puts a number at an offset of good bytes and decodes. */
static int decode_with(size_t offset, uint32_t number)
{
	size_t size_bytes;
	char *bytes = encode(&description, &size_bytes);
	memcpy(bytes + offset, &number, sizeof(number));
	struct description got;
	int error = description_decode(bytes, size_bytes, &got, &why);
	if (!error)
		description_fini(&got);
	free(bytes);
	return error;
}

static void counts_that_are_not_true_are_refused(void **state)
{
	(void)state;
	assert_int_equal(decode_with(0, 0), EDIT_ERROR_MALFORMED); /* magic */
	assert_int_equal(decode_with(8, 2), EDIT_ERROR_REFUSED);   /* version */
	assert_string_equal(why.text, "description: version 2, expected 1");
	assert_int_equal(decode_with(12, DESCRIPTION_INNER_MAX + 1), EDIT_ERROR_RANGE);
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t number = UINT32_C(1) << i;
		if (number != 3)
			assert_int_not_equal(decode_with(16, number), 0); /* layers */
		if (number != 2)
			assert_int_not_equal(decode_with(20, number), 0); /* facts */
		if (number != 16)
			assert_int_not_equal(decode_with(24, number), 0); /* length of the config */
	}
	assert_int_not_equal(decode_with(16, UINT32_MAX), 0);
	assert_int_not_equal(decode_with(20, UINT32_MAX), 0);
	assert_int_not_equal(decode_with(24, UINT32_MAX), 0);
}

static void noise_is_refused_or_reads_back_as_itself(void **state)
{
	(void)state;
	unsigned short seed[3] = {(unsigned short)time(NULL), 3, 4};
	print_message("seed %u\n", seed[0]);
	for (int i = 0; i < 20000; i++) {
		size_t size_bytes, again_bytes;
		char *bytes = encode(&description, &size_bytes);
		for (long flips = 1 + nrand48(seed) % 3; flips > 0; flips--)
			bytes[(size_t)nrand48(seed) % size_bytes] ^= (char)(1u << nrand48(seed) % 8);
		struct description got;
		if (description_decode(bytes, size_bytes, &got, NULL) == 0) {
			char *again = encode(&got, &again_bytes);
			assert_int_equal(again_bytes, size_bytes);
			assert_memory_equal(again, bytes, size_bytes);
			free(again);
			description_fini(&got);
		}
		free(bytes);
	}
}

static void sizes_that_overflow_are_refused(void **state)
{
	(void)state;
	static const uint64_t wrap[2] = {UINT64_C(1) << 32, UINT64_C(1) << 32}, wrap_to_4[3] = {4, UINT64_MAX / 4 + 2, 1};
	static const uint64_t hidden[3] = {0, UINT64_MAX, UINT64_MAX}, half[1] = {DESCRIPTION_SIZE_MAX / 2 + 1};
	assert_int_equal(description_add_tensor(&description, "x", wrap, 2, &why), EDIT_ERROR_RANGE);
	assert_int_equal(description_add_tensor(&description, "x", wrap_to_4, 3, &why), EDIT_ERROR_RANGE);
	assert_int_equal(description_add_tensor(&description, "x", hidden, 3, &why), EDIT_ERROR_RANGE);
	assert_int_equal(description_add_tensor(&description, "x", half, 1, &why), 0);
	assert_int_equal(description_add_tensor(&description, "y", half, 1, &why), EDIT_ERROR_RANGE);
	assert_string_equal(why.text, "description: the model is too large with tensor y");
}

static void names_that_are_no_text_are_refused(void **state)
{
	(void)state;
	char longer[300];
	memset(longer, 'n', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	static const uint64_t one[1] = {1};
	assert_int_equal(description_add_layer(&description, "", &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_add_layer(&description, longer, &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_add_layer(&description, "a\nb", &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_add_tensor(&description, "\xff", one, 1, &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_add_tensor(&description, "deep", one, DESCRIPTION_RANK_MAX + 1, &why), EDIT_ERROR_RANGE);
	assert_int_equal(description_add_fact(&description, "", "x", &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_add_fact(&description, "k", longer, &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_set_config(&description, "\x01", &why), EDIT_ERROR_INVALID);
	assert_int_equal(description_set_inner(&description, DESCRIPTION_INNER_MAX + 1, &why), EDIT_ERROR_RANGE);
	assert_int_equal(description.layer_count, 3);
	assert_int_equal(description.tensor_count, 5);
	assert_int_equal(description.fact_count, 2);
}

static void names_given_twice_are_refused(void **state)
{
	(void)state;
	static const uint64_t one[1] = {1};
	assert_int_equal(description_check(&description, &why), 0);
	assert_int_equal(description_add_tensor(&description, "model.embed_tokens.weight", one, 1, &why), 0);
	assert_int_equal(description_check(&description, &why), EDIT_ERROR_INVALID);
	assert_string_equal(why.text, "description: tensor model.embed_tokens.weight is there twice");
	size_t size_bytes;
	char *bytes = encode(&description, &size_bytes);
	struct description got;
	assert_int_equal(description_decode(bytes, size_bytes, &got, &why), EDIT_ERROR_INVALID);
	free(bytes);
	description_fini(&description);
	description_init(&description);
	assert_int_equal(description_check(&description, &why), EDIT_ERROR_INVALID); /* no layer */
	assert_int_equal(description_add_layer(&description, "a", &why), 0);
	assert_int_equal(description_add_layer(&description, "a", &why), 0);
	assert_int_equal(description_check(&description, &why), EDIT_ERROR_INVALID);
}

static void too_many_are_refused(void **state)
{
	(void)state;
	char name[32];
	for (size_t i = description.layer_count; i < LAYER_COUNT_MAX; i++) {
		snprintf(name, sizeof(name), "layer %zu", i);
		assert_int_equal(description_add_layer(&description, name, &why), 0);
	}
	assert_int_equal(description_add_layer(&description, "one more", &why), EDIT_ERROR_RANGE);
	for (size_t i = description.fact_count; i < DESCRIPTION_FACT_MAX; i++) {
		snprintf(name, sizeof(name), "fact %zu", i);
		assert_int_equal(description_add_fact(&description, name, "", &why), 0);
	}
	assert_int_equal(description_add_fact(&description, "one more", "", &why), EDIT_ERROR_RANGE);
	assert_int_equal(description_check(&description, &why), 0);
	size_t size_bytes;
	char *bytes = encode(&description, &size_bytes);
	struct description got;
	assert_int_equal(description_decode(bytes, size_bytes, &got, &why), 0);
	description_fini(&got);
	free(bytes);
	assert_int_equal(description_decode(name, (size_t)DESCRIPTION_BYTES_MAX + 1, &got, &why), EDIT_ERROR_RANGE);
}

#define WITH(name) cmocka_unit_test_setup_teardown(name, description_make, description_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(sizes_and_offsets_follow_from_dims),
		WITH(description_reads_back),
		WITH(every_cut_and_every_tail_is_refused),
		WITH(counts_that_are_not_true_are_refused),
		WITH(noise_is_refused_or_reads_back_as_itself),
		WITH(sizes_that_overflow_are_refused),
		WITH(names_that_are_no_text_are_refused),
		WITH(names_given_twice_are_refused),
		WITH(too_many_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

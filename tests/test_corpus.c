/* Training data: every kind of file, every bad one, and which member takes which sample. */

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
#include "worker/corpus.h"

static char error[COMPLAINT_MAX];
static struct corpus corpus;

static const struct corpus_options plain = {.type = CORPUS_AUTO, .vocab_size = 256, .context = 8};

/* 0, 1, 2 ... as tokens of the given width, behind a header of header_bytes. */
static const char *write_tokens(
		const char *name, const void *header, size_t header_bytes, unsigned width, uint32_t count)
{
	char *bytes = calloc(1, header_bytes + (size_t)width * count + 1);
	if (header_bytes)
		memcpy(bytes, header, header_bytes);
	for (uint32_t i = 0; i < count; i++)
		memcpy(bytes + header_bytes + (size_t)width * i, &i, width);
	const char *path = scratch_write(name, bytes, header_bytes + (size_t)width * count);
	free(bytes);
	return path;
}

static void expect_refused(const char *path, const struct corpus_options *options, int code, const char *line)
{
	assert_int_equal(corpus_open(&corpus, path, options, true, error, sizeof(error)), code);
	assert_null(strchr(error, '\n'));
	assert_non_null(strstr(error, path));
	if (!strstr(error, line))
		fail_msg("'%s' is not in '%s'", line, error);
}

/* Opens, reads all tokens and finds 0, 1, 2 ... */
static void expect_counting(
		const char *path, const struct corpus_options *options, enum corpus_type type, uint32_t count)
{
	uint32_t tokens[1000];
	assert_int_equal(corpus_open(&corpus, path, options, true, error, sizeof(error)), 0);
	assert_int_equal(corpus.type, type);
	assert_int_equal(corpus.token_count, count);
	assert_int_equal(corpus_read(&corpus, 0, count, tokens, error, sizeof(error)), 0);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(tokens[i], i);
	assert_int_equal(corpus_read(&corpus, count - 3, 3, tokens, error, sizeof(error)), 0);
	assert_int_equal(tokens[2], count - 1);
	corpus_close(&corpus);
}

static void every_kind_of_file_is_read(void **state)
{
	(void)state;
	struct corpus_options options = plain;
	uint32_t header[256] = {20240520, 1, 700};
	expect_counting(write_tokens("a.txt", NULL, 0, 1, 256), &options, CORPUS_TEXT, 256);
	options.vocab_size = 1000;
	expect_counting(write_tokens("a.bin", NULL, 0, 2, 700), &options, CORPUS_U16, 700);
	expect_counting(write_tokens("b.bin", header, sizeof(header), 2, 700), &options, CORPUS_LLMC, 700);
	header[0] = 20240801, header[1] = 7;
	expect_counting(write_tokens("c.dat", header, sizeof(header), 4, 700), &options, CORPUS_LLMC, 700);
	options.type = CORPUS_U32;
	expect_counting(write_tokens("d.any", NULL, 0, 4, 700), &options, CORPUS_U32, 700);
	options = (struct corpus_options){.type = CORPUS_AUTO, .vocab_size = 100000, .context = 8};
	expect_counting(scratch_path("d.any"), &(struct corpus_options){CORPUS_U32, 100000, 8, 0}, CORPUS_U32, 700);
	expect_counting(write_tokens("e.bin", NULL, 0, 4, 700), &options, CORPUS_U32, 700);
}

static void names_of_types_are_known(void **state)
{
	(void)state;
	enum corpus_type type = CORPUS_AUTO;
	assert_int_equal(corpus_type_find("llmc", &type), 0);
	assert_int_equal(type, CORPUS_LLMC);
	assert_int_equal(corpus_type_find("u8", &type), EDIT_ERROR_UNKNOWN);
	assert_int_equal(type, CORPUS_LLMC);
}

static void missing_empty_or_odd_file_is_told(void **state)
{
	(void)state;
	struct corpus_options options = plain;
	expect_refused(
			scratch_path("lost.txt"), &options, EDIT_ERROR_SYSTEM, "cannot be opened: No such file or directory");
	expect_refused(scratch_path(""), &options, EDIT_ERROR_INVALID, "expected a regular file");
	expect_refused(
			scratch_write("empty.txt", "", 0), &options, EDIT_ERROR_INVALID, "empty.txt: empty, expected text tokens");
	expect_refused(scratch_write("odd.bin", "12345", 5), &options, EDIT_ERROR_MALFORMED,
		       "5 bytes, expected a multiple of 2 (u16 tokens)");
	options.type = CORPUS_U32;
	expect_refused(
			scratch_write("odd.bin", "123456", 6), &options, EDIT_ERROR_MALFORMED, "a multiple of 4 (u32 tokens)");
}

static void file_shorter_than_a_sample_is_told(void **state)
{
	(void)state;
	struct corpus_options options = plain;
	const char *path = scratch_write("short.txt", "12345678", 8);
	expect_refused(path, &options, EDIT_ERROR_INVALID,
		       "8 tokens to train on (0 held out), shorter than a sample of context + 1 = 9");
	path = scratch_write("short.txt", "123456789", 9);
	assert_int_equal(corpus_open(&corpus, path, &options, true, error, sizeof(error)), 0);
	assert_int_equal(corpus.sample_count, 1);
	corpus_close(&corpus);
	options.holdout = 0.1;
	expect_refused(path, &options, EDIT_ERROR_INVALID, "8 tokens to train on (1 held out)");
	assert_int_equal(corpus_open(&corpus, path, &options, false, error, sizeof(error)), 0);
	corpus_close(&corpus);
	options = (struct corpus_options){.type = CORPUS_TEXT, .vocab_size = 256, .context = UINT32_MAX};
	expect_refused(path, &options, EDIT_ERROR_INVALID, "context + 1 = 4294967296");
}

static void bad_header_is_told(void **state)
{
	(void)state;
	struct corpus_options options = plain;
	uint32_t header[256] = {20240520, 2, 100};
	expect_refused(write_tokens("h.bin", header, sizeof(header), 2, 100), &options, EDIT_ERROR_MALFORMED,
		       "llm.c header has version 2, expected 1");
	header[1] = 1, header[2] = 101;
	expect_refused(write_tokens("h.bin", header, sizeof(header), 2, 100), &options, EDIT_ERROR_MALFORMED,
		       "llm.c header says 101 tokens of 2 bytes, but 200 bytes follow it");
	header[2] = UINT32_MAX;
	expect_refused(write_tokens("h.bin", header, sizeof(header), 2, 100), &options, EDIT_ERROR_MALFORMED,
		       "4294967295 tokens");
	header[0] = 7;
	options.type = CORPUS_LLMC;
	expect_refused(write_tokens("h.bin", header, sizeof(header), 2, 100), &options, EDIT_ERROR_MALFORMED,
		       "no llm.c header, expected 1024 bytes that begin with magic number 20240520 or 20240801");
	expect_refused(write_tokens("h.bin", NULL, 0, 2, 100), &options, EDIT_ERROR_MALFORMED, "no llm.c header");
	header[0] = 20240520, header[2] = 0;
	expect_refused(write_tokens("h.bin", header, sizeof(header), 2, 0), &options, EDIT_ERROR_INVALID,
		       "empty, expected llmc tokens");
}

/* The bad token is the last of many, so the whole file must have been looked at. */
static void token_beyond_the_vocabulary_is_told(void **state)
{
	(void)state;
	struct corpus_options options = {.type = CORPUS_AUTO, .vocab_size = 65535, .context = 8};
	const char *path = write_tokens("v.bin", NULL, 0, 2, 65536);
	expect_refused(
			path, &options, EDIT_ERROR_INVALID, "token 65535 at position 65535, expected below vocab_size 65535");
	options.vocab_size = 65536;
	assert_int_equal(corpus_open(&corpus, path, &options, true, error, sizeof(error)), 0);
	corpus_close(&corpus);
	options = (struct corpus_options){.type = CORPUS_TEXT, .vocab_size = 128, .context = 8};
	expect_refused(scratch_write("v.txt", "plain text, then \xc3\xa4", 19), &options, EDIT_ERROR_INVALID,
		       "token 195 at position 17, expected below vocab_size 128");
}

static void file_changed_after_opening_is_told(void **state)
{
	(void)state;
	struct corpus_options options = {.type = CORPUS_TEXT, .vocab_size = 128, .context = 8};
	uint32_t tokens[9];
	const char *path = scratch_write("w.txt", "0123456789", 10);
	assert_int_equal(corpus_open(&corpus, path, &options, true, error, sizeof(error)), 0);
	assert_int_equal(truncate(path, 4), 0);
	assert_int_equal(corpus_read(&corpus, 0, 9, tokens, error, sizeof(error)), EDIT_ERROR_SYSTEM);
	assert_non_null(strstr(error, "has become shorter, ends at byte 4"));
	scratch_write("w.txt", "01234567\xff", 9);
	assert_int_equal(corpus_read(&corpus, 0, 9, tokens, error, sizeof(error)), EDIT_ERROR_INVALID);
	corpus_close(&corpus);
}

/* ---- Which sample ---- */

static void permutation_takes_each_place_once(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4096, 4097};
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (uint64_t key = 0; key < 20; key++) {
			unsigned char seen[4097] = {0};
			for (uint64_t i = 0; i < sizes[s]; i++) {
				uint64_t image = corpus_permute(key, sizes[s], i);
				assert_true(image < sizes[s]);
				assert_int_equal(seen[image]++, 0);
			}
		}
	/* Very large sizes end, too, and stay inside. */
	static const uint64_t large[] = {(UINT64_C(1) << 40) + 1, UINT64_C(1) << 62, UINT64_MAX};
	for (size_t s = 0; s < 3; s++)
		for (uint64_t i = 0; i < 1000; i++)
			assert_true(corpus_permute(7, large[s], large[s] - 1 - i) < large[s]);
}

/* Spread: over many keys each place gets each value about equally often (chi-square over 16 x 16, 6000 keys; 225
 * degrees of freedom, so 400 is more than eight deviations away). */
static void permutation_has_no_favourites(void **state)
{
	(void)state;
	enum { SIZE = 16, KEYS = 6000 };
	unsigned counts[SIZE][SIZE] = {{0}};
	for (uint64_t key = 0; key < KEYS; key++)
		for (uint64_t i = 0; i < SIZE; i++)
			counts[i][corpus_permute(key, SIZE, i)]++;
	double expected = (double)KEYS / SIZE, chi = 0;
	for (size_t i = 0; i < SIZE; i++)
		for (size_t k = 0; k < SIZE; k++)
			chi += (counts[i][k] - expected) * (counts[i][k] - expected) / expected;
	assert_true(chi < 400);
}

/* Over three epochs, for member counts that do and do not divide the samples: each epoch of all members together is
 * every sample exactly once, and a member's own picks are its own. */
static void members_are_disjoint_and_cover_each_epoch(void **state)
{
	(void)state;
	static const uint64_t sample_counts[] = {1, 7, 64, 101};
	for (size_t s = 0; s < 4; s++)
		for (uint32_t count = 1; count <= sample_counts[s] && count <= 9; count++) {
			uint64_t samples = sample_counts[s], done[9] = {0};
			for (uint64_t epoch = 0; epoch < 3; epoch++) {
				unsigned char seen[101] = {0};
				for (uint32_t rank = 0; rank < count; rank++) {
					struct corpus_part part = {.seed = 5, .rank = rank, .count = count};
					uint64_t own = samples / count + (rank < samples % count);
					for (uint64_t i = 0; i < own; i++)
						assert_int_equal(seen[corpus_pick(&part, samples, done[rank]++)]++, 0);
				}
				for (uint64_t i = 0; i < samples; i++)
					assert_int_equal(seen[i], 1);
			}
		}
}

static void order_depends_on_seed_and_epoch(void **state)
{
	(void)state;
	enum { SAMPLES = 1000 };
	struct corpus_part part = {.seed = 1, .rank = 0, .count = 1}, other = {.seed = 2, .rank = 0, .count = 1};
	size_t same_seed = 0, same_epoch = 0, in_order = 0;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint64_t pick = corpus_pick(&part, SAMPLES, i);
		assert_int_equal(pick, corpus_pick(&part, SAMPLES, i));
		same_seed += pick == corpus_pick(&other, SAMPLES, i);
		same_epoch += pick == corpus_pick(&part, SAMPLES, i + SAMPLES);
		in_order += pick == i;
	}
	/* One coincidence each is expected of random permutations. */
	assert_true(same_seed < 12 && same_epoch < 12 && in_order < 12);
}

static void sample_is_context_and_one_more(void **state)
{
	(void)state;
	const char *path = write_tokens("s.txt", NULL, 0, 1, 250);
	const struct corpus_options options = {.type = CORPUS_TEXT, .vocab_size = 256, .context = 8, .holdout = 0.02};
	assert_int_equal(corpus_open(&corpus, path, &options, true, error, sizeof(error)), 0);
	assert_int_equal(corpus.train_count, 245);
	assert_int_equal(corpus.sample_count, 30);
	struct corpus_part part = {.seed = 3, .rank = 1, .count = 2};
	for (uint64_t number = 0; number < 60; number++) {
		uint32_t tokens[9];
		assert_int_equal(corpus_sample(&corpus, &part, number, tokens, error, sizeof(error)), 0);
		assert_int_equal(tokens[0], 8 * corpus_pick(&part, 30, number));
		for (uint32_t i = 0; i < 9; i++) {
			assert_int_equal(tokens[i], tokens[0] + i);
			assert_true(tokens[i] < corpus.train_count);
		}
	}
	part.count = 31;
	assert_int_equal(corpus_part_check(&corpus, &part, error, sizeof(error)), EDIT_ERROR_INVALID);
	assert_non_null(strstr(error, "30 samples of context + 1 = 9 tokens, expected one for each of 31 members"));
	part.count = 30;
	assert_int_equal(corpus_part_check(&corpus, &part, error, sizeof(error)), 0);
	corpus_close(&corpus);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_file_is_read),
		cmocka_unit_test(names_of_types_are_known),
		cmocka_unit_test(missing_empty_or_odd_file_is_told),
		cmocka_unit_test(file_shorter_than_a_sample_is_told),
		cmocka_unit_test(bad_header_is_told),
		cmocka_unit_test(token_beyond_the_vocabulary_is_told),
		cmocka_unit_test(file_changed_after_opening_is_told),
		cmocka_unit_test(permutation_takes_each_place_once),
		cmocka_unit_test(permutation_has_no_favourites),
		cmocka_unit_test(members_are_disjoint_and_cover_each_epoch),
		cmocka_unit_test(order_depends_on_seed_and_epoch),
		cmocka_unit_test(sample_is_context_and_one_more),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

/* Training data: a file of tokens and which samples of it a member takes. Reads by position; keeps nothing of the
 * file. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/complain.h"
#include "worker/corpus.h"
#include "worker/inputfile.h"

enum {
	SCAN_COUNT = 65536,      /* tokens looked at in one go when a file is opened */
	LLMC_HEADER_BYTES = 1024 /* 256 words: magic, version, tokens, then zeros */
};

/* The two kinds of files that llm.c writes. */
static const struct {
	uint32_t magic, version;
	unsigned token_bytes;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const char *const type_names[] = {
#define X(id, text, help) [id] = (text),
	CORPUS_TYPES(X)
#undef X
};

int corpus_type_find(const char *name, enum corpus_type *ret_type)
{
	for (int i = 0; i < CORPUS_TYPE_COUNT; i++)
		if (!strcmp(type_names[i], name)) {
			*ret_type = (enum corpus_type)i;
			return 0;
		}
	return EDIT_ERROR_UNKNOWN;
}

/* Reads the header of an llm.c file. ret_is_llmc: false if the magic number is none of its own; nothing else is set
 * then. */
static int read_llmc(struct corpus *corpus, uint64_t size_bytes, bool *ret_is_llmc, char *error, size_t error_size)
{
	uint32_t words[3];
	*ret_is_llmc = false;
	if (size_bytes < LLMC_HEADER_BYTES)
		return 0;
	int result = inputfile_read(corpus->fd, corpus->path, 0, words, sizeof(words), error, error_size);
	if (result)
		return result;
	for (size_t i = 0; i < sizeof(llmc_kinds) / sizeof(llmc_kinds[0]); i++) {
		if (words[0] != llmc_kinds[i].magic)
			continue;
		if (words[1] != llmc_kinds[i].version)
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: llm.c header has version %" PRIu32 ", expected %" PRIu32 " with magic number %" PRIu32,
					corpus->path, words[1], llmc_kinds[i].version, words[0]);
		*ret_is_llmc = true;
		corpus->token_bytes = llmc_kinds[i].token_bytes;
		corpus->data_offset = LLMC_HEADER_BYTES;
		uint64_t held = size_bytes - LLMC_HEADER_BYTES;
		if (held != (uint64_t)words[2] * corpus->token_bytes)
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: llm.c header says %" PRIu32 " tokens of %u bytes, but %" PRIu64 " bytes follow it",
					corpus->path, words[2], corpus->token_bytes, held);
	}
	return 0;
}

static bool has_ending(const char *path, const char *ending)
{
	size_t size = strlen(path), end = strlen(ending);
	return size >= end && !strcmp(path + size - end, ending);
}

/* Settles type, token_bytes and data_offset. */
static int find_type(
		struct corpus *corpus, enum corpus_type wanted, uint64_t size_bytes, char *error, size_t error_size)
{
	bool is_llmc = false;
	if (wanted == CORPUS_AUTO || wanted == CORPUS_LLMC) {
		int result = read_llmc(corpus, size_bytes, &is_llmc, error, error_size);
		if (result)
			return result;
		if (wanted == CORPUS_LLMC && !is_llmc)
			return complain(error, error_size, EDIT_ERROR_MALFORMED,
					"%s: no llm.c header, expected 1024 bytes that begin with magic number %" PRIu32 " or %" PRIu32,
					corpus->path, llmc_kinds[0].magic, llmc_kinds[1].magic);
	}
	if (is_llmc) {
		corpus->type = CORPUS_LLMC;
		return 0;
	}
	if (wanted == CORPUS_AUTO)
		wanted = !has_ending(corpus->path, ".bin")       ? CORPUS_TEXT
			 : corpus->vocab_size > UINT16_MAX + 1 ? CORPUS_U32
								: CORPUS_U16;
	corpus->type = wanted;
	corpus->token_bytes = wanted == CORPUS_TEXT ? 1 : wanted == CORPUS_U16 ? 2 : 4;
	return 0;
}

/* Cuts the file into train part and held-out tail. */
static int cut(struct corpus *corpus, uint64_t size_bytes, double holdout, bool for_training, char *error,
	       size_t error_size)
{
	uint64_t data_bytes = size_bytes - corpus->data_offset;
	if (data_bytes == 0)
		return complain(error, error_size, EDIT_ERROR_INVALID, "%s: empty, expected %s tokens", corpus->path,
				type_names[corpus->type]);
	if (data_bytes % corpus->token_bytes)
		return complain(error, error_size, EDIT_ERROR_MALFORMED,
				"%s: %" PRIu64 " bytes, expected a multiple of %u (%s tokens)", corpus->path, data_bytes,
				corpus->token_bytes, type_names[corpus->type]);
	corpus->token_count = data_bytes / corpus->token_bytes;
	uint64_t held_count = u64_min((uint64_t)(holdout * (double)corpus->token_count + 0.5), corpus->token_count);
	corpus->train_count = corpus->token_count - held_count;
	corpus->sample_count = corpus->train_count ? (corpus->train_count - 1) / corpus->context : 0;
	if (for_training && corpus->sample_count == 0)
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: %" PRIu64 " tokens to train on (%" PRIu64
				" held out), shorter than a sample of context + 1 = %" PRIu64,
				corpus->path, corpus->train_count, held_count, (uint64_t)corpus->context + 1);
	return 0;
}

/* Reads all tokens once, unless none of this width can be out of range. */
static int scan(const struct corpus *corpus, char *error, size_t error_size)
{
	if ((uint64_t)corpus->vocab_size >> (8 * corpus->token_bytes))
		return 0;
	uint32_t *tokens = malloc(SCAN_COUNT * sizeof(*tokens));
	if (!tokens)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", corpus->path, strerror(ENOMEM));
	int result = 0;
	for (uint64_t begin = 0; !result && begin < corpus->token_count; begin += SCAN_COUNT)
		result = corpus_read(corpus, begin, (size_t)u64_min(SCAN_COUNT, corpus->token_count - begin), tokens, error,
				     error_size);
	free(tokens);
	return result;
}

int corpus_open(struct corpus *corpus, const char *path, const struct corpus_options *options, bool for_training,
		char *error, size_t error_size)
{
	CHECK(options->context > 0);
	CHECK(options->holdout >= 0);
	CHECK(options->holdout < 1);
	uint64_t size_bytes;
	struct corpus opened = {.fd = -1, .vocab_size = options->vocab_size, .context = options->context};
	opened.path = strdup(path);
	int result = opened.path ? inputfile_open(path, &opened.fd, &size_bytes, error, error_size)
				 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%s: %s", path, strerror(ENOMEM));
	if (!result)
		result = find_type(&opened, options->type, size_bytes, error, error_size);
	if (!result)
		result = cut(&opened, size_bytes, options->holdout, for_training, error, error_size);
	if (!result)
		result = scan(&opened, error, error_size);
	if (result)
		corpus_close(&opened);
	else
		*corpus = opened;
	return result;
}

void corpus_close(struct corpus *corpus)
{
	if (corpus->fd >= 0)
		close(corpus->fd);
	free(corpus->path);
	corpus->path = NULL;
	corpus->fd = -1;
}

int corpus_read(const struct corpus *corpus, uint64_t begin, size_t count, uint32_t *ret_tokens, char *error,
		size_t error_size)
{
	CHECK(begin <= corpus->token_count);
	CHECK(count <= corpus->token_count - begin);
	/* The raw tokens go to the end of the array and are widened from its begin, so that no second array is needed. */
	size_t raw_bytes = count * corpus->token_bytes;
	unsigned char *raw = (unsigned char *)ret_tokens + (count * sizeof(uint32_t) - raw_bytes);
	int result = inputfile_read(corpus->fd, corpus->path, corpus->data_offset + begin * corpus->token_bytes, raw,
			raw_bytes, error, error_size);
	if (result)
		return result;
	for (size_t i = 0; i < count; i++) {
		uint32_t token = 0;
		memcpy(&token, raw + i * corpus->token_bytes, corpus->token_bytes);
		ret_tokens[i] = token;
		if (token >= corpus->vocab_size)
			return complain(error, error_size, EDIT_ERROR_INVALID,
					"%s: token %" PRIu32 " at position %" PRIu64 ", expected below vocab_size %" PRIu32, corpus->path,
					token, begin + i, corpus->vocab_size);
	}
	return 0;
}

/* ---- Which sample ---- */

/* The finaliser of SplitMix64: each bit of the result depends on each bit of x. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* A Feistel network of six rounds permutes [0, 4^half_bits), the smallest such range that holds [0, size); what falls
 * outside of size is sent through again until it falls inside, which keeps it a permutation. */
uint64_t corpus_permute(uint64_t key, uint64_t size, uint64_t index)
{
	CHECK(size > 0);
	CHECK(index < size);
	unsigned half_bits = 1;
	while (half_bits < 32 && size > UINT64_C(1) << (2 * half_bits))
		half_bits++;
	uint64_t mask = (UINT64_C(1) << half_bits) - 1;
	do {
		uint64_t left = index >> half_bits, right = index & mask;
		for (uint64_t round = 1; round <= 6; round++) {
			uint64_t next = left ^ (mix(key + round * UINT64_C(0x9e3779b97f4a7c15) + mix(right)) & mask);
			left = right;
			right = next;
		}
		index = left << half_bits | right;
	} while (index >= size);
	return index;
}

int corpus_part_check(const struct corpus *corpus, const struct corpus_part *part, char *error, size_t error_size)
{
	if (corpus->sample_count >= part->count)
		return 0;
	return complain(error, error_size, EDIT_ERROR_INVALID,
			"%s: %" PRIu64 " samples of context + 1 = %" PRIu64 " tokens, expected one for each of %" PRIu32 " members",
			corpus->path, corpus->sample_count, (uint64_t)corpus->context + 1, part->count);
}

uint64_t corpus_pick(const struct corpus_part *part, uint64_t sample_count, uint64_t number)
{
	CHECK(part->rank < part->count);
	CHECK(sample_count >= part->count);
	uint64_t own_count = sample_count / part->count + (part->rank < sample_count % part->count);
	uint64_t epoch = number / own_count, position = part->rank + number % own_count * part->count;
	return corpus_permute(mix(part->seed) + epoch, sample_count, position);
}

int corpus_sample(const struct corpus *corpus, const struct corpus_part *part, uint64_t number, uint32_t *ret_tokens,
		  char *error, size_t error_size)
{
	uint64_t index = corpus_pick(part, corpus->sample_count, number);
	return corpus_read(corpus, index * corpus->context, (size_t)corpus->context + 1, ret_tokens, error, error_size);
}

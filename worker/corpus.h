#ifndef EDIT_WORKER_CORPUS_H
#define EDIT_WORKER_CORPUS_H

/* Training data: one file of tokens, cut into samples of context + 1 tokens (the last of a sample is the first of the
 * next), and which of them a member takes at a step.
 *
 *     file:    | train: sample 0 | sample 1 | ...            | held out: never trained on |
 *     epoch:   a permutation of the train samples from (seed, epoch), computed and not stored
 *     member:  rank r of count takes positions r, r + count, r + 2 count ... of each epoch's permutation
 *
 * So no sample comes twice in an epoch, no two members have the same, and an epoch covers all. Position is a pure
 * function of (seed, rank, count, number of the sample): whoever resumes needs the step only. */

#include "core/base.h"

/* type, name, help */
#define CORPUS_TYPES(X)                                                                                                \
	X(CORPUS_AUTO, "auto", "llmc by its magic number; .bin: u16, or u32 above a vocabulary of 65536; otherwise text")  \
	X(CORPUS_TEXT, "text", "bytes, vocabulary 256")                                                                    \
	X(CORPUS_U16, "u16", "little-endian 16-bit tokens without a header, as nanoGPT writes")                            \
	X(CORPUS_U32, "u32", "little-endian 32-bit tokens without a header")                                               \
	X(CORPUS_LLMC, "llmc", "llm.c: a header of 1024 bytes, then 16-bit tokens (GPT-2) or 32-bit tokens (Llama 3)")

enum corpus_type {
#define X(id, text, help) id,
	CORPUS_TYPES(X)
#undef X
	CORPUS_TYPE_COUNT
};

/* Sets *ret_type; EDIT_ERROR_UNKNOWN if there is no type of that name. */
int corpus_type_find(const char *name, enum corpus_type *ret_type);

struct corpus_options {
	enum corpus_type type;
	uint32_t vocab_size; /* every token must be below, at least 1 */
	uint32_t context;    /* tokens of a sample's input, at least 1 */
	double holdout;      /* fraction of the tokens, at the end of the file, in [0, 1) */
};

struct corpus {
	char *path;
	int fd;
	enum corpus_type type;    /* never CORPUS_AUTO */
	unsigned token_bytes;     /* 1, 2 or 4 */
	uint64_t data_offset;     /* bytes of the header */
	uint64_t token_count;     /* of the whole file */
	uint64_t train_count;     /* tokens before the held-out tail */
	uint64_t sample_count;    /* of the train part; at least 1 if corpus_open was for training */
	uint32_t vocab_size, context;
};

/* Opens the file at path and reads it once in full: each token must be below vocab_size, so that a bad one is not met
 * after hours of training. for_training: there must be a sample to train on. On failure writes one line to error
 * [error_size]: EDIT_ERROR_SYSTEM, EDIT_ERROR_MALFORMED, EDIT_ERROR_INVALID (not usable with these options). */
int corpus_open(struct corpus *corpus, const char *path, const struct corpus_options *options, bool for_training,
		char *error, size_t error_size);
void corpus_close(struct corpus *corpus);

/* Reads tokens [begin, begin + count) of the file. Errors as above, also for a token that is not below vocab_size (the
 * file was changed meanwhile). */
int corpus_read(const struct corpus *corpus, uint64_t begin, size_t count, uint32_t *ret_tokens, char *error,
		size_t error_size);

/* ---- Which sample ---- */

struct corpus_part {
	uint64_t seed;
	uint32_t rank, count; /* this member among all: rank < count */
};

/* Whether each member gets a sample per epoch; one line if not (EDIT_ERROR_INVALID). */
int corpus_part_check(const struct corpus *corpus, const struct corpus_part *part, char *error, size_t error_size);

/* Index of the sample, in [0, sample_count), that is this member's number-th (from 0). */
uint64_t corpus_pick(const struct corpus_part *part, uint64_t sample_count, uint64_t number);

/* Reads this member's number-th sample: ret_tokens [context + 1]. */
int corpus_sample(const struct corpus *corpus, const struct corpus_part *part, uint64_t number, uint32_t *ret_tokens,
		  char *error, size_t error_size);

/* The image of index in a permutation of [0, size) that key names; size >= 1. */
uint64_t corpus_permute(uint64_t key, uint64_t size, uint64_t index);

#endif

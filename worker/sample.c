/* edit-worker sample: lets a model continue a text of bytes, or a list of token ids. Writes each token as soon as it
 * is drawn. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cmdline.h"
#include "worker/commands.h"
#include "worker/complain.h"
#include "worker/draw.h"
#include "worker/kernels.h"
#include "worker/origin.h"
#include "worker/say.h"
#include "worker/threads.h"

enum { BYTE_COUNT = 256, TOKENS_DEFAULT = 256 };

struct sample_options {
	const char *model, *prompt, *ids;
	uint64_t token_count; /* 0: TOKENS_DEFAULT, or what fits */
	uint64_t seed;
	double temperature;
	unsigned threads;
};

enum { KEY_MODEL = 256, KEY_PROMPT, KEY_IDS, KEY_TOKENS, KEY_TEMPERATURE, KEY_SEED, KEY_THREADS };

static const struct argp_option arguments[] = {
	{"model", KEY_MODEL, "DIR", 0, "folder with config.json and model.safetensors", 0},
	{"prompt", KEY_PROMPT, "TEXT", 0, "what to continue, for models of bytes (vocabulary 256)", 0},
	{"prompt-ids", KEY_IDS, "N,N,...", 0, "the same as token ids, for any model; ids are printed", 0},
	{"tokens", KEY_TOKENS, "N", 0, "tokens to draw (default 256, or what the model's positions allow)", 0},
	{"temperature", KEY_TEMPERATURE, "T", 0, "0: always the most likely token (default 0.8)", 0},
	{"seed", KEY_SEED, "N", 0, "of the draws (default 1); the same seed draws the same text", 0},
	{"threads", KEY_THREADS, "N", 0, "threads of matrix products (default: as many as the process may use)", 0},
	{0},
};

static const char doc[] =
	"Lets a model continue a text. Prompt and continuation go to standard output.\v" EXIT_STATUS_TEXT ".";

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct sample_options *options = state->input;
	switch (key) {
	case KEY_MODEL: options->model = text; return 0;
	case KEY_PROMPT: options->prompt = text; return 0;
	case KEY_IDS: options->ids = text; return 0;
	case KEY_TOKENS: options->token_count = cmdline_count(state, "--tokens", text, 1, 1 << 30); return 0;
	case KEY_TEMPERATURE: options->temperature = cmdline_real(state, "--temperature", text, 0, 100); return 0;
	case KEY_SEED: options->seed = cmdline_count(state, "--seed", text, 0, UINT64_MAX); return 0;
	case KEY_THREADS: options->threads = (unsigned)cmdline_count(state, "--threads", text, 1, 1024); return 0;
	case ARGP_KEY_ARG: cmdline_fail(state, "'%s': not expected, only options are", text);
	case ARGP_KEY_END:
		if (!options->model)
			cmdline_fail(state, "--model DIR is missing");
		if (!options->prompt == !options->ids)
			cmdline_fail(state, "expected either --prompt TEXT or --prompt-ids N,N,...");
		if (options->prompt && !*options->prompt)
			cmdline_fail(state, "--prompt: empty, expected at least one byte to continue");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* The prompt as tokens: bytes, or ids below vocab_size. ret_tokens is to be freed. */
static int read_prompt(const struct sample_options *options, uint32_t vocab_size, uint32_t **ret_tokens,
		size_t *ret_count, char *error, size_t error_size)
{
	const char *text = options->prompt ? options->prompt : options->ids;
	if (options->prompt && vocab_size != BYTE_COUNT)
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: a vocabulary of %" PRIu32 " tokens, not of 256 bytes: give --prompt-ids instead of --prompt",
				options->model, vocab_size);
	uint32_t *tokens = calloc(strlen(text) + 1, sizeof(*tokens));
	if (!tokens)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "the prompt: %s", strerror(ENOMEM));
	size_t count = 0;
	for (const char *at = text; options->prompt && *at; at++)
		tokens[count++] = (unsigned char)*at;
	for (const char *at = text; options->ids;) {
		char *end;
		unsigned long id = strtoul(at, &end, 10);
		if (*at < '0' || *at > '9' || id >= vocab_size || (*end && *end != ',')) {
			free(tokens);
			return complain(error, error_size, EDIT_ERROR_RANGE,
					"--prompt-ids: '%.40s', expected ids below %" PRIu32 " with commas between them", at, vocab_size);
		}
		tokens[count++] = (uint32_t)id;
		if (!*end)
			break;
		at = end + 1;
	}
	*ret_tokens = tokens;
	*ret_count = count;
	return 0;
}

/* Writes tokens as bytes or as ids; false if stdout does not take them. */
static bool write_tokens(const struct sample_options *options, const uint32_t *tokens, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (options->prompt ? putchar((int)tokens[i]) == EOF : printf("%" PRIu32 " ", tokens[i]) < 0)
			return false;
	return fflush(stdout) == 0;
}

static bool is_finite(const float *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!isfinite(values[i]))
			return false;
	return true;
}

/* Feeds the prompt, then draws token_count tokens one by one. ret_finite: whether the logits were; where they are not
 * it ends. */
static int run(const struct sample_options *options, struct llama *llama, const uint32_t *prompt, size_t prompt_count,
	       uint64_t token_count, bool *ret_finite, char *error, size_t error_size)
{
	unsigned vocab_size = llama_config_of(llama)->vocab_size;
	bool is_good = true;
	float *logits = malloc(vocab_size * sizeof(*logits));
	if (!logits)
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "the logits: %s", strerror(ENOMEM));
	bool is_written = write_tokens(options, prompt, prompt_count);
	const uint32_t *next = prompt;
	unsigned next_count = (unsigned)prompt_count;
	uint32_t token;
	for (uint64_t i = 0; is_written && i < token_count; i++) {
		int result = llama_extend(llama, next, next_count, logits);
		CHECK(result == 0);
		is_good = is_finite(logits, vocab_size);
		if (!is_good)
			break;
		token = llama_choose(logits, vocab_size, options->temperature, draw_uniform(options->seed, 0, i));
		next = &token;
		next_count = 1;
		is_written = write_tokens(options, next, next_count);
	}
	free(logits);
	if (!is_written || putchar('\n') == EOF || fflush(stdout))
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "the text cannot be written: %s", strerror(errno));
	*ret_finite = is_good;
	return 0;
}

/* How many tokens to draw, given the prompt and the model's positions. The last token drawn is not fed, so it needs
 * none. */
static int count_tokens(const struct sample_options *options, unsigned positions, size_t prompt_count,
			uint64_t *ret_count, char *error, size_t error_size)
{
	uint64_t wanted = options->token_count ? options->token_count : 1;
	if (prompt_count + wanted - 1 > positions)
		return complain(error, error_size, EDIT_ERROR_RANGE,
				"%s: %u positions, but the prompt has %zu tokens and %" PRIu64 " are to be drawn", options->model,
				positions, prompt_count, wanted);
	*ret_count = options->token_count ? wanted : u64_min(TOKENS_DEFAULT, positions - prompt_count + 1);
	return 0;
}

static int sample(const struct sample_options *options, const struct origin *origin, char *error, size_t error_size)
{
	uint32_t *prompt = NULL;
	size_t prompt_count = 0;
	uint64_t token_count = 0;
	int result = read_prompt(options, origin->config.vocab_size, &prompt, &prompt_count, error, error_size);
	if (result)
		return result;
	result = count_tokens(
			options, origin->config.max_position_embeddings, prompt_count, &token_count, error, error_size);
	if (!result) {
		struct origin_model model;
		const struct llama_limits limits = {
				.batch = 1, .time = 1, .cache_time = (unsigned)(prompt_count + token_count - 1)};
		result = origin_model_init(&model, origin, &limits, error, error_size);
		if (!result) {
			char why[LLAMA_NAME_MAX + 64];
			bool is_good = true;
			result = run(options, model.llama, prompt, prompt_count, token_count, &is_good, error, error_size);
			if (!is_good) {
				origin_model_blame(&model, origin, why, sizeof(why));
				result = complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: the logits are not finite (%s)",
						  options->model, why);
			}
			origin_model_fini(&model);
		}
	}
	free(prompt);
	return result;
}

int command_sample(int argc, char **argv)
{
	static const struct argp argp = {.options = arguments, .parser = parse, .doc = doc};
	struct sample_options options = {.temperature = 0.8, .seed = 1, .threads = threads_allowed()};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	kernels_set_threads(options.threads);
	char error[COMPLAINT_MAX];
	struct origin origin;
	int result = origin_open(&origin, options.model, 0, true, error, sizeof(error));
	if (!result) {
		result = sample(&options, &origin, error, sizeof(error));
		origin_close(&origin);
	}
	if (result)
		say(SAY_ERROR, "%s", error);
	return edit_error_status(result);
}

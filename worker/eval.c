/* edit-worker eval: the loss of a model on a file, as perplexity and bits per byte too. */

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cmdline.h"
#include "worker/commands.h"
#include "worker/complain.h"
#include "worker/corpus.h"
#include "worker/kernels.h"
#include "worker/origin.h"
#include "worker/say.h"
#include "worker/threads.h"

struct eval_options {
	const char *model, *data;
	enum corpus_type type;
	unsigned batch, context, threads; /* context 0: as the model allows, up to 256 */
	double holdout;
	bool json;
};

enum { KEY_MODEL = 256, KEY_DATA, KEY_TYPE, KEY_BATCH, KEY_CONTEXT, KEY_HOLDOUT, KEY_THREADS, KEY_JSON };

static const struct argp_option arguments[] = {
	{"model", KEY_MODEL, "DIR", 0, "folder with config.json and model.safetensors", 0},
	{"data", KEY_DATA, "FILE", 0, "text or tokens", 0},
	{"data-type", KEY_TYPE, "TYPE", 0, "text, u16, u32, llmc or auto (default auto)", 0},
	{"holdout", KEY_HOLDOUT, "F", 0, "only this fraction at the end, as held out in training (default 0: all)", 0},
	{"context", KEY_CONTEXT, "N", 0, "tokens of a window (default 256, or what the model has)", 0},
	{"batch", KEY_BATCH, "N", 0, "windows at once (default 8)", 0},
	{"threads", KEY_THREADS, "N", 0, "threads of matrix products (default: as many as the process may use)", 0},
	{"json", KEY_JSON, NULL, 0, "one JSON object with a version", 0},
	{0},
};

static const char doc[] =
	"Measures a model on a file: mean loss in nats per token, perplexity, and bits per byte if the tokens are bytes. "
	"The file is cut into windows that do not overlap; each token but the first is predicted once.\v"
	EXIT_STATUS_TEXT ".";

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct eval_options *options = state->input;
	switch (key) {
	case KEY_MODEL: options->model = text; return 0;
	case KEY_DATA: options->data = text; return 0;
	case KEY_TYPE:
		if (corpus_type_find(text, &options->type))
			cmdline_fail(state, "--data-type: '%s', expected text, u16, u32, llmc or auto", text);
		return 0;
	case KEY_BATCH: options->batch = (unsigned)cmdline_count(state, "--batch", text, 1, 65536); return 0;
	case KEY_CONTEXT: options->context = (unsigned)cmdline_count(state, "--context", text, 1, 1 << 20); return 0;
	case KEY_HOLDOUT: options->holdout = cmdline_real(state, "--holdout", text, 0, 0.99); return 0;
	case KEY_THREADS: options->threads = (unsigned)cmdline_count(state, "--threads", text, 1, 1024); return 0;
	case KEY_JSON: options->json = true; return 0;
	case ARGP_KEY_ARG: cmdline_fail(state, "'%s': not expected, only options are", text);
	case ARGP_KEY_END:
		if (!options->model || !options->data)
			cmdline_fail(state, "%s is missing", options->model ? "--data FILE" : "--model DIR");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

/* What has been measured. */
struct measure {
	double nats;     /* sum over targets */
	uint64_t count;  /* targets */
};

/* Adds windows of `time` targets from token `begin` on, `rows` of them side by side. */
static int add_windows(struct llama *llama, const struct corpus *corpus, uint64_t begin, unsigned rows, unsigned time,
		       uint32_t *tokens, struct measure *measure, char *error, size_t error_size)
{
	for (unsigned row = 0; row < rows; row++) {
		int result = corpus_read(corpus, begin + (uint64_t)row * time, (size_t)time + 1,
				tokens + (size_t)row * (time + 1), error, error_size);
		if (result)
			return result;
	}
	double loss;
	int result = llama_evaluate(llama, tokens, rows, time, &loss);
	CHECK(result == 0);
	measure->nats += loss * rows * time;
	measure->count += (uint64_t)rows * time;
	return 0;
}

/* All windows of tokens [begin, end), the last one as short as it comes. */
static int measure_range(struct llama *llama, const struct corpus *corpus, uint64_t begin, uint64_t end, unsigned batch,
			 struct measure *ret_measure, char *error, size_t error_size)
{
	uint64_t time = corpus->context;
	uint32_t *tokens = malloc(batch * (time + 1) * sizeof(*tokens));
	struct measure measure = {0};
	int result = tokens ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "a batch of tokens: %s", strerror(ENOMEM));
	while (!result && end - begin > 1) {
		uint64_t targets = end - begin - 1;
		unsigned rows = (unsigned)u64_min(batch, targets / time);
		if (rows == 0)
			time = targets, rows = 1;
		result = add_windows(llama, corpus, begin, rows, (unsigned)time, tokens, &measure, error, error_size);
		begin += rows * time;
	}
	free(tokens);
	if (!result)
		*ret_measure = measure;
	return result;
}

/* A path that is no UTF-8 cannot be told in JSON. */
static json_t *json_path(const char *path)
{
	json_t *text = json_string(path);
	return text ? text : json_null();
}

/* Numbers that JSON does not have are null. */
static json_t *json_number(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static bool print_json(const struct eval_options *options, double loss, bool has_bytes, uint64_t count)
{
	json_t *root = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:I}", "version", 1, "model", json_path(options->model),
				 "data", json_path(options->data), "loss", json_number(loss), "perplexity", json_number(exp(loss)),
				 "bits_per_byte", has_bytes ? json_number(loss / log(2)) : json_null(), "tokens", (json_int_t)count);
	int failed = root ? json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10)) : -1;
	json_decref(root);
	return !failed && putchar('\n') != EOF;
}

/* Prints the result; false if stdout does not take it. */
static bool print(const struct eval_options *options, const struct corpus *corpus, const struct measure *measure)
{
	double loss = measure->nats / (double)measure->count;
	bool has_bytes = corpus->type == CORPUS_TEXT;
	if (options->json)
		return print_json(options, loss, has_bytes, measure->count) && fflush(stdout) == 0;
	printf("loss           %.6f nats per token\nperplexity     %.4f\n", loss, exp(loss));
	if (has_bytes)
		printf("bits per byte  %.6f\n", loss / log(2));
	printf("tokens         %" PRIu64 "\n", measure->count);
	return fflush(stdout) == 0;
}

static int run(const struct eval_options *options, const struct origin *origin, struct corpus *corpus, char *error,
	       size_t error_size)
{
	uint64_t begin = options->holdout > 0 ? corpus->train_count : 0;
	if (corpus->token_count - begin < 2)
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"%s: %" PRIu64 " tokens to measure on, expected at least 2", options->data,
				corpus->token_count - begin);
	struct origin_model model;
	const struct llama_limits limits = {.batch = options->batch, .time = corpus->context};
	int result = origin_model_init(&model, origin, &limits, error, error_size);
	if (result)
		return result;
	struct measure measure;
	result = measure_range(
			model.llama, corpus, begin, corpus->token_count, options->batch, &measure, error, error_size);
	char why[LLAMA_NAME_MAX + 64] = "";
	if (!result && !isfinite(measure.nats))
		origin_model_blame(&model, origin, why, sizeof(why));
	origin_model_fini(&model);
	if (result)
		return result;
	/* Who reads text finds no number where there is none. */
	if ((!why[0] || options->json) && !print(options, corpus, &measure))
		return complain(error, error_size, EDIT_ERROR_SYSTEM, "the result cannot be written: %s", strerror(errno));
	if (why[0])
		return complain(error, error_size, EDIT_ERROR_MALFORMED, "%s: the loss is not finite (%s)", options->model,
				why);
	return 0;
}

int command_eval(int argc, char **argv)
{
	static const struct argp argp = {.options = arguments, .parser = parse, .doc = doc};
	struct eval_options options = {.type = CORPUS_AUTO, .batch = 8, .threads = threads_allowed()};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	kernels_set_threads(options.threads);
	char error[COMPLAINT_MAX];
	struct origin origin;
	struct corpus corpus;
	int result = origin_open(&origin, options.model, 0, true, error, sizeof(error));
	if (!result) {
		unsigned positions = origin.config.max_position_embeddings, context = options.context;
		if (context > positions)
			result = complain(error, sizeof(error), EDIT_ERROR_RANGE, "--context: %u, but the model has %u positions",
					context, positions);
		const struct corpus_options data = {.type = options.type,
						    .vocab_size = origin.config.vocab_size,
						    .context = context ? context : positions < 256 ? positions : 256,
						    .holdout = options.holdout};
		if (!result)
			result = corpus_open(&corpus, options.data, &data, false, error, sizeof(error));
		if (!result) {
			result = run(&options, &origin, &corpus, error, sizeof(error));
			corpus_close(&corpus);
		}
		origin_close(&origin);
	}
	if (result)
		say(SAY_ERROR, "%s", error);
	return edit_error_status(result);
}

/* Jobs of the real model. Owns the models, the data, the optimisers' state, and a copy of the parameters under examination. */

#include "sim/tuition.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/dice.h"
#include "sim/memory.h"
#include "worker/complain.h"
#include "worker/kernels.h"
#include "worker/llama.h"
#include "worker/llama_config.h"
#include "worker/llama_weights.h"

enum { INNER_FACTOR = 2 }; /* AdamW: m, then v */

enum task { TASK_NONE, TASK_STEP, TASK_GRADIENT };

struct pupil {
	struct job job;
	struct tuition *tuition;
	uint32_t rank;
	const struct layer *layers;
	uint64_t inner_step;     /* steps before the optimiser's first */
	struct adamw_piece *pieces; /* [layer_count] whole layers; the gradient is the model's at hand */
	enum task task;
	uint64_t number;
	uint64_t owed_number;    /* step whose mean gradient is still to be applied, before the task; 0: none */
	struct ailment ailment;
	struct outcome outcome;
};

/* The measurement of the held-out loss. */
struct examination {
	struct job job;
	struct tuition *tuition;
	float **thetas; /* [layer_count][size] */
	double loss;
};

struct tuition {
	const struct scenario *scenario;
	struct llama_config config;
	char *config_text;      /* of the file that it is from */
	struct corpus corpus;
	struct schedule schedule;
	struct adamw adamw;
	unsigned batch, context, thread_count;
	size_t layer_count;
	float **initial;        /* [layer_count][size] parameters to begin with */
	uint64_t exam_count;    /* samples of the held-out part */
	struct llama **models;  /* [thread_count] */
	uint32_t **tokens;      /* [thread_count][batch x (context + 1)] */
	struct pool *pool;
	struct pupil *pupils;   /* [host_count] */
	struct examination examination;
};

/* ---- Jobs, on the threads ---- */

/* The data were read in full when they were opened: somebody has changed the file since. */
static _Noreturn void give_up(const char *error)
{
	fprintf(stderr, "edit-sim: %s\n", error);
	_exit(edit_error_status(EDIT_ERROR_SYSTEM));
}

/* Fisher and Yates. */
static void shuffle(uint32_t *tokens, size_t count, struct dice *dice)
{
	for (size_t i = count; i > 1; i--) {
		size_t other = dice_between(dice, 0, i - 1);
		uint32_t token = tokens[i - 1];
		tokens[i - 1] = tokens[other];
		tokens[other] = token;
	}
}

/* The batch of a pupil's step. */
static void read_batch(const struct pupil *pupil, uint32_t *tokens)
{
	const struct tuition *tuition = pupil->tuition;
	const struct corpus_part part = {(uint64_t)tuition->scenario->value[RUN_SEED], pupil->rank,
					 tuition->scenario->host_count};
	struct dice dice = dice_at(part.seed, pupil->rank, pupil->number);
	char error[COMPLAINT_MAX];
	size_t sample = tuition->context + 1;
	for (unsigned row = 0; row < tuition->batch; row++) {
		uint64_t number = (pupil->number - 1) * tuition->batch + row;
		if (corpus_sample(&tuition->corpus, &part, number, tokens + row * sample, error, sizeof error))
			give_up(error);
		if (pupil->ailment.is_shuffled)
			shuffle(tokens + row * sample, sample, &dice);
	}
}

static void compute_gradient(struct pupil *pupil, struct llama *model, uint32_t *tokens)
{
	read_batch(pupil, tokens);
	llama_gradient_zero(model);
	int failed = llama_accumulate(model, tokens, pupil->tuition->batch, pupil->tuition->context, 1, &pupil->outcome.loss);
	CHECK(!failed);
}

/* AdamW with the gradient that the model holds. A change that it makes is proportional to the rate. */
static void apply(struct pupil *pupil, struct llama *model, uint64_t number, double factor)
{
	const struct tuition *tuition = pupil->tuition;
	double rate = factor * schedule_rate(&tuition->schedule, number - 1);
	for (unsigned l = 0; l < tuition->layer_count; l++)
		pupil->pieces[l].gradient = llama_gradient(model, l);
	pupil->outcome.is_finite = adamw_step(&tuition->config, pupil->pieces, &tuition->adamw, rate,
					      number - pupil->inner_step, &pupil->outcome.norm);
}

/* Copies the gradient out of the model, with the ailments that it would have; or into it. */
static void exchange(const struct pupil *pupil, struct llama *model, bool is_out)
{
	const struct ailment *ailment = &pupil->ailment;
	size_t middle = pupil->tuition->layer_count / 2;
	for (size_t l = 0; l < pupil->tuition->layer_count; l++) {
		size_t size = pupil->layers[l].size;
		float *inside = llama_gradient(model, (unsigned)l), *outside = pupil->layers[l].gradient;
		memcpy(is_out ? outside : inside, is_out ? inside : outside, size * sizeof(float));
		if (is_out && ailment->factor != 1)
			row_scale(outside, (float)ailment->factor, size);
		if (is_out && ailment->leaves_nan && l == middle)
			outside[size / 2] = NAN;
	}
}

static void run_pupil(struct job *job, unsigned thread)
{
	struct pupil *pupil = (struct pupil *)job;
	struct llama *model = pupil->tuition->models[thread];
	size_t middle = pupil->tuition->layer_count / 2;
	for (unsigned l = 0; l < pupil->tuition->layer_count; l++)
		llama_bind(model, l, pupil->layers[l].theta);
	if (pupil->owed_number > 0) {
		exchange(pupil, model, false);
		apply(pupil, model, pupil->owed_number, 1);
		pupil->owed_number = 0;
	}
	if (pupil->task != TASK_NONE)
		compute_gradient(pupil, model, pupil->tuition->tokens[thread]);
	if (pupil->task == TASK_GRADIENT)
		exchange(pupil, model, true);
	if (pupil->task == TASK_STEP)
		apply(pupil, model, pupil->number, pupil->ailment.factor);
	if (pupil->task == TASK_STEP && pupil->ailment.leaves_nan)
		pupil->layers[middle].theta[pupil->layers[middle].size / 2] = NAN;
}

/* Loss of the first samples of the held-out part, batch by batch. */
static void run_examination(struct job *job, unsigned thread)
{
	struct examination *examination = (struct examination *)job;
	struct tuition *tuition = examination->tuition;
	struct llama *model = tuition->models[thread];
	uint32_t *tokens = tuition->tokens[thread];
	char error[COMPLAINT_MAX];
	double sum = 0;
	for (unsigned l = 0; l < tuition->layer_count; l++)
		llama_bind(model, l, examination->thetas[l]);
	for (uint64_t done = 0; done < tuition->exam_count;) {
		unsigned rows = (unsigned)u64_min(tuition->batch, tuition->exam_count - done);
		for (unsigned row = 0; row < rows; row++, done++) {
			uint64_t begin = tuition->corpus.train_count + done * tuition->context;
			size_t sample = tuition->context + 1;
			if (corpus_read(&tuition->corpus, begin, sample, tokens + row * sample, error, sizeof error))
				give_up(error);
		}
		double loss;
		int failed = llama_evaluate(model, tokens, rows, tuition->context, &loss);
		CHECK(!failed);
		sum += loss * rows;
	}
	examination->loss = sum / (double)tuition->exam_count;
}

/* ---- Opening ---- */

static int open_data(struct tuition *tuition, char *error, size_t error_size)
{
	const struct scenario *scenario = tuition->scenario;
	struct corpus_options options = {.type = CORPUS_AUTO,
					 .vocab_size = tuition->config.vocab_size,
					 .context = tuition->context,
					 .holdout = scenario->value[DATA_HOLDOUT]};
	const char *type = scenario->text[DATA_TYPE];
	if (type && corpus_type_find(type, &options.type))
		return complain(error, error_size, EDIT_ERROR_INVALID,
				"[data] type: '%s', expected auto, text, u16, u32 or llmc", type);
	if (tuition->context > tuition->config.max_position_embeddings)
		return complain(error, error_size, EDIT_ERROR_RANGE, "[data] context: %u, but the model has %u positions",
				tuition->context, tuition->config.max_position_embeddings);
	int failed = corpus_open(&tuition->corpus, scenario->text[DATA_FILE], &options, true, error, error_size);
	if (failed)
		return failed;
	const struct corpus_part part = {0, 0, scenario->host_count};
	failed = corpus_part_check(&tuition->corpus, &part, error, error_size);
	uint64_t held_out = tuition->corpus.token_count - tuition->corpus.train_count;
	uint64_t samples = held_out > 0 ? (held_out - 1) / tuition->context : 0;
	tuition->exam_count = u64_min(samples, (uint64_t)scenario->value[RUN_EVAL_SAMPLES]);
	if (!failed && samples == 0)
		failed = complain(error, error_size, EDIT_ERROR_INVALID,
				  "%s: %llu tokens are held out, expected more than context (%u)",
				  scenario->text[DATA_FILE], (unsigned long long)held_out, tuition->context);
	if (failed)
		corpus_close(&tuition->corpus);
	return failed;
}

static int open_models(struct tuition *tuition, char *error, size_t error_size)
{
	const struct llama_limits limits = {.batch = tuition->batch, .time = tuition->context, .training = true};
	kernels_set_threads(1);
	for (unsigned t = 0; t < tuition->thread_count; t++) {
		int failed = llama_new(&tuition->config, &limits, &tuition->models[t]);
		if (failed)
			return complain(error, error_size, failed, "a model of this size with batch %u and context %u: %s",
					tuition->batch, tuition->context, edit_error_text(failed));
		tuition->tokens[t] = memory_take(tuition->batch * ((size_t)tuition->context + 1), sizeof(uint32_t));
	}
	tuition->pool = pool_new(tuition->thread_count);
	return tuition->pool ? 0 : complain(error, error_size, EDIT_ERROR_SYSTEM, "%u threads: the system has no more",
					    tuition->thread_count);
}

/* The parameters to begin with: drawn, or those of the folder that the scenario names. */
static int open_parameters(struct tuition *tuition, char *error, size_t error_size)
{
	const struct scenario *scenario = tuition->scenario;
	struct tensorfolder *weights = NULL;
	char cause[COMPLAINT_MAX];
	int failed = 0;
	if (scenario->text[MODEL_START])
		failed = llama_weights_open(&tuition->config, scenario->text[MODEL_START], &weights, cause, sizeof cause);
	tuition->layer_count = llama_layer_count(&tuition->config);
	tuition->initial = memory_take(tuition->layer_count, sizeof(float *));
	tuition->examination = (struct examination){.job.run = run_examination, .tuition = tuition};
	tuition->examination.thetas = memory_take(tuition->layer_count, sizeof(float *));
	for (unsigned l = 0; l < tuition->layer_count; l++) {
		tuition->initial[l] = memory_take(tuition_layer_size(tuition, l), sizeof(float));
		tuition->examination.thetas[l] = memory_take(tuition_layer_size(tuition, l), sizeof(float));
		if (!scenario->text[MODEL_START])
			llama_init(&tuition->config, l, (uint64_t)scenario->value[RUN_SEED], tuition->initial[l]);
		else if (!failed)
			failed = llama_weights_read(&tuition->config, weights, l, tuition->initial[l], cause, sizeof cause);
	}
	tensorfolder_close(weights);
	return !failed ? 0 : complain(error, error_size, failed, "%s:%d: [model] start: %s", scenario->path,
				      scenario->line_number[MODEL_START], cause);
}

static void read_schedule(struct tuition *tuition)
{
	const double *value = tuition->scenario->value;
	tuition->adamw = adamw_standard();
	tuition->adamw.beta1 = value[DATA_BETA1];
	tuition->adamw.beta2 = value[DATA_BETA2];
	tuition->adamw.weight_decay = value[DATA_DECAY];
	tuition->adamw.clip_norm = value[DATA_CLIP];
	tuition->schedule = (struct schedule){.peak = value[DATA_LR],
					      .floor = value[DATA_MIN_LR],
					      .warmup_steps = (uint64_t)value[DATA_WARMUP],
					      .total_steps = (uint64_t)value[DATA_STEPS]};
}

struct tuition *tuition_open(const struct scenario *scenario, unsigned thread_count, int *ret_error, struct line *why)
{
	struct tuition *tuition = memory_take(1, sizeof *tuition);
	char error[COMPLAINT_MAX] = "";
	tuition->scenario = scenario;
	tuition->batch = (unsigned)scenario->value[DATA_BATCH];
	tuition->context = (unsigned)scenario->value[DATA_CONTEXT];
	tuition->thread_count = thread_count;
	tuition->models = memory_take(thread_count, sizeof *tuition->models);
	tuition->tokens = memory_take(thread_count, sizeof *tuition->tokens);
	tuition->pupils = memory_take(scenario->host_count, sizeof *tuition->pupils);
	read_schedule(tuition);
	int failed = llama_config_load(scenario->text[MODEL_CONFIG], &tuition->config, error, sizeof error);
	if (!failed)
		failed = llama_config_text(scenario->text[MODEL_CONFIG], &tuition->config_text, error, sizeof error);
	if (!failed)
		failed = open_data(tuition, error, sizeof error);
	if (failed)
		tuition->corpus.fd = -1;
	else
		failed = open_parameters(tuition, error, sizeof error);
	if (!failed)
		failed = open_models(tuition, error, sizeof error);
	if (failed) {
		*ret_error = line_fail(why, failed, "%.500s", error);
		tuition_close(tuition);
		return NULL;
	}
	return tuition;
}

void tuition_close(struct tuition *tuition)
{
	if (!tuition)
		return;
	pool_free(tuition->pool);
	for (unsigned t = 0; t < tuition->thread_count; t++) {
		llama_free(tuition->models[t]);
		free(tuition->tokens[t]);
	}
	for (size_t l = 0; l < tuition->layer_count; l++) {
		free(tuition->initial[l]);
		free(tuition->examination.thetas[l]);
		for (uint32_t rank = 0; rank < tuition->scenario->host_count; rank++)
			if (tuition->pupils[rank].pieces)
				free(tuition->pupils[rank].pieces[l].inner);
	}
	for (uint32_t rank = 0; rank < tuition->scenario->host_count; rank++)
		free(tuition->pupils[rank].pieces);
	if (tuition->corpus.fd >= 0)
		corpus_close(&tuition->corpus);
	free(tuition->config_text);
	free(tuition->initial);
	free(tuition->examination.thetas);
	free(tuition->pupils);
	free(tuition->models);
	free(tuition->tokens);
	free(tuition);
}

size_t tuition_layer_count(const struct tuition *tuition)
{
	return tuition->layer_count;
}

size_t tuition_layer_size(const struct tuition *tuition, size_t layer_index)
{
	return llama_layer_size(&tuition->config, (unsigned)layer_index);
}

/* ---- For the virtual workers ---- */

void tuition_enrol(struct tuition *tuition, uint32_t rank, const struct layer *layers)
{
	struct pupil *pupil = &tuition->pupils[rank];
	*pupil = (struct pupil){.job.run = run_pupil,
				.tuition = tuition,
				.rank = rank,
				.layers = layers,
				.pieces = memory_take(tuition->layer_count, sizeof *pupil->pieces)};
	for (size_t l = 0; l < tuition->layer_count; l++) {
		pupil->pieces[l] = (struct adamw_piece){.count = layers[l].size, .theta = layers[l].theta};
		pupil->pieces[l].inner = memory_take(INNER_FACTOR * layers[l].size, sizeof(float));
		memcpy(layers[l].theta, tuition->initial[l], layers[l].size * sizeof(float));
	}
}

static void begin(struct tuition *tuition, uint32_t rank, enum task task, uint64_t number, struct ailment ailment)
{
	struct pupil *pupil = &tuition->pupils[rank];
	CHECK(!pupil->job.is_open);
	pupil->task = task;
	pupil->number = number;
	pupil->ailment = ailment;
	pool_add(tuition->pool, &pupil->job);
}

void tuition_step(struct tuition *tuition, uint32_t rank, uint64_t number, struct ailment ailment)
{
	begin(tuition, rank, TASK_STEP, number, ailment);
}

void tuition_gradient(struct tuition *tuition, uint32_t rank, uint64_t number, struct ailment ailment)
{
	begin(tuition, rank, TASK_GRADIENT, number, ailment);
}

void tuition_apply(struct tuition *tuition, uint32_t rank, uint64_t number)
{
	struct pupil *pupil = &tuition->pupils[rank];
	pool_wait(tuition->pool, &pupil->job);
	CHECK(pupil->owed_number == 0);
	pupil->owed_number = number;
}

struct outcome tuition_result(struct tuition *tuition, uint32_t rank)
{
	struct pupil *pupil = &tuition->pupils[rank];
	pool_wait(tuition->pool, &pupil->job);
	if (pupil->owed_number > 0) {
		begin(tuition, rank, TASK_NONE, pupil->owed_number, (struct ailment){.factor = 1});
		pool_wait(tuition->pool, &pupil->job);
	}
	return pupil->outcome;
}

void tuition_restart(struct tuition *tuition, uint32_t rank, uint64_t number)
{
	CHECK(number >= 1);
	tuition_result(tuition, rank);
	for (size_t l = 0; l < tuition->layer_count; l++)
		tuition_forget(tuition, rank, l);
	tuition->pupils[rank].inner_step = number - 1;
}

void tuition_forget(struct tuition *tuition, uint32_t rank, size_t layer_index)
{
	struct pupil *pupil = &tuition->pupils[rank];
	pool_wait(tuition->pool, &pupil->job);
	memset(pupil->pieces[layer_index].inner, 0, INNER_FACTOR * pupil->layers[layer_index].size * sizeof(float));
}

void tuition_examine(struct tuition *tuition, const struct layer *layers)
{
	struct examination *examination = &tuition->examination;
	pool_wait(tuition->pool, &examination->job);
	for (size_t l = 0; l < tuition->layer_count; l++)
		memcpy(examination->thetas[l], layers[l].anchor, layers[l].size * sizeof(float));
	pool_add(tuition->pool, &examination->job);
}

bool tuition_has_mark(struct tuition *tuition)
{
	return pool_is_done(tuition->pool, &tuition->examination.job);
}

double tuition_mark(struct tuition *tuition)
{
	pool_wait(tuition->pool, &tuition->examination.job);
	return tuition->examination.loss;
}

/* ---- What is left ---- */

static int save_text(const char *path, const char *text, struct line *why)
{
	FILE *file = fopen(path, "we");
	bool is_written = file && fputs(text, file) >= 0;
	if (file && fclose(file) != 0)
		is_written = false;
	return is_written ? 0 : line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be written (%s)", path, strerror(errno));
}

int tuition_save(const struct tuition *tuition, const struct layer *layers, const char *folder, struct line *why)
{
	char *path, error[COMPLAINT_MAX];
	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return line_fail(why, EDIT_ERROR_SYSTEM, "%.400s: cannot be made (%s)", folder, strerror(errno));
	int length = asprintf(&path, "%s/config.json", folder);
	CHECK(length > 0);
	int failed = save_text(path, tuition->config_text, why);
	free(path);
	if (failed)
		return failed;

	const float **anchors = memory_take(tuition->layer_count, sizeof *anchors);
	for (size_t l = 0; l < tuition->layer_count; l++)
		anchors[l] = layers[l].anchor;
	length = asprintf(&path, "%s/model.safetensors", folder);
	CHECK(length > 0);
	if (llama_weights_write(&tuition->config, anchors, path, NULL, error, sizeof error))
		failed = line_fail(why, EDIT_ERROR_SYSTEM, "%.500s", error);
	free(path);
	free(anchors);
	return failed;
}

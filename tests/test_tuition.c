/* The real model behind the virtual workers: its steps are those of the training program to the bit, on any number of threads and
 * in two halves as in one; and a ring of one node that averages parameters is plain training. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster.h"
#include "sim/machine.h"
#include "tests/scratch.h"
#include "worker/llama.h"

enum { STEPS = 12, BATCH = 4, CONTEXT = 16, LAYERS_MAX = 8 };

static const char CONFIG[] =
	"{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"vocab_size\":256,\"hidden_size\":16,\"intermediate_size\":24,"
	"\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"max_position_embeddings\":16,"
	"\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"tie_word_embeddings\":false}";

static const char SCENARIO[] =
	"[run]\nseed = 9\nmethod = local-sgd\nsync.interval = 1000\ntokens = 768\n[model]\nconfig = config.json\n"
	"[data]\nfile = text\ncontext = 16\nbatch = 4\nlr = 0.01\nwarmup = 3\n[nodes]\ncount = %d\n";

static struct line why;

/* A scenario with that many nodes. */
static void read_scenario(struct scenario *scenario, int nodes)
{
	char text[sizeof SCENARIO + 16], words[8192];
	uint64_t state = 1;
	for (size_t i = 0; i < sizeof words; i++) {
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
		words[i] = (char)('a' + (state >> 60));
	}
	scratch_write("config.json", CONFIG, strlen(CONFIG));
	scratch_write("text", words, sizeof words);
	snprintf(text, sizeof text, SCENARIO, nodes);
	assert_int_equal(scenario_open(scenario, scratch_write("scenario.ini", text, strlen(text)), &why), 0);
}

static struct tuition *open_tuition(const struct scenario *scenario, unsigned threads)
{
	int error;
	struct tuition *tuition = tuition_open(scenario, threads, &error, &why);
	assert_non_null(tuition);
	return tuition;
}

/* Parameters and gradients of one pupil. */
struct desk {
	struct layer layers[LAYERS_MAX];
	size_t count;
};

static void desk_init(struct desk *desk, struct tuition *tuition, uint32_t rank)
{
	desk->count = tuition_layer_count(tuition);
	for (size_t l = 0; l < desk->count; l++) {
		size_t size = tuition_layer_size(tuition, l);
		desk->layers[l] = (struct layer){.size = size, .theta = calloc(size, sizeof(float))};
		desk->layers[l].anchor = desk->layers[l].theta;
		desk->layers[l].gradient = calloc(size, sizeof(float));
	}
	tuition_enrol(tuition, rank, desk->layers);
}

static void desk_fini(struct desk *desk)
{
	for (size_t l = 0; l < desk->count; l++) {
		free(desk->layers[l].theta);
		free(desk->layers[l].gradient);
	}
}

static bool is_same(const struct desk *a, const struct desk *b)
{
	bool is_same = true;
	for (size_t l = 0; l < a->count; l++)
		is_same &= memcmp(a->layers[l].theta, b->layers[l].theta, a->layers[l].size * sizeof(float)) == 0;
	return is_same;
}

static const struct ailment HEALTHY = {.factor = 1};

/* STEPS steps as edit-worker train takes them, with its own calls. Returns the mean loss. */
static double train_plainly(const struct scenario *scenario, struct desk *desk)
{
	char error[1024];
	struct llama_config config;
	struct corpus corpus;
	struct llama *model;
	double sum = 0;
	assert_int_equal(llama_config_load(scenario->text[MODEL_CONFIG], &config, error, sizeof error), 0);
	const struct corpus_options options = {.type = CORPUS_AUTO, .vocab_size = 256, .context = CONTEXT, .holdout = 0.1};
	assert_int_equal(corpus_open(&corpus, scenario->text[DATA_FILE], &options, true, error, sizeof error), 0);
	const struct llama_limits limits = {.batch = BATCH, .time = CONTEXT, .training = true};
	assert_int_equal(llama_new(&config, &limits, &model), 0);
	struct adamw_piece pieces[LAYERS_MAX];
	for (unsigned l = 0; l < desk->count; l++) {
		size_t size = desk->layers[l].size;
		pieces[l] = (struct adamw_piece){.count = size, .theta = desk->layers[l].theta};
		pieces[l].inner = calloc(2 * size, sizeof(float));
		pieces[l].gradient = llama_gradient(model, l);
		llama_init(&config, l, 9, desk->layers[l].theta);
		llama_bind(model, l, desk->layers[l].theta);
	}
	const struct schedule schedule = {.peak = 0.01, .floor = 0.001, .warmup_steps = 3, .total_steps = STEPS};
	const struct corpus_part part = {9, 0, 1};
	const struct adamw adamw = adamw_standard();
	for (uint64_t step = 0; step < STEPS; step++) {
		uint32_t tokens[BATCH * (CONTEXT + 1)];
		double loss, norm;
		for (unsigned row = 0; row < BATCH; row++)
			assert_int_equal(corpus_sample(&corpus, &part, step * BATCH + row, tokens + row * (CONTEXT + 1), error,
						       sizeof error), 0);
		llama_gradient_zero(model);
		assert_int_equal(llama_accumulate(model, tokens, BATCH, CONTEXT, 1, &loss), 0);
		assert_true(adamw_step(&config, pieces, &adamw, schedule_rate(&schedule, step), step + 1, &norm));
		sum += loss;
	}
	for (unsigned l = 0; l < desk->count; l++)
		free(pieces[l].inner);
	llama_free(model);
	corpus_close(&corpus);
	return sum / STEPS;
}

static void steps_are_those_of_the_training_program_to_the_bit(void **state)
{
	(void)state;
	struct scenario scenario;
	struct desk plain, whole, halves;
	read_scenario(&scenario, 1);
	struct tuition *tuition = open_tuition(&scenario, 1), *other = open_tuition(&scenario, 2);
	desk_init(&plain, tuition, 0);
	double mean = train_plainly(&scenario, &plain), sum = 0;
	tuition_close(tuition);
	tuition = open_tuition(&scenario, 2);
	desk_init(&whole, tuition, 0);
	desk_init(&halves, other, 0);
	for (uint64_t number = 1; number <= STEPS; number++) {
		tuition_step(tuition, 0, number, HEALTHY);
		tuition_gradient(other, 0, number, HEALTHY);
		sum += tuition_result(tuition, 0).loss;
		tuition_result(other, 0);
		tuition_apply(other, 0, number);
		tuition_result(other, 0);
	}
	assert_true(is_same(&plain, &whole));
	assert_true(is_same(&plain, &halves));
	assert_true(sum / STEPS == mean);
	tuition_close(tuition);
	tuition_close(other);
	desk_fini(&plain);
	desk_fini(&whole);
	desk_fini(&halves);
	scenario_close(&scenario);
}

static void ailments_do_what_they_say(void **state)
{
	(void)state;
	struct scenario scenario;
	struct desk desks[4];
	read_scenario(&scenario, 4);
	struct tuition *tuition = open_tuition(&scenario, 2);
	for (uint32_t rank = 0; rank < 4; rank++)
		desk_init(&desks[rank], tuition, rank);
	tuition_step(tuition, 0, 1, HEALTHY);
	tuition_step(tuition, 1, 1, (struct ailment){.factor = 1, .leaves_nan = true});
	tuition_step(tuition, 2, 1, (struct ailment){.factor = 1000});
	tuition_gradient(tuition, 3, 1, (struct ailment){.factor = 1, .leaves_nan = true});
	for (uint32_t rank = 0; rank < 4; rank++)
		tuition_result(tuition, rank);
	size_t middle = desks[0].count / 2, at = desks[0].layers[middle].size / 2;
	assert_true(isfinite(desks[0].layers[middle].theta[at]));
	assert_true(isnan(desks[1].layers[middle].theta[at]));
	assert_true(isnan(desks[3].layers[middle].gradient[at]));
	assert_true(fabsf(desks[2].layers[0].theta['a' * 16] - desks[0].layers[0].theta['a' * 16]) > 0.5f);
	tuition_apply(tuition, 3, 1);
	assert_false(tuition_result(tuition, 3).is_finite);
	tuition_close(tuition);
	for (uint32_t rank = 0; rank < 4; rank++)
		desk_fini(&desks[rank]);
	scenario_close(&scenario);
}

static void watch_nothing(void *arg, double part)
{
	(void)arg;
	assert_in_range((int)(100 * part), 0, 100);
}

/* The anchor of the only round is anchor - (anchor - theta): theta but for the last bits. */
static void ring_of_one_is_plain_training(void **state)
{
	(void)state;
	struct scenario scenario;
	struct desk plain;
	read_scenario(&scenario, 1);
	struct tuition *tuition = open_tuition(&scenario, 2);
	desk_init(&plain, tuition, 0);
	train_plainly(&scenario, &plain);
	tuition_examine(tuition, plain.layers);
	double expected = tuition_mark(tuition);
	tuition_close(tuition);
	tuition = open_tuition(&scenario, 2);
	struct report *report = report_open(NULL, &scenario, tuition, &why);
	assert_non_null(report);
	assert_true(cluster_run(&scenario, tuition, report, watch_nothing, NULL, &why));
	assert_true(fabs(report_last_loss(report) - expected) < 1e-6);
	assert_true(report_close(report));
	tuition_close(tuition);
	desk_fini(&plain);
	scenario_close(&scenario);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_those_of_the_training_program_to_the_bit),
		cmocka_unit_test(ailments_do_what_they_say),
		cmocka_unit_test(ring_of_one_is_plain_training),
	};
	return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}

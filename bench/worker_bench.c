/* Times training steps of the built-in model and prints one JSON object, with [elapsed, CPU time] in ms of each
 * step; run by bench/worker.py.
 *
 *     worker_bench VOCAB HIDDEN LAYERS HEADS INTERMEDIATE BATCH TIME STEPS
 *
 * A step is everything that a training loop does: gradients, clipping, AdamW. The rate of plain matrix products is
 * measured before and after, in the same process. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "worker/adamw.h"
#include "worker/draw.h"
#include "worker/kernels.h"
#include "worker/llama.h"

enum { WARMUP_STEPS = 2, SGEMM_SIZE = 1024, SGEMM_COUNT = 8 };

static double clock_ms(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static float *floats(size_t count)
{
	float *x = calloc(count, sizeof *x);
	if (!x) {
		fprintf(stderr, "worker_bench: no memory for %zu numbers\n", count);
		exit(1);
	}
	return x;
}

/* Best rate of a square product, in GFLOP/s. */
static double sgemm_rate(void)
{
	const size_t n = SGEMM_SIZE;
	float *a = floats(3 * n * n), *b = a + n * n, *c = b + n * n;
	double best_ms = 1e30;
	draw_normals(1, 1, 1, a, 2 * n * n);
	for (unsigned i = 0; i < SGEMM_COUNT; i++) {
		double begin = clock_ms(CLOCK_MONOTONIC);
		matmul_nt(matrix(c, n), const_matrix(a, n), const_matrix(b, n), n, n, n, 1, 0);
		double took = clock_ms(CLOCK_MONOTONIC) - begin;
		best_ms = took < best_ms ? took : best_ms;
	}
	free(a);
	return 2e-6 * (double)n * (double)n * (double)n / best_ms;
}

/* Makes pieces [llama_layer_count], whole layers. Returns the number of parameters. */
static size_t bind_parameters(struct llama *model, const struct llama_config *config, struct adamw_piece *pieces)
{
	size_t total = 0;
	for (unsigned layer = 0; layer < llama_layer_count(config); layer++) {
		size_t size = llama_layer_size(config, layer);
		float *theta = floats(3 * size);
		llama_init(config, layer, 1, theta);
		llama_bind(model, layer, theta);
		pieces[layer] = (struct adamw_piece){
			.count = size, .theta = theta, .inner = theta + size, .gradient = llama_gradient(model, layer)};
		total += size;
	}
	return total;
}

static double step(struct llama *model, const struct adamw_piece *pieces, const uint32_t *tokens, unsigned batch, unsigned time, unsigned number)
{
	const struct adamw adamw = adamw_standard();
	double loss, norm;
	llama_gradient_zero(model);
	llama_accumulate(model, tokens, batch, time, 1, &loss);
	adamw_step(llama_config_of(model), pieces, &adamw, 1e-3, number, &norm);
	return loss;
}

int main(int argc, char **argv)
{
	unsigned n[8];
	if (argc != 9) {
		fprintf(stderr, "usage: worker_bench VOCAB HIDDEN LAYERS HEADS INTERMEDIATE BATCH TIME STEPS\n");
		return 2;
	}
	for (int i = 0; i < 8; i++)
		n[i] = (unsigned)strtoul(argv[i + 1], NULL, 10);
	struct llama_config config = {
		.vocab_size = n[0],
		.hidden_size = n[1],
		.layer_count = n[2],
		.head_count = n[3],
		.kv_head_count = n[3],
		.head_dim = n[1] / n[3],
		.intermediate_size = n[4],
		.max_position_embeddings = n[6],
		.rms_norm_eps = 1e-5,
		.rope_theta = 10000,
		.tie_word_embeddings = true,
	};
	struct llama_limits limits = {n[5], n[6], 0, true, false};
	struct llama *model;
	kernels_set_threads(1);
	if (llama_new(&config, &limits, &model) != 0) {
		fprintf(stderr, "worker_bench: no memory for the model\n");
		return 1;
	}
	struct adamw_piece *pieces = calloc(llama_layer_count(&config), sizeof *pieces);
	if (!pieces)
		return 1;
	size_t parameters = bind_parameters(model, &config, pieces), count = (size_t)n[5] * (n[6] + 1);
	uint32_t *tokens = calloc(count, sizeof *tokens);
	if (!tokens)
		return 1;
	for (size_t i = 0; i < count; i++)
		tokens[i] = (uint32_t)(draw_bits(2, 0, i) % n[0]);

	double before = sgemm_rate(), loss = 0;
	printf("{\"parameters\": %zu, \"steps\": [", parameters);
	for (unsigned i = 0; i < n[7] + WARMUP_STEPS; i++) {
		double begin = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
		loss = step(model, pieces, tokens, n[5], n[6], i + 1);
		if (i >= WARMUP_STEPS)
			printf("%s[%.3f, %.3f]", i > WARMUP_STEPS ? ", " : "", clock_ms(CLOCK_MONOTONIC) - begin,
			       clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	}
	double after = sgemm_rate();
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("], \"loss\": %.6f, \"sgemm_gflops\": %.1f, \"model_bytes\": %zu, \"peak_bytes\": %zu}\n", loss,
	       before > after ? before : after, llama_memory_bytes(model), (size_t)usage.ru_maxrss * 1024);
	for (unsigned layer = 0; layer < llama_layer_count(&config); layer++)
		free(pieces[layer].theta);
	free(pieces);
	free(tokens);
	llama_free(model);
	return 0;
}

/* A worker for tests: no model, only layers whose numbers move by a known pattern, and commands to misbehave. What
 * it shows is the daemon; all it uses is worker/edit_worker.h.
 *
 *     probe_worker [options] SOCKET       prints "ready STEP", "done STEP ROUND"; exit 0, or 1 with a line */

#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/edit_worker_link.h"

enum { LAYERS_MAX = 64 };

struct probe {
	const char *socket;
	unsigned layer_count;
	uint64_t size;          /* elements of the first layer; the others have one more each */
	uint64_t steps;
	unsigned step_ms;
	bool has_passes;        /* a third of step_ms is a forward pass, layer by layer; step_ms is all of a step */
	uint64_t moving;        /* elements of each layer that a step changes, the first ones */
	double scale;           /* of a step's change */
	double begin;           /* initial theta */
	int64_t nan_theta_step, nan_loss_step, spike_step; /* steps that do harm; -1: none */
	int64_t die_step, tear_step, die_offered_step; /* dies before, in the middle of, after this step; -1: never */
	int64_t die_handing_step; /* dies when half of this step's gradients are handed over; -1: never */
	int64_t die_announcing_step; /* dies when it has announced this step's gradients and handed none over; -1: never */
	bool has_attach_only;   /* attaches and waits to be killed */
	const char *facts[16];
	size_t fact_count;
};

static _Noreturn void give_up(struct edit_worker *worker, const char *what)
{
	printf("%s: %s\n", what, edit_worker_error(worker));
	exit(1);
}

static void describe(struct edit_worker *worker, const struct probe *probe)
{
	char name[32];
	for (unsigned i = 0; i < probe->layer_count; i++) {
		uint64_t size = probe->size + i;
		snprintf(name, sizeof name, "block %u", i);
		if (edit_worker_add_layer(worker, name) < 0)
			give_up(worker, name);
		snprintf(name, sizeof name, "block.%u.weight", i);
		if (edit_worker_add_tensor(worker, name, &size, 1) != 0)
			give_up(worker, name);
	}
	for (size_t i = 0; i < probe->fact_count; i++) {
		char *key = strdup(probe->facts[i]), *value = strchr(key, '=');
		if (!value)
			exit(2);
		*value++ = 0;
		if (edit_worker_add_fact(worker, key, value) != 0)
			give_up(worker, "fact");
		free(key);
	}
	if (edit_worker_set_config(worker, "{\"probe\": true}\n") != 0 || edit_worker_set_inner(worker, 1) != 0)
		give_up(worker, "describe");
}

/* The change that this worker wants, by itself, of element i in a step. */
static float change_of(struct edit_worker *worker, const struct probe *probe, uint64_t step, uint64_t i)
{
	double scale = probe->scale * ((int64_t)step == probe->spike_step ? 1e4 : 1);
	return (float)(scale * sin((double)(i * 7 + step * 3 + edit_worker_rank(worker))));
}

/* Stops where edit_worker_offer_gradient can be killed: between the word that announces the step and the first layer's. */
static _Noreturn void die_announcing(struct edit_worker *worker)
{
	struct segment_header *header = worker->segment.header;
	atomic_store(&header->offers, atomic_load(&header->offers) + 1);
	atomic_store(&header->handed_step, atomic_load(&header->step) + 1);
	raise(SIGKILL);
	abort();
}

/* Hands over what each layer shall change by, last layer first; afterwards changes[layer] are the pieces' means over the members, or
 * over the nodes of the replica. Result of the library. */
static int average(struct edit_worker *worker, const struct probe *probe, float *const *changes, uint64_t step)
{
	int result = 0;
	for (unsigned layer = probe->layer_count; !result && layer-- > 0;) {
		for (uint64_t i = 0; i < probe->size + layer; i++)
			changes[layer][i] = change_of(worker, probe, step, i);
		if ((int64_t)step == probe->die_handing_step && layer == probe->layer_count / 2)
			raise(SIGKILL);
		if ((int64_t)step == probe->die_announcing_step)
			die_announcing(worker);
		result = edit_worker_offer_gradient(worker, layer, changes[layer], step + 1 == probe->steps);
	}
	for (unsigned layer = probe->layer_count; !result && layer-- > 0;)
		result = edit_worker_mean_gradient(worker, layer, changes[layer]);
	return result;
}

/* Steps this node's piece of a layer. change [elements of the piece]; NULL: this worker's own. */
static void step_layer(struct edit_worker *worker, const struct probe *probe, unsigned layer, uint64_t step, const float *change)
{
	size_t first, size;
	float *theta = edit_worker_piece(worker, layer, &first, &size);
	edit_worker_step_begin(worker, layer);
	for (uint64_t i = 0; i < size && first + i < probe->moving; i++) {
		if ((int64_t)step == probe->tear_step && layer == 0 && i == size / 2)
			raise(SIGKILL);
		theta[i] += change ? change[i] : change_of(worker, probe, step, first + i);
	}
	if ((int64_t)step == probe->nan_theta_step && size > 0)
		theta[0] = NAN;
	edit_worker_step_end(worker, layer);
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void sleep_until(uint64_t time_us)
{
	struct timespec time = {.tv_sec = (time_t)(time_us / 1000000), .tv_nsec = (long)(time_us % 1000000) * 1000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
		;
}

/* What the whole layer has at the own piece's place must be the piece. */
static void check_gathered(struct edit_worker *worker, unsigned layer)
{
	size_t first, count;
	const float *piece = edit_worker_piece(worker, layer, &first, &count), *whole = edit_worker_theta(worker, layer);
	if (whole && (count == 0 || memcmp(whole + first, piece, count * sizeof *piece) == 0))
		return;
	printf("layer %u: the whole layer does not have the own piece\n", layer);
	exit(1);
}

/* Takes the layers in order; with passes it computes in each as long as in any other. Returns when the rest of the
 * step ends; 0: the run has ended. */
static uint64_t go_forward(struct edit_worker *worker, const struct probe *probe)
{
	uint64_t step_us = 1000 * (uint64_t)probe->step_ms, end_us = now_us();
	for (unsigned i = 0; i < probe->layer_count; i++) {
		int result = edit_worker_acquire(worker, i, NULL);
		if (result < 0)
			give_up(worker, "acquire");
		if (result == EDIT_WORKER_STOP)
			return 0;
		uint64_t taken_us = now_us();
		end_us = taken_us > end_us ? taken_us : end_us;
		if (probe->has_passes)
			sleep_until(end_us += step_us / 3 / probe->layer_count);
		check_gathered(worker, i);
		edit_worker_release(worker, i);
	}
	return end_us + (probe->has_passes ? step_us - step_us / 3 : step_us);
}

/* The training loop; returns when it is to end. */
static void train(struct edit_worker *worker, const struct probe *probe, float *const *changes)
{
	for (uint64_t step = edit_worker_step(worker); step < probe->steps; step = edit_worker_step(worker)) {
		uint64_t end_us = go_forward(worker, probe);
		if (end_us == 0)
			return;
		if ((int64_t)step == probe->die_step)
			raise(SIGKILL);
		sleep_until(end_us);
		bool is_averaging = edit_worker_averages_gradients(worker);
		int averaged = is_averaging ? average(worker, probe, changes, step) : 0;
		if (averaged < 0)
			give_up(worker, "average");
		double node_count;
		if (!averaged)
			averaged = edit_worker_sum(worker, 1, &node_count);
		if (averaged < 0)
			give_up(worker, "sum");
		if (averaged == EDIT_WORKER_STOP)
			return;
		if (node_count != (double)edit_worker_shards(worker)) {
			printf("sum %g, expected %u\n", node_count, edit_worker_shards(worker));
			exit(1);
		}
		for (unsigned i = 0; i < probe->layer_count; i++)
			step_layer(worker, probe, i, step, is_averaging ? changes[i] : NULL);
		double loss = (int64_t)step == probe->nan_loss_step ? NAN : 3.0 / (1.0 + 0.01 * (double)step);
		int result = edit_worker_step_done(worker, loss, 100, step + 1 == probe->steps);
		if (result < 0)
			give_up(worker, "step_done");
		if (result == EDIT_WORKER_STOP)
			return;
		if ((int64_t)step == probe->die_offered_step)
			raise(SIGKILL);
	}
}

enum { SEEN_NAN_THETA = 256, SEEN_NAN_LOSS, SEEN_SPIKE, SEEN_DIE, SEEN_TEAR, SEEN_DIE_OFFERED, SEEN_DIE_HANDING,
       SEEN_DIE_ANNOUNCING, SEEN_BEGIN, SEEN_ATTACH_ONLY, SEEN_MOVING };

static const struct argp_option option_table[] = {
	{"layers", 'l', "N", 0, "Layers", 0},
	{"size", 'z', "N", 0, "Elements of the first layer", 0},
	{"steps", 'n', "N", 0, "Steps in all", 0},
	{"step-ms", 'm', "MS", 0, "Time of a step", 0},
	{"passes", 'p', NULL, 0, "A third of a step is a forward pass that takes layer after layer", 0},
	{"moving", SEEN_MOVING, "N", 0, "Elements of a layer that a step changes", 0},
	{"scale", 'a', "X", 0, "Size of a step's change", 0},
	{"begin", SEEN_BEGIN, "X", 0, "Initial theta", 0},
	{"fact", 'f', "KEY=VALUE", 0, "Adds a fact", 0},
	{"nan-theta", SEEN_NAN_THETA, "STEP", 0, "Theta is not a number after this step", 0},
	{"nan-loss", SEEN_NAN_LOSS, "STEP", 0, "The loss of this step is not a number", 0},
	{"spike", SEEN_SPIKE, "STEP", 0, "This step is ten thousand times as large", 0},
	{"die", SEEN_DIE, "STEP", 0, "Dies before this step", 0},
	{"tear", SEEN_TEAR, "STEP", 0, "Dies in the middle of layer 0 of this step", 0},
	{"die-offered", SEEN_DIE_OFFERED, "STEP", 0, "Dies after this step, and after the offer if one was due", 0},
	{"die-handing", SEEN_DIE_HANDING, "STEP", 0, "Dies when half of this step's gradients are handed over", 0},
	{"die-announcing", SEEN_DIE_ANNOUNCING, "STEP", 0, "Dies before the first of this step's gradients is handed over", 0},
	{"attach-only", SEEN_ATTACH_ONLY, NULL, 0, "Attaches, gets ready, and waits for ever", 0},
	{0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct probe *probe = state->input;
	switch (key) {
	case 'l': probe->layer_count = (unsigned)atoi(text); break;
	case 'z': probe->size = (uint64_t)atoll(text); break;
	case 'n': probe->steps = (uint64_t)atoll(text); break;
	case 'm': probe->step_ms = (unsigned)atoi(text); break;
	case 'p': probe->has_passes = true; break;
	case SEEN_MOVING: probe->moving = (uint64_t)atoll(text); break;
	case 'a': probe->scale = atof(text); break;
	case SEEN_BEGIN: probe->begin = atof(text); break;
	case 'f':
		if (probe->fact_count == sizeof probe->facts / sizeof *probe->facts)
			argp_error(state, "too many facts");
		probe->facts[probe->fact_count++] = text;
		break;
	case SEEN_NAN_THETA: probe->nan_theta_step = atoll(text); break;
	case SEEN_NAN_LOSS: probe->nan_loss_step = atoll(text); break;
	case SEEN_SPIKE: probe->spike_step = atoll(text); break;
	case SEEN_DIE: probe->die_step = atoll(text); break;
	case SEEN_TEAR: probe->tear_step = atoll(text); break;
	case SEEN_DIE_OFFERED: probe->die_offered_step = atoll(text); break;
	case SEEN_DIE_HANDING: probe->die_handing_step = atoll(text); break;
	case SEEN_DIE_ANNOUNCING: probe->die_announcing_step = atoll(text); break;
	case SEEN_ATTACH_ONLY: probe->has_attach_only = true; break;
	case ARGP_KEY_ARG: probe->socket = text; break;
	case ARGP_KEY_END:
		if (!probe->socket || probe->layer_count < 1 || probe->layer_count > LAYERS_MAX)
			argp_error(state, "a socket and 1 to %d layers are needed", LAYERS_MAX);
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp parser = {option_table, parse_option, "SOCKET", "A worker for tests.", NULL, NULL, NULL};

int main(int argc, char **argv)
{
	struct probe probe = {.layer_count = 3,
			      .size = 1000,
			      .steps = 100,
			      .moving = UINT64_MAX,
			      .scale = 1e-3,
			      .begin = 0.5,
			      .nan_theta_step = -1,
			      .nan_loss_step = -1,
			      .spike_step = -1,
			      .die_step = -1,
			      .tear_step = -1,
			      .die_offered_step = -1,
			      .die_handing_step = -1,
			      .die_announcing_step = -1};
	argp_parse(&parser, argc, argv, 0, NULL, &probe);
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct edit_worker *worker = edit_worker_new(probe.socket);
	if (!worker)
		return 1;
	describe(worker, &probe);
	if (edit_worker_attach(worker, 10000) != 0)
		give_up(worker, "attach");
	for (unsigned i = 0; i < probe.layer_count && !edit_worker_is_resumed(worker); i++) {
		size_t first, count;
		float *theta = edit_worker_piece(worker, i, &first, &count);
		for (size_t k = 0; k < count; k++)
			theta[k] = (float)(probe.begin + (double)(first + k) * 1e-4);
	}
	if (edit_worker_ready(worker) < 0)
		give_up(worker, "ready");
	printf("ready %" PRIu64 "\n", edit_worker_step(worker));
	while (probe.has_attach_only)
		pause();
	float *changes[LAYERS_MAX];
	for (unsigned i = 0; i < probe.layer_count; i++)
		if (!(changes[i] = calloc(probe.size + i + 1, sizeof(float))))
			return 1;
	train(worker, &probe, changes);
	for (unsigned i = 0; i < probe.layer_count; i++)
		free(changes[i]);
	printf("done %" PRIu64 " %" PRIu64 "\n", edit_worker_step(worker), edit_worker_round(worker));
	edit_worker_finish(worker);
	edit_worker_free(worker);
	return 0;
}

/* edit-worker train: the training loop of one member of a ring. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "worker/commands.h"
#include "worker/complain.h"
#include "worker/kernels.h"
#include "worker/member.h"
#include "worker/say.h"

/* A run in progress. */
struct training {
	const struct train_options *options;
	struct corpus *corpus;
	struct corpus_part part;
	struct member *member;
	uint32_t *tokens;       /* [batch x (context + 1)] */
	uint64_t step;          /* done */
	bool was_nonfinite;     /* the last step's gradient was: told once until it is finite again */
	double loss, norm, rate;  /* of the last step */
	uint64_t said_us, said_step, said_wait_us; /* last line of progress */
	char error[COMPLAINT_MAX];
};

/* For the signal handler: the worker to interrupt. */
static struct edit_worker *signalled_worker;
static volatile sig_atomic_t is_signalled;

static void on_signal(int number)
{
	(void)number;
	is_signalled = 1;
	edit_worker_interrupt(signalled_worker);
}

static void catch_signals(struct edit_worker *worker)
{
	struct sigaction action = {.sa_handler = on_signal};
	signalled_worker = worker;
	sigemptyset(&action.sa_mask);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

static uint64_t now_us(void)
{
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Tokens of one step. */
static uint64_t step_tokens(const struct train_options *options)
{
	return (uint64_t)options->batch * options->accumulate * options->corpus.context;
}

/* Forward and backward over the micro batches of a step: gradient and mean loss. Result of libedit-worker. */
static int compute_gradient(struct training *training)
{
	const struct train_options *options = training->options;
	struct llama *llama = training->member->llama;
	unsigned batch = options->batch, time = options->corpus.context;
	training->loss = 0;
	member_begin(training->member, training->step + 1 == options->step_count);
	for (unsigned micro = 0; micro < options->accumulate; micro++) {
		for (unsigned row = 0; row < batch; row++) {
			uint64_t number = (training->step * options->accumulate + micro) * batch + row;
			if (corpus_sample(training->corpus, &training->part, number, training->tokens + (size_t)row * (time + 1),
					  training->error, sizeof(training->error)))
				return EDIT_WORKER_SYSTEM;
		}
		double loss;
		training->member->ends_step = micro + 1 == options->accumulate;
		int result = llama_accumulate(llama, training->tokens, batch, time, 1.0 / options->accumulate, &loss);
		if (result < 0)
			complain(training->error, sizeof(training->error), 0, "%s", edit_worker_error(training->member->worker));
		if (result)
			return result;
		training->loss += loss / options->accumulate;
	}
	int result = member_average(training->member);
	if (result < 0)
		complain(training->error, sizeof(training->error), 0, "%s", edit_worker_error(training->member->worker));
	return result;
}

/* Sleeps for (factor - 1) times what the step has taken; a signal ends it. */
static void drill_slow(uint64_t begun_us, double factor)
{
	double pause_s = (factor - 1) * 1e-6 * (double)(now_us() - begun_us);
	if (!(pause_s > 0) || is_signalled)
		return;
	struct timespec pause = {.tv_sec = (time_t)fmin(pause_s, 1e6)};
	pause.tv_nsec = (long)(1e9 * fmin(pause_s - (double)pause.tv_sec, 0.999999999));
	nanosleep(&pause, NULL);
}

/* The optimiser's step with its rehearsals. A gradient that is not finite changes nothing. Result of libedit-worker. */
static int apply_gradient(struct training *training, uint64_t begun_us)
{
	const struct train_options *options = training->options;
	uint64_t number = training->step + 1;
	double factor;
	training->rate = schedule_rate(&options->schedule, training->step + edit_worker_lead(training->member->worker));
	/* Every change that AdamW makes is proportional to the rate, so this moves theta that many times as far. */
	if (drill_is_on(options->drills, options->drill_count, DRILL_SCALE, number, &factor))
		say(SAY_NOTICE, "drill: step %" PRIu64 " moves %g times as far", number, factor);
	/* Inner state that was begun anew has steps of its own to correct for. */
	uint64_t inner_number = number - edit_worker_inner_step(training->member->worker);
	int result = member_step(training->member, &options->adamw, training->rate * factor, inner_number, &training->norm);
	if (result < 0)
		complain(training->error, sizeof(training->error), 0, "%s", edit_worker_error(training->member->worker));
	if (result)
		return result;
	bool is_finite = isfinite(training->norm);
	if (!is_finite && !training->was_nonfinite)
		say(SAY_WARNING, "step %" PRIu64 ": the gradient is not finite, no step is taken (loss %g)", number,
				fabs(training->loss));
	training->was_nonfinite = !is_finite;
	if (drill_is_on(options->drills, options->drill_count, DRILL_NAN, number, &factor)) {
		say(SAY_NOTICE, "drill: step %" PRIu64 " leaves a NaN in layer %u", number, training->member->layer_count / 2);
		member_spoil(training->member, training->member->layer_count / 2);
	}
	if (drill_is_on(options->drills, options->drill_count, DRILL_SLOW, number, &factor))
		drill_slow(begun_us, factor);
	return 0;
}

/* One line of progress, if it is time for it. */
static void say_progress(struct training *training)
{
	const struct train_options *options = training->options;
	uint64_t now = now_us(), wait_us = edit_worker_wait_us(training->member->worker);
	double seconds = 1e-6 * (double)(now - training->said_us);
	if (seconds < options->log_interval_s && training->step < options->step_count)
		return;
	double tokens = (double)((training->step - training->said_step) * step_tokens(options));
	say(SAY_INFO,
			"step %" PRIu64 "/%" PRIu64
			": loss %.5f, rate %.3g, gradient %.3g, %.0f tokens/s, waited %.1f s, round %" PRIu64,
			training->step, options->step_count, training->loss, training->rate, training->norm,
			seconds > 0 ? tokens / seconds : 0, 1e-6 * (double)(wait_us - training->said_wait_us),
			edit_worker_round(training->member->worker));
	training->said_us = now;
	training->said_step = training->step;
	training->said_wait_us = wait_us;
}

/* Takes up the part of the data that is this member's now. */
static void move(struct training *training)
{
	struct corpus_part part = training->part;
	char why[COMPLAINT_MAX];
	if (!edit_worker_moved(training->member->worker, &part.rank, &part.count))
		return;
	/* With more members than samples it goes on with those that it has. */
	if (corpus_part_check(training->corpus, &part, why, sizeof(why)) != 0)
		return;
	training->part = part;
	say(SAY_NOTICE, "member %" PRIu32 " of %" PRIu32 " from step %" PRIu64 " on", part.rank + 1, part.count, training->step);
}

/* Steps until the last one, a stop or a failure. Result of libedit-worker. */
static int loop(struct training *training)
{
	const struct train_options *options = training->options;
	struct edit_worker *worker = training->member->worker;
	training->said_us = now_us();
	training->said_step = training->step;
	training->said_wait_us = edit_worker_wait_us(worker);
	while (training->step < options->step_count) {
		uint64_t begun_us = now_us();
		move(training);
		int result = compute_gradient(training);
		if (result)
			return result;
		result = apply_gradient(training, begun_us);
		if (result)
			return result;
		bool is_final = training->step + 1 == options->step_count;
		result = edit_worker_step_done(worker, training->loss, step_tokens(options), is_final);
		training->step = edit_worker_step(worker);
		if (result < 0)
			complain(training->error, sizeof(training->error), 0, "%s", edit_worker_error(worker));
		if (result)
			return result;
		say_progress(training);
	}
	return 0;
}

/* Attached: makes the model, trains, and tells how it ended. Returns the exit status. */
static int train(struct training *training, struct edit_worker *worker, const struct origin *origin)
{
	const struct train_options *options = training->options;
	struct member member;
	training->member = &member;
	training->step = edit_worker_step(worker);
	training->part = (struct corpus_part){options->seed, edit_worker_rank(worker), edit_worker_count(worker)};
	int failed = corpus_part_check(training->corpus, &training->part, training->error, sizeof(training->error));
	if (failed) {
		say(SAY_ERROR, "%s", training->error);
		return edit_error_status(failed);
	}
	int result = member_init(&member, worker, origin, options, training->error, sizeof(training->error));
	if (!result) {
		say(SAY_NOTICE,
				"member %" PRIu32 " of %" PRIu32 ", %s at step %" PRIu64 ", %" PRIu64
				" samples a member, %.1f MiB of working memory",
				training->part.rank + 1, training->part.count, edit_worker_is_resumed(worker) ? "goes on" : "begins",
				training->step, training->corpus->sample_count / training->part.count,
				(double)llama_memory_bytes(member.llama) / (1 << 20));
		result = loop(training);
		member_fini(&member);
	}
	if (result < 0) {
		say(SAY_ERROR, "%s", training->error);
		return member_status(result);
	}
	if (is_signalled) {
		say(SAY_NOTICE, "stopped by a signal after step %" PRIu64 "; started again, it goes on from there",
				training->step);
		return 0;
	}
	struct rusage usage;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	say(SAY_NOTICE, "%s after step %" PRIu64 ", peak memory %.1f MiB",
			training->step < options->step_count ? "told to stop" : "finished", training->step,
			(double)usage.ru_maxrss / 1024);
	if (edit_worker_finish(worker))
		say(SAY_WARNING, "the daemon did not hear that training has ended (%s)", edit_worker_error(worker));
	return 0;
}

/* Describes the model and attaches; then trains. Returns the exit status. */
static int take_part(struct training *training, const struct origin *origin)
{
	const struct train_options *options = training->options;
	struct edit_worker *worker = edit_worker_new(options->socket_path);
	if (!worker) {
		say(SAY_ERROR, "no memory for a worker");
		return 1;
	}
	int status, failed = member_describe(worker, origin, options, training->error, sizeof(training->error));
	if (failed) {
		say(SAY_ERROR, "%s", training->error);
		status = edit_error_status(failed);
	} else {
		catch_signals(worker);
		int result = edit_worker_attach(worker, isinf(options->wait_s) ? -1 : (int)fmin(1000 * options->wait_s, 2e9));
		if (result < 0)
			say(SAY_ERROR, "%s", edit_worker_error(worker));
		status = result < 0 ? member_status(result) : result == EDIT_WORKER_STOP ? 0 : train(training, worker, origin);
	}
	/* From here on a signal finds no worker to interrupt, and has nothing to wait for. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	edit_worker_free(worker);
	return status;
}

/* Settles the context and opens the data. */
static int open_data(struct train_options *options, const struct llama_config *config, struct corpus *corpus,
		char *error, size_t error_size)
{
	unsigned positions = config->max_position_embeddings;
	if (options->corpus.context == 0)
		options->corpus.context = positions < 256 ? positions : 256;
	if (options->corpus.context > positions)
		return complain(error, error_size, EDIT_ERROR_RANGE, "--context: %u, but the model has %u positions",
				options->corpus.context, positions);
	options->corpus.vocab_size = config->vocab_size;
	return corpus_open(corpus, options->data, &options->corpus, true, error, error_size);
}

int command_train(int argc, char **argv)
{
	struct train_options options;
	train_options_read(argc, argv, &options);
	kernels_set_threads(options.threads);
	struct origin origin;
	struct corpus corpus;
	struct training training = {.options = &options, .corpus = &corpus};
	int failed = origin_open(&origin, options.model, options.seed, false, training.error, sizeof(training.error));
	if (failed) {
		say(SAY_ERROR, "%s", training.error);
		return edit_error_status(failed);
	}
	int status = 1;
	failed = open_data(&options, &origin.config, &corpus, training.error, sizeof(training.error));
	if (failed) {
		say(SAY_ERROR, "%s", training.error);
		status = edit_error_status(failed);
	} else {
		training.tokens = malloc((size_t)options.batch * (options.corpus.context + 1) * sizeof(*training.tokens));
		if (training.tokens)
			status = take_part(&training, &origin);
		else
			say(SAY_ERROR, "a batch of tokens: %s", strerror(ENOMEM));
		free(training.tokens);
		corpus_close(&corpus);
	}
	origin_close(&origin);
	return status;
}

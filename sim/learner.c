/* The virtual worker. Its real step begins as soon as it has all layers and is awaited when its backward pass ends, so that the
 * steps of all nodes run side by side on the threads there are. */

#include "sim/learner.h"

#include <math.h>
#include <stdlib.h>

#include "sim/dice.h"

static const double FORWARD_PART = 1.0 / 3;

void learner_init(struct learner *learner, const struct learner_config *config)
{
	size_t count = config->layer_count;
	*learner = (struct learner){.config = *config, .schedule = UINT64_MAX, .wake_us = 0, .wants = count};
	learner->held = malloc(count * sizeof *learner->held);
	learner->shares = malloc((count + 1) * sizeof *learner->shares);
	CHECK(learner->held != NULL);
	CHECK(learner->shares != NULL);
	double all = 0, before = 0;
	for (size_t l = 0; l < count; l++)
		all += (double)config->layers[l].size;
	for (size_t l = 0; l < count; l++) {
		learner->held[l] = true;
		learner->shares[l] = before / all;
		before += (double)config->layers[l].size;
	}
	learner->shares[count] = 1;
}

void learner_fini(struct learner *learner)
{
	free(learner->held);
	free(learner->shares);
}

static const struct host *host_of(const struct learner *learner)
{
	return &learner->config.scenario->hosts[learner->config.rank];
}

uint64_t learner_tokens(const struct learner *learner)
{
	const double *value = learner->config.scenario->value;
	return (uint64_t)(value[DATA_BATCH] * value[DATA_CONTEXT]);
}

/* ---- Layers ---- */

/* Layer that the forward pass waits for; layer_count: none. */
static size_t awaited(const struct learner *learner)
{
	size_t count = learner->config.layer_count;
	bool is_all = learner->whole || learner->place == LEARNER_MEAN;
	for (size_t l = count; is_all && l-- > 0;)
		if (!learner->held[l])
			return l;
	return learner->position < count && !learner->held[learner->position] ? learner->position : count;
}

static bool holds_all(const struct learner *learner)
{
	for (size_t l = 0; l < learner->config.layer_count; l++)
		if (!learner->held[l])
			return false;
	return true;
}

uint64_t learner_publish(struct learner *learner, size_t layer_index, enum verdict verdict, uint64_t moved_us, uint64_t now_us)
{
	CHECK(!learner->held[layer_index]);
	size_t count = learner->config.layer_count;
	bool is_place = learner->place == LEARNER_FORWARD || learner->place == LEARNER_MEAN;
	bool is_waiting = is_place && awaited(learner) < count;
	uint64_t waited_us = 0;
	learner->held[layer_index] = true;
	learner->is_usable &= verdict != VERDICT_NONFINITE;
	if (verdict == VERDICT_NONFINITE && !learner->is_averaging && learner->config.tuition)
		tuition_forget(learner->config.tuition, learner->config.rank, layer_index);
	if (is_waiting && awaited(learner) == count && learner->clock_us < now_us) {
		waited_us = now_us - learner->clock_us;
		uint64_t for_others_us = moved_us > learner->clock_us ? u64_min(moved_us, now_us) - learner->clock_us : 0;
		learner->times.waiting_us += for_others_us;
		learner->times.exposed_us += waited_us - for_others_us;
		learner->exposed_us += waited_us;
		learner->clock_us = now_us;
	}
	return waited_us;
}

void learner_schedule(struct learner *learner, uint64_t steps, bool gradients)
{
	learner->gradients = gradients;
	learner->started = true;
	learner->schedule = steps;
	if (steps == 0)
		learner->stopped = true;
}

/* ---- Steps ---- */

/* The same for a node that repeats what was recorded. */
static uint64_t recorded_step_us(const struct host *host, uint64_t number)
{
	uint64_t all = 0, at;
	for (size_t i = 0; i < host->pace_count; i++)
		all += host->paces[i].steps;
	at = (number - 1) % all;
	for (size_t i = 0;; at -= host->paces[i++].steps)
		if (at < host->paces[i].steps)
			return host->paces[i].step_us;
}

/* How long the step with that number takes if it begins now. */
static uint64_t draw_step_us(const struct learner *learner, uint64_t number, uint64_t now_us)
{
	const struct scenario *scenario = learner->config.scenario;
	const double *value = host_of(learner)->value;
	uint64_t seed = (uint64_t)scenario->value[RUN_SEED];
	if (host_of(learner)->pace_count > 0)
		return recorded_step_us(host_of(learner), number);
	struct dice own = dice_at(seed, 1 + learner->config.rank, number), all = dice_at(seed, 0, number);
	double seconds = (1 + value[HOST_SPREAD] * (2 * dice_unit(&own) - 1)) / value[HOST_SPEED] * value[HOST_CONSISTENT];
	if (dice_between(&all, 0, scenario->host_count - 1) == learner->config.rank)
		seconds *= scenario->value[NODES_RANDOM];
	double period_s = value[HOST_PERIOD];
	if (fmod(1e-6 * (double)now_us, period_s) >= period_s - value[HOST_DURATION])
		seconds *= value[HOST_PERIODIC];
	return (uint64_t)fmin(fmax(1, 1e6 * seconds), 1e15);
}

/* Begins the real step, once all layers are there. */
static void begin_computing(struct learner *learner)
{
	const struct host *host = host_of(learner);
	if (learner->is_computing || learner->is_collecting || learner->stopped || !holds_all(learner))
		return;
	learner->is_computing = learner->is_usable = true;
	learner->is_averaging = learner->gradients;
	if (!learner->config.tuition)
		return;
	struct ailment ailment = {
		.factor = host_has_burst(host, HOST_SCALE_FROM, learner->number) ? host->value[HOST_SCALE_FACTOR] : 1,
		.is_shuffled = host_has_burst(host, HOST_CORRUPT_FROM, learner->number),
		.leaves_nan = host_has_burst(host, HOST_NAN_FROM, learner->number),
	};
	if (learner->is_averaging && !learner->has_averaged)
		tuition_restart(learner->config.tuition, learner->config.rank, learner->number);
	if (learner->is_averaging)
		tuition_gradient(learner->config.tuition, learner->config.rank, learner->number, ailment);
	else
		tuition_step(learner->config.tuition, learner->config.rank, learner->number, ailment);
}

/* After the last offer it only collects the layers, which takes no time of its own. */
static void begin_step(struct learner *learner, uint64_t now_us)
{
	learner->is_collecting = learner->has_offered_last;
	if (!learner->is_collecting)
		learner->number++;
	learner->step_us = learner->is_collecting ? 0 : draw_step_us(learner, learner->number, now_us);
	learner->forward_us = (uint64_t)((double)learner->step_us * FORWARD_PART);
	learner->place = LEARNER_FORWARD;
	learner->position = 0;
	learner->wants = learner->config.layer_count;
	learner->begin_us = learner->clock_us = now_us;
}

/* Virtual time of the forward pass in a layer. */
static uint64_t layer_us(const struct learner *learner, size_t layer_index)
{
	double begin = learner->shares[layer_index], end = learner->shares[layer_index + 1];
	return (uint64_t)((double)learner->forward_us * end) - (uint64_t)((double)learner->forward_us * begin);
}

/* Takes layer after layer; true at the end of the forward pass, whose end is then clock_us, maybe still to come. */
static bool go_forward(struct learner *learner, uint64_t now_us)
{
	size_t count = learner->config.layer_count;
	bool is_free = holds_all(learner);
	while ((learner->clock_us <= now_us || is_free) && learner->position < count && awaited(learner) == count)
		learner->clock_us += layer_us(learner, learner->position++);
	learner->wake_us = learner->clock_us > now_us ? learner->clock_us : UINT64_MAX;
	return learner->position == count;
}

static void end_step(struct learner *learner)
{
	struct tuition *tuition = learner->config.tuition;
	if (tuition)
		learner->loss_sum += tuition_result(tuition, learner->config.rank).loss;
	if (tuition && learner->is_averaging && learner->is_usable)
		tuition_apply(tuition, learner->config.rank, learner->number);
	learner->has_averaged = learner->is_averaging;
	learner->is_computing = learner->is_averaging = false;
	learner->times.compute_us += learner->step_us;
	learner->steps++;
	learner->place = LEARNER_BOUNDARY;
}

/* Of the parameters, or of the present step's gradients, which are handed over one by one. */
static void fill_offer(struct learner *learner, bool gradients, struct offer *ret_offer)
{
	if (learner->config.tuition && !gradients)
		tuition_result(learner->config.tuition, learner->config.rank); /* theta with all its steps */
	for (size_t l = 0; l < learner->config.layer_count && !gradients; l++)
		learner->held[l] = false;
	*ret_offer = (struct offer){
		.steps = learner->steps,
		.tokens = learner->steps * learner_tokens(learner),
		.loss = learner->config.tuition && learner->steps > 0 ? learner->loss_sum / (double)learner->steps : NAN,
		.exposed_us = learner->exposed_us,
		.final = learner->is_last,
		.gradients = gradients,
	};
	learner->has_announced = learner->is_last && gradients;
	learner->has_offered_last |= learner->is_last && !gradients;
	learner->steps = 0;
	learner->schedule = UINT64_MAX;
	learner->exposed_us = 0;
	learner->loss_sum = 0;
}

/* What it does between two steps. */
static enum learner_deed cross_boundary(struct learner *learner, uint64_t now_us, struct offer *ret_offer)
{
	learner->wake_us = UINT64_MAX;
	if (learner->stopped || !learner->started)
		return LEARNER_NOTHING;
	/* With gradients the last step is told to the others before it is done. */
	bool is_last = learner->is_last && (!learner->gradients || learner->has_announced);
	if (learner->steps > 0 && !learner->has_offered_last && (learner->steps >= learner->schedule || is_last)) {
		fill_offer(learner, false, ret_offer);
		return LEARNER_OFFERS;
	}
	begin_step(learner, now_us);
	return LEARNER_NOTHING;
}

/* When the backward pass has done with a layer, from its begin. */
static uint64_t backward_us(const struct learner *learner, size_t layer_index)
{
	return (uint64_t)((double)(learner->step_us - learner->forward_us) * (1 - learner->shares[layer_index]));
}

/* Gradients leave as the backward pass goes, last layer first; clock_us is its begin. */
static enum learner_deed hand_over(struct learner *learner, uint64_t now_us)
{
	if (now_us < learner->wake_us)
		return LEARNER_NOTHING;
	if (learner->config.tuition)
		tuition_result(learner->config.tuition, learner->config.rank);
	learner->given = --learner->position;
	learner->held[learner->given] = false;
	if (learner->position > 0) {
		learner->wake_us = learner->clock_us + backward_us(learner, learner->position - 1);
	} else {
		learner->place = LEARNER_MEAN;
		learner->wake_us = UINT64_MAX;
		learner->clock_us = now_us;
	}
	return LEARNER_GIVES;
}

/* The forward pass is over at clock_us. */
static enum learner_deed turn_back(struct learner *learner, uint64_t now_us, struct offer *ret_offer)
{
	if (!learner->is_computing) { /* it has all layers of the last round */
		learner->stopped = true;
		learner->place = LEARNER_BOUNDARY;
		learner->wake_us = UINT64_MAX;
		return LEARNER_NOTHING;
	}
	if (learner->is_averaging && learner->clock_us > now_us)
		return LEARNER_NOTHING;
	if (learner->is_averaging) {
		learner->place = LEARNER_HANDING;
		learner->wake_us = learner->clock_us + backward_us(learner, learner->position - 1);
		fill_offer(learner, true, ret_offer);
		return LEARNER_OFFERS;
	}
	learner->place = LEARNER_BACKWARD;
	learner->wake_us = learner->clock_us + learner->step_us - learner->forward_us;
	return LEARNER_NOTHING;
}

enum learner_deed learner_advance(struct learner *learner, uint64_t now_us, struct offer *ret_offer)
{
	if (learner->place == LEARNER_BACKWARD && now_us >= learner->wake_us) {
		end_step(learner);
		return LEARNER_STEPS;
	}
	if (learner->place == LEARNER_HANDING)
		return hand_over(learner, now_us);
	if (learner->place == LEARNER_MEAN && awaited(learner) == learner->config.layer_count) {
		end_step(learner);
		return LEARNER_STEPS;
	}
	if (learner->place == LEARNER_BOUNDARY) {
		enum learner_deed deed = cross_boundary(learner, now_us, ret_offer);
		if (deed != LEARNER_NOTHING)
			return deed;
	}
	if (learner->place == LEARNER_FORWARD) {
		begin_computing(learner);
		if (go_forward(learner, now_us))
			return turn_back(learner, now_us, ret_offer);
		if (learner->clock_us <= now_us && learner->wants != awaited(learner)) {
			learner->wants = awaited(learner);
			return LEARNER_WANTS;
		}
	}
	return LEARNER_NOTHING;
}

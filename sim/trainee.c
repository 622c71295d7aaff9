/* The simulated worker: a step is a forward pass over the layers in order, then a backward pass that changes all of them. */

#include <math.h>
#include <string.h>

#include "sim/memory.h"
#include "sim/trainee.h"

enum { TOKENS_PER_STEP = 256 };

void trainee_init(struct trainee *trainee, const struct trainee_config *config)
{
	*trainee = (struct trainee){.config = *config, .schedule = UINT64_MAX, .wake_us = 0, .started = config->starts_at_once};
	trainee->held = memory_take(config->layer_count, sizeof *trainee->held);
	trainee->inner = memory_take(config->layer_count, sizeof *trainee->inner);
	for (size_t l = 0; l < config->layer_count; l++) {
		trainee->held[l] = true;
		trainee->inner[l] = memory_take(config->layers[l].size, sizeof(float));
	}
}

void trainee_wait(struct trainee *trainee)
{
	trainee->started = false;
	for (size_t l = 0; l < trainee->config.layer_count; l++)
		trainee->held[l] = false;
}

void trainee_fini(struct trainee *trainee)
{
	for (size_t l = 0; l < trainee->config.layer_count; l++)
		free(trainee->inner[l]);
	free(trainee->inner);
	free(trainee->held);
	trainee->inner = NULL;
	trainee->held = NULL;
}

static bool has_all(const struct trainee *trainee)
{
	bool is_all = true;
	for (size_t l = 0; l < trainee->config.layer_count; l++)
		is_all &= trainee->held[l];
	return is_all;
}

bool trainee_is_handing(const struct trainee *trainee)
{
	return trainee->place == TRAINEE_HANDING || trainee->place == TRAINEE_MEAN;
}

bool trainee_has_handed(const struct trainee *trainee, size_t layer_index)
{
	return trainee->place == TRAINEE_MEAN || (trainee->place == TRAINEE_HANDING && layer_index >= trainee->position);
}

void trainee_resume(struct trainee *trainee)
{
	if (trainee_is_handing(trainee)) {
		trainee->realign = true;
		trainee->steps++;
		trainee->done++;
	}
	trainee->place = TRAINEE_BOUNDARY;
	trainee->wake_us = 0;
}

void trainee_align(struct trainee *trainee, uint64_t step)
{
	trainee->lead = step > trainee->done ? step - trainee->done : 0;
}

/* Layer that the forward pass waits for; layer_count: none. */
static size_t awaited(const struct trainee *trainee)
{
	size_t count = trainee->config.layer_count;
	bool is_all = trainee->whole || trainee->place == TRAINEE_MEAN;
	for (size_t l = count; is_all && l-- > 0;)
		if (!trainee->held[l])
			return l;
	return trainee->position < count && !trainee->held[trainee->position] ? trainee->position : count;
}

void trainee_publish(struct trainee *trainee, size_t layer_index, enum verdict verdict, uint64_t now_us)
{
	trainee->usable &= verdict != VERDICT_NONFINITE;
	CHECK(!trainee->held[layer_index]);
	bool is_place = trainee->place == TRAINEE_FORWARD || trainee->place == TRAINEE_MEAN;
	bool is_waiting = is_place && awaited(trainee) < trainee->config.layer_count;
	trainee->held[layer_index] = true;
	if (is_waiting && awaited(trainee) == trainee->config.layer_count && trainee->clock_us < now_us) {
		trainee->exposed_us += now_us - trainee->clock_us;
		trainee->clock_us = now_us;
	}
}

void trainee_schedule(struct trainee *trainee, uint64_t steps, bool gradients)
{
	trainee->started = true;
	trainee->schedule = steps;
	trainee->gradients = gradients;
	trainee->stopped = steps == 0; /* what ends the run may have to be agreed upon again */
}

/* Moves theta of a layer a little: a fixed part of the way to the target, and noise. */
static void move(struct trainee *trainee, size_t layer_index)
{
	const struct layer *layer = &trainee->config.layers[layer_index];
	const float *target = trainee->config.targets[layer_index];
	for (size_t i = 0; i < layer->size; i++) {
		float pull = 0.05f * (target[i] - layer->theta[i]);
		layer->theta[i] += pull + 0.02f * (float)dice_bell(&trainee->config.dice);
	}
}

static void poison(struct trainee *trainee, size_t layer_index)
{
	const struct layer *layer = &trainee->config.layers[layer_index];
	struct dice *dice = &trainee->config.dice;
	if (dice_chance(dice, trainee->config.scale_chance))
		for (size_t i = 0; i < layer->size; i++)
			layer->theta[i] = layer->anchor[i] + 50.0f * (layer->theta[i] - layer->anchor[i]);
	if (dice_chance(dice, trainee->config.nonfinite_chance) && layer->size > 0) {
		size_t at = dice_between(dice, 0, layer->size - 1);
		layer->theta[at] = dice_chance(dice, 0.5) ? NAN : dice_chance(dice, 0.5) ? INFINITY : -INFINITY;
	}
}

/* Whether the offer that comes next is the last, or that of the last step's gradients. */
static bool comes_last(const struct trainee *trainee)
{
	return trainee->offers + 1 >= trainee->config.rounds;
}

static void fill_offer(struct trainee *trainee, bool gradients, struct offer *ret_offer)
{
	for (size_t l = 0; l < trainee->config.layer_count && !gradients; l++) {
		poison(trainee, l);
		trainee->held[l] = false;
	}
	trainee->ended = comes_last(trainee) && !gradients;
	*ret_offer = (struct offer){
		.steps = trainee->steps,
		.tokens = trainee->steps * TOKENS_PER_STEP,
		.loss = trainee->steps > 0 ? trainee->loss_sum / (double)trainee->steps : (double)NAN,
		.exposed_us = trainee->exposed_us,
		.final = comes_last(trainee),
		.gradients = gradients,
		.realign = gradients && trainee->realign,
		.step = trainee->done + trainee->lead,
	};
	trainee->is_averaging &= gradients;
	trainee->realign = false;
	trainee->offers++;
	trainee->steps = 0;
	trainee->schedule = UINT64_MAX;
	trainee->exposed_us = 0;
	trainee->loss_sum = 0.0;
}

static void begin_forward(struct trainee *trainee, uint64_t now_us)
{
	const struct trainee_config *config = &trainee->config;
	double factor = 1.0 + config->spread * (2.0 * dice_unit(&trainee->config.dice) - 1.0);
	uint64_t step_us = 1 + (uint64_t)((double)config->step_us * factor);
	trainee->layer_us = step_us / (3 * config->layer_count);
	trainee->backward_us = step_us - trainee->layer_us * config->layer_count;
	trainee->place = TRAINEE_FORWARD;
	trainee->position = 0;
	trainee->clock_us = now_us;
	trainee->wants = trainee->config.layer_count;
}

/* true: the forward pass has reached the end; otherwise it waits for a layer, or is not there yet. */
static bool go_forward(struct trainee *trainee, uint64_t now_us)
{
	while (trainee->position < trainee->config.layer_count && awaited(trainee) == trainee->config.layer_count) {
		trainee->clock_us += trainee->ended ? 0 : trainee->layer_us;
		trainee->position++;
	}
	trainee->wake_us = trainee->clock_us > now_us ? trainee->clock_us : UINT64_MAX;
	return trainee->position == trainee->config.layer_count;
}

/* The gradient of one layer; the worker may die before it is done. */
static void make_gradient(struct trainee *trainee, size_t layer_index)
{
	const struct layer *layer = &trainee->config.layers[layer_index];
	const float *target = trainee->config.targets[layer_index];
	struct dice *dice = &trainee->config.dice;
	trainee->given = layer_index;
	trainee->held[layer_index] = false;
	if (trainee->is_dying && !trainee->is_dead && dice_chance(dice, 0.5))
		trainee->is_dead = true;
	for (size_t i = 0; i < layer->size && !trainee->is_dead; i++)
		layer->gradient[i] = layer->theta[i] - target[i] + 0.2f * (float)dice_bell(dice);
	if (!trainee->is_dead && layer->size > 0 && dice_chance(dice, trainee->config.nonfinite_chance))
		layer->gradient[dice_between(dice, 0, layer->size - 1)] = INFINITY;
}

/* Members step alike only from equal inner states. */
static void begin_inner(struct trainee *trainee)
{
	for (size_t l = 0; l < trainee->config.layer_count && !trainee->is_averaging; l++)
		memset(trainee->inner[l], 0, trainee->config.layers[l].size * sizeof(float));
	trainee->is_averaging = true;
}

/* All means are there: the step, equal on all members; unless the worker has died in the middle of it. */
static void apply_means(struct trainee *trainee)
{
	struct dice *dice = &trainee->config.dice;
	const float rate = 0.02f + 0.004f * (float)((trainee->done + trainee->lead) % 7);
	for (size_t l = 0; l < trainee->config.layer_count; l++) {
		const struct layer *layer = &trainee->config.layers[l];
		bool is_lost = trainee->is_dying && dice_chance(dice, 0.5);
		for (size_t i = 0; i < layer->size && !is_lost && trainee->usable; i++) {
			trainee->inner[l][i] = 0.5f * trainee->inner[l][i] + layer->gradient[i];
			layer->theta[i] -= rate * trainee->inner[l][i];
		}
	}
	trainee->realign |= trainee->is_dying;
}

static void end_backward(struct trainee *trainee)
{
	if (trainee->place == TRAINEE_MEAN)
		apply_means(trainee);
	for (size_t l = 0; l < trainee->config.layer_count && trainee->place != TRAINEE_MEAN; l++)
		move(trainee, l);
	trainee->steps++;
	trainee->done++;
	trainee->loss_sum += 2.0 + dice_unit(&trainee->config.dice);
	trainee->place = TRAINEE_BOUNDARY;
}

enum trainee_deed trainee_advance(struct trainee *trainee, uint64_t now_us, struct offer *ret_offer)
{
	if (trainee->place == TRAINEE_BACKWARD && now_us >= trainee->wake_us)
		end_backward(trainee);
	if (trainee->place == TRAINEE_HANDING && now_us >= trainee->wake_us) {
		if (trainee->position > 0) {
			make_gradient(trainee, --trainee->position);
			trainee->wake_us = now_us + trainee->layer_us;
			return TRAINEE_GIVES;
		}
		trainee->place = TRAINEE_MEAN;
		trainee->wake_us = UINT64_MAX;
		trainee->clock_us = now_us;
	}
	if (trainee->place == TRAINEE_MEAN && awaited(trainee) == trainee->config.layer_count)
		end_backward(trainee);
	if (trainee->place == TRAINEE_BOUNDARY) {
		trainee->wake_us = UINT64_MAX;
		bool is_over = trainee->stopped || trainee->ended;
		bool is_due = trainee->steps >= trainee->schedule || trainee->offers >= trainee->config.rounds;
		if (!is_over && trainee->steps > 0 && is_due && !has_all(trainee))
			return TRAINEE_NOTHING; /* of a step before it resumed */
		if (!is_over && trainee->steps > 0 && is_due) {
			fill_offer(trainee, false, ret_offer);
			return TRAINEE_OFFERS;
		}
		/* It stops when the last round is over, and waits for its layers until then. */
		if ((trainee->stopped && has_all(trainee)) || trainee->paused || !trainee->started)
			return TRAINEE_NOTHING;
		begin_forward(trainee, now_us); /* after the last offer it only waits for the layers */
	}
	if (trainee->place == TRAINEE_FORWARD) {
		if (go_forward(trainee, now_us)) {
			if (trainee->ended) {
				trainee->stopped = true;
				trainee->place = TRAINEE_BOUNDARY;
				trainee->wake_us = UINT64_MAX;
				return TRAINEE_NOTHING;
			}
			if (trainee->gradients) {
				trainee->place = TRAINEE_HANDING;
				trainee->wake_us = u64_max(trainee->clock_us, now_us);
				trainee->is_dying = dice_chance(&trainee->config.dice, trainee->config.death_chance);
				trainee->deaths += trainee->is_dying;
				trainee->is_dead = false;
				trainee->usable = true;
				begin_inner(trainee);
				fill_offer(trainee, true, ret_offer);
				return TRAINEE_OFFERS;
			}
			trainee->place = TRAINEE_BACKWARD;
			trainee->wake_us = trainee->clock_us + trainee->backward_us;
		} else if (trainee->clock_us <= now_us && trainee->wants != awaited(trainee)) {
			trainee->wants = awaited(trainee);
			return TRAINEE_WANTS;
		}
	}
	return TRAINEE_NOTHING;
}

#ifndef EDIT_CORE_OPTION_H
#define EDIT_CORE_OPTION_H

/* The settings that are the same on all members of a ring (scope "ring"), as one table. proto/setting.h joins it with
 * the settings of one node; config file, `editctl get/set`, man page and completion expand the joined table.
 *
 * Every value is a double: counts are whole numbers below 2^53, so nothing is lost, and one number fits one message. */

#include "core/base.h"

/* id, name, type (COUNT: a whole number, REAL, BYTES: whole bytes, multiple of 4, CHOICE: index into the choices, which the unit
 * lists), unit, default, low, high, help */
#define RING_SETTINGS(X)                                                                                               \
	X(METHOD, "method", CHOICE, METHOD_NAMES, 0, 0, METHOD_COUNT - 1,                                              \
	  "preset: how the outer optimiser, the penalty and the overlap work together; sets them all") \
	X(SYNC_INTERVAL, "sync.interval", COUNT, "steps", 128, 1, 1e9, "local steps between two rounds")                   \
	X(SYNC_PERIOD, "sync.period", REAL, "s", 0, 0, 1e7,                                                                \
	  "time between two rounds, each member at its own pace; 0: rounds by steps")                                      \
	X(SYNC_MIN_STEPS, "sync.min_steps", COUNT, "steps", 1, 1, 1e9, "local steps at least between two rounds by time")   \
	X(SYNC_PREFETCH, "sync.prefetch", COUNT, "layers", 2, 0, 64,                                                       \
	  "layers on the ring ahead of the worker; 0: only the one that it waits for")                                                   \
	X(SYNC_OVERLAP, "sync.overlap", CHOICE, "none|forward|steps", 1, 0, 2,                                             \
	  "what the worker does during a round: waits for all layers, computes with those that are done, or steps on and " \
	  "takes the result up with its next offer")                                                                       \
	X(SYNC_EXCHANGE, "sync.exchange", CHOICE, "parameters|gradients", 0, 0, 1,                                         \
	  "what is averaged: parameters after an interval, or the gradients of every step")                                \
	X(SYNC_WARMUP_STEPS, "sync.warmup_steps", COUNT, "steps", 0, 0, 1e9,                                               \
	  "first steps of the run, whose gradients are averaged whatever sync.exchange says")                              \
	X(STRAGGLER_GRACE, "straggler.grace", REAL, "", 0, 0, 1e6,                                                         \
	  "a member that has not offered after so many median intervals is late: the round goes on without it; 0: waits")  \
	X(STRAGGLER_MAX_STALE, "straggler.max_stale", COUNT, "rounds", 8, 1, 1e9,                                          \
	  "rounds in a row that a member may be late before its progress is dropped")                                      \
	X(OUTER_LR, "outer.lr", REAL, "", 0.8, 0, 10, "learning rate of the outer optimiser (SGD with Nesterov momentum)") \
	X(OUTER_MOMENTUM, "outer.momentum", REAL, "", 0.85, 0, 0.9999, "momentum of the outer optimiser")                  \
	X(PENALTY_ALPHA, "penalty.alpha", REAL, "", 0.02, 1e-6, 1, "weight of a new norm in the detector's mean and variance") \
	X(PENALTY_THRESHOLD, "penalty.threshold", REAL, "sd", 3, 0, 1e30, "z above which a layer's norm is an outlier")    \
	X(PENALTY_WARMUP, "penalty.warmup", COUNT, "rounds", 20, 1, 1e9, "accepted norms before the detector judges")      \
	X(PENALTY_PATIENCE, "penalty.patience", COUNT, "rounds", 3, 1, 1e9,                                                \
	  "outliers in a row that count as a moved level, accepted from then on")                                          \
	X(PENALTY_TEMPERATURE, "penalty.temperature", REAL, "", 1, 1e-6, 1e30, "flatness of the weights exp(-norm/T)")     \
	X(PENALTY_BY_STEPS, "penalty.by_steps", CHOICE, "no|yes", 1, 0, 1,                                                 \
	  "multiply a member's weight by its local steps, so that fast members count for what they did")                   \
	X(PENALTY_CLIP, "penalty.clip", REAL, "", 10, 1e-6, 1e30, "largest norm of the mean pseudo-gradient of a layer")   \
	X(CHECKPOINT_ROUNDS, "checkpoint.rounds", COUNT, "rounds", 0, 0, 1e9,                                               \
	  "a checkpoint is written after each round whose number is a multiple of this; 0: none by number")                \
	X(CHECKPOINT_PERIOD, "checkpoint.period", REAL, "s", 1800, 0, 1e7,                                                 \
	  "time between two checkpoints, at the end of the round in progress then; 0: none by time")                       \
	X(WIRE_CHUNK, "wire.chunk", BYTES, "bytes", 262144, 64, 4194304, "largest payload of one frame on the ring")       \
	X(WIRE_WINDOW, "wire.window", BYTES, "bytes", 4194304, 1024, 1073741824,                                           \
	  "payload sent to the right neighbour and not yet acknowledged")

/* Methods: presets of the settings below, taken as a whole. 1e30 switches off: no norm is an outlier, weights are equal to the
 * bit, nothing is clipped. What is not finite is left out by every method.
 *   edit       arXiv 2412.07210: the outer optimiser, the pseudo-gradient penalty, layer by layer in the forward pass
 *   a-edit     the same with rounds by time
 *   diloco     arXiv 2311.08105: uniform mean, its outer learning rate and momentum, all layers at once
 *   local-sgd  arXiv 1808.07217: the parameters' mean, all layers at once
 *   co2        arXiv 2401.16265: diloco whose round runs behind the next interval and counts one round late
 *   ddp        the mean of every step's gradients, layer by layer in the backward pass
 *
 * id, name, sync.period, sync.overlap, sync.exchange, outer.lr, outer.momentum, penalty.threshold, penalty.temperature,
 * penalty.by_steps, penalty.clip */
#define METHODS(X)                                                                                                     \
	X(METHOD_EDIT, "edit", 0, OVERLAP_FORWARD, EXCHANGE_PARAMETERS, 0.8, 0.85, 3, 1, 1, 10)                               \
	X(METHOD_A_EDIT, "a-edit", 600, OVERLAP_FORWARD, EXCHANGE_PARAMETERS, 0.8, 0.85, 3, 1, 1, 10)                         \
	X(METHOD_DILOCO, "diloco", 0, OVERLAP_NONE, EXCHANGE_PARAMETERS, 0.7, 0.9, 1e30, 1e30, 0, 1e30)                       \
	X(METHOD_LOCAL_SGD, "local-sgd", 0, OVERLAP_NONE, EXCHANGE_PARAMETERS, 1, 0, 1e30, 1e30, 0, 1e30)                     \
	X(METHOD_CO2, "co2", 0, OVERLAP_STEPS, EXCHANGE_PARAMETERS, 0.7, 0.9, 1e30, 1e30, 0, 1e30)                            \
	X(METHOD_DDP, "ddp", 0, OVERLAP_NONE, EXCHANGE_GRADIENTS, 1, 0, 1e30, 1e30, 0, 1e30)

#define METHOD_NAME(id, name, ...) "|" name
#define METHOD_NAMES (&METHODS(METHOD_NAME)[1])

enum method {
#define X(id, name, ...) id,
	METHODS(X)
#undef X
	METHOD_COUNT
};

enum overlap { OVERLAP_NONE, OVERLAP_FORWARD, OVERLAP_STEPS };
enum exchange { EXCHANGE_PARAMETERS, EXCHANGE_GRADIENTS };

enum ring_setting {
#define X(id, name, type, unit, standard, low, high, help) id,
	RING_SETTINGS(X)
#undef X
	RING_SETTING_COUNT
};

/* Values by enum ring_setting. Copied freely. */
struct ring_settings {
	double value[RING_SETTING_COUNT];
};

/* Every setting at its default. */
static inline struct ring_settings ring_settings_standard(void)
{
	struct ring_settings settings = {{
#define X(id, name, type, unit, standard, low, high, help) standard,
		RING_SETTINGS(X)
#undef X
	}};
	return settings;
}

/* Whether a value within a setting's range means something. */
static inline bool ring_setting_fits(enum ring_setting setting, double value)
{
	return setting != STRAGGLER_GRACE || value == 0 || value >= 1;
}

/* Why these settings together have no meaning; NULL if they have. */
static inline const char *ring_settings_conflict(const struct ring_settings *settings)
{
	const double *value = settings->value;
	if (value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS && value[SYNC_PERIOD] > 0)
		return "sync.period has no meaning where sync.exchange = gradients makes every step a round";
	if (value[SYNC_EXCHANGE] == EXCHANGE_GRADIENTS && value[SYNC_OVERLAP] == OVERLAP_STEPS)
		return "sync.overlap = steps has no meaning where sync.exchange = gradients makes every step a round";
	return 0;
}

/* Whether the method presets a setting, and its value there. */
static inline bool method_presets(enum method method, enum ring_setting setting, double *ret_value)
{
	static const enum ring_setting settings[] = {SYNC_PERIOD, SYNC_OVERLAP, SYNC_EXCHANGE, OUTER_LR,
						     OUTER_MOMENTUM, PENALTY_THRESHOLD, PENALTY_TEMPERATURE,
						     PENALTY_BY_STEPS, PENALTY_CLIP};
	static const double values[METHOD_COUNT][sizeof settings / sizeof settings[0]] = {
#define X(id, name, ...) {__VA_ARGS__},
		METHODS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (settings[i] == setting) {
			*ret_value = values[method][i];
			return true;
		}
	return false;
}

#endif

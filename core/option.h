#ifndef EDIT_CORE_OPTION_H
#define EDIT_CORE_OPTION_H

/* The settings that are the same on all members of a ring (scope "ring"), as one table. proto/setting.h joins it with
 * the settings of one node; config file, `editctl get/set`, man page and completion expand the joined table.
 *
 * Every value is a double: counts are whole numbers below 2^53, so nothing is lost, and one number fits one message. */

#include "core/base.h"

/* id, name, type (COUNT: a whole number, REAL, BYTES: whole bytes, multiple of 4), unit, default, low, high, help */
#define RING_SETTINGS(X)                                                                                               \
	X(SYNC_INTERVAL, "sync.interval", COUNT, "steps", 128, 1, 1e9, "local steps between two rounds")                   \
	X(SYNC_PREFETCH, "sync.prefetch", COUNT, "layers", 2, 0, 64,                                                       \
	  "layers on the ring ahead of the worker; 0: only the one that it waits for")                                                   \
	X(OUTER_LR, "outer.lr", REAL, "", 0.8, 0, 10, "learning rate of the outer optimiser (SGD with Nesterov momentum)") \
	X(OUTER_MOMENTUM, "outer.momentum", REAL, "", 0.85, 0, 0.9999, "momentum of the outer optimiser")                  \
	X(PENALTY_ALPHA, "penalty.alpha", REAL, "", 0.02, 1e-6, 1, "weight of a new norm in the detector's mean and variance") \
	X(PENALTY_THRESHOLD, "penalty.threshold", REAL, "sd", 3, 0, 1e30, "z above which a layer's norm is an outlier")    \
	X(PENALTY_WARMUP, "penalty.warmup", COUNT, "rounds", 20, 1, 1e9, "accepted norms before the detector judges")      \
	X(PENALTY_PATIENCE, "penalty.patience", COUNT, "rounds", 3, 1, 1e9,                                                \
	  "outliers in a row that count as a moved level, accepted from then on")                                          \
	X(PENALTY_TEMPERATURE, "penalty.temperature", REAL, "", 1, 1e-6, 1e30, "flatness of the weights exp(-norm/T)")     \
	X(PENALTY_CLIP, "penalty.clip", REAL, "", 10, 1e-6, 1e30, "largest norm of the mean pseudo-gradient of a layer")   \
	X(WIRE_CHUNK, "wire.chunk", BYTES, "bytes", 262144, 64, 4194304, "largest payload of one frame on the ring")       \
	X(WIRE_WINDOW, "wire.window", BYTES, "bytes", 4194304, 1024, 1073741824,                                           \
	  "payload sent to the right neighbour and not yet acknowledged")

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

#endif

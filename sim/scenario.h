#ifndef EDIT_SIM_SCENARIO_H
#define EDIT_SIM_SCENARIO_H

/* What `edit-sim run` shall do, read from an INI file: the run, the model, the data, and the machines with their speeds, links
 * and faults. Every key stands in one of the two tables below; the settings of the ring (core/option.h) stand in [run] by
 * their names. */

#include "core/layer.h"
#include "core/option.h"
#include "proto/text.h"
#include "core/places.h"

/* What a value is. */
enum scenario_type {
	SCENARIO_COUNT, /* a whole number */
	SCENARIO_REAL,
	SCENARIO_FLAG,  /* yes or no; 1 or 0 */
	SCENARIO_TEXT
};

/* id, section, name, type, default, low, high, unit, help. TEXT: low and high are bytes. A default of -1: see help. */
#define SCENARIO_KEYS(X)                                                                                               \
	X(RUN_SEED, "run", "seed", COUNT, 1, 0, 9007199254740992, "",                                            \
	  "of parameters, order of samples and everything random")                                               \
	X(RUN_TOKENS, "run", "tokens", COUNT, 0, 0, 1e15, "tokens",                                              \
	  "the run ends when all nodes together have trained on so many")                                        \
	X(RUN_SECONDS, "run", "seconds", REAL, 0, 0, 1e9, "s",                                                   \
	  "or after so much virtual time; 0: no bound, one must be given")                                       \
	X(RUN_EVAL_TOKENS, "run", "eval.tokens", COUNT, 0, 0, 1e15, "tokens",                                    \
	  "held-out loss at the next round after so many; 0: not by tokens")                                     \
	X(RUN_EVAL_SECONDS, "run", "eval.seconds", REAL, 0, 0, 1e9, "s",                                         \
	  "or after so much virtual time; both 0: after every round")                                            \
	X(RUN_EVAL_SAMPLES, "run", "eval.samples", COUNT, 64, 1, 1e6, "samples",                                 \
	  "samples of the held-out part that are measured on, as many as there are")                             \
	X(MODEL_CONFIG, "model", "config", TEXT, 0, 1, 4095, "",                                                 \
	  "path of the config.json of a Llama, from the scenario's folder")                                      \
	X(MODEL_START, "model", "start", TEXT, 0, 1, 4095, "",                                                   \
	  "folder with a model.safetensors to begin with, from the scenario's folder; default drawn by seed")    \
	X(MODEL_TIMING, "model", "timing", FLAG, 0, 0, 1, "", "only times: no model, no gradients")              \
	X(MODEL_LAYERS, "model", "layers", COUNT, 12, 1, LAYER_COUNT_MAX, "layers",                              \
	  "timing: layers of equal size")                                                                        \
	X(MODEL_PARAMETERS, "model", "parameters", COUNT, 100e6, 1, 1e12, "parameters",                          \
	  "timing: of all layers together")                                                                      \
	X(MODEL_SCALE, "model", "scale", COUNT, 64, 1, 65536, "",                                                \
	  "timing: sizes, bandwidth, wire.chunk and wire.window are divided by this: the same times for "        \
	  "less work")                                                                                           \
	X(DATA_FILE, "data", "file", TEXT, 0, 1, 4095, "", "text or tokens, from the scenario's folder")         \
	X(DATA_TYPE, "data", "type", TEXT, 0, 1, 8, "", "auto, text, u16, u32 or llmc; default auto")            \
	X(DATA_HOLDOUT, "data", "holdout", REAL, 0.1, 0.0001, 0.9, "",                                           \
	  "fraction at the end that is never trained on")                                                        \
	X(DATA_CONTEXT, "data", "context", COUNT, 128, 1, 1048576, "tokens", "of a sequence")                    \
	X(DATA_BATCH, "data", "batch", COUNT, 8, 1, 65536, "sequences", "of a step of one node")                 \
	X(DATA_LR, "data", "lr", REAL, 1e-3, 0, 1e6, "", "learning rate of AdamW after warm-up")                 \
	X(DATA_MIN_LR, "data", "min_lr", REAL, -1, 0, 1e6, "",                                                   \
	  "at the end of the cosine; default a tenth of lr")                                                     \
	X(DATA_WARMUP, "data", "warmup", COUNT, -1, 0, 1e9, "steps",                                             \
	  "of linear warm-up; default a tenth of steps, up to 100")                                              \
	X(DATA_STEPS, "data", "steps", COUNT, -1, 1, 1e9, "steps",                                               \
	  "of a node until the end of the cosine; default what the budget gives an average node")                \
	X(DATA_DECAY, "data", "weight_decay", REAL, 0.1, 0, 1000, "", "of matrices")                             \
	X(DATA_BETA1, "data", "beta1", REAL, 0.9, 0, 0.999999, "", "of AdamW")                                   \
	X(DATA_BETA2, "data", "beta2", REAL, 0.95, 0, 0.999999, "", "of AdamW")                                  \
	X(DATA_CLIP, "data", "clip", REAL, 1, 0, 1e30, "", "largest norm of a gradient; 0: any")                 \
	X(NODES_COUNT, "nodes", "count", COUNT, 0, 1, MEMBER_COUNT_MAX, "nodes",                                 \
	  "named n0, n1, ...; without it each [node NAME] is one")                                               \
	X(NODES_FANOUT, "nodes", "ring.fanout", COUNT, 0, 0, MEMBER_COUNT_MAX, "nodes",                          \
	  "of a group, where the ring is a ring of rings: a divisor of their number; 0: a flat ring")            \
	X(NODES_RANDOM, "nodes", "straggler.random", REAL, 1, 1, 1e6, "",                                        \
	  "at each step one node, another each time, is slowed by this factor")

/* id, name, type, default, low, high, unit, help: keys of [nodes], for all, and of [node NAME], for one. A burst of a fault
 * begins at step `from` (counted from 1; 0: never), lasts `steps` and comes again every `every` steps (0: once). */
#define HOST_KEYS(X)                                                                                                   \
	X(HOST_SPEED, "speed", REAL, 1, 1e-6, 1e6, "steps/s", "of the worker")                                   \
	X(HOST_SPREAD, "speed.spread", REAL, 0, 0, 0.9, "",                                                      \
	  "a step takes a factor in [1 - spread, 1 + spread] as long")                                           \
	X(HOST_LATENCY, "link.latency_ms", REAL, 0.1, 0, 1e6, "ms",                                              \
	  "one way; between two nodes the larger one counts")                                                    \
	X(HOST_BANDWIDTH, "link.mbit", REAL, 1000, 1e-3, 1e9, "Mbit/s",                                          \
	  "each way; between two nodes the smaller one counts")                                                  \
	X(HOST_SHARED, "link.shared", FLAG, 0, 0, 1, "",                                                         \
	  "traffic with the left and with the right neighbour share one line")                                   \
	X(HOST_CONSISTENT, "straggler.consistent", REAL, 1, 1, 1e6, "", "every step takes this factor as long")  \
	X(HOST_PERIODIC, "straggler.periodic", REAL, 1, 1, 1e6, "",                                              \
	  "so do the steps that begin in the slow part of a period")                                             \
	X(HOST_PERIOD, "straggler.period_s", REAL, 600, 1e-3, 1e9, "s",                                          \
	  "virtual time from one slow part to the next")                                                         \
	X(HOST_DURATION, "straggler.duration_s", REAL, 60, 0, 1e9, "s",                                          \
	  "of the slow part, at the end of a period")                                                            \
	X(HOST_CORRUPT_FROM, "corrupt.from", COUNT, 0, 0, 1e9, "",                                               \
	  "first step with the tokens of each sample in random order")                                           \
	X(HOST_CORRUPT_STEPS, "corrupt.steps", COUNT, 1, 1, 1e9, "steps", "of a burst")                          \
	X(HOST_CORRUPT_EVERY, "corrupt.every", COUNT, 0, 0, 1e9, "steps", "from one burst to the next")          \
	X(HOST_SCALE_FROM, "scale.from", COUNT, 0, 0, 1e9, "",                                                   \
	  "first step that moves scale.factor times as far; with averaged gradients: that many times the "       \
	  "gradient")                                                                                            \
	X(HOST_SCALE_STEPS, "scale.steps", COUNT, 1, 1, 1e9, "steps", "of a burst")                              \
	X(HOST_SCALE_EVERY, "scale.every", COUNT, 0, 0, 1e9, "steps", "from one burst to the next")              \
	X(HOST_SCALE_FACTOR, "scale.factor", REAL, 100, 0, 1e30, "", "of the bursts")                            \
	X(HOST_NAN_FROM, "nan.from", COUNT, 0, 0, 1e9, "",                                                       \
	  "first step that leaves a NaN in the middle layer; with averaged gradients: in its gradient")          \
	X(HOST_NAN_STEPS, "nan.steps", COUNT, 1, 1, 1e9, "steps", "of a burst")                                  \
	X(HOST_NAN_EVERY, "nan.every", COUNT, 0, 0, 1e9, "steps", "from one burst to the next")

enum scenario_key {
#define X(id, ...) id,
	SCENARIO_KEYS(X)
#undef X
	SCENARIO_KEY_COUNT
};

enum host_key {
#define X(id, ...) id,
	HOST_KEYS(X)
#undef X
	HOST_KEY_COUNT
};

/* How long each of some steps took. */
struct pace {
	uint64_t steps, step_us;
};

struct host {
	char name[TEXT_NAME_MAX + 1];
	double value[HOST_KEY_COUNT];
	const struct pace *paces; /* [pace_count] in the order in which they come, again and again, instead of a speed; borrowed */
	size_t pace_count;
};

struct scenario {
	char *path;                          /* of the file; NULL: made, not read */
	double value[SCENARIO_KEY_COUNT];
	int line_number[SCENARIO_KEY_COUNT]; /* where the key stands in the file; 0: not given */
	char *text[SCENARIO_KEY_COUNT]; /* TEXT: as given, paths from where the program runs; NULL: not given */
	struct ring_settings settings;
	const uint64_t *layer_sizes;    /* [layers] timing: elements of each instead of equal ones; NULL: equal; borrowed */
	uint32_t host_count;
	struct host *hosts;             /* [host_count] in ring order */
};

/* Reads and checks the file at path. EDIT_ERROR_INVALID, _RANGE or _UNKNOWN: why is one line with file, line, key and what
 * was expected (what is missing has no line); EDIT_ERROR_SYSTEM: the file cannot be read. On success the scenario is the
 * caller's to scenario_close. */
int scenario_open(struct scenario *scenario, const char *path, struct line *why);
/* Every key at its default and so many nodes without a name: a scenario that is made rather than read. */
void scenario_init(struct scenario *scenario, uint32_t host_count);
void scenario_close(struct scenario *scenario);

/* Who is whose neighbour. */
struct places scenario_places(const struct scenario *scenario);

/* Whether a burst of the three keys from `from` on (from, steps, every) covers the step with that number, counted from 1. */
bool host_has_burst(const struct host *host, enum host_key from, uint64_t number);

/* Prints both tables for --help, one line a key. */
void scenario_print_keys(void);

#endif

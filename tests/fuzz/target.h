#ifndef EDIT_TESTS_FUZZ_TARGET_H
#define EDIT_TESTS_FUZZ_TARGET_H

/* What the fuzzer and the replay of its corpus call: one function per kind of input from outside. Each decodes data[size]; what
 * it accepts it encodes and decodes again, and the two must agree. Always 0; a fault is a CHECK or a sanitizer's report. */

#include <stddef.h>
#include <stdint.h>

/* Frame 1 between daemons. */
int target_codec(const uint8_t *data, size_t size);
/* A request to the control socket; the same bytes also as a reply to a client. */
int target_control(const uint8_t *data, size_t size);
/* A worker's description. */
int target_description(const uint8_t *data, size_t size);
/* A segment: the first half of the bytes is laid over a good one's header, the second over its layer table; what is then
 * accepted is touched from end to end. */
int target_segment(const uint8_t *data, size_t size);
/* A safetensors file; every tensor that passes the check is read. */
int target_weights(const uint8_t *data, size_t size);
/* A config.json of a model. */
int target_config(const uint8_t *data, size_t size);
/* Training data: four bytes of options, then the file; what opens is sampled. */
int target_tokens(const uint8_t *data, size_t size);
/* The manifest of a checkpoint, and the text of its state, of 0 to 2 layers. */
int target_manifest(const uint8_t *data, size_t size);
int target_snapshot(const uint8_t *data, size_t size);

#endif

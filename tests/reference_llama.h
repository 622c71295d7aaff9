#ifndef EDIT_TESTS_REFERENCE_LLAMA_H
#define EDIT_TESTS_REFERENCE_LLAMA_H

/* A case of tests/vectors/llama_* in memory: a small model, its first batch in every detail, and a short AdamW run,
 * in double precision, made by tests/reference/llama_reference.py. For tests only: a damaged file ends the program. */

#include "worker/adamw.h"

struct reference_llama {
	struct llama_config config;
	float **theta; /* [llama_layer_count] parameters at the begin, by layer */
	unsigned batch, time, step_count;
	uint32_t *tokens;      /* [step_count][batch][time + 1] */
	double *logits;        /* [batch][time][vocab_size] of the first batch */
	double **gradient;     /* [llama_layer_count] of the first batch, by layer like theta */
	struct adamw adamw;
	double rate;           /* learning rate of all steps */
	double *loss, *norm;   /* [step_count] before the step; norm of all gradients, before clipping */
	double **weight_norms; /* [step_count][llama_tensor_count] after the step */
};

/* Loads tests/vectors/NAME; the caller frees. Tests run at the root of the tree. */
struct reference_llama *reference_llama_load(const char *name);
void reference_llama_free(struct reference_llama *reference);

#endif

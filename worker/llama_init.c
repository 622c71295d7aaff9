/* Initial parameters and the choice of a token: what a model needs of chance. */

#include "worker/draw.h"
#include "worker/llama.h"

#include <math.h>

void llama_init(const struct llama_config *config, unsigned layer, uint64_t seed, float *ret_theta)
{
	CHECK(layer < llama_layer_count(config));
	for (unsigned index = 0; index < llama_tensor_count(config); index++) {
		struct llama_tensor tensor;
		llama_tensor_at(config, index, &tensor);
		if (tensor.layer != layer)
			continue;
		float *x = ret_theta + tensor.offset;
		if (tensor.rank == 1) {
			for (size_t i = 0; i < tensor.size; i++)
				x[i] = 1;
		} else {
			bool is_residual = tensor.kind == LLAMA_O || tensor.kind == LLAMA_DOWN;
			double deviation = is_residual ? 0.02 / sqrt(2.0 * config->layer_count) : 0.02;
			draw_normals(seed, index, deviation, x, tensor.size);
		}
	}
}

static uint32_t most_likely(const float *logits, unsigned vocab_size)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < vocab_size; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

uint32_t llama_choose(const float *logits, unsigned vocab_size, double temperature, double uniform)
{
	CHECK(vocab_size >= 1);
	uint32_t best = most_likely(logits, vocab_size);
	if (!(temperature > 0))
		return best;
	double sum = 0, below = 0;
	for (uint32_t i = 0; i < vocab_size; i++)
		sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
	for (uint32_t i = 0; i < vocab_size; i++) {
		below += exp(((double)logits[i] - (double)logits[best]) / temperature);
		if (uniform * sum < below)
			return i;
	}
	return best;
}

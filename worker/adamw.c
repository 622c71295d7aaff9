/* AdamW with clipping and the schedule; the loop over elements is adamw_update in kernels_rows.c. */

#include "worker/adamw.h"

#include <math.h>

#include "core/vec.h"
#include "worker/kernels.h"

struct adamw adamw_standard(void)
{
	return (struct adamw){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_norm = 1};
}

double schedule_rate(const struct schedule *schedule, uint64_t step)
{
	const double pi = 3.141592653589793;
	if (step < schedule->warmup_steps)
		return schedule->peak * (double)(step + 1) / (double)schedule->warmup_steps;
	if (step >= schedule->total_steps)
		return schedule->floor;
	uint64_t done = step - schedule->warmup_steps, all = schedule->total_steps - schedule->warmup_steps;
	double part = (double)done / (double)all;
	return schedule->floor + (schedule->peak - schedule->floor) * (1 + cos(pi * part)) / 2;
}

static double gradient_norm(const struct llama *model)
{
	const struct llama_config *config = llama_config_of(model);
	double sum = 0;
	for (unsigned layer = 0; layer < llama_layer_count(config); layer++)
		sum += vec_square_sum(llama_gradient(model, layer), llama_layer_size(config, layer));
	return sqrt(sum);
}

static void tensor_step(const struct llama *model, const struct llama_tensor *tensor, struct adamw_update update)
{
	float *inner = llama_inner(model, tensor->layer);
	float *v = inner + llama_layer_size(llama_config_of(model), tensor->layer);
	if (tensor->rank == 1)
		update.decay = 1;
	adamw_update(llama_theta(model, tensor->layer) + tensor->offset, inner + tensor->offset, v + tensor->offset,
		     llama_gradient(model, tensor->layer) + tensor->offset, tensor->size, &update);
}

static void layer_step(const struct llama *model, unsigned layer, struct adamw_update update)
{
	const struct llama_config *config = llama_config_of(model);
	for (unsigned index = 0; index < llama_tensor_count(config); index++) {
		struct llama_tensor tensor;
		llama_tensor_at(config, index, &tensor);
		if (tensor.layer == layer)
			tensor_step(model, &tensor, update);
	}
}

bool llama_step(struct llama *model, const struct adamw *adamw, double rate, uint64_t number, double *ret_norm)
{
	const struct llama_config *config = llama_config_of(model);
	const struct llama_hooks *hooks = llama_hooks_of(model);
	double norm = gradient_norm(model);
	CHECK(number >= 1);
	*ret_norm = norm;
	if (!isfinite(norm))
		return false;
	bool is_clipped = adamw->clip_norm > 0 && adamw->clip_norm < norm + 1e-6;
	struct adamw_update update = {
		.gradient_scale = is_clipped ? (float)(adamw->clip_norm / (norm + 1e-6)) : 1,
		.decay = (float)(1 - rate * adamw->weight_decay),
		.beta1 = (float)adamw->beta1,
		.beta2 = (float)adamw->beta2,
		.rest1 = (float)(1 - adamw->beta1),
		.rest2 = (float)(1 - adamw->beta2),
		.rate = (float)(rate / (1 - pow(adamw->beta1, (double)number))),
		.root_bias = (float)(1 / sqrt(1 - pow(adamw->beta2, (double)number))),
		.eps = (float)adamw->eps,
	};
	for (unsigned layer = 0; layer < llama_layer_count(config); layer++) {
		if (hooks->step_begin)
			hooks->step_begin(hooks->arg, layer);
		layer_step(model, layer, update);
		if (hooks->step_end)
			hooks->step_end(hooks->arg, layer);
	}
	return true;
}

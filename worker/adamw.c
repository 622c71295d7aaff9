/* AdamW with clipping and the schedule; the loop over elements is adamw_update in kernels_rows.c. */

#include "worker/adamw.h"

#include <math.h>

#include "core/vec.h"

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

double adamw_square_sum(const struct adamw_piece *pieces, unsigned piece_count)
{
	double sum = 0;
	for (unsigned i = 0; i < piece_count; i++)
		sum += vec_square_sum(pieces[i].gradient, pieces[i].count);
	return sum;
}

bool adamw_begin(const struct adamw *adamw, double norm, double rate, uint64_t number, struct adamw_update *ret_update)
{
	CHECK(number >= 1);
	if (!isfinite(norm))
		return false;
	bool is_clipped = adamw->clip_norm > 0 && adamw->clip_norm < norm + 1e-6;
	*ret_update = (struct adamw_update){
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
	return true;
}

/* The part of the piece that lies in the tensor. */
static void tensor_step(const struct llama_tensor *tensor, const struct adamw_piece *piece, struct adamw_update update)
{
	size_t begin = size_max(tensor->offset, piece->first);
	size_t end = size_min(tensor->offset + tensor->size, piece->first + piece->count);
	if (begin >= end)
		return;
	if (tensor->rank == 1)
		update.decay = 1;
	size_t at = begin - piece->first;
	adamw_update(piece->theta + at, piece->inner + at, piece->inner + piece->count + at, piece->gradient + at,
		     end - begin, &update);
}

void adamw_step_piece(const struct llama_config *config, unsigned layer, const struct adamw_piece *piece,
		      const struct adamw_update *update)
{
	for (unsigned index = 0; index < llama_tensor_count(config); index++) {
		struct llama_tensor tensor;
		llama_tensor_at(config, index, &tensor);
		if (tensor.layer == layer)
			tensor_step(&tensor, piece, *update);
	}
}

bool adamw_step(const struct llama_config *config, const struct adamw_piece *pieces, const struct adamw *adamw,
		double rate, uint64_t number, double *ret_norm)
{
	unsigned layer_count = llama_layer_count(config);
	struct adamw_update update;
	*ret_norm = sqrt(adamw_square_sum(pieces, layer_count));
	if (!adamw_begin(adamw, *ret_norm, rate, number, &update))
		return false;
	for (unsigned layer = 0; layer < layer_count; layer++)
		adamw_step_piece(config, layer, &pieces[layer], &update);
	return true;
}

/* Attention by tiles of queries; see the header. Key rows beyond a tile's last query are never touched, so the
 * causal mask costs only the triangle inside a tile. */

#include "worker/attention.h"

#include <math.h>

/* A part of the queries of one head, and the keys that they see. */
struct tile {
	size_t first, rows; /* queries */
	size_t keys;        /* seen by the last of them */
	size_t stride;      /* of the score panels: keys, rounded up to a cache line */
	size_t q_column, kv_column;
};

static size_t round_up(size_t count)
{
	return (count + 15) / 16 * 16;
}

size_t attention_scratch_size(size_t key_count)
{
	return 2 * ATTENTION_TILE * round_up(key_count);
}

static struct tile tile_at(const struct attention *a, size_t first, unsigned head)
{
	size_t rows = size_min(ATTENTION_TILE, a->query_count - first);
	size_t keys = a->past + first + rows;
	unsigned group = a->head_count / a->kv_head_count;
	return (struct tile){first, rows, keys, round_up(keys), (size_t)head * a->head_dim,
			     (size_t)(head / group) * a->head_dim};
}

static float score_scale(const struct attention *a)
{
	return (float)(1 / sqrt((double)a->head_dim));
}

static struct const_matrix part(struct const_matrix m, size_t row, size_t column)
{
	return const_matrix(m.data + row * m.stride + column, m.stride);
}

static struct matrix part_of(struct matrix m, size_t row, size_t column)
{
	return matrix(m.data + row * m.stride + column, m.stride);
}

/* scores[rows, keys] = q k^T / sqrt(head_dim) */
static void tile_scores(const struct attention *a, const struct tile *t, float *scores)
{
	matmul_nt(matrix(scores, t->stride), part(a->q, t->first, t->q_column), part(a->k, 0, t->kv_column), t->rows,
		  t->keys, a->head_dim, score_scale(a), 0);
}

static void tile_forward(const struct attention *a, const struct tile *t, unsigned head, struct matrix out,
			 float *log_sum)
{
	float *scores = a->scratch;
	float sums[ATTENTION_TILE];
	tile_scores(a, t, scores);
	for (size_t r = 0; r < t->rows; r++) {
		size_t query = t->first + r;
		log_sum[query * a->head_count + head] =
			row_softmax(scores + r * t->stride, a->past + query + 1, t->keys, &sums[r]);
	}
	struct matrix o = part_of(out, t->first, t->q_column);
	matmul_nn(o, const_matrix(scores, t->stride), part(a->v, 0, t->kv_column), t->rows, a->head_dim, t->keys, 0);
	for (size_t r = 0; r < t->rows; r++)
		row_scale(o.data + r * o.stride, 1 / sums[r], a->head_dim);
}

void attention_forward(const struct attention *attention, struct matrix out, float *ret_log_sum)
{
	for (unsigned head = 0; head < attention->head_count; head++) {
		for (size_t first = 0; first < attention->query_count; first += ATTENTION_TILE) {
			struct tile t = tile_at(attention, first, head);
			tile_forward(attention, &t, head, out, ret_log_sum);
		}
	}
}

/* Fills probability and score_gradient, both [rows, keys] with the tile's stride: with P the probabilities and dP =
 * dout v^T, the gradient of the scores is P (dP - sum over the keys of P dP). The sum is taken from P and dP
 * themselves rather than from the product of out and dout, which it equals: so a query with a single key gets
 * exactly 0. */
static void tile_gradients(const struct attention *a, const struct tile *t, unsigned head, const float *log_sum,
			   struct const_matrix dout, float *probability, float *score_gradient)
{
	tile_scores(a, t, probability);
	matmul_nt(matrix(score_gradient, t->stride), part(dout, t->first, t->q_column), part(a->v, 0, t->kv_column),
		  t->rows, t->keys, a->head_dim, 1, 0);
	for (size_t r = 0; r < t->rows; r++) {
		float *p = probability + r * t->stride, *g = score_gradient + r * t->stride;
		size_t query = t->first + r;
		row_softmax_again(p, log_sum[query * a->head_count + head], query + 1, t->keys);
		row_softmax_backward(g, p, row_dot(p, g, query + 1), score_scale(a), t->keys);
	}
}

void attention_backward(const struct attention *attention, const float *log_sum, struct const_matrix dout,
			struct matrix dq, struct matrix dk, struct matrix dv)
{
	const struct attention *a = attention;
	unsigned group = a->head_count / a->kv_head_count;
	size_t tiles = (a->query_count + ATTENTION_TILE - 1) / ATTENTION_TILE;
	CHECK(a->past == 0);
	for (unsigned head = 0; head < a->head_count; head++) {
		/* The last tile first: it sees all keys, so it can write dk and dv where the others add. */
		for (size_t i = tiles; i-- > 0;) {
			struct tile t = tile_at(a, i * ATTENTION_TILE, head);
			float *p = a->scratch, *ds = a->scratch + ATTENTION_TILE * t.stride;
			float old = head % group == 0 && i == tiles - 1 ? 0 : 1;
			tile_gradients(a, &t, head, log_sum, dout, p, ds);
			struct const_matrix p_tile = const_matrix(p, t.stride), ds_tile = const_matrix(ds, t.stride);
			matmul_tn(part_of(dv, 0, t.kv_column), p_tile, part(dout, t.first, t.q_column), t.keys,
				  a->head_dim, t.rows, old);
			matmul_tn(part_of(dk, 0, t.kv_column), ds_tile, part(a->q, t.first, t.q_column), t.keys,
				  a->head_dim, t.rows, old);
			matmul_nn(part_of(dq, t.first, t.q_column), ds_tile, part(a->k, 0, t.kv_column), t.rows,
				  a->head_dim, t.keys, 0);
		}
	}
}

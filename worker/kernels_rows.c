/* Operations on rows, written so that the compiler makes vector code for several instruction sets (CLONED) and picks
 * one at run time. Sums and maxima go through 16 lanes, a fixed number, so that all instruction sets give the same
 * bits. */

#include "worker/kernels.h"

#include <math.h>
#include <string.h>

enum {
	LANES = 16,
	WIDTH = 8, /* of a vector: what AVX2 has in a register; wider ones would be compared element by element there */
	PARTS = LANES / WIDTH
};

typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef int32_t masks __attribute__((vector_size(4 * WIDTH)));
typedef float vector_anywhere __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* One partial result per lane. */
struct lanes {
	vector part[PARTS];
};

#if defined(__x86_64__) && !defined(EDIT_NARROW)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif
#define INLINE static inline __attribute__((always_inline))

/* Vectors are handed over by pointer: by value they would tie the functions to one instruction set. */

/* The first count elements of p, the others are rest. */
INLINE void load(vector *ret_x, const float *p, size_t count, float rest)
{
	if (count >= WIDTH) {
		*ret_x = *(const vector_anywhere *)p;
	} else {
		*ret_x = (vector){0} + rest;
		memcpy(ret_x, p, count * sizeof(float));
	}
}

INLINE void store(float *p, const vector *x, size_t count)
{
	if (count >= WIDTH)
		*(vector_anywhere *)p = *x;
	else
		memcpy(p, x, count * sizeof(float));
}

/* Elementwise condition ? yes : x. */
#define REPLACE(x, condition, yes)                                                                                     \
	do {                                                                                                           \
		masks where = (condition);                                                                             \
		x = (vector)((where & (masks)((vector){0} + (yes))) | (~where & (masks)x));                            \
	} while (0)

INLINE float fold_sum(const struct lanes *x)
{
	float part[LANES];
	memcpy(part, x, sizeof part);
	for (unsigned width = LANES / 2; width > 0; width /= 2)
		for (unsigned i = 0; i < width; i++)
			part[i] += part[i + width];
	return part[0];
}

INLINE float fold_max(const vector *x)
{
	float part[WIDTH];
	memcpy(part, x, sizeof part);
	for (unsigned i = 1; i < WIDTH; i++)
		part[0] = part[i] > part[0] ? part[i] : part[0];
	return part[0];
}

/* In place e^x = 2^n e^r with |r| <= ln(2)/2. Adding 1.5 x 2^23 rounds x / ln(2) to n and leaves n in the low bits;
 * e^r by a polynomial of degree 6 (minimax, from the Cephes library: relative error below 2e-8 before rounding). */
INLINE void vector_exp(vector *in_out)
{
	vector x = *in_out;
	REPLACE(x, x > 88.3f, 88.3f);
	REPLACE(x, x < -87.3f, -87.3f);
	vector shifted = x * 1.44269504f + 12582912.0f;
	vector n = shifted - 12582912.0f;
	vector r = x - n * 0.693359375f; /* ln(2) in two parts, the first with few bits: n times it is exact */
	r = r + n * 2.12194440e-4f;
	vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	masks power = ((masks)shifted << 23) + 0x3f800000;
	*in_out = p * (vector)power;
}

/* Partial results take turns, here and below: so an operation need not wait for the one before. */
INLINE float row_max(const float *x, size_t count)
{
	struct lanes max;
	vector part;
	for (size_t k = 0; k < PARTS; k++)
		max.part[k] = (vector){0} - INFINITY;
	for (size_t i = 0, k = 0; i < count; i += WIDTH, k = (k + 1) % PARTS) {
		load(&part, x + i, count - i, -INFINITY);
		REPLACE(max.part[k], part > max.part[k], part);
	}
	for (size_t k = 1; k < PARTS; k++)
		REPLACE(max.part[0], max.part[k] > max.part[0], max.part[k]);
	return fold_max(&max.part[0]);
}

/* x[i] = exp(x[i] - shift); returns the sum. */
INLINE float row_exp_shifted(float *x, float shift, size_t count)
{
	struct lanes sum = {0};
	vector e;
	for (size_t i = 0, k = 0; i < count; i += WIDTH, k = (k + 1) % PARTS) {
		load(&e, x + i, count - i, 0);
		e -= shift;
		vector_exp(&e);
		store(x + i, &e, count - i);
		if (count - i < WIDTH)
			load(&e, x + i, count - i, 0);
		sum.part[k] += e;
	}
	return fold_sum(&sum);
}

CLONED static void exp_of(float *x, size_t count)
{
	row_exp_shifted(x, 0, count);
}
void row_exp(float *x, size_t count) { exp_of(x, count); }

INLINE float dot_inline(const float *x, const float *y, size_t count)
{
	struct lanes sum = {0};
	vector a, b;
	for (size_t i = 0, k = 0; i < count; i += WIDTH, k = (k + 1) % PARTS) {
		load(&a, x + i, count - i, 0);
		load(&b, y + i, count - i, 0);
		sum.part[k] += a * b;
	}
	return fold_sum(&sum);
}

CLONED static float dot_of(const float *x, const float *y, size_t count) { return dot_inline(x, y, count); }
float row_dot(const float *x, const float *y, size_t count) { return dot_of(x, y, count); }

CLONED static void add_to(float *restrict y, const float *restrict x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		y[i] += x[i];
}
void row_add(float *y, const float *x, size_t count) { add_to(y, x, count); }

CLONED static void scale_by(float *x, float factor, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] *= factor;
}
void row_scale(float *x, float factor, size_t count) { scale_by(x, factor, count); }

/* ---- Softmax and cross-entropy ---- */

CLONED static float softmax_of(float *x, size_t valid, size_t count, float *ret_sum)
{
	float max = row_max(x, valid);
	float sum = row_exp_shifted(x, max, valid);
	memset(x + valid, 0, (count - valid) * sizeof(float));
	*ret_sum = sum;
	return max + logf(sum);
}
float row_softmax(float *x, size_t valid, size_t count, float *ret_sum)
{
	CHECK(valid >= 1 && valid <= count);
	return softmax_of(x, valid, count, ret_sum);
}

CLONED static void softmax_again(float *x, float log_sum, size_t valid, size_t count)
{
	row_exp_shifted(x, log_sum, valid);
	memset(x + valid, 0, (count - valid) * sizeof(float));
}
void row_softmax_again(float *x, float log_sum, size_t valid, size_t count)
{
	CHECK(valid <= count);
	softmax_again(x, log_sum, valid, count);
}

CLONED static void softmax_backward(float *restrict g, const float *restrict p, float mean, float scale, size_t count)
{
	for (size_t i = 0; i < count; i++)
		g[i] = p[i] * (g[i] - mean) * scale;
}
void row_softmax_backward(float *g, const float *p, float mean, float scale, size_t count)
{
	softmax_backward(g, p, mean, scale, count);
}

CLONED static double cross_entropy(float *logits, size_t vocab_size, uint32_t target, float scale)
{
	float at_target = logits[target];
	float max = row_max(logits, vocab_size);
	float sum = row_exp_shifted(logits, max, vocab_size);
	if (scale != 0) {
		float factor = scale / sum;
		for (size_t i = 0; i < vocab_size; i++)
			logits[i] *= factor;
		logits[target] -= scale;
	}
	return log((double)sum) + (double)max - (double)at_target;
}
double row_cross_entropy(float *logits, size_t vocab_size, uint32_t target, float scale)
{
	CHECK(target < vocab_size);
	return cross_entropy(logits, vocab_size, target, scale);
}

/* ---- RMSNorm ---- */

INLINE void rms_norm_row(float *restrict y, float rstd, const float *restrict x, const float *restrict w, size_t width)
{
	for (size_t i = 0; i < width; i++)
		y[i] = x[i] * rstd * w[i];
}

CLONED static void norm_rows(float *y, float *rstd, const float *x, const float *w, size_t rows, size_t width,
			     double eps)
{
	for (size_t r = 0; r < rows; r++, x += width, y += width) {
		double mean = (double)dot_inline(x, x, width) / (double)width;
		rstd[r] = (float)(1 / sqrt(mean + eps));
		rms_norm_row(y, rstd[r], x, w, width);
	}
}
void rms_norm(float *y, float *ret_rstd, const float *x, const float *w, size_t rows, size_t width, double eps)
{
	norm_rows(y, ret_rstd, x, w, rows, width, eps);
}

CLONED static void norm_rows_again(float *y, const float *rstd, const float *x, const float *w, size_t rows,
				   size_t width)
{
	for (size_t r = 0; r < rows; r++)
		rms_norm_row(y + r * width, rstd[r], x + r * width, w, width);
}
void rms_norm_again(float *y, const float *rstd, const float *x, const float *w, size_t rows, size_t width)
{
	norm_rows_again(y, rstd, x, w, rows, width);
}

/* With s = rstd, d = width: dx = s w dy - x s^3/d sum(w dy x), dw = dy x s. */
INLINE void rms_norm_backward_row(float *restrict dx, float *restrict dw, const float *restrict dy,
				  const float *restrict x, const float *restrict w, float rstd, size_t width)
{
	struct lanes sum = {0};
	vector a, b, c;
	for (size_t i = 0, k = 0; i < width; i += WIDTH, k = (k + 1) % PARTS) {
		load(&a, dy + i, width - i, 0);
		load(&b, w + i, width - i, 0);
		load(&c, x + i, width - i, 0);
		sum.part[k] += a * b * c;
	}
	float along = fold_sum(&sum) * rstd * rstd * rstd / (float)width;
	for (size_t i = 0; i < width; i++) {
		dx[i] += rstd * w[i] * dy[i] - x[i] * along;
		dw[i] += dy[i] * x[i] * rstd;
	}
}

CLONED static void norm_rows_backward(float *dx, float *dw, const float *dy, const float *rstd, const float *x,
				      const float *w, size_t rows, size_t width)
{
	for (size_t r = 0; r < rows; r++, dx += width, dy += width, x += width)
		rms_norm_backward_row(dx, dw, dy, x, w, rstd[r], width);
}
void rms_norm_backward(float *dx, float *dw, const float *dy, const float *rstd, const float *x, const float *w,
		       size_t rows, size_t width)
{
	norm_rows_backward(dx, dw, dy, rstd, x, w, rows, width);
}

/* ---- SwiGLU: silu(a) b = a s b with s = 1 / (1 + e^-a) ---- */

INLINE void vector_sigmoid(vector *ret_s, const vector *a)
{
	vector e = -*a;
	vector_exp(&e);
	*ret_s = 1.0f / (1.0f + e);
}

CLONED static void swiglu_rows(float *h, const float *gate_up, size_t rows, size_t width)
{
	vector a, b, s;
	for (size_t r = 0; r < rows; r++, h += width, gate_up += 2 * width) {
		for (size_t i = 0; i < width; i += WIDTH) {
			load(&a, gate_up + i, width - i, 0);
			load(&b, gate_up + width + i, width - i, 0);
			vector_sigmoid(&s, &a);
			b *= a * s;
			store(h + i, &b, width - i);
		}
	}
}
void swiglu(float *h, const float *gate_up, size_t rows, size_t width)
{
	swiglu_rows(h, gate_up, rows, width);
}

/* da = dh b s (1 + a (1 - s)), db = dh a s */
CLONED static void swiglu_rows_backward(float *h, float *gate_up, size_t rows, size_t width)
{
	vector a, b, s, dh;
	for (size_t r = 0; r < rows; r++, h += width, gate_up += 2 * width) {
		for (size_t i = 0; i < width; i += WIDTH) {
			load(&a, gate_up + i, width - i, 0);
			load(&b, gate_up + width + i, width - i, 0);
			load(&dh, h + i, width - i, 0);
			vector_sigmoid(&s, &a);
			vector silu = a * s, forward = silu * b;
			vector da = dh * b * (s + silu * (1.0f - s)), db = dh * silu;
			store(h + i, &forward, width - i);
			store(gate_up + i, &da, width - i);
			store(gate_up + width + i, &db, width - i);
		}
	}
}
void swiglu_backward(float *h, float *gate_up, size_t rows, size_t width)
{
	swiglu_rows_backward(h, gate_up, rows, width);
}

/* ---- Rotary embedding ---- */

INLINE void rope_head(float *restrict a, float *restrict b, const float *restrict cosine, const float *restrict sine,
		      size_t half, float direction)
{
	for (size_t i = 0; i < half; i++) {
		float s = sine[i] * direction;
		float turned = a[i] * cosine[i] - b[i] * s;
		b[i] = b[i] * cosine[i] + a[i] * s;
		a[i] = turned;
	}
}

CLONED static void rope_rows(struct matrix x, const float *cosine, const float *sine, size_t rows, size_t head_count,
			     size_t half, float direction)
{
	for (size_t r = 0; r < rows; r++) {
		for (size_t h = 0; h < head_count; h++) {
			float *head = x.data + r * x.stride + h * 2 * half;
			rope_head(head, head + half, cosine + r * half, sine + r * half, half, direction);
		}
	}
}
void rope(struct matrix x, const float *cosine, const float *sine, size_t rows, size_t head_count, size_t half,
	  float direction)
{
	rope_rows(x, cosine, sine, rows, head_count, half, direction);
}

/* ---- Optimiser ---- */

CLONED static void update_all(float *restrict theta, float *restrict m, float *restrict v,
			      const float *restrict gradient, size_t count, const struct adamw_update *update)
{
	const struct adamw_update u = *update;
	for (size_t i = 0; i < count; i++) {
		float g = gradient[i] * u.gradient_scale;
		m[i] = u.beta1 * m[i] + u.rest1 * g;
		v[i] = u.beta2 * v[i] + u.rest2 * g * g;
		theta[i] = theta[i] * u.decay - u.rate * m[i] / (sqrtf(v[i]) * u.root_bias + u.eps);
	}
}
void adamw_update(float *theta, float *m, float *v, const float *gradient, size_t count,
		  const struct adamw_update *update)
{
	update_all(theta, m, v, gradient, count, update);
}

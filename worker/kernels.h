#ifndef EDIT_WORKER_KERNELS_H
#define EDIT_WORKER_KERNELS_H

/* The arithmetic that the model is made of: matrix products (OpenBLAS, in kernels.c) and operations on rows
 * (kernels_rows.c). Everything is float32 and row-major; a matrix is given by its first element and, where it may be
 * a part of a wider one, the stride: elements from one row to the next. Nothing is allocated, no state is kept but
 * the number of threads.
 *
 * Sums over a row are made in 16 lanes and then folded in a fixed order, whatever the instruction set. */

#include "core/base.h"

/* ---- Matrix products ---- */

/* Threads for matrix products; at least 1. OpenBLAS begins with as many as the host has cores: set this at start. */
void kernels_set_threads(unsigned count);

/* A part of a matrix: row r begins at data + r x stride. */
struct matrix {
	float *data;
	size_t stride;
};
struct const_matrix {
	const float *data;
	size_t stride;
};

/* c[m,n] = alpha x a[m,k] b[n,k]^T + beta x c. beta 0: c is not read. */
void matmul_nt(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float alpha,
	       float beta);
/* c[m,n] = a[m,k] b[k,n] + beta x c */
void matmul_nn(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float beta);
/* c[m,n] = a[k,m]^T b[k,n] + beta x c */
void matmul_tn(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float beta);

static inline struct matrix matrix(float *data, size_t stride) { return (struct matrix){data, stride}; }
static inline struct const_matrix const_matrix(const float *data, size_t stride)
{
	return (struct const_matrix){data, stride};
}

/* ---- Rows. Arrays of one call overlap only where it says "in place". ---- */

/* x[i] = e^x[i], within 2 units in the last place for x in [-87.3, 88.3]; below, at most 1.3e-38; above, clamped to
 * e^88.3; NaN stays NaN. */
void row_exp(float *x, size_t count);

/* y[r] . x[r] */
float row_dot(const float *x, const float *y, size_t count);

/* y[i] += x[i] */
void row_add(float *y, const float *x, size_t count);

/* x[i] *= factor */
void row_scale(float *x, float factor, size_t count);

/* In place: x[0, valid) = exp(x - max), x[valid, count) = 0. ret_sum: sum of the exponentials. Returns log(sum of
 * e^x), the row's log-sum-exp. 1 <= valid <= count. */
float row_softmax(float *x, size_t valid, size_t count, float *ret_sum);

/* In place: x[0, valid) = exp(x - log_sum), x[valid, count) = 0: the same softmax again, normalised. */
void row_softmax_again(float *x, float log_sum, size_t valid, size_t count);

/* In place: g[i] = p[i] (g[i] - mean) scale: gradient of softmax, where mean is the sum of p g. */
void row_softmax_backward(float *g, const float *p, float mean, float scale, size_t count);

/* Cross-entropy of one row of logits against target, in nats. With scale != 0, in place: logits = scale x gradient
 * of the loss; with 0 their content is lost. */
double row_cross_entropy(float *logits, size_t vocab_size, uint32_t target, float scale);

/* ---- Blocks of rows ---- */

/* y[r,i] = x[r,i] rstd[r] w[i], rstd[r] = 1 / sqrt(mean of x[r]^2 + eps). x, y: [rows, width]. Writes rstd. */
void rms_norm(float *y, float *ret_rstd, const float *x, const float *w, size_t rows, size_t width, double eps);
/* The same with rstd known. */
void rms_norm_again(float *y, const float *rstd, const float *x, const float *w, size_t rows, size_t width);
/* dx[rows,width] += gradient to x, dw[width] += gradient to w, given dy. */
void rms_norm_backward(float *dx, float *dw, const float *dy, const float *rstd, const float *x, const float *w,
		       size_t rows, size_t width);

/* h[r,i] = silu(gate) x up; gate_up: [rows, 2 width], of each row first all gates, then all ups. */
void swiglu(float *h, const float *gate_up, size_t rows, size_t width);
/* In place: given dh in h, writes the gradient to gate_up over gate_up, and the forward's h over h. */
void swiglu_backward(float *h, float *gate_up, size_t rows, size_t width);

/* Rotates in place the first head_count heads of each row: pairs (i, i + half) by the angle of cos and sin, [rows,
 * half]; x: [rows] with stride. direction 1: forward, -1: back. */
void rope(struct matrix x, const float *cos, const float *sin, size_t rows, size_t head_count, size_t half,
	  float direction);

/* ---- Optimiser ---- */

/* Coefficients of one AdamW update; formula in worker/adamw.h. */
struct adamw_update {
	float gradient_scale;
	float decay; /* 1 - rate x weight_decay */
	float beta1, beta2, rest1, rest2; /* rest: 1 - beta */
	float rate;      /* rate / (1 - beta1^t) */
	float root_bias; /* 1 / sqrt(1 - beta2^t) */
	float eps;
};

/* One update of theta, m and v [count] from gradient. */
void adamw_update(float *theta, float *m, float *v, const float *gradient, size_t count,
		  const struct adamw_update *update);

#endif

/* Matrix products by OpenBLAS: the only file that knows it. */

#include "worker/kernels.h"

#include <cblas.h>

void kernels_set_threads(unsigned count)
{
	CHECK(count >= 1);
	openblas_set_num_threads((int)count);
}

void matmul_nt(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float alpha,
	       float beta)
{
	if (m == 1) { /* generation: reading b once is all there is to do, and sgemm would copy it first */
		cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)n, (int)k, alpha, b.data, (int)b.stride, a.data, 1, beta,
			    c.data, 1);
		return;
	}
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, alpha, a.data, (int)a.stride,
		    b.data, (int)b.stride, beta, c.data, (int)c.stride);
}

void matmul_nn(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float beta)
{
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, a.data, (int)a.stride,
		    b.data, (int)b.stride, beta, c.data, (int)c.stride);
}

void matmul_tn(struct matrix c, struct const_matrix a, struct const_matrix b, size_t m, size_t n, size_t k, float beta)
{
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, a.data, (int)a.stride,
		    b.data, (int)b.stride, beta, c.data, (int)c.stride);
}

// Tensor cores as a program of the runtime uses them: the C++ interface (wmma) for every type, and mma.sync with
// fragments that the program loads itself, as the PTX ISA lays them out, or with ldmatrix.
#include "check.h"
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

/* One warp, one tile: D = A B + C. LA and LB are the layouts in memory. */
template <int M, int N, int K, typename F, typename T, typename S, typename LA, typename LB>
__global__ void tile(const T *a, const T *b, const S *c, S *d)
{
	wmma::fragment<wmma::matrix_a, M, N, K, F, LA> fa;
	wmma::fragment<wmma::matrix_b, M, N, K, F, LB> fb;
	wmma::fragment<wmma::accumulator, M, N, K, S> fc;
	bool a_rows = std::is_same<LA, wmma::row_major>::value, b_rows = std::is_same<LB, wmma::row_major>::value;

	wmma::load_matrix_sync(fa, a, a_rows ? K : M);
	wmma::load_matrix_sync(fb, b, b_rows ? N : K);
	wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
	if constexpr (std::is_same<F, wmma::precision::tf32>::value) {
		for (int i = 0; i < fa.num_elements; i++)
			fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
		for (int i = 0; i < fb.num_elements; i++)
			fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
	}
	wmma::mma_sync(fc, fa, fb, fc);
	for (int i = 0; i < fc.num_elements; i++)
		fc.x[i] = fc.x[i] + fc.x[i]; /* element by element, wherever they are */
	wmma::store_matrix_sync(d, fc, N, wmma::mem_row_major);
}

template <typename T> static double number(T v)
{
	return (double)(float)v;
}
template <> double number(double v)
{
	return v;
}
template <typename T> static T from(int v)
{
	return T((float)v);
}

template <int M, int N, int K, typename F, typename T, typename S, typename LA, typename LB> static void test_tile()
{
	bool a_rows = std::is_same<LA, wmma::row_major>::value, b_rows = std::is_same<LB, wmma::row_major>::value;
	T *a, *b;
	S *c, *d;

	OK(cudaMallocManaged(&a, M * K * sizeof(T)));
	OK(cudaMallocManaged(&b, K * N * sizeof(T)));
	OK(cudaMallocManaged(&c, M * N * sizeof(S)));
	OK(cudaMallocManaged(&d, M * N * sizeof(S)));
	for (int i = 0; i < M * K; i++)
		a[i] = from<T>(i * 7 % 11);
	for (int i = 0; i < K * N; i++)
		b[i] = from<T>(i * 5 % 7);
	for (int i = 0; i < M * N; i++)
		c[i] = from<S>(i % 13 - 6);
	tile<M, N, K, F, T, S, LA, LB><<<1, 32>>>(a, b, c, d);
	OK(cudaDeviceSynchronize());
	for (int row = 0; row < M; row++)
		for (int column = 0; column < N; column++) {
			double sum = number(c[row * N + column]);
			for (int k = 0; k < K; k++)
				sum += number(a[a_rows ? row * K + k : k * M + row]) *
				       number(b[b_rows ? k * N + column : column * K + k]);
			WANT(number(d[row * N + column]) == (double)(2 * sum));
		}
	OK(cudaFree(a));
	OK(cudaFree(b));
	OK(cudaFree(c));
	OK(cudaFree(d));
}

template <int M, int N, int K, typename F, typename T, typename S> static void test_layouts()
{
	test_tile<M, N, K, F, T, S, wmma::row_major, wmma::col_major>();
	test_tile<M, N, K, F, T, S, wmma::col_major, wmma::row_major>();
}

/* A by rows from shared memory with ldmatrix, B with its transposed form, D where the PTX ISA says. */
__global__ void half_mma(const __half *a, const __half *b, float *d)
{
	__shared__ __align__(16) __half sa[16 * 16], sb[16 * 8];
	int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
	uint32_t fa[4], fb[2];
	float c[4] = { 1, 2, 3, 4 };

	for (int i = lane; i < 256; i += 32)
		sa[i] = a[i];
	for (int i = lane; i < 128; i += 32)
		sb[i] = b[i];
	__syncwarp();
	uint32_t at = (uint32_t)__cvta_generic_to_shared(&sa[lane % 16 * 16 + lane / 16 * 8]);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
		     : "r"(at));
	at = (uint32_t)__cvta_generic_to_shared(&sb[lane % 16 * 8]);
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
		     : "=r"(fb[0]), "=r"(fb[1])
		     : "r"(at));
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
		     "{%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
	d[group * 8 + pair] = c[0] - 1;
	d[group * 8 + pair + 1] = c[1] - 2;
	d[(group + 8) * 8 + pair] = c[2] - 3;
	d[(group + 8) * 8 + pair + 1] = c[3] - 4;
}

/* Bytes, k 32: fragments by hand. */
__global__ void byte_mma(const int8_t *a, const uint8_t *b, int *d)
{
	int lane = threadIdx.x, group = lane / 4, t = lane % 4;
	uint32_t fa[4], fb[2];
	int c[4] = { 0, 0, 0, 0 };

	for (int r = 0; r < 4; r++)
		for (int e = 0; e < 4; e++)
			((int8_t *)&fa[r])[e] = a[(group + 8 * (r & 1)) * 32 + (r / 2) * 16 + t * 4 + e];
	for (int r = 0; r < 2; r++)
		for (int e = 0; e < 4; e++)
			((uint8_t *)&fb[r])[e] = b[(r * 16 + t * 4 + e) * 8 + group];
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
		     "{%8, %9}, {%0, %1, %2, %3};"
		     : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
		     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
	for (int i = 0; i < 4; i++)
		d[(group + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];
}

static void test_half_mma()
{
	__half *a, *b;
	float *d;

	OK(cudaMallocManaged(&a, 256 * sizeof(*a)));
	OK(cudaMallocManaged(&b, 128 * sizeof(*b)));
	OK(cudaMallocManaged(&d, 128 * sizeof(*d)));
	for (int i = 0; i < 256; i++)
		a[i] = __half((float)(i * 13 % 17) - 8);
	for (int i = 0; i < 128; i++)
		b[i] = __half((float)(i * 11 % 19) / 4);
	half_mma<<<1, 32>>>(a, b, d);
	OK(cudaDeviceSynchronize());
	for (int row = 0; row < 16; row++)
		for (int column = 0; column < 8; column++) {
			float sum = 0;
			for (int k = 0; k < 16; k++)
				sum += (float)a[row * 16 + k] * (float)b[k * 8 + column];
			WANT(d[row * 8 + column] == sum);
		}
}

static void test_byte_mma()
{
	int8_t *a;
	uint8_t *b;
	int *d;

	OK(cudaMallocManaged(&a, 512));
	OK(cudaMallocManaged(&b, 256));
	OK(cudaMallocManaged(&d, 128 * sizeof(*d)));
	for (int i = 0; i < 512; i++)
		a[i] = (int8_t)(i * 37);
	for (int i = 0; i < 256; i++)
		b[i] = (uint8_t)(i * 29);
	byte_mma<<<1, 32>>>(a, b, d);
	OK(cudaDeviceSynchronize());
	for (int row = 0; row < 16; row++)
		for (int column = 0; column < 8; column++) {
			int sum = 0;
			for (int k = 0; k < 32; k++)
				sum += a[row * 32 + k] * b[k * 8 + column];
			WANT(d[row * 8 + column] == sum);
		}
}

int main()
{
	test_layouts<16, 16, 16, __half, __half, float>();
	test_layouts<32, 8, 16, __half, __half, float>();
	test_layouts<8, 32, 16, __half, __half, float>();
	test_layouts<16, 16, 16, __half, __half, __half>();
	test_layouts<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float>();
	test_layouts<32, 8, 16, __nv_bfloat16, __nv_bfloat16, float>();
	test_layouts<8, 32, 16, __nv_bfloat16, __nv_bfloat16, float>();
	test_layouts<16, 16, 8, wmma::precision::tf32, float, float>();
	test_layouts<16, 16, 16, signed char, signed char, int>();
	test_layouts<32, 8, 16, unsigned char, unsigned char, int>();
	test_layouts<8, 32, 16, signed char, signed char, int>();
	test_layouts<8, 8, 4, double, double, double>();
	test_half_mma();
	test_byte_mma();
	return 0;
}

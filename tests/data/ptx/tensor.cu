// Tensor cores and textures, as nvcc compiles them for compute_80: nvcc -ptx -arch=compute_80 -std=c++17 tensor.cu
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
using namespace nvcuda;

template <int M, int N, int K, typename F, typename T, typename S>
static __device__ void tile(const T *a, const T *b, S *d)
{
	wmma::fragment<wmma::matrix_a, M, N, K, F, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, M, N, K, F, wmma::col_major> fb;
	wmma::fragment<wmma::accumulator, M, N, K, S> fc;

	wmma::load_matrix_sync(fa, a, K);
	wmma::load_matrix_sync(fb, b, K);
	wmma::fill_fragment(fc, S(1));
	wmma::mma_sync(fc, fa, fb, fc);
	wmma::store_matrix_sync(d, fc, N, wmma::mem_row_major);
}
extern "C" __global__ void half_tile(const __half *a, const __half *b, float *d)
{
	tile<16, 16, 16, __half>(a, b, d);
}
extern "C" __global__ void tf32_tile(const float *a, const float *b, float *d)
{
	tile<16, 16, 8, wmma::precision::tf32>(a, b, d);
}
extern "C" __global__ void byte_tile(const signed char *a, const signed char *b, int *d)
{
	tile<32, 8, 16, signed char>(a, b, d);
}
extern "C" __global__ void double_tile(const double *a, const double *b, double *d)
{
	tile<8, 8, 4, double>(a, b, d);
}
/* A, B and D by rows; lanes arrive at the multiplication one half after the other. */
extern "C" __global__ void half_mma(const __half *a, const __half *b, float *d)
{
	__shared__ __align__(16) __half sa[16 * 16], sb[16 * 8];
	int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
	uint32_t fa[4], fb[2];
	float c[4] = { 0, 0, 0, 0 };

	for (int i = lane; i < 256; i += 32)
		sa[i] = a[i];
	for (int i = lane; i < 128; i += 32)
		sb[i] = b[i];
	__syncwarp();
	if (lane < 16)
		c[0] = c[1] = c[2] = c[3] = 1;
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
	d[group * 8 + pair] = c[0];
	d[group * 8 + pair + 1] = c[1];
	d[(group + 8) * 8 + pair] = c[2];
	d[(group + 8) * 8 + pair + 1] = c[3];
}
/* Texels doubled into a surface. */
extern "C" __global__ void doubled(cudaTextureObject_t texture, cudaSurfaceObject_t surface)
{
	int x = threadIdx.x % 8, y = threadIdx.x / 8;
	float v = tex2D<float>(texture, x + 0.5f, y + 0.5f);
	float old = surf2Dread<float>(surface, x * 4, y);

	surf2Dwrite(2 * v + old, surface, x * 4, y);
}

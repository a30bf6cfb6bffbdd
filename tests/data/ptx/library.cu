// What the toolkit's headers bring along: the math library in both precisions, cooperative groups, pipelines.
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <math.h>
namespace cg = cooperative_groups;

template <typename T> __device__ void functions(T v, T *out)
{
	out[0] = sin(v);
	out[1] = cos(v);
	out[2] = tan(v);
	out[3] = exp(v);
	out[4] = log(fabs(v));
	out[5] = pow(fabs(v), T(1.75));
	out[6] = sqrt(fabs(v));
	out[7] = cbrt(v);
	out[8] = atan2(v, T(2));
	out[9] = erf(v);
	out[10] = tgamma(fabs(v) + 1);
	out[11] = fmod(v, T(0.75));
	out[12] = asinh(v);
}

extern "C" __global__ void math_float(const float *x, float *out)
{
	functions(x[threadIdx.x], out + threadIdx.x * 13);
}

extern "C" __global__ void math_double(const double *x, double *out)
{
	functions(x[threadIdx.x], out + threadIdx.x * 13);
}

extern "C" __global__ void groups(int *d)
{
	cg::thread_block block = cg::this_thread_block();
	auto tile = cg::tiled_partition<8>(block);
	int v = d[block.thread_rank()];
	for (int k = 4; k; k >>= 1)
		v += tile.shfl_xor(v, k);
	block.sync();
	d[block.thread_rank()] = v;
	if (threadIdx.x % 3 == 0)
		d[block.thread_rank()] += 1000 * cg::coalesced_threads().size();
}

extern "C" __global__ void pipeline(const float4 *in, float4 *out)
{
	__shared__ float4 s[128];
	__pipeline_memcpy_async(&s[threadIdx.x], &in[threadIdx.x], 16);
	__pipeline_commit();
	__pipeline_wait_prior(0);
	__syncthreads();
	out[threadIdx.x] = s[127 - threadIdx.x];
}

// Every block must see all the others' work behind the grid's barrier.
extern "C" __global__ void grid_barrier(int *d)
{
	atomicAdd(d, 1);
	cg::this_grid().sync();
	if (threadIdx.x == 0)
		d[1 + blockIdx.x] = *(volatile int *)d;
}

// Blocks working together: reductions, scan, sorts, histogram, FFT, with shared memory, shuffles and atomics.
#include <stdint.h>

extern "C" __global__ void reduce_shared(int n, const int *in, int *out)
{
	__shared__ int s[256];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	s[threadIdx.x] = i < n ? in[i] : 0;
	__syncthreads();
	for (int step = blockDim.x / 2; step > 0; step /= 2) {
		if (threadIdx.x < step)
			s[threadIdx.x] += s[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		atomicAdd(out, s[0]);
}

extern "C" __global__ void reduce_shuffle(int n, const float *in, float *out)
{
	__shared__ float parts[32];
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	float v = i < n ? in[i] : 0.0f;
	for (int d = 16; d; d >>= 1)
		v += __shfl_down_sync(0xffffffff, v, d);
	if (lane == 0)
		parts[warp] = v;
	__syncthreads();
	if (warp == 0) {
		v = lane < blockDim.x / 32 ? parts[lane] : 0.0f;
		for (int d = 16; d; d >>= 1)
			v += __shfl_xor_sync(0xffffffff, v, d);
		if (lane == 0)
			out[blockIdx.x] = v;
	}
}

extern "C" __global__ void scan(int n, const int *in, int *out)
{
	extern __shared__ int temp[];
	int i = threadIdx.x;
	temp[i] = i < n ? in[i] : 0;
	__syncthreads();
	for (int d = 1; d < blockDim.x; d <<= 1) {
		int v = i >= d ? temp[i - d] : 0;
		__syncthreads();
		temp[i] += v;
		__syncthreads();
	}
	if (i < n)
		out[i] = temp[i];
}

extern "C" __global__ void scan_warp(const uint32_t *in, uint32_t *out)
{
	int lane = threadIdx.x & 31, i = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t v = in[i];
	for (int d = 1; d < 32; d <<= 1) {
		uint32_t up = __shfl_up_sync(0xffffffff, v, d);
		if (lane >= d)
			v += up;
	}
	out[i] = v;
}

extern "C" __global__ void bitonic(uint32_t *data)
{
	__shared__ uint32_t s[512];
	for (int i = threadIdx.x; i < 512; i += blockDim.x)
		s[i] = data[blockIdx.x * 512 + i];
	__syncthreads();
	for (int k = 2; k <= 512; k <<= 1)
		for (int j = k >> 1; j > 0; j >>= 1) {
			for (int i = threadIdx.x; i < 512; i += blockDim.x) {
				int other = i ^ j;
				if (other > i) {
					bool up = (i & k) == 0;
					uint32_t a = s[i], b = s[other];
					if ((a > b) == up) {
						s[i] = b;
						s[other] = a;
					}
				}
			}
			__syncthreads();
		}
	for (int i = threadIdx.x; i < 512; i += blockDim.x)
		data[blockIdx.x * 512 + i] = s[i];
}

// Merge sort by rank: every element finds its place in the other run.
extern "C" __global__ void merge_pass(int n, int width, const int *in, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	int run = i / width, start = run * width, other = (run ^ 1) * width;
	int lo = min(other, n), hi = min(other + width, n), v = in[i];
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		bool before = (run & 1) ? in[mid] <= v : in[mid] < v;
		if (before)
			lo = mid + 1;
		else
			hi = mid;
	}
	out[min(start, other) + (i - start) + (lo - min(other, n))] = v;
}

extern "C" __global__ void histogram(int n, const uint8_t *in, uint32_t *bins)
{
	__shared__ uint32_t local[256];
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		local[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&local[in[i]], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		if (local[i])
			atomicAdd(&bins[i], local[i]);
}

// Radix-2 FFT of 256 points in shared memory; twiddles come from a table.
extern "C" __global__ void fft(const float2 *twiddle, float2 *data)
{
	__shared__ float2 s[256];
	int t = threadIdx.x;
	for (int i = t; i < 256; i += blockDim.x)
		s[__brev(i) >> 24] = data[blockIdx.x * 256 + i];
	__syncthreads();
	for (int size = 2; size <= 256; size <<= 1) {
		int half = size / 2, pos = t & (half - 1), at = (t / half) * size + pos;
		float2 w = twiddle[pos * (256 / size)], a = s[at], b = s[at + half];
		float re = __fsub_rn(__fmul_rn(b.x, w.x), __fmul_rn(b.y, w.y));
		float im = __fadd_rn(__fmul_rn(b.x, w.y), __fmul_rn(b.y, w.x));
		__syncthreads();
		s[at] = make_float2(__fadd_rn(a.x, re), __fadd_rn(a.y, im));
		s[at + half] = make_float2(__fsub_rn(a.x, re), __fsub_rn(a.y, im));
		__syncthreads();
	}
	for (int i = t; i < 256; i += blockDim.x)
		data[blockIdx.x * 256 + i] = s[i];
}

// Votes, matches, reductions and elections of warps, some of them in divergent code.
extern "C" __global__ void warp_ops(const uint32_t *in, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
	uint32_t v = in[i], r = 0;
	r += __ballot_sync(0xffffffff, v & 1);
	r ^= __any_sync(0xffffffff, v == 7) ? 0x100 : 0;
	r ^= __all_sync(0xffffffff, v < 1000) ? 0x200 : 0;
	r += __match_any_sync(0xffffffff, v & 3);
	int all;
	r += __match_all_sync(0xffffffff, v >> 16, &all);
	r += all;
	r ^= __reduce_add_sync(0xffffffff, v);
	r += __reduce_max_sync(0xffffffff, (int)v) - __reduce_min_sync(0xffffffff, (int)v);
	r ^= __reduce_xor_sync(0xffffffff, v);
	if (lane < 12)
		r += __shfl_sync(0x00000fff, v, (lane + 5) % 12);
	else
		r ^= __ballot_sync(0xfffff000, v & 2);
	if (v & 4)
		r += __popc(__activemask());
	__syncwarp();
	r += __shfl_xor_sync(0xffffffff, r, 3, 8);
	out[i] = r;
}

extern "C" __global__ void barrier_votes(const int *in, int *out)
{
	int v = in[threadIdx.x];
	int count = __syncthreads_count(v > 5), every = __syncthreads_and(v > 0), some = __syncthreads_or(v == 42);
	out[threadIdx.x] = count * 4 + every * 2 + some;
}

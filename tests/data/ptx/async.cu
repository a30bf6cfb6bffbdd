// Asynchronous copies and barriers in shared memory, as libcu++, cooperative groups and pipelines use them.
// Made twice: async.ptx for compute_80 (mbarrier, cp.async), async_90.ptx for compute_90 (try_wait, bulk
// copies).
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void tokens(const int *in, int *out, int rounds)
{
	__shared__ barrier bar;
	__shared__ int s[256];
	if (threadIdx.x == 0)
		init(&bar, blockDim.x);
	__syncthreads();
	int sum = 0;
	for (int r = 0; r < rounds; r++) {
		s[threadIdx.x] = in[r * blockDim.x + threadIdx.x];
		barrier::arrival_token t = bar.arrive();
		sum += r;
		bar.wait(std::move(t));
		sum += s[(threadIdx.x + r + 1) % blockDim.x];
		bar.arrive_and_wait();
	}
	out[threadIdx.x] = sum;
}
extern "C" __global__ void copies(const int *in, int *out)
{
	__shared__ barrier bar;
	__shared__ alignas(16) int s[256];
	auto block = cg::this_thread_block();
	if (block.thread_rank() == 0)
		init(&bar, block.size());
	block.sync();
	cuda::memcpy_async(block, s, in, cuda::aligned_size_t<16>(sizeof(int) * 256), bar);
	bar.arrive_and_wait();
	out[threadIdx.x] = s[255 - threadIdx.x];
	block.sync();
	cuda::memcpy_async(s + threadIdx.x, in + 256 + threadIdx.x, cuda::aligned_size_t<4>(4), bar);
	bar.arrive_and_wait();
	out[256 + threadIdx.x] = s[(threadIdx.x * 7) % 256];
}
extern "C" __global__ void pipes(const int *in, int *out, int rounds)
{
	__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
	__shared__ alignas(16) int s[2][128];
	auto block = cg::this_thread_block();
	auto pipe = cuda::make_pipeline(block, &state);
	int sum = 0;
	for (int r = 0, next = 0; r < rounds; r++) {
		for (; next < rounds && next < r + 2; next++) {
			pipe.producer_acquire();
			cuda::memcpy_async(block, s[next % 2], in + next * 128, cuda::aligned_size_t<16>(512),
					   pipe);
			pipe.producer_commit();
		}
		pipe.consumer_wait();
		sum += s[r % 2][(threadIdx.x + r) % 128];
		pipe.consumer_release();
	}
	out[threadIdx.x] = sum;
}
extern "C" __global__ void roles(const int *in, int *out, int rounds)
{
	__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
	__shared__ int s[2][64];
	auto block = cg::this_thread_block();
	auto pipe = cuda::make_pipeline(block, &state,
					block.thread_rank() < 64 ? cuda::pipeline_role::producer
								 : cuda::pipeline_role::consumer);
	int sum = 0;
	for (int r = 0; r < rounds; r++) {
		if (block.thread_rank() < 64) {
			pipe.producer_acquire();
			cuda::memcpy_async(&s[r % 2][threadIdx.x], in + r * 64 + threadIdx.x, sizeof(int),
					   pipe);
			pipe.producer_commit();
		} else {
			pipe.consumer_wait();
			sum += s[r % 2][(threadIdx.x + r) % 64];
			pipe.consumer_release();
		}
	}
	if (block.thread_rank() >= 64)
		out[threadIdx.x - 64] = sum;
}
extern "C" __global__ void drops(int *out)
{
	__shared__ barrier bar;
	__shared__ int n;
	if (threadIdx.x == 0) {
		init(&bar, blockDim.x);
		n = 0;
	}
	__syncthreads();
	if (threadIdx.x % 4 == 3) {
		atomicAdd(&n, 1);
		bar.arrive_and_drop();
		return;
	}
	bar.arrive_and_wait();
	atomicAdd(&n, 1);
	bar.arrive_and_wait();
	out[threadIdx.x] = n;
}
extern "C" __global__ void big_tiles(const int *in, int *out)
{
	__shared__ cg::block_tile_memory<256> memory;
	auto block = cg::this_thread_block(memory);
	auto tile = cg::tiled_partition<64>(block);
	out[threadIdx.x] = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
	tile.sync();
	out[256 + threadIdx.x] = tile.shfl(in[threadIdx.x], 5);
}
extern "C" __global__ void big_tiles_reserved(const int *in, int *out)
{
	auto block = cg::this_thread_block();
	auto tile = cg::tiled_partition<64>(block);
	out[threadIdx.x] = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
	out[256 + threadIdx.x] = tile.any(in[threadIdx.x] % 50 == 0);
}

// Several groups of one warp in the same instruction at once: every warp instruction with a member mask.
// Each kernel writes one row of 32 results for each of its steps.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

// The member mask of the lane's group: lanes with the same label.
static __device__ unsigned members_of(const unsigned *label, unsigned lane)
{
	unsigned mask = 0;
	for (unsigned i = 0; i < 32; i++)
		mask |= (label[i] == label[lane]) << i;
	return mask;
}

extern "C" __global__ void votes(const unsigned *label, const unsigned *value, unsigned *out)
{
	unsigned lane = threadIdx.x, mask = members_of(label, lane), v = value[lane];
	out[lane] = __ballot_sync(mask, v & 1);
	out[32 + lane] = __any_sync(mask, v % 7 == 0);
	out[64 + lane] = __all_sync(mask, v % 3 != 0);
	out[96 + lane] = __uni_sync(mask, v & 4);
}

extern "C" __global__ void matches(const unsigned *label, const unsigned *value, unsigned *out)
{
	unsigned lane = threadIdx.x, mask = members_of(label, lane), v = value[lane];
	int same = -1, wide = -1;
	out[lane] = __match_any_sync(mask, v % 4);
	out[32 + lane] = __match_any_sync(mask, (unsigned long long)(v % 4) << 32);
	out[64 + lane] = __match_all_sync(mask, v % 2, &same);
	out[96 + lane] = same;
	out[128 + lane] = __match_all_sync(mask, (unsigned long long)label[lane] << 32, &wide);
	out[160 + lane] = wide;
}

extern "C" __global__ void reductions(const unsigned *label, const unsigned *value, unsigned *out)
{
	unsigned lane = threadIdx.x, mask = members_of(label, lane), v = value[lane];
	out[lane] = __reduce_add_sync(mask, v);
	out[32 + lane] = __reduce_min_sync(mask, v);
	out[64 + lane] = __reduce_max_sync(mask, (int)v);
	out[96 + lane] = __reduce_and_sync(mask, v | 0xf0f);
	out[128 + lane] = __reduce_or_sync(mask, v & 0xff);
	out[160 + lane] = __reduce_xor_sync(mask, v);
}

// The first member's value, by a shuffle under the group's own mask.
extern "C" __global__ void shuffles(const unsigned *label, const unsigned *value, unsigned *out)
{
	unsigned lane = threadIdx.x, mask = members_of(label, lane), v = value[lane];
	unsigned next = mask & (0xfffffffeu << lane);
	out[lane] = __shfl_sync(mask, v, __ffs(mask) - 1);
	out[32 + lane] = __shfl_sync(mask, v, next ? __ffs(next) - 1 : __ffs(mask) - 1);
}

// Every group writes, synchronises under its own mask, and reads what its members wrote. Groups come at different times.
extern "C" __global__ void synchronised(const unsigned *label, const unsigned *value, unsigned *out)
{
	volatile __shared__ unsigned s[32];
	unsigned lane = threadIdx.x, mask = members_of(label, lane), sum = 0;
	for (unsigned i = 0; i < label[lane] % 5 + lane % 3; i++)
		sum += value[(lane + i) % 32];
	s[lane] = sum + value[lane];
	__syncwarp(mask);
	sum = 0;
	for (unsigned i = 0; i < 32; i++)
		sum += mask >> i & 1 ? s[i] : 0;
	out[lane] = sum;
}

// Groups in a loop that they leave at different times: a group must not wait for the lanes of another.
extern "C" __global__ void loops(const unsigned *label, const unsigned *value, unsigned *out)
{
	unsigned lane = threadIdx.x, mask = members_of(label, lane), v = value[lane], sum = 0;
	for (unsigned i = 0; i <= label[lane]; i++) {
		if (v >> i & 1)
			sum += i * lane;
		sum += __ballot_sync(mask, v >> i & 1);
		sum = __reduce_add_sync(mask, sum);
	}
	out[lane] = sum;
}

extern "C" __global__ void tiles(const unsigned *value, unsigned *out)
{
	auto tile = cg::tiled_partition<8>(cg::this_thread_block());
	unsigned lane = threadIdx.x, v = value[lane];
	out[lane] = tile.ballot(v & 1);
	out[32 + lane] = tile.any(v % 7 == 0);
	out[64 + lane] = tile.all(v % 3 != 0);
	out[96 + lane] = tile.match_any(v % 4);
	out[128 + lane] = cg::reduce(tile, v, cg::plus<unsigned>());
	out[160 + lane] = tile.shfl_xor(v, 3);
	out[192 + lane] = cg::inclusive_scan(tile, v % 100);
}

extern "C" __global__ void labeled(const unsigned *label, const unsigned *value, unsigned *out)
{
	auto warp = cg::tiled_partition<32>(cg::this_thread_block());
	auto group = cg::labeled_partition(warp, label[threadIdx.x]);
	unsigned lane = threadIdx.x, v = value[lane];
	out[lane] = cg::reduce(group, v, cg::plus<unsigned>());
	out[32 + lane] = cg::reduce(group, (int)v, cg::greater<int>());
	out[64 + lane] = group.size() * 100 + group.thread_rank();
	out[96 + lane] = group.shfl(v, 0);
	auto half = cg::binary_partition(warp, v & 1);
	out[128 + lane] = cg::reduce(half, v, cg::bit_xor<unsigned>());
}

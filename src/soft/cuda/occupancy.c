/* cuOccupancy*. */
#include "soft/cuda/occupancy.h"
#include "soft/cuda/module.h"

enum {
	SM_THREADS = 2048,
	SM_BLOCKS = 32,
	SM_REGISTERS = 65536,
	SM_SHARED_BYTES = 228 << 10,
	BLOCK_SHARED_BYTES = 1 << 10, /* reserved for each block */
	SHARED_ROUND = 128,
};

static uint64_t min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint32_t occupancy_blocks(const struct occupancy *kernel, uint64_t threads, uint64_t dynamic_shared_bytes)
{
	uint64_t warps = (threads + 31) / 32, registers, shared, blocks;

	/* The limit of threads is that of the GPU, not that of the kernel, as in the real library. */
	if (!threads || threads > PTX_THREADS_MAX || dynamic_shared_bytes > kernel->max_dynamic_shared_bytes)
		return 0;
	registers = warps * (((uint64_t)kernel->registers * 32 + 255) / 256 * 256);
	shared = kernel->shared_bytes + dynamic_shared_bytes;
	shared = (shared + SHARED_ROUND - 1) / SHARED_ROUND * SHARED_ROUND + BLOCK_SHARED_BYTES;
	blocks = min(SM_BLOCKS, SM_THREADS / (warps * 32));
	blocks = min(blocks, SM_SHARED_BYTES / shared);
	return (uint32_t)(registers ? min(blocks, SM_REGISTERS / registers) : blocks);
}

uint64_t occupancy_shared(const struct occupancy *kernel, uint64_t blocks, uint64_t threads)
{
	uint64_t each;

	if (!blocks || blocks > occupancy_blocks(kernel, threads, 0))
		return UINT64_MAX;
	each = (SM_SHARED_BYTES / blocks - BLOCK_SHARED_BYTES) / SHARED_ROUND * SHARED_ROUND;
	return min(min(each, PTX_SHARED_MAX_BYTES) - kernel->shared_bytes, kernel->max_dynamic_shared_bytes);
}

static CUresult find(CUfunction handle, struct occupancy *kernel, uint32_t *sm_count)
{
	struct function *function;
	struct context *context;
	CUresult result = function_find(handle, &function);

	if (!result)
		result = context_current(&context);
	if (result)
		return result;
	*kernel = (struct occupancy){ .registers = function->kernel->register_count,
				      .shared_bytes = function->kernel->shared_bytes,
				      .max_threads = function->kernel->max_threads,
				      .max_dynamic_shared_bytes = function->max_dynamic_shared_bytes };
	*sm_count = context->gpu->shape.sm_count;
	if (context->sms) {
		*sm_count = 0;
		for (unsigned i = 0; i < SOFT_SMS_MAX / 64; i++)
			*sm_count += (uint32_t)__builtin_popcountll(context->sms[i]);
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, CUfunction function,
								     int threads, size_t shared_bytes,
								     unsigned int flags)
{
	struct occupancy kernel;
	uint32_t sm_count;
	CUresult result;

	ENTER();
	if (!count || threads <= 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = find(function, &kernel, &sm_count);
	if (!result)
		*count = (int)occupancy_blocks(&kernel, (uint64_t)threads, shared_bytes);
	LEAVE(result);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int threads,
							    size_t shared_bytes)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, shared_bytes,
								    0);
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
							int threads)
{
	struct occupancy kernel;
	uint32_t sm_count;
	uint64_t fit = 0;
	CUresult result;

	ENTER();
	if (!bytes || blocks <= 0 || threads <= 0)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	result = find(function, &kernel, &sm_count);
	if (!result)
		fit = occupancy_shared(&kernel, (uint64_t)blocks, (uint64_t)threads);
	if (!result && fit == UINT64_MAX)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*bytes = fit;
	LEAVE(result);
}

struct choice {
	uint32_t threads, blocks;
};

/* The block size with the most threads per SM; of equals the largest. shared_bytes_of is a callback of the
 * program. */
static struct choice choose(const struct occupancy *kernel, CUoccupancyB2DSize shared_bytes_of,
			    size_t shared_bytes, uint32_t limit)
{
	struct choice best = { 0, 0 };
	uint32_t most = kernel->max_threads;

	if (limit && limit < most)
		most = limit;
	for (uint32_t threads = most; threads; threads = (threads - 1) / 32 * 32) {
		size_t shared = shared_bytes_of ? shared_bytes_of((int)threads) : shared_bytes;
		uint32_t blocks = occupancy_blocks(kernel, threads, shared);

		if (threads * blocks > best.threads * best.blocks)
			best = (struct choice){ threads, blocks };
	}
	return best;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction function,
							  CUoccupancyB2DSize shared_bytes_of,
							  size_t shared_bytes, int limit, unsigned int flags)
{
	struct occupancy kernel = { 0 };
	struct choice best;
	uint32_t sm_count = 0;
	CUresult result;

	if (!grid || !threads || limit < 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
		return CUDA_ERROR_INVALID_VALUE;
	ENTER();
	result = api_leave(find(function, &kernel, &sm_count)); /* the callback runs without the lock */
	if (result)
		return result;
	best = choose(&kernel, shared_bytes_of, shared_bytes, (uint32_t)limit);
	if (!best.blocks)
		return CUDA_ERROR_INVALID_VALUE;
	*grid = (int)(best.blocks * sm_count);
	*threads = (int)best.threads;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction function,
						 CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes,
						 int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, function, shared_bytes_of,
							 shared_bytes, limit, 0);
}

/* cuda: how many blocks an SM holds, and that the GPU holds as many. */
#include "check.h"

/* `small` needs nothing but threads, `wide` 20000 bytes of shared memory. */
static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			   ".visible .entry small() { ret; }\n"
			   ".visible .entry wide() .maxntid 256, 1, 1\n"
			   "{ .shared .align 4 .b8 room[20000]; ret; }\n";

static CUfunction small, wide;

static void load(void)
{
	if (small)
		return;
	check_context();
	small = check_function(text, "small");
	wide = check_function(text, "wide");
}

static int blocks(CUfunction function, int threads, size_t shared_bytes)
{
	int count = -1;

	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, threads, shared_bytes));
	return count;
}

static void threads_limit_blocks(void)
{
	load();
	CHECK_EQUAL(blocks(small, 1024, 0), 2);
	CHECK_EQUAL(blocks(small, 1000, 0), 2);
	CHECK_EQUAL(blocks(small, 129, 0), 12);
	CHECK_EQUAL(blocks(small, 1, 0), 32);
	CHECK_EQUAL(blocks(wide, 512, 0), 4);
	CHECK_EQUAL(blocks(small, 1025, 0), 0);
}

static void shared_memory_limits_blocks(void)
{
	load();
	CHECK_EQUAL(blocks(wide, 32, 0), (228 << 10) / (20096 + 1024));
	CHECK_EQUAL(blocks(small, 32, 48 << 10), 4);
	CHECK_EQUAL(blocks(small, 32, (48 << 10) + 1), 0); /* more must be asked for */
	CU(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	CHECK_EQUAL(blocks(small, 32, 227 << 10), 1);
	CHECK_EQUAL(blocks(small, 32, (227 << 10) + 1), 0);
	CHECK_EQUAL(blocks(small, 32, SIZE_MAX), 0);
}

static void what_is_left_of_shared_memory_really_fits(void)
{
	load();
	CU(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	for (int count = 1; count <= 32; count++) {
		size_t bytes;

		CU(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, small, count, 64));
		CHECK(blocks(small, 64, bytes) >= count);
		CHECK(blocks(small, 64, bytes + 1) < count);
	}
}

static size_t by_threads(int threads)
{
	return (size_t)threads * 512;
}

static void the_best_block_size_is_found(void)
{
	int grid, threads, sms;

	load();
	CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	CU(cuOccupancyMaxPotentialBlockSize(&grid, &threads, small, NULL, 0, 0));
	CHECK_EQUAL(threads, 1024);
	CHECK_EQUAL(grid, 2 * sms);
	CU(cuOccupancyMaxPotentialBlockSize(&grid, &threads, small, NULL, 0, 200));
	CHECK(threads <= 200);
	CU(cuOccupancyMaxPotentialBlockSize(&grid, &threads, small, by_threads, 0, 0));
	CHECK(blocks(small, threads, by_threads(threads)) > 0);
	CHECK_EQUAL(grid, blocks(small, threads, by_threads(threads)) * sms);
}

static void wrong_arguments_are_refused(void)
{
	int count;
	size_t bytes;

	load();
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, small, 32, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, small, 0, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&count, small, 32, 0, 2));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, NULL, 32, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, small, 33, 64));
}

TESTS(TEST(threads_limit_blocks), TEST(shared_memory_limits_blocks),
      TEST(what_is_left_of_shared_memory_really_fits), TEST(the_best_block_size_is_found),
      TEST(wrong_arguments_are_refused))

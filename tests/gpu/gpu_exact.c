/* SPDX-License-Identifier: MIT */
/* the_limit_is_exact: 2 MiB blocks until one is refused; then less than a block is free, one more is
 * refused with the ordinary error, freeing one makes room for exactly one, and the context still works.
 * Run under a small limit: `--limit BYTES` also checks what the program is told. `--elements N`: kernels have N threads; with a
 * sanitizer the software GPU is slow. */
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

/* More blocks than a small vGPU holds: a program that reaches it has no limit. */
enum { BLOCKS_MAX = 16384 };

static uint64_t blocks[BLOCKS_MAX];
static const struct cu_allocation_prop prop = {
	.type = CU_ALLOCATION_PINNED,
	.location = { CU_LOCATION_DEVICE, 0 },
};

static size_t free_bytes(void)
{
	size_t left, total;

	CU_MUST(cu.MemGetInfo(&left, &total));
	return left;
}

static unsigned fill(size_t block_bytes)
{
	unsigned count = 0;
	int result = CU_SUCCESS;

	while (count < BLOCKS_MAX) {
		result = cu.MemCreate(&blocks[count], block_bytes, &prop, 0);
		if (result)
			break;
		count++;
	}
	if (count == BLOCKS_MAX)
		fail("%u blocks were given: nothing limits this program", count);
	if (result != CU_ERROR_OUT_OF_MEMORY)
		fail("block %u: %s instead of out of memory", count, cu_error(result));
	if (!count)
		fail("not one block fits: the limit is too small for this test");
	return count;
}

static void check_one_for_one(unsigned last, size_t block_bytes)
{
	uint64_t extra;
	int result;

	result = cu.MemCreate(&extra, block_bytes, &prop, 0);
	if (result != CU_ERROR_OUT_OF_MEMORY)
		fail("one more at the limit: %s instead of out of memory", cu_error(result));
	CU_MUST(cu.MemRelease(blocks[last]));
	CU_MUST(cu.MemCreate(&blocks[last], block_bytes, &prop, 0));
	result = cu.MemCreate(&extra, block_bytes, &prop, 0);
	if (result != CU_ERROR_OUT_OF_MEMORY)
		fail("freeing one block made room for two: %s", cu_error(result));
}

int main(int argc, char **argv)
{
	uint64_t limit = option_number(argc, argv, "limit", 0);
	uint64_t elements = option_number(argc, argv, "elements", 1 << 20);
	size_t block_bytes, left, total;
	unsigned count;

	cu_open();
	/* first use of a kernel and of copies takes memory of the driver's own: get that out of the way */
	if (saxpy_check((unsigned)elements / 16))
		return 1;
	CU_MUST(cu.MemGetAllocationGranularity(&block_bytes, &prop, CU_GRANULARITY_MINIMUM));
	CU_MUST(cu.MemGetInfo(&left, &total));
	if (limit && total != limit)
		fail("told a total of %zu bytes, the limit is %llu", total, (unsigned long long)limit);
	count = fill(block_bytes);
	left = free_bytes();
	if (left >= block_bytes)
		fail("refused with %zu bytes free", left);
	check_one_for_one(count - 1, block_bytes);
	for (unsigned i = 0; i < count; i++)
		CU_MUST(cu.MemRelease(blocks[i]));
	if (free_bytes() < left + (size_t)count * block_bytes)
		fail("%u blocks freed, %zu bytes free", count, free_bytes());
	if (saxpy_check((unsigned)elements))
		return 1;
	printf("ok: %u blocks of %zu KiB, %zu KiB left, total %zu MiB\n", count, block_bytes >> 10,
	       left >> 10, total >> 20);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* managed_memory_is_bounded: within the limit it works, over it the program gets an error (libcuda makes it
 * CUDA_ERROR_UNKNOWN, whatever the reason given), freed room can be used again. Asks for no more than twice the limit and refuses to run where that is much:
 * more managed memory than the card has can hang a GPU. */
#include <stdio.h>
#include <string.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { TOTAL_MAX_GIB = 16 };

static void use(uint64_t ptr, size_t bytes)
{
	volatile unsigned char *host = (volatile unsigned char *)(uintptr_t)ptr;

	/* from the GPU, then from the CPU: both ends, so that pages really move */
	CU_MUST(cu.MemsetD8(ptr, 0x5a, MIB));
	CU_MUST(cu.MemsetD8(ptr + bytes - MIB, 0xa5, MIB));
	CU_MUST(cu.CtxSynchronize());
	if (host[0] != 0x5a || host[bytes - 1] != 0xa5)
		fail("managed memory reads %#x and %#x", host[0], host[bytes - 1]);
}

static void check_again(size_t bytes)
{
	uint64_t ptr;

	for (int i = 0; i < 8; i++) {
		CU_MUST(cu.MemAllocManaged(&ptr, bytes, CU_ATTACH_GLOBAL));
		use(ptr, bytes);
		CU_MUST(cu.MemFree(ptr));
	}
}

int main(int argc, char **argv)
{
	uint64_t limit = option_number(argc, argv, "limit", 0), ptr, over, device;
	size_t left, total, half;
	int result, refusal;

	cu_open();
	if (saxpy_check(1 << 16))
		return 1;
	CU_MUST(cu.MemGetInfo(&left, &total));
	if (limit && total != limit)
		fail("told a total of %zu bytes, the limit is %llu", total, (unsigned long long)limit);
	if (total >> 30 > TOTAL_MAX_GIB) {
		printf("skipped: run it under a limit of at most %d GiB\n", TOTAL_MAX_GIB);
		return 77;
	}
	half = left / 2 & ~(size_t)(2 * MIB - 1);
	CU_MUST(cu.MemAllocManaged(&ptr, half, CU_ATTACH_GLOBAL));
	use(ptr, half);
	refusal = cu.MemAllocManaged(&over, total, CU_ATTACH_GLOBAL);
	if (!refusal)
		fail("%zu MiB managed were given over a limit of %zu MiB", (total + half) >> 20, total >> 20);
	result = cu.MemAlloc(&device, half + half / 2);
	if (!result)
		fail("device memory was given past the limit that managed memory fills");
	use(ptr, half);
	CU_MUST(cu.MemFree(ptr));
	check_again(half);
	printf("ok: %zu MiB managed of %zu MiB; %zu MiB more: %s; %zu MiB of device memory: %s\n", half >> 20,
	       total >> 20, total >> 20, cu_error(refusal), (half + half / 2) >> 20, cu_error(result));
	return saxpy_check(1 << 16);
}

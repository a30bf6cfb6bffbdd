/* SPDX-License-Identifier: MIT */
/* Streams short kernels and prints the longest gaps between their starts on the GPU: what a hold, a stop or a
 * neighbour looks like from inside. `--secs 2 --us 50 --depth 64 --top 5` */
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { KERNELS_MAX = 1 << 20 };

struct gap {
	double ms;
	unsigned at;
};

static unsigned stream_kernels(uint64_t stamps, uint64_t secs, uint64_t kernel_ns, unsigned depth)
{
	void *kernel = cu_kernel(kernel_time, "tick"), *stream, *events[2];
	uint64_t end = now_ns() + secs * 1000000000ull, at;
	void *args[] = { &at, &kernel_ns };
	unsigned n = 0;

	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++)
		CU_MUST(cu.EventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	/* two half batches in turn: while one runs the other is queued, so the GPU never waits for the CPU */
	for (unsigned batch = 0; now_ns() < end && n + depth < KERNELS_MAX; batch++) {
		if (batch >= 2)
			CU_MUST(cu.EventSynchronize(events[batch & 1]));
		for (unsigned i = 0; i < depth / 2; i++) {
			at = stamps + 8ull * n++;
			CU_MUST(cu_launch(kernel, 1, 32, stream, args));
		}
		CU_MUST(cu.EventRecord(events[batch & 1], stream));
	}
	CU_MUST(cu.StreamSynchronize(stream));
	return n;
}

static int longer(const void *a, const void *b)
{
	double x = ((const struct gap *)a)->ms, y = ((const struct gap *)b)->ms;

	return (x < y) - (x > y);
}

int main(int argc, char **argv)
{
	uint64_t secs = option_number(argc, argv, "secs", 2), us = option_number(argc, argv, "us", 50);
	unsigned depth = (unsigned)option_number(argc, argv, "depth", 64);
	unsigned top = (unsigned)option_number(argc, argv, "top", 5), n;
	uint64_t stamps, *starts;
	struct gap *gaps;

	if (depth < 2 || depth > 4096)
		fail("--depth must be between 2 and 4096");
	cu_open();
	CU_MUST(cu.MemAlloc(&stamps, 8ull * KERNELS_MAX));
	n = stream_kernels(stamps, secs, us * 1000, depth);
	starts = calloc(n + 1, sizeof(*starts));
	gaps = calloc(n + 1, sizeof(*gaps));
	if (n < 2 || !starts || !gaps)
		fail("%u kernels ran", n);
	CU_MUST(cu.MemcpyDtoH(starts, stamps, 8ull * n));
	for (unsigned i = 1; i < n; i++)
		gaps[i - 1] = (struct gap){ (double)(int64_t)(starts[i] - starts[i - 1]) / 1e6, i };
	printf("%u kernels, mean period %.2f us\n", n, (double)(starts[n - 1] - starts[0]) / 1e3 / (n - 1));
	qsort(gaps, n - 1, sizeof(*gaps), longer);
	for (unsigned i = 0; i < top && i < n - 1; i++)
		printf("gap %8.3f ms at %9.3f ms\n", gaps[i].ms,
		       (double)(starts[gaps[i].at] - starts[0]) / 1e6);
	return 0;
}

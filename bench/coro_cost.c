/* SPDX-License-Identifier: MIT */
/* What the library in front of libcuda costs: a launch, a launch that is waited for, and a graph launch, in ns, as one line of
 * JSON. Medians of 15 rounds. */
#include <stdio.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { ROUNDS = 15, LAUNCHES = 400, WAITS = 200 };

static void *kernel, *stream;

static double launch_ns(void)
{
	double took[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		for (unsigned n = 0; n < LAUNCHES; n++)
			CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
		took[i] = (double)(now_ns() - start) / LAUNCHES;
		CU_MUST(cu.StreamSynchronize(stream));
	}
	return percentile(took, ROUNDS, 50);
}

static double wait_ns(void)
{
	double took[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		for (unsigned n = 0; n < WAITS; n++) {
			CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
			CU_MUST(cu.StreamSynchronize(stream));
		}
		took[i] = (double)(now_ns() - start) / WAITS;
	}
	return percentile(took, ROUNDS, 50);
}

int main(void)
{
	double launch, wait;

	cu_open();
	kernel = cu_kernel(kernel_time, "nop");
	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch_ns();
	launch = launch_ns();
	wait = wait_ns();
	printf("{\"launch_ns\":%.1f,\"launch_and_wait_ns\":%.1f}\n", launch, wait);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* cuda_graphs_run: a captured graph of 8 kernels, replayed `--replays` (1000) times, with a result that
 * depends on every replay and on their order. */
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { NODES = 8, COUNT = 1 << 16 };

static void *capture(void *stream, uint64_t at)
{
	void *kernel = cu_kernel(kernel_add, "add"), *graph, *exec;
	unsigned value, n = COUNT;
	void *args[] = { &at, &value, &n };

	CU_MUST(cu.StreamBeginCapture(stream, CU_CAPTURE_THREAD_LOCAL));
	for (value = 1; value <= NODES; value++)
		CU_MUST(cu_launch(kernel, COUNT / 256, 256, stream, args));
	CU_MUST(cu.StreamEndCapture(stream, &graph));
	CU_MUST(cu.GraphInstantiate(&exec, graph, 0));
	return exec;
}

int main(int argc, char **argv)
{
	uint64_t replays = option_number(argc, argv, "replays", 1000), at;
	uint32_t *result = malloc(COUNT * sizeof(*result)), right = 0;
	unsigned wrong = 0;
	void *stream, *exec;

	cu_open();
	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.MemAlloc(&at, COUNT * sizeof(*result)));
	CU_MUST(cu.MemsetD8(at, 0, COUNT * sizeof(*result)));
	CU_MUST(cu.CtxSynchronize());
	exec = capture(stream, at);
	for (uint64_t i = 0; i < replays; i++)
		CU_MUST(cu.GraphLaunch(exec, stream));
	CU_MUST(cu.StreamSynchronize(stream));
	CU_MUST(cu.MemcpyDtoH(result, at, COUNT * sizeof(*result)));
	for (uint64_t i = 0; i < replays; i++)
		for (uint32_t value = 1; value <= NODES; value++)
			right = right * 3 + value;
	for (unsigned i = 0; i < COUNT; i++)
		wrong += result[i] != right;
	printf("%s: %llu replays of %d kernels, %u of %d results wrong\n", wrong ? "FAILED" : "ok",
	       (unsigned long long)replays, NODES, wrong, COUNT);
	return wrong != 0;
}

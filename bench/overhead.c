/* SPDX-License-Identifier: MIT */
/* What a launch costs: launch and wait, launches back to back, a graph of 32 kernels. Medians of
 * `--repeats` (7). Prints one line of JSON; overhead.sh runs it natively and under Belfry in turn. */
#include <stdio.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { REPEATS_MAX = 50, NODES = 32, LAUNCHES = 4000, BACK_TO_BACK = 20000, REPLAYS = 500 };

struct bench {
	void *nop, *stream, *exec;
};

static void bench_open(struct bench *b)
{
	void *graph;

	cu_open();
	b->nop = cu_kernel(kernel_time, "nop");
	CU_MUST(cu.StreamCreate(&b->stream, CU_STREAM_NON_BLOCKING));
	CU_MUST(cu.StreamBeginCapture(b->stream, CU_CAPTURE_THREAD_LOCAL));
	for (int i = 0; i < NODES; i++)
		CU_MUST(cu_launch(b->nop, 1, 32, b->stream, NULL));
	CU_MUST(cu.StreamEndCapture(b->stream, &graph));
	CU_MUST(cu.GraphInstantiate(&b->exec, graph, 0));
}

static double launch_and_wait(struct bench *b)
{
	uint64_t start = now_ns();

	for (int i = 0; i < LAUNCHES; i++) {
		CU_MUST(cu_launch(b->nop, 1, 32, b->stream, NULL));
		CU_MUST(cu.StreamSynchronize(b->stream));
	}
	return (double)(now_ns() - start) / 1e3 / LAUNCHES;
}

static double back_to_back(struct bench *b)
{
	uint64_t start = now_ns();

	for (int i = 0; i < BACK_TO_BACK; i++)
		CU_MUST(cu_launch(b->nop, 1, 32, b->stream, NULL));
	CU_MUST(cu.StreamSynchronize(b->stream));
	return (double)(now_ns() - start) / 1e3 / BACK_TO_BACK;
}

/* One step at a time, as decoding does: launch the graph, wait for it. */
static double graph_step(struct bench *b)
{
	uint64_t start = now_ns();

	for (int i = 0; i < REPLAYS; i++) {
		CU_MUST(cu.GraphLaunch(b->exec, b->stream));
		CU_MUST(cu.StreamSynchronize(b->stream));
	}
	return (double)(now_ns() - start) / 1e3 / REPLAYS;
}

static double graph_back_to_back(struct bench *b)
{
	uint64_t start = now_ns();

	for (int i = 0; i < REPLAYS; i++)
		CU_MUST(cu.GraphLaunch(b->exec, b->stream));
	CU_MUST(cu.StreamSynchronize(b->stream));
	return (double)(now_ns() - start) / 1e3 / REPLAYS;
}

static double median(struct bench *b, double (*measure)(struct bench *), unsigned repeats)
{
	double took[REPEATS_MAX];

	measure(b); /* warm */
	for (unsigned i = 0; i < repeats; i++)
		took[i] = measure(b);
	return percentile(took, repeats, 50);
}

int main(int argc, char **argv)
{
	unsigned repeats = (unsigned)option_number(argc, argv, "repeats", 7);
	struct bench b;
	double wait_us, queue_us, step_us, steps_us;

	if (!repeats || repeats > REPEATS_MAX)
		fail("--repeats must be between 1 and %d", REPEATS_MAX);
	bench_open(&b);
	wait_us = median(&b, launch_and_wait, repeats);
	queue_us = median(&b, back_to_back, repeats);
	step_us = median(&b, graph_step, repeats);
	steps_us = median(&b, graph_back_to_back, repeats);
	printf("{\"launch_sync_us\":%.3f,\"back_to_back_us\":%.3f,\"graph_step_us\":%.3f,"
	       "\"graph_back_to_back_us\":%.3f}\n",
	       wait_us, queue_us, step_us, steps_us);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* The held program of gpu_gate: launches a short kernel every `--every` (100) µs on four streams in turn,
 * whether or not earlier ones have run, and logs when each was submitted and when it started. gpu_hold
 * LOGFILE. */
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"
#include "kernels.h"
#include "shared.h"
#include "util.h"

enum { STREAMS = 4 };

static uint32_t launch_until_stopped(struct hold_log *log, uint64_t stamps, uint64_t every_ns)
{
	void *kernel = cu_kernel(kernel_time, "tick"), *streams[STREAMS];
	uint64_t at, ns = 5000, next = now_ns();
	void *args[] = { &at, &ns };
	uint32_t n = 0;

	for (int i = 0; i < STREAMS; i++)
		CU_MUST(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	while (!atomic_load(&log->stop) && n < HOLD_KERNELS_MAX) {
		while (now_ns() < next)
			;
		at = stamps + 8ull * n;
		log->records[n].submit_ns = now_ns();
		CU_MUST(cu_launch(kernel, 1, 32, streams[n % STREAMS], args));
		n++;
		/* a launch may block while the rings are full; do not make up for lost time afterwards */
		next = next + every_ns > now_ns() ? next + every_ns : now_ns();
	}
	CU_MUST(cu.CtxSynchronize());
	return n;
}

static void log_starts(struct hold_log *log, uint64_t stamps, const struct gclock_sample *before,
		       const struct gclock_sample *after)
{
	uint64_t *starts = calloc(log->count + 1, sizeof(*starts));

	if (!starts)
		abort();
	CU_MUST(cu.MemcpyDtoH(starts, stamps, 8ull * log->count));
	for (uint32_t i = 0; i < log->count; i++)
		log->records[i].start_ns = starts[i] ? gclock_to_host(before, after, starts[i]) : 0;
	log->error_ns = before->error_ns > after->error_ns ? before->error_ns : after->error_ns;
	free(starts);
}

int main(int argc, char **argv)
{
	uint64_t every_ns = option_number(argc, argv, "every", 100) * 1000, stamps;
	struct gclock_sample before, after;
	struct hold_log *log;

	if (argc < 2)
		fail("usage: gpu_hold LOGFILE [--every MICROSECONDS]");
	log = shared_open(argv[1], sizeof(*log));
	cu_open();
	CU_MUST(cu.MemAlloc(&stamps, 8ull * HOLD_KERNELS_MAX));
	CU_MUST(cu.MemsetD8(stamps, 0, 8ull * HOLD_KERNELS_MAX));
	CU_MUST(cu.CtxSynchronize());
	gclock_take(&before, 200);
	atomic_store(&log->ready, 1);
	log->count = launch_until_stopped(log, stamps, every_ns);
	gclock_take(&after, 200);
	log_starts(log, stamps, &before, &after);
	atomic_store(&log->done, 1);
	return 0;
}

/* SPDX-License-Identifier: MIT */
/* The held program of gpu_gate: launches a short kernel every `--every` (100) µs on four streams in turn,
 * whether or not earlier ones have run, and logs when each was submitted and when it started. gpu_hold
 * LOGFILE. */
#include <stdio.h>
#include <string.h>

#include "cu.h"
#include "kernels.h"
#include "shared.h"
#include "util.h"

enum { STREAMS = 4 };

/* Where the kernels write when they started: host memory, so that it is seen at once. */
struct stamps {
	volatile uint64_t *host;
	uint64_t at;
};

static void stamps_open(struct stamps *stamps)
{
	void *host;

	CU_MUST(cu.MemHostAlloc(&host, 8ull * HOLD_KERNELS_MAX, CU_HOST_DEVICEMAP));
	CU_MUST(cu.MemHostGetDevicePointer(&stamps->at, host, 0));
	memset(host, 0, 8ull * HOLD_KERNELS_MAX);
	stamps->host = host;
}

static void tell_progress(struct hold_log *log, const struct stamps *stamps, uint32_t launched)
{
	uint32_t ran = atomic_load(&log->ran);

	while (ran < launched && stamps->host[ran])
		ran++;
	atomic_store(&log->ran, ran);
	atomic_store(&log->launched, launched);
}

static uint32_t launch_until_stopped(struct hold_log *log, const struct stamps *stamps, uint64_t every_ns)
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
		at = stamps->at + 8ull * n;
		log->records[n].submit_ns = now_ns();
		CU_MUST(cu_launch(kernel, 1, 32, streams[n % STREAMS], args));
		n++;
		tell_progress(log, stamps, n);
		/* a launch may block while the rings are full; do not make up for lost time afterwards */
		next = next + every_ns > now_ns() ? next + every_ns : now_ns();
	}
	CU_MUST(cu.CtxSynchronize());
	return n;
}

int main(int argc, char **argv)
{
	uint64_t every_ns = option_number(argc, argv, "every", 100) * 1000;
	struct stamps stamps;
	struct hold_log *log;

	if (argc < 2)
		fail("usage: gpu_hold LOGFILE [--every MICROSECONDS]");
	log = shared_open(argv[1], sizeof(*log));
	cu_open();
	stamps_open(&stamps);
	atomic_store(&log->ready, 1);
	log->count = launch_until_stopped(log, &stamps, every_ns);
	for (uint32_t i = 0; i < log->count; i++)
		log->records[i].start_gpu_ns = stamps.host[i];
	atomic_store(&log->done, 1);
	return 0;
}

/* SPDX-License-Identifier: MIT */
#include "gclock.h"

#include "cu.h"
#include "kernels.h"
#include "util.h"

void gclock_open(struct gclock *clock)
{
	void *host;

	clock->kernel = cu_kernel(kernel_time, "tick");
	CU_MUST(cu.MemHostAlloc(&host, 4096, CU_HOST_DEVICEMAP));
	CU_MUST(cu.MemHostGetDevicePointer(&clock->at, host, 0));
	clock->stamp = host;
}

static void launch(const struct gclock *clock)
{
	uint64_t at = clock->at, ns = 0;
	void *args[] = { &at, &ns };

	*clock->stamp = 0;
	CU_MUST(cu_launch(clock->kernel, 1, 1, NULL, args));
}

uint64_t gclock_now(const struct gclock *clock)
{
	launch(clock);
	CU_MUST(cu.CtxSynchronize());
	return *clock->stamp;
}

/* The kernel stores to host memory and the host spins on it: that brackets the reading more tightly than
 * waiting for the stream does. */
void gclock_take(struct gclock_sample *sample, int tries)
{
	struct gclock clock;
	uint64_t before, after;

	gclock_open(&clock);
	sample->error_ns = UINT64_MAX;
	for (int i = 0; i < tries; i++) {
		before = now_ns();
		launch(&clock);
		/* bounded, so that a kernel that failed is reported by the synchronisation below */
		while (!*clock.stamp && now_ns() - before < 2000000000ull)
			;
		after = now_ns();
		CU_MUST(cu.CtxSynchronize());
		if (after - before >= sample->error_ns * 2)
			continue;
		*sample = (struct gclock_sample){ before + (after - before) / 2, *clock.stamp,
						  (after - before) / 2 };
	}
}

uint64_t gclock_to_host(const struct gclock_sample *before, const struct gclock_sample *after,
			uint64_t gpu_ns)
{
	double rate = 1.0;
	int64_t since = (int64_t)(gpu_ns - before->gpu_ns);

	if (after->gpu_ns > before->gpu_ns)
		rate = (double)(after->host_ns - before->host_ns) / (double)(after->gpu_ns - before->gpu_ns);
	return before->host_ns + (uint64_t)(int64_t)((double)since * rate);
}

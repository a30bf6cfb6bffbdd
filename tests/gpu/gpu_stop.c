/* SPDX-License-Identifier: MIT */
/* The stopped program of gpu_stopper: kernels of about `--ms` (1000) of integer arithmetic, a fixed amount
 * found by a first try, while one more block writes the GPU's clock into memory shared with the driver.
 * The result of each is compared with an undisturbed one and, for two threads, with the CPU. gpu_stop
 * SHAREDFILE. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu.h"
#include "kernels.h"
#include "shared.h"
#include "util.h"

/* Fewer blocks than the GPU has SMs: the heartbeat block must be resident beside all the others. */
enum { BLOCKS = 64, THREADS = 128, RESULTS = BLOCKS * THREADS };

struct work {
	void *kernel;
	uint64_t out, done, beat;
	uint32_t rounds;
	uint32_t right[RESULTS], got[RESULTS];
};

static struct work work;
static volatile uint64_t *own_beat;

static double work_run(struct work *w, uint32_t *results)
{
	void *args[] = { &w->out, &w->done, &w->beat, &w->rounds };
	uint64_t start;
	double ms;

	CU_MUST(cu.MemsetD8(w->done, 0, 4));
	CU_MUST(cu.MemsetD8(w->out, 0, sizeof(w->got)));
	CU_MUST(cu.CtxSynchronize());
	start = now_ns();
	CU_MUST(cu_launch(w->kernel, BLOCKS + 1, THREADS, NULL, args));
	CU_MUST(cu.CtxSynchronize());
	ms = (double)(now_ns() - start) / 1e6;
	CU_MUST(cu.MemcpyDtoH(results, w->out, sizeof(w->got)));
	return ms;
}

static uint32_t work_reference(uint32_t thread, uint32_t rounds)
{
	uint32_t x = thread;

	for (uint32_t i = 0; i < rounds; i++) {
		x = x * 1664525u + 1013904223u;
		x ^= x >> 13;
	}
	return x;
}

static double work_calibrate(struct work *w, double ms, uint32_t first)
{
	double took;

	w->rounds = first;
	work_run(w, w->right); /* the first launch pays for loading */
	took = work_run(w, w->right);
	w->rounds = (uint32_t)(ms / took * first);
	took = work_run(w, w->right);
	if (w->right[0] != work_reference(0, w->rounds) ||
	    w->right[RESULTS - 1] != work_reference(RESULTS - 1, w->rounds))
		fail("an undisturbed kernel differs from the CPU");
	return took;
}

/* Passes the heartbeat on, where the GPU cannot write to memory that is shared between processes. */
static void *carry_beat(void *arg)
{
	struct stop_page *page = arg;

	for (;;) {
		uint32_t asked = atomic_load(&page->asked);

		page->beat_gpu_ns = *own_beat;
		atomic_store(&page->told, asked);
		sleep_us(100);
	}
	return NULL;
}

static void share_beat(struct stop_page *page)
{
	int result = cu.MemHostRegister((void *)(uintptr_t)&page->beat_gpu_ns, 4096, CU_HOST_DEVICEMAP);
	pthread_t thread;
	void *own;

	if (result == CU_ERROR_NOT_SUPPORTED) {
		CU_MUST(cu.MemHostAlloc(&own, 4096, CU_HOST_DEVICEMAP));
		CU_MUST(cu.MemHostGetDevicePointer(&work.beat, own, 0));
		own_beat = own;
		atomic_store(&page->is_carried, 1);
		if (pthread_create(&thread, NULL, carry_beat, page))
			fail("no thread");
		return;
	}
	CU_MUST(result);
	CU_MUST(cu.MemHostGetDevicePointer(&work.beat, (void *)(uintptr_t)&page->beat_gpu_ns, 0));
}

int main(int argc, char **argv)
{
	double ms = (double)option_number(argc, argv, "ms", 1000);
	struct stop_page *page;

	if (argc < 2)
		fail("usage: gpu_stop SHAREDFILE [--ms MILLISECONDS]");
	page = shared_open(argv[1], sizeof(*page));
	cu_open();
	gclock_take(&page->before, 200);
	share_beat(page);
	CU_MUST(cu.MemAlloc(&work.out, sizeof(work.got)));
	CU_MUST(cu.MemAlloc(&work.done, 4096));
	work.kernel = cu_kernel(kernel_work, "work");
	page->kernel_ms = work_calibrate(&work, ms, (uint32_t)option_number(argc, argv, "rounds", 1 << 22));
	atomic_store(&page->ready, 1);
	while (!atomic_load(&page->stop)) {
		work_run(&work, work.got);
		atomic_fetch_add(&page->kernels, 1);
		if (memcmp(work.got, work.right, sizeof(work.got)))
			atomic_fetch_add(&page->wrong, 1);
	}
	gclock_take(&page->after, 200);
	atomic_store(&page->done, 1);
	return atomic_load(&page->wrong) != 0;
}

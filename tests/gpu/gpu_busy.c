/* SPDX-License-Identifier: MIT */
/* A neighbour that keeps every SM busy and forces context switches, for `--secs` or until it is killed.
 * Kernels of `--us` (500), never more than two queued. */
#include <stdio.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

int main(int argc, char **argv)
{
	uint64_t secs = option_number(argc, argv, "secs", 60),
		 ns = option_number(argc, argv, "us", 500) * 1000;
	uint64_t end, at, launches = 0;
	void *args[] = { &at, &ns }, *events[2], *kernel;
	int sms;

	cu_open();
	kernel = cu_kernel(kernel_time, "tick");
	CU_MUST(cu.DeviceGetAttribute(&sms, CU_DEVICE_SM_COUNT, 0));
	CU_MUST(cu.MemAlloc(&at, 4096));
	for (int i = 0; i < 2; i++)
		CU_MUST(cu.EventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	printf("busy\n");
	fflush(stdout);
	for (end = now_ns() + secs * 1000000000ull; now_ns() < end; launches++) {
		if (launches >= 2)
			CU_MUST(cu.EventSynchronize(events[launches & 1]));
		CU_MUST(cu_launch(kernel, (unsigned)sms * 2, 256, NULL, args));
		CU_MUST(cu.EventRecord(events[launches & 1], NULL));
	}
	CU_MUST(cu.CtxSynchronize());
	printf("%llu launches\n", (unsigned long long)launches);
	return 0;
}

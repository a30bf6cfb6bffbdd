/* SPDX-License-Identifier: MIT */
/* A neighbour that goes wrong: gpu_fault illegal|trap|assert|abort|kill|exit. The first three wait for the
 * error and exit 0 when it is the expected one; the others leave in the middle of a kernel that spins for
 * half a second. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

static int fault(const char *name, const char *ptx, int expected, int also)
{
	int result = cu_launch(cu_kernel(ptx, name), 4, 64, NULL, NULL);

	if (!result)
		result = cu.CtxSynchronize();
	printf("%s: %s\n", name, cu_error(result));
	return result != expected && result != also;
}

/* Wait until the kernel says it is running, then leave it alone on the GPU. */
static void start_spinning(void)
{
	uint64_t at, ns = 500000000ull, limit = now_ns() + 10000000000ull;
	void *args[] = { &at, &ns }, *host;
	volatile uint32_t *running;

	CU_MUST(cu.MemHostAlloc(&host, 4096, CU_HOST_DEVICEMAP));
	CU_MUST(cu.MemHostGetDevicePointer(&at, host, 0));
	running = host;
	*running = 0;
	CU_MUST(cu_launch(cu_kernel(kernel_time, "flag"), 132, 128, NULL, args));
	while (!*running)
		if (now_ns() > limit)
			fail("the kernel did not start within 10 s");
}

int main(int argc, char **argv)
{
	const struct rlimit no_core = { 0, 0 };
	const char *kind = argc > 1 ? argv[1] : "";

	setrlimit(RLIMIT_CORE, &no_core);
	cu_open();
	if (!strcmp(kind, "illegal"))
		return fault("illegal", kernel_illegal, CU_ERROR_ILLEGAL_ADDRESS, CU_ERROR_LAUNCH_FAILED);
	if (!strcmp(kind, "trap"))
		return fault("trap", kernel_trap, CU_ERROR_LAUNCH_FAILED, CU_ERROR_ILLEGAL_INSTRUCTION);
	if (!strcmp(kind, "assert"))
		return fault("assert", kernel_assert, CU_ERROR_ASSERT, CU_ERROR_ASSERT);
	start_spinning();
	if (!strcmp(kind, "abort"))
		abort();
	if (!strcmp(kind, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(kind, "exit"))
		_exit(0);
	fail("usage: gpu_fault illegal|trap|assert|abort|kill|exit");
}

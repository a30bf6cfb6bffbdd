/* SPDX-License-Identifier: MIT */
/* a_program_of_many_processes_runs: `--procs 8` copies of this program, forked and executed, each with a
 * context, a kernel over up to 2^22 elements (`--log2`) and a check. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

enum { PROCS_MAX = 64 };

int main(int argc, char **argv)
{
	uint64_t procs = option_number(argc, argv, "procs", 8);
	uint64_t log2 = option_number(argc, argv, "log2", 22);
	char self[4096], size[16];
	const char *child[] = { self, "child", "--log2", size, NULL };
	pid_t pids[PROCS_MAX];
	unsigned bad = 0, skipped = 0;

	if (log2 < 2 || log2 > 28)
		fail("--log2 must be between 2 and 28");
	if (argc > 1 && !strcmp(argv[1], "child")) {
		cu_open();
		return saxpy_check(1u << (log2 - 2)) || saxpy_check(1u << log2);
	}
	if (!procs || procs > PROCS_MAX)
		fail("--procs must be between 1 and %d", PROCS_MAX);
	sibling_path(self, sizeof(self), "gpu_multi");
	snprintf(size, sizeof(size), "%u", (unsigned)log2);
	for (uint64_t i = 0; i < procs; i++)
		pids[i] = spawn(child, NULL);
	for (uint64_t i = 0; i < procs; i++) {
		int status = wait_for(pids[i], 60000);

		skipped += status == 77;
		bad += status != 0 && status != 77;
	}
	if (skipped && !bad)
		return 77;
	printf("%s: %llu processes, %u failed\n", bad ? "FAILED" : "ok", (unsigned long long)procs, bad);
	return bad != 0;
}

/* SPDX-License-Identifier: MIT */
/* What a program pays for having been idle: launch and wait after 1, 10, 100 and 1000 ms of nothing,
 * medians in µs, as one line of JSON. With `--idle SECS` it then holds its context and does nothing that
 * long, after a line "idle". */
#include <stdio.h>

#include "cu.h"
#include "kernels.h"
#include "util.h"

static double wake_us(void *kernel, void *stream, uint64_t idle_ms, unsigned repeats)
{
	double took[64];

	for (unsigned i = 0; i < repeats; i++) {
		uint64_t start;

		sleep_us(idle_ms * 1000);
		start = now_ns();
		CU_MUST(cu_launch(kernel, 1, 32, stream, NULL));
		CU_MUST(cu.StreamSynchronize(stream));
		took[i] = (double)(now_ns() - start) / 1e3;
	}
	return percentile(took, repeats, 50);
}

int main(int argc, char **argv)
{
	static const struct {
		uint64_t ms;
		unsigned repeats;
	} rows[] = { { 1, 50 }, { 10, 50 }, { 100, 21 }, { 1000, 9 } };
	uint64_t idle_secs = option_number(argc, argv, "idle", 0);
	void *kernel, *stream;

	cu_open();
	kernel = cu_kernel(kernel_time, "nop");
	CU_MUST(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	wake_us(kernel, stream, 0, 64);
	putchar('{');
	for (unsigned i = 0; i < 4; i++)
		printf("%s\"after_%llu_ms_us\":%.2f", i ? "," : "", (unsigned long long)rows[i].ms,
		       wake_us(kernel, stream, rows[i].ms, rows[i].repeats));
	printf("}\n");
	fflush(stdout);
	if (idle_secs) {
		printf("idle\n");
		fflush(stdout);
		sleep_us(idle_secs * 1000000);
	}
	return 0;
}

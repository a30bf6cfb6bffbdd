/* soft_speed [seconds]: thread-instructions a second of the whole software GPU, by kind of kernel: through libcuda,
 * the driver and the engine. bench/soft_speed.sh runs it with one core and with two. One line a kernel:
 * kind, tab, millions a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/own.h"
#include "cu.h"
#include "soft/link/link.h"
#include "soft/ptx/ptx.h"
#include "speed_kernels.h"
#include "util.h"

enum { MEMORY_BYTES = 64 << 20 };

static uint64_t memory;
static char folder[108];

/* What the GPU has executed so far, for everyone. */
static uint64_t executed(void)
{
	struct soft_status status;
	struct bf_error err;
	uint64_t sum = 0;

	if (link_status(folder, &status, &err))
		fail("%s", err.text);
	for (uint32_t i = 0; i < status.user_count; i++)
		sum += status.users[i].thread_instructions;
	return sum;
}

static char *read_text(const char *name)
{
	char path[512];
	char *text = calloc(1, 1 << 20);
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "%s/ptx/%s.ptx", BELFRY_TEST_DATA, name);
	file = fopen(path, "r");
	if (!file || !text || !fread(text, 1, (1 << 20) - 1, file))
		fail("%s: cannot be read", path);
	return text;
}

static void fill_memory(void)
{
	uint32_t *values = malloc(MEMORY_BYTES), state = 1;

	if (!values)
		fail("out of memory");
	for (unsigned i = 0; i < MEMORY_BYTES / 4; i++) {
		state = state * 1664525 + 1013904223;
		values[i] = 0x3f800000 | state >> 9; /* floats between 1 and 2 */
	}
	CU_MUST(cu.MemcpyHtoD(memory, values, MEMORY_BYTES));
	free(values);
}

/* cuLaunchKernel takes parameters one by one; their sizes are the kernel's. */
static void run(const struct bench *b, double seconds)
{
	cleanup_free char *text = b->file ? read_text(b->file) : strdup(loop_text);
	uint64_t values[10], before, from, end;
	void *args[10], *kernel = cu_kernel(text, b->kernel);
	unsigned grid[3], threads[3], launches = 0;

	for (int i = 0; i < 10; i++) {
		values[i] = b->params[i] >> 63 ? memory + (b->params[i] & ~(1ull << 63)) : b->params[i];
		args[i] = &values[i];
	}
	for (int i = 0; i < 3; i++) {
		grid[i] = b->grid[i] ? b->grid[i] : 1;
		threads[i] = b->threads[i] ? b->threads[i] : 1;
	}
	fill_memory();
	before = executed();
	from = now_ns();
	end = from + (uint64_t)(seconds * 1e9);
	do {
		CU_MUST(cu.LaunchKernel(kernel, grid[0], grid[1], grid[2], threads[0], threads[1], threads[2],
					b->dynamic_bytes, NULL, args, NULL));
		if (++launches % 8 == 0)
			CU_MUST(cu.CtxSynchronize());
	} while (now_ns() < end);
	CU_MUST(cu.CtxSynchronize());
	printf("%s\t%.0f\n", b->kind, (double)(executed() - before) * 1000 / (double)(now_ns() - from));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 1.0;
	const char *given = getenv("BELFRY_SOFT_DIR");

	if (!given)
		fail("run it on the software GPU: belfry soft run -- soft_speed");
	snprintf(folder, sizeof(folder), "%s", given);
	cu_open();
	CU_MUST(cu.MemAlloc(&memory, MEMORY_BYTES));
	for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
		run(&benches[i], seconds);
	return 0;
}

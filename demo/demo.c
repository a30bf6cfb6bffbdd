/* The programs of `make demo`, as any CUDA program might be: they know nothing of Belfry.
 *
 *   belfry-demo latency --secs S   answers requests, one every 10 ms (--period-us N: every N us); tells how
 *                                  long they took
 *   belfry-demo train --secs S     trains as fast as it can; tells how many steps it did. --side N: matrices of
 *                                  N by N (128, a multiple of 16); --batch N: so many steps before it looks (1)
 *   belfry-demo greedy             takes memory until it gets no more
 *   belfry-demo stray              has a mistake in its kernel
 * Each checks what the GPU computed against the CPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu.h"
#include "util.h"

enum { ROWS = 64, COLUMNS = 256, PERIOD_US = 10000, REQUESTS_MAX = 100000, CHUNK_MIB = 64 };

static char *read_kernels(int argc, char **argv)
{
	const char *path = option_text(argc, argv, "kernels", "demo/kernels.ptx");
	FILE *file = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	if (!file || !text || !fread(text, 1, (1 << 20) - 1, file))
		fail("%s: no kernels; --kernels says where they are", path);
	fclose(file);
	return text;
}

static uint64_t upload(const float *values, size_t count)
{
	uint64_t at;

	CU_MUST(cu.MemAlloc(&at, count * sizeof(float)));
	CU_MUST(cu.MemcpyHtoD(at, values, count * sizeof(float)));
	return at;
}

static float *numbers(size_t count, unsigned seed)
{
	float *values = malloc(count * sizeof(float));

	if (!values)
		fail("out of memory");
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		values[i] = (float)((int)(seed >> 24) - 128) / 128; /* sums of their products are exact */
	}
	return values;
}

static void decode_check(const float *weights, const float *in, const float *out)
{
	for (int row = 0; row < ROWS; row++) {
		float sum = 0;

		for (int i = 0; i < COLUMNS; i++)
			sum += weights[row * COLUMNS + i] * in[i];
		if (out[row] != (sum > 0 ? sum : 0.125f * sum))
			fail("row %d: %g instead of %g", row, (double)out[row], (double)sum);
	}
}

static int latency(int argc, char **argv)
{
	uint64_t secs = option_number(argc, argv, "secs", 5), count = 0, next, end,
		 period_ns = option_number(argc, argv, "period-us", PERIOD_US) * 1000;
	void *kernel = cu_kernel(read_kernels(argc, argv), "decode");
	float *weights = numbers((size_t)ROWS * COLUMNS, 1), *in = numbers(COLUMNS, 2), out[ROWS];
	uint64_t w = upload(weights, (size_t)ROWS * COLUMNS), x = upload(in, COLUMNS),
		 y = upload(in, COLUMNS);
	double *took_ms = malloc(REQUESTS_MAX * sizeof(double));
	int columns = COLUMNS;
	void *args[] = { &w, &x, &y, &columns };

	CU_MUST(cu.MemAlloc(&y, sizeof(out)));
	if (!took_ms)
		fail("out of memory");
	printf("latency ready\n");
	fflush(stdout);
	next = now_ns();
	end = next + secs * 1000000000;
	while (next < end && count < REQUESTS_MAX) {
		uint64_t begin;

		begin = now_ns();
		if (begin < next)
			sleep_us((next - begin) / 1000);
		begin = now_ns();
		CU_MUST(cu_launch(kernel, ROWS * 32 / 256, 256, NULL, args));
		CU_MUST(cu.MemcpyDtoH(out, y, sizeof(out)));
		took_ms[count++] = (double)(now_ns() - begin) / 1e6;
		next = next + period_ns > begin ? next + period_ns : begin;
		decode_check(weights, in, out);
	}
	printf("latency requests %llu p50_ms %.2f p99_ms %.2f\n", (unsigned long long)count,
	       percentile(took_ms, count, 50), percentile(took_ms, count, 99));
	return 0;
}

static int train(int argc, char **argv)
{
	uint64_t secs = option_number(argc, argv, "secs", 5), steps = 0, begin, end;
	unsigned side = (unsigned)option_number(argc, argv, "side", 128), batch;
	void *kernel = cu_kernel(read_kernels(argc, argv), "train");
	size_t count = (size_t)side * side;
	float *a = numbers(count, 3), *b = numbers(count, 4), *c = malloc(count * sizeof(float));
	uint64_t da = upload(a, count), db = upload(b, count), dc = upload(a, count);
	void *args[] = { &da, &db, &dc, &side };

	printf("train ready\n");
	fflush(stdout);
	begin = now_ns();
	end = begin + secs * 1000000000;
	while (now_ns() < end) {
		for (batch = (unsigned)option_number(argc, argv, "batch", 1); batch; batch--, steps++)
			CU_MUST(cu.LaunchKernel(kernel, side / 16, side / 16, 1, 16, 16, 1, 0, NULL, args,
						NULL));
		CU_MUST(cu.CtxSynchronize());
	}
	end = now_ns();
	CU_MUST(cu.MemcpyDtoH(c, dc, count * sizeof(float)));
	for (size_t row = 0; row < side; row++)
		for (size_t column = 0; column < side; column++) {
			float sum = 0;

			for (size_t k = 0; k < side; k++)
				sum += a[row * side + k] * b[k * side + column];
			if (c[row * side + column] != sum)
				fail("row %zu, column %zu: %g instead of %g", row, column,
				     (double)c[row * side + column], (double)sum);
		}
	printf("train steps %llu per_second %.1f\n", (unsigned long long)steps,
	       (double)steps / ((double)(end - begin) / 1e9));
	return 0;
}

static int greedy(void)
{
	uint64_t at, mib = 0;
	size_t left, total;
	int result;

	CU_MUST(cu.MemGetInfo(&left, &total));
	while (!(result = cu.MemAlloc(&at, CHUNK_MIB * MIB)))
		mib += CHUNK_MIB;
	printf("greedy total_mib %llu got_mib %llu then %s\n", (unsigned long long)(total >> 20),
	       (unsigned long long)mib, cu_error(result));
	return result == CU_ERROR_OUT_OF_MEMORY ? 0 : 1;
}

static int stray(int argc, char **argv)
{
	void *kernel = cu_kernel(read_kernels(argc, argv), "stray");
	uint64_t at;
	void *args[] = { &at };
	int result;

	CU_MUST(cu.MemAlloc(&at, 4096));
	CU_MUST(cu_launch(kernel, 1, 1, NULL, args));
	result = cu.CtxSynchronize();
	printf("stray %s\n", cu_error(result));
	return result == CU_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "latency") && strcmp(what, "train") && strcmp(what, "greedy") &&
	    strcmp(what, "stray")) {
		fprintf(stderr,
			"usage: belfry-demo latency|train|greedy|stray [--secs S] [--kernels FILE]\n");
		return 2;
	}
	cu_open();
	if (!strcmp(what, "latency"))
		return latency(argc, argv);
	if (!strcmp(what, "train"))
		return train(argc, argv);
	return strcmp(what, "greedy") ? stray(argc, argv) : greedy();
}

/* What probes cost: probe_overhead [small]. Each of three kernels (a small one, a tiled matrix product, a reduction)
 * runs without a probe, with a count probe and a time probe, each once for each warp and once for each thread, and with
 * the shipped blocktime and kernelstat. The rounds of all variants alternate. Printed are the median time of a launch, the overhead,
 * whether the output has the same bits, and whether the count is the number of threads. Exit status 1: a wrong result.
 *
 * Runs on any libcuda.so.1. On the software GPU only the results mean something, not the times. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/own.h"
#include "probe/weave.h"

enum { ROUNDS_MAX = 31, VARIANTS = 7, ATTRIBUTE_SMS = 16, SKIP = 77 };

static struct {
	int (*cuInit)(unsigned);
	int (*cuDeviceGetAttribute)(int *, int, int);
	int (*cuCtxCreate_v2)(void **, unsigned, int);
	int (*cuCtxSynchronize)(void);
	int (*cuModuleLoadData)(void **, const void *);
	int (*cuModuleGetFunction)(void **, void *, const char *);
	int (*cuMemAlloc_v2)(uint64_t *, size_t);
	int (*cuMemcpyDtoH_v2)(void *, uint64_t, size_t);
	int (*cuMemcpyHtoD_v2)(uint64_t, const void *, size_t);
	int (*cuEventCreate)(void **, unsigned);
	int (*cuEventRecord)(void *, void *);
	int (*cuEventSynchronize)(void *);
	int (*cuEventElapsedTime)(float *, void *, void *);
	int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			      void *, void **, void **);
} cu;

static void check(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "probe_overhead: %s: error %d\n", what, result);
	exit(1);
}
#define CU(call) check(cu.call, #call)

static void find_library(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("skipped: there is no libcuda.so.1\n");
		exit(SKIP);
	}
#define FIND(name) \
	if (!(*(void **)&cu.name = dlsym(library, #name))) \
	check(-1, #name)
	FIND(cuInit);
	FIND(cuDeviceGetAttribute);
	FIND(cuCtxCreate_v2);
	FIND(cuCtxSynchronize);
	FIND(cuModuleLoadData);
	FIND(cuModuleGetFunction);
	FIND(cuMemAlloc_v2);
	FIND(cuMemcpyDtoH_v2);
	FIND(cuMemcpyHtoD_v2);
	FIND(cuEventCreate);
	FIND(cuEventRecord);
	FIND(cuEventSynchronize);
	FIND(cuEventElapsedTime);
	FIND(cuLaunchKernel);
}

/* ---- kernels: those of tests/data/ptx */

struct job {
	const char *title, *file, *kernel;
	unsigned grid[2], threads[2];
	unsigned launches; /* of a round */
	uint64_t in[2], out;
	size_t in_bytes[2], out_bytes;
	void *first_out; /* what `out` holds before the first launch */
	union {
		uint32_t words[3];
		struct {
			uint32_t n;
			float a;
		} saxpy;
	} sizes;
	void *params[8];
};

static void *random_floats(size_t bytes, uint32_t seed)
{
	float *data = malloc(bytes);

	for (size_t i = 0; data && i < bytes / sizeof(*data); i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = (float)(seed >> 8) / (float)(1 << 24);
	}
	return data;
}

static uint64_t put(const void *data, size_t bytes)
{
	uint64_t at;

	CU(cuMemAlloc_v2(&at, bytes));
	CU(cuMemcpyHtoD_v2(at, data, bytes));
	return at;
}

static void job_memory(struct job *job, uint32_t seed)
{
	for (unsigned i = 0; i < 2; i++) {
		cleanup_free void *data = job->in_bytes[i] ? random_floats(job->in_bytes[i], seed + i) : NULL;

		if (data)
			job->in[i] = put(data, job->in_bytes[i]);
	}
	job->first_out = random_floats(job->out_bytes, seed + 7);
	job->out = put(job->first_out, job->out_bytes);
}

static struct job small_job(bool is_small)
{
	uint32_t n = is_small ? 1 << 12 : 1 << 17;

	return (struct job){ .title = "small (saxpy)",
			     .file = "vector",
			     .kernel = "saxpy",
			     .grid = { n / 256, 1 },
			     .threads = { 256, 1 },
			     .launches = is_small ? 2 : 50,
			     .in_bytes = { n * 4ul },
			     .out_bytes = n * 4ul,
			     .sizes.saxpy = { n, 2.5f } };
}

static struct job gemm_job(bool is_small)
{
	uint32_t n = is_small ? 64 : 2048;

	return (struct job){ .title = "tiled GEMM",
			     .file = "matrix",
			     .kernel = "gemm",
			     .grid = { n / 16, n / 16 },
			     .threads = { 16, 16 },
			     .launches = is_small ? 1 : 3,
			     .in_bytes = { 4ul * n * n, 4ul * n * n },
			     .out_bytes = 4ul * n * n,
			     .sizes.words = { n, n, n } };
}

static struct job reduce_job(bool is_small)
{
	uint32_t n = is_small ? 1 << 12 : 1 << 24;

	return (struct job){ .title = "reduction",
			     .file = "block",
			     .kernel = "reduce_shared",
			     .grid = { n / 256, 1 },
			     .threads = { 256, 1 },
			     .launches = is_small ? 1 : 10,
			     .in_bytes = { n * 4ul },
			     .out_bytes = 4,
			     .sizes.words = { n } };
}

static void job_params(struct job *job)
{
	unsigned sizes = !strcmp(job->kernel, "gemm") ? 3 : !strcmp(job->kernel, "saxpy") ? 2 : 1, at = 0;

	for (unsigned i = 0; i < sizes; i++)
		job->params[at++] = &job->sizes.words[i];
	for (unsigned i = 0; i < 2; i++)
		if (job->in_bytes[i])
			job->params[at++] = &job->in[i];
	job->params[at] = &job->out;
}

/* ---- variants */

/* What the first word of the map's values counts. */
enum unit { COUNTS_THREADS, COUNTS_BLOCKS, COUNTS_CALLS };

struct variant {
	const char *probe, *directory, *map;
	enum unit unit;
	bool is_per_thread;
	struct probe *opened;
	uint64_t area;
	void *function;
	float us[ROUNDS_MAX];
	bool is_same, is_counted;
};

static void *read_file(const char *path, size_t *size)
{
	char *data = calloc(1, 1 << 20);
	cleanup_file FILE *file = fopen(path, "re");

	if (!file || !data) {
		fprintf(stderr, "probe_overhead: reading %s failed; build first\n", path);
		exit(1);
	}
	*size = fread(data, 1, (1 << 20) - 1, file);
	return data;
}

/* A file beside this program, as in the portable folder or the build tree; else the file of the tree it was built in. */
static void find_file(const char *const *beside, const char *built, const char *folder, const char *name,
		      char *path, size_t room)
{
	if (bf_find_beside(NULL, beside, path, room))
		snprintf(path, room, "%s/%s/%s", built, folder, name);
}

static void find_probe(const struct variant *variant, char *path, size_t room)
{
	char name[64], shipped[96], portable[96];
	const char *const beside[] = { strcmp(variant->directory, "bench") ? shipped : name, portable, NULL };

	snprintf(name, sizeof(name), "%.40s.bpf.o", variant->probe);
	snprintf(shipped, sizeof(shipped), "../probes/%s", name);
	snprintf(portable, sizeof(portable), "../bin/probes/%s", name);
	find_file(beside, BELFRY_BUILD_DIR, variant->directory, name, path, room);
}

static void find_text(const struct job *job, char *path, size_t room)
{
	char name[64], portable[96];
	const char *const beside[] = { portable, NULL };

	snprintf(name, sizeof(name), "%.40s.ptx", job->file);
	snprintf(portable, sizeof(portable), "../tests/data/ptx/%s", name);
	find_file(beside, BELFRY_TEST_DATA, "ptx", name, path, room);
}

static void variant_open(struct variant *variant, uint32_t sm_count)
{
	cleanup_free void *object = NULL, *area = NULL;
	struct bf_error err = { 0 };
	char path[4096];
	size_t size;

	find_probe(variant, path, sizeof(path));
	object = read_file(path, &size);
	if (probe_open(object, size, &(struct probe_options){ .sm_count = sm_count }, &variant->opened,
		       &err)) {
		fprintf(stderr, "probe_overhead: %s: %s\n", path, err.text);
		exit(1);
	}
	area = malloc(probe_area_bytes(variant->opened));
	if (!area)
		exit(1);
	probe_area_init(variant->opened, area);
	variant->area = put(area, probe_area_bytes(variant->opened));
}

static void variant_load(struct variant *variant, const struct job *job)
{
	struct weave_probe list = { .probe = variant->opened,
				    .area = variant->area,
				    .kernels = job->kernel,
				    .is_per_thread = variant->is_per_thread };
	struct weave_result result = { 0 };
	struct bf_error err = { 0 };
	cleanup_free char *text = NULL;
	char path[4096];
	void *module;
	size_t size;

	find_text(job, path, sizeof(path));
	text = read_file(path, &size);
	if (variant->opened && (weave_text(text, size, &list, 1, &result, &err) || !result.text)) {
		fprintf(stderr, "probe_overhead: %s: %s\n", path, err.text);
		exit(1);
	}
	CU(cuModuleLoadData(&module, result.text ? result.text : text));
	CU(cuModuleGetFunction(&variant->function, module, job->kernel));
	weave_result_free(&result);
}

static void launch(const struct job *job, const struct variant *variant)
{
	CU(cuLaunchKernel(variant->function, job->grid[0], job->grid[1], 1, job->threads[0], job->threads[1],
			  1, 0, NULL, (void **)job->params, NULL));
}

/* The sum of the first words of a map's entries. */
static uint64_t counted(const struct variant *variant)
{
	cleanup_free void *area = malloc(probe_area_bytes(variant->opened));
	struct probe_entry entry;
	uint64_t cursor = 0, sum = 0, value;

	if (!area)
		exit(1);
	CU(cuMemcpyDtoH_v2(area, variant->area, probe_area_bytes(variant->opened)));
	while (probe_next(probe_map_find(variant->opened, variant->map), area, &cursor, &entry)) {
		memcpy(&value, entry.value, sizeof(value));
		sum += value;
	}
	return sum;
}

/* One launch on the first content of the output. */
static void variant_check(struct variant *variant, const struct job *job, const void *wanted, void *got)
{
	uint64_t blocks = (uint64_t)job->grid[0] * job->grid[1], before = 0, events = blocks;

	if (variant->opened)
		before = counted(variant);
	CU(cuMemcpyHtoD_v2(job->out, job->first_out, job->out_bytes));
	launch(job, variant);
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(got, job->out, job->out_bytes));
	variant->is_same = !wanted || !memcmp(wanted, got, job->out_bytes);
	if (variant->unit == COUNTS_THREADS)
		events *= (uint64_t)job->threads[0] * job->threads[1];
	else if (variant->unit == COUNTS_CALLS)
		events = 1;
	variant->is_counted = !variant->opened || counted(variant) - before == events;
}

static float measure(const struct job *job, const struct variant *variant, void *const events[2])
{
	float ms;

	CU(cuEventRecord(events[0], NULL));
	for (unsigned i = 0; i < job->launches; i++)
		launch(job, variant);
	CU(cuEventRecord(events[1], NULL));
	CU(cuEventSynchronize(events[1]));
	CU(cuEventElapsedTime(&ms, events[0], events[1]));
	return ms * 1000 / (float)job->launches;
}

static int compare(const void *left, const void *right)
{
	float a = *(const float *)left, b = *(const float *)right;

	return (a > b) - (a < b);
}

static const char *level_of(const struct variant *variant)
{
	static const char *const levels[] = { "warp", "block", "grid" };

	if (!variant->probe)
		return "-";
	return variant->is_per_thread ? "thread" : levels[variant->unit];
}

static bool report(const struct job *job, struct variant *variants, unsigned rounds)
{
	bool is_fine = true;
	float plain = 0;

	for (unsigned i = 0; i < VARIANTS; i++) {
		struct variant *variant = &variants[i];
		float us;

		qsort(variant->us, rounds, sizeof(float), compare);
		us = variant->us[rounds / 2];
		plain = i ? plain : us;
		printf("%-14s %-12s %-7s %10.2f %9.1f  %-5s %s\n", job->title,
		       variant->probe ? variant->probe : "none", level_of(variant), (double)us,
		       (double)(100 * (us - plain) / plain), variant->is_same ? "same" : "DIFFER",
		       variant->is_counted ? "exact" : "WRONG");
		is_fine = is_fine && variant->is_same && variant->is_counted;
	}
	return is_fine;
}

static bool run_job(struct job *job, struct variant *variants, unsigned rounds, void *const events[2])
{
	cleanup_free void *wanted = malloc(job->out_bytes), *got = malloc(job->out_bytes);

	if (!wanted || !got)
		exit(1);
	job_memory(job, 5);
	job_params(job);
	for (unsigned i = 0; i < VARIANTS; i++) {
		variant_load(&variants[i], job);
		variant_check(&variants[i], job, i ? wanted : NULL, i ? got : wanted);
	}
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned i = 0; i < VARIANTS; i++)
			variants[i].us[round] = measure(job, &variants[i], events);
	free(job->first_out);
	return report(job, variants, rounds);
}

int main(int argc, char **argv)
{
	bool is_small = argc > 1 && !strcmp(argv[1], "small"), is_fine = true;
	struct job jobs[] = { small_job(is_small), gemm_job(is_small), reduce_job(is_small) };
	struct variant variants[VARIANTS] = {
		{ 0 },
		{ .probe = "probe_count", .directory = "bench", .map = "threads" },
		{ .probe = "probe_count", .directory = "bench", .map = "threads", .is_per_thread = true },
		{ .probe = "probe_time", .directory = "bench", .map = "times" },
		{ .probe = "probe_time", .directory = "bench", .map = "times", .is_per_thread = true },
		{ .probe = "blocktime", .directory = "probes", .map = "sms", .unit = COUNTS_BLOCKS },
		{ .probe = "kernelstat", .directory = "probes", .map = "kernels", .unit = COUNTS_CALLS },
	};
	void *context, *events[2];
	int sm_count = 0;

	find_library();
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&context, 0, 0));
	CU(cuDeviceGetAttribute(&sm_count, ATTRIBUTE_SMS, 0));
	for (unsigned i = 0; i < 2; i++)
		CU(cuEventCreate(&events[i], 0));
	for (unsigned i = 1; i < VARIANTS; i++)
		variant_open(&variants[i], (uint32_t)sm_count);
	printf("%-14s %-12s %-7s %10s %9s  %-5s %s\n", "kernel", "probe", "runs by", "us/launch", "overhead%",
	       "bits", "count");
	for (unsigned i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
		is_fine &= run_job(&jobs[i], variants, is_small ? 3 : ROUNDS_MAX, events);
	for (unsigned i = 1; i < VARIANTS; i++)
		probe_free(variants[i].opened);
	return is_fine ? 0 : 1;
}

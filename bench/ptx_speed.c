/* ptx_speed [seconds]: thread-instructions a second of the PTX interpreter, by kind of kernel, on one core and on
 * two, and the bytes of device memory that each moves. Blocks of one launch are handed out to the threads one by one, as an engine would. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/own.h"
#include "soft/ptx/ptx.h"
#include "speed_kernels.h"

#define MEMORY_BYTES (64u << 20)
#define MEMORY_BASE 0x700000000000ull
#define WORKERS_MAX 2

struct job {
	const struct bench *bench;
	struct ptx_launch launch;
	struct ptx_host host;
	uint32_t next;
	uint32_t stop;
	uint64_t cost, moved_bytes;
	const char *failure;
};

static uint8_t *memory;

static bool translate(void *ctx, uint64_t address, uint32_t bytes, bool is_write, struct ptx_span *span)
{
	(void)ctx;
	(void)is_write;
	if (address - MEMORY_BASE >= MEMORY_BYTES || MEMORY_BYTES - (address - MEMORY_BASE) < bytes)
		return false;
	*span = (struct ptx_span){
		.base = MEMORY_BASE, .bytes = MEMORY_BYTES, .host = memory, .is_writable = true
	};
	return true;
}

/* Blocks until the time is over: the grid again and again. */
static void *work(void *arg)
{
	struct job *job = arg;
	const uint32_t *grid = job->launch.grid;
	struct ptx_block *block;
	uint64_t cost = 0, moved_bytes = 0;
	enum ptx_state state;

	if (ptx_block_create(&job->launch, &job->host, &block, NULL)) {
		job->failure = "cannot be launched";
		return NULL;
	}
	while (!__atomic_load_n(&job->stop, __ATOMIC_RELAXED)) {
		uint32_t n = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
		uint32_t index[3] = { n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1] % grid[2] };

		ptx_block_start(block, index, 0);
		state = ptx_block_run(block, 0, &job->stop, &cost);
		moved_bytes += ptx_block_moved_bytes(block);
		if (state == PTX_STATE_FAULT) {
			job->failure = ptx_fault_name(ptx_block_fault(block)->kind);
			break;
		}
	}
	__atomic_fetch_add(&job->cost, cost, __ATOMIC_RELAXED);
	__atomic_fetch_add(&job->moved_bytes, moved_bytes, __ATOMIC_RELAXED);
	ptx_block_free(block);
	return NULL;
}

static void fill_memory(void)
{
	uint64_t state = 88172645463325252ull;

	for (uint32_t i = 0; i < MEMORY_BYTES / 4; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		/* floats between 1 and 2: no kernel's time depends on subnormals */
		((uint32_t *)(void *)memory)[i] = 0x3f800000 | (uint32_t)(state >> 41);
	}
}

static void pack_params(const struct bench *b, const struct ptx_kernel *k, uint8_t *params)
{
	for (uint32_t i = 0; i < k->param_count; i++) {
		uint64_t v = b->params[i];

		if (v >> 63)
			v = MEMORY_BASE + (v & ~(1ull << 63));
		memcpy(params + k->params[i].offset, &v, k->params[i].bytes < 8 ? k->params[i].bytes : 8);
	}
}

/* Thread-instructions a second with so many workers; 0 if it failed. */
static double measure(struct job *job, unsigned workers, double seconds)
{
	pthread_t threads[WORKERS_MAX];
	struct timespec pause = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
	uint64_t from;

	fill_memory();
	job->next = job->stop = 0;
	job->cost = job->moved_bytes = 0;
	from = bf_now_ns();
	for (unsigned i = 0; i < workers; i++)
		if (pthread_create(&threads[i], NULL, work, job))
			abort();
	nanosleep(&pause, NULL);
	__atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < workers; i++)
		pthread_join(threads[i], NULL);
	if (job->failure)
		return 0;
	return (double)job->cost * 1e9 / (double)(bf_now_ns() - from);
}

static char *read_text(const char *name)
{
	char path[512];
	char *text = calloc(1, 1 << 20);
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "%s/ptx/%s.ptx", BELFRY_TEST_DATA, name);
	file = fopen(path, "r");
	if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) {
		free(text);
		return NULL;
	}
	return text;
}

static int run_bench(const struct bench *b, double seconds)
{
	uint8_t params[256] = { 0 };
	struct job job = { .bench = b, .host = { .translate = translate } };
	cleanup_free char *text = b->file ? read_text(b->file) : strdup(loop_text);
	uint64_t addresses[64];
	struct bf_error err = { 0 };
	struct ptx_module *module;
	double one, two;

	if (!text || ptx_module_load(text, strlen(text), &module, &err)) {
		fprintf(stderr, "ptx_speed: %s: %s\n", b->kernel, text ? err.text : "cannot be read");
		return 1;
	}
	for (unsigned i = 0; i < 64; i++)
		addresses[i] = MEMORY_BASE + (60ull << 20) + i * 1024ull;
	ptx_module_place(module, addresses);
	job.launch = (struct ptx_launch){ .module = module,
					  .kernel = ptx_kernel_find(module, b->kernel),
					  .dynamic_shared_bytes = b->dynamic_bytes,
					  .params = params,
					  .sm_count = 1 };
	for (unsigned i = 0; i < 3; i++) {
		job.launch.grid[i] = b->grid[i] ? b->grid[i] : 1;
		job.launch.threads[i] = b->threads[i] ? b->threads[i] : 1;
	}
	pack_params(b, job.launch.kernel, params);
	one = measure(&job, 1, seconds);
	two = measure(&job, 2, seconds);
	if (job.failure)
		fprintf(stderr, "ptx_speed: %s: %s\n", b->kernel, job.failure);
	else
		printf("| %-24s | %8.0f | %8.0f | %5.2f | %5.2f |\n", b->kind, one / 1e6, two / 1e6,
		       two / one, (double)job.moved_bytes / (double)job.cost);
	ptx_module_free(module);
	return job.failure != NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 1.0;
	int status = 0;

	memory = aligned_alloc(4096, MEMORY_BYTES);
	if (!memory)
		return 1;
	printf("| kernel                   | one core | two      | scale | bytes |\n");
	printf("| ------------------------ | -------: | -------: | ----: | ----: |\n");
	for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
		status |= run_bench(&benches[i], seconds);
	printf("Millions of thread-instructions a second; bytes moved by one of them.\n");
	free(memory);
	return status;
}

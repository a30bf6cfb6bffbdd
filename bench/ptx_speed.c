/* ptx_speed [seconds]: thread-instructions a second of the PTX interpreter, by kind of kernel, on one core and on
 * two. Blocks of one launch are handed out to the threads one by one, as an engine would. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/own.h"
#include "soft/ptx/ptx.h"

#define MEMORY_BYTES (64u << 20)
#define MEMORY_BASE 0x700000000000ull
#define WORKERS_MAX 2

struct bench {
	const char *file; /* of tests/data/ptx, or NULL: the text below */
	const char *kernel;
	const char *kind;
	uint32_t grid[3];
	uint32_t threads[3];
	uint32_t dynamic_bytes;
	/* parameters: numbers, then 0x8000000000000000 | offset for device addresses; sizes as in the kernel */
	uint64_t params[10];
};

#define AT(megabytes) (0x8000000000000000ull | (uint64_t)(megabytes) << 20)

static const char loop_text[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry loop(.param .u32 n, .param .u64 out)\n{\n"
	".reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n.reg .pred %p;\n"
	"ld.param.u32 %r0, [n];\nld.param.u64 %rd0, [out];\nmov.u32 %r1, %tid.x;\n"
	"mov.u32 %r2, 0;\nmov.u32 %r3, 1;\n"
	"again:\nadd.s32 %r3, %r3, %r1;\nxor.b32 %r4, %r3, %r2;\nshl.b32 %r5, %r4, 3;\n"
	"mad.lo.s32 %r3, %r5, 5, %r4;\nshr.u32 %r6, %r3, 7;\nsub.s32 %r3, %r3, %r6;\n"
	"add.s32 %r2, %r2, 1;\nsetp.lt.u32 %p, %r2, %r0;\n@%p bra again;\n"
	"mad.wide.u32 %rd1, %r1, 4, %rd0;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";

static const struct bench benches[] = {
	{ NULL, "loop", "integer loop", { 64 }, { 256 }, 0, { 1000, AT(0) } },
	{ "vector", "saxpy", "saxpy", { 4096 }, { 256 }, 0, { 1 << 20, 0x40200000, AT(0), AT(16) } },
	{ "vector", "half_axpy", "half axpy", { 1024 }, { 256 }, 0, { 1 << 18, 0x3c00, AT(0), AT(16) } },
	{ "matrix",
	  "gemm",
	  "tiled GEMM f32",
	  { 8, 8 },
	  { 16, 16 },
	  0,
	  { 128, 128, 128, AT(0), AT(8), AT(16) } },
	{ "matrix", "matvec", "matrix-vector f64", { 16 }, { 64 }, 0, { 1024, 512, AT(0), AT(16), AT(24) } },
	{ "matrix", "transpose", "transpose", { 16, 16 }, { 32, 8 }, 0, { 512, 512, AT(0), AT(16) } },
	{ "block", "reduce_shared", "reduction, shared", { 1024 }, { 256 }, 0, { 1 << 18, AT(0), AT(32) } },
	{ "block",
	  "reduce_shuffle",
	  "reduction, shuffles",
	  { 1024 },
	  { 256 },
	  0,
	  { 1 << 18, AT(0), AT(32) } },
	{ "block", "bitonic", "bitonic sort", { 64 }, { 128 }, 0, { AT(0) } },
	{ "block", "histogram", "histogram, atomics", { 64 }, { 256 }, 0, { 1 << 20, AT(0), AT(32) } },
	{ "block", "fft", "FFT", { 512 }, { 128 }, 0, { AT(32), AT(0) } },
	{ "words", "sha256", "SHA-256", { 64 }, { 128 }, 0, { 8192, AT(0), AT(16) } },
	{ "words", "crc32", "CRC-32", { 32 }, { 128 }, 0, { 4096, 64, AT(0), AT(16) } },
	{ "words",
	  "modpow",
	  "64-bit modular power",
	  { 4 },
	  { 128 },
	  0,
	  { 512, AT(1), AT(2), 1000000007, AT(16) } },
	{ "grid",
	  "mandelbrot",
	  "Mandelbrot (divergent)",
	  { 16, 16 },
	  { 16, 16 },
	  0,
	  { 256, 256, 200, AT(0) } },
	{ "grid", "stencil2d", "stencil f32", { 32, 64 }, { 32, 8 }, 0, { 1024, 512, AT(0), AT(16) } },
	{ "grid", "nbody", "n-body", { 16 }, { 64 }, 0, { 1024, AT(0), AT(16) } },
	{ "grid", "monte_carlo", "Monte Carlo", { 64 }, { 256 }, 0, { 200, AT(0) } },
	{ "net",
	  "attention",
	  "attention f32",
	  { 4, 64 },
	  { 64 },
	  0,
	  { 64, 4, AT(0), AT(8), AT(16), AT(24) } },
	{ "net", "softmax", "softmax", { 256 }, { 128 }, 0, { 1024, 128, AT(0), AT(16) } },
};

struct job {
	const struct bench *bench;
	struct ptx_launch launch;
	struct ptx_host host;
	uint32_t next;
	uint32_t stop;
	uint64_t cost;
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
	uint64_t cost = 0;

	if (ptx_block_create(&job->launch, &job->host, &block, NULL)) {
		job->failure = "cannot be launched";
		return NULL;
	}
	while (!__atomic_load_n(&job->stop, __ATOMIC_RELAXED)) {
		uint32_t n = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
		uint32_t index[3] = { n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1] % grid[2] };

		ptx_block_start(block, index, 0);
		if (ptx_block_run(block, 0, &job->stop, &cost) == PTX_STATE_FAULT) {
			job->failure = ptx_fault_name(ptx_block_fault(block)->kind);
			break;
		}
	}
	__atomic_fetch_add(&job->cost, cost, __ATOMIC_RELAXED);
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
	job->cost = 0;
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
		printf("| %-24s | %8.0f | %8.0f | %5.2f |\n", b->kind, one / 1e6, two / 1e6, two / one);
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
	printf("| kernel                   | one core | two      | scale |\n");
	printf("| ------------------------ | -------: | -------: | ----: |\n");
	for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
		status |= run_bench(&benches[i], seconds);
	printf("Millions of thread-instructions a second.\n");
	free(memory);
	return status;
}

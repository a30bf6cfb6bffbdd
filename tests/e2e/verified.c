/* verified WAY: a program for belfry verify, which computes on two streams, from two threads and with a graph. WAY is one of
 *   steady   it does the same in every run, and takes its grid from the number of SMs
 *   clock    the result is the GPU's clock
 *   floats   the result depends on the order of atomic additions of floats
 *   vary     a parameter that no result depends on is the time
 *   seldom F such a parameter is the number of runs so far, from the third run on; F counts the runs
 *   reused   memory that is not pinned is used for something else right after an asynchronous copy
 *   told     a parameter depends on whether the run is shared
 *   stored   a global variable does, and nothing else
 *   fails    the exit status does
 *   killed   it kills itself after its work
 *   many N   N launches */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda/api.h"

enum { COUNT = 4096, THREADS = 64, STEPS = 5, SUMS = 8 };

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 steps_done;\n"
	/* array[i] = array[i] * 1664525 + k, for all i; `unused` is not used */
	".visible .entry step(.param .u64 array, .param .u32 count, .param .u32 k, .param .u64 unused)\n{\n"
	"	.reg .u32 %r<9>;\n	.reg .u64 %d<4>;\n	.reg .pred %p<2>;\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mov.u32 %r4, %nctaid.x;\n	mul.lo.u32 %r4, %r4, %r2;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n"
	"	ld.param.u64 %d1, [array];\n	ld.param.u32 %r5, [count];\n	ld.param.u32 %r6, [k];\n"
	"	setp.ne.u32 %p1, %r1, 0;\n	@%p1 bra again;\n"
	"	mov.u64 %d2, steps_done;\n	atom.global.add.u32 %r7, [%d2], 1;\n"
	"again:\n"
	"	setp.ge.u32 %p1, %r1, %r5;\n	@%p1 bra done;\n"
	"	mul.wide.u32 %d2, %r1, 4;\n	add.u64 %d2, %d2, %d1;\n"
	"	ld.global.u32 %r7, [%d2];\n	mad.lo.u32 %r7, %r7, 1664525, %r6;\n	st.global.u32 [%d2], %r7;\n"
	"	add.u32 %r1, %r1, %r4;\n	bra again;\n"
	"done:\n	ret;\n}\n"
	".visible .entry tell_time(.param .u64 to)\n{\n"
	"	.reg .u64 %d<3>;\n	ld.param.u64 %d1, [to];\n	mov.u64 %d2, %globaltimer;\n"
	"	st.global.u64 [%d1], %d2;\n	ret;\n}\n"
	/* *to += 1 / (thread + 1), in all blocks, in the order in which they come */
	".visible .entry sum_floats(.param .u64 to)\n{\n"
	"	.reg .u32 %r<5>;\n	.reg .u64 %d<2>;\n	.reg .f32 %f<4>;\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n	add.u32 %r1, %r1, 1;\n"
	"	cvt.rn.f32.u32 %f1, %r1;\n	rcp.rn.f32 %f2, %f1;\n"
	"	ld.param.u64 %d1, [to];\n	atom.global.add.f32 %f3, [%d1], %f2;\n	ret;\n}\n";

/* clang-format off */
#define FUNCTIONS(f) \
	f(cuInit) f(cuDeviceGet) f(cuDeviceGetAttribute) f(cuDevicePrimaryCtxRetain) \
	f(cuCtxSetCurrent) f(cuModuleLoadData) f(cuModuleGetFunction) f(cuMemAlloc_v2) \
	f(cuMemFree_v2) f(cuMemsetD32_v2) f(cuLaunchKernel) f(cuMemcpyDtoH_v2) \
	f(cuMemcpyDtoHAsync_v2) f(cuMemcpyHtoD_v2) f(cuMemHostAlloc) f(cuStreamCreate) \
	f(cuStreamSynchronize) f(cuStreamBeginCapture_v2) f(cuStreamEndCapture) f(cuGraphInstantiateWithFlags) \
	f(cuGraphLaunch) f(cuCtxSynchronize) f(cuMemcpy2D_v2) f(cuModuleGetGlobal_v2)
/* clang-format on */
#define MEMBER(name) __typeof__(&name) name;
static struct {
	FUNCTIONS(MEMBER)
} cuda;

static const char *way;
static CUcontext context;
static CUmodule module;
static int sms;
static uint64_t runs_before;

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)result);
	exit(1);
}
#define CHECK(function, ...) check(cuda.function(__VA_ARGS__), #function)

static void find(void *library, const char *name, void *to)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "%s: not there\n", name);
		exit(1);
	}
	memcpy(to, &function, sizeof(function));
}

static void open_gpu(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define FIND(name) find(library, #name, &cuda.name);
	FUNCTIONS(FIND)
	CHECK(cuInit, 0);
	CHECK(cuDeviceGet, &device, 0);
	CHECK(cuDeviceGetAttribute, &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	CHECK(cuDevicePrimaryCtxRetain, &context, device);
	CHECK(cuCtxSetCurrent, context);
	CHECK(cuModuleLoadData, &module, ptx);
}

static bool is_way(const char *name)
{
	return !strcmp(way, name);
}

static bool is_shared(void)
{
	return getenv("BELFRY_CORO_SHUFFLE") != NULL;
}

static CUfunction function(const char *name)
{
	CUfunction found;

	CHECK(cuModuleGetFunction, &found, module, name);
	return found;
}

static void step(CUdeviceptr array, unsigned k, CUstream stream)
{
	uint64_t unused = is_way("vary") ? (uint64_t)time(NULL) ^ (uint64_t)getpid() << 40 : runs_before;
	unsigned count = COUNT;
	void *parameters[] = { &array, &count, &k, &unused };

	CHECK(cuLaunchKernel, function("step"), (unsigned)sms, 1, 1, THREADS, 1, 1, 0, stream, parameters,
	      NULL);
}

/* The other streams do not wait for the default stream. */
static CUdeviceptr new_array(void)
{
	CUdeviceptr array;

	CHECK(cuMemAlloc_v2, &array, COUNT * sizeof(unsigned));
	CHECK(cuMemsetD32_v2, array, 1, COUNT);
	CHECK(cuStreamSynchronize, NULL);
	return array;
}

/* Steps on a stream, and again as a graph. The result is copied on the stream, and then by rows. */
static void *work(void *number)
{
	unsigned base = *(unsigned *)number;
	CUdeviceptr array;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	void *result;

	CHECK(cuCtxSetCurrent, context);
	array = new_array();
	CHECK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	CHECK(cuMemHostAlloc, &result, COUNT * sizeof(unsigned), 0);
	CHECK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	step(array, base + 100, stream);
	CHECK(cuMemcpyDtoHAsync_v2, result, array, COUNT * sizeof(unsigned), stream);
	CHECK(cuStreamEndCapture, stream, &graph);
	CHECK(cuGraphInstantiateWithFlags, &exec, graph, 0);
	for (unsigned i = 0; i < STEPS; i++) {
		step(array, base + i, stream);
		CHECK(cuGraphLaunch, exec, stream);
		CHECK(cuMemcpyDtoHAsync_v2, result, array, COUNT * sizeof(unsigned), stream);
	}
	CHECK(cuStreamSynchronize, stream);
	CHECK(cuMemcpy2D_v2, &(CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					       .srcDevice = array,
					       .srcPitch = 256,
					       .dstMemoryType = CU_MEMORYTYPE_HOST,
					       .dstHost = result,
					       .dstPitch = 128,
					       .WidthInBytes = 100,
					       .Height = 7 });
	return NULL;
}

static void work_in_threads(void)
{
	unsigned numbers[] = { 1000, 2000 };
	pthread_t threads[2];

	for (size_t i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, &numbers[i]))
			exit(1);
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* A kernel whose one parameter is where its result goes. */
static void run_one(const char *name, unsigned grid)
{
	CUdeviceptr to = new_array();
	void *parameters[] = { &to };
	uint64_t result;

	CHECK(cuLaunchKernel, function(name), grid, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL);
	CHECK(cuMemcpyDtoH_v2, &result, to, sizeof(result));
	CHECK(cuMemFree_v2, to);
}

static void reuse(void)
{
	static unsigned buffer[COUNT];
	CUdeviceptr array = new_array();

	for (unsigned i = 0; i < STEPS; i++) {
		step(array, i, NULL);
		CHECK(cuMemcpyDtoHAsync_v2, buffer, array, sizeof(buffer), NULL);
		memset(buffer, getpid() & 0xff, sizeof(buffer));
	}
}

static void launch_many(const char *count)
{
	CUdeviceptr array = new_array();
	unsigned result;

	sms = 2;
	for (long i = 0, most = atol(count); i < most; i++)
		step(array, (unsigned)i, NULL);
	CHECK(cuMemcpyDtoH_v2, &result, array, sizeof(result));
}

static void store(unsigned value)
{
	CUdeviceptr steps_done;

	CHECK(cuModuleGetGlobal_v2, &steps_done, NULL, module, "steps_done");
	CHECK(cuMemcpyHtoD_v2, steps_done, &value, sizeof(value));
}

/* The file has a byte for each run. */
static void count_run(const char *path)
{
	FILE *file = fopen(path, "a");
	long before;

	if (!file || fseek(file, 0, SEEK_END) || (before = ftell(file)) < 0 || fputc('r', file) == EOF ||
	    fclose(file)) {
		fprintf(stderr, "%s: not counted\n", path);
		exit(1);
	}
	runs_before = before < 2 ? 0 : (uint64_t)before;
}

int main(int argc, char **argv)
{
	way = argc > 1 ? argv[1] : "steady";
	if (is_way("seldom") && argc > 2)
		count_run(argv[2]);
	open_gpu();
	if (is_way("clock"))
		run_one("tell_time", 1);
	else if (is_way("floats"))
		for (unsigned i = 0; i < SUMS; i++)
			run_one("sum_floats", 200);
	else if (is_way("many"))
		launch_many(argc > 2 ? argv[2] : "1");
	else
		work_in_threads();
	if (is_way("reused"))
		reuse();
	if (is_way("told"))
		step(new_array(), is_shared(), NULL);
	if (is_way("stored"))
		store(is_shared());
	check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
	printf("done\n");
	fflush(stdout);
	if (is_way("killed"))
		raise(SIGKILL);
	return is_way("fails") && is_shared() ? 5 : 0;
}

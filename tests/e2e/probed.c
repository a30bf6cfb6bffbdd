/* probed: carries out commands of its standard input, one a line, and prints a line for each. For tests of probes: how modules
 * are loaded, how often kernels run, and how the process ends. "ok", a result, or "failed CODE" is the answer.
 *
 *	data, ex, library	load the PTX of this program
 *	file PATH, libfile PATH	load a file
 *	fat PATH		load a file's content by cuModuleLoadFatBinary
 *	image PATH		load a file's content by cuModuleLoadData
 *	link			link the PTX of this program, and load the result
 *	launch KERNEL BLOCKS THREADS TIMES
 *	capture			launch step once in a graph that is being captured; the next commands run in the capture
 *	captured		end the capture and launch the graph
 *	delayed MS		launch step behind a function of the host that takes so long, and none on another stream
 *	delayed_graph MS	the same with a graph that has step
 *	threads COUNT TIMES	launch step so often in each of so many threads, each on a stream of its own
 *	result			a hash of the array
 *	context			destroy the context, and make another one
 *	linger PATH		when the process exits, after the library: wait until there is such a file
 *	log			load PTX that the driver refuses, with a buffer for the reason: its size, its length
 *	retain, release		a reference to the primary context of the device
 *	leave			_exit */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/api.h"

enum { COUNT = 4096 };

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry step(.param .u64 array)\n{\n"
	"	.reg .u32 %r<5>;\n	.reg .u64 %rd<3>;\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n	and.b32 %r1, %r1, 4095;\n"
	"	ld.param.u64 %rd1, [array];\n	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mul.wide.u32 %rd2, %r1, 4;\n	add.u64 %rd1, %rd1, %rd2;\n"
	"	ld.global.u32 %r4, [%rd1];\n	mad.lo.u32 %r4, %r4, 1664525, %r1;\n"
	"	add.u32 %r4, %r4, 1013904223;\n	st.global.u32 [%rd1], %r4;\n	ret;\n}\n"
	".visible .entry none(.param .u64 array)\n{\n	ret;\n}\n";

static void *cuda;
static CUcontext context;
static CUdeviceptr array;
static CUmodule module;
static CUlibrary library;
static CUstream stream;

static uintptr_t function_of(const char *name)
{
	void *function = dlsym(cuda, name);

	if (!function) {
		fprintf(stderr, "probed: no %s\n", name);
		exit(2);
	}
	return (uintptr_t)function;
}

#define FUNCTION(name) ((__typeof__(&name))function_of(#name))
#define CALL(name, ...) FUNCTION(name)(__VA_ARGS__)

static CUresult begin(void)
{
	CUresult result = CALL(cuCtxCreate_v2, &context, 0, 0);

	if (!result)
		result = CALL(cuMemAlloc_v2, &array, sizeof(uint32_t) * COUNT);
	if (!result)
		result = CALL(cuMemsetD32_v2, array, 7, COUNT);
	return result ? result : CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
}

/* Until the next call: the driver copies what it loads. */
static char *content(const char *path)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "r");

	memset(bytes, 0, sizeof(bytes));
	if (!file || !fread(bytes, 1, sizeof(bytes) - 1, file))
		exit(2);
	fclose(file);
	return bytes;
}

static CUresult link_text(void)
{
	CUlinkState state;
	void *made;
	size_t size;
	CUresult result = CALL(cuLinkCreate_v2, 0, NULL, NULL, &state);

	if (!result)
		result = CALL(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)text, sizeof(text), "text",
			      0, NULL, NULL);
	if (!result)
		result = CALL(cuLinkComplete, state, &made, &size);
	return result ? result : CALL(cuModuleLoadData, &module, made);
}

static CUresult load(const char *how, const char *path)
{
	library = NULL;
	if (!strcmp(how, "data"))
		return CALL(cuModuleLoadData, &module, text);
	if (!strcmp(how, "ex"))
		return CALL(cuModuleLoadDataEx, &module, text, 0, NULL, NULL);
	if (!strcmp(how, "library"))
		return CALL(cuLibraryLoadData, &library, text, NULL, NULL, 0, NULL, NULL, 0);
	if (!strcmp(how, "file"))
		return CALL(cuModuleLoad, &module, path);
	if (!strcmp(how, "libfile"))
		return CALL(cuLibraryLoadFromFile, &library, path, NULL, NULL, 0, NULL, NULL, 0);
	if (!strcmp(how, "fat"))
		return CALL(cuModuleLoadFatBinary, &module, content(path));
	if (!strcmp(how, "image"))
		return CALL(cuModuleLoadData, &module, content(path));
	if (!strcmp(how, "link"))
		return link_text();
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult find(const char *name, CUfunction *function)
{
	CUkernel kernel;
	CUresult result;

	if (!library)
		return CALL(cuModuleGetFunction, function, module, name);
	result = CALL(cuLibraryGetKernel, &kernel, library, name);
	*function = (CUfunction)kernel;
	return result;
}

static CUresult launch(const char *kernel, unsigned blocks, unsigned threads, unsigned times)
{
	void *arguments[] = { &array };
	CUfunction function;
	CUresult result = find(kernel, &function);

	for (unsigned i = 0; !result && i < times; i++)
		result = CALL(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments,
			      NULL);
	return result;
}

static CUresult print_result(void)
{
	static uint32_t values[COUNT];
	uint64_t hash = 0xcbf29ce484222325ull;
	CUresult result = FUNCTION(cuCtxSynchronize)();

	if (!result)
		result = CALL(cuMemcpyDtoH_v2, values, array, sizeof(values));
	for (unsigned i = 0; i < COUNT; i++)
		hash = (hash ^ values[i]) * 0x100000001b3ull;
	printf("%016" PRIx64 " ", hash);
	return result;
}

static CUresult end_capture(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUresult result = CALL(cuStreamEndCapture, stream, &graph);

	if (!result)
		result = CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	if (!result)
		result = CALL(cuGraphLaunch, exec, stream);
	return result ? result : CALL(cuStreamSynchronize, stream);
}

/* A function of the host that takes `ms` from when what is behind it was submitted. */
struct host_pause {
	unsigned ms;
	sem_t submitted;
};

static void pause_host(void *data)
{
	struct host_pause *host_pause = data;

	while (sem_wait(&host_pause->submitted))
		;
	usleep(1000 * host_pause->ms);
}

static CUresult launch_on(CUstream on, const char *kernel, unsigned times)
{
	void *arguments[] = { &array };
	CUfunction function;
	CUresult result = find(kernel, &function);

	for (unsigned i = 0; !result && i < times; i++)
		result = CALL(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, on, arguments, NULL);
	return result;
}

static CUresult make_graph(CUgraphExec *exec)
{
	CUgraph graph;
	CUresult result = CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);

	if (!result)
		result = launch_on(stream, "step", 1);
	if (!result)
		result = CALL(cuStreamEndCapture, stream, &graph);
	return result ? result : CALL(cuGraphInstantiateWithFlags, exec, graph, 0);
}

static CUresult launch_delayed(bool is_graph, unsigned ms)
{
	CUstream other;
	CUgraphExec exec = NULL;
	CUresult result = CALL(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
	struct host_pause host_pause = { .ms = ms };

	if (!result && is_graph)
		result = make_graph(&exec);
	sem_init(&host_pause.submitted, 0, 0);
	if (!result)
		result = CALL(cuLaunchHostFunc, stream, pause_host, &host_pause);
	if (!result)
		result = is_graph ? CALL(cuGraphLaunch, exec, stream) : launch_on(stream, "step", 1);
	sem_post(&host_pause.submitted);
	if (!result)
		result = launch_on(other, "none", 1);
	if (!result)
		result = CALL(cuStreamSynchronize, other);
	if (!result)
		result = CALL(cuStreamSynchronize, stream);
	return result;
}

static unsigned thread_launches;

static void *thread_launch(void *failed)
{
	CUstream own;

	*(CUresult *)failed = CALL(cuCtxSetCurrent, context);
	if (!*(CUresult *)failed)
		*(CUresult *)failed = CALL(cuStreamCreate, &own, CU_STREAM_NON_BLOCKING);
	if (!*(CUresult *)failed)
		*(CUresult *)failed = launch_on(own, "step", thread_launches);
	if (!*(CUresult *)failed)
		*(CUresult *)failed = CALL(cuStreamSynchronize, own);
	return NULL;
}

static CUresult launch_threads(unsigned count)
{
	pthread_t threads[64];
	CUresult failed[64] = { 0 }, result = 0;

	for (unsigned i = 0; i < count && i < 64; i++)
		if (pthread_create(&threads[i], NULL, thread_launch, &failed[i]))
			exit(2);
	for (unsigned i = 0; i < count && i < 64; i++) {
		pthread_join(threads[i], NULL);
		result = result ? result : failed[i];
	}
	return result;
}

static char linger[256];

/* Registered before CUDA is initialized, so it is called after what the library has registered. */
static void wait_for_file(void)
{
	while (linger[0] && access(linger, F_OK))
		usleep(10000);
}

static CUresult print_log(void)
{
	/* Before the place of a probe, so that the reason has the same line with a probe. */
	static const char bad[] =
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .entry step(.param .u64 array)\n{\n	.reg .frob %r1;\n	ret;\n}\n";
	char log[1024] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUmodule none;

	if (!CALL(cuModuleLoadDataEx, &none, bad, 2, options, values))
		return CUDA_ERROR_UNKNOWN;
	printf("%u %zu ", (unsigned)(uintptr_t)values[1], strlen(log));
	return CUDA_SUCCESS;
}

static CUresult obey(const char *line)
{
	char word[16] = "", argument[256] = "";
	unsigned blocks = 1, threads = 1, times = 1;
	CUresult result;

	sscanf(line, "%15s %255s %u %u %u", word, argument, &blocks, &threads, &times);
	if (!strcmp(word, "launch")) {
		result = launch(argument, blocks, threads, times);
		return result ? result : CALL(cuStreamSynchronize, stream);
	}
	if (!strcmp(word, "result"))
		return print_result();
	if (!strcmp(word, "capture")) {
		result = CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
		return result ? result : launch("step", 1, 32, 1);
	}
	if (!strcmp(word, "captured"))
		return end_capture();
	if (!strncmp(word, "delayed", 7))
		return launch_delayed(!strcmp(word, "delayed_graph"), (unsigned)strtoul(argument, NULL, 10));
	if (!strcmp(word, "threads")) {
		thread_launches = blocks;
		return launch_threads((unsigned)strtoul(argument, NULL, 10));
	}
	if (!strcmp(word, "context")) {
		result = CALL(cuCtxDestroy_v2, context);
		return result ? result : begin();
	}
	if (!strcmp(word, "linger")) {
		snprintf(linger, sizeof(linger), "%s", argument);
		return CUDA_SUCCESS;
	}
	if (!strcmp(word, "log"))
		return print_log();
	if (!strcmp(word, "retain"))
		return CALL(cuDevicePrimaryCtxRetain, &(CUcontext){ NULL }, 0);
	if (!strcmp(word, "release"))
		return CALL(cuDevicePrimaryCtxRelease_v2, 0);
	if (!strcmp(word, "leave"))
		_exit(0);
	return load(word, argument);
}

int main(void)
{
	char line[512];
	CUresult result;

	atexit(wait_for_file);
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda || CALL(cuInit, 0) || begin()) {
		fprintf(stderr, "probed: no GPU\n");
		return 1;
	}
	printf("ok\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		result = obey(line);
		printf(result ? "failed %d\n" : "ok\n", result);
		fflush(stdout);
	}
	return 0;
}

/* sums READY END: launches a kernel again and again on an array, until the file END is there, and checks the array
 * against the same steps on the processor. The file READY is made after the first step. Prints "steps N wrong N". */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 4096, THREADS = 128, STEP_US = 2000 };

static const char kernel[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry step(.param .u64 array)\n{\n"
	"	.reg .u32 %r<5>;\n	.reg .u64 %rd<3>;\n"
	"	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, %ntid.x;\n	mov.u32 %r3, %tid.x;\n"
	"	mad.lo.u32 %r1, %r1, %r2, %r3;\n"
	"	ld.param.u64 %rd1, [array];\n	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mul.wide.u32 %rd2, %r1, 4;\n	add.u64 %rd1, %rd1, %rd2;\n"
	"	ld.global.u32 %r4, [%rd1];\n	mad.lo.u32 %r4, %r4, 1664525, %r1;\n"
	"	add.u32 %r4, %r4, 1013904223;\n	st.global.u32 [%rd1], %r4;\n	ret;\n}\n";

static void *cuda;

static void *find(const char *name)
{
	void *function = dlsym(cuda, name);

	if (!function) {
		fprintf(stderr, "%s: not there\n", name);
		exit(1);
	}
	return function;
}

static void check(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s: %d\n", what, result);
	exit(1);
}

struct gpu {
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
		      void **, void **);
	int (*synchronize)(void);
	int (*copy_back)(void *, uint64_t, size_t);
	void *function;
	uint64_t array;
};

static void gpu_open(struct gpu *gpu)
{
	int (*init)(unsigned), (*context_new)(void **, unsigned, int), (*load)(void **, const void *),
		(*get)(void **, void *, const char *), (*alloc)(uint64_t *, size_t),
		(*fill)(uint64_t, unsigned, size_t);
	void *context, *module;

	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&init = find("cuInit");
	*(void **)&context_new = find("cuCtxCreate_v2");
	*(void **)&load = find("cuModuleLoadData");
	*(void **)&get = find("cuModuleGetFunction");
	*(void **)&alloc = find("cuMemAlloc_v2");
	*(void **)&fill = find("cuMemsetD32_v2");
	*(void **)&gpu->launch = find("cuLaunchKernel");
	*(void **)&gpu->synchronize = find("cuCtxSynchronize");
	*(void **)&gpu->copy_back = find("cuMemcpyDtoH_v2");
	check(init(0), "cuInit");
	check(context_new(&context, 0, 0), "cuCtxCreate");
	check(load(&module, kernel), "cuModuleLoadData");
	check(get(&gpu->function, module, "step"), "cuModuleGetFunction");
	check(alloc(&gpu->array, COUNT * sizeof(uint32_t)), "cuMemAlloc");
	check(fill(gpu->array, 0, COUNT), "cuMemsetD32");
}

static void gpu_step(struct gpu *gpu)
{
	void *arguments[] = { &gpu->array };

	check(gpu->launch(gpu->function, COUNT / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL),
	      "cuLaunchKernel");
	check(gpu->synchronize(), "cuCtxSynchronize");
}

int main(int argc, char **argv)
{
	static uint32_t wanted[COUNT], got[COUNT];
	struct gpu gpu;
	unsigned steps = 0, wrong = 0;

	if (argc != 3)
		return 2;
	gpu_open(&gpu);
	do {
		gpu_step(&gpu);
		for (uint32_t i = 0; i < COUNT; i++)
			wanted[i] = wanted[i] * 1664525u + i + 1013904223u;
		if (!steps++)
			close(open(argv[1], O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
		usleep(STEP_US);
	} while (access(argv[2], F_OK));
	check(gpu.copy_back(got, gpu.array, sizeof(got)), "cuMemcpyDtoH");
	for (unsigned i = 0; i < COUNT; i++)
		wrong += got[i] != wanted[i];
	printf("steps %u wrong %u\n", steps, wrong);
	return wrong != 0;
}

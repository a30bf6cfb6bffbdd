/* What belfry verify runs inside a vGPU: the program, behind the library that writes its trace, and the load of a neighbour. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/front.h"
#include "cli/verify.h"
#include "cuda/api.h"

enum {
	BLOCK = 128,
	KERNEL_LEAST_US = 1000, /* a kernel of a neighbour; it is made longer until it takes this */
	ROUNDS_FIRST = 16,
	ROUNDS_MOST = 1 << 20,
	WORDS = 1 << 20, /* of device memory */
};

/* A run in which this file is missing was refused: what belfry run returned is not the program's exit status. */
static int verify_mark_begun(struct bf_error *err)
{
	char path[PATH_MAX];
	int file;

	snprintf(path, sizeof(path), "%s/" VERIFY_BEGUN,
		 getenv("BELFRY_TRACE") ? getenv("BELFRY_TRACE") : ".");
	file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		return bf_fail(err, errno, "%.300s: %s", path, strerror(errno));
	close(file);
	return 0;
}

/* Addresses of the host are the same in every run, as far as the kernel can see to it. */
int verify_inside(char **program)
{
	struct bf_error err = { 0 };
	int why;

	if (front_use(&err) || verify_mark_begun(&err))
		return cli_fail(&err);
	personality(ADDR_NO_RANDOMIZE);
	execvp(program[0], program);
	why = errno;
	bf_fail(&err, why, "%.300s: %s", program[0], strerror(why));
	cli_fail(&err);
	return why == ENOENT ? CLI_NOT_FOUND : CLI_NOT_EXECUTABLE;
}

/* Reads and writes memory all over a buffer, and computes. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry load(.param .u64 words, .param .u32 rounds)\n"
			  "{\n"
			  "	.reg .u32 %r<8>;\n"
			  "	.reg .u64 %d<4>;\n"
			  "	.reg .pred %p;\n"
			  "	ld.param.u64 %d1, [words];\n"
			  "	ld.param.u32 %r1, [rounds];\n"
			  "	mov.u32 %r2, %ctaid.x;\n"
			  "	mov.u32 %r3, %tid.x;\n"
			  "	mad.lo.u32 %r4, %r2, 128, %r3;\n"
			  "again:\n"
			  "	mad.lo.u32 %r4, %r4, 1664525, 1013904223;\n"
			  "	shr.u32 %r5, %r4, 12;\n"
			  "	mul.wide.u32 %d2, %r5, 4;\n"
			  "	add.u64 %d3, %d1, %d2;\n"
			  "	ld.global.u32 %r6, [%d3];\n"
			  "	add.u32 %r6, %r6, %r4;\n"
			  "	st.global.u32 [%d3], %r6;\n"
			  "	sub.u32 %r1, %r1, 1;\n"
			  "	setp.ne.u32 %p, %r1, 0;\n"
			  "	@%p bra again;\n"
			  "	ret;\n"
			  "}\n";

/* The functions that a load uses. belfry itself is not linked to libcuda.so.1. */
static struct {
	__typeof__(&cuInit) init;
	__typeof__(&cuDeviceGet) device_get;
	__typeof__(&cuDeviceGetAttribute) device_get_attribute;
	__typeof__(&cuDevicePrimaryCtxRetain) retain;
	__typeof__(&cuCtxSetCurrent) set_current;
	__typeof__(&cuModuleLoadData) module_load;
	__typeof__(&cuModuleGetFunction) get_function;
	__typeof__(&cuMemAlloc_v2) alloc;
	__typeof__(&cuLaunchKernel) launch;
	__typeof__(&cuCtxSynchronize) synchronize;
} cuda;

static int find_functions(struct bf_error *err)
{
	static const struct {
		const char *name;
		void *to;
	} all[] = {
		{ "cuInit", &cuda.init },
		{ "cuDeviceGet", &cuda.device_get },
		{ "cuDeviceGetAttribute", &cuda.device_get_attribute },
		{ "cuDevicePrimaryCtxRetain", &cuda.retain },
		{ "cuCtxSetCurrent", &cuda.set_current },
		{ "cuModuleLoadData", &cuda.module_load },
		{ "cuModuleGetFunction", &cuda.get_function },
		{ "cuMemAlloc_v2", &cuda.alloc },
		{ "cuLaunchKernel", &cuda.launch },
		{ "cuCtxSynchronize", &cuda.synchronize },
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return bf_fail(err, ENOENT, "%.300s", dlerror());
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		void *function = dlsym(library, all[i].name);

		if (!function)
			return bf_fail(err, ENOENT, "libcuda.so.1 has no %s", all[i].name);
		memcpy(all[i].to, &function, sizeof(function));
	}
	return 0;
}

struct load {
	CUfunction function;
	CUdeviceptr words;
	unsigned grid, rounds;
};

static CUresult prepare(struct load *load)
{
	CUcontext context;
	CUmodule module;
	CUdevice device;
	CUresult result;
	int sms = 1;

	if ((result = cuda.init(0)) || (result = cuda.device_get(&device, 0)) ||
	    (result = cuda.device_get_attribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) ||
	    (result = cuda.retain(&context, device)) || (result = cuda.set_current(context)) ||
	    (result = cuda.module_load(&module, ptx)) ||
	    (result = cuda.get_function(&load->function, module, "load")))
		return result;
	load->grid = (unsigned)sms;
	load->rounds = ROUNDS_FIRST;
	return cuda.alloc(&load->words, WORDS * sizeof(uint32_t));
}

static CUresult launch(struct load *load)
{
	void *parameters[] = { &load->words, &load->rounds };
	uint64_t begun = bf_now_ns();
	CUresult result =
		cuda.launch(load->function, load->grid, 1, 1, BLOCK, 1, 1, 0, NULL, parameters, NULL);

	if (!result)
		result = cuda.synchronize();
	if (bf_now_ns() - begun < KERNEL_LEAST_US * 1000ull && load->rounds < ROUNDS_MOST)
		load->rounds *= 2;
	return result;
}

/* The command that started the load has closed the pipe, or has ended. */
static bool is_wanted(void)
{
	struct pollfd output = { .fd = STDOUT_FILENO };

	return !poll(&output, 1, 0);
}

int verify_load(void)
{
	struct bf_error err = { 0 };
	struct load load = { 0 };
	CUresult result;

	if (find_functions(&err))
		return cli_fail(&err);
	result = prepare(&load);
	if (!result)
		result = launch(&load);
	if (!result && write(STDOUT_FILENO, "r", 1) != 1)
		return CLI_FAILED;
	while (!result && is_wanted())
		result = launch(&load);
	if (!result)
		return CLI_OK;
	bf_fail(&err, EIO, "the load beside the program: CUDA error %d", (int)result);
	return cli_fail(&err);
}

/* SPDX-License-Identifier: MIT */
#include "cu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cu_api cu;

static void skip(const char *why, const char *what)
{
	printf("skipped: %s: %s\n", why, what);
	exit(77);
}

static void *symbol_of(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		skip("libcuda.so.1 is too old", name);
	return symbol;
}

static void cu_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *symbol;

	if (!library)
		skip("no NVIDIA driver library", dlerror());
		/* memcpy: ISO C has no cast from an object pointer to a function pointer */
#define CU_RESOLVE(name, sym, params) \
	symbol = symbol_of(library, #sym); \
	memcpy(&cu.name, &symbol, sizeof(symbol));
	CU_FUNCTIONS(CU_RESOLVE)
#undef CU_RESOLVE
}

const char *cu_error(int result)
{
	const char *name = NULL;

	if (!cu.GetErrorName || cu.GetErrorName(result, &name) || !name)
		return "an unknown error";
	return name;
}

void cu_must(int result, const char *what, const char *file, int line)
{
	if (result == CU_SUCCESS)
		return;
	fflush(stdout);
	fprintf(stderr, "%s:%d: %s: %s (%d)\n", file, line, what, cu_error(result), result);
	exit(1);
}

void cu_open(void)
{
	void *context;
	int device, result;

	cu_load();
	result = cu.Init(0);
	/* 100: no device. Anything else, under supervision above all, is a failure and not a reason to
	 * skip. */
	if (result == 100)
		skip("no NVIDIA device", cu_error(result));
	CU_MUST(result);
	CU_MUST(cu.DeviceGet(&device, 0));
	CU_MUST(cu.DevicePrimaryCtxRetain(&context, device));
	CU_MUST(cu.CtxSetCurrent(context));
}

void *cu_kernel(const char *ptx, const char *name)
{
	void *module, *kernel;

	CU_MUST(cu.ModuleLoadData(&module, ptx));
	CU_MUST(cu.ModuleGetFunction(&kernel, module, name));
	return kernel;
}

int cu_launch(void *kernel, unsigned grid, unsigned block, void *stream, void **args)
{
	return cu.LaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, stream, args, NULL);
}

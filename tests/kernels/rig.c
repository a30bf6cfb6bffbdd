/* The kernels' tests (tests/unit/ptx_*.c) once more, through the CUDA driver API: on the software GPU, and on a real
 * one to see that it computes the same. Implements ptx_run.h on whatever libcuda.so.1 is found. */
#include "ptx_run.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"

enum {
	SKIP = 77,
	ATTACH_GLOBAL = 1,
	ERROR_ILLEGAL_ADDRESS = 700,
	ERROR_ASSERT = 710,
	ERROR_ILLEGAL_INSTRUCTION = 715,
	ERROR_MISALIGNED = 716,
	VARIABLE_MAX = 1 << 16,
};

/* What of the API is used; the results are CUresults. */
static struct {
	int (*cuInit)(unsigned);
	int (*cuCtxCreate_v2)(void **, unsigned, int);
	int (*cuCtxDestroy_v2)(void *);
	int (*cuCtxSynchronize)(void);
	int (*cuModuleLoadData)(void **, const void *);
	int (*cuModuleUnload)(void *);
	int (*cuModuleGetFunction)(void **, void *, const char *);
	int (*cuModuleGetGlobal_v2)(uint64_t *, size_t *, void *, const char *);
	int (*cuMemAllocManaged)(uint64_t *, size_t, unsigned);
	int (*cuMemFree_v2)(uint64_t);
	int (*cuMemcpyDtoH_v2)(void *, uint64_t, size_t);
	int (*cuMemcpyHtoD_v2)(uint64_t, const void *, size_t);
	int (*cuFuncSetAttribute)(void *, int, int);
	int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			      void *, void **, void **);
} cu;

/* The one rig that is open, and what the header has no room for. */
static struct {
	void *context, *module;
	struct {
		uint64_t address;
		size_t bytes;
		uint8_t *
			shadow; /* a module's variable is not the host's to touch: a copy, and back before a launch */
	} variables[RIG_SPANS];
	unsigned variable_count;
} now;

static void check(int result, const char *what)
{
	if (result)
		fail_msg("%s: CUDA error %d", what, result);
}
#define CU(call) check(cu.call, #call)

static void load_library(void)
{
	const char *const names[] = { "cuInit",
				      "cuCtxCreate_v2",
				      "cuCtxDestroy_v2",
				      "cuCtxSynchronize",
				      "cuModuleLoadData",
				      "cuModuleUnload",
				      "cuModuleGetFunction",
				      "cuModuleGetGlobal_v2",
				      "cuMemAllocManaged",
				      "cuMemFree_v2",
				      "cuMemcpyDtoH_v2",
				      "cuMemcpyHtoD_v2",
				      "cuFuncSetAttribute",
				      "cuLaunchKernel" };
	void *library = dlopen("libcuda.so.1", RTLD_NOW), **slots = (void **)&cu;

	if (!library) {
		fprintf(stderr, "no libcuda.so.1: skipped\n");
		exit(SKIP);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		slots[i] = dlsym(library, names[i]);
		if (!slots[i]) {
			fprintf(stderr, "libcuda.so.1 has no %s\n", names[i]);
			exit(1);
		}
	}
	if (cu.cuInit(0)) {
		fprintf(stderr, "no GPU: skipped\n");
		exit(SKIP);
	}
}

static void context_new(void)
{
	if (!cu.cuInit)
		load_library();
	if (!now.context)
		CU(cuCtxCreate_v2(&now.context, 0, 0));
}

uint64_t rig_alloc(struct rig *rig, size_t bytes, const void *data)
{
	struct ptx_span *s = &rig->spans[rig->span_count++];

	assert_true(rig->span_count <= RIG_SPANS);
	CU(cuMemAllocManaged(&s->base, bytes ? bytes : 1, ATTACH_GLOBAL));
	s->bytes = bytes;
	s->host = (uint8_t *)(uintptr_t)s->base; /* NOLINT(performance-no-int-to-ptr) */
	memset(s->host, 0, bytes);
	if (data)
		memcpy(s->host, data, bytes);
	return s->base;
}

void *rig_host(struct rig *rig, uint64_t address)
{
	for (unsigned i = 0; i < now.variable_count; i++)
		if (address - now.variables[i].address < now.variables[i].bytes)
			return now.variables[i].shadow + (address - now.variables[i].address);
	for (unsigned i = 0; i < rig->span_count; i++)
		if (address - rig->spans[i].base < rig->spans[i].bytes)
			return rig->spans[i].host + (address - rig->spans[i].base);
	fail_msg("%#llx: no such memory", (unsigned long long)address);
	return NULL;
}

void rig_open_text(struct rig *rig, const char *text)
{
	struct bf_error err = { 0 };

	memset(rig, 0, sizeof(*rig));
	context_new();
	if (ptx_module_load(text, strlen(text), &rig->module, &err)) /* for the sizes of parameters */
		fail_msg("%s in\n%s", err.text, text);
	CU(cuModuleLoadData(&now.module, text));
}

void rig_open(struct rig *rig, const char *name)
{
	const char *folder = getenv("BELFRY_TEST_DATA");
	char path[512];
	cleanup_free char *text = calloc(1, 1 << 20);
	cleanup_file FILE *file = NULL;

	snprintf(path, sizeof(path), "%s/ptx/%s.ptx", folder ? folder : BELFRY_TEST_DATA, name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(text);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	rig_open_text(rig, text);
}

void rig_close(struct rig *rig)
{
	for (unsigned i = 0; i < rig->span_count && now.context; i++)
		CU(cuMemFree_v2(rig->spans[i].base));
	if (now.context)
		CU(cuModuleUnload(now.module));
	for (unsigned i = 0; i < now.variable_count; i++)
		free(now.variables[i].shadow);
	now.variable_count = 0;
	ptx_module_free(rig->module);
}

uint64_t rig_variable(struct rig *rig, const char *name)
{
	uint64_t address;
	size_t bytes;

	(void)rig;
	CU(cuModuleGetGlobal_v2(&address, &bytes, now.module, name));
	for (unsigned i = 0; i < now.variable_count; i++)
		if (now.variables[i].address == address)
			return address;
	assert_true(now.variable_count < RIG_SPANS && bytes <= VARIABLE_MAX);
	now.variables[now.variable_count].address = address;
	now.variables[now.variable_count].bytes = bytes;
	now.variables[now.variable_count].shadow = malloc(bytes);
	assert_non_null(now.variables[now.variable_count].shadow);
	CU(cuMemcpyDtoH_v2(now.variables[now.variable_count++].shadow, address, bytes));
	return address;
}

static void exchange_variables(bool is_before)
{
	for (unsigned i = 0; i < now.variable_count; i++)
		if (is_before)
			CU(cuMemcpyHtoD_v2(now.variables[i].address, now.variables[i].shadow,
					   now.variables[i].bytes));
		else
			CU(cuMemcpyDtoH_v2(now.variables[i].shadow, now.variables[i].address,
					   now.variables[i].bytes));
}

/* Have a descriptor's output in a file for a while. */
static int divert(int fd, FILE *to)
{
	int old = dup(fd);

	fflush(NULL);
	dup2(fileno(to), fd);
	return old;
}

static void bring_back(int fd, int old, FILE *from, char *text, size_t room)
{
	size_t length;

	fflush(NULL);
	dup2(old, fd);
	close(old);
	rewind(from);
	length = fread(text, 1, room - 1, from);
	text[length] = 0;
}

static void note_fault(struct rig *rig, int result, const char *said)
{
	const char *thread = strstr(said, "thread: [");

	rig->fault.kind = result == ERROR_ASSERT	    ? PTX_FAULT_ASSERT
			  : result == ERROR_ILLEGAL_ADDRESS ? PTX_FAULT_ADDRESS
			  : result == ERROR_MISALIGNED	    ? PTX_FAULT_MISALIGNED
							    : PTX_FAULT_TRAP;
	snprintf(rig->fault.text, sizeof(rig->fault.text), "%.*s", (int)sizeof(rig->fault.text) - 1, said);
	if (thread)
		rig->fault.thread[0] = (uint32_t)strtoul(thread + strlen("thread: ["), NULL, 10);
	/* What the fault ended is ended for good: a new context for what comes. */
	cu.cuCtxDestroy_v2(now.context);
	now.context = NULL;
}

enum ptx_state rig_run(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params,
		       size_t bytes)
{
	const struct ptx_kernel *shown = ptx_kernel_find(rig->module, kernel);
	size_t size = shown ? shown->param_bytes : 0;
	void *function, *extra[] = { (void *)1, (void *)(uintptr_t)params, (void *)2, &size, NULL };
	cleanup_file FILE *out = tmpfile(), *errors = tmpfile();
	char said[4096];
	int result, old_out, old_errors;

	assert_non_null(shown);
	assert_true(out && errors && size <= bytes);
	CU(cuModuleGetFunction(&function, now.module, kernel));
	if (shape.dynamic_bytes > 48 << 10)
		CU(cuFuncSetAttribute(function, 8, (int)shape.dynamic_bytes));
	exchange_variables(true);
	old_out = divert(1, out);
	old_errors = divert(2, errors);
	for (unsigned i = 0; i < 3; i++) {
		shape.grid[i] = shape.grid[i] ? shape.grid[i] : 1;
		shape.threads[i] = shape.threads[i] ? shape.threads[i] : 1;
	}
	result = cu.cuLaunchKernel(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.threads[0],
				   shape.threads[1], shape.threads[2], shape.dynamic_bytes, NULL, NULL,
				   size ? extra : NULL);
	if (!result)
		result = cu.cuCtxSynchronize();
	bring_back(1, old_out, out, rig->printed, sizeof(rig->printed));
	bring_back(2, old_errors, errors, said, sizeof(said));
	if (result) {
		note_fault(rig, result, said);
		return PTX_STATE_FAULT;
	}
	exchange_variables(false);
	return PTX_STATE_DONE;
}

void rig_launch(struct rig *rig, const char *kernel, struct rig_shape shape, const void *params, size_t bytes)
{
	if (rig_run(rig, kernel, shape, params, bytes) != PTX_STATE_DONE)
		fail_msg("%s: %s: %s", kernel, ptx_fault_name(rig->fault.kind), rig->fault.text);
}

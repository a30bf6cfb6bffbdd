/* Tests of the software GPU's libcuda.so.1: small programs, a behaviour each test, run by run.sh on a software GPU of
 * their own. TESTS(...) at the end of a file makes its main; a program's argument picks one test by name. */
#ifndef TESTS_CUDA_CHECK_H
#define TESTS_CUDA_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "cuda/api.h"

#define PTX_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

/* A call that succeeds, or that fails with just this. */
#define CU(call) CU_FAILS(CUDA_SUCCESS, call)
#define CU_FAILS(wanted, call) \
	do { \
		CUresult check_result = (call); \
\
		if (check_result != (wanted)) { \
			fprintf(stderr, "%s:%d: %s: %s is %d, not %d\n", __FILE__, __LINE__, __func__, \
				#call, (int)check_result, (int)(wanted)); \
			_exit(1); \
		} \
	} while (0)

struct check_test {
	const char *name;
	void (*run)(void);
};
#define TEST(name) \
	{ \
#name, name \
	}
#define TESTS(...) \
	int main(int argc, char **argv) \
	{ \
		static const struct check_test tests[] = { __VA_ARGS__ }; \
\
		return check_main(tests, sizeof(tests) / sizeof(tests[0]), argc > 1 ? argv[1] : NULL); \
	}

static inline int check_main(const struct check_test *tests, size_t count, const char *only)
{
	size_t ran = 0;

	for (size_t i = 0; i < count; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		printf("- %s\n", tests[i].name);
		fflush(stdout);
		tests[i].run();
		ran++;
	}
	return ran ? check_status() : 2;
}

/* What most tests begin with: the primary context of GPU 0, current. */
static inline CUcontext check_context(void)
{
	CUcontext context;
	CUdevice device;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	return context;
}

static inline CUfunction check_function(const char *ptx, const char *name)
{
	CUfunction function;
	CUmodule module;

	CU(cuModuleLoadData(&module, ptx));
	CU(cuModuleGetFunction(&function, module, name));
	return function;
}

#endif

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

#include "soft/cuda/api.h"

#define PTX_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #what); \
			exit(1); \
		} \
	} while (0)

#define CHECK_EQUAL(got, wanted) \
	do { \
		long long check_got = (long long)(got), check_wanted = (long long)(wanted); \
\
		if (check_got != check_wanted) { \
			fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, __func__, \
				#got, check_got, check_wanted); \
			exit(1); \
		} \
	} while (0)

/* A call that succeeds, or that fails with just this. */
#define CU(call) CU_FAILS(CUDA_SUCCESS, call)
#define CU_FAILS(wanted, call) \
	do { \
		CUresult check_result = (call); \
\
		if (check_result != (wanted)) { \
			fprintf(stderr, "%s:%d: %s: %s is %d, not %d\n", __FILE__, __LINE__, __func__, \
				#call, (int)check_result, (int)(wanted)); \
			exit(1); \
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

/* Something is missing that this needs: the test is no success as a whole. */
static bool check_has_skipped;
static inline void check_skip(const char *why)
{
	fprintf(stderr, "  skipped: %s\n", why);
	check_has_skipped = true;
}

static inline int check_main(const struct check_test *tests, size_t count, const char *only)
{
	size_t ran = 0;

	for (size_t i = 0; i < count; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		fprintf(stderr, "- %s\n", tests[i].name);
		tests[i].run();
		ran++;
	}
	return !ran ? 2 : check_has_skipped ? 77 : 0;
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

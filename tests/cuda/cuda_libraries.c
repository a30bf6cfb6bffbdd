/* cuda: libraries belong to no context, and work in each; names and versions of functions. */
#include "check.h"

static const char counting[] = PTX_HEAD
	".visible .global .align 4 .u32 count = 3;\n"
	".visible .global .attribute(.managed) .align 4 .u32 both = 10;\n"
	".visible .entry bump(.param .u32 by)\n{\n"
	".reg .b32 %r<4>;\n"
	"ld.param.u32 %r1, [by];\n"
	"ld.global.u32 %r2, [count];\n add.u32 %r2, %r2, %r1;\n st.global.u32 [count], %r2;\n"
	"ld.global.u32 %r2, [both];\n add.u32 %r2, %r2, %r1;\n st.global.u32 [both], %r2;\n"
	"ret;\n}\n"
	".visible .entry other() { ret; }\n";

static CUlibrary load(void)
{
	CUlibrary library;

	CU(cuInit(0));
	CU(cuLibraryLoadData(&library, counting, NULL, NULL, 0, NULL, NULL, 0));
	return library;
}

static void bump(CUlibrary library, uint32_t by)
{
	CUkernel kernel;
	void *params[] = { &by };

	CU(cuLibraryGetKernel(&kernel, library, "bump"));
	CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
}

static uint32_t count(CUlibrary library)
{
	CUdeviceptr at;
	size_t bytes;
	uint32_t value = 0;

	CU(cuLibraryGetGlobal(&at, &bytes, library, "count"));
	CHECK_EQUAL(bytes, 4);
	CU(cuMemcpyDtoH_v2(&value, at, 4));
	return value;
}

static void every_context_has_its_own_variables(void)
{
	CUlibrary library;
	CUcontext second;

	check_context();
	library = load();
	bump(library, 1);
	CHECK_EQUAL(count(library), 4);
	CU(cuCtxCreate_v2(&second, 0, 0));
	CHECK_EQUAL(count(library), 3);
	bump(library, 5);
	CHECK_EQUAL(count(library), 8);
	CU(cuCtxDestroy_v2(second));
	CHECK_EQUAL(count(library), 4);
	CU(cuLibraryUnload(library));
}

static void managed_variables_are_the_same_everywhere(void)
{
	CUlibrary library;
	CUcontext second;
	CUdeviceptr here, there;
	volatile uint32_t *both;

	check_context();
	library = load();
	CU(cuLibraryGetManaged(&here, NULL, library, "both"));
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&there, NULL, library, "count"));
	both = (uint32_t *)(uintptr_t)here;
	CHECK_EQUAL(*both, 10);
	bump(library, 1);
	CU(cuCtxCreate_v2(&second, 0, 0));
	CU(cuLibraryGetManaged(&there, NULL, library, "both"));
	CHECK_EQUAL(there, here);
	bump(library, 2);
	CHECK_EQUAL(*both, 13);
	CU(cuCtxDestroy_v2(second));
	CHECK_EQUAL(*both, 13);
	CU(cuLibraryUnload(library));
}

static void a_library_loads_without_a_context(void)
{
	CUcontext context;
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;
	int value;

	check_context();
	CU(cuCtxPopCurrent_v2(&context));
	library = load();
	CU(cuLibraryGetKernel(&kernel, library, "other"));
	CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, kernel, 0));
	CHECK_EQUAL(value, 80);
	CU_FAILS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&function, kernel));
	CU(cuCtxPushCurrent_v2(context));
	CU(cuKernelGetFunction(&function, kernel));
	CU(cuLibraryUnload(library));
}

static void kernels_are_listed_and_tell_about_themselves(void)
{
	CUlibrary library, same;
	CUkernel kernels[4], kernel;
	CUmodule module;
	CUfunction function;
	const char *name;
	size_t offset, bytes;
	unsigned n;

	check_context();
	library = load();
	CU(cuLibraryGetKernelCount(&n, library));
	CHECK_EQUAL(n, 2);
	CU(cuLibraryEnumerateKernels(kernels, 4, library));
	CU(cuKernelGetName(&name, kernels[0]));
	CHECK(!strcmp(name, "bump"));
	CU(cuKernelGetParamInfo(kernels[0], 0, &offset, &bytes));
	CHECK_EQUAL(bytes, 4);
	CU(cuKernelGetLibrary(&same, kernels[1]));
	CHECK(same == library);
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&kernel, library, "none"));
	CU(cuLibraryGetModule(&module, library));
	CU(cuModuleGetFunction(&function, module, "other"));
	CU_FAILS(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(module));
	CU(cuLibraryUnload(library));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernels[0]));
}

static void what_is_set_for_a_kernel_counts_before_and_after_loading(void)
{
	const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;
	int value;

	check_context();
	library = load();
	CU(cuLibraryGetKernel(&kernel, library, "other"));
	CU(cuKernelSetAttribute(most, 100 << 10, kernel, 0));
	CU(cuKernelGetFunction(&function, kernel));
	CU(cuFuncGetAttribute(&value, most, function));
	CHECK_EQUAL(value, 100 << 10);
	CU(cuKernelSetAttribute(most, 64 << 10, kernel, 0));
	CU(cuFuncGetAttribute(&value, most, function));
	CHECK_EQUAL(value, 64 << 10);
	CU_FAILS(CUDA_ERROR_INVALID_DEVICE, cuKernelSetAttribute(most, 64 << 10, kernel, 99));
	CU(cuLibraryUnload(library));
}

static void a_name_means_the_function_of_that_version(void)
{
	CUdriverProcAddressQueryResult status;
	void *at, *other;

	check_context();
	CU(cuGetProcAddress_v2("cuMemAlloc", &at, 12000, 0, &status));
	CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
	CHECK(at == (void *)(uintptr_t)cuMemAlloc_v2);
	CU(cuGetProcAddress_v2("cuCtxCreate", &at, 12000, 0, NULL));
	CHECK(at == (void *)(uintptr_t)cuCtxCreate_v3);
	CU(cuGetProcAddress_v2("cuCtxCreate", &at, 13000, 0, NULL));
	CHECK(at == (void *)(uintptr_t)cuCtxCreate_v4);
	CU(cuGetProcAddress_v2("cuEventElapsedTime", &at, 12000, 0, NULL));
	CHECK(at == (void *)(uintptr_t)cuEventElapsedTime);
	CU(cuGetProcAddress_v2("cuMemcpyAsync", &at, 12000, 0, NULL));
	CHECK(at == (void *)(uintptr_t)cuMemcpyAsync);
	CU(cuGetProcAddress_v2("cuMemcpyAsync", &other, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
			       NULL));
	CHECK(other == (void *)(uintptr_t)cuMemcpyAsync_ptsz);
	CU(cuGetProcAddress_v2("cuGreenCtxCreate", &at, 12000, 0, &status));
	CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	CHECK(!at);
	CU(cuGetProcAddress_v2("cuNonsense", &at, 13000, 0, &status));
	CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CU(cuGetProcAddress_v2("cuMemAlloc_v2", &at, 13000, 0, &status));
	CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNonsense", &at, 13000, 0));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &at, 99000, 0, NULL));
}

static void errors_have_names(void)
{
	const char *text = NULL;

	check_context();
	CU(cuGetErrorName(CUDA_ERROR_INVALID_PTX, &text));
	CHECK(!strcmp(text, "CUDA_ERROR_INVALID_PTX"));
	CU(cuGetErrorString(CUDA_SUCCESS, &text));
	CHECK(!strcmp(text, "no error"));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
	CHECK(!text);
}

TESTS(TEST(every_context_has_its_own_variables), TEST(managed_variables_are_the_same_everywhere),
      TEST(a_library_loads_without_a_context), TEST(kernels_are_listed_and_tell_about_themselves),
      TEST(what_is_set_for_a_kernel_counts_before_and_after_loading),
      TEST(a_name_means_the_function_of_that_version), TEST(errors_have_names))

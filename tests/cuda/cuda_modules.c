/* cuda: modules from PTX: variables, functions, what is said of text that cannot be loaded. */
#include "check.h"

static const char adder[] = PTX_HEAD
	".visible .global .align 4 .u32 counter = 5;\n"
	".visible .global .align 4 .u32 list[3] = {7, 8, 9};\n"
	".visible .global .align 8 .u64 where[2] = {generic(list), generic(counter)};\n"
	".visible .const .align 4 .u32 offset = 100;\n"
	".global .align 16 .b8 zeros[4096];\n"
	".visible .entry add(.param .u64 out, .param .u32 n, .param .align 8 .b8 more[24])\n"
	".maxntid 128, 1, 1\n"
	"{\n"
	".reg .b32 %r<8>; .reg .b64 %d<6>;\n"
	".shared .align 4 .b8 room[512];\n"
	"ld.param.u64 %d1, [out];\n"
	"ld.param.u32 %r1, [n];\n"
	"ld.global.u32 %r2, [counter];\n"
	"ld.const.u32 %r3, [offset];\n"
	"add.u32 %r1, %r1, %r2;\n"
	"add.u32 %r1, %r1, %r3;\n"
	"ld.global.u64 %d2, [where];\n"
	"ld.global.u32 %r4, [%d2+8];\n"
	"add.u32 %r1, %r1, %r4;\n"
	"st.global.u32 [%d1], %r1;\n"
	"ret;\n}\n"
	".visible .entry nothing() { ret; }\n";

static void a_kernel_reads_initial_values_and_addresses(void)
{
	CUmodule module;
	CUfunction function;
	CUdeviceptr out;
	uint32_t n = 1, result = 0;
	uint64_t more[3] = { 0 };
	void *params[] = { &out, &n, more };

	check_context();
	CU(cuModuleLoadData(&module, adder));
	CU(cuModuleGetFunction(&function, module, "add"));
	CU(cuMemAlloc_v2(&out, 4));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(&result, out, 4));
	CHECK_EQUAL(result, 1 + 5 + 100 + 9);
	CU(cuMemFree_v2(out));
	CU(cuModuleUnload(module));
}

static void variables_are_found_by_name_and_start_as_written(void)
{
	static uint8_t zeros[4096], got[4096];
	CUmodule module;
	CUdeviceptr list, where, at;
	uint32_t values[3] = { 0 };
	uint64_t addresses[2] = { 0 };
	size_t bytes = 0;

	check_context();
	CU(cuModuleLoadData(&module, adder));
	CU(cuModuleGetGlobal_v2(&list, &bytes, module, "list"));
	CHECK_EQUAL(bytes, 12);
	CU(cuMemcpyDtoH_v2(values, list, 12));
	CHECK_EQUAL(values[2], 9);
	CU(cuModuleGetGlobal_v2(&where, NULL, module, "where"));
	CU(cuMemcpyDtoH_v2(addresses, where, 16));
	CHECK_EQUAL(addresses[0], list);
	CU(cuModuleGetGlobal_v2(&at, &bytes, module, "zeros"));
	CHECK_EQUAL(at % 16, 0);
	memset(got, 1, sizeof(got));
	CU(cuMemcpyDtoH_v2(got, at, bytes));
	CHECK(!memcmp(got, zeros, sizeof(zeros)));
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&at, NULL, module, "none"));
	CU(cuModuleUnload(module));
}

static void variables_start_anew_in_memory_that_was_used_before(void)
{
	CUmodule module;
	CUdeviceptr at;
	uint32_t value;

	check_context();
	for (int i = 0; i < 3; i++) {
		CU(cuModuleLoadData(&module, adder));
		CU(cuModuleGetGlobal_v2(&at, NULL, module, "zeros"));
		CU(cuMemcpyDtoH_v2(&value, at + 4092, 4));
		CHECK_EQUAL(value, 0);
		CU(cuMemsetD8_v2(at, 0xff, 4096));
		CU(cuModuleUnload(module));
	}
}

static void the_host_sees_a_managed_variable(void)
{
	static const char text[] = PTX_HEAD
		".visible .global .attribute(.managed) .align 4 .u32 both = 7;\n"
		".visible .entry bump() { .reg .b32 %r<3>; ld.global.u32 %r1, [both];\n"
		"add.u32 %r1, %r1, 1; st.global.u32 [both], %r1; ret; }\n";
	CUmodule module;
	CUfunction function;
	CUdeviceptr at;
	volatile uint32_t *both;

	check_context();
	CU(cuModuleLoadData(&module, text));
	CU(cuModuleGetFunction(&function, module, "bump"));
	CU(cuModuleGetGlobal_v2(&at, NULL, module, "both"));
	both = (uint32_t *)(uintptr_t)at;
	CHECK_EQUAL(*both, 7);
	*both = 40;
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CU(cuCtxSynchronize());
	CHECK_EQUAL(*both, 41);
	CU(cuModuleUnload(module));
}

static void the_log_names_line_and_reason(void)
{
	static const char wrong[] = PTX_HEAD ".visible .entry k()\n{\n\tbogus.u32 1, 2;\n}\n";
	char info[64] = "x", error[512] = "x", small[8];
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { info, (void *)sizeof(info), error, (void *)sizeof(error) };
	CUmodule module;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, wrong, 4, options, values));
	CHECK(strstr(error, "line 6; error"));
	CHECK(strstr(error, "bogus"));
	CHECK_EQUAL((size_t)values[3], strlen(error));
	CHECK(!strcmp(info, ""));
	values[2] = small;
	values[3] = (void *)sizeof(small);
	CU_FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&module, wrong, 4, options, values));
	CHECK_EQUAL(strlen(small), sizeof(small) - 1);
	values[3] = (void *)sizeof(small);
	CU(cuModuleLoadDataEx(&module, adder, 4, options, values));
	CHECK(!strcmp(small, ""));
	CU(cuModuleUnload(module));
}

static void what_cannot_be_loaded_is_refused(void)
{
	static const char orphan[] = PTX_HEAD
		".extern .global .align 4 .u32 elsewhere;\n"
		".visible .entry k() { .reg .b32 %r<2>; ld.global.u32 %r1, [elsewhere]; ret; }\n";
	CUmodule module;
	CUjit_option option = CU_JIT_NUM_OPTIONS;
	void *value = NULL;

	check_context();
	CU_FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, orphan));
	CU_FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
		 cuModuleLoadData(&module, ".version 99.0\n.target sm_80\n.address_size 64\n"));
	CU_FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ""));
	CU_FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "#!/bin/sh\n"));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(NULL, adder));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&module, adder, 1, &option, &value));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&module, adder, 1, NULL, NULL));
	CU_FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent/file"));
}

static void handles_are_looked_up_and_never_trusted(void)
{
	CUmodule module;
	CUfunction function;
	int junk[64] = { 0 }, value;
	unsigned count;

	check_context();
	CU(cuModuleLoadData(&module, adder));
	CU(cuModuleGetFunction(&function, module, "add"));
	CU_FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "counter"));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunctionCount(&count, (CUmodule)junk));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE,
		 cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)module));
	CU(cuModuleUnload(module));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
	CU_FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static int attribute(CUfunction function, CUfunction_attribute which)
{
	int value = -12345;

	CU(cuFuncGetAttribute(&value, which, function));
	return value;
}

static void a_function_tells_what_it_needs(void)
{
	CUmodule module, same;
	CUfunction function, all[4];
	const char *name;
	size_t offset, bytes;
	unsigned count;

	check_context();
	CU(cuModuleLoadData(&module, adder));
	CU(cuModuleGetFunctionCount(&count, module));
	CHECK_EQUAL(count, 2);
	CU(cuModuleEnumerateFunctions(all, 4, module));
	CU(cuFuncGetName(&name, all[1]));
	CHECK(!strcmp(name, "nothing"));
	CU(cuModuleGetFunction(&function, module, "add"));
	CU(cuFuncGetModule(&same, function));
	CHECK(same == module);
	CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128);
	CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 512);
	CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES), 4);
	CHECK_EQUAL(attribute(function, CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
	CHECK(attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
	CU(cuFuncGetParamInfo(function, 2, &offset, &bytes));
	CHECK_EQUAL(offset, 16);
	CHECK_EQUAL(bytes, 24);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 3, &offset, &bytes));
	CU(cuModuleUnload(module));
}

static void more_shared_memory_must_be_asked_for(void)
{
	const CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
	CUmodule module;
	CUfunction function;
	uint64_t out = 0, more[3] = { 0 };
	uint32_t n = 0;
	void *params[] = { &out, &n, more };

	check_context();
	CU(cuModuleLoadData(&module, adder));
	CU(cuModuleGetFunction(&function, module, "add"));
	CHECK_EQUAL(attribute(function, most), (48 << 10) - 512);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE,
		 cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 48 << 10, NULL, params, NULL));
	CU(cuFuncSetAttribute(function, most, (227 << 10) - 512));
	CHECK_EQUAL(attribute(function, most), (227 << 10) - 512);
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, most, 227 << 10));
	CU_FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(function, most, -1));
	CU(cuModuleUnload(module));
}

TESTS(TEST(a_kernel_reads_initial_values_and_addresses),
      TEST(variables_are_found_by_name_and_start_as_written),
      TEST(variables_start_anew_in_memory_that_was_used_before), TEST(the_host_sees_a_managed_variable),
      TEST(the_log_names_line_and_reason), TEST(what_cannot_be_loaded_is_refused),
      TEST(handles_are_looked_up_and_never_trusted), TEST(a_function_tells_what_it_needs),
      TEST(more_shared_memory_must_be_asked_for))

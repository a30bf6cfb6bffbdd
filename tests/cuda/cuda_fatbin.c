/* cuda: fat binaries as nvcc 13.0 writes them, packed in every way it knows; tests/data/fatbin/make.sh made them. */
#include "base/own.h"
#include "check.h"

static const char *path_of(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), BELFRY_TEST_DATA "/fatbin/%s", name);
	return path;
}

static void *read_file(const char *name)
{
	cleanup_file FILE *file = fopen(path_of(name), "rb");
	void *data = malloc(1 << 16);

	CHECK(file);
	CHECK(data);
	CHECK(fread(data, 1, 1 << 16, file) > 0);
	return data;
}

/* Runs the kernel; returns the architecture it was compiled for. */
static int run(CUmodule module)
{
	CUfunction function;
	CUdeviceptr out;
	int result[2] = { 0 };
	void *params[] = { &out };

	CU(cuModuleGetFunction(&function, module, "which"));
	CU(cuMemAlloc_v2(&out, sizeof(result)));
	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(result, out, sizeof(result)));
	CU(cuMemFree_v2(out));
	CU(cuModuleUnload(module));
	CHECK_EQUAL(result[1], 15);
	return result[0];
}

static void every_packing_is_read_and_the_best_ptx_is_taken(void)
{
	static const char *const names[] = { "ptx-none.fatbin", "ptx-speed.fatbin", "ptx-balance.fatbin",
					     "ptx-size.fatbin", "mixed.fatbin" };

	check_context();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		cleanup_free void *image = read_file(names[i]);
		CUmodule module;

		CU(cuModuleLoadData(&module, image));
		CHECK_EQUAL(run(module), 900);
		CU(cuModuleLoadFatBinary(&module, image));
		CHECK_EQUAL(run(module), 900);
		CU(cuModuleLoad(&module, path_of(names[i])));
		CHECK_EQUAL(run(module), 900);
	}
}

static void ptx_for_a_newer_gpu_does_if_there_is_no_other(void)
{
	CUmodule module;

	check_context();
	CU(cuModuleLoad(&module, path_of("newer.fatbin")));
	CHECK_EQUAL(run(module), 1000);
}

static void a_programs_own_is_found_through_its_structure(void)
{
	cleanup_free void *image = read_file("ptx-size.fatbin");
	struct {
		uint32_t magic, version;
		const void *data;
		void *more;
	} wrapper = { 0x466243b1, 1, image, NULL };
	CUmodule module;
	CUlibrary library;

	check_context();
	CU(cuModuleLoadFatBinary(&module, &wrapper));
	CHECK_EQUAL(run(module), 900);
	CU(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryUnload(library));
}

static void machine_code_alone_is_refused_and_the_log_says_so(void)
{
	static const char *const names[] = { "machine.fatbin", "machine.cubin" };
	char error[512];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };

	check_context();
	for (size_t i = 0; i < 2; i++) {
		cleanup_free void *image = read_file(names[i]);
		void *values[] = { error, (void *)sizeof(error) };
		CUmodule module;

		error[0] = '\0';
		CU_FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU,
			 cuModuleLoadDataEx(&module, image, 2, options, values));
		CHECK(strstr(error, "machine code"));
		CHECK(strstr(error, "code=compute_90"));
	}
}

static void a_broken_one_is_refused(void)
{
	cleanup_free uint8_t *image = read_file("ptx-balance.fatbin");
	CUmodule module;

	check_context();
	image[16 + 0x50 + 8] ^= 0xff; /* in the middle of the first entry: the other one still loads */
	CU(cuModuleLoadData(&module, image));
	CHECK_EQUAL(run(module), 900);
	image[16 + 2] = 9; /* its version */
	CU_FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, image));
}

TESTS(TEST(every_packing_is_read_and_the_best_ptx_is_taken),
      TEST(ptx_for_a_newer_gpu_does_if_there_is_no_other),
      TEST(a_programs_own_is_found_through_its_structure),
      TEST(machine_code_alone_is_refused_and_the_log_says_so), TEST(a_broken_one_is_refused))

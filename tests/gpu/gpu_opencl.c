/* SPDX-License-Identifier: MIT */
/* an_opencl_program_runs: a vector addition through OpenCL. Finds NVIDIA's platform through the loader
 * (libOpenCL.so.1) or, without one, in libnvidia-opencl.so.1 as a loader would. Either way a platform
 * begins with a pointer to its table of functions (Khronos cl_icd.h; the order is fixed), which is what we
 * call. `--limit BYTES` checks the memory the device claims. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { COUNT = 1 << 20 };

/* CL_DEVICE_TYPE_GPU and so on, from cl.h */
enum {
	CL_GPU = 4,
	CL_READ_WRITE = 1,
	CL_COPY_HOST = 32,
	CL_PLATFORM_NAME = 0x902,
	CL_GLOBAL_MEM_BYTES = 0x101f,
};

/* name, place in the table, result, parameters */
#define CL_FUNCTIONS(X) \
	X(GetPlatformInfo, 1, int, \
	  (void *platform, unsigned what, size_t size, void *value, size_t *needed)) \
	X(GetDeviceIDs, 2, int, \
	  (void *platform, uint64_t type, unsigned n, void **devices, unsigned *found)) \
	X(GetDeviceInfo, 3, int, (void *device, unsigned what, size_t size, void *value, size_t *needed)) \
	X(CreateContext, 4, void *, \
	  (const intptr_t *props, unsigned n, void *const *devices, void *notify, void *user, int *error)) \
	X(CreateCommandQueue, 9, void *, (void *context, void *device, uint64_t props, int *error)) \
	X(CreateBuffer, 14, void *, (void *context, uint64_t flags, size_t bytes, void *host, int *error)) \
	X(CreateProgramWithSource, 26, void *, \
	  (void *context, unsigned n, const char **text, const size_t *lengths, int *error)) \
	X(BuildProgram, 30, int, \
	  (void *program, unsigned n, void *const *devices, const char *options, void *notify, void *user)) \
	X(CreateKernel, 34, void *, (void *program, const char *name, int *error)) \
	X(SetKernelArg, 38, int, (void *kernel, unsigned index, size_t size, const void *value)) \
	X(EnqueueReadBuffer, 48, int, \
	  (void *queue, void *buffer, unsigned wait, size_t offset, size_t bytes, void *to, unsigned n, \
	   void *const *events, void **event)) \
	X(EnqueueNDRangeKernel, 59, int, \
	  (void *queue, void *kernel, unsigned dims, const size_t *offset, const size_t *global, \
	   const size_t *local, unsigned n, void *const *events, void **event))

static struct {
#define CL_FIELD(name, place, result, params) result(*name) params;
	CL_FUNCTIONS(CL_FIELD)
#undef CL_FIELD
} cl;

static const char source[] =
	"__kernel void add(__global const int *a, __global const int *b, __global int *c)\n"
	"{ int i = get_global_id(0); c[i] = a[i] + 3 * b[i]; }\n";

static void must(int error, const char *what)
{
	if (error)
		fail("%s: OpenCL error %d", what, error);
}

static void use_table_of(void *platform)
{
	void **table = *(void ***)platform;

#define CL_RESOLVE(name, place, result, params) memcpy(&cl.name, &table[place], sizeof(void *));
	CL_FUNCTIONS(CL_RESOLVE)
#undef CL_RESOLVE
}

static bool is_nvidia(void *platform)
{
	char name[128] = "";

	use_table_of(platform);
	return !cl.GetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name) - 1, name, NULL) &&
	       strstr(name, "NVIDIA");
}

static void *pick(void *function)
{
	int (*platform_ids)(unsigned, void **, unsigned *);
	void *platforms[16];
	unsigned count = 0;

	if (!function)
		return NULL;
	memcpy(&platform_ids, &function, sizeof(function));
	if (platform_ids(16, platforms, &count))
		return NULL;
	for (unsigned i = 0; i < count && i < 16; i++)
		if (is_nvidia(platforms[i]))
			return platforms[i];
	return NULL;
}

static void *find_platform(void)
{
	void *loader = dlopen("libOpenCL.so.1", RTLD_NOW), *driver, *symbol, *platform = NULL;
	void *(*extension)(const char *);

	if (loader)
		platform = pick(dlsym(loader, "clGetPlatformIDs"));
	if (platform)
		return platform;
	driver = dlopen("libnvidia-opencl.so.1", RTLD_NOW);
	if (!driver) {
		printf("skipped: no NVIDIA OpenCL: %s\n", dlerror());
		exit(77);
	}
	symbol = dlsym(driver, "clGetExtensionFunctionAddress");
	if (!symbol)
		fail("libnvidia-opencl.so.1 has no clGetExtensionFunctionAddress");
	memcpy(&extension, &symbol, sizeof(symbol));
	platform = pick(extension("clIcdGetPlatformIDsKHR"));
	if (!platform) {
		printf("skipped: NVIDIA's OpenCL offers no platform\n");
		exit(77);
	}
	return platform;
}

static void *build(void *context, void *device)
{
	const char *text = source;
	void *program, *kernel;
	int error;

	program = cl.CreateProgramWithSource(context, 1, &text, NULL, &error);
	must(error, "clCreateProgramWithSource");
	must(cl.BuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
	kernel = cl.CreateKernel(program, "add", &error);
	must(error, "clCreateKernel");
	return kernel;
}

static unsigned add_vectors(void *device, void *context)
{
	size_t bytes = COUNT * sizeof(int), global = COUNT;
	int *host = malloc(bytes), error;
	void *queue, *kernel = build(context, device), *buffers[3];
	unsigned wrong = 0;

	if (!host)
		abort();
	queue = cl.CreateCommandQueue(context, device, 0, &error);
	must(error, "clCreateCommandQueue");
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < COUNT; k++)
			host[k] = k * (i + 1);
		buffers[i] = cl.CreateBuffer(context, CL_READ_WRITE | CL_COPY_HOST, bytes, host, &error);
		must(error, "clCreateBuffer");
		must(cl.SetKernelArg(kernel, (unsigned)i, sizeof(void *), &buffers[i]), "clSetKernelArg");
	}
	must(cl.EnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
	must(cl.EnqueueReadBuffer(queue, buffers[2], 1, 0, bytes, host, 0, NULL, NULL),
	     "clEnqueueReadBuffer");
	for (int k = 0; k < COUNT; k++)
		wrong += host[k] != k + 3 * 2 * k;
	free(host);
	return wrong;
}

int main(int argc, char **argv)
{
	uint64_t limit = option_number(argc, argv, "limit", 0), claimed = 0;
	void *platform = find_platform(), *device, *context;
	unsigned wrong;
	int error;

	must(cl.GetDeviceIDs(platform, CL_GPU, 1, &device, NULL), "clGetDeviceIDs");
	must(cl.GetDeviceInfo(device, CL_GLOBAL_MEM_BYTES, sizeof(claimed), &claimed, NULL),
	     "clGetDeviceInfo");
	context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &error);
	must(error, "clCreateContext");
	wrong = add_vectors(device, context);
	if (limit && claimed > limit)
		fail("OpenCL is told %llu bytes, the limit is %llu", (unsigned long long)claimed,
		     (unsigned long long)limit);
	printf("%s: %u of %d results wrong, %llu MiB of device memory\n", wrong ? "FAILED" : "ok", wrong,
	       COUNT, (unsigned long long)(claimed / MIB));
	return wrong != 0;
}

/* Takes device memory in pieces of a MiB until it is refused or has --most MiB; prints what it was told and what it got, in
 * MiB, and the CUDA error of the refusal: "total N free N got N left N error N". With a file named, it keeps the memory until
 * the file is there. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MIB = 1 << 20, STEP_US = 10000 };

static void *cuda;

static int call_two(const char *name, void *first, uintptr_t second)
{
	int (*function)(void *, uintptr_t) = NULL;

	*(void **)&function = dlsym(cuda, name);
	return function ? function(first, second) : -1;
}

static void check(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "%s: %d\n", what, result);
	exit(1);
}

static void tell_memory(size_t *total, size_t *left)
{
	check(call_two("cuMemGetInfo_v2", left, (uintptr_t)total), "cuMemGetInfo");
}

int main(int argc, char **argv)
{
	unsigned long most = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, got = 0;
	size_t total, left, after;
	uint64_t memory;
	void *context;
	int error = 0;
	int (*init)(unsigned) = NULL, (*create)(void **, unsigned, int) = NULL;

	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&init = dlsym(cuda, "cuInit");
	*(void **)&create = dlsym(cuda, "cuCtxCreate_v2");
	check(init ? init(0) : -1, "cuInit");
	check(create ? create(&context, 0, 0) : -1, "cuCtxCreate");
	tell_memory(&total, &left);
	while ((!most || got < most) && !(error = call_two("cuMemAlloc_v2", &memory, MIB)))
		got++;
	tell_memory(&total, &after);
	printf("total %zu free %zu got %lu left %zu error %d\n", total / MIB, left / MIB, got, after / MIB,
	       error);
	fflush(stdout);
	while (argc > 2 && access(argv[2], F_OK))
		usleep(STEP_US);
	return 0;
}

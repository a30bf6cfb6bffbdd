/* ignore_lease HOW READY END: a process with a context and a lease that it does not follow, until the file END is there.
 * HOW is silent: it does nothing; busy: it uses the GPU; scribble: it writes anything to the page. The file READY is made when
 * it has the page. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/message.h"
#include "coro/lease.h"

enum { MEMORY_BYTES = 4096, STEP_US = 1000 };

static struct {
	int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*alloc)(uint64_t *, size_t),
		(*fill)(uint64_t, unsigned char, size_t), (*synchronize)(void);
	uint64_t memory;
} cuda;

static void check(int is_good, const char *what)
{
	if (is_good)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void *find(void *library, const char *name)
{
	void *function = library ? dlsym(library, name) : NULL;

	check(function != NULL, name);
	return function;
}

/* The process is known to the GPU server after its first driver call. */
static void use_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;

	*(void **)&cuda.init = find(library, "cuInit");
	*(void **)&cuda.retain = find(library, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.set_current = find(library, "cuCtxSetCurrent");
	*(void **)&cuda.alloc = find(library, "cuMemAlloc_v2");
	*(void **)&cuda.fill = find(library, "cuMemsetD8_v2");
	*(void **)&cuda.synchronize = find(library, "cuCtxSynchronize");
	check(!cuda.init(0) && !cuda.retain(&context, 0) && !cuda.set_current(context) &&
		      !cuda.alloc(&cuda.memory, MEMORY_BYTES),
	      "no context");
}

/* The connection stays open. */
static uint8_t *get_page(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), file = -1;
	void *page;
	char byte;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/lease", getenv("CUDA_MPS_PIPE_DIRECTORY"));
	check(sock >= 0 && !connect(sock, (struct sockaddr *)&address, sizeof(address)), "no connection");
	check(bf_message_receive(sock, &byte, 1, &file, 0) == 1 && file >= 0, "no page");
	check(ftruncate(file, 0) && errno == EPERM, "the page can be made smaller");
	page = mmap(NULL, CORO_LEASE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	check(page != MAP_FAILED, "the page cannot be mapped");
	return page;
}

static void scribble(uint8_t *page)
{
	int how = rand() % 3;

	for (unsigned i = 0; i < CORO_LEASE_BYTES; i++)
		page[i] = how == 0 ? 0 : how == 1 ? 0xff : (uint8_t)rand();
}

int main(int argc, char **argv)
{
	uint8_t *page;

	check(argc == 4, "usage: ignore_lease HOW READY END");
	use_cuda();
	page = get_page();
	close(open(argv[2], O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	while (access(argv[3], F_OK)) {
		if (!strcmp(argv[1], "busy"))
			check(!cuda.fill(cuda.memory, 1, MEMORY_BYTES) && !cuda.synchronize(),
			      "its work failed");
		else if (!strcmp(argv[1], "scribble"))
			scribble(page);
		else
			usleep(STEP_US);
	}
	return 0;
}

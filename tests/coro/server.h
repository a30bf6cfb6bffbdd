/* A thread of the test in the place of the GPU server: it gives the process a lease and changes it. And kernels that tell where
 * they run, that go on until they are told to end, and whose result depends on their order. */
#ifndef TESTS_CORO_SERVER_H
#define TESTS_CORO_SERVER_H

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "coro/lease.h"

enum { BLOCKS = 256, SMS = 32, WAIT_MS = 60000 };

static const char ptx[] = PTX_HEAD
	/* where(out): the SM of each block. */
	".visible .entry where(.param .u64 out)\n"
	"{\n"
	"	.reg .b64 %rd<4>; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %rd1, [out];\n"
	"	mov.u32 %r1, %smid; mov.u32 %r2, %ctaid.x;\n"
	"	mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;\n"
	"	ret;\n"
	"}\n"
	/* step(at, k): *at = *at * 3 + k, by one thread, not atomically: two steps at once give a wrong result. */
	".visible .entry step(.param .u64 at, .param .u32 k)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<4>;\n"
	"	ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [k];\n"
	"	ld.global.u32 %r2, [%rd1]; mad.lo.u32 %r3, %r2, 3, %r1; st.global.u32 [%rd1], %r3;\n"
	"	ret;\n"
	"}\n"
	/* until(flag): runs until *flag is not 0. */
	".visible .entry until(.param .u64 flag)\n"
	"{\n"
	"	.reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;\n"
	"	ld.param.u64 %rd1, [flag];\n"
	"AGAIN:	ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n";

static struct coro_lease *page;
static CUdeviceptr memory;
static uint32_t places[BLOCKS];

/* The GPU server: gives everyone who asks the same page. */
static inline void *serve(void *arg)
{
	int listener = *(int *)arg, file = memfd_create("lease", MFD_CLOEXEC);

	CHECK(file >= 0 && !ftruncate(file, CORO_LEASE_BYTES));
	page = mmap(NULL, CORO_LEASE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(page != MAP_FAILED);
	page->magic = CORO_LEASE_MAGIC;
	page->version = CORO_LEASE_VERSION;
	page->units = CORO_UNITS_ALL;
	page->generation = 1;
	for (;;) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = { 0 };
		struct iovec data = { (char[]){ 1 }, 1 };
		struct msghdr message = { .msg_iov = &data,
					  .msg_iovlen = 1,
					  .msg_control = &control,
					  .msg_controllen = sizeof(control) };
		int connection = accept(listener, NULL, NULL);

		CHECK(connection >= 0);
		control.header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.header), &file, sizeof(file));
		CHECK(sendmsg(connection, &message, 0) == 1);
	}
	return NULL;
}

static inline void start(void)
{
	static int listener;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;

	if (page) {
		check_context();
		return;
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("BELFRY_LEASE"));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof(address)) &&
	      !listen(listener, 8));
	CHECK(!pthread_create(&thread, NULL, serve, &listener));
	check_context();
	CHECK(page);
	CU(cuMemAlloc_v2(&memory, sizeof(places)));
}

/* Returns the generation. */
static inline uint64_t lease_set(uint64_t units)
{
	uint64_t generation;

	atomic_store(&page->units, units);
	generation = atomic_fetch_add(&page->generation, 1) + 1;
	syscall(SYS_futex, &page->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return generation;
}

static inline bool is_fenced(uint64_t generation, unsigned ms)
{
	for (unsigned i = 0; i < ms && atomic_load(&page->fenced) < generation; i++)
		usleep(1000);
	return atomic_load(&page->fenced) >= generation;
}

/* The library has looked at the work, and has found some that must end first. */
static inline bool is_awaited(uint64_t generation)
{
	for (unsigned i = 0; i < WAIT_MS && atomic_load(&page->seen) < generation; i++)
		usleep(1000);
	return atomic_load(&page->seen) >= generation && !is_fenced(generation, 30);
}

/* The SMs that a launch used, as a mask. */
static inline uint32_t used(void)
{
	uint32_t mask = 0;

	CU(cuMemcpyDtoH_v2(places, memory, sizeof(places)));
	for (unsigned i = 0; i < BLOCKS; i++) {
		CHECK(places[i] < SMS);
		mask |= 1u << places[i];
	}
	return mask;
}

static inline uint32_t launched(CUfunction where, CUstream stream)
{
	void *params[] = { &memory };

	CU(cuLaunchKernel(where, BLOCKS, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	CU(cuStreamSynchronize(stream));
	return used();
}

/* Launches one thread of a kernel with one parameter. */
static inline void launch_on(CUfunction function, CUstream stream, void *parameter)
{
	void *params[] = { parameter };

	CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* A word that the kernel `until` waits for. */
static inline volatile uint32_t *flag_new(void)
{
	void *host;

	CU(cuMemHostAlloc(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
	*(volatile uint32_t *)host = 0;
	return host;
}

static inline bool is_done(CUstream stream)
{
	CUresult result = CUDA_ERROR_NOT_READY;

	for (unsigned i = 0; i < WAIT_MS && result == CUDA_ERROR_NOT_READY; i++) {
		result = cuStreamQuery(stream);
		if (result)
			usleep(1000);
	}
	return !result;
}

#endif

/* The lease of this process, and the agent: a thread that prepares partitions when the lease has changed, and reports when
 * the work on SMs that were given back has ended. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "coro/coro.h"
#include "coro/probe.h"

enum { ANSWER_S = 5, FENCE_LOOK_NS = 50000 };
/* The generation of a process that is fixed: streams go to all SMs once more. A new virtual stream has UINT64_MAX. */
#define GENERATION_FIXED (UINT64_MAX - 1)

static struct {
	const char *path; /* of the GPU server's socket */
	_Atomic bool is_there;
	bool is_shuffled; /* other SMs for every launch, whatever the lease is */
	uint64_t seed;
	pthread_once_t attached;
	struct coro_lease *_Atomic page;
	int connection;			 /* open while the process lives: the GPU server sees its end */
	struct context *_Atomic context; /* the only one that follows the lease */
	_Atomic bool is_fixed, is_initialised;
} lease = { .attached = PTHREAD_ONCE_INIT, .connection = -1 };

/* Partitions for BELFRY_CORO_SHUFFLE. Those that a GPU does not have are all SMs. */
static const uint64_t shuffled[] = { 0x1, 0x2, 0x3, 0xc, 0xf0, 0xff00, 0x7ffe, CORO_UNITS_ALL };

/* Neighbouring numbers have nothing in common afterwards. */
static uint64_t mix(uint64_t number)
{
	number += 0x9e3779b97f4a7c15ull;
	number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
	number = (number ^ number >> 27) * 0x94d049bb133111ebull;
	return number ^ number >> 31;
}

/* The lease is the parent's. A child that is forked after CUDA was initialised cannot use CUDA: its calls are forwarded, and
 * the driver refuses them. Locks of threads that the child does not have are not taken any more. */
static void leave_to_parent(void)
{
	int error = errno;
	struct coro_lease *page = lease_page();

	if (!lease.is_initialised)
		return;
	lease.is_there = false;
	atomic_store(&lease.page, NULL);
	if (page)
		munmap(page, CORO_LEASE_BYTES);
	if (lease.connection >= 0)
		close(lease.connection);
	lease.connection = -1;
	errno = error;
}

bool cuda_is_initialised(void)
{
	return lease.is_initialised;
}

EXPORT CUresult cuInit(unsigned int flags)
{
	CUresult result = real.cuInit(flags);

	if (!result) {
		lease.is_initialised = true;
		probes_begin();
	}
	return result;
}

__attribute__((constructor)) static void find_lease(void)
{
	const char *seed = getenv("BELFRY_CORO_SHUFFLE");

	lease.path = getenv("BELFRY_LEASE");
	lease.is_shuffled = seed;
	lease.seed = seed ? mix(strtoull(seed, NULL, 0)) : 0;
	lease.is_there = lease.path || lease.is_shuffled;
	if (lease.is_there)
		pthread_atfork(NULL, NULL, leave_to_parent);
}

bool lease_is_there(void)
{
	return atomic_load_explicit(&lease.is_there, memory_order_relaxed);
}

void lease_fix(void)
{
	struct coro_lease *page = lease_page();

	lease.is_fixed = true;
	if (page)
		atomic_store(&page->is_fixed, 1);
}

struct coro_lease *lease_page(void)
{
	return atomic_load_explicit(&lease.page, memory_order_acquire);
}

uint64_t lease_generation(const struct context *context)
{
	static _Atomic uint64_t launches;
	struct coro_lease *page = context == lease.context ? lease_page() : NULL;

	if (lease.is_shuffled)
		return atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
	if (lease.is_fixed)
		return GENERATION_FIXED;
	return page ? atomic_load(&page->generation) : 0;
}

uint64_t lease_units(const struct context *context)
{
	static _Atomic uint64_t number;
	struct coro_lease *page = context == lease.context ? lease_page() : NULL;
	uint64_t mixed;

	if (!lease.is_shuffled)
		return page && !lease.is_fixed ? atomic_load(&page->units) : CORO_UNITS_ALL;
	mixed = mix(lease.seed ^ mix(atomic_fetch_add_explicit(&number, 1, memory_order_relaxed)));
	return shuffled[mixed % (sizeof(shuffled) / sizeof(*shuffled))];
}

static int receive_page(int connection)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *part;
	int page = -1;
	ssize_t got;

	do
		got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != 1)
		return -1;
	part = CMSG_FIRSTHDR(&message);
	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
	    part->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&page, CMSG_DATA(part), sizeof(page));
	return page;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = ANSWER_S };
	int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), failed;

	if (connection < 0)
		return -1;
	if (strlen(path) < sizeof(address.sun_path)) {
		memcpy(address.sun_path, path, strlen(path));
		setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		do
			failed = connect(connection, (struct sockaddr *)&address, sizeof(address));
		while (failed && errno == EINTR);
		if (!failed)
			return connection;
	}
	close(connection);
	return -1;
}

static struct coro_lease *map_page(int file)
{
	struct coro_lease *page = mmap(NULL, CORO_LEASE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (page == MAP_FAILED)
		return NULL;
	if (page->magic == CORO_LEASE_MAGIC && page->version == CORO_LEASE_VERSION)
		return page;
	munmap(page, CORO_LEASE_BYTES);
	return NULL;
}

static void follow(struct coro_lease *page, struct context *context, uint64_t generation)
{
	static const struct timespec pause = { .tv_nsec = FENCE_LOOK_NS };
	uint64_t units = atomic_load(&page->units);

	/* A launch reads the generation itself. To make the partition ahead of it may need the GPU. */
	atomic_store(&page->seen, generation);
	partition_make(context, units);
	pthread_mutex_lock(&context->lock);
	if (context->handle)
		partition_find(context, units);
	units = partition_units(context, units);
	pthread_mutex_unlock(&context->lock);
	while (!fence_is_over(context, units)) {
		/* The next one is awaited instead. The GPU server does not wait for a process that is fixed. */
		if (atomic_load(&page->generation) != generation || lease.is_fixed)
			return;
		nanosleep(&pause, NULL);
	}
	atomic_store(&page->fenced, generation);
}

static void *agent(void *argument)
{
	struct context *context = argument;
	struct coro_lease *page = lease_page();
	uint64_t followed = 0;

	prctl(PR_SET_NAME, "belfry-lease");
	for (;;) {
		uint64_t generation = atomic_load(&page->generation);

		if (generation != followed) {
			follow(page, context, generation);
			followed = generation;
			continue;
		}
		/* The word in front of a little-endian counter is its lower half. */
		syscall(SYS_futex, &page->generation, FUTEX_WAIT, (uint32_t)generation, NULL, NULL, 0);
	}
	return NULL;
}

/* The program's signals are not the agent's. */
static bool start_agent(void)
{
	sigset_t all, before;
	pthread_t thread;
	bool is_started;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	is_started = !pthread_create(&thread, NULL, agent, lease.context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (is_started)
		pthread_detach(thread);
	return is_started;
}

/* Without a page the process stays on all SMs, and its programs run as under MPS alone. */
static void attach(void)
{
	struct context *context = lease.context;
	struct coro_lease *page = NULL;
	int file;

	lease.connection = lease.path ? connect_to(lease.path) : -1;
	if (lease.connection < 0)
		return;
	file = receive_page(lease.connection);
	if (file >= 0) {
		page = map_page(file);
		close(file);
	}
	if (!page) {
		/* With a connection the GPU server would wait for the answers of this process. */
		close(lease.connection);
		lease.connection = -1;
		fprintf(stderr, "belfry: the GPU server gave no lease; the program uses all SMs\n");
		return;
	}
	atomic_store_explicit(&lease.page, page, memory_order_release);
	partition_make(context, lease_units(context));
	pthread_mutex_lock(&context->lock);
	partition_find(context, lease_units(context));
	pthread_mutex_unlock(&context->lock);
	if (!start_agent() || lease.is_fixed)
		lease_fix();
}

/* A context of another device stays on all of its SMs. */
void lease_attach(struct context *context)
{
	struct context *none = NULL;
	int error = errno;

	if (!atomic_compare_exchange_strong(&lease.context, &none, context) && none != context)
		lease_fix();
	pthread_once(&lease.attached, attach);
	errno = error;
}

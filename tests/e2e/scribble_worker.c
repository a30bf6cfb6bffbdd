#include "scribble_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "managed_file.h"
#include "soft/link/link.h"

static const uint8_t role_count[ROLES] = { 2, 2, 2, 2, 2, 4, 8, 2, 3, 4 };

/* splitmix64 */
uint64_t random_next(uint64_t *random)
{
	uint64_t z = *random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t random_below(uint64_t *random, uint32_t limit)
{
	return (uint32_t)(random_next(random) % limit);
}

bool random_one_in(uint64_t *random, uint32_t many)
{
	return !random_below(random, many);
}

/* The first of each role mostly, so that what belongs together meets. */
static uint32_t handle_in(uint64_t *random, enum role role)
{
	return FIRST_OF(role) + (random_one_in(random, 2) ? 0 : random_below(random, role_count[role]));
}

uint32_t random_handle(uint64_t *random)
{
	return handle_in(random, (enum role)random_below(random, ROLES));
}

bool worker_is_odd(struct worker *w, uint32_t many)
{
	return random_one_in(&w->random, many) && !w->is_plain;
}

uint32_t worker_handle(struct worker *w, enum role role)
{
	switch (w->is_plain ? 2 : random_below(&w->random, 24)) {
	case 0:
		return random_handle(&w->random);
	case 1:
		return random_one_in(&w->random, 2) ? 0 : 0x5bf00000u + random_below(&w->random, 4);
	default:
		return handle_in(&w->random, role);
	}
}

uint64_t worker_client(struct worker *w)
{
	unsigned at = worker_is_odd(w, 6) ? random_below(&w->random, SCRIBBLE_CLIENTS)
					  : w->number % SCRIBBLE_CALLERS;

	return atomic_load_explicit(&w->board->clients[at], memory_order_relaxed);
}

uint32_t worker_client_handle(struct worker *w)
{
	return (uint32_t)worker_client(w);
}

int random_slot(uint64_t *random)
{
	return SLOT_FIRST + (int)random_below(random, SLOT_COUNT);
}

int worker_slot(struct worker *w, unsigned from, unsigned to)
{
	return worker_is_odd(w, 12) ? random_slot(&w->random)
				    : SLOT_FIRST + (int)(from + random_below(&w->random, to - from));
}

void words_put(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / 4; i++)
		__atomic_store_n((uint32_t *)to + i, ((const uint32_t *)from)[i], __ATOMIC_RELAXED);
}

void words_get(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / 4; i++)
		((uint32_t *)to)[i] = __atomic_load_n((const uint32_t *)from + i, __ATOMIC_RELAXED);
}

void words_fill(struct worker *w, void *to, size_t bytes, bool is_noise)
{
	for (size_t i = 0; i < bytes / 4; i++)
		__atomic_store_n((uint32_t *)to + i, is_noise ? (uint32_t)random_next(&w->random) : 0,
				 __ATOMIC_RELAXED);
}

int worker_call(struct worker *w, int fd, uint32_t cmd, void *arg, uint32_t bytes)
{
	uint32_t room = (bytes + 3) & ~3u;
	void *at = w->buffers->arg;
	int rc;

	if (room > SCRIBBLE_ARG_BYTES)
		room = SCRIBBLE_ARG_BYTES;
	words_put(at, arg, room);
	if (worker_is_odd(w, 64)) /* where there is no memory, or none after a while */
		at = random_one_in(&w->random, 2) ? NULL : w->buffers->list + SCRIBBLE_ARG_BYTES - 8;
	rc = ioctl(fd, cmd, at) < 0 ? -errno : 0;
	words_get(arg, w->buffers->arg, room);
	atomic_fetch_add_explicit(&w->board->calls, 1, memory_order_relaxed);
	return rc;
}

bool worker_rm_call(struct worker *w, int fd, uint32_t nr, void *arg, uint32_t bytes, const uint32_t *status)
{
	uint32_t magic = worker_is_odd(w, 30) ? random_below(&w->random, 256) : 'F';
	bool is_done = !worker_call(w, fd, _IOC(_IOC_READ | _IOC_WRITE, magic, nr, bytes), arg, bytes) &&
		       (!status || !*status);

	if (is_done)
		atomic_fetch_add_explicit(&w->board->done, 1, memory_order_relaxed);
	return is_done;
}

void words_put32(uint8_t *params, size_t at, uint32_t value)
{
	words_put(params + at, &value, sizeof(value));
}

void words_put64(uint8_t *params, size_t at, uint64_t value)
{
	words_put(params + at, &value, sizeof(value));
}

/* A file that belongs at this slot. */
static int open_for(const char *folder, unsigned slot)
{
	int pair[2], fd;

	if (slot < SLOT_CONTROLS)
		return link_open(folder, SOFT_FILE_CONTROL);
	if (slot < SLOT_GPUS)
		return link_open(folder, slot == SLOT_GPUS - 1 ? SOFT_FILE_GPU_0 + 1 : SOFT_FILE_GPU_0);
	if (slot < SLOT_MANAGED)
		return managed_file_open(folder);
	if (slot == SLOT_MANAGED)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	if (slot == SLOT_MANAGED + 1) {
		if (pipe2(pair, O_CLOEXEC | O_NONBLOCK))
			return -errno;
		close(pair[1]);
		return pair[0];
	}
	fd = memfd_create("scribble", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, 1 << 16))
		close(fd);
	return fd;
}

void slot_dup(int from, int to)
{
	syscall(SYS_dup2, from, to);
}

void slot_close(int fd)
{
	syscall(SYS_close, fd);
}

/* One at a time, and none while another thread does: a child may find it locked for ever. */
void slot_open(const char *folder, unsigned from, unsigned slot)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int fd;

	if (pthread_mutex_trylock(&lock))
		return;
	fd = open_for(folder, from);
	if (fd >= 0) {
		slot_dup(fd, SLOT_FIRST + (int)slot);
		close(fd);
	}
	pthread_mutex_unlock(&lock);
}

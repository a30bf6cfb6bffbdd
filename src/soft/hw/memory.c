/* Memory: sealed memfds, so that a program that has the file cannot shrink it while the GPU uses it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/number.h"
#include "base/own.h"
#include "soft/hw/state.h"

/* Reserves bytes of the GPU's memory; false if they do not fit. */
static bool take_vidmem(struct hw_gpu *gpu, uint64_t bytes)
{
	uint64_t used = __atomic_load_n(&gpu->used_bytes, __ATOMIC_RELAXED);

	do {
		if (bytes > gpu->options.mem_bytes || used > gpu->options.mem_bytes - bytes)
			return false;
	} while (!__atomic_compare_exchange_n(&gpu->used_bytes, &used, used + bytes, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return true;
}

int hw_file_new(const char *name, uint64_t bytes, uint8_t **at)
{
	cleanup_close int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *got;

	if (file < 0 || ftruncate(file, (off_t)bytes) ||
	    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
	if (got == MAP_FAILED)
		return -errno;
	*at = got;
	return bf_take_fd(&file);
}

int hw_memory_new(struct hw_gpu *gpu, uint64_t bytes, bool is_vidmem, struct hw_memory **memory,
		  struct bf_error *err)
{
	struct hw_memory *m;

	*memory = NULL;
	if (!bytes || bytes > 1ull << SOFT_ADDRESS_BITS)
		return bf_fail(err, EINVAL, "%llu bytes of memory: between 1 and 2^%d are possible",
			       (unsigned long long)bytes, SOFT_ADDRESS_BITS);
	bytes = bf_round_up(bytes, is_vidmem ? SOFT_VIDMEM_ROUND : SOFT_PAGE_BYTES);
	m = calloc(1, sizeof(*m));
	if (!m)
		return bf_fail(err, ENOMEM, "no memory");
	if (is_vidmem && !take_vidmem(gpu, bytes)) {
		free(m);
		return bf_fail(err, ENOMEM, "%llu bytes of device memory: of %llu, %llu are used",
			       (unsigned long long)bytes, (unsigned long long)gpu->options.mem_bytes,
			       (unsigned long long)gpu->used_bytes);
	}
	m->count = 1;
	m->bytes = bytes;
	m->gpu = is_vidmem ? gpu : NULL;
	m->file = hw_file_new(is_vidmem ? "belfry-device" : "belfry-host", bytes, &m->at);
	if (m->file < 0) {
		int rc = m->file;

		if (m->gpu)
			__atomic_fetch_sub(&gpu->used_bytes, bytes, __ATOMIC_RELAXED);
		free(m);
		return bf_fail(err, -rc, "%llu bytes of memory: %s", (unsigned long long)bytes,
			       strerror(-rc));
	}
	*memory = m;
	return 0;
}

struct hw_memory *hw_memory_get(struct hw_memory *memory)
{
	__atomic_fetch_add(&memory->count, 1, __ATOMIC_RELAXED);
	return memory;
}

void hw_memory_put(struct hw_memory *memory)
{
	if (!memory || __atomic_sub_fetch(&memory->count, 1, __ATOMIC_ACQ_REL))
		return;
	munmap(memory->at, memory->bytes);
	/* A program may still have it mapped; its pages are returned to the host in any case. */
	(void)!fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)memory->bytes);
	close(memory->file);
	if (memory->gpu)
		__atomic_fetch_sub(&memory->gpu->used_bytes, memory->bytes, __ATOMIC_RELAXED);
	free(memory);
}

int hw_memory_file(const struct hw_memory *memory)
{
	return memory->file;
}

uint8_t *hw_memory_at(const struct hw_memory *memory)
{
	return memory->at;
}

uint64_t hw_memory_bytes(const struct hw_memory *memory)
{
	return memory->bytes;
}

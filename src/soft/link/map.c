/* Maps of device files, and the doorbell. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"
#include "soft/link/alone.h"
#include "soft/link/ask.h"
#include "soft/link/link.h"

/* Requests the memory, and the offset in it of the map that was prepared on the file. */
static int ask_map(int fd, pid_t on_behalf, size_t bytes, uint64_t offset, uint64_t *base)
{
	struct ask a = { .request = { .kind = SOFT_REQUEST_MAP,
				      .on_behalf = on_behalf,
				      .arg_bytes = sizeof(*base),
				      .bytes = bytes,
				      .offset = offset },
			 .arg = base };
	int rc;

	*base = 0;
	rc = ask(fd, &a);
	if (rc)
		return rc;
	return a.reply_file < 0 ? -EPROTO : a.reply_file;
}

int link_map_file(int fd, pid_t on_behalf, size_t bytes, uint64_t offset)
{
	uint64_t base;
	cleanup_close int file = ask_map(fd, on_behalf, bytes, offset, &base);

	/* Mapping the file would start at offset 0 instead. */
	if (file >= 0 && base)
		return -EOPNOTSUPP;
	return bf_take_fd(&file);
}

static void *fail(int code)
{
	errno = code;
	return MAP_FAILED;
}

/* mremap replaces the mapping in one step. A failed mmap with MAP_FIXED would leave a hole that another
 * thread may take. */
static void *move(void *from, void *at, size_t bytes)
{
	void *moved;

	if (!at || from == MAP_FAILED)
		return from;
	moved = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
	if (moved == MAP_FAILED) {
		int why = errno;

		munmap(from, bytes);
		return fail(why);
	}
	return moved;
}

void *link_map(int fd, void *at, size_t bytes, int prot, uint64_t offset)
{
	cleanup_close int file = -1;
	uint64_t base;
	void *map;

	if (!link_is_alone) {
		map = mmap(NULL, bytes, prot, MAP_SHARED, fd, (off_t)offset);
		if (map != MAP_FAILED)
			return move(map, at, bytes);
		if (errno == ENOSYS) /* a filter whose supervisor has died */
			return fail(ENODEV);
		if (errno != ENODEV)
			return MAP_FAILED;
		link_is_alone = true;
	}
	file = ask_map(fd, 0, bytes, offset, &base);
	if (file < 0)
		return fail(-file);
	return mmap(at, bytes, prot, MAP_SHARED | (at ? MAP_FIXED : 0), file, (off_t)(base + offset));
}

/* The GPU's front end stores SLEEPING (a full barrier), then reads the rings, and sleeps if it finds nothing
 * new. The program stores GP_PUT before it rings. So either the front end sees that GP_PUT, or this thread
 * sees SLEEPING. */
void link_rang(volatile uint32_t *bell)
{
	_Atomic uint32_t *sleeping = (_Atomic uint32_t *)(uintptr_t)(bell + SOFT_BELL_SLEEPING / 4);

	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(sleeping, memory_order_relaxed))
		return;
	atomic_store(sleeping, 0);
	syscall(SYS_futex, sleeping, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

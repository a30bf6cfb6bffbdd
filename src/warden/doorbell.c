/* Doorbells. A program that maps a doorbell gets a page of memory that the gate watches. The driver is not
 * involved, so the program never has a file or a mapping through which it could reach the real doorbell. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "warden/state.h"

enum { DOORBELLS_MAX = 64 };

/* Sealed, so that the program cannot remove pages that the poller reads. */
static int doorbell_memory(uint64_t bytes)
{
	cleanup_close int fd = memfd_create(DOORBELL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return bf_take_fd(&fd);
}

static void doorbell_free(struct doorbell *doorbell)
{
	if (doorbell->bell)
		gate_bell_remove(doorbell->bell); /* from here on the poller does not read the page */
	munmap((void *)(uintptr_t)doorbell->page, doorbell->bytes);
	free(doorbell);
}

static void doorbell_remove(struct process *process, struct doorbell *doorbell)
{
	LIST_REMOVE(doorbell, next);
	warden_give_descriptors(process->warden, doorbell->traps);
	doorbell_free(doorbell);
}

static int doorbell_add(struct process *process, const struct expected_map *expected, int memory)
{
	struct doorbell *doorbell = calloc(1, sizeof(*doorbell));
	void *page = mmap(NULL, expected->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	struct stat st;

	if (!doorbell || page == MAP_FAILED || fstat(memory, &st)) {
		if (page != MAP_FAILED)
			munmap(page, expected->bytes);
		free(doorbell);
		return -ENOMEM;
	}
	*doorbell = (struct doorbell){ .client = expected->client,
				       .object = expected->object,
				       .page = page,
				       .bytes = expected->bytes,
				       .inode = st.st_ino,
				       .bell = gate_bell_add(process->gate, page) };
	if (!doorbell->bell) {
		doorbell_free(doorbell);
		return -ENOMEM;
	}
	LIST_INSERT_HEAD(&process->doorbells, doorbell, next);
	return 0;
}

int doorbell_open(struct process *process, const struct expected_map *expected)
{
	cleanup_close int memory = -1;
	unsigned count = 0;

	for (struct doorbell *d = LIST_FIRST(&process->doorbells); d; d = LIST_NEXT(d, next))
		count++;
	memory = count < DOORBELLS_MAX ? doorbell_memory(expected->bytes) : -ENOMEM;
	if (memory < 0 || doorbell_add(process, expected, memory))
		return -ENOMEM;
	return bf_take_fd(&memory);
}

void doorbell_gone(struct warden *warden, uint32_t client, uint32_t object)
{
	struct doorbell *d, *after;

	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		LIST_FOREACH_SAFE(d, &p->doorbells, next, after)
			if (d->client == client && d->object == object)
				doorbell_remove(p, d);
}

void doorbells_gone(struct process *process)
{
	while (!LIST_EMPTY(&process->doorbells))
		doorbell_remove(process, LIST_FIRST(&process->doorbells));
}

/* Doorbells. A program that maps one gets a page of memory which we watch. The driver never hears of it, so at
 * no time is there a file or a mapping in the program through which the real doorbell could be reached. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

enum { MAP_FD_ADDRESS_AT = 32, DOORBELL_BYTES_MAX = 1 << 20, DOORBELLS_MAX = 64 };

/* "Mapped": the next mmap of this file shall find a doorbell. */
struct answer site_map_doorbell(struct site *site)
{
	struct expected_map *expected;
	uint64_t bytes = site->call.bytes, address = 0;

	if (bytes < 4096 || bytes > DOORBELL_BYTES_MAX || site->call.offset || site->call.fd < 0)
		return site_status(site, RM_ERR_INVALID_ARGUMENT);
	for (expected = site->process->expected; expected; expected = expected->next)
		if (expected->fd == site->call.fd)
			break;
	if (!expected) {
		expected = calloc(1, sizeof(*expected));
		if (!expected)
			return RETURN(-ENOMEM);
		expected->fd = site->call.fd;
		expected->next = site->process->expected;
		site->process->expected = expected;
	}
	expected->client = site->call.client;
	expected->object = site->call.object;
	expected->bytes = bytes;
	/* Where the driver would return an address: an offset into the file is all that is used of it. */
	if (site_poke(site, site->arg_at + MAP_FD_ADDRESS_AT, &address, sizeof(address)))
		return RETURN(-EFAULT);
	return site_status(site, RM_OK);
}

static struct expected_map **find_expected(struct site *site, uint64_t bytes)
{
	struct expected_map **at;

	for (at = &site->process->expected; *at; at = &(*at)->next)
		if ((*at)->bytes == bytes &&
		    ((*at)->fd == site->fd || bf_same_file(site->process->pid, (*at)->fd, site->fd)))
			return at;
	return NULL;
}

/* A doorbell in memory: sealed, so that the program cannot take pages away from under the poller. */
static int doorbell_memory(uint64_t bytes)
{
	cleanup_close int fd = memfd_create("belfry-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -errno;
	return bf_take_fd(&fd);
}

static void doorbell_free(struct doorbell *doorbell)
{
	if (doorbell->bell)
		gate_bell_remove(doorbell->bell); /* from here on nobody looks at the page */
	munmap((void *)(uintptr_t)doorbell->page, doorbell->bytes);
	free(doorbell);
}

static int doorbell_add(struct process *process, const struct expected_map *expected, int memory)
{
	struct doorbell *doorbell = calloc(1, sizeof(*doorbell));
	void *page = mmap(NULL, expected->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);

	if (!doorbell || page == MAP_FAILED) {
		free(doorbell);
		return -ENOMEM;
	}
	*doorbell = (struct doorbell){ .client = expected->client,
				       .object = expected->object,
				       .page = page,
				       .bytes = expected->bytes,
				       .bell = gate_bell_add(process->gate, page) };
	if (!doorbell->bell) {
		doorbell_free(doorbell);
		return -ENOMEM;
	}
	doorbell->next = process->doorbells;
	process->doorbells = doorbell;
	return 0;
}

bool site_expects_doorbell(struct site *site, uint64_t bytes)
{
	return find_expected(site, bytes) != NULL;
}

struct answer site_mmap_doorbell(struct site *site, uint64_t bytes)
{
	struct expected_map **at = find_expected(site, bytes), *expected;
	cleanup_close int memory = -1;
	unsigned count = 0;
	int rc;

	if (!at)
		return RETURN(-EINVAL);
	for (struct doorbell *d = site->process->doorbells; d; d = d->next)
		count++;
	expected = *at;
	memory = count < DOORBELLS_MAX ? doorbell_memory(bytes) : -ENOMEM;
	if (memory < 0 || doorbell_add(site->process, expected, memory))
		return RETURN(-ENOMEM);
	*at = expected->next;
	free(expected);
	rc = standin_put(site, memory);
	return rc ? RETURN(rc) : PASS;
}

void doorbell_gone(struct warden *warden, uint32_t client, uint32_t object)
{
	for (struct process *p = warden->processes; p; p = p->next)
		for (struct doorbell **at = &p->doorbells, *found; (found = *at);) {
			if (found->client == client && found->object == object) {
				*at = found->next;
				doorbell_free(found);
			} else {
				at = &found->next;
			}
		}
}

void doorbells_gone(struct process *process)
{
	for (struct doorbell *d = process->doorbells, *next; d; d = next) {
		next = d->next;
		doorbell_free(d);
	}
	for (struct expected_map *e = process->expected, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	process->doorbells = NULL;
	process->expected = NULL;
}

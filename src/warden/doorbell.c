/* Doorbells. A program that maps one gets a page of memory which we watch. The driver never hears of it, so at
 * no time is there a file or a mapping in the program through which the real doorbell could be reached. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
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
	expected->bytes = bytes;
	/* Where the driver would return an address: an offset into the file is all that is used of it. */
	if (bf_poke((pid_t)site->request->pid, site->arg_at + MAP_FD_ADDRESS_AT, &address, sizeof(address)))
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

/* Put `file` where the program's descriptor `as` is, for the thread that is waiting for our answer. */
static int put_file(const struct site *site, int file, int as)
{
	struct seccomp_notif_addfd add = { .id = site->request->id,
					   .flags = SECCOMP_ADDFD_FLAG_SETFD,
					   .srcfd = (uint32_t)file,
					   .newfd = (uint32_t)as,
					   .newfd_flags = O_CLOEXEC };

	return ioctl(site->warden->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}

static void doorbell_free(struct doorbell *doorbell)
{
	if (doorbell->page)
		munmap((void *)(uintptr_t)doorbell->page, doorbell->bytes);
	if (doorbell->real_fd >= 0)
		close(doorbell->real_fd);
	free(doorbell);
}

static struct doorbell *doorbell_new(struct site *site, uint64_t bytes, int memory)
{
	struct doorbell *doorbell = calloc(1, sizeof(*doorbell));
	void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	struct stat st;

	if (!doorbell || page == MAP_FAILED || fstat(memory, &st)) {
		free(doorbell);
		return NULL;
	}
	*doorbell = (struct doorbell){ .page = page,
				       .bytes = bytes,
				       .as_fd = site->fd,
				       .inode = st.st_ino,
				       .real_fd = site_take_file(site, site->fd) };
	if (doorbell->real_fd < 0 || !gate_bell_add(site->process->gate, doorbell->page)) {
		doorbell_free(doorbell);
		return NULL;
	}
	doorbell->next = site->process->doorbells;
	site->process->doorbells = doorbell;
	return doorbell;
}

static struct answer mmap_doorbell(struct site *site, struct expected_map **at, uint64_t bytes)
{
	struct expected_map *expected = *at;
	cleanup_close int memory = -1;
	struct doorbell *doorbell;
	unsigned count = 0;
	int rc;

	for (doorbell = site->process->doorbells; doorbell; doorbell = doorbell->next)
		count++;
	if (count >= DOORBELLS_MAX)
		return RETURN(-ENOMEM);
	memory = doorbell_memory(bytes);
	doorbell = memory < 0 ? NULL : doorbell_new(site, bytes, memory);
	if (!doorbell)
		return RETURN(-ENOMEM);
	*at = expected->next;
	free(expected);
	rc = put_file(site, memory, site->fd);
	if (rc)
		return RETURN(rc);
	return PASS;
}

/* The program's GPU file stands aside until the program wants it again as such; most close it at once. */
bool doorbell_restore(struct site *site, const struct stat *st)
{
	for (struct doorbell *d = site->process->doorbells; d; d = d->next) {
		if (d->real_fd < 0 || d->as_fd != site->fd || d->inode != st->st_ino || !S_ISREG(st->st_mode))
			continue;
		put_file(site, d->real_fd, d->as_fd);
		close(d->real_fd);
		d->real_fd = -1;
		return true;
	}
	return false;
}

void doorbells_gone(struct process *process)
{
	for (struct doorbell *d = process->doorbells, *next; d; d = next) {
		next = d->next;
		doorbell_free(d);
	}
	process->doorbells = NULL;
}

/* Managed memory comes from the device as the GPU touches it; what can be bounded is how much is mapped. */
static struct answer mmap_managed(struct site *site, uint64_t bytes)
{
	struct warden *warden = site->warden;

	site->process->managed_bytes = process_managed_bytes(site->process);
	warden_refresh_managed(warden);
	if (bytes > ledger_room(warden->ledger))
		warden_reconcile(warden);
	if (bytes > ledger_room(warden->ledger)) {
		warden->refusals++;
		bf_log(BF_LOG_INFO, "process %d: %llu bytes of managed memory refused", site->process->pid,
		       (unsigned long long)bytes);
		return RETURN(-ENOMEM);
	}
	site->process->managed_bytes += bytes;
	ledger_set_managed(warden->ledger, ledger_managed(warden->ledger) + bytes);
	return PASS;
}

struct answer site_mmap(struct site *site)
{
	uint64_t bytes = (site->request->data.args[1] + 4095) & ~4095ull;
	struct expected_map **expected;

	bf_log(BF_LOG_DEBUG, "%d: mmap of %llu bytes of file %d", site->process->pid,
	       (unsigned long long)bytes, site->fd);
	switch (site->file) {
	case DEVICE_FILE_MANAGED:
		return mmap_managed(site, bytes);
	case DEVICE_FILE_OTHER_GPU:
		return RETURN(-ENODEV);
	case DEVICE_FILE_GPU:
	case DEVICE_FILE_CONTROL:
		expected = find_expected(site, bytes);
		return expected ? mmap_doorbell(site, expected, bytes) : PASS;
	default:
		return PASS;
	}
}

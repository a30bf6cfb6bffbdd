/* Access to programs: their memory, their descriptors, their files in /proc. Each access may block for as
 * long as the program wants, for example on a file system that the program serves. So the access proxy
 * makes it. After a time limit the proxy is killed, and the program with it. Nothing here is called under a
 * lock. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

/* Memory that is swapped out or on a slow disk arrives within this time. Only the vGPU itself waits. */
enum { ACCESS_LIMIT_MS = 3000, READ_STEP = 64 << 10, PAGE_BYTES = 4096, RENEWALS = 3 };

/* Replace the access proxy, which was killed by a timeout or by warden_end_run. */
static bool renew_access(struct warden *warden)
{
	struct bf_error err = { 0 };
	struct proxy *fresh = proxy_new("belfry-access", &err), *old;

	if (!fresh)
		bf_log(BF_LOG_ERROR, "%s", err.text);
	pthread_mutex_lock(&warden->lock);
	old = warden->access;
	warden->access = fresh;
	pthread_mutex_unlock(&warden->lock);
	proxy_free(old);
	return fresh != NULL;
}

/* Kills `process` if the call exceeds the time limit; NULL: the caller handles that. */
static long access_call(struct warden *warden, struct process *process, long nr, const uint64_t args[6])
{
	long rc;

	if (!warden->access && !renew_access(warden))
		return -EIO;
	rc = proxy_call(warden->access, ACCESS_LIMIT_MS, nr, args);
	/* The proxy was killed for a run that has ended, or died with the thread that served the vGPU
	 * before. */
	for (int i = 0; rc == -ECANCELED && i < RENEWALS; i++) {
		if (!renew_access(warden))
			return -EIO;
		rc = proxy_call(warden->access, ACCESS_LIMIT_MS, nr, args);
	}
	if (rc != -ETIMEDOUT && rc != -EOWNERDEAD && rc != -ECANCELED)
		return rc;
	if (rc == -ETIMEDOUT && process) {
		pthread_mutex_lock(&warden->lock);
		process_end(process, "its memory or its files do not answer in time");
		pthread_mutex_unlock(&warden->lock);
	}
	renew_access(warden);
	return -EIO;
}

int file_look(int folder, const char *path, struct stat *st)
{
	struct statx x;

	if (statx(folder, path, AT_STATX_DONT_SYNC | (*path ? 0 : AT_EMPTY_PATH), 0, &x))
		return errno;
	*st = (struct stat){ .st_mode = x.stx_mode,
			     .st_ino = x.stx_ino,
			     .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
			     .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor) };
	return 0;
}

static int get_fd(struct site *site, pid_t tid, int fd)
{
	struct process *process = site->process;
	const struct warden_reach *reach = &process->reach;
	bool is_shared = tid == process->pid || bf_same_files(tid, process->pid) == 1;
	cleanup_close int thread = -1;

	if (reach->get_fd)
		return reach->get_fd(reach->context, is_shared ? process->pid : tid, fd);
	if (!is_shared) {
		thread = bf_pidfd_open_thread(tid);
		if (thread < 0)
			return -EPERM;
	}
	uint64_t args[6] = { (uint64_t)(is_shared ? process->pidfd : thread), (uint64_t)fd };
	return (int)access_call(site->warden, process, SYS_pidfd_getfd, args);
}

/* Closing may block too: a FUSE file system is told of each close. */
static void close_unknown(struct warden *warden, int fd)
{
	uint64_t args[6] = { (uint64_t)fd };

	access_call(warden, NULL, SYS_close, args);
}

/* Another thread may have replaced the file since it was examined: a file that is neither a device file nor a
 * pipe is not kept. */
int site_take_file(struct site *site, int fd)
{
	struct device *device = site->warden->device;
	int file = fd < 0 ? -EBADF : get_fd(site, (pid_t)site->request->pid, fd);
	struct stat st = { 0 };

	if (file < 0)
		return file;
	if (!file_look(file, "", &st) &&
	    (S_ISFIFO(st.st_mode) || device->ops->classify(device, &st) != DEVICE_FILE_NONE))
		return file;
	close_unknown(site->warden, file);
	return -EBADF;
}

/* /proc/PID/mem is opened by process ID. The caller sleeps in its call as long as its notification is valid.
 * If the notification is valid after the open, the process ID was not reused, and the file is the memory of
 * the caller. */
static int open_memory(struct site *site)
{
	const struct process *process = site->process;
	char path[32];
	uint64_t args[6] = { (uint64_t)AT_FDCWD, (uintptr_t)path, O_RDWR | O_CLOEXEC };
	int fd;

	if (process->reach.open_memory)
		return process->reach.open_memory(process->reach.context, process->pid);
	snprintf(path, sizeof(path), "/proc/%d/mem", process->pid);
	fd = (int)access_call(site->warden, site->process, SYS_openat, args);
	if (fd < 0 || site_is_waiting(site))
		return fd;
	close(fd);
	return -ESRCH;
}

/* The descriptor refers to an address space, not to a process: the warden never writes to another process,
 * even if the process ID is reused. After an exec the old address space is gone, and the file reads
 * nothing. */
static bool reopen_memory(struct site *site)
{
	struct process *process = site->process;

	if (site->has_reopened)
		return false;
	site->has_reopened = true;
	if (process->memory_fd >= 0)
		close(process->memory_fd);
	process->memory_fd = open_memory(site);
	return process->memory_fd >= 0;
}

static long copy_by_file(struct site *site, uint64_t at, void *buffer, size_t bytes, bool is_write)
{
	uint64_t args[6] = { (uint64_t)site->process->memory_fd, (uintptr_t)buffer, bytes, at };

	return access_call(site->warden, site->process, is_write ? SYS_pwrite64 : SYS_pread64, args);
}

static int copy_memory(struct site *site, uint64_t at, void *buffer, size_t bytes, bool is_write)
{
	long copied = 0;

	if (!bytes)
		return 0;
	if (site->process->memory_fd >= 0)
		copied = copy_by_file(site, at, buffer, bytes, is_write);
	if (copied <= 0 && reopen_memory(site))
		copied = copy_by_file(site, at, buffer, bytes, is_write);
	return copied == (long)bytes ? 0 : -EFAULT;
}

int site_peek(struct site *site, uint64_t at, void *to, size_t bytes)
{
	return copy_memory(site, at, to, bytes, false);
}

int site_poke(struct site *site, uint64_t at, const void *from, size_t bytes)
{
	return copy_memory(site, at, (void *)(uintptr_t)from, bytes, true);
}

static int add_fd(const struct site *site, struct seccomp_notif_addfd *add)
{
	uint64_t args[6] = { (uint64_t)site->run->listener, SECCOMP_IOCTL_NOTIF_ADDFD, (uintptr_t)add };

	add->id = site->request->id;
	return (int)access_call(site->warden, site->process, SYS_ioctl, args);
}

int site_set_fd(const struct site *site, int file, int as)
{
	struct seccomp_notif_addfd add = { .flags = SECCOMP_ADDFD_FLAG_SETFD,
					   .srcfd = (uint32_t)file,
					   .newfd = (uint32_t)as,
					   .newfd_flags = O_CLOEXEC };
	int rc = add_fd(site, &add);

	return rc < 0 ? rc : 0;
}

int site_give_fd(const struct site *site, int file, bool is_cloexec)
{
	struct seccomp_notif_addfd add = { .srcfd = (uint32_t)file,
					   .newfd_flags = is_cloexec ? O_CLOEXEC : 0 };

	return add_fd(site, &add);
}

/* Reads by process ID, from a process that need not belong to the vGPU. The data is only compared with known
 * paths. */
static int peek_by_pid(struct site *site, uint64_t at, void *to, size_t bytes)
{
	struct iovec local = { to, bytes }, remote = { (void *)(uintptr_t)at, bytes };
	uint64_t args[6] = { site->request->pid, (uintptr_t)&local, 1, (uintptr_t)&remote, 1, 0 };

	return access_call(site->warden, NULL, SYS_process_vm_readv, args) == (long)bytes ? 0 : -EFAULT;
}

/* The string may end at the end of its page, so the first read does not cross it. */
int site_peek_path(struct site *site, uint64_t at, char *to, size_t room)
{
	size_t in_page = PAGE_BYTES - at % PAGE_BYTES, bytes = room - 1 < in_page ? room - 1 : in_page;
	int rc = peek_by_pid(site, at, to, bytes);

	to[rc ? 0 : bytes] = 0;
	if (!rc && strlen(to) == bytes && bytes < room - 1)
		rc = peek_by_pid(site, at + bytes, to + bytes, room - 1 - bytes);
	to[room - 1] = 0;
	return rc;
}

static char *read_whole(struct process *process, int fd, size_t most_bytes)
{
	size_t room = READ_STEP, length = 0;
	char *text = malloc(room + 1);

	while (text) {
		uint64_t args[6] = { (uint64_t)fd, (uintptr_t)(text + length), room - length };
		long got = access_call(process->warden, process, SYS_read, args);
		char *more;

		if (got < 0) {
			free(text);
			return NULL;
		}
		length += (size_t)got;
		if (!got)
			break;
		if (room - length > READ_STEP / 2)
			continue;
		if (room >= most_bytes) { /* a part would be read as the whole */
			free(text);
			return NULL;
		}
		room += READ_STEP;
		more = realloc(text, room + 1);
		if (!more)
			free(text);
		text = more;
	}
	if (text)
		text[length] = 0;
	return text;
}

long process_access(struct process *process, long nr, const uint64_t args[6])
{
	return access_call(process->warden, process, nr, args);
}

char *process_read(struct process *process, const char *name, size_t most_bytes)
{
	char path[64];
	uint64_t args[6] = { (uint64_t)AT_FDCWD, (uintptr_t)path, O_RDONLY | O_CLOEXEC };
	long fd;
	char *text;

	snprintf(path, sizeof(path), "/proc/%d/%s", process->pid, name);
	fd = access_call(process->warden, process, SYS_openat, args);
	if (fd < 0)
		return NULL;
	text = read_whole(process, (int)fd, most_bytes);
	close((int)fd);
	return text;
}

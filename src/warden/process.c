/* The processes of the vGPU, and their files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

bool process_has_exited(const struct process *process)
{
	struct pollfd poll_for = { .fd = process->pidfd, .events = POLLIN };

	return poll(&poll_for, 1, 0) == 1;
}

static struct process *process_new(struct warden *warden, const struct run *run, pid_t pid)
{
	struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->warden = warden;
	process->run = run->number;
	process->reach = run->reach;
	process->memory_fd = -1;
	process->pid = pid;
	process->pidfd = bf_pidfd_open(pid);
	process->gate = process->pidfd >= 0 ? gate_program_add(warden->gate_vgpu) : NULL;
	if (!process->gate || warden_watch(warden, process->pidfd, &process->serial)) {
		gate_program_remove(process->gate);
		if (process->pidfd >= 0)
			close(process->pidfd);
		free(process);
		return NULL;
	}
	process->next = warden->processes;
	warden->processes = process;
	bf_log(BF_LOG_DEBUG, "process %d is here", pid);
	return process;
}

struct process *process_by_pid(const struct warden *warden, pid_t pid)
{
	for (struct process *p = warden->processes; p; p = p->next)
		if (p->pid == pid)
			return p;
	return NULL;
}

bool warden_has_processes(struct warden *warden)
{
	bool has;

	pthread_mutex_lock(&warden->lock);
	has = warden->processes;
	pthread_mutex_unlock(&warden->lock);
	return has;
}

bool warden_has_process(struct warden *warden, pid_t pid)
{
	bool has;

	if (pthread_mutex_trylock(&warden->lock))
		return false;
	has = process_by_pid(warden, pid);
	pthread_mutex_unlock(&warden->lock);
	return has;
}

struct process *process_of(struct warden *warden, const struct run *run, pid_t tid)
{
	pid_t pid = bf_tgid_of(tid);
	struct process *process;

	if (pid < 0)
		return NULL;
	process = process_by_pid(warden, pid);
	if (process && process_has_exited(process)) { /* the number is somebody else's now */
		process_gone(warden, process);
		process = NULL;
	}
	return process ? process : process_new(warden, run, pid);
}

void process_gone(struct warden *warden, struct process *process)
{
	struct process **at;

	for (at = &warden->processes; *at != process; at = &(*at)->next)
		;
	*at = process->next;
	/* Its clients went with its last control file, unless another process holds that too. */
	for (struct client *c = warden->clients, *next; c; c = next) {
		next = c->next;
		if (c->pid == process->pid && client_is_gone(warden, c))
			client_gone(warden, c);
	}
	channels_leave_gate(warden, process);
	doorbells_gone(process);
	gate_program_remove(process->gate);
	standins_gone(process);
	if (process->memory_fd >= 0)
		close(process->memory_fd);
	close(process->pidfd); /* and with it the epoll entry */
	bf_log(BF_LOG_DEBUG, "process %d has gone", process->pid);
	free(process);
	warden_refresh_managed(warden);
}

void process_end(struct process *process, const char *why)
{
	if (process->is_ending || process_has_exited(process))
		return;
	process->is_ending = true;
	bf_log(BF_LOG_ERROR, "ending process %d: %s", process->pid, why);
	bf_pidfd_kill(process->pidfd, SIGKILL);
}

int file_look(int folder, const char *path, struct stat *st)
{
	struct statx x;

	if (statx(folder, path, AT_STATX_DONT_SYNC, 0, &x))
		return errno;
	*st = (struct stat){ .st_mode = x.stx_mode,
			     .st_ino = x.stx_ino,
			     .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
			     .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor) };
	return 0;
}

bool process_hides(const struct process *process)
{
	return bf_is_hidden(process->pid) && !process_has_exited(process);
}

static int no_fd(void *context, pid_t pid, int fd)
{
	(void)context, (void)pid, (void)fd;
	return -ESRCH;
}

static int no_memory(void *context, pid_t pid)
{
	(void)context, (void)pid;
	return -ESRCH;
}

void process_cut(struct process *process)
{
	if (process->reach.get_fd)
		process->reach = (struct warden_reach){ .get_fd = no_fd, .open_memory = no_memory };
}

int process_get_fd(const struct process *process, pid_t tid, int fd)
{
	const struct warden_reach *reach = &process->reach;
	bool is_shared = tid == process->pid || bf_same_files(tid, process->pid) == 1;

	if (reach->get_fd)
		return reach->get_fd(reach->context, is_shared ? process->pid : tid, fd);
	if (is_shared)
		return bf_pidfd_getfd(process->pidfd, fd);
	/* A thread with a descriptor table of its own. */
	cleanup_close int thread = bf_pidfd_open_thread(tid);

	return thread < 0 ? -EPERM : bf_pidfd_getfd(thread, fd);
}

int site_take_file(const struct site *site, int fd)
{
	return process_get_fd(site->process, (pid_t)site->request->pid, fd);
}

/* The descriptor stands for an address space, not for a process: after exec it is that of nobody, and reads nothing. */
static bool reopen_memory(struct site *site)
{
	struct process *process = site->process;

	if (site->has_reopened)
		return false;
	site->has_reopened = true;
	if (process->memory_fd >= 0)
		close(process->memory_fd);
	process->memory_fd = process->reach.open_memory(process->reach.context, process->pid);
	return process->memory_fd >= 0;
}

static ssize_t move_memory(int fd, uint64_t at, void *ours, size_t bytes, bool is_write)
{
	return is_write ? pwrite(fd, ours, bytes, (off_t)at) : pread(fd, ours, bytes, (off_t)at);
}

static int reach_memory(struct site *site, uint64_t at, void *ours, size_t bytes, bool is_write)
{
	struct process *process = site->process;
	ssize_t moved = 0;

	if (!bytes)
		return 0;
	if (process->memory_fd >= 0)
		moved = move_memory(process->memory_fd, at, ours, bytes, is_write);
	if (moved <= 0 && reopen_memory(site))
		moved = move_memory(process->memory_fd, at, ours, bytes, is_write);
	return moved == (ssize_t)bytes ? 0 : -EFAULT;
}

int site_peek(struct site *site, uint64_t at, void *to, size_t bytes)
{
	return site->process->reach.open_memory ? reach_memory(site, at, to, bytes, false)
						: bf_peek((pid_t)site->request->pid, at, to, bytes);
}

int site_poke(struct site *site, uint64_t at, const void *from, size_t bytes)
{
	return site->process->reach.open_memory ? reach_memory(site, at, (void *)(uintptr_t)from, bytes, true)
						: bf_poke((pid_t)site->request->pid, at, from, bytes);
}

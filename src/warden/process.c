/* The processes of the vGPU, and their files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "base/process.h"
#include "warden/state.h"

static bool has_exited(const struct process *process)
{
	struct pollfd poll_for = { .fd = process->pidfd, .events = POLLIN };

	return poll(&poll_for, 1, 0) == 1;
}

static struct process *process_new(struct warden *warden, pid_t pid)
{
	struct process *process = calloc(1, sizeof(*process));
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = process };

	if (!process)
		return NULL;
	process->warden = warden;
	process->pid = pid;
	process->pidfd = bf_pidfd_open(pid);
	process->gate = process->pidfd >= 0 ? gate_program_add(warden->gate_vgpu) : NULL;
	if (!process->gate || epoll_ctl(warden->epoll, EPOLL_CTL_ADD, process->pidfd, &event)) {
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

struct process *process_of(struct warden *warden, pid_t tid)
{
	pid_t pid = bf_tgid_of(tid);
	struct process *process;

	if (pid < 0)
		return NULL;
	process = process_by_pid(warden, pid);
	if (process && has_exited(process)) { /* the number is somebody else's now */
		process_gone(warden, process);
		process = NULL;
	}
	return process ? process : process_new(warden, pid);
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
	close(process->pidfd); /* and with it the epoll entry */
	bf_log(BF_LOG_DEBUG, "process %d has gone", process->pid);
	free(process);
	warden_refresh_managed(warden);
}

void process_end(struct process *process, const char *why)
{
	if (process->is_ending)
		return;
	process->is_ending = true;
	bf_log(BF_LOG_ERROR, "ending process %d: %s", process->pid, why);
	bf_pidfd_kill(process->pidfd, SIGKILL);
}

int site_take_file(const struct site *site, int fd)
{
	pid_t tid = (pid_t)site->request->pid, pid = site->process->pid;
	int taken;

	if (tid == pid || bf_same_files(tid, pid) == 1) {
		taken = bf_pidfd_getfd(site->process->pidfd, fd);
	} else {
		/* A thread with a descriptor table of its own. */
		cleanup_close int thread = bf_pidfd_open_thread(tid);

		taken = thread < 0 ? -EPERM : bf_pidfd_getfd(thread, fd);
	}
	return taken;
}

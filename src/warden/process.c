/* The processes of the vGPU that have made driver calls. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "warden/state.h"

enum { EACH_HOLDS = 2 }; /* descriptors that the warden has open for each process */

bool process_has_exited(const struct process *process)
{
	struct pollfd poll_for = { .fd = process->pidfd, .events = POLLIN };

	return poll(&poll_for, 1, 0) == 1;
}

static struct process *process_new(struct warden *warden, const struct run *run, pid_t pid)
{
	struct process *process;

	if (!warden_take_descriptors(warden, EACH_HOLDS))
		return NULL;
	process = calloc(1, sizeof(*process));
	if (!process) {
		warden_give_descriptors(warden, EACH_HOLDS);
		return NULL;
	}
	process->warden = warden;
	process->run = run->number;
	process->reach = run->reach;
	process->memory_fd = -1;
	process->pid = pid;
	process->uid = bf_euid_of(pid);
	process->pidfd = bf_pidfd_open(pid);
	process->gate = process->pidfd >= 0 ? gate_program_add(warden->gate_vgpu) : NULL;
	if (!process->gate || warden_watch(warden, process->pidfd, &process->serial)) {
		gate_program_remove(process->gate);
		if (process->pidfd >= 0)
			close(process->pidfd);
		warden_give_descriptors(warden, EACH_HOLDS);
		free(process);
		return NULL;
	}
	LIST_INSERT_HEAD(&warden->processes, process, next);
	bf_log(BF_LOG_DEBUG, "process %d added", pid);
	return process;
}

void warden_end_processes(struct warden *warden, const char *why)
{
	pthread_mutex_lock(&warden->lock);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		process_end(p, why);
	pthread_mutex_unlock(&warden->lock);
}

struct process *process_by_pid(const struct warden *warden, pid_t pid)
{
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		if (p->pid == pid)
			return p;
	return NULL;
}

uint32_t warden_run_of(struct warden *warden, pid_t pid)
{
	const struct process *process;
	uint32_t run;

	pthread_mutex_lock(&warden->lock);
	process = process_by_pid(warden, pid);
	run = process && !process_has_exited(process) ? process->run : 0;
	pthread_mutex_unlock(&warden->lock);
	return run;
}

bool warden_has_processes(struct warden *warden)
{
	bool has;

	pthread_mutex_lock(&warden->lock);
	has = !LIST_EMPTY(&warden->processes);
	pthread_mutex_unlock(&warden->lock);
	return has;
}

/* The thread that called last often calls next. A thread with the same address space is of the same process,
 * or was just made by vfork. */
static struct process *last_process_of(struct warden *warden, pid_t tid)
{
	struct process *process = warden->last_tid == tid ? warden->last_process : NULL;

	return process && !process_has_exited(process) && bf_same_memory(tid, process->pid) ? process : NULL;
}

struct process *process_of(struct warden *warden, const struct run *run, pid_t tid)
{
	struct process *process = last_process_of(warden, tid);
	pid_t pid = process ? process->pid : bf_tgid_of(tid);

	if (process)
		return process;
	if (pid < 0)
		return NULL;
	process = process_by_pid(warden, pid);
	if (process && process_has_exited(process)) { /* its process ID was reused */
		process_gone(warden, process);
		process = NULL;
	}
	process = process ? process : process_new(warden, run, pid);
	warden->last_tid = tid;
	warden->last_process = process;
	return process;
}

/* Its files are closed with their last copies, which another process may have: file.c. */
void process_gone(struct warden *warden, struct process *process)
{
	LIST_REMOVE(process, next);
	if (warden->last_process == process)
		warden->last_process = NULL;
	channels_leave_gate(warden, process);
	doorbells_gone(process);
	gate_program_remove(process->gate);
	expected_gone(process);
	standins_gone(process);
	managed_left(process);
	if (process->memory_fd >= 0)
		close(process->memory_fd);
	close(process->pidfd); /* also removes it from epoll */
	warden_give_descriptors(warden, EACH_HOLDS);
	bf_log(BF_LOG_DEBUG, "process %d removed", process->pid);
	free(process);
}

void process_end(struct process *process, const char *why)
{
	if (process->is_ending || process_has_exited(process))
		return;
	process->is_ending = true;
	bf_log(BF_LOG_ERROR, "killing process %d: %s", process->pid, why);
	bf_pidfd_kill(process->pidfd, SIGKILL);
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

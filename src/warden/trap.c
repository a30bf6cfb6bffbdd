/* Hardware breakpoints on the doorbells of programs, with which the gate lets the poller sleep (gate_bell_set_traps). They are
 * set from outside, by perf_event_open, once a program has mapped a doorbell. They need no more than the right to read the
 * program's memory, and perf_event_paranoid of at most 2 or CAP_PERFMON. A program that cannot have them is polled.
 *
 * Nothing depends on them but the time in which an idle program's next ring is noticed: a program that moves its mapping, or
 * rings from a process that has none, is found by the poller's next look. */
#include <dirent.h>
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own.h"
#include "warden/state.h"

enum { THREADS_MOST = 128, ROUNDS = 8, MAPS_MOST_BYTES = 4 << 20 };

struct threads {
	unsigned count;
	struct {
		pid_t tid;
		int event;
		bool is_listed;
	} thread[THREADS_MOST];
};

/* Where the process has mapped the doorbell; 0: nowhere. */
static uint64_t address_of(struct process *process, const struct doorbell *doorbell)
{
	char *text = process_read(process, "maps", MAPS_MOST_BYTES), *rest = text;
	uint64_t address = 0;

	for (char *line; !address && (line = strsep(&rest, "\n"));) {
		unsigned long from, offset, inode;
		int name_at = 0;

		if (sscanf(line, "%lx-%*x %*s %lx %*x:%*x %lu %n", &from, &offset, &inode, &name_at) == 3 &&
		    name_at && !offset && inode == doorbell->inode &&
		    !strncmp(line + name_at, "/memfd:" DOORBELL_NAME, strlen("/memfd:" DOORBELL_NAME)))
			address = from + GATE_BELL_WORD * sizeof(uint32_t);
	}
	free(text);
	return address;
}

static void threads_drop(struct threads *threads, unsigned at)
{
	close(threads->thread[at].event);
	threads->thread[at] = threads->thread[--threads->count];
}

static void threads_close(struct threads *threads)
{
	while (threads->count)
		threads_drop(threads, threads->count - 1);
}

static int open_event(struct process *process, uint64_t address, pid_t tid)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_BREAKPOINT,
					.size = sizeof(attr),
					.bp_type = HW_BREAKPOINT_W,
					.bp_addr = address,
					.bp_len = HW_BREAKPOINT_LEN_4,
					.sample_period = 1,
					.wakeup_events = 1,
					.inherit = 1,
					.inherit_thread = 1, /* not the processes that it forks */
					.disabled = 1,
					.exclude_kernel = 1,
					.exclude_hv = 1,
					.remove_on_exec = 1 };
	uint64_t args[6] = { (uintptr_t)&attr, (uint64_t)tid, (uint64_t)-1, (uint64_t)-1,
			     PERF_FLAG_FD_CLOEXEC };

	return (int)process_access(process, SYS_perf_event_open, args);
}

/* One more thread, or one that was there before. A thread that has just ended needs none. */
static int thread_found(struct process *process, uint64_t address, pid_t tid, struct threads *threads)
{
	unsigned at;

	for (at = 0; at < threads->count; at++)
		if (threads->thread[at].tid == tid) {
			threads->thread[at].is_listed = true;
			return 0;
		}
	if (at == THREADS_MOST)
		return -E2BIG;
	threads->thread[at].event = open_event(process, address, tid);
	if (threads->thread[at].event < 0)
		return threads->thread[at].event == -ESRCH ? 0 : threads->thread[at].event;
	threads->thread[at].tid = tid;
	threads->thread[at].is_listed = true;
	threads->count++;
	return 1;
}

/* How many new threads there are, or -errno. A breakpoint whose thread is not listed any more is dropped: the number may be
 * that of another process's thread by now. */
static int threads_look(struct process *process, uint64_t address, struct threads *threads)
{
	char path[32];
	struct dirent *entry;
	int rc = 0, found = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", process->pid);
	folder = opendir(path);
	if (!folder)
		return -errno;
	for (unsigned i = 0; i < threads->count; i++)
		threads->thread[i].is_listed = false;
	while (rc >= 0 && (entry = readdir(folder))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		rc = tid > 0 ? thread_found(process, address, tid, threads) : 0;
		found += rc > 0;
	}
	closedir(folder);
	for (unsigned i = threads->count; i-- > 0;)
		if (!threads->thread[i].is_listed)
			threads_drop(threads, i);
	return rc < 0 ? rc : found;
}

/* All of its threads. A new thread inherits the breakpoint of the one that made it; one that was made meanwhile by a thread
 * that had none yet is found by looking again. */
static int threads_find(struct process *process, uint64_t address, struct threads *threads)
{
	int found = 1;

	for (unsigned i = 0; i < ROUNDS && found > 0; i++)
		found = threads_look(process, address, threads);
	if (!found && threads->count && !process_has_exited(process))
		return 0;
	return found < 0 ? found : -EAGAIN;
}

static int set_traps(struct process *process, struct doorbell *doorbell)
{
	struct threads threads = { 0 };
	uint64_t address = address_of(process, doorbell);
	int events[THREADS_MOST], rc = address ? threads_find(process, address, &threads) : -ENOENT;
	bool has_room;

	pthread_mutex_lock(&process->warden->lock);
	has_room = !rc && warden_take_descriptors(process->warden, threads.count);
	pthread_mutex_unlock(&process->warden->lock);
	if (!has_room) {
		threads_close(&threads);
		return rc ? rc : -EMFILE;
	}
	for (unsigned i = 0; i < threads.count; i++)
		events[i] = threads.thread[i].event;
	rc = gate_bell_set_traps(doorbell->bell, events, threads.count);
	pthread_mutex_lock(&process->warden->lock);
	if (rc)
		warden_give_descriptors(process->warden, threads.count);
	else
		doorbell->traps = threads.count;
	pthread_mutex_unlock(&process->warden->lock);
	return rc;
}

/* The mapping is made by the kernel after the warden's answer, and threads may come and go quickly: then it is tried again. */
static void try_traps(struct process *process, struct doorbell *doorbell)
{
	int rc = set_traps(process, doorbell);

	if (!rc || ((rc == -ENOENT || rc == -EAGAIN) && ++doorbell->trap_tries < DOORBELL_TRAP_TRIES))
		return;
	doorbell->trap_tries = DOORBELL_TRAP_TRIES;
	bf_log(BF_LOG_INFO, "process %d: no breakpoint on its doorbell, which is polled: %s", process->pid,
	       strerror(-rc));
}

void warden_set_traps(struct warden *warden)
{
	if (!gate_takes_traps(warden->gate))
		return;
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		for (struct doorbell *d = LIST_FIRST(&p->doorbells); d; d = LIST_NEXT(d, next))
			if (!d->traps && d->trap_tries < DOORBELL_TRAP_TRIES)
				try_traps(p, d);
}

/* Receives, handles and answers notifications, and handles the ends of processes and files. All of it runs in
 * the thread that calls warden_work. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "warden/state.h"

enum { WORK_AT_ONCE = 16, SLOW_NS = 1000000000 };

bool site_is_waiting(const struct site *site)
{
	uint64_t id = site->request->id;

	return ioctl(site->run->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static void send_answer(const struct run *run, uint64_t id, struct answer answer)
{
	struct seccomp_notif_resp response = { .id = id };

	if (answer.kind == ANSWER_CONTINUE)
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else if (answer.value < 0)
		response.error = (int)answer.value;
	else
		response.val = answer.value;
	/* ENOENT: the caller was killed meanwhile. */
	if (ioctl(run->listener, SECCOMP_IOCTL_NOTIF_SEND, &response) < 0 && errno != ENOENT)
		bf_log(BF_LOG_WARN, "a notification could not be answered: %s", strerror(errno));
}

static void log_call(const struct site *site, struct answer answer)
{
	const struct rm_call *call = &site->call;

	bf_log(BF_LOG_DEBUG, "%d: call 0x%02x client %x parent %x object %x 0x%x: %s %ld status 0x%x",
	       site->process->pid, call->nr, call->client, call->parent, call->object, call->class_id,
	       answer.kind == ANSWER_CONTINUE ? "continued" : "answered", answer.value, site_status_of(site));
}

static struct continued_call facts_of(const struct site *site)
{
	const struct seccomp_data *data = &site->request->data;
	bool has_file = data->nr == SYS_ioctl || data->nr == SYS_mmap;

	return (struct continued_call){ .nr = data->nr,
					.cmd = data->nr == SYS_ioctl ? (uint32_t)data->args[1] : 0,
					.is_seen = has_file && !site->unseen,
					.kind = site->kind,
					.is_prepared = site->is_put || site->is_in_place };
}

/* Whether the list allows the kernel to make the call itself. */
static bool may_continue(const struct site *site)
{
	struct continued_call call = facts_of(site);

	return continued_find(site->warden->device->layout, &call);
}

/* A handler may only continue calls that are on the list. */
static struct answer continue_call(const struct site *site)
{
	struct warden *warden = site->warden;
	struct continued_call call = facts_of(site);
	const struct continued_entry *entry = continued_find(warden->device->layout, &call);

	if (warden->options.hooks.continued)
		warden->options.hooks.continued(warden->options.hooks.context, &call, entry);
	if (entry)
		return CONTINUE;
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(BF_LOG_ERROR,
	       "thread %u: system call %d (0x%x) refused: it is not on the list of continued calls",
	       site->request->pid, call.nr, call.cmd);
	return RETURN(-EPERM);
}

/* A call on a file that accepted no driver calls when it was examined. Another thread may put a driver file
 * in its place before the kernel makes the call. So a call that the driver accepts is not continued. On any
 * other file the kernel would return ENOTTY. */
static struct answer other_file(struct site *site)
{
	struct warden *warden = site->warden;
	const struct seccomp_notif *request = site->request;

	if (may_continue(site))
		return CONTINUE;
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(BF_LOG_INFO, "thread %u: ioctl 0x%x refused: the file does not accept it", request->pid,
	       (uint32_t)request->data.args[1]);
	return RETURN(-ENOTTY);
}

/* A call on a file that cannot be examined in /proc: the descriptor is not open, or the warden may not
 * examine the program. The program is not dumpable (PR_SET_DUMPABLE), or belongs to another user and the GPU
 * server has no CAP_SYS_PTRACE. The file may be a device file, so a call that the driver accepts is not
 * continued. */
static struct answer unseen_file(struct site *site)
{
	struct warden *warden = site->warden;

	if (may_continue(site))
		return CONTINUE;
	if (site->unseen == ENOENT)
		return RETURN(-EBADF);
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(site->run->has_hidden ? BF_LOG_DEBUG : BF_LOG_WARN,
	       "thread %u: a call on a file that cannot be examined is refused: %s; the program is not "
	       "dumpable, or belfryd lacks CAP_SYS_PTRACE",
	       site->request->pid, strerror(site->unseen));
	site->run->has_hidden = true;
	return RETURN(-EACCES);
}

/* Call the handler under the lock. While the vGPU is stopped, its calls are deferred. */
static struct answer decide(struct site *site, struct answer (*handler)(struct site *site))
{
	struct warden *warden = site->warden;
	struct answer answer = LATER;

	pthread_mutex_lock(&warden->lock);
	if (!gate_is_stopped(warden->gate_vgpu) || !site_defer(site))
		answer = handler(site);
	if (answer.kind == ANSWER_CONTINUE)
		warden->continued++;
	pthread_mutex_unlock(&warden->lock);
	return answer;
}

static struct answer device_ioctl(struct site *site)
{
	struct answer answer;
	int rc = site->kind == DEVICE_FILE_OTHER_GPU ? -ENODEV : 0;

	if (!rc && !site->file && site->kind != DEVICE_FILE_GPU)
		site->file = site_adopt(site, site->fd, site->kind, &rc);
	if (!rc)
		rc = site->kind == DEVICE_FILE_MANAGED ? site_fetch_managed(site) : site_fetch(site);
	/* If the caller has died, the memory may be of another process with its process ID. */
	if (!rc && !site_is_waiting(site))
		return LATER;
	if (rc)
		return RETURN(rc);
	site_refresh_managed(site, site_bytes_wanted(site));
	answer = decide(site, site->kind == DEVICE_FILE_MANAGED ? site_managed_call : site_call);
	if (answer.kind == ANSWER_MAKE)
		answer = RETURN(site->kind == DEVICE_FILE_MANAGED ? managed_perform(site)
								  : site_perform(site));
	log_call(site, answer);
	/* The call was made, also if its results cannot be written to the program. */
	if (answer.kind == ANSWER_RETURN && answer.value >= 0 && site_store(site))
		return RETURN(-EFAULT);
	return answer;
}

static struct answer decide_mmap(struct site *site)
{
	uint64_t bytes = (site->request->data.args[1] + 4095) & ~4095ull;

	return site->kind == DEVICE_FILE_MANAGED ? site_mmap_managed(site, bytes) : site_mmap(site, bytes);
}

static struct answer device_mmap(struct site *site)
{
	struct answer answer;
	int rc;

	if (site->kind == DEVICE_FILE_OTHER_GPU)
		return RETURN(-ENODEV);
	if (site->kind == DEVICE_FILE_MANAGED) {
		rc = 0;
		if (!site->file)
			site->file = site_adopt(site, site->fd, site->kind, &rc);
		if (rc)
			return RETURN(rc);
		site->is_in_place = site_is_in_place(site);
		site_refresh_managed(site, site->request->data.args[1]);
	}
	if (!site_is_waiting(site))
		return LATER;
	answer = decide(site, decide_mmap);
	if (answer.kind != ANSWER_CONTINUE || site->put_fd < 0)
		return answer;
	rc = standin_put(site);
	site->is_put = !rc;
	return rc ? RETURN(rc) : CONTINUE;
}

bool site_defer(const struct site *site)
{
	struct warden *warden = site->warden;
	struct deferred *deferred = calloc(1, sizeof(*deferred));

	if (!deferred)
		return false;
	deferred->request = *site->request;
	deferred->run = site->run;
	deferred->has_asked = site->has_asked;
	STAILQ_INSERT_TAIL(&warden->deferred, deferred, next);
	return true;
}

static struct process *find_process(struct warden *warden, struct run *run, pid_t tid)
{
	struct process *process;

	pthread_mutex_lock(&warden->lock);
	warden->calls++;
	process = process_of(warden, run, tid);
	pthread_mutex_unlock(&warden->lock);
	return process;
}

/* Any process of the run may open files. It becomes a process of the vGPU when it opens a device file, or
 * when its memory does not answer in time. If the supervisor reads memory through warden_reach, the program
 * opens all files itself. */
static struct answer open_call(struct site *site)
{
	uint64_t start_ns = bf_now_ns();
	enum device_file kind = DEVICE_FILE_NONE;

	if (!site->warden->device->ops->file_at || site->run->reach.open_memory)
		return CONTINUE;
	if (site_look_at_path(site, &kind) && bf_now_ns() - start_ns > SLOW_NS) {
		site->process = find_process(site->warden, site->run, (pid_t)site->request->pid);
		pthread_mutex_lock(&site->warden->lock);
		if (site->process)
			process_end(site->process, "its memory does not answer in time");
		pthread_mutex_unlock(&site->warden->lock);
	}
	if (kind == DEVICE_FILE_NONE)
		return CONTINUE;
	site->process = find_process(site->warden, site->run, (pid_t)site->request->pid);
	return site->process ? site_open(site, kind) : RETURN(-EIO);
}

static struct answer answer_of(struct site *site)
{
	int nr = site->request->data.nr;
	struct answer answer;

	if (nr == SYS_open || nr == SYS_openat)
		return open_call(site);
	site->unseen = site_look(site, site->fd, &site->kind, &site->file);
	if (site->unseen)
		return unseen_file(site);
	if (site->kind == DEVICE_FILE_NONE)
		return other_file(site);
	site->process = find_process(site->warden, site->run, (pid_t)site->request->pid);
	if (!site->process)
		return RETURN(-EIO);
	answer = nr == SYS_ioctl ? device_ioctl(site) : device_mmap(site);
	if (site->put_fd >= 0)
		close(site->put_fd);
	site_drop(site);
	return answer;
}

static struct answer handle(struct warden *warden, struct run *run, const struct seccomp_notif *request,
			    bool has_asked)
{
	struct site site = { .warden = warden,
			     .run = run,
			     .request = request,
			     .fd = (int)request->data.args[request->data.nr == SYS_ioctl ? 0 : 4],
			     .gpu_fd = -1,
			     .named_fd = -1,
			     .put_fd = -1,
			     .call = { .status_at = -1 },
			     .has_asked = has_asked };
	struct answer answer = answer_of(&site);

	return answer.kind == ANSWER_CONTINUE ? continue_call(&site) : answer;
}

/* Handle one notification. There is none if its caller was killed meanwhile. */
static void work_one(struct warden *warden, struct run *run)
{
	struct seccomp_notif request;
	struct answer answer;

	memset(&request, 0, sizeof(request));
	if (ioctl(run->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
		return;
	answer = handle(warden, run, &request, false);
	if (answer.kind != ANSWER_LATER)
		send_answer(run, request.id, answer);
}

/* The run is not freed until unuse_run. */
static void use_run(struct warden *warden, struct run *run)
{
	warden->busy_run = run;
	pthread_mutex_unlock(&warden->lock);
}

static void unuse_run(struct warden *warden)
{
	pthread_mutex_lock(&warden->lock);
	warden->busy_run = NULL;
	pthread_cond_broadcast(&warden->idle);
}

static void work_run(struct warden *warden, const struct epoll_event *event)
{
	struct run *run;

	pthread_mutex_lock(&warden->lock);
	run = run_by_serial(warden, event->data.u64);
	if (run && event->events & EPOLLIN) {
		use_run(warden, run);
		work_one(warden, run);
		unuse_run(warden);
	} else if (run && event->events & (EPOLLHUP | EPOLLERR)) {
		run_gone(warden, run);
	}
	pthread_mutex_unlock(&warden->lock);
}

/* The last copy of a device file was closed, or an event is pending on one. */
static void work_file(struct warden *warden, const struct epoll_event *event)
{
	struct devfile *file;

	pthread_mutex_lock(&warden->lock);
	file = devfile_by_serial(warden, event->data.u64);
	pthread_mutex_unlock(&warden->lock);
	if (file && file->event_serial == event->data.u64)
		devfile_event(file);
	else if (file)
		devfile_gone(warden, file);
}

static void work_process(struct warden *warden, const struct epoll_event *event)
{
	struct process *process;

	pthread_mutex_lock(&warden->lock);
	for (process = LIST_FIRST(&warden->processes); process; process = LIST_NEXT(process, next))
		if (process->serial == event->data.u64)
			break;
	if (process)
		process_gone(warden, process);
	pthread_mutex_unlock(&warden->lock);
}

/* Deferred calls are handled from their beginning. A call that must wait again goes to the end of the
 * queue. */
static void work_deferred(struct warden *warden)
{
	struct deferred *waiting;
	unsigned left = 0;
	uint64_t count;

	if (read(warden->wake, &count, sizeof(count)) != (ssize_t)sizeof(count))
		return;
	pthread_mutex_lock(&warden->lock);
	STAILQ_FOREACH(waiting, &warden->deferred, next)
		left++;
	while (left-- && !gate_is_stopped(warden->gate_vgpu) && (waiting = STAILQ_FIRST(&warden->deferred))) {
		struct answer answer;

		STAILQ_REMOVE_HEAD(&warden->deferred, next);
		use_run(warden, waiting->run);
		answer = handle(warden, waiting->run, &waiting->request, waiting->has_asked);
		if (answer.kind != ANSWER_LATER)
			send_answer(waiting->run, waiting->request.id, answer);
		unuse_run(warden);
		free(waiting);
	}
	pthread_mutex_unlock(&warden->lock);
}

bool warden_work(struct warden *warden)
{
	struct epoll_event events[WORK_AT_ONCE];
	int count = epoll_wait(warden->epoll, events, WORK_AT_ONCE, 0);
	bool has_runs, is_empty;

	/* Files first: when a program closes a file and then allocates memory, the memory of the file is
	 * free, as with the driver alone. Then notifications: they may come from processes whose end is
	 * reported here. The object of an event may be gone by now, so it is looked up. */
	for (int i = 0; i < count; i++)
		work_file(warden, &events[i]);
	for (int i = 0; i < count; i++)
		work_run(warden, &events[i]);
	for (int i = 0; i < count; i++)
		work_process(warden, &events[i]);
	work_deferred(warden);
	pthread_mutex_lock(&warden->lock);
	has_runs = !LIST_EMPTY(&warden->runs);
	is_empty = !has_runs && LIST_EMPTY(&warden->processes);
	pthread_mutex_unlock(&warden->lock);
	/* Copies of the files may exist in other processes, which cannot use them. */
	while (is_empty && !LIST_EMPTY(&warden->files))
		devfile_gone(warden, LIST_FIRST(&warden->files));
	return has_runs;
}

/* Notifications in, answers out; and what is asked of a vGPU from outside. */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "warden/state.h"

enum { WORK_AT_ONCE = 16, SLOW_NS = 1000000000, VGPUS_AT_ONCE = 8, DESCRIPTORS_MOST = 65536 };

static void subdevice_gone(struct warden *warden, const struct ledger_object *object)
{
	struct client *client = client_find(warden, object->client);

	if (client && client->subdevice == object->handle)
		client->subdevice = 0;
}

static void object_gone(void *context, struct ledger_object *object)
{
	expected_forget(context, object->client, object->handle);
	if (object->kind == RM_KIND_SUBDEVICE)
		subdevice_gone(context, object);
	else if (object->kind == RM_KIND_CHANNEL)
		channel_gone(context, object);
	else if (object->kind == RM_KIND_DOORBELL)
		doorbell_gone(context, object->client, object->handle);
	else if (object->kind == RM_KIND_GROUP)
		group_gone(context, object);
}

/* An equal part for each of many vGPUs: one that takes all it can leaves the others theirs. */
static unsigned descriptors_of_one(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur > (rlim_t)DESCRIPTORS_MOST * VGPUS_AT_ONCE)
		return DESCRIPTORS_MOST;
	return (unsigned)limit.rlim_cur / VGPUS_AT_ONCE;
}

static int start(struct warden *warden, struct bf_error *err)
{
	uint64_t serial;

	warden->descriptors_max = descriptors_of_one();
	warden->epoll = epoll_create1(EPOLL_CLOEXEC);
	warden->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (warden->epoll < 0 || warden->wake < 0 || warden_watch(warden, warden->wake, &serial))
		return bf_fail(err, errno, "warden: %s", strerror(errno));
	warden->ledger = ledger_new(warden->options.mem_bytes, object_gone, warden);
	warden->gate_vgpu = gate_vgpu_add(warden->gate);
	if (!warden->ledger || !warden->gate_vgpu)
		return bf_fail(err, ENOMEM, "warden: out of memory");
	ledger_set_pool(warden->ledger, warden->options.pool);
	warden->owner = hand_new("belfry-hand", err);
	warden->arm = warden->owner ? hand_new("belfry-arm", err) : NULL;
	if (!warden->arm)
		return -err->code;
	return warden->device->ops->adopt ? warden->device->ops->adopt(warden->device, warden->owner, err)
					  : 0;
}

struct warden *warden_new(struct device *device, struct gate *gate, const struct warden_options *options,
			  struct bf_error *err)
{
	struct warden *warden = calloc(1, sizeof(*warden));

	if (!warden) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	warden->device = device;
	warden->gate = gate;
	warden->options = *options;
	warden->deferred_end = &warden->deferred;
	warden->epoll = warden->wake = -1;
	pthread_mutex_init(&warden->lock, NULL);
	pthread_mutex_init(&warden->turn_lock, NULL);
	pthread_cond_init(&warden->idle, NULL);
	if (start(warden, err)) {
		warden_free(warden);
		return NULL;
	}
	return warden;
}

void warden_free(struct warden *warden)
{
	if (!warden)
		return;
	while (warden->runs) /* first of all: nobody is reached through them any more */
		run_gone(warden, warden->runs);
	while (warden->processes)
		process_gone(warden, warden->processes);
	while (warden->files)
		devfile_gone(warden, warden->files);
	ledger_free(warden->ledger);
	gate_vgpu_remove(warden->gate_vgpu);
	hand_free(warden->owner);
	hand_free(warden->arm);
	if (warden->epoll >= 0)
		close(warden->epoll);
	if (warden->wake >= 0)
		close(warden->wake);
	pthread_cond_destroy(&warden->idle);
	pthread_mutex_destroy(&warden->turn_lock);
	pthread_mutex_destroy(&warden->lock);
	free(warden);
}

pid_t warden_owner(const struct warden *warden)
{
	return hand_pid(warden->owner);
}

void warden_wake(struct warden *warden)
{
	uint64_t one = 1;

	if (write(warden->wake, &one, sizeof(one)) < 0)
		bf_log(BF_LOG_DEBUG, "the worker is awake already");
}

struct gate_vgpu *warden_gate(struct warden *warden)
{
	return warden->gate_vgpu;
}

int warden_fd(const struct warden *warden)
{
	return warden->epoll;
}

bool warden_take_descriptors(struct warden *warden, unsigned count)
{
	if (warden->descriptors + count > warden->descriptors_max)
		return false;
	warden->descriptors += count;
	return true;
}

void warden_give_descriptors(struct warden *warden, unsigned count)
{
	warden->descriptors -= count;
}

int warden_watch(struct warden *warden, int fd, uint64_t *serial)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = ++warden->last_serial };

	*serial = warden->last_serial;
	return epoll_ctl(warden->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

bool site_is_waiting(const struct site *site)
{
	uint64_t id = site->request->id;

	return ioctl(site->run->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static void send_answer(const struct run *run, uint64_t id, struct answer answer)
{
	struct seccomp_notif_resp response = { .id = id };

	if (answer.kind == ANSWER_PASS)
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else if (answer.value < 0)
		response.error = (int)answer.value;
	else
		response.val = answer.value;
	/* ENOENT: it was killed meanwhile. */
	if (ioctl(run->listener, SECCOMP_IOCTL_NOTIF_SEND, &response) < 0 && errno != ENOENT)
		bf_log(BF_LOG_WARN, "an answer was not taken: %s", strerror(errno));
}

static void log_call(const struct site *site, struct answer answer)
{
	const struct rm_call *call = &site->call;

	bf_log(BF_LOG_DEBUG, "%d: call 0x%02x client %x parent %x object %x 0x%x: %s %ld status 0x%x",
	       site->process->pid, call->nr, call->client, call->parent, call->object, call->class_id,
	       answer.kind == ANSWER_PASS ? "passed" : "answered", answer.value, site_status_of(site));
}

static struct continued_call facts_of(const struct site *site)
{
	const struct seccomp_data *data = &site->request->data;
	bool has_file = data->nr == SYS_ioctl || data->nr == SYS_mmap;

	return (struct continued_call){ .nr = data->nr,
					.cmd = data->nr == SYS_ioctl ? (uint32_t)data->args[1] : 0,
					.is_seen = has_file && !site->unseen,
					.kind = site->kind,
					.is_ours = site->is_put || site->is_in_place };
}

/* Whether the kernel may make the call itself. */
static bool may_continue(const struct site *site)
{
	struct continued_call call = facts_of(site);

	return continued_find(site->warden->device->layout, &call);
}

/* What the handlers have decided is not enough: the list has the last word. */
static struct answer continue_call(const struct site *site)
{
	struct warden *warden = site->warden;
	struct continued_call call = facts_of(site);
	const struct continued_entry *entry = continued_find(warden->device->layout, &call);

	if (warden->options.hooks.continued)
		warden->options.hooks.continued(warden->options.hooks.context, &call, entry);
	if (entry)
		return PASS;
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(BF_LOG_ERROR,
	       "thread %u: system call %d (0x%x) is not on the list of calls that go on; refused",
	       site->request->pid, call.nr, call.cmd);
	return RETURN(-EPERM);
}

/* A call on a file that does not take the driver's calls, at least when we looked: another thread may put one that
 * does in its place before the kernel looks. So a call that would mean something to the driver does not go on;
 * to any other file it means nothing, and this is what the kernel would say. */
static struct answer other_file(struct site *site)
{
	struct warden *warden = site->warden;
	const struct seccomp_notif *request = site->request;

	if (may_continue(site))
		return PASS;
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(BF_LOG_INFO, "thread %u: ioctl 0x%x on a file that does not take it refused", request->pid,
	       (uint32_t)request->data.args[1]);
	return RETURN(-ENOTTY);
}

/* A call on a file that /proc does not show us: none is open there, or the program is one that we may not look at: it hides
 * (PR_SET_DUMPABLE), or is another user's and we have no CAP_SYS_PTRACE. The file may be the device's, so nothing goes on
 * that would mean something to the driver. */
static struct answer unseen_file(struct site *site)
{
	struct warden *warden = site->warden;

	if (may_continue(site))
		return PASS;
	if (site->unseen == ENOENT)
		return RETURN(-EBADF);
	pthread_mutex_lock(&warden->lock);
	warden->refusals++;
	pthread_mutex_unlock(&warden->lock);
	bf_log(site->run->has_hidden ? BF_LOG_DEBUG : BF_LOG_WARN,
	       "thread %u: a call on a file that cannot be looked at is refused: %s; it hides, or belfryd "
	       "lacks CAP_SYS_PTRACE",
	       site->request->pid, strerror(site->unseen));
	site->run->has_hidden = true;
	return RETURN(-EACCES);
}

/* Decide, under the lock. While the vGPU is stopped its calls wait. */
static struct answer decide(struct site *site, struct answer (*handler)(struct site *site))
{
	struct warden *warden = site->warden;
	struct answer answer = { ANSWER_LATER, 0 };

	pthread_mutex_lock(&warden->lock);
	if (!warden->is_stopped || !site_defer(site))
		answer = handler(site);
	if (answer.kind == ANSWER_PASS)
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
	/* If the caller died meanwhile, that may have been the memory of another process with its number. */
	if (!rc && !site_is_waiting(site))
		return (struct answer){ ANSWER_LATER, 0 };
	if (rc)
		return RETURN(rc);
	site_refresh_managed(site, site_bytes_wanted(site));
	answer = decide(site, site->kind == DEVICE_FILE_MANAGED ? site_managed_call : site_call);
	if (answer.kind == ANSWER_MAKE)
		answer = RETURN(site->kind == DEVICE_FILE_MANAGED ? managed_perform(site)
								  : site_perform(site));
	log_call(site, answer);
	/* What was done is done, whether the program can be told or not. */
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
		return (struct answer){ ANSWER_LATER, 0 };
	answer = decide(site, decide_mmap);
	if (answer.kind != ANSWER_PASS || site->put_fd < 0)
		return answer;
	rc = standin_put(site);
	site->is_put = !rc;
	return rc ? RETURN(rc) : PASS;
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
	*warden->deferred_end = deferred;
	warden->deferred_end = &deferred->next;
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

/* Any process of the run may open files: it becomes one of the vGPU's when it opens a device's, or keeps us waiting. Where a
 * helper reads its memory for us the program opens all files itself. */
static struct answer open_call(struct site *site)
{
	uint64_t start_ns = bf_now_ns();
	enum device_file kind = DEVICE_FILE_NONE;

	if (!site->warden->device->ops->file_at || site->run->reach.open_memory)
		return PASS;
	if (site_look_at_path(site, &kind) && bf_now_ns() - start_ns > SLOW_NS) {
		site->process = find_process(site->warden, site->run, (pid_t)site->request->pid);
		pthread_mutex_lock(&site->warden->lock);
		if (site->process)
			process_end(site->process, "its memory does not answer");
		pthread_mutex_unlock(&site->warden->lock);
	}
	if (kind == DEVICE_FILE_NONE)
		return PASS;
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

	return answer.kind == ANSWER_PASS ? continue_call(&site) : answer;
}

/* One notification. If its caller was killed since it was reported, there is none. */
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

/* Nobody frees the run until it is given back. */
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

/* The last copy of a device file is closed, or there is an event on one. */
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
	for (process = warden->processes; process; process = process->next)
		if (process->serial == event->data.u64)
			break;
	if (process)
		process_gone(warden, process);
	pthread_mutex_unlock(&warden->lock);
}

/* Calls that waited are handled from their beginning. One that has to wait again is put behind them. */
static void work_deferred(struct warden *warden)
{
	struct deferred *waiting;
	unsigned left = 0;
	uint64_t count;

	if (read(warden->wake, &count, sizeof(count)) != (ssize_t)sizeof(count))
		return;
	pthread_mutex_lock(&warden->lock);
	for (waiting = warden->deferred; waiting; waiting = waiting->next)
		left++;
	while (left-- && !warden->is_stopped && (waiting = warden->deferred)) {
		struct answer answer;

		warden->deferred = waiting->next;
		if (!warden->deferred)
			warden->deferred_end = &warden->deferred;
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

	/* Files first: a program that closes one and then asks for memory finds what the file had free, as with the driver
	 * itself. Then notifications: they may name the processes whose end is reported here. What an event is of may have
	 * gone since, so it is looked up. */
	for (int i = 0; i < count; i++)
		work_file(warden, &events[i]);
	for (int i = 0; i < count; i++)
		work_run(warden, &events[i]);
	for (int i = 0; i < count; i++)
		work_process(warden, &events[i]);
	work_deferred(warden);
	pthread_mutex_lock(&warden->lock);
	has_runs = warden->runs;
	is_empty = !has_runs && !warden->processes;
	pthread_mutex_unlock(&warden->lock);
	/* Copies of files may be elsewhere, where they are of no use. */
	while (is_empty && warden->files)
		devfile_gone(warden, warden->files);
	return has_runs;
}

/* Under turn_lock. */
static void move_gate(struct warden *warden)
{
	if (warden->is_held || warden->is_stopped)
		gate_hold(warden->gate_vgpu);
	else
		gate_open(warden->gate_vgpu);
}

static void set_held(struct warden *warden, bool is_held)
{
	pthread_mutex_lock(&warden->turn_lock);
	warden->is_held = is_held;
	move_gate(warden);
	pthread_mutex_unlock(&warden->turn_lock);
}

/* Under warden::lock as well. */
static void set_stopped(struct warden *warden, bool is_stopped)
{
	pthread_mutex_lock(&warden->turn_lock);
	warden->is_stopped = is_stopped;
	move_gate(warden);
	pthread_mutex_unlock(&warden->turn_lock);
}

void warden_hold(struct warden *warden)
{
	set_held(warden, true);
}

void warden_open(struct warden *warden)
{
	set_held(warden, false);
}

/* The gate first, and until it is resumed or the stop has failed: nothing that warden_open does in between opens it. */
static int stop(struct warden *warden, struct bf_error *err)
{
	int rc;

	if (warden->is_stopped)
		return 0;
	set_stopped(warden, true);
	rc = warden_set_channels(warden, true, err);
	if (rc) {
		warden_set_channels(warden, false, NULL);
		set_stopped(warden, false);
	}
	return rc;
}

int warden_stop(struct warden *warden, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = stop(warden, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

/* While it is stopped what waits for room waits on with everything else. */
void warden_room_made(struct warden *warden)
{
	warden_wake(warden);
}

static int resume(struct warden *warden, struct bf_error *err)
{
	int rc;

	if (!warden->is_stopped)
		return 0;
	rc = warden_set_channels(warden, false, err);
	if (rc)
		return rc;
	gate_ring_again(warden->gate_vgpu);
	set_stopped(warden, false);
	warden_wake(warden);
	return 0;
}

int warden_resume(struct warden *warden, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = resume(warden, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

struct group_visit {
	struct warden *warden;
	struct client *client;
	int rc;
};

static void apply_to_group(void *context, struct ledger_object *object)
{
	struct group_visit *visit = context;
	int rc = warden_apply_group(visit->warden, visit->client, object->handle);

	if (rc)
		visit->rc = rc;
}

static int apply_to_groups(struct warden *warden, const char *what, struct bf_error *err)
{
	struct group_visit visit = { .warden = warden };

	for (visit.client = warden->clients; visit.client; visit.client = visit.client->next)
		ledger_each(warden->ledger, visit.client->handle, RM_KIND_GROUP, apply_to_group, &visit);
	if (visit.rc)
		return bf_fail(err, EIO, "the driver would not set the %s of every channel group (%d)", what,
			       visit.rc);
	return 0;
}

int warden_set_timeslice(struct warden *warden, uint64_t us, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	warden->options.timeslice_us = us;
	groups_forget_own(warden, true);
	rc = apply_to_groups(warden, "timeslice", err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

int warden_set_interleave(struct warden *warden, int level, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	warden->options.interleave = level;
	groups_forget_own(warden, false);
	rc = apply_to_groups(warden, "interleave level", err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

static int set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err)
{
	int rc;

	if (bytes && bytes < ledger_used(warden->ledger))
		return bf_fail(err, EBUSY, "memory limit %llu: %llu bytes are in use; free some first",
			       (unsigned long long)bytes, (unsigned long long)ledger_used(warden->ledger));
	if (bytes > warden->device->mem_bytes)
		return bf_fail(err, ERANGE, "memory limit %llu: the card has %llu bytes",
			       (unsigned long long)bytes, (unsigned long long)warden->device->mem_bytes);
	rc = ledger_set_limit(warden->ledger, bytes, err);
	if (!rc)
		warden->options.mem_bytes = bytes;
	return rc;
}

int warden_set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = set_mem(warden, bytes, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

void warden_set_permits(struct warden *warden, const uint32_t *controls, unsigned count)
{
	pthread_mutex_lock(&warden->lock);
	warden->options.permit_count = count < WARDEN_PERMITS ? count : WARDEN_PERMITS;
	memcpy(warden->options.permits, controls, warden->options.permit_count * sizeof(controls[0]));
	pthread_mutex_unlock(&warden->lock);
}

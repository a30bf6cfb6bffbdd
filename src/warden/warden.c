/* Notifications in, answers out; and what the house asks of a vGPU. */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "warden/state.h"

enum { WORK_AT_ONCE = 16 };

static void object_gone(void *context, struct ledger_object *object)
{
	if (object->kind == RM_KIND_CHANNEL)
		channel_gone(context, object);
	else if (object->kind == RM_KIND_DOORBELL)
		doorbell_gone(context, object->client, object->handle);
	else if (object->kind == RM_KIND_GROUP)
		group_gone(context, object);
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
	pthread_mutex_init(&warden->lock, NULL);
	pthread_mutex_init(&warden->turn_lock, NULL);
	warden->epoll = epoll_create1(EPOLL_CLOEXEC);
	warden->ledger = ledger_new(options->mem_bytes, object_gone, warden);
	warden->gate_vgpu = gate_vgpu_add(gate);
	if (warden->epoll < 0 || !warden->ledger || !warden->gate_vgpu) {
		int why = warden->epoll < 0 ? errno : ENOMEM;

		bf_fail(err, why, "warden: %s", strerror(why));
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
	while (warden->clients)
		client_gone(warden, warden->clients);
	roots_gone(warden);
	ledger_free(warden->ledger);
	gate_vgpu_remove(warden->gate_vgpu);
	if (warden->epoll >= 0)
		close(warden->epoll);
	pthread_mutex_destroy(&warden->turn_lock);
	pthread_mutex_destroy(&warden->lock);
	free(warden);
}

struct gate_vgpu *warden_gate(struct warden *warden)
{
	return warden->gate_vgpu;
}

int warden_fd(const struct warden *warden)
{
	return warden->epoll;
}

int warden_watch(struct warden *warden, int fd, uint64_t *serial)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = ++warden->last_serial };

	*serial = warden->last_serial;
	return epoll_ctl(warden->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static bool is_still_waiting(const struct run *run, uint64_t id)
{
	return ioctl(run->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
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

/* What the call is about. NONE for everything that is not the device's. */
static enum device_file classify(struct site *site)
{
	const struct seccomp_notif *request = site->request;
	char path[48];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%u/fd/%d", request->pid, site->fd);
	site->unseen = file_look(AT_FDCWD, path, &st);
	if (site->unseen)
		return DEVICE_FILE_NONE;
	site->file = site->warden->device->ops->classify(site->warden->device, &st);
	if (site->file != DEVICE_FILE_NONE)
		return site->file;
	/* Perhaps it is our memory standing where the program believes its own file to be. */
	if (!standin_is(site->warden, &st))
		return DEVICE_FILE_NONE;
	site->process = process_of(site->warden, site->run, (pid_t)request->pid);
	if (!site->process || !standin_restore(site, &st))
		return DEVICE_FILE_NONE;
	site->unseen = file_look(AT_FDCWD, path, &st);
	if (site->unseen)
		return DEVICE_FILE_NONE;
	return site->warden->device->ops->classify(site->warden->device, &st);
}

/* Read the argument and take it apart. */
static int read_call(struct site *site)
{
	uint32_t cmd = (uint32_t)site->request->data.args[1];
	uint32_t nr = cmd & 0xff, size = cmd >> 16 & 0x3fff;

	site->arg_at = site->request->data.args[2];
	site->call = (struct rm_call){ .nr = nr, .size = size, .status_at = -1, .object_at = -1, .fd = -1 };
	if (nr == RM_ESC_XFER_CMD) {
		/* Names the real call in memory, where it can be changed after we looked. Only calls too large for
		 * an ioctl need it, and none that programs make is. */
		bf_log(BF_LOG_INFO, "process %d: XFER_CMD refused", site->process->pid);
		return -EINVAL;
	}
	if (size > RM_ARG_MAX)
		return 0;
	if (site_peek(site, site->arg_at, site->arg, size))
		return -EFAULT;
	/* If the caller died meanwhile, this may have been the memory of another process with its number. */
	if (!is_still_waiting(site->run, site->request->id))
		return -ESRCH;
	return rm_decode(nr, size, site->arg, &site->call);
}

static void log_call(const struct site *site, struct answer answer)
{
	const struct rm_call *call = &site->call;
	uint32_t status = 0;

	if (call->status_at >= 0 && answer.kind == ANSWER_RETURN)
		memcpy(&status, site->arg + call->status_at, sizeof(status));
	bf_log(BF_LOG_DEBUG, "%d: call 0x%02x client %x parent %x object %x 0x%x: %s %ld status 0x%x",
	       site->process->pid, call->nr, call->client, call->parent, call->object, call->class_id,
	       answer.kind == ANSWER_PASS ? "passed" : "answered", answer.value, status);
}

/* A call on a file that does not take the driver's calls, at least when we looked: another thread may put one that
 * does in its place before the kernel looks. So a call that would mean something to the driver does not go on;
 * to any other file it means nothing, and this is what the kernel would say. */
static struct answer other_file(struct warden *warden, const struct seccomp_notif *request)
{
	uint32_t cmd = (uint32_t)request->data.args[1];

	if (request->data.nr != SYS_ioctl || !rm_is_call(cmd & 0xff, cmd >> 16 & 0x3fff) ||
	    !(warden->clients || warden->roots))
		return PASS;
	warden->refusals++;
	bf_log(BF_LOG_INFO, "thread %u: ioctl 0x%x on a file that does not take it refused", request->pid,
	       cmd);
	return RETURN(-ENOTTY);
}

/* A call on a file that /proc does not show us: none is open there, or the program is one that we may not look at: it hides
 * (PR_SET_DUMPABLE), or is another user's and we have no CAP_SYS_PTRACE. The file may be the device's, so nothing goes on
 * that would mean something to the driver. */
static struct answer unseen_file(struct warden *warden, const struct site *site)
{
	uint32_t cmd = (uint32_t)site->request->data.args[1];

	if (site->request->data.nr == SYS_ioctl && !rm_is_call(cmd & 0xff, cmd >> 16 & 0x3fff))
		return PASS;
	if (site->unseen == ENOENT)
		return RETURN(-EBADF);
	warden->refusals++;
	bf_log(site->run->has_hidden ? BF_LOG_DEBUG : BF_LOG_WARN,
	       "thread %u: a call on a file that cannot be looked at is refused: %s; it hides, or belfryd "
	       "lacks CAP_SYS_PTRACE",
	       site->request->pid, strerror(site->unseen));
	site->run->has_hidden = true;
	return RETURN(-EACCES);
}

static struct answer device_ioctl(struct site *site)
{
	struct warden *warden = site->warden;
	struct answer answer;
	int rc;

	if (site->file == DEVICE_FILE_MANAGED)
		return other_file(warden, site->request);
	rc = read_call(site);
	answer = rc ? RETURN(rc) : site_call(site);
	log_call(site, answer);
	return answer.kind == ANSWER_PASS && warden->device->ops->carry ? site_carry(site) : answer;
}

static struct answer device_mmap(struct site *site)
{
	uint64_t bytes = (site->request->data.args[1] + 4095) & ~4095ull;

	switch (site->file) {
	case DEVICE_FILE_MANAGED:
		return site_mmap_managed(site, bytes);
	case DEVICE_FILE_OTHER_GPU:
		return RETURN(-ENODEV);
	default:
		if (site_expects_doorbell(site, bytes))
			return site_mmap_doorbell(site, bytes);
		return site->warden->device->ops->map_file ? site_carry_mmap(site) : PASS;
	}
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

static struct answer handle(struct warden *warden, struct run *run, const struct seccomp_notif *request,
			    bool has_asked)
{
	bool is_ioctl = request->data.nr == SYS_ioctl;
	struct site site = { .warden = warden,
			     .run = run,
			     .request = request,
			     .fd = (int)request->data.args[is_ioctl ? 0 : 4],
			     .has_asked = has_asked };

	site.file = classify(&site);
	if (site.unseen)
		return unseen_file(warden, &site);
	if (site.file == DEVICE_FILE_NONE)
		return other_file(warden, request);
	warden->calls++;
	site.process = process_of(warden, run, (pid_t)request->pid);
	if (!site.process)
		return RETURN(-EIO);
	if (warden->is_stopped && site_defer(&site))
		return (struct answer){ ANSWER_LATER, 0 };
	/* The number we looked up may have changed hands before we did. */
	if (!is_still_waiting(run, request->id))
		return (struct answer){ ANSWER_LATER, 0 };
	return is_ioctl ? device_ioctl(&site) : device_mmap(&site);
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

static void work_run(struct warden *warden, const struct epoll_event *event)
{
	struct run *run;

	pthread_mutex_lock(&warden->lock);
	run = run_by_serial(warden, event->data.u64);
	if (run && event->events & EPOLLIN)
		work_one(warden, run);
	else if (run && event->events & (EPOLLHUP | EPOLLERR))
		run_gone(warden, run);
	pthread_mutex_unlock(&warden->lock);
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

bool warden_work(struct warden *warden)
{
	struct epoll_event events[WORK_AT_ONCE];
	int count = epoll_wait(warden->epoll, events, WORK_AT_ONCE, 0);
	bool has_runs;

	/* Notifications first: the processes whose end is reported here may be named by them. What an event is of may
	 * have gone since, so it is looked up. */
	for (int i = 0; i < count; i++)
		work_run(warden, &events[i]);
	for (int i = 0; i < count; i++)
		work_process(warden, &events[i]);
	pthread_mutex_lock(&warden->lock);
	has_runs = warden->runs;
	pthread_mutex_unlock(&warden->lock);
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

static void answer_deferred(struct warden *warden)
{
	struct deferred *waiting = warden->deferred;

	warden->deferred = NULL;
	warden->deferred_end = &warden->deferred;
	while (waiting) {
		struct deferred *next = waiting->next;
		struct answer answer = handle(warden, waiting->run, &waiting->request, waiting->has_asked);

		if (answer.kind != ANSWER_LATER)
			send_answer(waiting->run, waiting->request.id, answer);
		free(waiting);
		waiting = next;
	}
}

/* While it is stopped what waits for room waits on with everything else. */
void warden_room_made(struct warden *warden)
{
	pthread_mutex_lock(&warden->lock);
	if (!warden->is_stopped)
		answer_deferred(warden);
	pthread_mutex_unlock(&warden->lock);
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
	answer_deferred(warden);
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
	warden_reconcile(warden);
	if (bytes && bytes < ledger_used(warden->ledger))
		return bf_fail(err, EBUSY, "memory limit %llu: %llu bytes are in use; free some first",
			       (unsigned long long)bytes, (unsigned long long)ledger_used(warden->ledger));
	if (bytes > warden->device->mem_bytes)
		return bf_fail(err, ERANGE, "memory limit %llu: the card has %llu bytes",
			       (unsigned long long)bytes, (unsigned long long)warden->device->mem_bytes);
	warden->options.mem_bytes = bytes;
	ledger_set_limit(warden->ledger, bytes);
	return 0;
}

int warden_set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err)
{
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = set_mem(warden, bytes, err);
	pthread_mutex_unlock(&warden->lock);
	return rc;
}

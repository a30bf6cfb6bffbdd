/* Making and freeing a warden, and changing its settings. */
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
#include "base/units.h"
#include "warden/state.h"

enum { VGPUS_AT_ONCE = 8, DESCRIPTORS_MOST = 65536 };

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

/* An equal part of the limit for each of VGPUS_AT_ONCE vGPUs, so that one vGPU cannot take the descriptors of
 * the others. */
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
	warden->owner = proxy_new("belfry-owner", err);
	warden->access = warden->owner ? proxy_new("belfry-access", err) : NULL;
	if (!warden->access)
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
	STAILQ_INIT(&warden->deferred);
	warden->epoll = warden->wake = -1;
	pthread_mutex_init(&warden->lock, NULL);
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
	while (!LIST_EMPTY(&warden->runs)) /* first: after this, warden_reach is not used any more */
		run_gone(warden, LIST_FIRST(&warden->runs));
	while (!LIST_EMPTY(&warden->processes))
		process_gone(warden, LIST_FIRST(&warden->processes));
	while (!LIST_EMPTY(&warden->files))
		devfile_gone(warden, LIST_FIRST(&warden->files));
	ledger_free(warden->ledger);
	gate_vgpu_remove(warden->gate_vgpu);
	proxy_free(warden->owner);
	proxy_free(warden->access);
	if (warden->epoll >= 0)
		close(warden->epoll);
	if (warden->wake >= 0)
		close(warden->wake);
	pthread_cond_destroy(&warden->idle);
	pthread_mutex_destroy(&warden->lock);
	free(warden);
}

pid_t warden_owner(const struct warden *warden)
{
	return proxy_pid(warden->owner);
}

void warden_wake(struct warden *warden)
{
	uint64_t one = 1;

	if (write(warden->wake, &one, sizeof(one)) < 0)
		bf_log(BF_LOG_DEBUG, "the thread in warden_work is already woken");
}

/* While the vGPU is stopped, calls that wait for memory stay deferred like all others. */
void warden_room_made(struct warden *warden)
{
	warden_wake(warden);
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

	for (visit.client = LIST_FIRST(&warden->clients); visit.client;
	     visit.client = LIST_NEXT(visit.client, next))
		ledger_each(warden->ledger, visit.client->handle, RM_KIND_GROUP, apply_to_group, &visit);
	if (visit.rc)
		return bf_fail(err, EIO, "the driver did not set the %s of every channel group (%d)", what,
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
	uint64_t used = ledger_used(warden->ledger);
	char limit[24], there[24];
	int rc;

	bf_format_size(bytes, limit, sizeof(limit));
	if (bytes && bytes < used)
		return bf_fail(err, EBUSY,
			       "memory limit %s: %s are in use; end a program, or let it free memory", limit,
			       bf_format_size(used, there, sizeof(there)));
	if (bytes > warden->device->mem_bytes)
		return bf_fail(err, ERANGE, "memory limit %s: the GPU has %s", limit,
			       bf_format_size(warden->device->mem_bytes, there, sizeof(there)));
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

int warden_set_domain_folder(struct warden *warden, const char *folder, struct bf_error *err)
{
	if (strlen(folder) >= sizeof(warden->domain_folder))
		return bf_fail(err, ENAMETOOLONG, "shared domain %s: the path is longer than %zu bytes",
			       folder, sizeof(warden->domain_folder) - 1);
	pthread_mutex_lock(&warden->lock);
	memcpy(warden->domain_folder, folder, strlen(folder) + 1);
	warden->has_refused_domain = false;
	pthread_mutex_unlock(&warden->lock);
	return 0;
}

void warden_set_permits(struct warden *warden, const uint32_t *controls, unsigned count)
{
	pthread_mutex_lock(&warden->lock);
	warden->options.permit_count = count < WARDEN_PERMITS ? count : WARDEN_PERMITS;
	memcpy(warden->options.permits, controls, warden->options.permit_count * sizeof(controls[0]));
	pthread_mutex_unlock(&warden->lock);
}

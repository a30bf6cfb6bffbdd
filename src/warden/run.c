/* Runs: the programs that share a seccomp listener. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/own.h"
#include "warden/state.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

enum { AGAIN_NS = 10000000 };

static struct run *run_by_number(const struct warden *warden, uint32_t number)
{
	for (struct run *r = LIST_FIRST(&warden->runs); r; r = LIST_NEXT(r, next))
		if (r->number == number)
			return r;
	return NULL;
}

struct run *run_by_serial(const struct warden *warden, uint64_t serial)
{
	for (struct run *r = LIST_FIRST(&warden->runs); r; r = LIST_NEXT(r, next))
		if (r->serial == serial)
			return r;
	return NULL;
}

static int run_add(struct warden *warden, uint32_t number, int listener, const struct warden_reach *reach,
		   struct bf_error *err)
{
	struct run *run;
	int rc;

	if (run_by_number(warden, number))
		return bf_fail(err, EEXIST, "run %u exists already", number);
	run = calloc(1, sizeof(*run));
	if (!run)
		return bf_fail(err, ENOMEM, "out of memory");
	rc = warden_watch(warden, listener, &run->serial);
	if (rc) {
		free(run);
		return bf_fail(err, -rc, "run %u: its listener cannot be watched: %s", number, strerror(-rc));
	}
	/* Wake an answered thread on the same CPU at once (Linux 6.6); an optimisation. */
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	run->number = number;
	run->listener = listener;
	if (reach)
		run->reach = *reach;
	LIST_INSERT_HEAD(&warden->runs, run, next);
	return 0;
}

int warden_add_run(struct warden *warden, uint32_t run, int listener, const struct warden_reach *reach,
		   struct bf_error *err)
{
	cleanup_close int owned = listener;
	int rc;

	pthread_mutex_lock(&warden->lock);
	rc = run_add(warden, run, owned, reach, err);
	pthread_mutex_unlock(&warden->lock);
	if (!rc)
		bf_take_fd(&owned);
	return rc;
}

static void drop_deferred(struct warden *warden, const struct run *run)
{
	struct deferred *d, *after;

	STAILQ_FOREACH_SAFE(d, &warden->deferred, next, after)
		if (d->run == run) {
			STAILQ_REMOVE(&warden->deferred, d, deferred, next);
			free(d);
		}
}

void run_gone(struct warden *warden, struct run *run)
{
	LIST_REMOVE(run, next);
	drop_deferred(warden, run);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		if (p->run == run->number)
			process_cut(p);
	/* Another process may have the listener open too, and then closing it does not remove it from
	 * epoll. */
	epoll_ctl(warden->epoll, EPOLL_CTL_DEL, run->listener, NULL);
	close(run->listener);
	free(run);
}

/* The thread in warden_work may be handling a call of the run. The access proxy is killed, so that the call
 * does not wait for the program. */
static void wait_until_unused(struct warden *warden, const struct run *run)
{
	while (warden->busy_run == run) {
		struct timespec until;

		if (warden->access)
			proxy_stop(warden->access);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += AGAIN_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&warden->idle, &warden->lock, &until);
	}
}

/* With the lock, which is released while the run is in use. */
static void drop_run(struct warden *warden, uint32_t number)
{
	struct run *run = run_by_number(warden, number);

	if (run)
		wait_until_unused(warden, run);
	run = run_by_number(warden, number); /* it may have ended meanwhile */
	if (run)
		run_gone(warden, run);
}

void warden_end_run(struct warden *warden, uint32_t number, const char *why)
{
	pthread_mutex_lock(&warden->lock);
	for (struct process *p = LIST_FIRST(&warden->processes); p; p = LIST_NEXT(p, next))
		if (p->run == number)
			process_end(p, why);
	drop_run(warden, number);
	pthread_mutex_unlock(&warden->lock);
}

void warden_drop_run(struct warden *warden, uint32_t number)
{
	pthread_mutex_lock(&warden->lock);
	drop_run(warden, number);
	pthread_mutex_unlock(&warden->lock);
}

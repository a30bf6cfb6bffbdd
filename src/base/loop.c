#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"

struct loop_source {
	int fd;
	enum loop_order order;
	void (*ready)(void *context, uint32_t events);
	void *context;
	LIST_ENTRY(loop_source) next; /* loop::sources */
};

struct loop {
	int epoll;
	LIST_HEAD(, loop_source) sources;
	int at_once, pending_count;
	struct epoll_event
		pending[]; /* what loop_wait is about to call; loop_remove takes sources out of it */
};

struct loop *loop_new(unsigned at_once, struct bf_error *err)
{
	struct loop *loop = calloc(1, sizeof(*loop) + at_once * sizeof(loop->pending[0]));

	if (!loop) {
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	LIST_INIT(&loop->sources);
	loop->at_once = (int)at_once;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll >= 0)
		return loop;
	bf_fail(err, errno, "epoll: %s", strerror(errno));
	free(loop);
	return NULL;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	while (!LIST_EMPTY(&loop->sources))
		loop_remove(loop, LIST_FIRST(&loop->sources));
	close(loop->epoll);
	free(loop);
}

struct loop_source *loop_add(struct loop *loop, int fd, uint32_t events, enum loop_order order,
			     void (*ready)(void *context, uint32_t events), void *context)
{
	struct loop_source *source = calloc(1, sizeof(*source));
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (!source)
		return NULL;
	*source = (struct loop_source){ .fd = fd, .order = order, .ready = ready, .context = context };
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event)) {
		int why = errno;

		free(source);
		errno = why;
		return NULL;
	}
	LIST_INSERT_HEAD(&loop->sources, source, next);
	return source;
}

void loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	if (!source)
		return;
	for (int i = 0; i < loop->pending_count; i++)
		if (loop->pending[i].data.ptr == source)
			loop->pending[i].data.ptr = NULL;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	LIST_REMOVE(source, next);
	free(source);
}

/* Milliseconds, rounded up: rounded down, the caller would wait for 0 ms again and again until the time has come. */
static int to_ms(uint64_t ns)
{
	uint64_t ms = ns / 1000000 + (ns % 1000000 != 0);

	return ms > INT_MAX ? INT_MAX : (int)ms;
}

static int wait_for_events(struct loop *loop, uint64_t until_ns)
{
	bool is_forever = until_ns == LOOP_FOREVER;
	uint64_t now_ns = is_forever ? 0 : bf_now_ns();
	uint64_t ns = until_ns > now_ns ? until_ns - now_ns : 0;
	struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	int count = epoll_pwait2(loop->epoll, loop->pending, loop->at_once, is_forever ? NULL : &limit, NULL);

	/* Linux before 5.11 has no epoll_pwait2, and the seccomp filters of some containers answer EPERM. */
	if (count < 0 && (errno == ENOSYS || errno == EPERM))
		count = epoll_wait(loop->epoll, loop->pending, loop->at_once, is_forever ? -1 : to_ms(ns));
	if (count >= 0)
		return count;
	return errno == EINTR ? 0 : -errno;
}

static int call_order(struct loop *loop, enum loop_order order)
{
	int called = 0;

	for (int i = 0; i < loop->pending_count; i++) {
		struct loop_source *source = loop->pending[i].data.ptr;

		if (!source || source->order != order)
			continue;
		loop->pending[i].data.ptr = NULL;
		source->ready(source->context, loop->pending[i].events);
		called++;
	}
	return called;
}

int loop_wait(struct loop *loop, uint64_t until_ns)
{
	int called = 0, count = wait_for_events(loop, until_ns);

	loop->pending_count = count > 0 ? count : 0;
	for (enum loop_order order = LOOP_FIRST; order < LOOP_ORDERS; order++)
		called += call_order(loop, order);
	loop->pending_count = 0;
	return count < 0 ? count : called;
}

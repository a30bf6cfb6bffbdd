/* loop: which sources are called, when and in which order. */
#include "base/loop.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

enum { SOURCES = 3, AT_ONCE = 16, MANY = 3 * AT_ONCE };

struct watched {
	struct loop *loop;
	struct loop_source *source;
	int fd;
	unsigned calls, at; /* at: the number of the last call of any */
	struct watched *removes;
};

static unsigned all_calls;

static void is_ready(void *context, uint32_t events)
{
	struct watched *w = context;
	eventfd_t value;

	assert_true(events & EPOLLIN);
	assert_int_equal(eventfd_read(w->fd, &value), 0);
	w->calls++;
	w->at = ++all_calls;
	if (w->removes) {
		loop_remove(w->loop, w->removes->source);
		w->removes->source = NULL;
	}
}

static void watch(struct loop *loop, struct watched *w, enum loop_order order)
{
	*w = (struct watched){ .loop = loop, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	assert_true(w->fd >= 0);
	w->source = loop_add(loop, w->fd, EPOLLIN, order, is_ready, w);
	assert_non_null(w->source);
}

static void unwatch(struct watched *w)
{
	loop_remove(w->loop, w->source);
	close(w->fd);
}

static struct loop *new_loop(void)
{
	struct bf_error err = { 0 };
	struct loop *loop = loop_new(AT_ONCE, &err);

	assert_non_null(loop);
	all_calls = 0;
	return loop;
}

static void only_ready_sources_are_called(void **state)
{
	struct loop *loop = new_loop();
	struct watched w[SOURCES];

	(void)state;
	for (unsigned i = 0; i < SOURCES; i++)
		watch(loop, &w[i], LOOP_MIDDLE);
	eventfd_write(w[1].fd, 1);
	assert_int_equal(loop_wait(loop, LOOP_FOREVER), 1);
	assert_int_equal(w[1].calls, 1);
	assert_int_equal(loop_wait(loop, 0), 0);
	for (unsigned i = 0; i < SOURCES; i++)
		unwatch(&w[i]);
	loop_free(loop);
}

static void sources_are_called_in_their_order(void **state)
{
	static const enum loop_order orders[SOURCES] = { LOOP_LAST, LOOP_FIRST, LOOP_MIDDLE };
	struct loop *loop = new_loop();
	struct watched w[SOURCES];

	(void)state;
	for (unsigned i = 0; i < SOURCES; i++) {
		watch(loop, &w[i], orders[i]);
		eventfd_write(w[i].fd, 1);
	}
	assert_int_equal(loop_wait(loop, LOOP_FOREVER), SOURCES);
	assert_int_equal(w[1].at, 1);
	assert_int_equal(w[2].at, 2);
	assert_int_equal(w[0].at, 3);
	for (unsigned i = 0; i < SOURCES; i++)
		unwatch(&w[i]);
	loop_free(loop);
}

static void removed_source_is_not_called(void **state)
{
	struct loop *loop = new_loop();
	struct watched first, second;

	(void)state;
	watch(loop, &first, LOOP_FIRST);
	watch(loop, &second, LOOP_LAST);
	first.removes = &second;
	eventfd_write(first.fd, 1);
	eventfd_write(second.fd, 1);
	assert_int_equal(loop_wait(loop, LOOP_FOREVER), 1);
	assert_int_equal(second.calls, 0);
	close(second.fd);
	first.removes = &first; /* a source may remove itself */
	eventfd_write(first.fd, 1);
	assert_int_equal(loop_wait(loop, LOOP_FOREVER), 1);
	assert_int_equal(loop_wait(loop, 0), 0);
	close(first.fd);
	loop_free(loop);
}

/* One busy source must not keep the others from being called. */
static void every_ready_source_is_called_in_turn(void **state)
{
	struct loop *loop = new_loop();
	struct watched *w = calloc(MANY, sizeof(*w));

	(void)state;
	assert_non_null(w);
	for (unsigned i = 0; i < MANY; i++) {
		watch(loop, &w[i], LOOP_MIDDLE);
		eventfd_write(w[i].fd, 1);
	}
	for (unsigned i = 0; i < MANY / AT_ONCE; i++) {
		assert_int_equal(loop_wait(loop, LOOP_FOREVER), AT_ONCE);
		eventfd_write(w[0].fd, 1);
	}
	for (unsigned i = 1; i < MANY; i++)
		assert_int_equal(w[i].calls, 1);
	for (unsigned i = 0; i < MANY; i++)
		unwatch(&w[i]);
	free(w);
	loop_free(loop);
}

static void waiting_ends_at_its_time(void **state)
{
	struct loop *loop = new_loop();
	uint64_t until_ns = bf_now_ns() + 2000000;

	(void)state;
	assert_int_equal(loop_wait(loop, until_ns), 0);
	assert_true(bf_now_ns() >= until_ns);
	loop_free(loop);
}

static void changed_events_count_at_once(void **state)
{
	struct loop *loop = new_loop();
	struct watched w;

	(void)state;
	watch(loop, &w, LOOP_MIDDLE);
	eventfd_write(w.fd, 1);
	loop_change(loop, w.source, 0);
	assert_int_equal(loop_wait(loop, 0), 0);
	loop_change(loop, w.source, EPOLLIN);
	assert_int_equal(loop_wait(loop, 0), 1);
	unwatch(&w);
	loop_free(loop);
}

static void closed_descriptor_cannot_be_watched(void **state)
{
	struct loop *loop = new_loop();

	(void)state;
	assert_null(loop_add(loop, -1, EPOLLIN, LOOP_FIRST, is_ready, NULL));
	loop_free(loop);
}

static int refuse_epoll_pwait2(int code)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static void count_call(void *context, uint32_t events)
{
	(void)events;
	++*(unsigned *)context;
}

/* In a child, where no assertion may fail. Returns its exit status. */
static int wait_without_epoll_pwait2(int code)
{
	struct loop *loop = loop_new(AT_ONCE, NULL);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	unsigned calls = 0;
	struct loop_source *source = loop ? loop_add(loop, fd, EPOLLIN, LOOP_FIRST, count_call, &calls)
					  : NULL;
	uint64_t until_ns = bf_now_ns() + 2500000;

	if (!source || refuse_epoll_pwait2(code))
		return 2;
	if (loop_wait(loop, LOOP_FOREVER) != 1 || calls != 1)
		return 3;
	loop_remove(loop, source);
	if (loop_wait(loop, until_ns) != 0 || bf_now_ns() < until_ns)
		return 4;
	loop_free(loop);
	return 0;
}

static void kernels_without_epoll_pwait2_are_served(void **state)
{
	static const int codes[] = { ENOSYS, EPERM };
	int status;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(wait_without_epoll_pwait2(codes[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

static void loop_that_cannot_wait_says_so(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		struct loop *loop = loop_new(AT_ONCE, NULL);

		_exit(!loop || refuse_epoll_pwait2(EBADF) || loop_wait(loop, LOOP_FOREVER) != -EBADF);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_ready_sources_are_called),
		cmocka_unit_test(sources_are_called_in_their_order),
		cmocka_unit_test(removed_source_is_not_called),
		cmocka_unit_test(every_ready_source_is_called_in_turn),
		cmocka_unit_test(waiting_ends_at_its_time),
		cmocka_unit_test(changed_events_count_at_once),
		cmocka_unit_test(closed_descriptor_cannot_be_watched),
		cmocka_unit_test(kernels_without_epoll_pwait2_are_served),
		cmocka_unit_test(loop_that_cannot_wait_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

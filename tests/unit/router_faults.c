/* router: processes and clients that hang, die or attack do not stop belfryd. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "router_stage.h"
#include "skipping.h"

static _Atomic int metrics_started;

/* A belfry-metrics that ignores SIGTERM. */
static pid_t start_stubborn_metrics(void *context, const struct config *config, const char *sock,
				    struct bf_error *err)
{
	pid_t pid;

	(void)context;
	(void)config;
	(void)sock;
	(void)err;
	signal(SIGTERM, SIG_IGN); /* before the fork: the child must not be ended early */
	pid = fork();
	if (!pid) {
		alarm(20);
		syscall(SYS_close_range, 3u, ~0u, 0u);
		for (;;)
			pause();
	}
	signal(SIGTERM, SIG_DFL);
	metrics_started++;
	return pid;
}

static void metrics_that_do_not_end_delay_no_request(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	uint64_t start_ns;

	stage->start_metrics = start_stubborn_metrics;
	metrics_started = 0;
	stage_write(stage->config, "[server]\nmetrics = 127.0.0.1:1\n");
	stage_start(stage);
	WAIT_FOR(metrics_started == 1);
	stage_write(stage->config, "[server]\nmetrics = 127.0.0.1:2\n");
	start_ns = bf_now_ns();
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	/* It is killed after 1 s. */
	assert_int_equal(metrics_started, 1);
	assert_true(bf_now_ns() - start_ns < 900000000ull);
	WAIT_FOR(metrics_started == 2);
	stage_stop(stage);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static struct protocol_request request_to_gpu(enum protocol_op op, const char *name, uint32_t index)
{
	struct protocol_request request = talk_request(op, name);

	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = index };
	return request;
}

/* Connect, and ask without waiting for the answer. */
static int ask_on(struct stage *stage, const struct protocol_request *request)
{
	struct bf_error err = { 0 };
	int sock;

	do
		sock = talk_connect(&stage->place, &err);
	while (sock == -EAGAIN);
	assert_true(sock >= 0);
	assert_int_equal(send(sock, request, sizeof(*request), MSG_NOSIGNAL), sizeof(*request));
	return sock;
}

static void clients_that_leave_a_hung_server_make_room(void **state)
{
	enum { MANY = 1400 };
	struct stage *stage = *state;
	struct protocol_request request = request_to_gpu(PROTOCOL_REPORT, NULL, 0);
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	stage_hang_fake(stage, 0, true);
	for (int i = 0; i < MANY; i++)
		close(ask_on(stage, &request));
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err) == 0);
	request.gpu.index = 1;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	/* When it goes on, it serves the others. */
	stage_hang_fake(stage, 0, false);
	request.gpu.index = 0;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
}

static void hung_server_delays_no_change_of_other_gpus(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[vgpu one]\ngpu = 0\n[vgpu two]\ngpu = 1\n");
	stage_start(stage);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "one", &err) == 0 &&
		 stage_ask_op(stage, PROTOCOL_REPORT, "two", &err) == 0);
	stage_hang_fake(stage, 0, true);
	stage_write(stage->config, "[vgpu one]\ngpu = 0\nmem = 1G\n[vgpu three]\ngpu = 1\n");
	stage->refuses_removal = true;
	router_reload(stage->router);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "three", &err) == 0);
	WAIT_FOR(stage->refused);
	/* What was refused is tried again. */
	stage->refuses_removal = false;
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "two", &err) == -ENOENT);
}

/* Whether the request is answered with success within 3 s. */
static bool is_answered(struct stage *stage, const struct protocol_request *request)
{
	struct protocol_reply reply = { .code = -1 };
	int sock = ask_on(stage, request);
	bool is_good = poll(&(struct pollfd){ sock, POLLIN, 0 }, 1, 3000) == 1 &&
		       recv(sock, &reply, sizeof(reply), 0) == (ssize_t)sizeof(reply) && !reply.code;

	close(sock);
	return is_good;
}

static void server_that_hangs_as_it_starts_delays_no_other_gpu(void **state)
{
	struct stage *stage = *state;
	struct protocol_request hello = talk_request(PROTOCOL_HELLO, NULL),
				create = talk_request(PROTOCOL_CREATE, "a"),
				named = request_to_gpu(PROTOCOL_REPORT, NULL, 1);
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_ask(stage, &named, NULL, &err), 0);
	stage->is_slow = true;
	stage_kill_fake(stage, 1);
	WAIT_FOR(stage->fake_count == 3);
	assert_true(is_answered(stage, &hello));
	assert_true(is_answered(stage, &create));
	stage->is_slow = false;
	assert_int_equal(stage_ask(stage, &named, NULL, &err), 0);
}

/* It takes 5 s: so long belfryd waits for a server that was left running. */
static void busy_server_that_carries_on_is_not_replaced(void **state)
{
	struct stage *stage = *state;
	struct protocol_request on_busy = request_to_gpu(PROTOCOL_REPORT, NULL, 0),
				on_other = request_to_gpu(PROTOCOL_REPORT, NULL, 1);
	struct bf_error err = { 0 };

	stage_write(stage->config, "[server]\non_daemon_death = carry\n");
	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", 60 * GIB, 0, NULL, &err), 0);
	assert_int_equal(stage_create(stage, "b", 60 * GIB, 0, NULL, &err), 0);
	stage_stop(stage);
	stage_hang_fake(stage, 0, true);
	stage_start(stage);
	assert_int_equal(stage_ask(stage, &on_other, NULL, &err), 0);
	assert_int_equal(stage_ask(stage, &on_busy, NULL, &err), -ENODEV);
	assert_non_null(strstr(err.text, "left running"));
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "a", &err), -ENODEV);
	assert_int_equal(stage->fake_count, 2);
	stage_hang_fake(stage, 0, false);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "a", &err) == 0);
	assert_int_equal(stage->fake_count, 2);
	assert_int_equal(stage->requests[PROTOCOL_CREATE], 2);
}

/* A stack that 1,000 requests would fill if each was sent while the one before is. */
static void many_waiting_requests_need_no_stack(void **state)
{
	enum { MANY = 1000 };
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_CREATE, NULL);
	struct protocol_reply reply;
	int *socks = calloc(MANY, sizeof(*socks));

	assert_non_null(socks);
	stage->gpus = 1;
	stage->stack_bytes = 512 << 10;
	stage->is_slow = true;
	stage_start(stage);
	for (int i = 0; i < MANY; i++) {
		snprintf(request.name, sizeof(request.name), "v%d", i);
		socks[i] = ask_on(stage, &request);
	}
	stage->is_slow = false;
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(recv(socks[i], &reply, sizeof(reply), 0), sizeof(reply));
		close(socks[i]);
	}
	free(socks);
}

/* Open more connections than one user may have, and keep them. Returns the process. */
static pid_t flood_as(struct stage *stage, uid_t uid, unsigned count)
{
	int ends[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		if (setgid(uid) || setuid(uid))
			_exit(1);
		for (unsigned i = 0; i < count; i++)
			while (talk_connect(&stage->place, NULL) == -EAGAIN)
				;
		if (write(ends[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static void connections_over_the_limit_lock_nobody_out(void **state)
{
	enum { MANY = 2400 };
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	struct rlimit files;
	pid_t pid;
	int rc;

	if (geteuid())
		skip_case("not root");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	if (files.rlim_max < 2ul * MANY || setrlimit(RLIMIT_NOFILE, &files))
		skip_case("too few descriptors are allowed here");
	stage->is_everyone = true;
	stage_start(stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	pid = flood_as(stage, 65534, MANY);
	rc = stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(rc, 0);
}

/* Ask as another user. Returns the code of the answer. */
static int ask_as(struct stage *stage, uid_t uid, const struct protocol_request *request)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct bf_error err = { 0 };

		if (setgid(uid) || setuid(uid))
			_exit(255);
		_exit(-stage_ask(stage, request, NULL, &err));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
	return WEXITSTATUS(status);
}

static void only_the_administrator_accepts_any_driver(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct bf_error err = { 0 };

	if (geteuid())
		skip_case("not root");
	stage->gpus = 1;
	stage->is_everyone = true;
	stage->does_fail = true;
	stage_start(stage);
	request.gpu.kind = PROTOCOL_GPU_NV;
	request.flags = PROTOCOL_ANY_DRIVER;
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, NULL, &err), -ENODEV);
	/* A failure of the last second is not tried again. */
	WAIT_FOR(ask_as(stage, 65534, &request) == ENODEV && stage->fake_count == 2);
	WAIT_FOR(stage_ask(stage, &request, NULL, &err) == -ENODEV && stage->fake_count == 3);
	assert_false(stage->fakes[1].start_flags & PROTOCOL_ANY_DRIVER);
	assert_true(stage->fakes[2].start_flags & PROTOCOL_ANY_DRIVER);
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_set_up, stage_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(metrics_that_do_not_end_delay_no_request),
		ON_STAGE(clients_that_leave_a_hung_server_make_room),
		ON_STAGE(hung_server_delays_no_change_of_other_gpus),
		ON_STAGE(server_that_hangs_as_it_starts_delays_no_other_gpu),
		ON_STAGE(busy_server_that_carries_on_is_not_replaced),
		ON_STAGE(many_waiting_requests_need_no_stack),
		ON_STAGE(connections_over_the_limit_lock_nobody_out),
		ON_STAGE(only_the_administrator_accepts_any_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

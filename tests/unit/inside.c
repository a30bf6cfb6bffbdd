/* inside: which clients are programs of a run, and what those may not ask. Clients are processes of the test's own. */
#include "client/inside.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "skipping.h"

enum { DEEP = 300 /* more than is followed */, ANOTHER_USER = 65534 };

struct client {
	bool is_kept, is_filtered;
	bool is_job; /* the filter is installed by root without no_new_privs, and then the process becomes another user */
	int generations; /* between it and the one the test has started */
	bool has_to_end;
};

struct stage {
	struct sockaddr_un address;
	int listener, sock; /* sock: to the client, as belfryd has it */
	pid_t child;	    /* of the test, in a process group of its own */
};

static int set_up(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));
	socklen_t length = sizeof(sa_family_t); /* an abstract name that the kernel chooses */

	stage->address.sun_family = AF_UNIX;
	stage->sock = -1;
	stage->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(stage->listener, (struct sockaddr *)&stage->address, length) || listen(stage->listener, 1))
		return -1;
	*state = stage;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;

	if (stage->child)
		kill(-stage->child, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	close(stage->sock);
	close(stage->listener);
	free(stage);
	return 0;
}

static void add_filter(bool sets_no_new_privs)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { 1, code };

	if (sets_no_new_privs)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		_exit(1);
}

static void __attribute__((noreturn)) be_client(const struct stage *stage, const struct client *client)
{
	struct sockaddr_un address;
	socklen_t length = sizeof(address);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	setpgid(0, 0);
	if (client->is_kept)
		prctl(PR_SET_NAME, INSIDE_KEEPER);
	for (int i = 0; i < client->generations; i++)
		if (fork())
			for (;;)
				pause();
	if (client->generations)
		prctl(PR_SET_NAME, "client");
	if (client->is_filtered)
		add_filter(!client->is_job);
	if (client->is_job && setuid(ANOTHER_USER))
		_exit(1);
	if (getsockname(stage->listener, (struct sockaddr *)&address, &length) ||
	    connect(sock, (struct sockaddr *)&address, length))
		_exit(1);
	while (!client->has_to_end)
		pause();
	_exit(0);
}

static enum inside_where where_is(struct stage *stage, const struct client *client, unsigned floor)
{
	pid_t pid;

	stage->child = fork();
	if (!stage->child)
		be_client(stage, client);
	stage->sock = accept(stage->listener, NULL, NULL);
	assert_true(stage->sock >= 0);
	if (client->has_to_end) {
		assert_int_equal(waitpid(stage->child, NULL, 0), stage->child);
		stage->child = 0;
	}
	return inside_look(stage->sock, floor, &pid);
}

static void process_without_a_filter_is_outside(void **state)
{
	assert_int_equal(where_is(*state, &(struct client){ 0 }, 0), INSIDE_NOT);
}

/* It would have one if the keeper's run were its own. */
static void process_without_a_filter_is_outside_below_a_keeper(void **state)
{
	struct client client = { .is_kept = true, .generations = 1 };

	assert_int_equal(where_is(*state, &client, 0), INSIDE_NOT);
}

static void process_with_a_filter_below_a_keeper_is_inside(void **state)
{
	struct client client = { .is_kept = true, .is_filtered = true, .generations = 5 };

	assert_int_equal(where_is(*state, &client, 100), INSIDE_RUN);
}

static void process_with_a_filter_below_no_keeper_may_be_left_over(void **state)
{
	struct client client = { .is_filtered = true };
	unsigned floor = inside_floor(true);

	assert_int_equal(where_is(*state, &client, floor), INSIDE_LEFT);
}

static void process_with_the_filters_of_its_container_is_outside(void **state)
{
	struct client client = { .is_filtered = true };
	unsigned floor = inside_floor(true) + 1;

	assert_int_equal(where_is(*state, &client, floor), INSIDE_NOT);
}

static void process_of_another_user_with_a_filter_of_root_may_be_in_a_job(void **state)
{
	struct client client = { .is_filtered = true, .is_job = true };
	struct protocol_request request = { .op = PROTOCOL_SET };
	struct stage *stage = *state;
	unsigned floor = inside_floor(true);
	struct bf_error err;

	if (geteuid() != 0)
		skip_case("only root installs a filter without no_new_privs");
	assert_int_equal(where_is(stage, &client, floor), INSIDE_ATTACHED);
	assert_int_equal(inside_check(stage->sock, &request, floor, &err), -EPERM);
}

static void process_that_has_ended_cannot_be_told(void **state)
{
	struct client client = { .has_to_end = true };

	assert_int_equal(where_is(*state, &client, 0), INSIDE_UNKNOWN);
}

static void line_of_ancestors_is_followed_so_far(void **state)
{
	struct client client = { .is_filtered = true, .generations = DEEP };

	assert_int_equal(where_is(*state, &client, 0), INSIDE_UNKNOWN);
}

static void only_what_changes_something_is_refused(void **state)
{
	static const enum protocol_op asks[] = {
		PROTOCOL_HELLO,		PROTOCOL_REPORT,      PROTOCOL_EXPLAIN,	   PROTOCOL_TRACE,
		PROTOCOL_POLICY_LIST,	PROTOCOL_POLICY_DUMP, PROTOCOL_PROBE_LIST, PROTOCOL_PROBE_DUMP,
		PROTOCOL_POLICY_FOLLOW, PROTOCOL_EVENTS,      PROTOCOL_ACCOUNT
	};
	struct stage *stage = *state;
	struct client client = { .is_kept = true, .is_filtered = true, .generations = 1 };

	assert_int_equal(where_is(stage, &client, 0), INSIDE_RUN);
	for (uint32_t op = 0; op <= PROTOCOL_OPS; op++) {
		struct protocol_request request = { .op = op };
		struct bf_error err = { 0 };
		bool is_asking = false;

		for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
			is_asking |= op == asks[i];
		assert_int_equal(inside_check(stage->sock, &request, 0, &err), is_asking	    ? 0
									       : op == PROTOCOL_RUN ? -EBUSY
												    : -EPERM);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(process_without_a_filter_is_outside),
		TEST(process_without_a_filter_is_outside_below_a_keeper),
		TEST(process_with_a_filter_below_a_keeper_is_inside),
		TEST(process_with_a_filter_below_no_keeper_may_be_left_over),
		TEST(process_with_the_filters_of_its_container_is_outside),
		TEST(process_of_another_user_with_a_filter_of_root_may_be_in_a_job),
		TEST(process_that_has_ended_cannot_be_told),
		TEST(line_of_ancestors_is_followed_so_far),
		TEST(only_what_changes_something_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* router: names, quotas and changes of the configuration while GPU servers are slow or die. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "router_stage.h"

static struct protocol_request request_of(enum protocol_op op, const char *name, uint64_t mem_bytes)
{
	struct protocol_request request = talk_request(op, name);

	request.spec.mem_bytes = mem_bytes;
	request.parts = SPEC_MEM;
	if (op == PROTOCOL_RUN)
		request.flags = PROTOCOL_EPHEMERAL;
	return request;
}

static void limit_own_memory(struct stage *stage)
{
	char text[64];

	snprintf(text, sizeof(text), "[user %u]\nmem = 10G\n", geteuid());
	stage_write(stage->config, text);
}

/* Ask without waiting for the answer. When this returns, belfryd has dispatched the request. */
static int ask_on(struct stage *stage, const struct protocol_request *request)
{
	struct bf_error err = { 0 };
	int sock = talk_connect(&stage->place, &err);

	assert_true(sock >= 0);
	assert_int_equal(send(sock, request, sizeof(*request), MSG_NOSIGNAL), sizeof(*request));
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	return sock;
}

/* The code of the answer. */
static int answer_on(int sock)
{
	struct protocol_reply reply;

	assert_int_equal(recv(sock, &reply, sizeof(reply), 0), sizeof(reply));
	close(sock);
	return reply.code;
}

static void hang_all(struct stage *stage, bool are_hung)
{
	for (unsigned i = 0; i < stage->fake_count; i++)
		stage_hang_fake(stage, i, are_hung);
}

static void changes_in_progress_count_all_together(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request;
	struct bf_error err = { 0 };
	int large, small;

	limit_own_memory(stage);
	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), 0);
	assert_int_equal(stage_create(stage, "b", GIB, 0, NULL, &err), 0);
	hang_all(stage, true);
	request = request_of(PROTOCOL_SET, "a", 8 * GIB);
	large = ask_on(stage, &request);
	request = request_of(PROTOCOL_SET, "a", GIB);
	small = ask_on(stage, &request);
	request = request_of(PROTOCOL_SET, "b", 8 * GIB);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EDQUOT);
	hang_all(stage, false);
	assert_int_equal(answer_on(large), 0);
	assert_int_equal(answer_on(small), 0);
	/* Both were made, and the second is smaller. */
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	request = request_of(PROTOCOL_SET, "a", 3 * GIB);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EDQUOT);
}

static void refused_change_does_not_count(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = request_of(PROTOCOL_SET, "a", 8 * GIB);
	struct bf_error err = { 0 };

	limit_own_memory(stage);
	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), 0);
	stage->refuses_set = true;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EBUSY);
	assert_int_equal(stage_create(stage, "b", 8 * GIB, 0, NULL, &err), 0);
}

static void names_taken_over_count_in_the_quota(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request;
	struct bf_error err = { 0 };
	int sock;

	limit_own_memory(stage);
	stage_start(stage);
	request = request_of(PROTOCOL_RUN, "r", GIB);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	request = request_of(PROTOCOL_RUN, "s", GIB);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	stage->runs_are_over = true;
	hang_all(stage, true);
	request = request_of(PROTOCOL_RUN, "r", 8 * GIB);
	sock = ask_on(stage, &request);
	request = request_of(PROTOCOL_RUN, "s", 8 * GIB);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EDQUOT);
	request = request_of(PROTOCOL_RUN, "r", GIB); /* the name has a claimant already */
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EEXIST);
	hang_all(stage, false);
	assert_int_equal(answer_on(sock), 0);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0); /* and none now */
}

/* It takes 6 s, which is longer than any limit that a reservation had. */
static void name_is_reserved_until_its_server_answers(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = request_of(PROTOCOL_CREATE, "a", GIB);
	struct bf_error err = { 0 };
	uint64_t end_ns = bf_now_ns() + 6000000000ull;
	int sock;

	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 0 };
	stage_start(stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	stage_hang_fake(stage, 0, true);
	sock = ask_on(stage, &request);
	request.gpu.index = 1;
	for (; bf_now_ns() < end_ns; usleep(100000))
		assert_int_equal(stage_ask(stage, &request, NULL, &err), -EEXIST);
	stage_hang_fake(stage, 0, false);
	assert_int_equal(answer_on(sock), 0);
	/* It ends with the server. */
	stage_hang_fake(stage, 0, true);
	request = request_of(PROTOCOL_CREATE, "b", GIB);
	request.gpu.kind = PROTOCOL_GPU_NV;
	sock = ask_on(stage, &request);
	stage_kill_fake(stage, 0);
	WAIT_FOR(stage->fake_count == 3);
	WAIT_FOR(stage_ask(stage, &request, NULL, &err) == 0);
	close(sock);
}

/* The memory of the only vGPU of a server. */
static uint64_t only_mem_bytes(struct stage *stage, unsigned i)
{
	const struct fake *fake = &stage->fakes[i];
	uint64_t bytes;

	pthread_mutex_lock(&stage->lock);
	bytes = fake->vgpu_count == 1 ? fake->vgpus[0].request.spec.mem_bytes : 0;
	pthread_mutex_unlock(&stage->lock);
	return bytes;
}

static void changes_that_a_dead_server_has_not_made_are_made_by_the_next(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[vgpu one]\ngpu = 0\n[vgpu two]\ngpu = 0\n");
	stage_start(stage);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "one", &err) == 0 &&
		 stage_ask_op(stage, PROTOCOL_REPORT, "two", &err) == 0);
	stage_hang_fake(stage, 0, true);
	stage_write(stage->config, "[vgpu one]\ngpu = 0\nmem = 2G\n[vgpu three]\ngpu = 1\n");
	router_reload(stage->router);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "three", &err) == 0); /* the reload was carried out */
	stage_kill_fake(stage, 0);
	WAIT_FOR(stage->fake_count == 3);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "two", &err) == -ENOENT);
	WAIT_FOR(only_mem_bytes(stage, 2) == 2 * GIB);
}

static void saved_vgpu_is_made_when_its_gpu_is_listed_again(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_REPORT, "kept");
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	char path[128];

	snprintf(path, sizeof(path), "%s.state", stage->socket);
	stage_write(path, "[vgpu kept]\ngpu = 1\n");
	stage_write(stage->config, "[server]\ngpus = 0\n");
	stage_start(stage);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -ENODEV);
	assert_non_null(strstr(err.text, "is not served now"));
	stage_write(stage->config, "[server]\ngpus = 0 1\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	WAIT_FOR(stage_ask(stage, &request, &reply, &err) == 0);
	assert_int_equal(reply.text[0], '1');
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_set_up, stage_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(changes_in_progress_count_all_together),
		ON_STAGE(refused_change_does_not_count),
		ON_STAGE(names_taken_over_count_in_the_quota),
		ON_STAGE(name_is_reserved_until_its_server_answers),
		ON_STAGE(changes_that_a_dead_server_has_not_made_are_made_by_the_next),
		ON_STAGE(saved_vgpu_is_made_when_its_gpu_is_listed_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

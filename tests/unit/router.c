/* router: who is let in, where requests go, and what becomes of names, servers and files. */
#include "router/router.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "router_stage.h"
#include "skipping.h"

static bool has_text(const char *path, const char *text)
{
	char whole[4096] = "";
	FILE *file = fopen(path, "r");
	size_t got = file ? fread(whole, 1, sizeof(whole) - 1, file) : 0;

	if (file)
		fclose(file);
	whole[got] = 0;
	return strstr(whole, text) != NULL;
}

static void requests_go_to_the_gpu_they_are_about(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request;
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 0);
	assert_int_equal(stage_create(stage, "b", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 1);
	request = talk_request(PROTOCOL_REPORT, "b");
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	request = talk_request(PROTOCOL_REPORT, NULL);
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '0');
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 1 };
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	request.gpu.index = 7;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), -ENODEV);
	assert_non_null(strstr(err.text, "GPU 7"));
	/* A vGPU and a GPU that it is not on are a mistake. */
	request = talk_request(PROTOCOL_POLICY_LOAD, "b");
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 1 };
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	request.gpu.index = 0;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), -EINVAL);
	assert_non_null(strstr(err.text, "b: it is on GPU 1, and another GPU was named"));
	request.gpu.index = 7;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), -EINVAL);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HOLD, "nobody", &err), -ENOENT);
	assert_non_null(strstr(err.text, "nobody: no vGPU of this name; belfry ls"));
}

static void hello_tells_of_the_daemon_and_its_gpus(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	char *body = NULL;
	int sock;

	stage_start(stage);
	sock = talk_connect(&stage->place, &err);
	assert_true(sock >= 0);
	assert_int_equal(talk_ask(sock, &request, &reply, &body, &err), 0);
	assert_non_null(strstr(body, "\"gpu\":\"1\",\"kind\":\"nv\",\"index\":1"));
	assert_non_null(strstr(body, stage->socket));
	free(body);
	assert_int_equal(talk_ask(sock, &request, &reply, &body, &err),
			 0); /* and again on the same connection */
	free(body);
	close(sock);
}

static void placement_looks_at_memory_then_at_time(void **state)
{
	struct router_room rooms[] = { { "GPU 0", 100 * GIB, 40 * GIB, 700000 },
				       { "GPU 1", 100 * GIB, 60 * GIB, 100000 },
				       { "GPU 2", 100 * GIB, 60 * GIB, 200000 } };
	struct spec spec = spec_default;
	struct bf_error err = { 0 };

	(void)state;
	assert_int_equal(router_place(rooms, 3, &spec, &err), 2);
	spec.request_ppm = 300000;
	assert_int_equal(router_place(rooms, 3, &spec, &err), 0);
	spec.mem_bytes = 41 * GIB;
	assert_int_equal(router_place(rooms, 3, &spec, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "41 GiB and 30 % of its time"));
	assert_non_null(strstr(err.text, "GPU 1: 60 GiB of 100 GiB and 10 % of its time are free"));
	spec.request_ppm = 200000;
	assert_int_equal(router_place(rooms, 3, &spec, &err), 2);
	spec.mem_bytes = 60 * GIB;
	assert_int_equal(router_place(rooms, 3, &spec, &err), 2);
	assert_int_equal(router_place(rooms, 0, &spec, &err), -ENOSPC);
}

static void names_are_one_for_all_gpus_and_free_after_a_refusal(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_RUN, "a");
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), 0);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), -EEXIST);
	assert_non_null(strstr(err.text, "name 'a': a vGPU of this name is there already; choose another"));
	request.flags = PROTOCOL_EPHEMERAL;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EEXIST);
	assert_int_equal(stage_create(stage, "Not A Name", GIB, 0, NULL, &err), -EINVAL);
	assert_int_equal(stage_create(stage, "big", 1000 * GIB, 0, NULL, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "GPU 0: 99 GiB of 100 GiB and 100 % of its time are free"));
	request = talk_request(PROTOCOL_CREATE, "big");
	request.gpu.kind = PROTOCOL_GPU_NV; /* by hand, so that the server refuses */
	request.spec.mem_bytes = 1000 * GIB;
	request.parts = SPEC_MEM;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -ENOSPC);
	assert_string_equal(err.text, "full");
	for (int i = 0; i < 50; i++) {
		assert_int_equal(stage_create(stage, "big", GIB, 0, NULL, &err), 0);
		assert_int_equal(stage_ask_op(stage, PROTOCOL_REMOVE, "big", &err), 0);
	}
}

/* That the run which had the name is over may be known to its server alone. */
static void names_of_runs_are_their_servers_to_give(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_RUN, "a");
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	stage_start(stage);
	request.flags = PROTOCOL_EPHEMERAL;
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 1 };
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EEXIST);
	assert_string_equal(err.text, "its run goes on");
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), -EEXIST);
	assert_string_equal(err.text, "its run goes on");
	stage->runs_are_over = true;
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	assert_int_equal(stage_create(stage, "a", GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 1);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), -EEXIST); /* it is no run's now */
	assert_non_null(strstr(err.text, "there already"));
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REMOVE, "a", &err), 0);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), 0);
	request.gpu.index = 0; /* nobody waits for another GPU's server to say */
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -EEXIST);
	assert_non_null(strstr(err.text, "there already"));
}

/* What was handed over just now counts, though the server has not said so yet. */
static void many_creations_at_once_do_not_overfill(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	int socks[12], good = 0;

	stage_start(stage);
	for (int i = 0; i < 12; i++) {
		struct protocol_request request = talk_request(PROTOCOL_CREATE, NULL);

		snprintf(request.name, sizeof(request.name), "v%d", i);
		request.spec.request_ppm = 200000;
		request.parts = SPEC_TIME;
		socks[i] = talk_connect(&stage->place, &err);
		assert_int_equal(send(socks[i], &request, sizeof(request), 0), sizeof(request));
	}
	for (int i = 0; i < 12; i++) {
		struct protocol_reply reply;

		assert_int_equal(recv(socks[i], &reply, sizeof(reply), 0), sizeof(reply));
		good += reply.code == 0;
		assert_true(!reply.code || reply.code == ENOSPC);
		close(socks[i]);
	}
	assert_int_equal(good, 10);
	stage_look(stage);
	assert_int_equal(stage->fakes[0].use.request_ppm, 1000000);
	assert_int_equal(stage->fakes[1].use.request_ppm, 1000000);
}

static int send_raw(struct stage *stage, const void *data, size_t bytes, struct protocol_reply *reply)
{
	int sock = talk_connect(&stage->place, NULL), code;

	assert_true(sock >= 0);
	assert_int_equal(send(sock, data, bytes, MSG_NOSIGNAL), bytes);
	memset(reply, 0, sizeof(*reply));
	code = recv(sock, reply, sizeof(*reply), 0) == (ssize_t)sizeof(*reply) ? reply->code : -1;
	if (code == EPROTO) /* and that was it */
		assert_int_equal(recv(sock, reply->name, 1, 0), 0);
	close(sock);
	return code;
}

static void garbage_is_told_so_and_closed(void **state)
{
	struct stage *stage = *state;
	struct protocol_request good = talk_request(PROTOCOL_HELLO, NULL), bad = good;
	unsigned char noise[4096];
	struct protocol_reply reply;
	uint64_t seed = 1;
	char ours[32];

	stage_start(stage);
	assert_int_equal(send_raw(stage, &good, sizeof(good) - 1, &reply), EPROTO);
	assert_int_equal(send_raw(stage, &good, 4, &reply), EPROTO);
	memset(noise, 0, sizeof(noise));
	memcpy(noise, &good, sizeof(good));
	assert_int_equal(send_raw(stage, noise, sizeof(noise), &reply), EPROTO);
	bad.version = 77;
	assert_int_equal(send_raw(stage, &bad, sizeof(bad), &reply), EPROTO);
	assert_non_null(strstr(reply.text, "version 77"));
	snprintf(ours, sizeof(ours), "version %u", PROTOCOL_VERSION);
	assert_non_null(strstr(reply.text, ours));
	bad = good;
	bad.magic++;
	assert_int_equal(send_raw(stage, &bad, sizeof(bad), &reply), EPROTO);
	bad = good;
	memset(bad.name, 'x', sizeof(bad.name));
	assert_int_equal(send_raw(stage, &bad, sizeof(bad), &reply), EPROTO);
	for (int i = 0; i < 300; i++) {
		bad = good;
		for (size_t at = 8; at < sizeof(bad); at++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			((unsigned char *)&bad)[at] = seed >> 62 ? 0 : (unsigned char)(seed >> 40);
		}
		bad.op = (uint32_t)i % (PROTOCOL_OPS + 2);
		bad.name[63] = bad.gpu.folder[107] = bad.spec.domain[63] = 0;
		send_raw(stage, &bad, sizeof(bad), &reply);
	}
	assert_int_equal(send_raw(stage, &good, sizeof(good), &reply), 0);
}

static void too_many_connections_are_sent_away(void **state)
{
	enum { MANY = 1024 };
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	struct rlimit files;
	int socks[MANY];

	/* Both ends of every connection are ours. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_cur < 3ul * MANY)
		files.rlim_cur = files.rlim_max < 3ul * MANY ? files.rlim_max : 3ul * MANY;
	if (files.rlim_cur < 3ul * MANY || setrlimit(RLIMIT_NOFILE, &files)) {
		skip_case("too few descriptors are allowed here");
	}
	stage_start(stage);
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0); /* it is up */
	for (int i = 0; i < MANY; i++)
		do
			socks[i] = talk_connect(&stage->place, &err);
		while (socks[i] == -EAGAIN);
	int last = talk_connect(&stage->place, &err);
	assert_true(last >= 0);
	assert_int_equal(send(last, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
	assert_int_equal(recv(last, &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(reply.code, EAGAIN);
	assert_non_null(strstr(reply.text, "1024"));
	close(last);
	for (int i = 0; i < MANY; i++)
		close(socks[i]);
	WAIT_FOR(stage_ask(stage, &request, &reply, &err) == 0);
}

static void one_user_does_not_crowd_out_the_others(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	int status;
	pid_t pid;

	if (geteuid())
		skip_case("not root");
	stage->is_everyone = true;
	stage_start(stage);
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	pid = fork();
	if (!pid) {
		int sock = -1;

		if (setgid(65534) || setuid(65534))
			_exit(1);
		request.op = PROTOCOL_RELOAD;
		if (stage_ask(stage, &request, &reply, &err) != -EPERM)
			_exit(2);
		for (int i = 0; i <= 64; i++)
			sock = talk_connect(&stage->place, &err);
		if (recv(sock, &reply, sizeof(reply), 0) != (ssize_t)sizeof(reply))
			_exit(3);
		_exit(reply.code == EAGAIN && strstr(reply.text, "one user") ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
}

static void a_second_daemon_is_refused(void **state)
{
	struct stage *stage = *state;
	struct router_options options = stage_options(stage);
	struct bf_error err = { 0 };
	char number[32];

	stage_start(stage);
	assert_null(router_new(&options, &err));
	assert_non_null(strstr(err.text, "belfryd already runs here"));
	snprintf(number, sizeof(number), "(process %d)", (int)getpid());
	assert_non_null(strstr(err.text, number));
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
}

static void foreign_and_false_paths_are_refused(void **state)
{
	struct stage *stage = *state;
	struct router_options options = stage_options(stage);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct bf_error err = { 0 };
	char longer[200];
	int sock;

	stage_write(stage->socket, "x");
	assert_null(router_new(&options, &err));
	assert_non_null(strstr(err.text, "no socket"));
	assert_int_equal(unlink(stage->socket), 0);
	assert_int_equal(chmod(stage->folder, 0777), 0);
	assert_null(router_new(&options, &err));
	assert_non_null(strstr(err.text, "others can write"));
	assert_int_equal(chmod(stage->folder, 0755), 0);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	options.socket = longer;
	assert_null(router_new(&options, &err));
	assert_non_null(strstr(err.text, "too long"));
	options.socket = stage->socket;
	if (geteuid())
		return;
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", stage->socket);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	close(sock);
	assert_int_equal(chown(stage->socket, 65534, 65534), 0);
	assert_null(router_new(&options, &err));
	assert_non_null(strstr(err.text, "user 65534"));
	assert_int_equal(chown(stage->socket, 0, 0), 0);
	stage_start(stage); /* one of ours that is stale is replaced */
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
}

static void the_socket_has_the_mode_that_was_configured(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	struct stat st;

	stage_start(stage);
	assert_int_equal(stat(stage->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	stage_write(stage->config, "[server]\naccess = everyone\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	assert_int_equal(stat(stage->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0666);
	stage_stop(stage);
	assert_int_equal(stat(stage->socket, &st), -1);
}

static void a_server_that_dies_is_replaced_and_its_vgpus_made_again(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_RUN, "passing");
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 0);
	request.flags = PROTOCOL_EPHEMERAL;
	request.gpu.kind = PROTOCOL_GPU_NV;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	stage_kill_fake(stage, 0);
	WAIT_FOR(stage->fake_count == 3);
	request = talk_request(PROTOCOL_REPORT, "a");
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fakes[2].vgpu_count, 1);
	assert_int_equal(stage->fakes[2].vgpus[0].request.spec.mem_bytes, 60 * GIB);
	request = talk_request(PROTOCOL_REPORT, "passing");
	assert_int_equal(stage_ask(stage, &request, &reply, &err), -ENOENT);
}

static void a_server_that_keeps_dying_is_not_started_for_ever(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage->gpus = 1;
	stage_start(stage);
	for (unsigned i = 0; i < 5; i++) {
		WAIT_FOR(stage->fake_count == i + 1);
		assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, NULL, &err), 0);
		stage_kill_fake(stage, i);
	}
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, NULL, &err) == -ENODEV);
	assert_non_null(strstr(err.text, "started 5 times within a minute"));
	assert_int_equal(stage->fake_count, 5);
}

static void failures_are_told_to_who_waits(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_CREATE, "a");
	struct bf_error err = { 0 };

	stage->does_fail = true;
	stage_start(stage);
	assert_int_equal(stage_ask(stage, &request, NULL, &err), -ENODEV);
	assert_string_equal(err.text, "GPU 0: the driver is not loaded");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	/* The name is free again, and the GPU may come back. */
	stage->does_fail = false;
	WAIT_FOR(stage_ask(stage, &request, NULL, &err) == 0);
}

static void requests_wait_for_a_slow_server(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_CREATE, "a");
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	int first, second;

	stage->is_slow = true;
	stage_start(stage);
	first = talk_connect(&stage->place, &err);
	assert_int_equal(send(first, &request, sizeof(request), 0), sizeof(request));
	second = talk_connect(&stage->place, &err);
	request = talk_request(PROTOCOL_REPORT, "a");
	assert_int_equal(send(second, &request, sizeof(request), 0), sizeof(request));
	assert_int_equal(poll(&(struct pollfd){ first, POLLIN, 0 }, 1, 50), 0);
	stage->is_slow = false;
	assert_int_equal(recv(first, &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(reply.code, 0);
	assert_int_equal(recv(second, &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(reply.code, 0);
	close(first);
	close(second);
	stage_look(stage);
	assert_string_equal(stage->told, "READY=1;");
}

static void what_is_remembered_is_made_again(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_CREATE, "kept");
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	char path[128];

	snprintf(path, sizeof(path), "%s.state", stage->socket);
	stage_start(stage);
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 1 };
	request.spec = (struct spec){ .mem_bytes = 3 * GIB + 1,
				      .request_ppm = 123456,
				      .limit_ppm = 500000,
				      .class = SPEC_LATENCY,
				      .percentile_ppm = 999000,
				      .objective_us = 1500,
				      .timeslice_us = 200,
				      .interleave = 2,
				      .is_public = 1,
				      .sm_request_ppm = 200000,
				      .sm_limit_ppm = 300001,
				      .domain = "d" };
	request.parts = SPEC_ALL;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	WAIT_FOR(has_text(path, "[vgpu kept]"));
	stage_stop(stage);
	stage_join_fakes(stage);
	stage_start(stage);
	request = talk_request(PROTOCOL_REPORT, "kept");
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	const struct spec *spec = &stage->fakes[1].vgpus[0].request.spec;
	assert_int_equal(spec->mem_bytes, 3 * GIB + 1);
	assert_int_equal(spec->request_ppm, 123456);
	assert_int_equal(spec->limit_ppm, 500000);
	assert_int_equal(spec->percentile_ppm, 999000);
	assert_int_equal(spec->objective_us, 1500);
	assert_int_equal(spec->timeslice_us, 200);
	assert_int_equal(spec->interleave, 2);
	assert_int_equal(spec->is_public, 1);
	assert_string_equal(spec->domain, "d");
	assert_int_equal(spec->sm_request_ppm, 200000);
	assert_int_equal(spec->sm_limit_ppm, 300001);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REMOVE, "kept", &err), 0);
	WAIT_FOR(access(path, F_OK) != 0); /* nothing to remember */
}

static void a_spoilt_memory_stops_nothing(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	char path[128], bad[140];

	snprintf(path, sizeof(path), "%s.state", stage->socket);
	snprintf(bad, sizeof(bad), "%s.bad", path);
	stage_write(path, "[vgpu good]\ngpu = 0\n[vgpu lost]\ngpu = \x01\x02");
	stage_start(stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "good", &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "lost", &err), -ENOENT);
	assert_int_equal(access(bad, F_OK), 0);
	stage_stop(stage);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0); /* nor does one that cannot be written */
	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", GIB, 0, NULL, &err), 0);
	usleep(300000);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "a", &err), 0);
}

static void servers_that_carry_on_are_found_again(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request;
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[server]\non_daemon_death = carry\n");
	stage_start(stage);
	assert_int_equal(stage_create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(stage_create(stage, "b", 60 * GIB, 0, &reply, &err), 0);
	request = talk_request(PROTOCOL_RUN, "passing");
	request.flags = PROTOCOL_EPHEMERAL;
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	stage_stop(stage);
	stage->gpus = 1; /* the other is found by its socket alone */
	stage_write(stage->config, "[sharing]\nwindow = 2s\n");
	stage_start(stage);
	request = talk_request(PROTOCOL_REPORT, "b");
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "a", &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "passing", &err), 0);
	assert_int_equal(stage->fake_count, 2);
	assert_int_equal(stage->requests[PROTOCOL_CREATE], 2);
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fakes[1].settings.window_us, 2000000);
}

static void reload_makes_changes_and_removes(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[vgpu one]\nmem = 1G\n[vgpu two]\ngpu = 1\nowner = 4711\n");
	stage_start(stage);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "one", &err) == 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "two", &err), 0);
	assert_int_equal(stage->fakes[1].vgpus[0].uid, 4711);
	stage_write(stage->config, "[sharing]\nround = 50ms\n[vgpu one]\nmem = 2G\n[vgpu three]\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "two", &err) == -ENOENT);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, "three", &err) == 0);
	WAIT_FOR(stage->requests[PROTOCOL_SET] == 1); /* by another server than theirs, in its own time */
	assert_int_equal(stage->fakes[0].settings.round_us, 50000);
	/* What is wrong changes nothing. */
	stage_write(stage->config, "[sharing]\nround = 50\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "conf:2: time '50': no unit"));
	stage_write(stage->config, "[sharing]\nround = 40ms\npolicy = no_such\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "conf:3: policy no_such: neither a file nor"));
	assert_int_equal(stage->fakes[0].settings.round_us, 50000);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "three", &err), 0);
	/* What is in use stays. */
	stage->refuses_removal = true;
	stage_write(stage->config, "");
	router_reload(stage->router);
	WAIT_FOR(stage->refused == 2);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "three", &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "one", &err), 0);
	assert_non_null(strstr(stage->told, "READY=1;RELOADING;READY=1;"));
}

/* A reload says which GPU is not served. The GPUs of the stage are 0 and 1, unless there are more. */
static void reload_tells_of_gpus(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[server]\ngpus = 0\n");
	stage_start(stage);
	WAIT_FOR(stage_ask_op(stage, PROTOCOL_REPORT, NULL, &err) == 0);
	stage_write(stage->config, "[server]\ngpus = 0 7\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -ENODEV);
	assert_non_null(strstr(err.text, "conf:2: gpus: there is no /dev/nvidia7"));
	stage_write(stage->config, "[server]\naccounting = /no/such/folder/file\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "conf:2: accounting '/no/such/folder/file': "));
	stage_write(stage->config, "[vgpu a]\n[vgpu a]\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -EEXIST);
	assert_non_null(strstr(err.text, "conf:2: vgpu 'a': a second section of this name"));
	stage->does_fail = true;
	stage_write(stage->config, "[server]\ngpus = 0 1\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -ENODEV);
	assert_non_null(strstr(err.text, "1 of its GPUs is not served: GPU 1: "));
	/* The GPU that is served stays so, and what is not served is no longer told of once it is not configured. */
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, NULL, &err), 0);
	stage_write(stage->config, "[server]\ngpus = 0\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
}

/* A reload by another thread. */
struct reloader {
	struct stage *stage;
	pthread_t thread;
	int rc;
	struct bf_error err;
};

static void *reload_of_reloader(void *arg)
{
	struct reloader *reloader = arg;
	struct protocol_request request = talk_request(PROTOCOL_RELOAD, NULL);

	reloader->rc = stage_ask(reloader->stage, &request, NULL, &reloader->err);
	return NULL;
}

/* Start a reload, and wait until its names are asked for. */
static void begin_reload(struct reloader *reloader, struct stage *stage)
{
	int before = stage->lookups;

	*reloader = (struct reloader){ .stage = stage };
	assert_int_equal(pthread_create(&reloader->thread, NULL, reload_of_reloader, reloader), 0);
	WAIT_FOR(stage->lookups == before + 1);
}

/* Answer the lookup, and return the result of the reload. */
static int end_reload(struct reloader *reloader, const char *answers)
{
	int fd = reloader->stage->names_fd;

	if (answers[0])
		assert_int_equal(write(fd, answers, strlen(answers)), strlen(answers));
	close(fd);
	pthread_join(reloader->thread, NULL);
	return reloader->rc;
}

static void names_are_looked_up_while_requests_are_answered(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	struct reloader reloader;

	stage->looks_up = true;
	stage_start(stage);
	/* Numbers need no lookup. */
	stage_write(stage->config, "[vgpu a]\nowner = 7\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	assert_int_equal(stage->lookups, 0);
	stage_write(stage->config,
		    "[server]\naccess = group 0\n[vgpu b]\nowner = some-body\n[vgpu c]\nowner = some-body\n"
		    "[user other]\nvgpus = 1\n");
	begin_reload(&reloader, stage);
	assert_string_equal(stage->names, "u some-body\nu other\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "a", &err), 0); /* nothing has changed yet */
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -EAGAIN);
	assert_int_equal(end_reload(&reloader, "4711 4712\n12 12\n"), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "c", &err), 0);
	for (unsigned i = 0; i < stage->fake_count; i++)
		for (unsigned j = 0; j < stage->fakes[i].vgpu_count; j++)
			assert_int_equal(stage->fakes[i].vgpus[j].uid, 4711);
	/* A name that does not exist, and answers that do not come: nothing changes. */
	begin_reload(&reloader, stage);
	assert_int_equal(end_reload(&reloader, "-\n12 12\n"), -ENOENT);
	assert_non_null(strstr(reloader.err.text, "conf:4: owner 'some-body': there is no such user"));
	begin_reload(&reloader, stage);
	assert_int_equal(end_reload(&reloader, "4711 4712\n"), -EIO);
	/* A file that names others by then is not applied. */
	begin_reload(&reloader, stage);
	stage_write(stage->config, "[vgpu d]\nowner = third\n");
	assert_int_equal(end_reload(&reloader, "4711 4712\n12 12\n"), -EAGAIN);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "c", &err), 0);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_REPORT, "d", &err), -ENOENT);
	/* The end of belfryd does not wait for a name. */
	begin_reload(&reloader, stage);
	stage_stop(stage);
	assert_int_equal(end_reload(&reloader, ""), -EAGAIN);
}

/* It takes the time limit of a lookup, 10 s. */
static void a_name_service_that_hangs_fails_the_reload_alone(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	struct reloader reloader;

	stage->looks_up = true;
	stage_start(stage);
	stage_write(stage->config, "[vgpu a]\nowner = some-body\n");
	begin_reload(&reloader, stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	pthread_join(reloader.thread, NULL);
	assert_int_equal(reloader.rc, -ETIMEDOUT);
	assert_non_null(strstr(reloader.err.text, "no answer within 10 s; write numbers"));
	close(stage->names_fd);
	stage_write(stage->config, "[vgpu a]\nowner = 7\n");
	assert_int_equal(stage_ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
}

static void a_private_one_starts_servers_when_asked_and_ends_by_itself(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	stage_write(stage->config, "[server]\nlinger = 300ms\n");
	stage->is_private = true;
	stage_start(stage);
	assert_int_equal(stage_ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	assert_int_equal(stage->fake_count, 0);
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 5 };
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '5');
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_SOFT, .index = 0, .folder = "/x" };
	assert_int_equal(stage_ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fake_count, 2);
	assert_int_equal(stage_create(stage, "a", 0, 900000, &reply, &err), 0);
	assert_int_equal(stage_create(stage, "b", 0, 900000, &reply, &err), 0);
	assert_int_equal(stage_create(stage, "c", 0, 900000, &reply, &err),
			 0); /* on one that it had to start */
	assert_int_equal(stage->fake_count, 3);
	usleep(500000);
	for (char name[] = "a"; name[0] <= 'c'; name[0]++)
		assert_int_equal(stage_ask_op(stage, PROTOCOL_REMOVE, name, &err), 0);
	stage_join(stage);
	assert_int_equal(access(stage->socket, F_OK), -1);
}

enum { ASKERS = 4, ASKS_MAX = 100000, ROUNDS = 60 };

/* What one meets who asks on and on, each time on a new connection, until nobody is there. */
struct asker {
	struct stage *stage;
	pthread_t thread;
	unsigned again;
	uint64_t longest_ns;
	struct bf_error wrong; /* neither an answer nor nobody there */
};

static void *ask_until_it_is_gone(void *arg)
{
	struct asker *asker = arg;
	/* One is for the router itself, the other for a server, which a private one has to start. */
	struct protocol_request requests[] = { talk_request(PROTOCOL_HELLO, NULL),
					       talk_request(PROTOCOL_REPORT, NULL) };

	requests[1].gpu.kind = PROTOCOL_GPU_NV;
	for (unsigned i = 0; i < ASKS_MAX && !asker->wrong.code; i++) {
		struct bf_error err = { 0 };
		uint64_t start_ns = bf_now_ns(), took_ns;
		int rc = stage_ask(asker->stage, &requests[i % 2], NULL, &err);

		took_ns = bf_now_ns() - start_ns;
		if (took_ns > asker->longest_ns)
			asker->longest_ns = took_ns;
		if (rc == -ENOENT || rc == -ECONNREFUSED)
			break;
		if (rc == -EAGAIN && strstr(err.text, "ending; try again"))
			asker->again++;
		else if (rc)
			asker->wrong = err;
	}
	return NULL;
}

/* Private: it ends by itself when it sees nobody connected. Otherwise it is stopped, a little later each time. */
static unsigned end_while_asked(struct stage *stage, unsigned round)
{
	struct asker askers[ASKERS] = { 0 };
	unsigned again = 0;

	stage->is_private = round % 2;
	stage_start(stage);
	for (unsigned i = 0; i < ASKERS; i++) {
		askers[i].stage = stage;
		pthread_create(&askers[i].thread, NULL, ask_until_it_is_gone, &askers[i]);
	}
	if (!stage->is_private) {
		usleep(round * 100);
		router_stop(stage->router);
	}
	for (unsigned i = 0; i < ASKERS; i++)
		pthread_join(askers[i].thread, NULL);
	stage_join(stage);
	stage_join_fakes(stage);
	for (unsigned i = 0; i < ASKERS; i++) {
		again += askers[i].again;
		assert_string_equal(askers[i].wrong.text, "");
		assert_true(askers[i].longest_ns < 5 * 1000000000ull);
	}
	return again;
}

/* Whoever asks as it ends is served, told to try again, or finds nobody. */
static void nobody_is_left_without_an_answer_as_it_ends(void **state)
{
	unsigned again = 0;

	stage_write(((struct stage *)*state)->config, "[server]\nlinger = 0\n");
	for (unsigned round = 0; round < ROUNDS; round++)
		again += end_while_asked(*state, round);
	assert_true(again); /* it was met */
}

/* In the router's own thread, when it lets nobody in any more. */
static void come_too_late(struct stage *stage)
{
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);

	for (int i = 0; i < STAGE_LATE; i++)
		stage->late[i] = talk_connect(&stage->place, NULL);
	send(stage->late[0], &request, sizeof(request), MSG_NOSIGNAL);
}

static void who_comes_as_it_ends_is_told_so_however_slow_he_is(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_HELLO, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };
	int early;

	stage_start(stage);
	early = talk_connect(&stage->place, &err);
	assert_int_equal(talk_ask(early, &request, &reply, NULL, &err), 0);
	stage->at_end = come_too_late;
	stage_stop(stage);
	assert_int_equal(recv(stage->late[0], &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(reply.code, EAGAIN);
	/* Who asks when it is long gone learns the same. */
	assert_int_equal(talk_ask(stage->late[1], &request, &reply, NULL, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "ending; try again"));
	assert_int_equal(talk_ask(early, &request, &reply, NULL, &err), -EAGAIN);
	close(early);
	for (int i = 0; i < STAGE_LATE; i++)
		close(stage->late[i]);
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, stage_set_up, stage_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(requests_go_to_the_gpu_they_are_about),
		ON_STAGE(hello_tells_of_the_daemon_and_its_gpus),
		cmocka_unit_test(placement_looks_at_memory_then_at_time),
		ON_STAGE(names_are_one_for_all_gpus_and_free_after_a_refusal),
		ON_STAGE(names_of_runs_are_their_servers_to_give),
		ON_STAGE(many_creations_at_once_do_not_overfill),
		ON_STAGE(garbage_is_told_so_and_closed),
		ON_STAGE(too_many_connections_are_sent_away),
		ON_STAGE(one_user_does_not_crowd_out_the_others),
		ON_STAGE(a_second_daemon_is_refused),
		ON_STAGE(foreign_and_false_paths_are_refused),
		ON_STAGE(the_socket_has_the_mode_that_was_configured),
		ON_STAGE(a_server_that_dies_is_replaced_and_its_vgpus_made_again),
		ON_STAGE(a_server_that_keeps_dying_is_not_started_for_ever),
		ON_STAGE(failures_are_told_to_who_waits),
		ON_STAGE(requests_wait_for_a_slow_server),
		ON_STAGE(what_is_remembered_is_made_again),
		ON_STAGE(a_spoilt_memory_stops_nothing),
		ON_STAGE(servers_that_carry_on_are_found_again),
		ON_STAGE(reload_makes_changes_and_removes),
		ON_STAGE(reload_tells_of_gpus),
		ON_STAGE(names_are_looked_up_while_requests_are_answered),
		ON_STAGE(a_name_service_that_hangs_fails_the_reload_alone),
		ON_STAGE(a_private_one_starts_servers_when_asked_and_ends_by_itself),
		ON_STAGE(nobody_is_left_without_an_answer_as_it_ends),
		ON_STAGE(who_comes_as_it_ends_is_told_so_however_slow_he_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

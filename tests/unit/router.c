/* router: who is let in, where requests go, and what becomes of names, servers and files. The GPU servers are threads
 * that speak as real ones do. */
#include "server/router.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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

#include "base/clock.h"
#include "server/talk.h"

enum { FAKES = 16, FAKE_VGPUS = 32 };
#define GIB (1ull << 30)

/* A GPU server of pretence. */
struct fake {
	struct stage *stage;
	pthread_t thread;
	int hall, listen_fd;
	_Atomic bool is_over;
	struct hall_gpu use;
	struct hall_message vgpus[FAKE_VGPUS];
	unsigned vgpu_count;
	struct settings settings;
	char path[108];
};

struct stage {
	pthread_mutex_t lock; /* over everything here but the router */
	char folder[64], socket[108], config[128];
	struct talk_place place;
	struct router *router;
	pthread_t thread;
	bool is_private, is_everyone;
	unsigned gpus;
	struct fake fakes[FAKES];
	_Atomic unsigned fake_count;
	/* What the next servers do. */
	_Atomic bool refuses_removal, does_fail, is_slow;
	_Atomic int requests[PROTOCOL_OPS];
	_Atomic int refused;
	char told[256];
};

/* After this we see what the servers did before. */
static void look(struct stage *stage)
{
	pthread_mutex_lock(&stage->lock);
	pthread_mutex_unlock(&stage->lock);
}

static void hall_say(struct fake *fake, enum hall_kind kind, const struct hall_message *about)
{
	struct hall_message message = about ? *about : (struct hall_message){ 0 };

	message.magic = HALL_MAGIC;
	message.version = PROTOCOL_VERSION;
	message.kind = kind;
	fake->use.vgpus = fake->vgpu_count;
	message.gpu = fake->use;
	send(fake->hall, &message, sizeof(message), MSG_NOSIGNAL);
}

static void client_say(int fd, int code, const char *text, const struct protocol_request *request)
{
	struct protocol_reply reply = {
		.magic = PROTOCOL_MAGIC, .version = PROTOCOL_VERSION, .code = code, .gpu = request->gpu
	};

	memcpy(reply.name, request->name, sizeof(reply.name));
	snprintf(reply.text, sizeof(reply.text), "%s", text);
	if (fd >= 0)
		send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
}

static int fake_find(struct fake *fake, const char *name)
{
	for (unsigned i = 0; i < fake->vgpu_count; i++)
		if (!strcmp(fake->vgpus[i].request.name, name))
			return (int)i;
	return -1;
}

static void fake_create(struct fake *fake, const struct hall_message *message, int fd)
{
	struct hall_message *vgpu = &fake->vgpus[fake->vgpu_count];
	const struct spec *spec = &message->request.spec;

	if (fake->vgpu_count == FAKE_VGPUS ||
	    fake->use.mem_reserved_bytes + spec->mem_bytes > fake->use.mem_bytes) {
		hall_say(fake, HALL_REFUSED, message);
		client_say(fd, ENOSPC, "full", &message->request);
		return;
	}
	*vgpu = *message;
	vgpu->flags = message->request.op == PROTOCOL_RUN ? PROTOCOL_EPHEMERAL : 0;
	fake->vgpu_count++;
	fake->use.mem_reserved_bytes += spec->mem_bytes;
	fake->use.request_ppm += spec->request_ppm;
	hall_say(fake, HALL_VGPU, vgpu);
	hall_say(fake, HALL_USE, NULL);
	client_say(fd, 0, "", &message->request);
}

static void fake_remove(struct fake *fake, const struct hall_message *message, int fd, int at)
{
	const struct spec *spec = &fake->vgpus[at].request.spec;

	if (fake->stage->refuses_removal && !(message->request.flags & PROTOCOL_FORCE)) {
		fake->stage->refused++;
		if (fd < 0)
			hall_say(fake, HALL_REFUSED, message);
		client_say(fd, EBUSY, "programs run on it", &message->request);
		return;
	}
	fake->use.mem_reserved_bytes -= spec->mem_bytes;
	fake->use.request_ppm -= spec->request_ppm;
	fake->vgpus[at] = fake->vgpus[--fake->vgpu_count];
	hall_say(fake, HALL_GONE, message);
	hall_say(fake, HALL_USE, NULL);
	client_say(fd, 0, "", &message->request);
}

static void fake_request(struct fake *fake, const struct hall_message *message, int fd)
{
	const struct protocol_request *request = &message->request;
	int at = fake_find(fake, request->name);

	fake->stage->requests[request->op]++;
	if (request->op == PROTOCOL_CREATE || request->flags & PROTOCOL_EPHEMERAL) {
		fake_create(fake, message, fd);
	} else if (request->name[0] && at < 0) {
		client_say(fd, ENOENT, "not here", request);
	} else if (request->op == PROTOCOL_REMOVE) {
		fake_remove(fake, message, fd, at);
	} else if (request->op == PROTOCOL_SET) {
		spec_merge(&fake->vgpus[at].request.spec, &request->spec, request->parts);
		hall_say(fake, HALL_VGPU, &fake->vgpus[at]);
		client_say(fd, 0, "", request);
	} else {
		char text[160];

		snprintf(text, sizeof(text), "%u from %u", fake->use.gpu.index, message->uid);
		client_say(fd, 0, text, request);
	}
}

static void fake_listen(struct fake *fake)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->path);
	unlink(fake->path);
	fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)) || listen(fake->listen_fd, 4))
		abort();
}

static void fake_start(struct fake *fake, const struct hall_message *message)
{
	struct hall_message failed = { .text = "the driver is not loaded" };

	fake->settings = message->settings;
	memcpy(fake->path, message->socket, sizeof(fake->path));
	fake->use = (struct hall_gpu){ .gpu = message->gpu.gpu, .mem_bytes = 100 * GIB, .server_pid = 1 };
	if (fake->stage->does_fail) {
		hall_say(fake, HALL_FAILED, &failed);
		fake->is_over = true;
		return;
	}
	fake_listen(fake);
	hall_say(fake, HALL_READY, NULL);
}

static ssize_t hall_receive(int hall, struct hall_message *message, int *fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec data = { message, sizeof(*message) };
	struct msghdr msg = { .msg_iov = &data,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	ssize_t got = recvmsg(hall, &msg, MSG_CMSG_CLOEXEC);

	*fd = -1;
	if (got > 0 && CMSG_FIRSTHDR(&msg))
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return got;
}

static void fake_hear(struct fake *fake)
{
	struct hall_message message;
	int fd;

	if (hall_receive(fake->hall, &message, &fd) != (ssize_t)sizeof(message)) {
		pthread_mutex_lock(&fake->stage->lock);
		close(fake->hall);
		fake->hall = -1;
		pthread_mutex_unlock(&fake->stage->lock);
		fake->is_over = fake->settings.on_daemon_death != SETTINGS_CARRY || !fake->vgpu_count;
		return;
	}
	pthread_mutex_lock(&fake->stage->lock);
	if (message.kind == HALL_START)
		fake_start(fake, &message);
	else if (message.kind == HALL_SETTINGS)
		fake->settings = message.settings;
	else if (message.kind == HALL_REQUEST)
		fake_request(fake, &message, fd);
	else
		fake->is_over = true;
	pthread_mutex_unlock(&fake->stage->lock);
	if (fd >= 0)
		close(fd);
}

static void fake_accept(struct fake *fake)
{
	int hall = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (hall < 0)
		return;
	pthread_mutex_lock(&fake->stage->lock);
	fake->hall = hall;
	hall_say(fake, HALL_READY, NULL);
	for (unsigned i = 0; i < fake->vgpu_count; i++)
		hall_say(fake, HALL_VGPU, &fake->vgpus[i]);
	pthread_mutex_unlock(&fake->stage->lock);
}

static void *fake_main(void *arg)
{
	struct fake *fake = arg;

	while (fake->stage->is_slow)
		usleep(1000);
	while (!fake->is_over) {
		struct pollfd fds[] = { { fake->hall, POLLIN, 0 },
					{ fake->hall < 0 ? fake->listen_fd : -1, POLLIN, 0 } };

		poll(fds, 2, -1);
		if (fds[0].revents)
			fake_hear(fake);
		else if (fds[1].revents)
			fake_accept(fake);
	}
	if (fake->hall >= 0)
		close(fake->hall);
	if (fake->listen_fd >= 0) {
		close(fake->listen_fd);
		unlink(fake->path);
	}
	return NULL;
}

static int start_fake(void *context, const struct protocol_gpu *gpu, pid_t *pid, struct bf_error *err)
{
	struct stage *stage = context;
	struct fake *fake;
	int ends[2];

	(void)gpu;
	*pid = 0;
	if (stage->fake_count == FAKES || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return bf_fail(err, EAGAIN, "no more");
	pthread_mutex_lock(&stage->lock);
	fake = &stage->fakes[stage->fake_count++];
	memset(fake, 0, sizeof(*fake));
	fake->stage = stage;
	fake->hall = ends[1];
	fake->listen_fd = -1;
	pthread_create(&fake->thread, NULL, fake_main, fake);
	pthread_mutex_unlock(&stage->lock);
	return ends[0];
}

static int read_fake_config(void *context, struct config *config, struct bf_error *err)
{
	struct stage *stage = context;
	int rc = config_read(config, stage->config, err);

	if (stage->is_everyone)
		config->access = CONFIG_EVERYONE;
	config->log = BF_LOG_ERROR;
	return rc;
}

static unsigned list_fakes(void *context, struct protocol_gpu *gpus, unsigned room)
{
	struct stage *stage = context;

	(void)room;
	for (unsigned i = 0; i < stage->gpus; i++)
		gpus[i] = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = i };
	return stage->gpus;
}

static void note_told(void *context, const char *text)
{
	struct stage *stage = context;
	size_t used;

	pthread_mutex_lock(&stage->lock);
	used = strlen(stage->told);
	snprintf(stage->told + used, sizeof(stage->told) - used, "%.9s;", text);
	pthread_mutex_unlock(&stage->lock);
}

static struct router_options stage_options(struct stage *stage)
{
	return (struct router_options){ .socket = stage->socket,
					.is_private = stage->is_private,
					.signal_fd = -1,
					.context = stage,
					.read_config = read_fake_config,
					.list_gpus = list_fakes,
					.start_server = start_fake,
					.tell = note_told };
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void *run_router(void *arg)
{
	router_run(arg);
	return NULL;
}

static void stage_start(struct stage *stage)
{
	struct router_options options = stage_options(stage);
	struct bf_error err = { 0 };

	stage->router = router_new(&options, &err);
	if (!stage->router)
		print_error("%s\n", err.text);
	assert_non_null(stage->router);
	assert_int_equal(pthread_create(&stage->thread, NULL, run_router, stage->router), 0);
}

static void stage_join(struct stage *stage)
{
	pthread_join(stage->thread, NULL);
	router_free(stage->router);
	stage->router = NULL;
}

static void stage_stop(struct stage *stage)
{
	router_stop(stage->router);
	stage_join(stage);
}

static void join_fakes(struct stage *stage)
{
	for (unsigned i = 0; i < stage->fake_count; i++)
		pthread_join(stage->fakes[i].thread, NULL);
	stage->fake_count = 0;
}

static void kill_fake(struct stage *stage, unsigned i)
{
	pthread_mutex_lock(&stage->lock);
	shutdown(stage->fakes[i].hall, SHUT_RDWR);
	pthread_mutex_unlock(&stage->lock);
}

static unsigned count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static unsigned fds_before;

static int set_up(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	fds_before = count_fds();
	pthread_mutex_init(&stage->lock, NULL);
	stage->gpus = 2;
	snprintf(stage->folder, sizeof(stage->folder), "/tmp/belfry-test-XXXXXX");
	if (!mkdtemp(stage->folder) || chmod(stage->folder, 0755))
		return -1;
	snprintf(stage->socket, sizeof(stage->socket), "%s/s", stage->folder);
	snprintf(stage->config, sizeof(stage->config), "%s/conf", stage->folder);
	snprintf(stage->place.path, sizeof(stage->place.path), "%s", stage->socket);
	write_file(stage->config, "");
	*state = stage;
	return 0;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;
	char command[128];
	int rc = 0;

	stage->is_slow = false;
	if (stage->router)
		stage_stop(stage);
	for (unsigned i = 0; i < stage->fake_count; i++) { /* who still waits for the next router */
		stage->fakes[i].is_over = true;
		look(stage);
		shutdown(stage->fakes[i].listen_fd, SHUT_RDWR);
	}
	join_fakes(stage);
	snprintf(command, sizeof(command), "rm -rf '%s'", stage->folder);
	rc = system(command);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
	if (count_fds() != fds_before) {
		print_error("%u descriptors are left\n", count_fds() - fds_before);
		rc = -1;
	}
	return rc;
}

static int ask(struct stage *stage, const struct protocol_request *request, struct protocol_reply *reply,
	       struct bf_error *err)
{
	struct protocol_reply unused;
	int sock = talk_connect(&stage->place, err), rc;

	if (sock < 0)
		return sock;
	rc = talk_ask(sock, request, reply ? reply : &unused, NULL, err);
	close(sock);
	look(stage);
	return rc;
}

static int create(struct stage *stage, const char *name, uint64_t mem, uint32_t ppm,
		  struct protocol_reply *reply, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_CREATE, name);

	request.spec.mem_bytes = mem;
	request.spec.request_ppm = ppm;
	request.parts = SPEC_MEM | SPEC_TIME;
	return ask(stage, &request, reply, err);
}

static int ask_op(struct stage *stage, enum protocol_op op, const char *name, struct bf_error *err)
{
	struct protocol_request request = talk_request(op, name);

	return ask(stage, &request, NULL, err);
}

/* Until it is so, or too long. */
#define WAIT_FOR(condition) \
	do { \
		uint64_t until_ns = bf_now_ns() + 5000000000ull; \
		while (!(condition)) { \
			assert_true(bf_now_ns() < until_ns); \
			usleep(1000); \
		} \
	} while (0)

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
	assert_int_equal(create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 0);
	assert_int_equal(create(stage, "b", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 1);
	request = talk_request(PROTOCOL_REPORT, "b");
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	request = talk_request(PROTOCOL_REPORT, NULL);
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '0');
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 1 };
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	request.gpu.index = 7;
	assert_int_equal(ask(stage, &request, &reply, &err), -ENODEV);
	assert_non_null(strstr(err.text, "GPU 7"));
	assert_int_equal(ask_op(stage, PROTOCOL_HOLD, "nobody", &err), -ENOENT);
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
	assert_int_equal(create(stage, "a", GIB, 0, NULL, &err), 0);
	assert_int_equal(create(stage, "a", GIB, 0, NULL, &err), -EEXIST);
	assert_non_null(strstr(err.text, "name 'a': a vGPU of this name is there already; choose another"));
	request.flags = PROTOCOL_EPHEMERAL;
	assert_int_equal(ask(stage, &request, NULL, &err), -EEXIST);
	assert_int_equal(create(stage, "Not A Name", GIB, 0, NULL, &err), -EINVAL);
	assert_int_equal(create(stage, "big", 1000 * GIB, 0, NULL, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "GPU 0: 99 GiB of 100 GiB and 100 % of its time are free"));
	request = talk_request(PROTOCOL_CREATE, "big");
	request.gpu.kind = PROTOCOL_GPU_NV; /* by hand, so that the server refuses */
	request.spec.mem_bytes = 1000 * GIB;
	request.parts = SPEC_MEM;
	assert_int_equal(ask(stage, &request, NULL, &err), -ENOSPC);
	assert_string_equal(err.text, "full");
	for (int i = 0; i < 50; i++) {
		assert_int_equal(create(stage, "big", GIB, 0, NULL, &err), 0);
		assert_int_equal(ask_op(stage, PROTOCOL_REMOVE, "big", &err), 0);
	}
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
	look(stage);
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

	stage_start(stage);
	assert_int_equal(send_raw(stage, &good, sizeof(good) - 1, &reply), EPROTO);
	assert_int_equal(send_raw(stage, &good, 4, &reply), EPROTO);
	memset(noise, 0, sizeof(noise));
	memcpy(noise, &good, sizeof(good));
	assert_int_equal(send_raw(stage, noise, sizeof(noise), &reply), EPROTO);
	bad.version = 77;
	assert_int_equal(send_raw(stage, &bad, sizeof(bad), &reply), EPROTO);
	assert_non_null(strstr(reply.text, "version 77"));
	assert_non_null(strstr(reply.text, "version 3"));
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
		print_message("skipped: too few descriptors are allowed here\n");
		skip();
	}
	stage_start(stage);
	assert_int_equal(ask(stage, &request, &reply, &err), 0); /* it is up */
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
	WAIT_FOR(ask(stage, &request, &reply, &err) == 0);
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
		skip();
	stage->is_everyone = true;
	stage_start(stage);
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	pid = fork();
	if (!pid) {
		int sock = -1;

		if (setgid(65534) || setuid(65534))
			_exit(1);
		request.op = PROTOCOL_RELOAD;
		if (ask(stage, &request, &reply, &err) != -EPERM)
			_exit(2);
		for (int i = 0; i <= 64; i++)
			sock = talk_connect(&stage->place, &err);
		if (recv(sock, &reply, sizeof(reply), 0) != (ssize_t)sizeof(reply))
			_exit(3);
		_exit(reply.code == EAGAIN && strstr(reply.text, "one user") ? 0 : 4);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
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
	assert_int_equal(ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
}

static void foreign_and_false_paths_are_refused(void **state)
{
	struct stage *stage = *state;
	struct router_options options = stage_options(stage);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct bf_error err = { 0 };
	char longer[200];
	int sock;

	write_file(stage->socket, "x");
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
	assert_int_equal(ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
}

static void the_socket_has_the_mode_that_was_configured(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	struct stat st;

	stage_start(stage);
	assert_int_equal(stat(stage->socket, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	write_file(stage->config, "[server]\naccess = everyone\n");
	assert_int_equal(ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
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
	assert_int_equal(create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(reply.gpu.index, 0);
	request.flags = PROTOCOL_EPHEMERAL;
	request.gpu.kind = PROTOCOL_GPU_NV;
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	kill_fake(stage, 0);
	WAIT_FOR(stage->fake_count == 3);
	request = talk_request(PROTOCOL_REPORT, "a");
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fakes[2].vgpu_count, 1);
	assert_int_equal(stage->fakes[2].vgpus[0].request.spec.mem_bytes, 60 * GIB);
	request = talk_request(PROTOCOL_REPORT, "passing");
	assert_int_equal(ask(stage, &request, &reply, &err), -ENOENT);
}

static void a_server_that_keeps_dying_is_not_started_for_ever(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	stage->gpus = 1;
	stage_start(stage);
	for (unsigned i = 0; i < 5; i++) {
		WAIT_FOR(stage->fake_count == i + 1);
		assert_int_equal(ask_op(stage, PROTOCOL_REPORT, NULL, &err), 0);
		kill_fake(stage, i);
	}
	WAIT_FOR(ask_op(stage, PROTOCOL_REPORT, NULL, &err) == -ENODEV);
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
	assert_int_equal(ask(stage, &request, NULL, &err), -ENODEV);
	assert_string_equal(err.text, "GPU 0: the driver is not loaded");
	assert_int_equal(ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	/* The name is free again, and the GPU may come back. */
	stage->does_fail = false;
	WAIT_FOR(ask(stage, &request, NULL, &err) == 0);
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
	look(stage);
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
				      .domain = "d" };
	request.parts = 255;
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	WAIT_FOR(has_text(path, "[vgpu kept]"));
	stage_stop(stage);
	join_fakes(stage);
	stage_start(stage);
	request = talk_request(PROTOCOL_REPORT, "kept");
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
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
	assert_int_equal(ask_op(stage, PROTOCOL_REMOVE, "kept", &err), 0);
	WAIT_FOR(access(path, F_OK) != 0); /* nothing to remember */
}

static void a_spoilt_memory_stops_nothing(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	char path[128], bad[140];

	snprintf(path, sizeof(path), "%s.state", stage->socket);
	snprintf(bad, sizeof(bad), "%s.bad", path);
	write_file(path, "[vgpu good]\ngpu = 0\n[vgpu lost]\ngpu = \x01\x02");
	stage_start(stage);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "good", &err), 0);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "lost", &err), -ENOENT);
	assert_int_equal(access(bad, F_OK), 0);
	stage_stop(stage);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0); /* nor does one that cannot be written */
	stage_start(stage);
	assert_int_equal(create(stage, "a", GIB, 0, NULL, &err), 0);
	usleep(300000);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "a", &err), 0);
}

static void servers_that_carry_on_are_found_again(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request;
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	write_file(stage->config, "[server]\non_daemon_death = carry\n");
	stage_start(stage);
	assert_int_equal(create(stage, "a", 60 * GIB, 0, &reply, &err), 0);
	assert_int_equal(create(stage, "b", 60 * GIB, 0, &reply, &err), 0);
	request = talk_request(PROTOCOL_RUN, "passing");
	request.flags = PROTOCOL_EPHEMERAL;
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	stage_stop(stage);
	stage->gpus = 1; /* the other is found by its socket alone */
	write_file(stage->config, "[sharing]\nwindow = 2s\n");
	stage_start(stage);
	request = talk_request(PROTOCOL_REPORT, "b");
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '1');
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "a", &err), 0);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "passing", &err), 0);
	assert_int_equal(stage->fake_count, 2);
	assert_int_equal(stage->requests[PROTOCOL_CREATE], 2);
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fakes[1].settings.window_us, 2000000);
}

static void reload_makes_changes_and_removes(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };

	write_file(stage->config, "[vgpu one]\nmem = 1G\n[vgpu two]\ngpu = 1\nowner = 4711\n");
	stage_start(stage);
	WAIT_FOR(ask_op(stage, PROTOCOL_REPORT, "one", &err) == 0);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "two", &err), 0);
	assert_int_equal(stage->fakes[1].vgpus[0].uid, 4711);
	write_file(stage->config, "[sharing]\nround = 50ms\n[vgpu one]\nmem = 2G\n[vgpu three]\n");
	assert_int_equal(ask_op(stage, PROTOCOL_RELOAD, NULL, &err), 0);
	WAIT_FOR(ask_op(stage, PROTOCOL_REPORT, "two", &err) == -ENOENT);
	WAIT_FOR(ask_op(stage, PROTOCOL_REPORT, "three", &err) == 0);
	assert_int_equal(stage->requests[PROTOCOL_SET], 1);
	assert_int_equal(stage->fakes[0].settings.round_us, 50000);
	/* What is wrong changes nothing. */
	write_file(stage->config, "[sharing]\nround = 50\n");
	assert_int_equal(ask_op(stage, PROTOCOL_RELOAD, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "conf:2: time '50': no unit"));
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "three", &err), 0);
	/* What is in use stays. */
	stage->refuses_removal = true;
	write_file(stage->config, "");
	router_reload(stage->router);
	WAIT_FOR(stage->refused == 2);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "three", &err), 0);
	assert_int_equal(ask_op(stage, PROTOCOL_REPORT, "one", &err), 0);
	assert_non_null(strstr(stage->told, "READY=1;RELOADING;READY=1;"));
}

static void a_private_one_starts_servers_when_asked_and_ends_by_itself(void **state)
{
	struct stage *stage = *state;
	struct protocol_request request = talk_request(PROTOCOL_REPORT, NULL);
	struct protocol_reply reply;
	struct bf_error err = { 0 };

	write_file(stage->config, "[server]\nlinger = 300ms\n");
	stage->is_private = true;
	stage_start(stage);
	assert_int_equal(ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
	assert_int_equal(stage->fake_count, 0);
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_NV, .index = 5 };
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(reply.text[0], '5');
	request.gpu = (struct protocol_gpu){ .kind = PROTOCOL_GPU_SOFT, .index = 0, .folder = "/x" };
	assert_int_equal(ask(stage, &request, &reply, &err), 0);
	assert_int_equal(stage->fake_count, 2);
	assert_int_equal(create(stage, "a", 0, 900000, &reply, &err), 0);
	assert_int_equal(create(stage, "b", 0, 900000, &reply, &err), 0);
	assert_int_equal(create(stage, "c", 0, 900000, &reply, &err), 0); /* on one that it had to start */
	assert_int_equal(stage->fake_count, 3);
	usleep(500000);
	for (char name[] = "a"; name[0] <= 'c'; name[0]++)
		assert_int_equal(ask_op(stage, PROTOCOL_REMOVE, name, &err), 0);
	stage_join(stage);
	assert_int_equal(access(stage->socket, F_OK), -1);
}

/* Whoever connects as it ends is served, told to try again, or finds nobody. */
static void nobody_is_left_without_an_answer_as_it_ends(void **state)
{
	struct stage *stage = *state;
	struct bf_error err = { 0 };
	int again = 0, nobody = 0;

	write_file(stage->config, "[server]\nlinger = 0\n");
	stage->is_private = true;
	for (int round = 0; round < 100; round++) {
		int rc;

		stage_start(stage);
		assert_int_equal(ask_op(stage, PROTOCOL_HELLO, NULL, &err), 0);
		if (round % 2) /* around the moment it ends */
			usleep((useconds_t)round);
		rc = ask_op(stage, PROTOCOL_HELLO, NULL, &err);
		again += rc == -EAGAIN;
		nobody += rc == -ENOENT || rc == -ECONNREFUSED;
		assert_true(!rc || rc == -EAGAIN || rc == -ENOENT || rc == -ECONNREFUSED);
		stage_join(stage);
	}
	print_message("told to try again: %d, found nobody: %d of 100\n", again, nobody);
}

#define ON_STAGE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STAGE(requests_go_to_the_gpu_they_are_about),
		ON_STAGE(hello_tells_of_the_daemon_and_its_gpus),
		cmocka_unit_test(placement_looks_at_memory_then_at_time),
		ON_STAGE(names_are_one_for_all_gpus_and_free_after_a_refusal),
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
		ON_STAGE(a_private_one_starts_servers_when_asked_and_ends_by_itself),
		ON_STAGE(nobody_is_left_without_an_answer_as_it_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

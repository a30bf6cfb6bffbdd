#include "router_stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmocka.h>

void stage_look(struct stage *stage)
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

static void hall_refuse(struct fake *fake, const struct hall_message *about, int fd)
{
	struct hall_message message = *about;

	message.flags = fd >= 0 ? HALL_CLIENTS : 0;
	hall_say(fake, HALL_REFUSED, &message);
	fake->was_refused = true;
}

static void hall_done(struct fake *fake, const struct hall_message *about, int fd)
{
	struct hall_message message = *about;

	message.flags = fd >= 0 ? HALL_CLIENTS : 0;
	hall_say(fake, HALL_DONE, &message);
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

static void fake_remove(struct fake *fake, const struct hall_message *message, int fd, int at)
{
	const struct spec *spec = &fake->vgpus[at].request.spec;

	if (fake->stage->refuses_removal && !(message->request.flags & PROTOCOL_FORCE)) {
		fake->stage->refused++;
		if (fd < 0)
			hall_refuse(fake, message, fd);
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

static void fake_create(struct fake *fake, const struct hall_message *message, int fd)
{
	const struct spec *spec = &message->request.spec;
	int at = fake_find(fake, message->request.name);
	struct hall_message *vgpu;

	if (at >= 0 && fake->stage->runs_are_over && fake->vgpus[at].flags & PROTOCOL_EPHEMERAL)
		fake_remove(fake, message, -1, at);
	else if (at >= 0) {
		hall_refuse(fake, message, fd);
		client_say(fd, EEXIST, "its run goes on", &message->request);
		return;
	}
	vgpu = &fake->vgpus[fake->vgpu_count];
	if (fake->vgpu_count == FAKE_VGPUS ||
	    fake->use.mem_reserved_bytes + spec->mem_bytes > fake->use.mem_bytes) {
		hall_refuse(fake, message, fd);
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

static void fake_request(struct fake *fake, const struct hall_message *message, int fd)
{
	const struct protocol_request *request = &message->request;
	int at = fake_find(fake, request->name);

	fake->stage->requests[request->op]++;
	fake->was_refused = false;
	if (request->op == PROTOCOL_CREATE || request->flags & PROTOCOL_EPHEMERAL) {
		fake_create(fake, message, fd);
	} else if (request->name[0] && at < 0) {
		if (request->op == PROTOCOL_SET)
			hall_refuse(fake, message, fd);
		client_say(fd, ENOENT, "not here", request);
	} else if (request->op == PROTOCOL_REMOVE) {
		fake_remove(fake, message, fd, at);
	} else if (request->op == PROTOCOL_SET && fake->stage->refuses_set) {
		hall_refuse(fake, message, fd);
		client_say(fd, EBUSY, "it is in use", request);
	} else if (request->op == PROTOCOL_SET) {
		spec_merge(&fake->vgpus[at].request.spec, &request->spec, request->parts);
		hall_say(fake, HALL_VGPU, &fake->vgpus[at]);
		hall_done(fake, message, fd);
		client_say(fd, 0, "", request);
		return;
	} else {
		char text[160];

		snprintf(text, sizeof(text), "%u from %u", fake->use.gpu.index, message->uid);
		client_say(fd, 0, text, request);
	}
	if (fd < 0 && !fake->was_refused)
		hall_done(fake, message, fd);
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
	fake->start_flags = message->flags;
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
		/* The end of the test may have set it already. */
		if (fake->settings.on_daemon_death != SETTINGS_CARRY || !fake->vgpu_count)
			fake->is_over = true;
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
		if (fake->is_hung) {
			usleep(1000);
			continue;
		}
		struct pollfd fds[] = { { fake->hall, POLLIN, 0 },
					{ fake->hall < 0 ? fake->listen_fd : -1, POLLIN, 0 } };

		poll(fds, 2, 10); /* for is_hung */
		if (fake->is_hung)
			continue;
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

static int start_fake_names(void *context, const char *names, pid_t *pid, struct bf_error *err)
{
	struct stage *stage = context;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return bf_fail(err, errno, "no pipe");
	snprintf(stage->names, sizeof(stage->names), "%s", names);
	stage->names_fd = ends[1];
	stage->lookups++;
	*pid = 0;
	return ends[0];
}

static void note_told(void *context, const char *text)
{
	struct stage *stage = context;
	size_t used;

	pthread_mutex_lock(&stage->lock);
	used = strlen(stage->told);
	snprintf(stage->told + used, sizeof(stage->told) - used, "%.9s;", text);
	pthread_mutex_unlock(&stage->lock);
	if (!strcmp(text, "STOPPING=1") && stage->at_end)
		stage->at_end(stage);
}

struct router_options stage_options(struct stage *stage)
{
	return (struct router_options){ .socket = stage->socket,
					.is_private = stage->is_private,
					.signal_fd = -1,
					.context = stage,
					.read_config = read_fake_config,
					.list_gpus = list_fakes,
					.start_server = start_fake,
					.start_metrics = stage->start_metrics,
					.start_names = stage->looks_up ? start_fake_names : NULL,
					.tell = note_told };
}

void stage_write(const char *path, const char *text)
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

void stage_start(struct stage *stage)
{
	struct router_options options = stage_options(stage);
	struct bf_error err = { 0 };
	pthread_attr_t attr;

	stage->router = router_new(&options, &err);
	if (!stage->router)
		print_error("%s\n", err.text);
	assert_non_null(stage->router);
	pthread_attr_init(&attr);
	if (stage->stack_bytes)
		assert_int_equal(pthread_attr_setstacksize(&attr, stage->stack_bytes), 0);
	assert_int_equal(pthread_create(&stage->thread, &attr, run_router, stage->router), 0);
	pthread_attr_destroy(&attr);
}

void stage_join(struct stage *stage)
{
	pthread_join(stage->thread, NULL);
	router_free(stage->router);
	stage->router = NULL;
}

void stage_stop(struct stage *stage)
{
	router_stop(stage->router);
	stage_join(stage);
}

void stage_join_fakes(struct stage *stage)
{
	for (unsigned i = 0; i < stage->fake_count; i++)
		pthread_join(stage->fakes[i].thread, NULL);
	stage->fake_count = 0;
}

void stage_kill_fake(struct stage *stage, unsigned i)
{
	pthread_mutex_lock(&stage->lock);
	shutdown(stage->fakes[i].hall, SHUT_RDWR);
	pthread_mutex_unlock(&stage->lock);
}

void stage_hang_fake(struct stage *stage, unsigned i, bool is_hung)
{
	pthread_mutex_lock(&stage->lock);
	stage->fakes[i].is_hung = is_hung;
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

int stage_set_up(void **state)
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
	stage_write(stage->config, "");
	*state = stage;
	return 0;
}

int stage_tear_down(void **state)
{
	struct stage *stage = *state;
	char command[128];
	int rc = 0;

	stage->is_slow = false;
	for (unsigned i = 0; i < stage->fake_count; i++)
		stage_hang_fake(stage, i, false);
	if (stage->router)
		stage_stop(stage);
	for (unsigned i = 0; i < stage->fake_count; i++) { /* who still waits for the next router */
		stage->fakes[i].is_over = true;
		stage_look(stage);
		shutdown(stage->fakes[i].listen_fd, SHUT_RDWR);
	}
	stage_join_fakes(stage);
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

int stage_ask(struct stage *stage, const struct protocol_request *request, struct protocol_reply *reply,
	      struct bf_error *err)
{
	struct protocol_reply unused;
	int sock = talk_connect(&stage->place, err), rc;

	if (sock < 0)
		return sock;
	rc = talk_ask(sock, request, reply ? reply : &unused, NULL, err);
	close(sock);
	stage_look(stage);
	return rc;
}

int stage_create(struct stage *stage, const char *name, uint64_t mem, uint32_t ppm,
		 struct protocol_reply *reply, struct bf_error *err)
{
	struct protocol_request request = talk_request(PROTOCOL_CREATE, name);

	request.spec.mem_bytes = mem;
	request.spec.request_ppm = ppm;
	request.parts = SPEC_MEM | SPEC_TIME;
	return stage_ask(stage, &request, reply, err);
}

int stage_ask_op(struct stage *stage, enum protocol_op op, const char *name, struct bf_error *err)
{
	struct protocol_request request = talk_request(op, name);

	return stage_ask(stage, &request, NULL, err);
}

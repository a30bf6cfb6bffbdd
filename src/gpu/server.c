/* The GPU server's life: it is told which GPU, takes it, and serves until it is told to end, or belfryd has died and
 * there is no reason to stay. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/number.h"
#include "base/own.h"
#include "base/process.h"
#include "client/inside.h"
#include "gpu/gpu.h"

enum { START_LIMIT_S = 10, OWN_SOURCES = 6 };

/* The software GPU computes on the processors that the poller would spin on. */
static const struct gate_rest rest_beside_soft = {
	.spin_us = 20,
	.stages = { { 50, 200000 }, { 1000, 2000000 }, { 2500, 0 } },
	.trap_us = 20000,
	.net_us = 20000
};

bool gpu_has_traps(const struct gpu *gpu)
{
	return gpu->settings.doorbells != SETTINGS_POLLING;
}

struct sched_options gpu_sched_options(const struct gpu *gpu)
{
	const struct settings *s = &gpu->settings;

	return (struct sched_options){ .window_ns = s->window_us * 1000,
				       .round_ns = s->round_us * 1000,
				       .slice_min_ns = s->slice_min_us * 1000,
				       .grace_ns = s->grace_us * 1000,
				       .idle_ns = s->idle_us * 1000,
				       .how = s->how == SETTINGS_TOKENS	 ? SCHED_TOKENS
					      : s->how == SETTINGS_TURNS ? SCHED_TURNS
									 : SCHED_AUTO,
				       .is_measured = gpu->turns || gpu->which.kind == PROTOCOL_GPU_SOFT };
}

/* To the NVIDIA driver CAP_SYS_ADMIN is an administrator, whom it lets do what programs must not; and what we perform is
 * done with our rights. It is needed only to be told of other users' context switches, and that is asked once. To become
 * another user is only for the keepers of MPS servers, which we start: that right stays permitted, and is not effective. */
static void drop_rights(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	uint32_t dropped = 1u << CAP_SYS_ADMIN, lent = 1u << CAP_SETUID | 1u << CAP_SETGID;

	if (syscall(SYS_capget, &head, data) || !(data[0].permitted & (dropped | lent)))
		return;
	data[0].effective &= ~(dropped | lent);
	data[0].permitted &= ~dropped;
	data[0].inheritable &= ~(dropped | lent);
	if (syscall(SYS_capset, &head, data))
		bf_log(BF_LOG_WARN, "CAP_SYS_ADMIN cannot be given up: %s", strerror(errno));
}

/* Written by the gate's poller: it must not wait, and a full counter has already woken us. */
static void called_by_gate(void *context)
{
	turner_wake(context);
}

static int open_gpu(struct gpu *gpu, bool any_driver, struct bf_error *err)
{
	struct device_options options = { .index = gpu->which.index, .any_driver = any_driver };
	bool is_soft = gpu->which.kind == PROTOCOL_GPU_SOFT;
	struct sched_options sched;
	struct bf_error why = { 0 };

	gpu->device = is_soft ? device_soft_open(gpu->which.folder, &options, err)
			      : device_nv_open(&options, err);
	if (!gpu->device)
		return -err->code;
	gpu->pool = pool_new(gpu->device->mem_bytes);
	if (!gpu->pool)
		return bf_fail(err, ENOMEM, "out of memory");
	gpu->turns = is_soft ? NULL : turns_open(gpu->device, &why);
	drop_rights();
	if (!is_soft && !gpu->turns)
		bf_log(BF_LOG_WARN, "GPU time goes by the clock: %s", why.text);
	snprintf(gpu->time_source, sizeof(gpu->time_source), "%s",
		 is_soft      ? "the software GPU's own count"
		 : gpu->turns ? "the driver's context switch records"
			      : "the clock, while its gate is open and it has work");
	gpu->gate = gate_new(gpu->device->bell, is_soft ? &rest_beside_soft : NULL, err);
	if (!gpu->gate)
		return -err->code;
	gate_set_rang(gpu->gate, gpu->device->rang);
	gate_set_call(gpu->gate, called_by_gate, gpu);
	gate_allow_traps(gpu->gate, gpu_has_traps(gpu));
	sched = gpu_sched_options(gpu);
	gpu->sched = sched_new(&sched, bf_now_ns());
	return gpu->sched ? 0 : bf_fail(err, ENOMEM, "out of memory");
}

static int make_files(struct gpu *gpu, struct bf_error *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	gpu->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	gpu->main_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	gpu->turner_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	gpu->talker_slots = calloc(GPU_TALKERS_MAX, sizeof(*gpu->talker_slots));
	if (gpu->signal_fd < 0 || gpu->main_wake < 0 || gpu->turner_wake < 0 || !gpu->talker_slots ||
	    trace_open(&gpu->trace))
		return bf_fail(err, errno ? errno : ENOMEM, "no descriptors or memory: %s", strerror(errno));
	for (unsigned i = 0; i < GPU_TALKERS_MAX; i++)
		gpu->talker_slots[i].sock = -1;
	return 0;
}

/* What a program's files are is read there: of another PID namespace's, its calls would be taken for anybody's. */
static int check_proc(struct bf_error *err)
{
	char self[16] = "";

	if (readlink("/proc/self", self, sizeof(self) - 1) > 0 && atoi(self) == getpid())
		return 0;
	return bf_fail(err, ENOENT,
		       "/proc is not mounted, or is that of another PID namespace; run: mount -t proc "
		       "proc /proc");
}

static struct vgpu *next_shown(struct gpu *gpu)
{
	struct vgpu *vgpu = gpu->vgpus;

	while (vgpu && vgpu->is_hidden)
		vgpu = vgpu->next;
	return vgpu;
}

/* A server of another version may have replaced it. */
static void unlink_own(const char *path, const struct stat *own)
{
	struct stat now;

	if (path[0] && !lstat(path, &now) && now.st_dev == own->st_dev && now.st_ino == own->st_ino)
		unlink(path);
}

static void finish(struct gpu *gpu, const struct stat *own_socket)
{
	struct vgpu *vgpu;

	/* Runs are told why before their connections close. */
	gpu_lock(gpu);
	while ((vgpu = next_shown(gpu)))
		vgpu_remove(vgpu, gpu->why
					  ? gpu->why
					  : "the GPU server was told to end; what ran on the vGPU was ended");
	gpu_unlock(gpu);
	while (!LIST_EMPTY(&gpu->talkers))
		talker_drop(gpu, LIST_FIRST(&gpu->talkers));
	mps_end(gpu);
	turner_end(gpu);
	policies_end(gpu);
	sched_free(gpu->sched);
	gate_free(gpu->gate);
	pool_free(gpu->pool);
	if (gpu->turns)
		turns_close(gpu->turns);
	if (gpu->device)
		gpu->device->ops->close(gpu->device);
	probes_end(gpu);
	unlink_own(gpu->socket, own_socket);
	loader_end(
		gpu); /* the last to be waited for: the verifier may take longer than belfryd waits for us */
	trace_close(&gpu->trace);
	free(gpu->talker_slots);
	loop_free(gpu->loop);
}

static bool is_due(uint64_t when_ns, uint64_t now_ns)
{
	return when_ns && when_ns <= now_ns;
}

static void drop_the_late(struct gpu *gpu, uint64_t now_ns)
{
	struct talker *t, *after;

	LIST_FOREACH_SAFE(t, &gpu->talkers, next, after)
		if (is_due(t->until_ns, now_ns))
			talker_drop(gpu, t);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a && b ? bf_min(a, b) : a ? a : b;
}

/* When something must be done without an event; 0: never. */
static uint64_t due_ns(const struct gpu *gpu)
{
	uint64_t due = sooner(sooner(vgpus_due_ns(gpu), limits_due_ns(gpu)),
			      sooner(gpu->busy_due_ns, sooner(mps_due_ns(gpu), sooner(leases_due_ns(gpu),
										      probes_due_ns(gpu)))));

	for (const struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next))
		due = sooner(due, t->until_ns);
	return due;
}

void gpu_wake(struct gpu *gpu)
{
	uint64_t one = 1;

	if (write(gpu->main_wake, &one, sizeof(one)) < 0)
		return; /* it is awake already */
}

static void signal_ready(void *context, uint32_t events)
{
	struct gpu *gpu = context;

	(void)events;
	gpu->is_ending = true;
}

static void device_ended(void *context, uint32_t events)
{
	struct gpu *gpu = context;

	(void)events;
	gpu->why = "the software GPU has ended, and with it what ran on it";
	gpu->is_ending = true;
}

static void fault_ready(void *context, uint32_t events)
{
	(void)events;
	faults_find(context);
}

/* Another thread has something for the main thread. */
static void wake_ready(void *context, uint32_t events)
{
	struct gpu *gpu = context;
	uint64_t count;

	(void)events;
	if (read(gpu->main_wake, &count, sizeof(count)) <= 0)
		return;
	vgpus_reap_workers(gpu);
	policies_reap(gpu);
	loader_reap(gpu);
	rooms_make(gpu);
	faults_tell(gpu);
	refusals_tell(gpu);
}

static void listen_ready(void *context, uint32_t events)
{
	(void)events;
	gpu_hall_accept(context);
}

static void hall_ready(void *context, uint32_t events)
{
	(void)events;
	gpu_hall_hear(context);
}

/* After the connections: a run that has ended is removed before belfryd asks for its vGPU's name. */
void gpu_watch_hall(struct gpu *gpu)
{
	loop_remove(gpu->loop, gpu->hall_source);
	gpu->hall_source =
		gpu->hall < 0 ? NULL : loop_add(gpu->loop, gpu->hall, EPOLLIN, LOOP_LAST, hall_ready, gpu);
}

/* A descriptor of -1 is none, and is not watched. */
static bool watch(struct gpu *gpu, int fd, uint32_t events, enum loop_order order,
		  void (*ready)(void *context, uint32_t events))
{
	return fd < 0 || loop_add(gpu->loop, fd, events, order, ready, gpu);
}

static int watch_all(struct gpu *gpu, struct bf_error *err)
{
	gpu->loop = loop_new(GPU_TALKERS_MAX + GPU_MPS_MAX + OWN_SOURCES, err);
	if (!gpu->loop)
		return -err->code;
	gpu_watch_hall(gpu);
	if (gpu->hall_source && watch(gpu, gpu->signal_fd, EPOLLIN, LOOP_FIRST, signal_ready) &&
	    watch(gpu, gpu->device->end_fd, EPOLLRDHUP, LOOP_FIRST, device_ended) &&
	    watch(gpu, gpu->device->fault_fd, EPOLLIN, LOOP_FIRST, fault_ready) &&
	    watch(gpu, gpu->main_wake, EPOLLIN, LOOP_FIRST, wake_ready) &&
	    watch(gpu, gpu->listen_fd, EPOLLIN, LOOP_MIDDLE, listen_ready))
		return 0;
	return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
}

/* own_socket: the file at gpu->socket, whose inode is in use as long as this process listens on it. */
static int start(struct gpu *gpu, bool any_driver, struct stat *own_socket, struct bf_error *err)
{
	int rc = check_proc(err);

	if (!rc)
		rc = make_files(gpu, err);
	if (!rc)
		rc = open_gpu(gpu, any_driver, err);
	if (!rc)
		rc = gpu_hall_listen(gpu, err);
	if (!rc && gpu->socket[0] && lstat(gpu->socket, own_socket))
		rc = bf_fail(err, errno, "%s: %s", gpu->socket, strerror(errno));
	if (!rc)
		rc = watch_all(gpu, err);
	return rc ? rc : turner_start(gpu, err);
}

/* belfryd has died. Programs go on where that was asked for, until the next one comes. */
static bool must_end(struct gpu *gpu)
{
	if (!gpu->hall_is_gone)
		return false;
	gpu->why = "belfryd has died; what ran on the vGPU was ended";
	return gpu->settings.on_daemon_death == SETTINGS_END || !gpu->run_count;
}

static void serve(struct gpu *gpu)
{
	while (!gpu->is_ending && !must_end(gpu)) {
		uint64_t due = due_ns(gpu);
		int rc;

		talkers_watch(gpu);
		rc = loop_wait(gpu->loop, due ? due : LOOP_FOREVER);
		if (rc < 0) {
			bf_log(BF_LOG_ERROR, "cannot wait for events: %s", strerror(-rc));
			gpu->why = "the GPU server cannot wait for events; what ran on the vGPU was ended";
			gpu->is_ending = true;
		}
		limits_tell(gpu, bf_now_ns());
		if (gpu->hall < 0)
			talkers_saved(gpu, NULL);
		drop_the_late(gpu, bf_now_ns());
		vgpus_end_holds(gpu, bf_now_ns());
		busy_look(gpu, bf_now_ns());
		mps_look(gpu, bf_now_ns());
		leases_look(gpu, bf_now_ns());
		probes_look(gpu, bf_now_ns());
	}
}

static int receive_start(int hall, struct hall_message *message)
{
	struct timeval limit = { .tv_sec = START_LIMIT_S };

	setsockopt(hall, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (recv(hall, message, sizeof(*message), 0) != (ssize_t)sizeof(*message) ||
	    message->magic != HALL_MAGIC || message->version != PROTOCOL_VERSION ||
	    message->kind != HALL_START)
		return -EPROTO;
	message->socket[sizeof(message->socket) - 1] = 0;
	message->gpu.gpu.folder[sizeof(message->gpu.gpu.folder) - 1] = 0;
	return 0;
}

int gpu_server_main(int hall)
{
	struct gpu gpu = {
		.hall = hall, .listen_fd = -1, .signal_fd = -1, .main_wake = -1, .turner_wake = -1
	};
	struct hall_message message;
	struct bf_error err = { 0 };
	struct stat own_socket = { 0 };
	int status = 0;

	fcntl(hall, F_SETFD, FD_CLOEXEC);
	prctl(PR_SET_NAME, "belfryd-gpu");
	prctl(PR_SET_DUMPABLE, 0); /* programs of the same user are not to trace us */
	setsid();		   /* what is typed at belfryd's terminal is not for us: belfryd tells us */
	bf_raise_file_limit();
	mallopt(M_ARENA_MAX, 2); /* threads come and go; their heaps would stay */
	/* As it is at first, but for good: otherwise it rises with the largest trace that was asked for, and as much
	 * as that is kept ever after. */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	if (receive_start(hall, &message))
		return 2;
	bf_log_setup("belfryd", (enum bf_log_level)(message.flags >> 8 & 3));
	gpu.which = message.gpu.gpu;
	gpu.settings = message.settings;
	gpu.started_ns = bf_now_ns();
	gpu.filters_floor = inside_floor(message.flags & HALL_PRIVATE);
	snprintf(gpu.socket, sizeof(gpu.socket), "%s", message.socket);
	pthread_mutex_init(&gpu.lock, NULL);
	pthread_mutex_init(&gpu.policy_lock, NULL);
	pthread_cond_init(&gpu.unpinned, NULL);
	pthread_cond_init(&gpu.turned, NULL);
	if (start(&gpu, message.flags & PROTOCOL_ANY_DRIVER, &own_socket, &err)) {
		gpu_hall_tell_failed(hall, err.text);
		gpu.socket[0] = 0;
		status = 1;
	} else {
		policies_begin(&gpu);
		mps_folders_begin(&gpu);
		probes_begin(&gpu);
		if (gpu.settings.policy[0]) {
			policy_configure(&gpu);
			loader_wait(&gpu); /* it decides from the start on */
		}
		gpu_hall_tell_all(&gpu);
		serve(&gpu);
	}
	finish(&gpu, &own_socket);
	return status;
}

/* Runs: start them, serve the driver calls of their programs, end them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/log.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "gpu/gpu.h"

enum { AUDIT_MS = 1000, LAST_MS = 10000, STEWARD_LIMIT_MS = 5000, STEWARD_LOOK_MS = 20 };

/* After the last run has ended, the processes that it killed must still exit, so that what they used is returned. */
static bool is_over(struct vgpu *vgpu, uint64_t *give_up_ns)
{
	if (!vgpu->worker_ends)
		return false;
	if (!*give_up_ns)
		*give_up_ns = bf_now_ns() + LAST_MS * 1000000ull;
	return !warden_has_processes(vgpu->warden) || bf_now_ns() > *give_up_ns;
}

/* The worker of a vGPU: serves driver calls, and once a second audits what the driver itself counts. */
static void *worker_main(void *arg)
{
	struct vgpu *vgpu = arg;
	struct pollfd fds[] = { { warden_fd(vgpu->warden), POLLIN, 0 }, { vgpu->worker_wake, POLLIN, 0 } };
	uint64_t audit_ns = bf_now_ns() + AUDIT_MS * 1000000ull, give_up_ns = 0, now_ns;

	prctl(PR_SET_NAME, "belfry-worker");
	while (!is_over(vgpu, &give_up_ns)) {
		int ready = poll(fds, give_up_ns ? 1 : 2, give_up_ns ? 10 : AUDIT_MS);

		if (ready > 0 && fds[0].revents)
			warden_work(vgpu->warden);
		now_ns = bf_now_ns();
		if (now_ns >= audit_ns) {
			warden_audit(vgpu->warden);
			audit_ns = now_ns + AUDIT_MS * 1000000ull;
		}
	}
	vgpu->worker_has_ended = true;
	gpu_wake(vgpu->gpu);
	return NULL;
}

static int start_worker(struct vgpu *vgpu, struct bf_error *err)
{
	int rc;

	if (vgpu->has_worker)
		return 0;
	vgpu->worker_ends = vgpu->worker_has_ended = false;
	vgpu->worker_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (vgpu->worker_wake < 0)
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	rc = pthread_create(&vgpu->worker, NULL, worker_main, vgpu);
	if (rc) {
		close(vgpu->worker_wake);
		vgpu->worker_wake = -1;
		return bf_fail(err, rc, "no thread for the vGPU: %s", strerror(rc));
	}
	vgpu->has_worker = true;
	return 0;
}

/* The worker ends when nothing is left to do. */
static void tell_worker(struct vgpu *vgpu)
{
	uint64_t one = 1;

	if (!vgpu->has_worker)
		return;
	vgpu->worker_ends = true;
	if (write(vgpu->worker_wake, &one, sizeof(one)) < 0)
		bf_log(BF_LOG_DEBUG, "the worker looks for itself within a second");
}

void vgpu_end_worker(struct vgpu *vgpu)
{
	if (!vgpu->has_worker)
		return;
	tell_worker(vgpu);
	pthread_join(vgpu->worker, NULL);
	close(vgpu->worker_wake);
	vgpu->worker_wake = -1;
	vgpu->has_worker = false;
	vgpu->worker_ends = false;
}

void vgpus_reap_workers(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->has_worker && v->worker_has_ended)
			vgpu_end_worker(v);
}

/* True once an answer can be read. Does not wait any longer for a run that is ending. */
static bool wait_for_steward(const struct run *run)
{
	struct pollfd wait_for = { run->sock, POLLIN, 0 };

	for (int waited_ms = 0; waited_ms < STEWARD_LIMIT_MS && !run->is_ending; waited_ms += STEWARD_LOOK_MS)
		if (poll(&wait_for, 1, STEWARD_LOOK_MS) == 1)
			return true;
	return false;
}

/* The steward is belfry, an ancestor of the program: it gets descriptors that the GPU server may not. One question at
 * a time: the vGPU's worker asks, and holds no lock meanwhile. */
static int ask_steward(const struct run *run, const struct protocol_notice *notice)
{
	struct protocol_stewarded answer;
	ssize_t got;
	int fd = -1;

	if (send(run->sock, notice, sizeof(*notice), MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(*notice))
		return -EPIPE;
	/* The socket is non-blocking. */
	got = wait_for_steward(run)
		      ? bf_message_receive(run->sock, &answer, sizeof(answer), &fd, MSG_DONTWAIT)
		      : -ETIMEDOUT;
	if (got != (ssize_t)sizeof(answer) || answer.magic != PROTOCOL_MAGIC || (answer.rc && fd >= 0)) {
		bf_close_handed(&fd, run->uid);
		/* The steward is out of step or gone. It is not asked again. */
		shutdown(run->sock, SHUT_RDWR);
		return -EPIPE;
	}
	return answer.rc ? answer.rc : fd >= 0 ? fd : -EPROTO;
}

static int steward_get_fd(void *context, pid_t pid, int fd)
{
	struct protocol_notice notice = {
		.magic = PROTOCOL_MAGIC, .kind = PROTOCOL_NOTICE_GET_FD, .pid = pid, .number = fd
	};

	return ask_steward(context, &notice);
}

static int steward_open_memory(void *context, pid_t pid)
{
	struct protocol_notice notice = { .magic = PROTOCOL_MAGIC,
					  .kind = PROTOCOL_NOTICE_OPEN_MEMORY,
					  .pid = pid };

	return ask_steward(context, &notice);
}

/* Whether the processes are the sender's: front_pid is the sender, and the program is its user's. */
static bool is_of_client(const struct talker *talker, const struct protocol_started *started)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", started->program_pid);
	if (started->front_pid != talker->who.pid || started->program_pid <= 0 || stat(path, &st))
		return false;
	return talker->who.uid == 0 || st.st_uid == talker->who.uid;
}

/* The runs of this warden have all ended, perhaps during a stop. Nothing of theirs is left to resume, and for sched
 * the gate is closed, not stopped. */
static int clear_warden(struct vgpu *vgpu, struct bf_error *err)
{
	vgpu_end_worker(vgpu);
	warden_close(vgpu->warden);
	return warden_resume(vgpu->warden, err);
}

static int make_warden(struct vgpu *vgpu, struct bf_error *err)
{
	struct warden_options options = { .mem_bytes = vgpu->spec.mem_bytes,
					  .pool = vgpu->gpu->pool,
					  .timeslice_us = vgpu->spec.timeslice_us,
					  .interleave = vgpu->spec.interleave,
					  .hooks = policy_hooks(vgpu) };

	if (vgpu->warden)
		return vgpu->run_count ? 0 : clear_warden(vgpu, err);
	memcpy(options.permits, vgpu->gpu->settings.permits, sizeof(options.permits));
	options.permit_count = vgpu->gpu->settings.permit_count;
	vgpu->warden = warden_new(vgpu->gpu->device, vgpu->gpu->gate, &options, err);
	if (!vgpu->warden)
		return -err->code;
	warden_close(vgpu->warden); /* sched opens it */
	warden_set_lender(vgpu->warden, mps_warden_of(vgpu));
	return 0;
}

static struct run *new_run(const struct talker *talker, const struct protocol_started *started)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	*run = (struct run){ .vgpu = talker->vgpu,
			     .number = ++talker->vgpu->gpu->next_run,
			     .sock = talker->sock,
			     .uid = talker->who.uid,
			     .mps = talker->mps,
			     .has_probes = talker->wants_probes || talker->mps,
			     .front_pid = started->front_pid,
			     .program_pid = started->program_pid };
	snprintf(run->program, sizeof(run->program), "%.63s", started->program);
	return run;
}

/* On the software GPU, programs join the domain by the folder that they are given. */
static int permit_domain(const struct run *run, struct bf_error *err)
{
	cleanup_free char *folder = run->mps ? realpath(mps_folder_of(run->mps), NULL) : NULL;

	return warden_set_domain_folder(run->vgpu->warden, folder ? folder : "", err);
}

int run_begin(struct run *run, pid_t root, int listener, const struct warden_reach *reach,
	      struct bf_error *err)
{
	struct vgpu *vgpu = run->vgpu;
	struct gpu *gpu = vgpu->gpu;
	cleanup_close int filter = listener;
	int rc = gpu->device->ops->supervise ? gpu->device->ops->supervise(gpu->device, root, err) : 0;

	if (!rc)
		rc = make_warden(vgpu, err);
	if (!rc)
		rc = permit_domain(run, err);
	if (!rc)
		rc = warden_add_run(vgpu->warden, run->number, bf_take_fd(&filter), reach, err);
	if (rc)
		return rc;
	rc = start_worker(vgpu, err);
	if (rc) {
		warden_end_run(vgpu->warden, run->number, err->text);
		return rc;
	}
	gpu_lock(gpu);
	run->next = vgpu->runs;
	vgpu->runs = run;
	vgpu->run_count++;
	vgpu->runs_ever++;
	gpu->run_count++;
	event_run_started(run);
	turner_note(vgpu);
	gpu_unlock(gpu);
	turner_wake(gpu);
	gpu_hall_tell_use(gpu);
	return 0;
}

/* The domain may have changed since the client was told what to start. */
static int check_domain(const struct talker *talker, struct bf_error *err)
{
	const struct vgpu *vgpu = talker->vgpu;
	bool is_right = vgpu_is_shared(vgpu) ? talker->mps && mps_is_of(talker->mps, vgpu) : !talker->mps;

	return is_right ? 0 : bf_fail(err, EAGAIN, "%s: its domain has just changed; try again", vgpu->name);
}

int run_start(struct talker *talker, const struct protocol_started *started, int listener,
	      struct bf_error *err)
{
	cleanup_close int filter = listener;
	cleanup_free struct run *run = new_run(talker, started);
	struct warden_reach reach = { steward_get_fd, steward_open_memory, run };
	int rc;

	if (!run)
		return bf_fail(err, ENOMEM, "out of memory");
	if (!is_of_client(talker, started))
		return bf_fail(err, EPERM, "process %d is not yours to run here%s", started->program_pid,
			       started->front_pid == talker->who.pid
				       ? ""
				       : "; belfry and belfryd have to be in one PID namespace");
	if (bf_is_hidden(started->program_pid))
		return bf_fail(err, EACCES,
			       "process %d cannot be looked at; belfryd needs CAP_SYS_PTRACE, or to be the "
			       "same user's",
			       started->program_pid);
	if (check_domain(talker, err))
		return -err->code;
	rc = run_begin(run, started->front_pid, bf_take_fd(&filter), started->wants_steward ? &reach : NULL,
		       err);
	if (rc)
		return rc;
	talker->run = run;
	talker->mps = NULL; /* the run has it now */
	run = NULL;
	return 0;
}

/* The keeper is a child of this process, and so its processes are descendants: Yama lets this process access them. It does
 * not let the access proxy, which is no ancestor. */
static int own_get_fd(void *context, pid_t pid, int fd)
{
	cleanup_close int pidfd = bf_pidfd_open(pid);

	(void)context;
	return pidfd < 0 ? pidfd : bf_pidfd_getfd(pidfd, fd);
}

static int own_open_memory(void *context, pid_t pid)
{
	char path[32];
	int fd;

	(void)context;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

struct run *run_start_server(struct vgpu *vgpu, pid_t root, pid_t program, int listener, struct bf_error *err)
{
	struct warden_reach reach = { own_get_fd, own_open_memory, NULL };
	struct run *run = calloc(1, sizeof(*run));

	if (!run) {
		close(listener);
		bf_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	*run = (struct run){ .vgpu = vgpu,
			     .number = ++vgpu->gpu->next_run,
			     .sock = -1,
			     .uid = vgpu->owner,
			     .front_pid = root,
			     .program_pid = program,
			     .program = "MPS server" };
	if (run_begin(run, root, listener, geteuid() ? &reach : NULL, err)) {
		free(run);
		return NULL;
	}
	return run;
}

static void say_end(const struct run *run, const char *why)
{
	struct protocol_notice notice = { .magic = PROTOCOL_MAGIC, .kind = PROTOCOL_NOTICE_END };

	snprintf(notice.text, sizeof(notice.text), "%s", why);
	if (send(run->sock, &notice, sizeof(notice), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		bf_log(BF_LOG_DEBUG, "a run has gone by itself");
}

/* With the lock, which is released for slow operations. Only the main thread ends runs, so the lists stay as they
 * are. */
void run_end(struct run *run, const char *why)
{
	struct vgpu *vgpu = run->vgpu;
	struct gpu *gpu = vgpu->gpu;
	bool is_last = vgpu->run_count == 1;
	int sock = run->sock;
	struct run **at;

	for (struct talker *t = LIST_FIRST(&gpu->talkers); t; t = LIST_NEXT(t, next))
		if (t->run == run)
			t->run = NULL;
	while (vgpu->pins)
		pthread_cond_wait(&gpu->unpinned, &gpu->lock);
	for (at = &vgpu->runs; *at != run; at = &(*at)->next)
		;
	*at = run->next;
	vgpu->run_count--;
	gpu->run_count--;
	if (is_last)
		turner_note(vgpu);
	run->is_ending = true;
	event_run_ended(run, why);
	gpu_unlock(gpu);
	if (why && sock >= 0)
		say_end(run, why);
	if (why || !run->attached)
		warden_end_run(vgpu->warden, run->number, why ? why : "its belfry has ended");
	else
		warden_drop_run(vgpu->warden, run->number);
	attached_end(gpu, run->attached, why != NULL);
	if (is_last)
		tell_worker(vgpu);
	if (run->mps)
		mps_drop(run->mps);
	free(run);
	gpu_lock(gpu);
	gpu_hall_tell_use(gpu);
	if (is_last && vgpu->is_ephemeral)
		vgpu_remove(vgpu, "its run has ended");
	if (sock >= 0)
		shutdown(sock, SHUT_RDWR); /* last: see protocol.h */
}

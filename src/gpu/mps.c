/* The MPS servers of shared domains: one for each domain of each owner that has programs. A run takes the server before
 * its program starts and drops it when it ends; a server that is not taken for a while is ended. Main thread only. */
#include "gpu/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/message.h"
#include "base/own.h"
#include "base/process.h"
#include "gpu/gpu.h"

enum {
	START_LIMIT_S = 12, /* more than the keeper takes to say that MPS is not ready */
	STOP_LIMIT_S = 12,  /* more than the keeper takes to end it */
	LINGER_S = 5,	    /* after the last program */
	AGAIN_S = 1,	    /* until a server that has died is started again; doubled each time */
	DOUBLINGS_MOST = 5,
	STEADY_S = 30, /* after this time, the next end is the first one again */
	END_LIMIT_MS = 3000,
	KEEPER_LIMIT_MS = 300, /* it sends SIGKILL to a few processes and waits for them */
	NAME_TRIES = 1000,
	FOLDER_TRIES = 64,
};

#define S_NS 1000000000ull

enum mps_state { MPS_IS_OFF, MPS_IS_STARTING, MPS_IS_READY, MPS_IS_STOPPING };

struct mps {
	struct gpu *gpu;
	char domain[SPEC_NAME_MAX + 1];
	struct mps_owner owner;
	uint32_t number; /* of the folder */
	char folder[MPS_FOLDER_BYTES];
	enum mps_state state;
	unsigned users;	 /* runs, and connections that are about to run */
	uint64_t due_ns; /* when the state must change; 0: never */
	uint64_t ready_ns;
	unsigned ends;	    /* in a row, that were not asked for */
	char last_end[256]; /* how it ended, if it was not asked to */
	char why[256];	    /* why it could not be started */

	pid_t keeper; /* 0: there is none */
	int sock;
	struct loop_source *source;
	struct run *run;	     /* of its processes, on a vGPU of its own */
	struct lease_domain *leases; /* NULL: while it is off */
	LIST_ENTRY(mps) next;	     /* gpu::mps */
};

const char *mps_folder_of(const struct mps *mps)
{
	return mps->folder;
}

const char *mps_last_end(const struct mps *mps)
{
	return mps->last_end;
}

static struct mps *find(const struct gpu *gpu, const char *domain, uid_t owner)
{
	for (struct mps *m = LIST_FIRST(&gpu->mps); m; m = LIST_NEXT(m, next))
		if (m->owner.uid == owner && !strcmp(m->domain, domain))
			return m;
	return NULL;
}

/* The wardens of the domain's vGPUs let their programs use objects of its MPS server. */
struct warden *mps_warden_of(const struct vgpu *vgpu)
{
	const struct mps *mps = vgpu->spec.domain[0] ? find(vgpu->gpu, vgpu->spec.domain, vgpu->owner) : NULL;

	return mps && mps->run && mps->run->vgpu != vgpu ? mps->run->vgpu->warden : NULL;
}

void mps_lend(struct gpu *gpu)
{
	for (struct vgpu *v = gpu->vgpus; v; v = v->next)
		if (v->warden)
			warden_set_lender(v->warden, mps_warden_of(v));
}

static void news_ready(void *context, uint32_t events);

/* The child only makes system calls before the exec: this process has threads. */
static int start_keeper(struct mps *mps, const struct mps_start *start, struct bf_error *err)
{
	char number[16];
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return bf_fail(err, errno, "no descriptors: %s", strerror(errno));
	snprintf(number, sizeof(number), "%d", ends[1]);
	mps->keeper = fork();
	if (!mps->keeper) {
		setsid(); /* a process group of its own */
		if (!fcntl(ends[1], F_SETFD, 0))
			execl("/proc/self/exe", "belfryd", "--mps-keeper", number, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	mps->sock = ends[0];
	if (mps->keeper < 0) {
		mps->keeper = 0;
		return bf_fail(err, EAGAIN, "no more processes");
	}
	mps->source = loop_add(mps->gpu->loop, mps->sock, EPOLLIN, LOOP_FIRST, news_ready, mps);
	if (!mps->source || bf_message_send(mps->sock, start, sizeof(*start), -1, MSG_DONTWAIT))
		return bf_fail(err, errno, "its keeper cannot be told what to start: %s", strerror(errno));
	return 0;
}

/* The keeper ends when its connection does, and ends all processes of MPS first. A keeper that does not is killed with its
 * process group, whose number is not used again before it is waited for. */
static void end_keeper(struct mps *mps)
{
	cleanup_close int pidfd = mps->keeper > 0 ? bf_pidfd_open(mps->keeper) : -1;
	struct pollfd end = { pidfd, POLLIN, 0 };

	loop_remove(mps->gpu->loop, mps->source);
	mps->source = NULL;
	if (mps->sock >= 0)
		close(bf_take_fd(&mps->sock));
	if (mps->keeper <= 0)
		return;
	if (pidfd < 0 || poll(&end, 1, KEEPER_LIMIT_MS) != 1) {
		kill(-mps->keeper, SIGKILL);
		kill(mps->keeper, SIGKILL);
	}
	while (waitpid(mps->keeper, NULL, 0) < 0 && errno == EINTR)
		;
	mps->keeper = 0;
}

/* The vGPU of the server goes with its run. */
static void end_run(struct mps *mps, const char *why)
{
	struct run *run = mps->run;

	if (!run)
		return;
	mps->run = NULL;
	mps_lend(mps->gpu); /* before the warden is freed */
	gpu_lock(mps->gpu);
	run_end(run, why);
	gpu_unlock(mps->gpu);
}

static void turn_off(struct mps *mps, const char *why)
{
	lease_domain_free(mps->leases);
	mps->leases = NULL;
	end_run(mps, why);
	end_keeper(mps);
	mps->state = MPS_IS_OFF;
	mps->due_ns = 0;
}

/* A folder that a server before this one has left, and that cannot be removed, is passed over. */
static int make_folder(struct mps *mps, bool is_marked, int *listener, struct bf_error *err)
{
	int rc = -EEXIST;

	for (int i = 0; rc == -EEXIST && i < FOLDER_TRIES; i++) {
		if (i)
			mps->number = ++mps->gpu->next_mps;
		*err = (struct bf_error){ 0 };
		rc = mps_folder_make(mps->gpu, mps->number, &mps->owner, is_marked, mps->folder, listener,
				     err);
	}
	return rc;
}

static void begin(struct mps *mps, struct bf_error *err)
{
	struct mps_start start = { .uid = mps->owner.uid, .gid = mps->owner.gid };
	bool needs = mps_needs_program(mps->gpu);
	cleanup_close int listener = -1;
	int rc = needs ? mps_program_find(mps->gpu, &start, err) : 0;

	if (!rc)
		rc = make_folder(mps, !needs, &listener, err);
	if (!rc)
		mps->leases = lease_domain_new(mps->gpu, mps, bf_take_fd(&listener), err);
	if (!mps->leases)
		return;
	if (!needs) {
		mps->state = MPS_IS_READY;
		return;
	}
	memcpy(start.folder, mps->folder, sizeof(start.folder));
	mps->state = MPS_IS_STARTING;
	mps->due_ns = bf_now_ns() + START_LIMIT_S * S_NS;
	rc = start_keeper(mps, &start, err);
	if (rc)
		turn_off(mps, err->text);
}

/* Start it if it is off. An error is kept in mps::why as well. */
static int start_server(struct mps *mps, struct bf_error *err)
{
	struct bf_error why = { 0 };

	mps->why[0] = 0;
	begin(mps, &why);
	if (!why.code)
		return 0;
	snprintf(mps->why, sizeof(mps->why), "%.255s", why.text);
	return bf_fail(err, why.code, "the MPS server of domain '%s' cannot be started: %.400s", mps->domain,
		       why.text);
}

static void fail_waiting(struct mps *mps)
{
	struct bf_error err = { 0 };

	bf_fail(&err, EIO, "the MPS server of domain '%s' cannot be started: %s", mps->domain,
		mps->why[0] ? mps->why : "it has ended");
	bf_log(BF_LOG_WARN, "%s", err.text);
	talkers_served(mps->gpu, mps, &err);
}

/* When to start it again, if programs have it. */
static uint64_t again_ns(const struct mps *mps)
{
	unsigned doublings = mps->ends ? mps->ends - 1 : 0;

	return bf_now_ns() +
	       ((uint64_t)AGAIN_S << (doublings < DOUBLINGS_MOST ? doublings : DOUBLINGS_MOST)) * S_NS;
}

/* One event for each vGPU with a program of the server. Marks the programs, which cannot go on. */
static void tell_runs(struct mps *mps)
{
	struct gpu *gpu = mps->gpu;

	gpu_lock(gpu);
	for (struct vgpu *v = gpu->vgpus; v; v = v->next) {
		bool is_concerned = false;

		for (struct run *r = v->runs; r; r = r->next)
			if (r->mps == mps)
				r->has_lost_mps = is_concerned = true;
		if (is_concerned)
			event_mps_ended(v, mps->last_end);
	}
	gpu_unlock(gpu);
}

/* It has ended without being asked to, after it was ready. */
static void died(struct mps *mps, const char *how)
{
	if (bf_now_ns() - mps->ready_ns > STEADY_S * S_NS)
		mps->ends = 0;
	mps->ends++;
	snprintf(mps->last_end, sizeof(mps->last_end),
		 "the MPS server of domain '%s' ended: %.80s; programs of the domain must be restarted",
		 mps->domain, how);
	bf_log(BF_LOG_ERROR, "%s", mps->last_end);
	tell_runs(mps);
	turn_off(mps, mps->last_end);
	mps->due_ns = again_ns(mps);
}

static void ended(struct mps *mps, const char *how)
{
	enum mps_state was = mps->state;

	if (was == MPS_IS_READY) {
		died(mps, how);
		return;
	}
	if (was == MPS_IS_STARTING && !mps->why[0])
		snprintf(mps->why, sizeof(mps->why), "it ended: %.80s", how);
	turn_off(mps, was == MPS_IS_STOPPING ? "the MPS server was ended" : mps->why);
	mps->due_ns = was == MPS_IS_STARTING && mps->users ? again_ns(mps) : bf_now_ns();
	if (was == MPS_IS_STARTING) {
		mps->ends++;
		fail_waiting(mps);
	}
}

/* "pool.mps", a vGPU that only the server uses. belfryd is not told of it. */
static struct vgpu *make_vgpu(struct mps *mps, struct bf_error *err)
{
	struct spec spec = spec_default;
	char name[SPEC_NAME_MAX + 1];

	memcpy(spec.domain, mps->domain, sizeof(spec.domain));
	for (unsigned i = 1; i < NAME_TRIES; i++) {
		snprintf(name, sizeof(name), i == 1 ? "%.55s.mps" : "%.55s.mps%u", mps->domain, i);
		if (!vgpu_find(mps->gpu, name))
			break;
	}
	return vgpu_create(mps->gpu, name, &spec, mps->owner.uid, VGPU_IS_HIDDEN | VGPU_IS_EPHEMERAL, err);
}

/* The filter of the control program is installed. Its driver calls, and those of the server that it starts, are served from
 * now on. */
static void supervised(struct mps *mps, const struct mps_news *news, int listener)
{
	uint32_t order = MPS_GO;
	struct bf_error err = { 0 };
	struct vgpu *vgpu;

	gpu_lock(mps->gpu);
	vgpu = make_vgpu(mps, &err);
	gpu_unlock(mps->gpu);
	if (vgpu) {
		mps->run = run_start_server(vgpu, mps->keeper, news->pid, listener, &err);
		if (!mps->run) {
			gpu_lock(mps->gpu);
			vgpu_remove(vgpu, err.text);
			gpu_unlock(mps->gpu);
		}
	} else {
		close(listener);
	}
	if (mps->run && !bf_message_send(mps->sock, &order, sizeof(order), -1, MSG_DONTWAIT)) {
		mps_lend(mps->gpu);
		return;
	}
	snprintf(mps->why, sizeof(mps->why), "%.255s", err.code ? err.text : "its keeper has ended");
	ended(mps, "");
}

static void ready(struct mps *mps)
{
	mps->state = MPS_IS_READY;
	mps->ready_ns = bf_now_ns();
	mps->due_ns = mps->users ? 0 : mps->ready_ns + LINGER_S * S_NS;
	bf_log(BF_LOG_INFO, "the MPS server of domain '%s' of user %u is ready", mps->domain, mps->owner.uid);
	talkers_served(mps->gpu, mps, NULL);
}

static void news_ready(void *context, uint32_t events)
{
	struct mps *mps = context;
	struct mps_news news = { 0 };
	int fd = -1;
	ssize_t got = bf_message_receive(mps->sock, &news, sizeof(news), &fd, MSG_DONTWAIT);

	(void)events;
	news.text[sizeof(news.text) - 1] = 0;
	if (got == -EAGAIN || got == -EINTR)
		return;
	if (got == (ssize_t)sizeof(news) && news.kind == MPS_SUPERVISED && fd >= 0 &&
	    mps->state == MPS_IS_STARTING && !mps->run) {
		supervised(mps, &news, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (got != (ssize_t)sizeof(news))
		ended(mps, "its keeper was killed");
	else if (news.kind == MPS_READY && mps->state == MPS_IS_STARTING)
		ready(mps);
	else if (news.kind == MPS_FAILED)
		snprintf(mps->why, sizeof(mps->why), "%s", news.text);
	else if (news.kind == MPS_ENDED)
		ended(mps, news.text);
}

/* Each server is a few processes. */
static int check_room(const struct gpu *gpu, const struct mps_owner *owner, struct bf_error *err)
{
	unsigned all = 0, of_user = 0;

	for (const struct mps *m = LIST_FIRST(&gpu->mps); m; m = LIST_NEXT(m, next)) {
		all++;
		of_user += m->owner.uid == owner->uid;
	}
	if (of_user >= GPU_MPS_OF_ONE)
		return bf_fail(
			err, EAGAIN,
			"you have programs in %u shared domains of this GPU, the most one user may have",
			of_user);
	if (all >= GPU_MPS_MAX)
		return bf_fail(err, EAGAIN,
			       "%u shared domains of this GPU have programs, the most there may be", all);
	return 0;
}

static struct mps *add(struct gpu *gpu, const char *domain, const struct mps_owner *owner,
		       struct bf_error *err)
{
	struct mps *mps = check_room(gpu, owner, err) ? NULL : calloc(1, sizeof(*mps));

	if (!mps && !err->code)
		bf_fail(err, ENOMEM, "out of memory");
	if (!mps)
		return NULL;
	mps->gpu = gpu;
	mps->owner = *owner;
	mps->sock = -1;
	mps->number = ++gpu->next_mps;
	snprintf(mps->domain, sizeof(mps->domain), "%s", domain);
	LIST_INSERT_HEAD(&gpu->mps, mps, next);
	return mps;
}

static void remove_mps(struct mps *mps)
{
	turn_off(mps, "the MPS server was ended");
	mps_folder_remove(mps->folder);
	LIST_REMOVE(mps, next);
	free(mps);
}

struct mps *mps_take(struct vgpu *vgpu, const struct mps_owner *owner, struct bf_error *err)
{
	struct gpu *gpu = vgpu->gpu;
	struct mps *mps = find(gpu, vgpu->spec.domain, owner->uid);

	if (!mps)
		mps = add(gpu, vgpu->spec.domain, owner, err);
	if (!mps)
		return NULL;
	if (mps->state == MPS_IS_OFF && start_server(mps, err)) {
		if (!mps->users)
			remove_mps(mps);
		return NULL;
	}
	mps->users++;
	if (mps->state == MPS_IS_READY)
		mps->due_ns = 0;
	return mps;
}

void mps_drop(struct mps *mps)
{
	if (--mps->users)
		return;
	mps->last_end[0] = 0;
	if (mps->state == MPS_IS_READY)
		mps->due_ns = bf_now_ns() + LINGER_S * S_NS;
	else if (mps->state == MPS_IS_OFF)
		mps->due_ns = bf_now_ns();
}

bool mps_is_of(const struct mps *mps, const struct vgpu *vgpu)
{
	return mps->owner.uid == vgpu->owner && !strcmp(mps->domain, vgpu->spec.domain);
}

bool mps_is_ready(const struct mps *mps)
{
	return mps->state == MPS_IS_READY;
}

uint64_t mps_due_ns(const struct gpu *gpu)
{
	uint64_t due = 0;

	for (const struct mps *m = LIST_FIRST(&gpu->mps); m; m = LIST_NEXT(m, next))
		if (m->due_ns && (!due || m->due_ns < due))
			due = m->due_ns;
	return due;
}

/* Ask the keeper to end it. */
static void stop(struct mps *mps)
{
	uint32_t order = MPS_QUIT;

	mps->state = MPS_IS_STOPPING;
	mps->due_ns = bf_now_ns() + STOP_LIMIT_S * S_NS;
	if (bf_message_send(mps->sock, &order, sizeof(order), -1, MSG_DONTWAIT))
		mps->due_ns = bf_now_ns();
}

static void off_due(struct mps *mps)
{
	struct bf_error err = { 0 };

	if (!mps->users) {
		remove_mps(mps);
		return;
	}
	mps->due_ns = 0;
	if (start_server(mps, &err)) {
		bf_log(BF_LOG_ERROR, "%s", err.text);
		mps->ends++;
		mps->due_ns = again_ns(mps);
		talkers_served(mps->gpu, mps, &err);
	}
}

void mps_look(struct gpu *gpu, uint64_t now_ns)
{
	struct mps *m, *after;

	LIST_FOREACH_SAFE(m, &gpu->mps, next, after) {
		if (!m->due_ns || m->due_ns > now_ns)
			continue;
		if (m->state == MPS_IS_OFF)
			off_due(m);
		else if (m->state == MPS_IS_READY && m->keeper)
			stop(m);
		else if (m->state == MPS_IS_READY)
			remove_mps(m);
		else
			ended(m, "its keeper does not answer");
	}
}

/* The programs have ended. Waits for the keepers a limited time, all together. */
void mps_end(struct gpu *gpu)
{
	uint64_t until_ns = bf_now_ns() + END_LIMIT_MS * 1000000ull, now_ns;

	for (struct mps *m = LIST_FIRST(&gpu->mps); m; m = LIST_NEXT(m, next))
		if (m->keeper && m->state == MPS_IS_READY)
			stop(m);
	while (!LIST_EMPTY(&gpu->mps)) {
		struct mps *m = LIST_FIRST(&gpu->mps);
		struct pollfd fds = { m->sock, POLLIN, 0 };
		struct mps_news news;

		/* The last news is the end. */
		now_ns = bf_now_ns();
		if (m->state == MPS_IS_STOPPING && now_ns < until_ns &&
		    (poll(&fds, 1, (int)((until_ns - now_ns) / 1000000 + 1)) <= 0 ||
		     (recv(m->sock, &news, sizeof(news), MSG_DONTWAIT) > 0 && news.kind != MPS_ENDED)))
			continue;
		remove_mps(m);
	}
	mps_folders_begin(gpu);
}

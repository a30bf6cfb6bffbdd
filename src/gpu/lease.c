/* The domains that grant leases: their sockets, which processes get one, and when to look at them. */
#include "gpu/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/handed.h"
#include "base/log.h"
#include "base/number.h"
#include "base/own.h"
#include "base/process.h"

enum {
	ACCEPT_AT_ONCE = 16,
	ACCEPT_MOST = 64,
	ACCEPT_REST_MS = 100, /* after so many connections, and when there are no descriptors */
	/* Between looks, while processes are waited for. */
	LOOK_LEAST_US = 200,
	LOOK_MOST_US = 20000,
	LOOK_ACTIVITY_MS = 25,
	/* A process that has not reported the units by then is looked at with the next event. */
	LEARN_LIMIT_MS = 60000,
};

/* The vGPU of the domain on which the process runs, and its run; NULL: there is none. A process runs on at most one. The
 * wardens are asked without gpu::lock, because that may wait for a driver call. Only this thread changes the lists. */
static struct vgpu *find_vgpu(const struct lease_domain *domain, pid_t pid, uint32_t *number)
{
	for (struct vgpu *v = domain->gpu->vgpus; v; v = v->next) {
		bool is_candidate = false;

		for (const struct run *r = v->runs; r; r = r->next)
			is_candidate |= r->mps == domain->mps && !r->has_lost_mps;
		*number = is_candidate && v->warden ? warden_run_of(v->warden, pid) : 0;
		for (const struct run *r = v->runs; r && *number; r = r->next)
			if (r->number == *number && r->mps == domain->mps && !r->has_lost_mps)
				return v;
	}
	return NULL;
}

/* A program that has been replaced (exec) connects again before its old connection was seen to end. */
static void drop_former(struct vgpu *vgpu, pid_t pid)
{
	struct lease *l, *after;

	if (!vgpu->lease)
		return;
	LIST_FOREACH_SAFE(l, &vgpu->lease->leases, next, after)
		if (l->pid == pid) {
			gpu_lock(vgpu->gpu);
			lease_remove(l);
			gpu_unlock(vgpu->gpu);
			return;
		}
}

/* A process that is not of the domain gets no page, and its connection is closed. The process is identified by a pidfd: it
 * lives after the warden has found its PID, so the PID was not another's. */
static void welcome(struct lease_domain *domain, int connection)
{
	cleanup_connection int sock = connection;
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	struct lease *lease;
	struct vgpu *vgpu;
	uint32_t run;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return;
	cleanup_close int process = bf_pidfd_open_peer(sock, who.pid);
	vgpu = process < 0 ? NULL : find_vgpu(domain, who.pid, &run);
	if (!vgpu || bf_pidfd_has_ended(process)) {
		bf_log(BF_LOG_INFO, "process %d is not of this domain and gets no lease", who.pid);
		return;
	}
	drop_former(vgpu, who.pid);
	if (vgpu->lease && vgpu->lease->count >= LEASES_OF_ONE) {
		bf_log(BF_LOG_WARN, "%s: %u processes have leases, the most there may be", vgpu->name,
		       vgpu->lease->count);
		return;
	}
	lease = lease_add(domain, vgpu, who.pid, bf_take_fd(&sock), bf_take_fd(&process));
	if (lease)
		lease->run = run;
}

/* A process that connects without end, or a lack of descriptors, must not occupy the GPU server. */
static void rest(struct lease_domain *domain)
{
	domain->accepted = 0;
	loop_change(domain->gpu->loop, domain->source, 0);
	domain->rests_ns = domain->due_ns = bf_now_ns() + ACCEPT_REST_MS * LEASE_MS_NS;
}

static void connection_ready(void *context, uint32_t events)
{
	struct lease_domain *domain = context;

	(void)events;
	for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
		int sock = accept4(domain->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock >= 0) {
			welcome(domain, sock);
			if (++domain->accepted < ACCEPT_MOST)
				continue;
			rest(domain);
			return;
		}
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			rest(domain);
		return;
	}
}

struct lease_domain *lease_domain_new(struct gpu *gpu, const struct mps *mps, int listener,
				      struct bf_error *err)
{
	struct lease_domain *domain = calloc(1, sizeof(*domain));
	cleanup_close int fd = listener;

	if (domain)
		domain->source = loop_add(gpu->loop, fd, EPOLLIN, LOOP_LAST, connection_ready, domain);
	if (!domain || !domain->source) {
		free(domain);
		bf_fail(err, errno, "its socket for leases cannot be watched: %s", strerror(errno));
		return NULL;
	}
	domain->gpu = gpu;
	domain->mps = mps;
	domain->listener = bf_take_fd(&fd);
	LIST_INSERT_HEAD(&gpu->leases, domain, next);
	return domain;
}

static void remove_leases(struct lease_holder *holder)
{
	for (unsigned left = holder->count; left; left--) /* the holder goes with the last one */
		lease_remove(LIST_FIRST(&holder->leases));
}

void lease_domain_free(struct lease_domain *domain)
{
	struct lease_holder *h;

	if (!domain)
		return;
	while ((h = LIST_FIRST(&domain->holders))) {
		gpu_lock(domain->gpu);
		remove_leases(h);
		gpu_unlock(domain->gpu);
	}
	LIST_REMOVE(domain, next);
	loop_remove(domain->gpu->loop, domain->source);
	close(domain->listener);
	free(domain);
}

void lease_leave(struct vgpu *vgpu)
{
	if (vgpu->lease)
		remove_leases(vgpu->lease);
}

void lease_changed(const struct vgpu *vgpu)
{
	if (vgpu->lease)
		vgpu->lease->domain->is_changed = true;
}

void lease_stir(struct vgpu *vgpu)
{
	if (atomic_exchange(&vgpu->is_lease_idle, false))
		gpu_wake(vgpu->gpu);
}

static bool is_closed(const struct lease_domain *domain)
{
	struct lease_holder *h;

	LIST_FOREACH(h, &domain->holders, next)
		if (h->closed_ns)
			return true;
	return false;
}

/* The longer it takes, the less often. */
static uint64_t wait_ns(uint64_t since_ns, uint64_t now_ns)
{
	return bf_max(LOOK_LEAST_US * 1000ull, bf_min((now_ns - since_ns) / 8, LOOK_MOST_US * 1000ull));
}

static bool is_anyone_awake(const struct lease_domain *domain)
{
	struct lease_holder *h;

	LIST_FOREACH(h, &domain->holders, next)
		if (h->is_active)
			return true;
	return false;
}

/* Of one vGPU alone it does not matter whether it is active. If all are idle, the first one with work calls lease_stir(). */
static uint64_t next_look_ns(const struct lease_domain *domain, uint64_t now_ns)
{
	const struct lease_holder *first = LIST_FIRST(&domain->holders);

	if (domain->is_changed)
		return now_ns;
	if (domain->unsettled_ns || is_closed(domain))
		return now_ns + wait_ns(domain->unsettled_ns, now_ns);
	if (first && !domain->unit_count && now_ns - first->joined_ns < LEARN_LIMIT_MS * LEASE_MS_NS)
		return now_ns + wait_ns(first->joined_ns, now_ns);
	if (first && LIST_NEXT(first, next) && is_anyone_awake(domain))
		return now_ns + LOOK_ACTIVITY_MS * LEASE_MS_NS;
	return domain->rests_ns;
}

static void look(struct lease_domain *domain, uint64_t now_ns)
{
	if (domain->rests_ns && domain->rests_ns <= now_ns) {
		domain->rests_ns = 0;
		loop_change(domain->gpu->loop, domain->source, EPOLLIN);
	}
	gpu_lock(domain->gpu);
	lease_settle(domain, now_ns);
	if (lease_look_late(domain, now_ns))
		domain->looked_ns = now_ns;
	gpu_unlock(domain->gpu);
	domain->due_ns = next_look_ns(domain, now_ns);
}

/* The turner has found work of a vGPU that was idle. */
static bool is_stirred(const struct lease_domain *domain)
{
	struct lease_holder *h;

	LIST_FOREACH(h, &domain->holders, next)
		if (!h->is_active && !h->vgpu->is_lease_idle)
			return true;
	return false;
}

void leases_look(struct gpu *gpu, uint64_t now_ns)
{
	struct lease_domain *d;

	LIST_FOREACH(d, &gpu->leases, next)
		if (d->is_changed || (d->due_ns && d->due_ns <= now_ns) || is_stirred(d))
			look(d, now_ns);
}

uint64_t leases_due_ns(const struct gpu *gpu)
{
	uint64_t due = 0;

	for (const struct lease_domain *d = LIST_FIRST(&gpu->leases); d; d = LIST_NEXT(d, next))
		if (d->due_ns && (!due || d->due_ns < due))
			due = d->due_ns;
	return due;
}

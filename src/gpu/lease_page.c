/* The pages of leases, one for each process. The program can write to all of its page at any time. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/handed.h"
#include "base/log.h"
#include "base/message.h"
#include "base/number.h"
#include "base/own.h"
#include "gpu/lease.h"

/* The process has closed its connection. It may run on with the units that it has, which are no longer its own. */
static void connection_over(void *context, uint32_t events)
{
	struct lease *lease = context;
	struct lease_domain *domain = lease->holder->domain;

	(void)events;
	loop_remove(domain->gpu->loop, lease->sock_source);
	lease->sock_source = NULL;
	bf_close_connection(&lease->sock);
	lease->is_fixed = domain->is_changed = true;
}

static void process_over(void *context, uint32_t events)
{
	struct lease *lease = context;
	struct lease_domain *domain = lease->holder->domain;

	(void)events;
	gpu_lock(domain->gpu);
	lease_remove(lease);
	gpu_unlock(domain->gpu);
}

/* Its size cannot change: an access beyond its end would be a signal. */
static int make_page(struct lease *lease)
{
	cleanup_close int file = memfd_create("belfry-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (file < 0 || ftruncate(file, CORO_LEASE_BYTES) ||
	    fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return -errno;
	lease->page = mmap(NULL, CORO_LEASE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (lease->page == MAP_FAILED) {
		lease->page = NULL;
		return -errno;
	}
	lease->page->magic = CORO_LEASE_MAGIC;
	lease->page->version = CORO_LEASE_VERSION;
	lease->file = bf_take_fd(&file);
	return 0;
}

static void free_lease(struct lease *lease, struct loop *loop)
{
	loop_remove(loop, lease->sock_source);
	loop_remove(loop, lease->process_source);
	if (lease->page)
		munmap(lease->page, CORO_LEASE_BYTES);
	bf_close_fd(&lease->file);
	bf_close_connection(&lease->sock);
	bf_close_fd(&lease->process);
	free(lease);
}

/* The lease ends with the process, which may have handed its connection on (fork) or closed it. */
static struct lease *new_lease(struct loop *loop, int connection, int pidfd)
{
	cleanup_connection int sock = connection;
	cleanup_close int process = pidfd;
	struct lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	*lease = (struct lease){ .sock = bf_take_fd(&sock), .process = bf_take_fd(&process), .file = -1 };
	if (!make_page(lease)) {
		lease->sock_source =
			loop_add(loop, lease->sock, EPOLLRDHUP, LOOP_FIRST, connection_over, lease);
		lease->process_source =
			loop_add(loop, lease->process, EPOLLIN, LOOP_FIRST, process_over, lease);
	}
	if (lease->sock_source && lease->process_source)
		return lease;
	free_lease(lease, loop);
	return NULL;
}

static struct lease_holder *add_holder(struct lease_domain *domain, struct vgpu *vgpu)
{
	struct lease_holder *holder = calloc(1, sizeof(*holder)), *last = LIST_FIRST(&domain->holders);

	if (!holder)
		return NULL;
	holder->domain = domain;
	holder->vgpu = vgpu;
	holder->joined_ns = holder->awake_ns = bf_now_ns(); /* it is about to work */
	holder->is_active = true;
	while (last && LIST_NEXT(last, next))
		last = LIST_NEXT(last, next);
	if (last)
		LIST_INSERT_AFTER(last, holder, next);
	else
		LIST_INSERT_HEAD(&domain->holders, holder, next);
	vgpu->lease = holder;
	vgpu->is_lease_idle = false;
	return holder;
}

static void remove_holder(struct lease_holder *holder)
{
	struct vgpu *vgpu = holder->vgpu;

	LIST_REMOVE(holder, next);
	sched_set_units(vgpu->sched, 0, 0);
	vgpu->lease = NULL;
	vgpu->is_lease_idle = false;
	free(holder);
	if (vgpu->holds & VGPU_HOLD_LEASE)
		vgpu_hold_lease(vgpu, false);
}

struct lease *lease_add(struct lease_domain *domain, struct vgpu *vgpu, pid_t pid, int sock, int process)
{
	struct lease *lease = new_lease(domain->gpu->loop, sock, process);
	struct lease_holder *holder = vgpu->lease;

	if (lease && !holder)
		holder = add_holder(domain, vgpu);
	if (lease && !holder)
		free_lease(lease, domain->gpu->loop);
	if (!lease || !holder)
		return NULL;
	lease->holder = holder;
	lease->pid = pid;
	LIST_INSERT_HEAD(&holder->leases, lease, next);
	holder->count++;
	domain->is_changed = true;
	return lease;
}

void lease_remove(struct lease *lease)
{
	struct lease_holder *holder = lease->holder;
	struct lease_domain *domain = holder->domain;

	lease_read(lease); /* its last figures */
	LIST_REMOVE(lease, next);
	if (domain->reporter == lease)
		domain->reporter = NULL;
	free_lease(lease, domain->gpu->loop);
	domain->is_changed = true;
	if (!--holder->count)
		remove_holder(holder);
}

/* One byte, with the page. A process that does not take it has none; its end is the connection's. */
static void send_page(struct lease *lease)
{
	char byte = 1;

	bf_message_send(lease->sock, &byte, 1, lease->file, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(bf_take_fd(&lease->file));
}

/* Units first, then the generation: the other side reads them in the other order (src/coro/lease.c, follow()). */
void lease_publish(struct lease *lease)
{
	const struct lease_holder *holder = lease->holder;
	uint64_t all = lease_all(holder->domain), units = holder->units & all;

	atomic_store(&lease->page->units, units == all || lease->is_fixed ? CORO_UNITS_ALL : units);
	atomic_store(&lease->page->generation, ++lease->generation);
	if (lease->file >= 0)
		send_page(lease);
	else
		syscall(SYS_futex, &lease->page->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool lease_has_seen(const struct lease *lease)
{
	return lease->is_fixed || atomic_load(&lease->page->seen) >= lease->generation;
}

bool lease_has_answered(const struct lease *lease)
{
	return lease->is_fixed || atomic_load(&lease->page->fenced) >= lease->generation;
}

static bool is_plausible(const struct lease_domain *domain, unsigned count, unsigned sms, unsigned last_sms)
{
	enum { SMS_MOST = 4096 };
	unsigned known = domain->gpu->device->sm_count;

	if (!count || count > DIVIDE_UNITS_MOST || !sms || sms > SMS_MOST || !last_sms || last_sms > SMS_MOST)
		return false;
	return known ? (count - 1) * sms + last_sms == known : (count - 1) * sms + last_sms <= SMS_MOST;
}

/* The first plausible report of a domain counts while its reporter, or a process with the same report, is there. */
static void learn_units(struct lease_domain *domain, const struct lease *from, unsigned count, unsigned sms,
			unsigned last_sms)
{
	struct lease_holder *h;

	domain->reporter = from;
	domain->unit_count = count;
	domain->unit_sms = sms;
	domain->last_unit_sms = last_sms;
	domain->is_changed = true;
	LIST_FOREACH(h, &domain->holders, next) {
		h->units &= lease_all(domain);
		h->used &= lease_all(domain);
		h->target &= lease_all(domain);
	}
}

static void read_units(struct lease *lease)
{
	const struct vgpu *vgpu = lease->holder->vgpu;
	struct lease_domain *domain = lease->holder->domain;
	/* The process stores unit_count last (src/coro/partition.c). */
	bool has_looked = atomic_load(&lease->page->seen) > 0;
	unsigned count = atomic_load(&lease->page->unit_count), sms = atomic_load(&lease->page->unit_sms),
		 last_sms = atomic_load(&lease->page->last_unit_sms);

	if (!count && !has_looked)
		return;
	if (!domain->unit_count && is_plausible(domain, count, sms, last_sms))
		learn_units(domain, lease, count, sms, last_sms);
	if (count == domain->unit_count && sms == domain->unit_sms && last_sms == domain->last_unit_sms) {
		if (domain->unit_count && !domain->reporter)
			domain->reporter = lease;
		return;
	}
	bf_log(BF_LOG_WARN, "%s: process %d reports %u units of %u SMs, and another process %u of %u",
	       vgpu->name, lease->pid, count, sms, domain->unit_count, domain->unit_sms);
	lease->is_fixed = lease->differs = true;
}

void lease_forget_units(struct lease_domain *domain)
{
	struct lease_holder *h;
	struct lease *l;

	domain->unit_count = 0;
	domain->is_changed = true;
	LIST_FOREACH(h, &domain->holders, next)
		LIST_FOREACH(l, &h->leases, next)
			if (l->differs)
				l->is_fixed = l->differs = false;
}

/* A counter of the process, added to one of the vGPU, which never decreases. */
static void count_up(const _Atomic uint64_t *from, uint64_t *before, uint64_t *sum)
{
	uint64_t now = atomic_load(from);

	if (now > *before)
		*sum += now - *before;
	*before = now;
}

/* The times of requests, as the library has measured them. Those that came too fast to be read are left out. A program can
 * report anything, about its own vGPU. */
static void read_requests(struct lease *lease)
{
	enum { LONGEST_S = 60 };
	struct vgpu *vgpu = lease->holder->vgpu;
	uint64_t count = atomic_load(&lease->page->requests), now_ns = bf_now_ns();

	if (count - lease->requests > CORO_REQUESTS / 2)
		lease->requests = count - bf_min(count, CORO_REQUESTS / 2);
	for (; lease->requests < count; lease->requests++) {
		uint64_t took_ns = atomic_load(&lease->page->took_ns[lease->requests % CORO_REQUESTS]);

		vgpu->request_ns = now_ns;
		if (vgpu->spec.class == SPEC_LATENCY && took_ns < LONGEST_S * 1000000000ull)
			sched_took(vgpu->gpu->sched, vgpu->sched, took_ns, now_ns);
	}
	lease->requests = count;
}

void lease_read(struct lease *lease)
{
	struct lease_domain *domain = lease->holder->domain;
	struct vgpu *vgpu = lease->holder->vgpu;

	if (!lease->is_fixed) {
		lease->is_fixed = atomic_load(&lease->page->is_fixed) != 0;
		if (!lease->is_fixed)
			read_units(lease);
		if (lease->is_fixed) {
			domain->is_changed = true;
			lease_publish(lease);
		}
	}
	count_up(&lease->page->moves, &lease->moves, &vgpu->lease_moves);
	count_up(&lease->page->fell_back, &lease->fell_back, &vgpu->lease_fell_back);
	read_requests(lease);
}

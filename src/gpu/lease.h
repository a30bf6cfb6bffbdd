/* SM leases: which SMs the programs of a shared domain use. Each process has a page of memory that it shares with the GPU
 * server (src/coro/lease.h). The GPU server writes there which units of SMs the process may use; the library in the process
 * follows, and reports when its work on other units has ended.
 *
 * A program can write anything to its page and need not follow. So SM shares within a domain need the library's cooperation,
 * and nothing else depends on it: memory, the gate, time and faults do not. Every field is read once, and is compared with
 * copies that the program cannot reach. The main thread never waits for a program: leases_look() goes on from where the
 * pages are. Shared by lease*.c only. Main thread only. */
#ifndef BELFRY_GPU_LEASE_H
#define BELFRY_GPU_LEASE_H

#include "coro/lease.h"
#include "gpu/divide.h"
#include "gpu/gpu.h"

enum {
	LEASES_OF_ONE = 128,	/* processes of a vGPU */
	LEASE_ACTIVE_MS = 100,	/* a vGPU without work for this long is idle, */
	LEASE_WISHED_MS = 500,	/* or for this long, if a policy proposes its units */
	LEASE_JOIN_MS = 2000,	/* after this time a new vGPU gets units that others have not given back */
	LEASE_ANSWER_MS = 1000, /* a holder that has not given units back by then: its gate is closed */
	LEASE_TRIALS_MOST = 6,	/* the time between trials doubles so often */
	LEASE_END_MS = 10000, /* after the gate was closed: a run whose work has not ended by then is ended */
};

#define LEASE_MS_NS 1000000ull

/* Of a process. */
struct lease {
	struct lease_holder *holder;
	uint32_t run; /* run::number */
	pid_t pid;
	int sock, process, file; /* process: a pidfd; file: the page, until it is sent, then -1 */
	struct loop_source *sock_source, *process_source;
	struct coro_lease *page;
	uint64_t generation; /* the last one that was published */
	bool is_fixed;	     /* it does not follow: it uses all SMs, */
	bool differs;	     /* because it reports other units than the domain's reporter */
	uint64_t moves, fell_back;
	uint64_t requests;	/* whose times were read */
	LIST_ENTRY(lease) next; /* lease_holder::leases */
};

/* A vGPU whose programs have leases. They have the same units. */
struct lease_holder {
	struct lease_domain *domain;
	struct vgpu *vgpu;
	LIST_HEAD(, lease) leases;
	unsigned count;
	uint64_t units;	 /* as published; 0: not yet */
	uint64_t used;	 /* units on which its work may run: `units`, and those that it has not given back */
	uint64_t target; /* what the division gives it */
	unsigned wish;	 /* units that a policy proposes; 0: none */
	uint64_t joined_ns; /* when the first process came */
	uint64_t awake_ns;  /* when it last had work */
	bool is_active, is_fixed;
	/* See lease_late.c. */
	uint64_t behind_ns;	       /* how long it has not given back units that others wait for */
	uint64_t closed_ns;	       /* since when its gate is closed for that; 0: it is not */
	uint64_t former;	       /* the units that it had not given back then */
	unsigned trials;	       /* how often its gate was opened since, without an answer */
	bool has_ended_work;	       /* while its gate is closed by an order */
	LIST_ENTRY(lease_holder) next; /* lease_domain::holders */
};

struct lease_domain {
	struct gpu *gpu;
	const struct mps *mps;
	int listener;
	struct loop_source *source;
	uint64_t rests_ns; /* no connection is accepted before this time; 0: they are */
	unsigned accepted; /* connections since the last rest */
	/* As the first process has reported it; unit_count 0: not known. */
	unsigned unit_count, unit_sms, last_unit_sms;
	const struct lease *reporter; /* that process; NULL: it has left */
	LIST_HEAD(, lease_holder) holders;
	bool is_changed;	       /* the units must be divided anew */
	uint64_t unsettled_ns;	       /* since when not all holders have their units; 0: they have */
	uint64_t looked_ns, due_ns;    /* the last look; the next one, 0: never */
	LIST_ENTRY(lease_domain) next; /* gpu::leases */
};

/* All units. Before they are known, every bit. */
static inline uint64_t lease_all(const struct lease_domain *domain)
{
	return domain->unit_count ? divide_all(domain->unit_count) : CORO_UNITS_ALL;
}

/* The number of units; 0: not known yet. */
static inline unsigned lease_count(const struct lease_domain *domain, uint64_t units)
{
	return domain->unit_count ? (unsigned)__builtin_popcountll(units) : 0;
}

/* lease_page.c: pages and holders */
/* A lease with a page for this process, which is not sent yet. Takes both descriptors. */
struct lease *lease_add(struct lease_domain *domain, struct vgpu *vgpu, pid_t pid, int sock, int process);
void lease_remove(struct lease *lease); /* with its holder, if it is the last one. With the lock */
/* Write the units of its holder to the page, and send the page if it has not been sent. */
void lease_publish(struct lease *lease);
/* Whether the process knows its units, so that what it launches runs on them; whether it has given back what it had before. */
bool lease_has_seen(const struct lease *lease);
bool lease_has_answered(const struct lease *lease);
void lease_read(struct lease *lease); /* what the process reports */
/* The reporter has left, and no process has the same report. */
void lease_forget_units(struct lease_domain *domain);

/* lease_settle.c */
void lease_settle(struct lease_domain *domain, uint64_t now_ns); /* with the lock */
bool lease_is_behind(
	const struct lease_holder *holder); /* it has not given back units that are for another vGPU */

/* lease_late.c */
/* Close and open gates, and end the run of a process that does not give back its units. Returns false if a run was ended:
 * holders may be gone. With the lock, which is released for a while. */
bool lease_look_late(struct lease_domain *domain, uint64_t now_ns);

#endif

/* sched: which vGPU may use a GPU, when, and for how long. Pure: events and times go in, orders come out; no files, no
 * threads, no clock of its own. The caller carries out the orders and reports their effects.
 *
 * A latency vGPU rides: its gate stays open, and its turns in hardware come first, as long as the other vGPUs get what was
 * promised to them. Every other vGPU takes a token: one vGPU holds it at a time (or several of one domain), for a slice. Next
 * is the vGPU that has had the least time for its weight. Where GPU time is measured, it gets the token before the work of the
 * last holder is stopped, so that the GPU is not idle in between. A limit applies to both kinds.
 *
 * A policy may propose which vGPU is next, for how long, which vGPU is stopped for another, and which vGPUs ride
 * (belfry/policy.h). Proposals are clamped to limits and promises. The built-in policy, fair.c, decides what a policy leaves
 * open, and everything where no policy is loaded. */
#ifndef BELFRY_SCHED_H
#define BELFRY_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "belfry/policy.h"

#define SCHED_NEVER UINT64_MAX
#define SCHED_WHOLE_PPM 1000000u

/* The most that a policy may propose for turns in hardware. */
enum { SCHED_TIMESLICE_MOST_US = 1000000, SCHED_LEVEL_MOST = 2 };

enum sched_class { SCHED_THROUGHPUT, SCHED_LATENCY };
enum sched_how {
	SCHED_AUTO,   /* as above; vGPUs without any request or limit share by the hardware's turns */
	SCHED_TOKENS, /* every vGPU takes tokens */
	SCHED_TURNS,  /* all gates are open: timeslices carry the shares */
};

struct sched_options {
	uint64_t window_ns;    /* no vGPU exceeds its limit over any window */
	uint64_t round_ns;     /* the slices of all vGPUs that want the GPU add up to it */
	uint64_t slice_min_ns; /* no slice is shorter, unless a limit ends it */
	uint64_t grace_ns;     /* after a slice, in which running work may end by itself */
	uint64_t idle_ns;      /* the longest time for which a holder without work keeps the token */
	enum sched_how how;
	bool is_measured; /* GPU time is reported by sched_used(); otherwise it is derived from the clock */
};
extern const struct sched_options sched_default;

struct sched_share {
	uint32_t request_ppm, limit_ppm;
	enum sched_class class;
	uint64_t
		objective_ns; /* the percentile of submissions should end within this time; 0: no objective */
	uint32_t percentile_ppm; /* 990000: p99 */
	uint32_t domain;	 /* vGPUs of the same domain hold the token together; 0: alone */
	uint64_t timeslice_us;	 /* set by the operator; 0: not set */
	int interleave;		 /* set by the operator; -1: not set */
};

struct sched;
struct sched_vgpu;

struct sched *sched_new(const struct sched_options *options, uint64_t now_ns);
void sched_free(struct sched *sched); /* and all its vGPUs */
void sched_configure(struct sched *sched, const struct sched_options *options, uint64_t now_ns);

/* Whether the request fits beside those of the other vGPUs; `instead_of` is left out of the sum. The error states the
 * arithmetic. */
int sched_check(const struct sched *sched, const struct sched_share *share,
		const struct sched_vgpu *instead_of, struct bf_error *err);
uint32_t sched_promised_ppm(const struct sched *sched);
/* The gate of a new vGPU is closed, and it has no work. `owner` is for the caller. NULL: out of memory. */
struct sched_vgpu *sched_add(struct sched *sched, const struct sched_share *share, void *owner,
			     uint64_t now_ns);
void sched_remove(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_set(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_share *share,
	       uint64_t now_ns);
void *sched_owner(const struct sched_vgpu *vgpu);

/* Events. Times never run backwards. */
/* Programs run on the vGPU, or none does any more. */
void sched_set_present(struct sched *sched, struct sched_vgpu *vgpu, bool is_present, uint64_t now_ns);
/* The vGPU has work behind its closed gate; it has work on the GPU; the GPU has done all work it was given. */
void sched_waits(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_runs(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_done(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
/* An order was carried out: the work has been stopped, or runs again. sched waits for this event, unless the programs
 * end. */
void sched_stopped(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_resumed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
/* The operator holds the vGPU, or no longer does. Meanwhile its gate and channels are the caller's. Afterwards the gate is
 * closed, and the channels are as they were. */
void sched_hold(struct sched *sched, struct sched_vgpu *vgpu, bool is_held, uint64_t now_ns);
/* With is_measured: the vGPU has used more GPU time. */
void sched_used(struct sched *sched, struct sched_vgpu *vgpu, uint64_t gpu_ns, uint64_t now_ns);
/* How busy the SMs and the memory bus were since the last call, for all vGPUs together. busy.c derives the figures of each
 * vGPU from the GPU time that it used. over_ns: the time since the last call by the clock that gpu_ns is measured with, where
 * that is another clock; else 0. */
void sched_busy(struct sched *sched, uint32_t sm_ppm, uint32_t mem_ppm, uint64_t over_ns, uint64_t now_ns);
/* How long a submission of the vGPU took, from the doorbell to its end. */
void sched_took(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns, uint64_t now_ns);

/* SM units in a shared domain: what the vGPU has, of all units of the GPU, for policies; and how many a policy proposes for it,
 * 0: none does. */
void sched_set_units(struct sched_vgpu *vgpu, unsigned units, unsigned all);
unsigned sched_wished_units(const struct sched_vgpu *vgpu);

enum sched_order_kind {
	SCHED_OPEN, /* open the gate; a stopped vGPU is resumed as well, and the caller calls sched_resumed() */
	SCHED_CLOSE, /* close the gate */
	SCHED_STOP,  /* stop the work that still runs; the caller calls sched_stopped() */
	SCHED_SLICE, /* set its turns in hardware: timeslice_us (0: as the program asks) and interleave (-1: likewise) */
};
struct sched_order {
	enum sched_order_kind kind;
	struct sched_vgpu *vgpu;
	uint64_t timeslice_us;
	int interleave;
};
/* The next order. Call until it returns false; carry out each order before the next call. */
bool sched_next(struct sched *sched, uint64_t now_ns, struct sched_order *order);
/* When to call sched_next() again if no event comes before. */
uint64_t sched_wake_ns(const struct sched *sched);

/* A policy, called before the built-in one. */
struct sched_policy {
	uint32_t hooks; /* a bit for each hook that it has */
	/* BELFRY_PROPOSE, BELFRY_DEFAULT, or below 0: the policy has failed, and is not called again. */
	int (*ask)(void *context, enum belfry_hook hook, void *ctx, size_t size);
	/* The policy broke a rule, and is not called again. */
	void (*fail)(void *context, const char *why);
	void *context;
	struct belfry_vgpu *table; /* that the policy reads, of BELFRY_VGPUS_MAX entries */
};
/* Takes effect at once; NULL: the built-in policy. The policy before is not called any more. */
void sched_set_policy(struct sched *sched, const struct sched_policy *policy, uint64_t now_ns);
/* A policy for one vGPU: it is called about that vGPU alone, and decides within what the vGPU gets. */
void sched_set_vgpu_policy(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_policy *policy,
			   uint64_t now_ns);
/* Calls a hook of the policy that sched itself does not call. Fills in the head and the table. */
int sched_ask(struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *about, void *ctx,
	      size_t size, uint64_t now_ns);
/* The vGPU of an entry of that table, until the next call of sched; NULL: no such entry. */
const struct sched_vgpu *sched_entry(const struct sched *sched, uint32_t entry);
uint64_t sched_id(const struct sched_vgpu *vgpu);

/* A decision, and how it was made. */
enum sched_clamp {
	SCHED_CLAMP_CHOICE = 1,	 /* the vGPU may not have the token, or there is no such entry */
	SCHED_CLAMP_PROMISE = 2, /* another vGPU was overdue */
	SCHED_CLAMP_SLICE = 4,	 /* shorter or longer than a slice may be */
	SCHED_CLAMP_SPACE = 8,	 /* units, or a vGPU beside it, that are not possible */
	SCHED_CLAMP_TURNS = 16,	 /* there is no such timeslice or level */
	SCHED_CLAMP_STOP = 32,	 /* the holder is overdue itself, or its slice has only begun */
	SCHED_CLAMP_WEIGHT = 64, /* below its request, or more than the whole */
};
enum sched_decider { SCHED_BUILT_IN, SCHED_BY_POLICY, SCHED_BY_OWN_POLICY };
struct sched_decision {
	uint64_t at_ns;
	enum belfry_hook hook;
	enum sched_decider decider;
	uint32_t clamps; /* enum sched_clamp */
	uint64_t proposed_id, got_id;
	uint64_t proposed_ns,
		got_ns; /* PICK: the slice; ENQUEUE: the deadline; PREEMPT: 1: the holder is stopped */
};
struct sched_watch {
	/* ctx as it is after the decision, and the table that it was made on. Without wants_all the built-in policy decides
	 * without a table: then `table` is NULL, and ctx names no entries. */
	void (*decided)(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
			const struct belfry_vgpu *table);
	void *context;
	bool wants_all; /* also decisions for which no policy was called */
};
void sched_watch(struct sched *sched, const struct sched_watch *watch); /* NULL: no watch */

/* Clamp a proposal: change ctx to what is allowed, and return enum sched_clamp. Pure, so that they also apply to a record. The
 * fields of ctx that the policy reads are unchanged: head.vgpu and the holder are entries. */
uint32_t sched_clamp_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx);
uint32_t sched_clamp_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx);
uint32_t sched_clamp_tick(const struct belfry_vgpu *table, struct belfry_tick *ctx);
/* The built-in policy. */
void sched_fair_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx);
void sched_fair_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx);

/* What sched knows of a vGPU, for people. */
enum sched_state { SCHED_IS_IDLE, SCHED_IS_RUNNING, SCHED_IS_WAITING, SCHED_IS_HELD };
enum sched_reason {
	SCHED_NOT_WAITING,
	SCHED_FOR_TOKEN, /* another vGPU holds it */
	SCHED_FOR_LIMIT, /* it has used what its limit allows */
};
struct sched_report {
	enum sched_state state;
	enum sched_reason reason;
	const struct sched_vgpu *holder;    /* the vGPU it waits for */
	uint64_t since_ns;		    /* in this state */
	uint64_t gpu_ns;		    /* GPU time */
	uint64_t held_ns;		    /* it held the token, or rode, and had work */
	uint64_t waited_ns, limited_ns;	    /* for other vGPUs; for its own limit */
	uint64_t window_ns, window_used_ns; /* the last window, or the time since the vGPU was made */
	uint64_t grants, expiries, given_back, stops, stopped_ns;
	uint32_t weight_ppm;	     /* its part of what the active vGPUs share */
	bool is_rider, is_over_ride; /* over: it used so much that it takes tokens for now */
	uint64_t slice_ns;	     /* its last slice */
	uint64_t samples, missed;    /* of sched_took(); of these, over the objective */
	uint64_t p50_ns, tail_ns;    /* of the last samples; tail: the objective's percentile, or p99 */
	uint64_t timeslice_us;	     /* as ordered */
	int interleave;
	int64_t owed_ns; /* of its request, for time in which it wanted the GPU */
	uint32_t sm_ppm,
		mem_ppm; /* how busy it keeps the SMs and the memory bus while it runs; 0: not known */
};
void sched_report(const struct sched *sched, const struct sched_vgpu *vgpu, struct sched_report *report);
/* The same at a later time than the last event: the window has moved on. */
void sched_report_now(const struct sched *sched, const struct sched_vgpu *vgpu, uint64_t now_ns,
		      struct sched_report *report);
/* The counters alone, which cost nothing to read. */
struct sched_counts {
	uint64_t gpu_ns, held_ns; /* as above */
	uint64_t alone_ns;	  /* held_ns, while no other vGPU was on the GPU */
	uint64_t any_held_ns;	  /* at least one vGPU was on the GPU; the same for all vGPUs */
	uint64_t limited_ns;	  /* it waited for its own limit */
	uint64_t grants, stops;
};
struct sched_counts sched_counts(const struct sched *sched, const struct sched_vgpu *vgpu);
/* The vGPUs it waited for, longest first; `others` has room for `room`. Returns how many. */
struct sched_waited {
	const struct sched_vgpu *other;
	uint64_t ns;
};
size_t sched_waited_for(const struct sched_vgpu *vgpu, struct sched_waited *others, size_t room);

enum sched_sharing { SCHED_SHARING_OPEN, SCHED_SHARING_TURNS, SCHED_SHARING_TOKENS };
enum sched_sharing sched_sharing(const struct sched *sched);
uint64_t sched_handovers(const struct sched *sched);

#endif

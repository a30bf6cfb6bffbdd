/* sched: who may use a GPU, when, and for how long. Pure: events and a clock go in, orders come out; no files, no
 * threads, no clock of its own. Whoever calls it carries the orders out and says what came of them.
 *
 * A latency vGPU rides: its gate stays open, and the hardware's turns bring it on at once, as long as that leaves the
 * others what was promised to them. Everybody else takes a token: one holder at a time (or several of one domain), for
 * a slice, in the order of what each has had for its weight. A limit holds for both.
 *
 * Who is next, for how long, who is stopped for whom, and who rides can be a policy's to propose (belfry/policy.h). What
 * it proposes is held to the limits and to what was promised; what it leaves open, and all there is to decide without
 * one, is decided by the built-in policy, fair.c. */
#ifndef BELFRY_SCHED_H
#define BELFRY_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "belfry/policy.h"

#define SCHED_NEVER UINT64_MAX
#define SCHED_WHOLE_PPM 1000000u

/* Of turns that a policy may propose. */
enum { SCHED_TIMESLICE_MOST_US = 1000000, SCHED_LEVEL_MOST = 2 };

enum sched_class { SCHED_THROUGHPUT, SCHED_LATENCY };
enum sched_how {
	SCHED_AUTO,   /* as above; those without any request or limit are left to the hardware's turns */
	SCHED_TOKENS, /* a token for everybody */
	SCHED_TURNS,  /* all gates open: timeslices carry the shares */
};

struct sched_options {
	uint64_t window_ns;    /* over which no limit is passed */
	uint64_t round_ns;     /* in which all who want the GPU have had their slices */
	uint64_t slice_min_ns; /* no slice is shorter, but where a limit ends it */
	uint64_t grace_ns;     /* after a slice, for what still runs to end by itself */
	uint64_t idle_ns;      /* a holder without work keeps its token for so long at most */
	enum sched_how how;
	bool is_measured; /* the use of the GPU is told by sched_used; otherwise it is what the clock says */
};
extern const struct sched_options sched_default;

struct sched_share {
	uint32_t request_ppm, limit_ppm;
	enum sched_class class;
	uint64_t objective_ns;	 /* the percentile of submissions that is to be done within this; 0: none */
	uint32_t percentile_ppm; /* 990000: p99 */
	uint32_t domain;	 /* those of one number hold the token together; 0: alone */
	uint64_t timeslice_us;	 /* set by hand; 0: not */
	int interleave;		 /* set by hand; -1: not */
};

struct sched;
struct sched_vgpu;

struct sched *sched_new(const struct sched_options *options, uint64_t now_ns);
void sched_free(struct sched *sched); /* with all its vGPUs */
void sched_configure(struct sched *sched, const struct sched_options *options, uint64_t now_ns);

/* Whether the promise can be kept beside those already made; `instead_of` is left out of the sum. The reason has the
 * arithmetic. */
int sched_check(const struct sched *sched, const struct sched_share *share,
		const struct sched_vgpu *instead_of, struct bf_error *err);
uint32_t sched_promised_ppm(const struct sched *sched);
/* A new one's gate is closed and it has no work. `owner` is for the caller. NULL: out of memory. */
struct sched_vgpu *sched_add(struct sched *sched, const struct sched_share *share, void *owner,
			     uint64_t now_ns);
void sched_remove(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_set(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_share *share,
	       uint64_t now_ns);
void *sched_owner(const struct sched_vgpu *vgpu);

/* What happens. Times never run backwards. */
/* Programs run on it, or none does any more. */
void sched_set_present(struct sched *sched, struct sched_vgpu *vgpu, bool is_present, uint64_t now_ns);
/* It has work behind its closed gate; it has work on the GPU; the GPU has done all it was given. */
void sched_waits(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_runs(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_done(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
/* An order was carried out: by now what it stopped has stopped, what it let go runs. Each is waited for, whatever else
 * happens, unless the programs end. */
void sched_stopped(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
void sched_resumed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t now_ns);
/* Somebody outside holds it back, or no longer does: its gate and channels are his meanwhile. He gives them back with the
 * gate closed and the channels as they were. */
void sched_bench(struct sched *sched, struct sched_vgpu *vgpu, bool is_benched, uint64_t now_ns);
/* With is_measured: it has used so much more of the GPU. */
void sched_used(struct sched *sched, struct sched_vgpu *vgpu, uint64_t gpu_ns, uint64_t now_ns);
/* How busy the SMs and the memory bus were since this was last told, all together. Who it was follows from who had the GPU:
 * see busy.c. over_ns: how long that was by the clock gpu_ns goes by, where it is not this one; else 0. */
void sched_busy(struct sched *sched, uint32_t sm_ppm, uint32_t mem_ppm, uint64_t over_ns, uint64_t now_ns);
/* How long a submission of it took, from the bell to its end. */
void sched_took(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns, uint64_t now_ns);

enum sched_order_kind {
	SCHED_OPEN,  /* its gate; if it was stopped it is let go with it, and sched_resumed is called */
	SCHED_CLOSE, /* its gate */
	SCHED_STOP,  /* what still runs of it; sched_stopped is called */
	SCHED_SLICE, /* its turns in hardware: timeslice_us (0: as the program asks) and interleave (-1: likewise) */
};
struct sched_order {
	enum sched_order_kind kind;
	struct sched_vgpu *vgpu;
	uint64_t timeslice_us;
	int interleave;
};
/* The next order, if there is one now. Call until it says no; carry each out before the next call. */
bool sched_next(struct sched *sched, uint64_t now_ns, struct sched_order *order);
/* When to look again if nothing happens before. */
uint64_t sched_wake_ns(const struct sched *sched);

/* A policy, asked before the built-in one. */
struct sched_policy {
	uint32_t hooks; /* a bit for each that it has */
	/* BELFRY_PROPOSE, BELFRY_DEFAULT, or below 0: it has failed, and is not asked again. */
	int (*ask)(void *context, enum belfry_hook hook, void *ctx, size_t size);
	/* It did wrong, and is not asked again. */
	void (*fail)(void *context, const char *why);
	void *context;
	struct belfry_vgpu *table; /* of BELFRY_VGPUS_MAX, which it reads */
};
/* From now on, in the middle of whatever goes on; NULL: the built-in. Nothing is asked of the one before any more. */
void sched_set_policy(struct sched *sched, const struct sched_policy *policy, uint64_t now_ns);
/* A vGPU's own: asked about that vGPU alone, within what it gets. */
void sched_set_vgpu_policy(struct sched *sched, struct sched_vgpu *vgpu, const struct sched_policy *policy,
			   uint64_t now_ns);
/* Ask whatever policy there is a hook that sched itself does not. Fills in the head and the table. */
int sched_ask(struct sched *sched, enum belfry_hook hook, const struct sched_vgpu *about, void *ctx,
	      size_t size, uint64_t now_ns);
/* Whose an entry of the table was, right after that; NULL: nobody's. */
const struct sched_vgpu *sched_entry(const struct sched *sched, uint32_t entry);
uint64_t sched_id(const struct sched_vgpu *vgpu);

/* What was decided, and by whom. */
enum sched_clamp {
	SCHED_CLAMP_CHOICE = 1,	 /* it cannot have the token, or there is no such entry */
	SCHED_CLAMP_PROMISE = 2, /* another was overdue */
	SCHED_CLAMP_SLICE = 4,	 /* shorter or longer than a slice may be */
	SCHED_CLAMP_SPACE = 8,	 /* units or company that cannot be had */
	SCHED_CLAMP_TURNS = 16,	 /* no such timeslice or level */
	SCHED_CLAMP_STOP = 32,	 /* the holder is overdue itself, or has only just begun */
	SCHED_CLAMP_WEIGHT = 64, /* below its request, or more than there is */
};
enum sched_decider { SCHED_BUILT_IN, SCHED_BY_POLICY, SCHED_BY_OWN_POLICY };
struct sched_decision {
	uint64_t at_ns;
	enum belfry_hook hook;
	enum sched_decider decider;
	uint32_t clamps; /* enum sched_clamp */
	uint64_t proposed_id, got_id;
	uint64_t proposed_ns, got_ns; /* PICK: the slice; ENQUEUE: the deadline; PREEMPT: 1: it is stopped */
};
struct sched_watch {
	/* ctx as it is after the decision, and the table that it was made on. Without wants_all the built-in policy decides
	 * without a table: then `table` is NULL, and ctx names no entries. */
	void (*decided)(void *context, const struct sched_decision *decision, const void *ctx, size_t size,
			const struct belfry_vgpu *table);
	void *context;
	bool wants_all; /* also of what nobody was asked about */
};
void sched_watch(struct sched *sched, const struct sched_watch *watch); /* NULL: nobody */

/* What is proposed, held to what may be: pure, so that it can be told of a record, too. Changes ctx, and says how. What ctx
 * tells the policy is as it was: head.vgpu, and the holder, are entries. */
uint32_t sched_clamp_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx);
uint32_t sched_clamp_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx);
uint32_t sched_clamp_tick(const struct belfry_vgpu *table, struct belfry_tick *ctx);
/* The built-in policy. */
void sched_fair_pick(const struct belfry_vgpu *table, struct belfry_pick *ctx);
void sched_fair_preempt(const struct belfry_vgpu *table, struct belfry_preempt *ctx);

/* What it knows, for people. */
enum sched_state { SCHED_IS_IDLE, SCHED_IS_RUNNING, SCHED_IS_WAITING, SCHED_IS_BENCHED };
enum sched_reason {
	SCHED_NOT_WAITING,
	SCHED_FOR_TOKEN, /* another has it */
	SCHED_FOR_LIMIT, /* it has had what its limit allows */
};
struct sched_report {
	enum sched_state state;
	enum sched_reason reason;
	const struct sched_vgpu *holder;    /* for whom it waits */
	uint64_t since_ns;		    /* in this state */
	uint64_t gpu_ns;		    /* of the GPU's time that it used */
	uint64_t held_ns;		    /* it had the token, or rode, and had work */
	uint64_t waited_ns, limited_ns;	    /* for others; for its own limit */
	uint64_t window_ns, window_used_ns; /* the last window, as far as it has been there */
	uint64_t grants, expiries, given_back, stops, stopped_ns;
	uint32_t weight_ppm;	     /* of what those who want the GPU now share */
	bool is_rider, is_over_ride; /* over: it took so much that it stands in line for now */
	uint64_t slice_ns;	     /* its slice at present */
	uint64_t samples, missed;    /* of sched_took; over the objective */
	uint64_t p50_ns, tail_ns;    /* of the last ones; tail: the objective's percentile, or p99 */
	uint64_t timeslice_us;	     /* as ordered */
	int interleave;
	int64_t owed_ns;	  /* of what was promised to it, while it wanted it */
	uint32_t sm_ppm, mem_ppm; /* how busy it keeps them while it runs; 0: not known */
};
void sched_report(const struct sched *sched, const struct sched_vgpu *vgpu, struct sched_report *report);
/* The same as of now, which may be long after the last event: the window has gone on. */
void sched_report_now(const struct sched *sched, const struct sched_vgpu *vgpu, uint64_t now_ns,
		      struct sched_report *report);
/* What is only counted: it costs nothing to tell. */
struct sched_counts {
	uint64_t gpu_ns, held_ns; /* as above */
	uint64_t alone_ns;	  /* held, while nobody else was on the GPU */
	uint64_t anybody_ns;	  /* anybody held it: the same of all */
	uint64_t limited_ns;	  /* it waited for its own limit */
	uint64_t grants, stops;
};
struct sched_counts sched_counts(const struct sched *sched, const struct sched_vgpu *vgpu);
/* For whom it waited how long, longest first; `others` has room for `room`. Returns how many. */
struct sched_waited {
	const struct sched_vgpu *other;
	uint64_t ns;
};
size_t sched_waited_for(const struct sched_vgpu *vgpu, struct sched_waited *others, size_t room);

enum sched_sharing { SCHED_SHARING_OPEN, SCHED_SHARING_TURNS, SCHED_SHARING_TOKENS };
enum sched_sharing sched_sharing(const struct sched *sched);
uint64_t sched_handovers(const struct sched *sched);

#endif

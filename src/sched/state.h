/* The state of sched, and what its files share. Private to src/sched. */
#ifndef BELFRY_SCHED_STATE_H
#define BELFRY_SCHED_STATE_H

#include <stddef.h>
#include <sys/queue.h>

#include "base/heap.h"
#include "sched/sched.h"

enum {
	BUCKETS = 32,	/* of a window; one more is kept, of which a part has left the window */
	SAMPLES = 512,	/* the last submissions whose time is kept */
	OTHERS = 16,	/* vGPUs that a vGPU waited for; more than these are not told apart */
	WAIT_LOG = 256, /* entries of sched::wait_log; a power of two */
	/* The least timeslice of vGPUs that are on the GPU together: five context switches of an H200. */
	COMPANY_SLICE_US = 1000,
};

/* How a step of sched_advance() treats a vGPU. */
enum vgpu_attention {
	VGPU_ASLEEP, /* it has had no work for a while: nothing is counted */
	VGPU_PARKED, /* it is awake, and what is counted grows with time alone: see park.c */
	VGPU_HOT,    /* it is awake, and each step looks at it */
};

/* GPU time over the last window, in buckets. */
struct window {
	uint64_t used_ns[BUCKETS + 1];
	uint64_t sum_ns;
	uint64_t number; /* of the newest bucket: its time divided by a bucket's length */
};

/* A point in the log of what waiting vGPUs waited for. */
struct wait_mark {
	uint64_t number; /* of the entry */
	uint64_t ns;	 /* that the entry had at the time */
};

struct sched_vgpu {
	struct sched_share share;
	uint64_t id; /* never used again */
	void *owner;
	LIST_ENTRY(sched_vgpu) in_all;
	LIST_ENTRY(sched_vgpu) in_awake;
	LIST_ENTRY(sched_vgpu) in_hot;
	struct sched_vgpu *next_in_domain; /* a ring; one without a domain is alone in its own */
	enum vgpu_attention attention;
	uint64_t awake_number; /* the order of sched::awake: the highest number comes first */

	/* While it is parked: its places in the queues, and up to when it was charged. */
	struct bf_heap_node waiter, latency_waiter; /* sched::waiters, sched::latency_waiters */
	struct bf_heap_node spent;		    /* sched::spent */
	uint64_t unspent_ns;
	uint64_t parked_ns, parked_policy_ns;
	double parked_owed_ns;
	struct wait_mark wait_mark;

	/* Its state. */
	bool is_present;  /* programs run on it */
	bool is_waiting;  /* it has work behind its closed gate */
	bool is_running;  /* it has work on the GPU, stopped or not */
	bool is_active;	  /* it had work in the last round, as of the last settle */
	bool is_held;	  /* by the operator */
	bool is_open;	  /* its gate, as ordered */
	bool is_stopped;  /* its work on the GPU was stopped */
	bool is_stopping; /* the order to stop was given and not yet carried out */
	bool is_resuming; /* likewise, the order to open a stopped gate */
	bool is_spent;	  /* it has used what its limit allows, and may not run */
	bool is_rider, is_over_ride;
	uint64_t rides_since_ns;
	uint64_t drain_ns;  /* after its gate was closed: until then running work may end by itself */
	uint64_t active_ns; /* when it last had work */
	uint64_t wants_ns;  /* since when it has had work without a break */
	uint64_t idle_ns;   /* since when it has had no work */
	uint64_t gap_ns;    /* how long it usually has no work, smoothed */
	enum sched_state state;
	uint64_t since_ns; /* in this state */

	/* Its accounts. `pass` grows by the time for which it held the token, divided by its part of what is shared at the time:
	 * by about a round for every slice. The vGPU with the least pass is next. */
	int64_t pass;
	double owed_ns; /* of its request, for time in which it wanted the GPU and others held the token; never below 0 */
	uint64_t charged_ns; /* for the token, in the current step */
	uint64_t starves_ns; /* for so long it might have had the token, and has not, without a break */
	uint64_t slice_ns;
	int64_t slice_left_ns;
	bool is_slice_proposed;		     /* by a policy */
	uint64_t granted_ns, granted_gpu_ns; /* when it got the token, and its gpu_ns at that time */
	uint64_t woke_gpu_ns, burst_ns;	     /* gpu_ns when its work began; GPU time of a usual burst */
	uint64_t deadline_ns;
	struct window window;
	uint64_t window_from_ns; /* GPU time is in the window since then */
	int64_t budget_ns;	 /* GPU time that its limit allows now; below 0: it used too much */
	uint64_t earned_ns;	 /* up to when the budget was filled */
	uint64_t earned_rest;	 /* and millionths of a nanosecond in addition */
	uint64_t gpu_ns, held_ns, alone_ns, waited_ns, limited_ns, stopped_ns;
	uint64_t grants, expiries, given_back, stops;
	struct sched_waited waited[OTHERS];
	const struct sched *sched;

	/* Its submissions. */
	uint64_t took_ns[SAMPLES], sorted_ns[SAMPLES];
	uint64_t samples, missed, judged_samples, seen_samples;
	uint64_t tail_ns, p50_ns; /* as of seen_samples */

	/* How busy it keeps the SMs and the memory bus while it runs, of 1; and its gpu_ns at the last measurement. */
	double sm, mem, doubt;
	uint64_t busy_gpu_ns;
	bool has_busy;

	struct sched_policy policy; /* for this vGPU; no hooks: none */
	struct belfry_tick tick;    /* the last proposal for it, clamped */
	uint32_t picked_units;	    /* proposed when it was last picked; 0: none were */
	uint16_t units, units_all;  /* of SMs: see belfry_vgpu */

	/* Its turns in hardware, as ordered. */
	uint64_t timeslice_us;
	int interleave;
};

struct sched {
	struct sched_options options;
	LIST_HEAD(, sched_vgpu) all;
	LIST_HEAD(, sched_vgpu) awake; /* vGPUs that are not asleep, the last to wake first */
	LIST_HEAD(, sched_vgpu) hot;   /* in the order of `awake` */
	uint64_t awake_count;	       /* how often a vGPU woke */

	/* The parked vGPUs that may have the token, by their pass; and those of them that are of the class latency. */
	struct bf_heap waiters, latency_waiters;
	struct bf_heap spent; /* the parked vGPUs that are spent, by their unspent_ns */
	/* What every parked vGPU that waits is charged: see park.c. */
	uint64_t policy_ns; /* time in which a policy could have given it the token */
	double owed_ns;	    /* time of which it is owed its request */
	/* What waiting vGPUs waited for: the last entry is number wait_count - 1. */
	struct sched_waited wait_log[WAIT_LOG];
	uint64_t wait_count;
	uint32_t promised_ppm;
	unsigned active_count;
	uint64_t now_ns;
	uint64_t any_held_ns;	    /* at least one vGPU was on the GPU */
	struct sched_vgpu *holder;  /* of the token; others of its domain share it */
	struct sched_vgpu *elected; /* the next holder, while others leave the GPU; NULL: not decided */
	struct sched_vgpu *last;    /* the last holder */
	uint64_t elected_slice_ns;
	/* The only vGPU that may share the token with the elected one, and with the holder; 0: all of the domain. */
	uint64_t elected_beside_id, beside_id;
	bool is_elected_slice_proposed;
	bool is_special;      /* an active vGPU has a request, a limit or the class latency */
	bool is_free_for_all; /* there is no token: the hardware's turns divide the time */
	bool may_cut;	      /* since the last question whether to stop the holder, something has happened */
	bool cuts_later;      /* a stop was proposed, and is allowed after slice_min_ns of the slice */
	bool was_cut_early;   /* the last holder was stopped before slice_min_ns of its slice */
	bool are_turns_due;   /* an order about turns in hardware may be due */
	bool may_guests_ride; /* vGPUs may ride because a policy proposes it */
	int64_t pass;	      /* the least pass of all that take tokens and want the GPU; never falls */
	double rest_weight;   /* of each vGPU without a request */
	double extra_part;    /* the part of the weights proposed above the least weights that is available */
	double line;	      /* the sum of the weights of the active vGPUs that do not ride */
	double owed_part;     /* see settle_owed() */
	struct window rode, had_riders; /* GPU time of riders, and when they had work; without guests */
	double riders_take;		/* GPU time of riders, of the time for which they have work */
	uint64_t settle_ns;		/* when to decide again which vGPUs are active and which ride */
	uint64_t handovers;

	struct sched_policy policy; /* no hooks: the built-in policy */
	struct sched_watch watch;
	uint64_t busy_told_ns;
	uint64_t next_id;
	struct belfry_vgpu *table;   /* the table of the last decision that had one */
	struct sched_vgpu **entries; /* the vGPUs of its entries */
	uint32_t told_count;	     /* entries of the table that sched_ask() filled in */
	unsigned ladder;	     /* the step of ladder_us: the timeslice beside riders, see ride.c */
	size_t count, room;	     /* vGPUs; entries of the table */
};

/* window.c */
uint64_t window_bucket_ns(uint64_t length_ns);
void window_add(struct window *window, uint64_t length_ns, uint64_t now_ns, uint64_t used_ns);
uint64_t window_used(const struct window *window, uint64_t length_ns, uint64_t now_ns);
/* When the sum will have fallen to to_ns, if nothing is used until then; later than now. */
uint64_t window_falls_ns(const struct window *window, uint64_t length_ns, uint64_t now_ns, uint64_t to_ns);

/* account.c */
/* Brings the accounts of all vGPUs up to now. */
void sched_advance(struct sched *sched, uint64_t now_ns);
void vgpu_set_state(struct sched *sched, struct sched_vgpu *vgpu);
void vgpu_charge(struct sched *sched, struct sched_vgpu *vgpu, uint64_t gpu_ns);

/* limit.c */
bool vgpu_has_limit(const struct sched_vgpu *vgpu);
void vgpu_earn(const struct sched *sched, struct sched_vgpu *vgpu);
/* After a change of its limit. */
void vgpu_limit_changed(const struct sched *sched, struct sched_vgpu *vgpu, uint32_t was_ppm);
/* GPU time that its limit allows now; SCHED_NEVER: it has no limit. */
uint64_t vgpu_allowance(const struct sched *sched, const struct sched_vgpu *vgpu);
/* Sets is_spent. */
void vgpu_update_spent(const struct sched *sched, struct sched_vgpu *vgpu);
/* When a running vGPU will be spent; when a spent one may run again. */
uint64_t vgpu_spent_ns(const struct sched *sched, const struct sched_vgpu *vgpu);
uint64_t vgpu_unspent_ns(const struct sched *sched, const struct sched_vgpu *vgpu);

/* weight.c */
/* After a change of what vGPUs are active, or of a request. */
void sched_update_weights(struct sched *sched);
/* Its weight by its share alone; with what a policy proposes. */
double vgpu_claim(const struct sched *sched, const struct sched_vgpu *vgpu);
double vgpu_weight(const struct sched *sched, const struct sched_vgpu *vgpu);
/* Sets sched::line, after a change of what vGPUs are in it, or of their weights. */
void sched_update_line(struct sched *sched);
/* Its part of sched::line. */
double vgpu_part(const struct sched *sched, const struct sched_vgpu *vgpu);
uint32_t part_ppm(double part);
/* Caps the lead of a vGPU at two slices: it does not pay for more time that a policy gave it. */
void sched_cap_passes(struct sched *sched);
uint64_t vgpu_slice(const struct sched *sched, const struct sched_vgpu *vgpu);

/* ask.c: decisions of policies. Each function calls the hook of a policy, if there is one, and clamps its proposal. */
/* The next holder; NULL: no vGPU may have the token. */
struct sched_vgpu *ask_pick(struct sched *sched, uint64_t *slice_ns, bool *is_proposed, uint64_t *beside_id);
bool ask_preempt(struct sched *sched);
void ask_enqueue(struct sched *sched, struct sched_vgpu *vgpu);
void ask_ticks(struct sched *sched);
void tell_running(struct sched *sched, struct sched_vgpu *vgpu);
void tell_stopping(struct sched *sched, struct sched_vgpu *vgpu, enum belfry_why why);
void tell_missed(struct sched *sched, struct sched_vgpu *vgpu, uint64_t took_ns);
/* The policy is not called any more, for this reason. */
void sched_fail_policy(struct sched *sched, const char *why);

/* table.c */
int table_reserve(struct sched *sched, size_t count);
/* The head of a context, for a decision without a table. */
struct belfry_head table_head(const struct sched *sched, enum belfry_hook hook, size_t size);
/* Fills in sched::table. head.vgpu is the entry of `about`. */
struct belfry_head table_fill(struct sched *sched, enum belfry_hook hook, size_t size,
			      const struct sched_vgpu *about);
/* BELFRY_NOBODY: the vGPU is not in the table, or is NULL. */
uint32_t table_entry(const struct sched *sched, uint32_t count, const struct sched_vgpu *vgpu);

/* fair.c */
bool fair_is_due(const struct belfry_head *head, const struct belfry_vgpu *vgpu);
uint64_t fair_slice(const struct belfry_head *head, uint32_t part_ppm);

/* clamp.c */
/* The most that is owed to it at a time. */
double vgpu_owed_most(const struct sched *sched, const struct sched_vgpu *vgpu);
/* What is owed to it, of what may be owed; more than 1: it is overdue, and picked before all others. */
double vgpu_owed_part(const struct sched *sched, const struct sched_vgpu *vgpu);
bool vgpu_is_overdue(const struct sched *sched, const struct sched_vgpu *vgpu);

/* park.c: which vGPUs a step looks at */
void vgpu_awaken(struct sched *sched, struct sched_vgpu *vgpu);
void vgpu_put_to_sleep(struct sched *sched, struct sched_vgpu *vgpu);
/* Call before a change to a vGPU. A vGPU that is asleep stays asleep. */
void vgpu_unpark(struct sched *sched, struct sched_vgpu *vgpu);
void sched_unpark_all(struct sched *sched);
/* Unparks the spent vGPUs that may run again at that time. */
void sched_unpark_due(struct sched *sched, uint64_t now_ns);
/* Parks the hot vGPUs that fulfil the conditions. */
void sched_park(struct sched *sched);
/* Brings the accounts of a vGPU up to now. */
void vgpu_catch_up(struct sched *sched, struct sched_vgpu *vgpu);
/* The same, without a change to the vGPU. */
uint64_t vgpu_waited_ns(const struct sched *sched, const struct sched_vgpu *vgpu);
uint64_t vgpu_limited_ns(const struct sched *sched, const struct sched_vgpu *vgpu);
uint64_t vgpu_stopped_ns(const struct sched *sched, const struct sched_vgpu *vgpu);
double vgpu_owed_ns(const struct sched *sched, const struct sched_vgpu *vgpu);

/* queue.c: the vGPUs that may have the token */
int queue_reserve(struct sched *sched, size_t count);
void queue_init(struct sched *sched);
void queue_free(struct sched *sched);
void queue_add(struct sched *sched, struct sched_vgpu *vgpu);
void queue_remove(struct sched *sched, struct sched_vgpu *vgpu);
void vgpu_set_pass(struct sched *sched, struct sched_vgpu *vgpu, int64_t pass);
/* Of the parked vGPUs that are spent, the first that may run again, and when; NULL and SCHED_NEVER: none is spent. */
struct sched_vgpu *queue_first_spent(const struct sched *sched);
uint64_t queue_unspent_ns(const struct sched *sched);
/* Of the parked vGPUs, the one with the least pass; NULL: none waits. */
struct sched_vgpu *queue_first(const struct sched *sched);
/* Which vGPU sched_fair_pick() picks from a table of all vGPUs; NULL: none may have the token. */
struct sched_vgpu *queue_pick(const struct sched *sched, const struct belfry_head *head);
/* Whether the built-in policy prefers it to vGPUs with less pass. */
bool queue_is_due(const struct sched *sched, const struct belfry_head *head, const struct sched_vgpu *vgpu);

/* waited.c: which vGPU waited for which */
void waited_note(struct sched_vgpu *vgpu, const struct sched_vgpu *other, uint64_t ns);
/* All parked vGPUs that wait have waited for `other`. */
void wait_log_add(struct sched *sched, const struct sched_vgpu *other, uint64_t ns);
struct wait_mark wait_log_mark(const struct sched *sched);
/* Notes what the log has since the vGPU's mark. */
void wait_log_replay(const struct sched *sched, struct sched_vgpu *vgpu);
void wait_log_forget(struct sched *sched, const struct sched_vgpu *other);

/* ride.c */
void sched_settle(struct sched *sched);
bool sched_next_slice(struct sched *sched, struct sched_order *order);

/* token.c */
/* Sets the holder's slice to the length it would have if it began now; the time since its beginning counts. */
void sched_update_slice(struct sched *sched);
bool vgpu_may_have_token(const struct sched *sched, const struct sched_vgpu *vgpu);
bool vgpu_is_with_holder(const struct sched *sched, const struct sched_vgpu *vgpu);
bool vgpu_belongs_open(const struct sched *sched, const struct sched_vgpu *vgpu);
bool sched_next_token(struct sched *sched, struct sched_order *order);
uint64_t sched_token_wake_ns(const struct sched *sched);

/* busy.c: a part of 1 as a figure for reports and policies */
uint32_t busy_ppm(const struct sched_vgpu *vgpu, double part);

/* latency.c */
uint64_t vgpu_percentile(const struct sched_vgpu *vgpu, uint32_t ppm);
/* At the objective's percentile, or p99. */
uint64_t vgpu_tail(const struct sched_vgpu *vgpu);
/* Sets tail_ns and p50_ns, if there are new samples. */
void vgpu_update_tail(struct sched_vgpu *vgpu);

static inline bool vgpu_wants(const struct sched_vgpu *vgpu)
{
	return (vgpu->is_waiting || vgpu->is_running) && !vgpu->is_held;
}

/* Its request, of 1. */
static inline double vgpu_request(const struct sched_vgpu *vgpu)
{
	return (double)vgpu->share.request_ppm / SCHED_WHOLE_PPM;
}

/* Its request, of a whole window. */
static inline uint64_t vgpu_window_promised_ns(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return (uint64_t)((double)sched->options.window_ns * vgpu->share.request_ppm / SCHED_WHOLE_PPM);
}

/* It is parked and waits for others, not for its own limit. */
static inline bool vgpu_is_parked_waiter(const struct sched_vgpu *vgpu)
{
	return vgpu->attention == VGPU_PARKED && vgpu_wants(vgpu) && !vgpu->is_spent;
}

/* Its work is on the GPU, or has turns on it. */
static inline bool vgpu_is_on(const struct sched_vgpu *vgpu)
{
	return vgpu->is_running && !vgpu->is_stopped && !vgpu->is_held;
}

/* Its gate is closed, and its work is still on the GPU. */
static inline bool vgpu_is_draining(const struct sched_vgpu *vgpu)
{
	return vgpu_is_on(vgpu) && !vgpu->is_open;
}

/* It rides because a policy proposes it. */
static inline bool vgpu_is_guest(const struct sched_vgpu *vgpu)
{
	return vgpu->is_rider && vgpu->share.class != SCHED_LATENCY;
}

/* Otherwise its gate is open without a token: it rides, or there is no token. */
static inline bool vgpu_takes_token(const struct sched *sched, const struct sched_vgpu *vgpu)
{
	return !sched->is_free_for_all && !vgpu->is_rider;
}

#endif

/* SPDX-License-Identifier: MIT */
/* What a policy compiles against: the hooks, what each is told, and what it may propose.
 *
 * A policy is one eBPF object. Each of its programs is a hook, in a section named belfry/<hook>, and all are optional:
 * where there is none the built-in policy decides. A hook gets one context, reads what it is told, writes what it
 * proposes, and returns
 *
 *	BELFRY_PROPOSE	what it has written is its proposal
 *	BELFRY_DEFAULT	the built-in policy is to decide this time
 *
 * and anything else is an error, which costs the policy its place. So does running past its budget again and again, or
 * leaving somebody without the GPU for too long. What is proposed is checked: nobody gets past a limit, nobody loses what
 * was promised to him, whatever a policy says (docs/policies.md).
 *
 * This is an ABI: what is here keeps its place, and what is added is added at the end, with a new number. Times are in
 * nanoseconds of CLOCK_MONOTONIC, shares in millionths. */
#ifndef BELFRY_POLICY_H
#define BELFRY_POLICY_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* "class" is a word of C++. */
#ifdef __cplusplus
#define BELFRY_CLASS vgpu_class
#else
#define BELFRY_CLASS class
#endif

#define BELFRY_POLICY_MAGIC 0xbe1fb0f0u
#define BELFRY_POLICY_ABI 1u

#define BELFRY_VGPUS_MAX 256u	  /* entries of the table belfry_vgpus */
#define BELFRY_NOBODY 0xffffffffu /* no entry of the table */
#define BELFRY_WHOLE_PPM 1000000u
#define BELFRY_NAME_SIZE 64

enum { BELFRY_PROPOSE = 0, BELFRY_DEFAULT = 1 };

enum belfry_hook {
	BELFRY_HOOK_INIT,      /* belfry_init: the policy was loaded */
	BELFRY_HOOK_EXIT,      /* belfry_init: it is about to go */
	BELFRY_HOOK_DUMP,      /* belfry_dump: say something for people */
	BELFRY_HOOK_VGPU_INIT, /* belfry_vgpu_init: a vGPU is there; all of them again when a policy is loaded */
	BELFRY_HOOK_VGPU_EXIT, /* belfry_vgpu_init: it is gone */
	BELFRY_HOOK_VGPU_SET,  /* belfry_vgpu_init: it was changed */
	BELFRY_HOOK_CTX_INIT,  /* belfry_ctx_init: a program makes a GPU context */
	BELFRY_HOOK_ENQUEUE,   /* belfry_enqueue: a vGPU has work and its gate is closed */
	BELFRY_HOOK_PICK,      /* belfry_pick: the GPU is free or a slice has ended: who is next, how long */
	BELFRY_HOOK_RUNNING,   /* belfry_running: it has the token now */
	BELFRY_HOOK_STOPPING,  /* belfry_running: it has it no more, and this is what it used */
	BELFRY_HOOK_TICK,      /* belfry_tick: four times a round, for each vGPU with work */
	BELFRY_HOOK_PREEMPT,   /* belfry_preempt: somebody waits: is the holder to be stopped for it? */
	BELFRY_HOOK_MEM_ALLOC, /* belfry_mem_alloc: a program asks for memory */
	BELFRY_HOOK_MEM_PRESSURE, /* belfry_mem_pressure: somebody needs room: whose limit is to be lowered? */
	BELFRY_HOOK_OBJECTIVE_MISSED, /* belfry_objective: a submission took longer than the objective */
	BELFRY_HOOK_FAULT,	      /* belfry_fault: a fault on the GPU ended a program's context */
	BELFRY_HOOK_MODULE_LOAD,      /* reserved for probes: not called yet */
	BELFRY_HOOKS,
};

enum belfry_class { BELFRY_THROUGHPUT, BELFRY_LATENCY };

enum belfry_vgpu_flag {
	BELFRY_WAITS = 1 << 0, /* it has work behind its closed gate */
	BELFRY_RUNS = 1 << 1,  /* it has work on the GPU */
	BELFRY_MAY_HAVE =
		1
		<< 2, /* it may have the token now: it wants it, is within its limit, and nobody holds it back */
	BELFRY_HOLDS = 1 << 3, /* it has the token */
	BELFRY_RIDES =
		1 << 4, /* its gate is open without a token, and its turns on the hardware come first */
	BELFRY_SPENT = 1 << 5,	 /* it has had what its limit allows */
	BELFRY_OVERDUE = 1 << 6, /* so much is owed to it that nobody else can be picked before it */
};

/* What is known of a vGPU, at the moment of the decision. The table belfry_vgpus has one entry for each that has or lately
 * had work, in no order; an entry's place is good for this one call, its id for ever. */
struct belfry_vgpu {
	__u64 id;
	__u32 flags;	    /* enum belfry_vgpu_flag */
	__u32 BELFRY_CLASS; /* class: enum belfry_class */
	__u32 request_ppm;  /* of the GPU's time, promised */
	__u32 limit_ppm;    /* never more over a window */
	__u32 weight_ppm;   /* its request, or its part of what nobody requested */
	__u32 part_ppm;	    /* its part of what those who take tokens share now */
	__u32 domain;	    /* those of one number may have the token together; 0: alone */
	__u32 percentile_ppm;
	__u64 objective_ns; /* that percentile of its submissions is to take no longer; 0: no objective */
	__u64 tail_ns;	    /* that percentile (or p99) of the last ones, as of the last tick */
	__u64 p50_ns;	    /* their median */
	__u64 samples;	    /* submissions measured, ever */
	__u64 missed;	    /* of them longer than the objective */
	__s64 pass_ns;	    /* time it had, over its part: whoever has the least is furthest behind */
	__s64 owed_ns;	    /* of what was promised to it, while it wanted it */
	__u64 gpu_ns;	    /* GPU time, ever */
	__u64 window_used_ns;
	__u64 window_promised_ns; /* its request, of a whole window */
	__u64 allowance_ns;	  /* until its limit ends it; ~0: it has none */
	__u64 slice_ns;		  /* its last slice */
	__s64 slice_left_ns;	  /* of it, of the holder */
	__u64 wants_since_ns;	  /* it has had work without a break; 0: it has none */
	__u64 deadline_ns; /* as proposed by the enqueue hook, or since when it wants plus the objective; 0: none */
	__u64 gap_ns;	    /* how long it usually has no work between two bursts */
	__u64 burst_ns;	    /* how much GPU time it usually uses between two breaks */
	__u64 waited_ns;    /* for others, ever */
	__u64 grants;	    /* tokens, ever */
	__u32 sm_ppm;	    /* how busy it keeps the SMs while it runs, if that was measured; 0: unknown */
	__u32 mem_ppm;	    /* the memory bus, likewise */
	__u64 timeslice_us; /* on the hardware, as ordered; 0: not */
	__s32 interleave;   /* likewise; -1: not */
	__u32 reserved;
};

/* Every context begins with this. */
struct belfry_head {
	__u64 now_ns;
	__u32 hook;  /* enum belfry_hook */
	__u32 size;  /* of the whole context */
	__u32 count; /* entries of belfry_vgpus that are in use */
	__u32 vgpu;  /* the one this is about, or BELFRY_NOBODY */
	__u64 window_ns, round_ns, slice_min_ns;
	__s64 pass_ns; /* of whoever is furthest behind */
};

struct belfry_init {
	struct belfry_head head;
};

struct belfry_dump {
	struct belfry_head head;
	char text[512]; /* proposes: what belfry policy dump shows */
};

struct belfry_vgpu_init {
	struct belfry_head head;
	__u64 id;
	char name[BELFRY_NAME_SIZE];
	__u32 request_ppm, limit_ppm, BELFRY_CLASS, percentile_ppm;
	__u64 objective_ns, mem_bytes;
};

struct belfry_ctx_init {
	struct belfry_head head;
	__u64 id;
	__u32 pid;
	__u32 contexts;	    /* channel groups that the vGPU has already */
	__u64 timeslice_us; /* proposes; 0: as it would be */
	__s32 interleave;   /* proposes 0, 1 or 2; -1: as it would be */
	__u32 refuse;	    /* proposes: not 0: the program is told that there is no room */
};

struct belfry_enqueue {
	struct belfry_head head;
	__u64 deadline_ns; /* proposes: see belfry_vgpu */
};

struct belfry_pick {
	struct belfry_head head;
	__u32 last;   /* who had the token last, or BELFRY_NOBODY */
	__u32 choice; /* proposes: an entry with BELFRY_MAY_HAVE; BELFRY_NOBODY: whom the built-in would */
	__u64 slice_ns; /* proposes: for how long, from slice_min_ns to round_ns; 0: as long as the built-in would */
	__u32 units;  /* proposes: on how many units of SMs; 0: on all */
	__u32 beside; /* proposes: who may run beside it, of its domain; BELFRY_NOBODY: whoever may */
};

struct belfry_running {
	struct belfry_head head;
	__u64 slice_ns; /* what it has got */
	__u64 held_ns;	/* STOPPING: for how long it had the token */
	__u64 gpu_ns;	/* STOPPING: GPU time used meanwhile, as far as it is known by now */
	__u32 why;	/* STOPPING: enum belfry_why */
	__u32 reserved;
};
enum belfry_why { BELFRY_SLICE_ENDED, BELFRY_GAVE_BACK, BELFRY_WAS_CUT };

struct belfry_tick {
	struct belfry_head head;
	__u64 timeslice_us; /* proposes: its turns on the hardware; 0: as the built-in would */
	__s32 interleave;   /* proposes 0, 1 or 2; -1: as the built-in would */
	__s32 ride;	    /* proposes: 1: needs no token, 0: takes tokens, -1: as the built-in would */
	__u32 weight_ppm; /* proposes: its weight in pass_ns and part_ppm, never below its request; 0: as it is */
	__u32 reserved;
};

struct belfry_preempt {
	struct belfry_head head; /* vgpu: who waits */
	__u32 holder;
	__u32 stop; /* proposes: not 0: it is stopped at once, and the next is picked; 0: it is left alone */
};

enum belfry_mem_verdict { BELFRY_MEM_ALLOW, BELFRY_MEM_REFUSE, BELFRY_MEM_MAKE_ROOM };
struct belfry_mem_alloc {
	struct belfry_head head; /* no table: count is 0 */
	__u64 id;
	__u32 pid;
	__u32 verdict; /* proposes: enum belfry_mem_verdict. What is over the limit is refused whatever it says */
	__u64 bytes;
	__u64 used_bytes, most_bytes, limit_bytes;
	__u64 gpu_bytes; /* of the whole GPU */
};

struct belfry_mem_pressure {
	struct belfry_head head; /* vgpu: who needs room */
	__u64 bytes;		 /* how much */
	__u32 victim;		 /* proposes: an entry whose limit is lowered, not below what it uses */
	__u32 reserved;
};

struct belfry_objective {
	struct belfry_head head;
	__u64 took_ns, objective_ns;
};

struct belfry_fault {
	struct belfry_head head;
	__u64 id;
	__u32 pid;
	__u32 code; /* as the driver calls it: an Xid, like 31 for an address that is not there */
};

/* What every policy object says of itself; made by BELFRY_POLICY. */
struct belfry_policy {
	__u32 magic, abi;
	__u32 vgpu_size, head_size;
	__u32 pick_size, tick_size;
	char name[BELFRY_NAME_SIZE];
	char what[128];
};

#ifdef __bpf__
#ifndef __VMLINUX_H__
#include <linux/bpf.h>
#endif
#include <bpf/bpf_helpers.h>

#define BELFRY_POLICY(policy_name, policy_what) \
	const struct belfry_policy belfry_policy SEC(".rodata.belfry") = { BELFRY_POLICY_MAGIC, \
									   BELFRY_POLICY_ABI, \
									   sizeof(struct belfry_vgpu), \
									   sizeof(struct belfry_head), \
									   sizeof(struct belfry_pick), \
									   sizeof(struct belfry_tick), \
									   policy_name, \
									   policy_what }; \
	char LICENSE[] SEC("license") = "Dual MIT/GPL"

#define BELFRY_HOOK(hook) SEC("belfry/" #hook)

/* For reading. It is written anew before each call, and nobody reads it back: the kernel maps no table writable that is
 * closed to programs (BPF_F_RDONLY_PROG), so what a policy writes into it is seen by that policy alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BELFRY_VGPUS_MAX);
	__type(key, __u32);
	__type(value, struct belfry_vgpu);
} belfry_vgpus SEC(".maps");

/* An entry of the table; NULL if there is none. */
static __always_inline const struct belfry_vgpu *belfry_vgpu(__u32 entry)
{
	return bpf_map_lookup_elem(&belfry_vgpus, &entry);
}

/* Call visit(entry, data) for each entry in use, until one returns not 0. Its type is long (*)(__u64 or __u32, void *):
 * see bpf_loop in bpf-helpers(7). */
#define belfry_each(head, visit, data) bpf_loop((head)->count, visit, data, 0)

/* Whether the built-in lets it go before others: latency that has not had its promise, but never a whole round ahead of the
 * last in line. */
static __always_inline int belfry_is_due(const struct belfry_vgpu *vgpu, const struct belfry_head *head)
{
	__u64 ahead_ns = (__u64)vgpu->pass_ns - (__u64)head->pass_ns;

	return vgpu->class == BELFRY_LATENCY &&
	       (vgpu->pass_ns < head->pass_ns || ahead_ns < head->round_ns) &&
	       vgpu->window_used_ns < vgpu->window_promised_ns;
}

struct belfry_search {
	struct belfry_head head;
	__u32 entry;
	int is_due;
	__s64 pass_ns;
};

static inline long belfry_compare(__u32 entry, struct belfry_search *search)
{
	const struct belfry_vgpu *vgpu = belfry_vgpu(entry);
	int is_due;

	if (!vgpu || !(vgpu->flags & BELFRY_MAY_HAVE))
		return 0;
	is_due = belfry_is_due(vgpu, &search->head);
	if (search->entry != BELFRY_NOBODY &&
	    (is_due != search->is_due ? !is_due : vgpu->pass_ns >= search->pass_ns))
		return 0;
	search->entry = entry;
	search->is_due = is_due;
	search->pass_ns = vgpu->pass_ns;
	return 0;
}

/* Whom the built-in would pick: of those who are due, or else of all, whoever is furthest behind. BELFRY_NOBODY if nobody
 * may have the token. */
static __always_inline __u32 belfry_next(const struct belfry_head *head)
{
	struct belfry_search search = { .head = *head, .entry = BELFRY_NOBODY };

	belfry_each(head, belfry_compare, &search);
	return search.entry;
}
#endif

#endif

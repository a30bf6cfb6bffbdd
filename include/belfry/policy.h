/* SPDX-License-Identifier: MIT */
/* The ABI of policies: the hooks, the input of each hook, and what it may propose.
 *
 * A policy is one eBPF object. Each of its programs is a hook, in a section named belfry/<hook>. All hooks
 * are optional: without one the built-in policy decides. A hook receives one context, reads its input fields,
 * writes its proposal into the fields marked "proposes", and returns
 *
 *	BELFRY_PROPOSE	use the proposal
 *	BELFRY_DEFAULT	let the built-in policy decide this time
 *
 * Any other value is an error, after which the policy is unloaded. A policy is also unloaded if it exceeds
 * its budget repeatedly, or leaves a vGPU without the GPU for too long. Proposals are checked: no vGPU
 * exceeds its limit or loses its request, whatever a policy proposes (docs/policies.md).
 *
 * This ABI is stable: existing fields keep their offsets, and new ones are added at the end, with a new ABI
 * number. Times are in nanoseconds of CLOCK_MONOTONIC, shares in parts per million. */
#ifndef BELFRY_POLICY_H
#define BELFRY_POLICY_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* "class" is a keyword of C++. */
#ifdef __cplusplus
#define BELFRY_CLASS vgpu_class
#else
#define BELFRY_CLASS class
#endif

#define BELFRY_POLICY_MAGIC 0xbe1fb0f0u
#define BELFRY_POLICY_ABI 1u

#define BELFRY_VGPUS_MAX 256u	  /* size of the table belfry_vgpus */
#define BELFRY_NOBODY 0xffffffffu /* no entry of the table */
#define BELFRY_WHOLE_PPM 1000000u
#define BELFRY_NAME_SIZE 64

enum { BELFRY_PROPOSE = 0, BELFRY_DEFAULT = 1 };

enum belfry_hook {
	BELFRY_HOOK_INIT,      /* belfry_init: the policy was loaded */
	BELFRY_HOOK_EXIT,      /* belfry_init: the policy is about to be unloaded */
	BELFRY_HOOK_DUMP,      /* belfry_dump: write text for the user */
	BELFRY_HOOK_VGPU_INIT, /* belfry_vgpu_init: a vGPU was created; all vGPUs when a policy is loaded */
	BELFRY_HOOK_VGPU_EXIT, /* belfry_vgpu_init: the vGPU was removed */
	BELFRY_HOOK_VGPU_SET,  /* belfry_vgpu_init: the vGPU was changed */
	BELFRY_HOOK_CTX_INIT,  /* belfry_ctx_init: a program creates a GPU context */
	BELFRY_HOOK_ENQUEUE,   /* belfry_enqueue: a vGPU has work and its gate is closed */
	BELFRY_HOOK_PICK,      /* belfry_pick: the GPU is free or a slice has ended: pick a vGPU */
	BELFRY_HOOK_RUNNING,   /* belfry_running: the vGPU received the token */
	BELFRY_HOOK_STOPPING,  /* belfry_running: the vGPU lost the token; says what it used */
	BELFRY_HOOK_TICK,      /* belfry_tick: four times a round, for each vGPU with work */
	BELFRY_HOOK_PREEMPT,   /* belfry_preempt: a vGPU waits: stop the holder of the token? */
	BELFRY_HOOK_MEM_ALLOC, /* belfry_mem_alloc: a program allocates memory */
	BELFRY_HOOK_MEM_PRESSURE,     /* belfry_mem_pressure: a vGPU needs memory: choose a limit to lower */
	BELFRY_HOOK_OBJECTIVE_MISSED, /* belfry_objective: a submission took longer than the objective */
	BELFRY_HOOK_FAULT,	      /* belfry_fault: a GPU fault ended a program's context */
	BELFRY_HOOK_MODULE_LOAD,      /* belfry_module_load: a program has loaded GPU code */
	BELFRY_HOOKS,
};

enum belfry_class { BELFRY_THROUGHPUT, BELFRY_LATENCY };

enum belfry_vgpu_flag {
	BELFRY_WAITS = 1 << 0,	  /* has work behind its closed gate */
	BELFRY_RUNS = 1 << 1,	  /* has work on the GPU */
	BELFRY_MAY_HAVE = 1 << 2, /* may get the token: has work, is within its limit, is not held back */
	BELFRY_HOLDS = 1 << 3,	  /* has the token */
	BELFRY_RIDES = 1 << 4,	  /* its gate is open without a token, and it runs first on the hardware */
	BELFRY_SPENT = 1 << 5,	  /* has used up its limit */
	BELFRY_OVERDUE = 1 << 6,  /* is owed so much that no other vGPU can be picked before it */
};

/* The state of a vGPU at the time of the call. The table belfry_vgpus has one entry for each vGPU that has or
 * recently had work, in no order. An entry's index is valid for one call, its id always. */
struct belfry_vgpu {
	__u64 id;
	__u32 flags;	    /* enum belfry_vgpu_flag */
	__u32 BELFRY_CLASS; /* class: enum belfry_class */
	__u32 request_ppm;  /* requested share of GPU time */
	__u32 limit_ppm;    /* maximum share over a window */
	__u32 weight_ppm;   /* its request, or its part of the unrequested share */
	__u32 part_ppm;	    /* its part of the time that token takers share now */
	__u32 domain;	    /* vGPUs with one number may hold the token together; 0: alone */
	__u32 percentile_ppm;
	__u64 objective_ns; /* limit for that percentile of its submissions; 0: no objective */
	__u64 tail_ns;	    /* that percentile (or p99) of recent submissions, as of the last tick */
	__u64 p50_ns;	    /* median of recent submissions */
	__u64 samples;	    /* submissions measured so far */
	__u64 missed;	    /* submissions that took longer than the objective */
	__s64 pass_ns;	    /* time received over its part; the vGPU with the least is furthest behind */
	__s64 owed_ns;	    /* requested time not received while it had work */
	__u64 gpu_ns;	    /* GPU time so far */
	__u64 window_used_ns;
	__u64 window_promised_ns; /* its request, over a whole window */
	__u64 allowance_ns;	  /* time left until it reaches its limit; ~0: no limit */
	__u64 slice_ns;		  /* its last slice */
	__s64 slice_left_ns;	  /* what is left of the slice, if it has the token */
	__u64 wants_since_ns;	  /* start of its current period with work; 0: it has no work */
	__u64 deadline_ns;	  /* from the enqueue hook, or wants_since_ns + objective_ns; 0: none */
	__u64 gap_ns;		  /* usual time without work between two bursts */
	__u64 burst_ns;		  /* usual GPU time between two breaks */
	__u64 waited_ns;	  /* time spent waiting for other vGPUs so far */
	__u64 grants;		  /* tokens received so far */
	__u32 sm_ppm;		  /* measured use of the SMs while it runs; 0: unknown */
	__u32 mem_ppm;		  /* measured use of the memory bus; 0: unknown */
	__u64 timeslice_us;	  /* hardware timeslice that was set; 0: none */
	__s32 interleave;	  /* hardware interleave level that was set; -1: none */
	__u16 units;		  /* SM units that it may use now; 0: it is in no shared domain */
	__u16 units_all;	  /* SM units of the GPU; 0: likewise, or not known */
};

/* The start of every context. */
struct belfry_head {
	__u64 now_ns;
	__u32 hook;  /* enum belfry_hook */
	__u32 size;  /* of the whole context, in bytes */
	__u32 count; /* entries of belfry_vgpus that are in use */
	__u32 vgpu;  /* the entry this call is about, or BELFRY_NOBODY */
	__u64 window_ns, round_ns, slice_min_ns;
	__s64 pass_ns; /* of the vGPU that is furthest behind */
};

struct belfry_init {
	struct belfry_head head;
};

struct belfry_dump {
	struct belfry_head head;
	char text[512]; /* proposes: the output of belfry policy dump */
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
	__u32 contexts;	    /* channel groups that the vGPU already has */
	__u64 timeslice_us; /* proposes; 0: the default */
	__s32 interleave;   /* proposes 0, 1 or 2; -1: the default */
	__u32 refuse;	    /* proposes: if not 0, creating the context fails: insufficient resources */
};

struct belfry_enqueue {
	struct belfry_head head;
	__u64 deadline_ns; /* proposes: see belfry_vgpu */
};

struct belfry_pick {
	struct belfry_head head;
	__u32 last;	/* the previous holder of the token, or BELFRY_NOBODY */
	__u32 choice;	/* proposes: an entry with BELFRY_MAY_HAVE; BELFRY_NOBODY: the built-in choice */
	__u64 slice_ns; /* proposes: from slice_min_ns to round_ns; 0: the built-in slice */
	__u32 units;	/* proposes: SM units for it, see belfry_tick; 0: the built-in number */
	__u32 beside;	/* proposes: a vGPU of its domain to run beside it; BELFRY_NOBODY: any of them */
};

struct belfry_running {
	struct belfry_head head;
	__u64 slice_ns; /* the slice that was granted */
	__u64 held_ns;	/* STOPPING: how long it had the token */
	__u64 gpu_ns;	/* STOPPING: GPU time used in that time, as far as known */
	__u32 why;	/* STOPPING: enum belfry_why */
	__u32 reserved;
};
enum belfry_why { BELFRY_SLICE_ENDED, BELFRY_GAVE_BACK, BELFRY_WAS_CUT };

struct belfry_tick {
	struct belfry_head head;
	__u64 timeslice_us; /* proposes: hardware timeslice; 0: the built-in one */
	__s32 interleave;   /* proposes 0, 1 or 2; -1: the built-in level */
	__s32 ride;	    /* proposes: 1: needs no token, 0: takes tokens, -1: the built-in choice */
	__u32 weight_ppm;   /* proposes: weight in pass_ns and part_ppm, at least its request; 0: no change */
	/* Proposes: SM units in its shared domain, within its SM request and limit, and as far as the requests of the
	 * others leave units; 0: the built-in number. */
	__u32 units;
};

struct belfry_preempt {
	struct belfry_head head; /* vgpu: the one that waits */
	__u32 holder;
	__u32 stop; /* proposes: not 0: stop the holder now and pick again; 0: let it run */
};

enum belfry_mem_verdict { BELFRY_MEM_ALLOW, BELFRY_MEM_REFUSE, BELFRY_MEM_MAKE_ROOM };
struct belfry_mem_alloc {
	struct belfry_head head; /* no table: count is 0 */
	__u64 id;
	__u32 pid;
	__u32 verdict; /* proposes: enum belfry_mem_verdict; the limit is enforced in any case */
	__u64 bytes;
	__u64 used_bytes, most_bytes, limit_bytes;
	__u64 gpu_bytes; /* of the whole GPU */
};

struct belfry_mem_pressure {
	struct belfry_head head; /* vgpu: the one that needs memory */
	__u64 bytes;		 /* how much it needs */
	__u32 victim;		 /* proposes: an entry whose limit is lowered, at most to what it uses */
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
	__u32 code; /* the driver's Xid, for example 31 for an invalid address */
};

enum belfry_module_flag {
	BELFRY_MODULE_IS_TEXT = 1 << 0,	 /* it has PTX that probes can be inserted into */
	BELFRY_MODULE_IS_WOVEN = 1 << 1, /* it was loaded with a probe */
};
/* As the library in the program reports it: a program can report anything, or nothing. */
struct belfry_module_load {
	struct belfry_head head;
	__u64 id;
	__u32 pid;
	__u32 flags;   /* enum belfry_module_flag */
	__u64 bytes;   /* of the text that was read; 0: not known */
	__u32 kernels; /* in its PTX; 0: not known */
	__u32 lost; /* modules since the call before that were not reported to the policy: there were too many */
};

/* A map of a policy that has what a probe has counted, defined by BELFRY_PROBE_MAP. */
struct belfry_probe_map {
	char map[32];	    /* of the policy */
	char probe[32];	    /* the name of the probe */
	char probe_map[32]; /* the map of the probe */
};

/* The header of a policy object, defined by BELFRY_POLICY. */
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

/* A hash with the entries of a map of a probe, for each vGPU to which a probe of this name is attached. The key is struct
 * MAP_key: the vGPU, and the key of the probe's map (of an array: the index, as __u64). The value has the type that it has in
 * the probe. It is an array of __u64, of which each is summed over the vGPU's processes and, in an SM array, over the SMs.
 * The GPU server copies the map about once a second (docs/policies.md). The program in which the probe runs can write any
 * number there. */
#define BELFRY_PROBE_MAP(name, probe_name, probe_map_name, key_type, value_type, entries) \
	struct name##_key { \
		__u64 vgpu; \
		key_type key; \
	}; \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, entries); \
		__type(key, struct name##_key); \
		__type(value, value_type); \
	} name SEC(".maps"); \
	const struct belfry_probe_map belfry_map_##name SEC(".rodata.belfry_maps") = { #name, probe_name, \
										       probe_map_name }

/* Input only. It is rewritten before each call and never read back. The kernel does not allow user space to
 * map a table writable that is read-only for programs (BPF_F_RDONLY_PROG), so a policy can write to it; only
 * that policy sees the change. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BELFRY_VGPUS_MAX);
	__type(key, __u32);
	__type(value, struct belfry_vgpu);
} belfry_vgpus SEC(".maps");

/* Returns an entry of the table; NULL if there is none. */
static __always_inline const struct belfry_vgpu *belfry_vgpu(__u32 entry)
{
	return bpf_map_lookup_elem(&belfry_vgpus, &entry);
}

/* Calls visit(entry, data) for each entry in use, until a call returns non-zero. The type of visit is long
 * (*)(__u64 or __u32, void *): see bpf_loop in bpf-helpers(7). */
#define belfry_each(head, visit, data) bpf_loop((head)->count, visit, data, 0)

/* Whether the built-in policy prefers this vGPU: it is of class latency and has not received its request, and
 * it is less than a round ahead of the vGPU that is furthest behind. */
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

/* The choice of the built-in policy: the vGPU furthest behind, of those that are due or else of all.
 * BELFRY_NOBODY if no vGPU may get the token. */
static __always_inline __u32 belfry_next(const struct belfry_head *head)
{
	struct belfry_search search = { .head = *head, .entry = BELFRY_NOBODY };

	belfry_each(head, belfry_compare, &search);
	return search.entry;
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
/* The ABI of probes: eBPF programs that run inside GPU kernels.
 *
 * A probe is one eBPF object. Each of its programs is in a section probe/<event>. A program receives one
 * read-only context, keeps results in maps, and returns 0. The kernel's verifier can check the object: every
 * program is valid as BPF_PROG_TYPE_SYSCALL. Belfry translates it to PTX.
 *
 * How often a program runs: a program for kernel_* or block_* runs once for the grid or the block, on one
 * thread, and `lanes` is 1. For all other events, a program that reads none of the fields marked "per thread"
 * runs once for each warp, on its lowest active lane, and `lanes` is the number of threads that it represents.
 * Any other program runs once for each thread, and `lanes` is 1. So a program that counts threads adds
 * `lanes`, not 1.
 *
 * This ABI is versioned: existing fields keep their offsets, and new ones are added at the end, with a new
 * ABI number. docs/probes.md describes the rules for programs and the layout of maps in device memory. */
#ifndef BELFRY_PROBE_H
#define BELFRY_PROBE_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define BELFRY_PROBE_MAGIC 0xbe1fb0f1u
#define BELFRY_PROBE_ABI 2u

enum belfry_probe_event {
	BELFRY_PROBE_KERNEL_ENTER, /* probe/kernel_enter: the first thread of the first block begins */
	BELFRY_PROBE_KERNEL_EXIT,  /* probe/kernel_exit: the last thread of a grid is about to end */
	BELFRY_PROBE_BLOCK_ENTER,  /* probe/block_enter: the first thread of a thread block begins */
	BELFRY_PROBE_BLOCK_EXIT,   /* probe/block_exit: the last thread of a thread block is about to end */
	BELFRY_PROBE_MEM_ACCESS,   /* probe/mem_access: a load, store or atomic of global memory, sampled */
	BELFRY_PROBE_LOOP,	   /* probe/loop: a loop of the kernel repeats */
	BELFRY_PROBE_WARP_ENTER,   /* probe/warp_enter: a warp begins */
	BELFRY_PROBE_WARP_EXIT,	   /* probe/warp_exit: threads of a warp are about to end together */
	BELFRY_PROBE_SECTION,	   /* probe/section: instructions that run one after the other begin */
	BELFRY_PROBE_EVENTS,
};

/* The context. A read of time_ns or clock gives the value at the time of the read. */
struct belfry_probe_ctx {
	__u32 event;	  /* enum belfry_probe_event */
	__u32 lanes;	  /* threads that this run represents */
	__u32 block[3];	  /* index of the thread block: %ctaid */
	__u32 grid[3];	  /* thread blocks of the grid: %nctaid */
	__u32 threads[3]; /* threads of a thread block: %ntid */
	__u32 thread[3];  /* per thread: index in its block: %tid */
	__u32 lane;	  /* per thread: %laneid */
	__u32 warp;	  /* index of the warp in its block */
	__u32 sm;	  /* %smid */
	__u32 site;	  /* the instrumented instruction or loop, counted from 0 in its kernel */
	__u64 launch;	  /* number of the launch */
	__u64 time_ns;	  /* %globaltimer */
	__u64 clock;	  /* %clock64, in cycles of the SM */
	__u64 address;	  /* per thread, mem_access only: the address */
	__u32 size;	  /* mem_access only: bytes of the access of one thread */
	__u32 is_write;	  /* mem_access only: 0: load; 1: store; 2: atomic */
	/* Since ABI 2. */
	__u64 kernel;	    /* which kernel or device function: a hash of its name */
	__u64 begin_ns;	    /* time_ns when this warp began; in device functions 0 */
	__u64 begin_clock;  /* clock when this warp began; in device functions 0 */
	__u64 submitted_ns; /* when the program submitted this launch, or the graph, in time_ns; 0: unknown */
	__u32 instructions; /* section only: instructions of one thread until the section ends */
	__u32 flops;	    /* section only: floating-point operations of one thread */
	__u32 read_bytes;   /* section only: bytes that one thread reads from global memory */
	__u32 write_bytes;  /* section only: bytes that one thread writes to global memory */
	__u32 period;	    /* mem_access only: how many accesses this one stands for */
	__u32 reserved;
};

/* In section .rodata.belfry_probe; BELFRY_PROBE() makes it. */
struct belfry_probe {
	__u32 magic;
	__u32 abi;
	__u32 ctx_bytes;
	__u32 reserved;
};

/* How a dump shows a map: columns of a table, in section .rodata.belfry_print; BELFRY_PRINT() makes it. All
 * columns of one map, in their order, form one table with one row for each entry. Rows whose values are all 0
 * are left out. The values of an SM array are summed over the SMs, unless the table has a column
 * BELFRY_PRINT_SM; then each SM has rows of its own. The rows are sorted by the first column that has
 * BELFRY_PRINT_SORT, the largest first; without one, by key or index. */
enum belfry_print_from {
	BELFRY_PRINT_KEY,   /* of a hash */
	BELFRY_PRINT_VALUE, /* of any map but a ring */
	BELFRY_PRINT_INDEX, /* of an array */
	BELFRY_PRINT_SM,    /* of an SM array: the number of the SM */
};
enum belfry_print_unit {
	BELFRY_PRINT_COUNT,
	BELFRY_PRINT_NS,
	BELFRY_PRINT_CYCLES,
	BELFRY_PRINT_BYTES,
	BELFRY_PRINT_KERNEL,  /* belfry_probe_ctx::kernel, shown as the kernel's name */
	BELFRY_PRINT_ADDRESS, /* shown in hexadecimal */
	BELFRY_PRINT_LOG2_NS, /* a number n, shown as the range [2^n, 2^(n+1)) in ns */
	BELFRY_PRINT_RATIO,   /* with per_bytes: shown with two decimals */
};
enum belfry_print_flags {
	BELFRY_PRINT_SORT = 1,
	BELFRY_PRINT_BAR = 2, /* also a bar, as long as its part of the largest value of the column */
};
struct belfry_print {
	char map[32];
	char title[24];
	__u32 from;  /* enum belfry_print_from */
	__u32 unit;  /* enum belfry_print_unit */
	__u32 flags; /* enum belfry_print_flags */
	/* An unsigned number, little-endian, in the key or the value. */
	__u32 offset;
	__u32 bytes;	  /* 1, 2, 4 or 8; of an index or an SM: 0 */
	__u32 per_offset; /* shown is the number divided by this one, in the value */
	__u32 per_bytes;  /* 0: not divided */
	__u32 shift;	  /* shown is the number << shift: for keys such as address >> 12 */
};

#ifdef __bpf__
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* Once in each object, at file scope. */
#define BELFRY_PROBE() \
	const struct belfry_probe belfry_probe SEC(".rodata.belfry_probe") = { \
		BELFRY_PROBE_MAGIC, BELFRY_PROBE_ABI, sizeof(struct belfry_probe_ctx), 0 \
	}; \
	char LICENSE[] SEC("license") = "Dual MIT/GPL"

#define BELFRY_PROBE_AT(event) SEC("probe/" #event)

/* Once in an object, with columns:
 *
 *	BELFRY_PRINT(BELFRY_SHOW_KEY(kernels, "kernel", KERNEL, 0),
 *		     BELFRY_SHOW(kernels, struct stat, calls, "calls", COUNT, BELFRY_PRINT_SORT),
 *		     BELFRY_SHOW_PER(kernels, struct stat, time_ns, calls, "average", NS, 0));
 */
#define BELFRY_PRINT(...) \
	const struct belfry_print belfry_print[] SEC(".rodata.belfry_print") = { __VA_ARGS__ }
#define BELFRY_MEMBER_BYTES(type, member) sizeof(((type *)0)->member)
#define BELFRY_SHOW(map, type, member, title, unit, flags) \
	{ \
#map, title, BELFRY_PRINT_VALUE, BELFRY_PRINT_##unit, flags, \
			__builtin_offsetof(type, member), BELFRY_MEMBER_BYTES(type, member), 0, 0, 0 \
	}
#define BELFRY_SHOW_PER(map, type, member, per, title, unit, flags) \
	{ \
#map, title, BELFRY_PRINT_VALUE, BELFRY_PRINT_##unit, flags, \
			__builtin_offsetof(type, member), BELFRY_MEMBER_BYTES(type, member), \
			__builtin_offsetof(type, per), BELFRY_MEMBER_BYTES(type, per), 0 \
	}
/* A value, or a key, that is one number of 8 bytes. */
#define BELFRY_SHOW_VALUE(map, title, unit, flags) \
	{ \
#map, title, BELFRY_PRINT_VALUE, BELFRY_PRINT_##unit, flags, 0, 8, 0, 0, 0 \
	}
#define BELFRY_SHOW_KEY(map, title, unit, shift) \
	{ \
#map, title, BELFRY_PRINT_KEY, BELFRY_PRINT_##unit, 0, 0, 8, 0, 0, shift \
	}
#define BELFRY_SHOW_INDEX(map, title, unit) \
	{ \
#map, title, BELFRY_PRINT_INDEX, BELFRY_PRINT_##unit, 0, 0, 0, 0, 0, 0 \
	}
#define BELFRY_SHOW_SM(map) \
	{ \
#map, "SM", BELFRY_PRINT_SM, BELFRY_PRINT_COUNT, 0, 0, 0, 0, 0, 0 \
	}

/* Helpers. They are helpers of the kernel, so that the kernel's verifier knows them:
 *
 *	bpf_map_lookup_elem, bpf_map_update_elem, bpf_map_delete_elem
 *	bpf_ringbuf_output		the size must be a constant; flags are ignored
 *	bpf_ktime_get_ns		%globaltimer
 *	bpf_get_smp_processor_id	%smid
 *	bpf_jiffies64			%clock64
 */
#define belfry_time_ns() bpf_ktime_get_ns()
#define belfry_sm() bpf_get_smp_processor_id()
#define belfry_clock() bpf_jiffies64()

/* Maps. An SM array has one copy of its values for each SM. Warps of one SM share that copy, so a program
 * changes it with atomic instructions, for example __sync_fetch_and_add(). */
#define BELFRY_ARRAY(name, value_type, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, entries); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")

#define BELFRY_SM_ARRAY(name, value_type, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, entries); \
		__type(key, __u32); \
		__type(value, value_type); \
	} name SEC(".maps")

#define BELFRY_HASH(name, key_type, value_type, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, entries); \
		__type(key, key_type); \
		__type(value, value_type); \
	} name SEC(".maps")

/* bytes: a power of two, at least a page. */
#define BELFRY_RING(name, bytes) \
	struct { \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, bytes); \
	} name SEC(".maps")
#endif

#endif

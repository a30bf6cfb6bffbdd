/* coro: a libcuda.so.1 in front of the driver's. It runs a program's kernels on the SMs that the GPU server leases to the
 * process, and moves them to other SMs from launch to launch.
 *
 * Contexts are the program's own. A stream of the program is a virtual stream: its work runs on the program's own stream
 * (its base), which has all SMs, or on a shadow stream in a green context, which has the SMs of a partition. Each of these is
 * a place. The place that has the last work is the tail. Before work goes to another place, that place waits for the tail (a
 * hop), so the order of the program's stream holds. A kernel is never split or changed: its result does not depend on where it
 * runs.
 *
 * No lock is held over a call of the program: it may wait for the GPU. Locks, from the outside in: execs.lock (executable
 * graphs), vstream::lock, context::making, context::lock, and begin_lock (captures). Inside all of these, and with no lock inside:
 * table.lock (handles of streams), all_lock (the list of contexts), captured.lock (events), waiting.lock (waits for contexts).
 *
 * Every symbol of the driver's library is defined, by a source here or by tools/coro-table.py according to classes.txt.
 * Without BELFRY_LEASE and BELFRY_CORO_SHUFFLE no work is moved. The library also inserts probes (probe.h) and writes traces for
 * belfry verify (trace.h), with a lease or without. */
#ifndef BELFRY_CORO_H
#define BELFRY_CORO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "coro/lease.h"
#include "cuda/api.h"
#include "real.h" /* generated */

#define EXPORT __attribute__((visibility("default")))

enum {
	PARTITIONS_MOST = 64, /* of a context; then the largest one within the leased units is used */
	UNITS_MOST = 63,      /* as the GPU server has it */
};

/* ---- real.c: the driver's library */
struct symbol {
	const char *name;
	void **real, *own;
};
extern const struct symbol symbols[];
extern const size_t symbol_count;

struct context;

/* ---- partition.c: green contexts */
struct partition {
	uint64_t units;
	CUgreenCtx green;
	CUcontext context;
	CUstream builder; /* on which kernel nodes of graphs are captured */
};
/* With the context's lock: whether there is none of these units, and one can be made. */
bool partition_is_missing(struct context *context, uint64_t units);
/* Makes it if it is missing, without the context's lock: this may need the GPU. */
void partition_make(struct context *context, uint64_t units);
/* The partition of these units, or the largest within; -1: all SMs, or there is none. With the context's lock. */
int partition_find(struct context *context, uint64_t units);
/* Those of these units that there are; CORO_UNITS_ALL for all. The context's own streams have all SMs. */
uint64_t partition_units(const struct context *context, uint64_t units);
void partitions_forget(struct context *context);

/* ---- vstream.c: virtual streams, and what remains of destroyed ones */

/* Where work of a virtual stream runs: its base, or a shadow in a partition. By the context's lock. */
struct place {
	CUstream stream; /* NULL: not made yet */
	CUevent last; /* behind its work, recorded when the virtual stream left it, and where others cannot ask */
	unsigned calls; /* under way, that place work here */
	bool is_used;	/* it may have work, or waits */
};

struct vstream {
	LIST_ENTRY(vstream) in_bucket; /* by its handle */
	LIST_ENTRY(vstream) in_context;
	struct context *context;
	CUstream base; /* the program's handle */
	bool is_blocking, is_legacy, is_per_thread;
	bool has_attributes; /* the program has set some; by `lock` */
	int priority;
	/* Held while the stream goes to another place. It is not held over calls of the program, which may wait. The
	 * context's lock is inside. */
	pthread_mutex_t lock;
	/* By the context's lock; the tail is changed with both locks. */
	int tail_at;				  /* the place of the last work: its partition; -1: base */
	struct place places[PARTITIONS_MOST + 1]; /* see vstream_place() */
	uint64_t generation;			  /* the lease that `at` was chosen for */
	int at;
	/* Work placed so far; for the order between the legacy default stream and blocking streams. */
	uint64_t work;
	uint64_t seen_legacy;	 /* work of the legacy stream that its work waits for */
	uint64_t seen_by_legacy; /* work of it that the legacy stream's work waits for */
	/* See wait.c. By the context's lock. */
	TAILQ_HEAD(, wait) waits;
	unsigned wait_count;
};

static inline struct place *vstream_place(struct vstream *vstream, int at)
{
	return &vstream->places[at + 1];
}

/* A point behind work, for those that wait for it. */
struct mark {
	_Atomic unsigned uses;
	CUevent event;
};
struct mark *mark_record(CUstream stream); /* NULL: failed */
void mark_put(struct mark *mark);

/* Work of a stream that was destroyed, or of a thread that has ended. */
struct orphan {
	LIST_ENTRY(orphan) next; /* context::orphans */
	struct mark *mark;
	uint64_t units;
	bool is_base;
	bool is_for_legacy; /* the legacy stream's work has yet to wait for it */
};

/* A primary context. It is never freed. */
struct context {
	LIST_ENTRY(context) next;
	CUdevice device;
	_Atomic(CUcontext) handle; /* NULL: the driver has destroyed it */
	unsigned retained;	   /* by the program */
	/* Calls under way that may destroy it: its streams are forgotten, and their work may still run. */
	_Atomic unsigned endings;
	pthread_mutex_t
		making; /* held while a partition is made; partitions are forgotten with it and `lock` */
	pthread_mutex_t lock;
	LIST_HEAD(, vstream) streams;
	LIST_HEAD(, orphan) orphans;
	unsigned blocking_count; /* blocking streams but the legacy one */
	bool is_awaiting;	 /* all work of the context waits for an event: also that of new streams */
	struct vstream *_Atomic legacy;
	/* The SMs, and the partitions made so far. */
	unsigned unit_count; /* 0: not known yet; the last one has the remaining SMs */
	bool has_no_units;
	CUdevResource units[UNITS_MOST];
	unsigned partition_count;
	struct partition partitions[PARTITIONS_MOST];
};

/* While set, NULL as a stream is the thread's own default stream. */
extern _Thread_local bool default_is_per_thread;

struct vstream *stream_find(CUstream stream, bool is_per_thread); /* NULL: not a virtual stream */
void vstream_add(CUstream handle, unsigned flags, int priority);
/* Before the stream is destroyed. False: it is not a virtual stream, or stays one because the driver refuses calls. */
bool vstream_remove(CUstream handle);
/* All virtual streams of a context that is destroyed. With its lock. */
void vstreams_forget(struct context *context);

/* ---- order.c: the order of work on different places */

/* Calls of this library's own, which a capture in another thread would forbid, in the context. */
struct inside {
	CUstreamCaptureMode mode;
	bool is_pushed;
};
struct inside go_inside(const struct context *context);
void come_out(struct inside *inside);

/* Records the place's event behind its work. With the context's lock if the event was not made yet. */
bool place_record(struct vstream *vstream, int at);
/* With the lock of the virtual stream. False: failed, and it stays where it is. */
bool vstream_hop(struct vstream *vstream, int at);
/* The tail waits for work that was placed here after the virtual stream had left. With its lock. */
void vstream_join(struct vstream *vstream, int at);
/* The order between the legacy default stream and blocking streams: before work is placed. */
void vstream_order(struct vstream *vstream);

/* ---- stream.c: streams for calls */
enum take { TAKE_TAIL, TAKE_PLACE, TAKE_BASE };
struct taken {
	CUstream stream;	 /* for the call */
	struct vstream *vstream; /* NULL: not a virtual stream */
	int at;			 /* the partition of `stream`; -1: base */
	bool is_captured;	 /* the call becomes part of a graph */
};
/* The stream for a call, ordered after the virtual stream's work. stream_leave() after the call. */
struct taken stream_take(CUstream stream, bool is_per_thread, enum take how);
void stream_leave(struct taken *taken);
/* Moves to the base what does not fit on the partition. */
void stream_fall_back(struct taken *taken);
/* After a fill without a stream parameter: waits where the driver's function would, for memory that the host can see. */
CUresult stream_settle(const struct taken *taken, CUdeviceptr filled);

/* The driver's handle of the default stream that NULL means in this call. */
static inline CUstream stream_handle(CUstream stream)
{
	return !stream && default_is_per_thread ? CU_STREAM_PER_THREAD : stream;
}

/* ---- wait.c: streams that wait for something outside the GPU */
struct wait;
/* Around a call that makes the stream wait. NULL: the wait is not noted. */
struct wait *wait_begin(const struct taken *taken);
struct wait *wait_begin_event(const struct taken *taken); /* for an event */
void wait_end(const struct taken *taken, struct wait *wait, CUresult result);
/* Whether all work of the virtual stream that has not ended is behind a wait. With the context's lock, inside it. */
bool vstream_is_waiting(struct vstream *vstream);
void vstream_forget_waits(struct vstream *vstream); /* with the context's lock */

/* ---- launch.c */
bool launch_does_not_fit(const struct taken *taken,
			 CUresult result); /* on the partition, but on all SMs perhaps */

/* ---- stream_api.c */
void vstream_copy_attributes(struct vstream *vstream, int at); /* of the base, to a shadow */

/* ---- fence.c: the end of work */
/* Whether no work runs on units that are not in `units`. Until the lease changes, only work that falls back to all
 * SMs goes to others. */
bool fence_is_over(struct context *context, uint64_t units);
/* Waits for the work of all virtual streams: before memory is freed. */
void streams_finish(void);
/* Whether the place has no work. With the context's lock, inside it. */
bool place_is_idle(struct vstream *vstream, int at);

/* ---- capture.c */
/* Whether the stream is being captured: its work goes to the base, which is the one that captures. */
bool vstream_is_capturing(const struct vstream *vstream);
/* No capture begins while this is held: begin_lock of the order at the top. */
void captures_lock(void);
void captures_unlock(void);
bool captures_are_there(void);
/* After a launch, whose attributes may name events. */
void launch_note_events(const CUlaunchConfig *config, const struct taken *taken);

/* ---- context.c */
struct context *context_find(CUcontext handle);
struct context *context_current(void);
struct context *context_after(const struct context *context); /* of all; the first one after NULL */

/* ---- lease.c */
bool cuda_is_initialised(void); /* in this process, or in the one that it was forked from */
bool lease_is_there(void); /* there is a lease, or there may be one: decided when the library is loaded */
/* The generation to place work for in the context, and its units. */
uint64_t lease_generation(const struct context *context);
uint64_t lease_units(const struct context *context);
void lease_attach(struct context *context); /* a primary context is there */
struct coro_lease *lease_page(void);	    /* NULL: none */
void lease_fix(void);			    /* the process has work that does not follow the lease */

/* ---- request.c */
void request_begin(void); /* work is placed */
void request_end(void);	  /* the program has waited for work */

/* ---- graph.c, retarget.c */
void graphs_forget_context(struct context *context);
/* Around a call that fails while a stream of its context is captured. No graph is made anew meanwhile. */
void sync_begin(void);
void sync_end(void);

#endif

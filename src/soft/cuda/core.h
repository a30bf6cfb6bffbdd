/* cuda: the software GPU's libcuda.so.1. Public functions (cu*) check their arguments and turn them into work
 * for streams. A stream is a channel of the GPU. The GPU receives commands in a ring, as from the real
 * library. The library runs in arbitrary programs: it never prints (except the output of kernels), never
 * exits, and never changes errno, signals or the locale; every function returns a CUresult. This header is
 * private to the module.
 *
 * Locks: api_lock (one, recursive) is taken by every public function that accesses shared state. It is not
 * held while waiting for the GPU or calling the program. */
#ifndef BELFRY_SOFT_CUDA_CORE_H
#define BELFRY_SOFT_CUDA_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda/api.h"
#include "soft/abi.h"
#include "soft/ptx/ptx.h"

#define EXPORT __attribute__((visibility("default")))

struct context;
struct stream;
struct channel;
struct graph;
struct op;

/* ---- lock.c: entry and exit of public functions */
void api_lock(void);
void api_unlock(void);
/* ENTER comes first in every public function that needs an initialised library. It takes the lock, or makes
 * the caller return an error: not initialised, or a forked child. LEAVE releases the lock and returns. errno
 * is preserved. */
CUresult api_enter(void);
CUresult api_leave(CUresult result);
/* Release the lock completely before waiting or calling the program, however often this thread holds it; then
 * take it again as often. */
unsigned api_pause(void);
void api_resume(unsigned held);
#define ENTER() \
	do { \
		CUresult enter_result = api_enter(); \
\
		if (enter_result) \
			return enter_result; \
	} while (0)
#define LEAVE(result) return api_leave(result)
/* The whole body of a function that returns a property of an object: `find` looks the object up, and `value` is what is
 * stored in *to. */
#define LEAVE_WITH(to, find, value) \
	do { \
		CUresult find_result; \
\
		ENTER(); \
		find_result = (to) ? (find) : CUDA_ERROR_INVALID_VALUE; \
		if (!find_result) \
			*(to) = (value); \
		LEAVE(find_result); \
	} while (0)

/* ---- port.c: a client of the driver. One client per process, one device object per GPU */
struct gpu {
	unsigned index;			      /* CUdevice: the index in port.gpus */
	unsigned minor;			      /* of its device file: the index in the machine */
	uint32_t device, subdevice, doorbell; /* handles */
	int file;			      /* nvidiaN */
	volatile uint32_t *bell;
	struct soft_shape_params shape;
	CUuuid uuid;
	char name[64];
	struct context *primary;
	/* Valid whether active or not: the handle never changes. The runtime makes it current before it
	 * retains it. */
	struct context *primary_place;
	unsigned primary_uses, primary_flags;
};
struct port {
	bool is_open;
	bool is_shared; /* in a shared domain */
	pid_t pid;	/* of the owner: not a forked child */
	int control;	/* nvidiactl */
	uint32_t client;
	unsigned gpu_count;
	struct gpu gpus[SOFT_GPUS_MAX];
};
extern struct port port;
CUresult port_open(void); /* finds or starts the software GPU, for cuInit */
uint32_t port_new_handle(void);
/* Returns the driver's status as a CUDA error; CUDA_ERROR_DEVICE_UNAVAILABLE if the driver is dead. */
CUresult port_alloc(uint32_t parent, uint32_t *handle, uint32_t class_id, void *params, uint32_t size);
CUresult port_free(uint32_t parent, uint32_t handle);
CUresult port_control(uint32_t object, uint32_t cmd, void *params, uint32_t size);
/* Memory objects of the GPU or of the host. port_map sets *at to the address of the mapping; it maps at *at
 * if that is not NULL on entry. */
CUresult port_memory(struct gpu *gpu, uint64_t bytes, bool is_vidmem, uint32_t *handle);
CUresult port_map(struct gpu *gpu, uint32_t memory, uint64_t bytes, void **at);
void port_unmap(struct gpu *gpu, uint32_t memory, uint64_t bytes, void *at);
CUresult port_map_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t offset, uint64_t bytes,
		      uint64_t address, bool is_writable);
CUresult port_unmap_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t address);
bool port_is_dead(void); /* the connection to the driver is lost */
uint64_t port_memory_total(struct gpu *gpu,
			   uint64_t *free_bytes); /* as reported to this program; free may be NULL */

/* ---- address.c: the address map. Device memory gets addresses that are unique in the process */
enum range_kind {
	RANGE_DEVICE,
	RANGE_HOST,
	RANGE_MANAGED,
	RANGE_REGISTERED,
	RANGE_RESERVED /* cuMemAddressReserve */
};
struct range {
	uint64_t base, bytes;
	enum range_kind kind;
	struct gpu *gpu;	 /* location, or where it was allocated */
	struct context *context; /* in which it was allocated; NULL: none */
	uint32_t memory;	 /* handle */
	uint64_t memory_offset;	 /* of base in the memory object */
	uint64_t id;		 /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	uint32_t flags;		 /* as passed to the allocating function */
	CUmemoryPool pool;	 /* or NULL */
	void *owner;		 /* for the file that created it */
};
CUresult address_reserve(uint64_t bytes, uint64_t align, uint64_t *address);
void address_release(uint64_t address, uint64_t bytes);
struct range *range_add(const struct range *range); /* adds a copy; NULL: out of memory */
void range_remove(struct range *range);
struct range *range_find(uint64_t address); /* the range with this address; NULL: pageable host memory */
/* Map host memory into every context: existing ones now, new ones through ranges_map_in. */
CUresult range_map_everywhere(struct range *range);
void range_unmap_everywhere(struct range *range);
CUresult ranges_map_in(struct context *context); /* maps all these ranges into a new context */

/* ---- low.c: host memory that the GPU accesses below 1 TiB, as required for rings, commands and fences */
struct low {
	struct context *context;
	uint32_t memory; /* handle */
	uint64_t bytes, address;
	uint8_t *at;
};
CUresult low_new(struct context *context, uint64_t bytes, struct low *low);
void low_free(struct low *low);

/* ---- channel.c: a ring, and the commands it points to */
struct fence { /* done when the channel has reached this value */
	struct channel *channel;
	uint64_t value; /* 0: nothing to wait for */
};
struct channel {
	struct context *context;
	uint32_t handle, token;
	uint64_t submitted; /* fence value of the last submission */
	volatile uint64_t *done;
	struct channel *next;	     /* context::channels */
	struct channel_state *state; /* private to channel.c: memory, ring, command space */
};
/* Channels are reused; their fences keep counting. The caller owns the SM mask. */
CUresult channel_take(struct context *context, const uint64_t *sms, struct channel **channel);
void channel_give_back(struct channel *channel);

/* The commands of a submission are written between begin and end, under the api lock. begin reserves space
 * for `words` words and `bytes` of data, and waits for the GPU if necessary: only earlier submissions can
 * delay it. end appends a release of the fence, writes the ring entry and rings the doorbell. */
CUresult channel_begin(struct channel *channel, uint32_t words, uint32_t bytes);
void channel_put(struct channel *channel, uint32_t word);
void channel_method(struct channel *channel, uint32_t subchannel, uint32_t method, uint32_t value);
/* Space for data that commands refer to: the address to write to, and the GPU address (aligned to
 * SOFT_LAUNCH_ALIGN). Valid until the submission is done. */
void *channel_data(struct channel *channel, uint32_t bytes, uint64_t *address);
struct fence channel_end(struct channel *channel);
/* Ring the doorbell: also after the CPU has written a value that an acquire waits for. */
void channel_ring(struct channel *channel);
void channels_free(struct context *context);
void channels_finish(struct context *context); /* after an error: releases all waits for its fences */
/* Parts of submissions. */
void channel_wait_for(struct channel *channel,
		      struct fence fence); /* no-op if the fence is the channel's own, or done */
void channel_release(struct channel *channel, uint64_t address, uint64_t payload, bool is_64bit,
		     bool has_timestamp);
void channel_acquire(struct channel *channel, uint64_t address, uint64_t payload, uint32_t operation,
		     bool is_64bit);
enum { CHANNEL_WAIT_WORDS = 6, CHANNEL_RELEASE_WORDS = 6, CHANNEL_COPY_WORDS = 16, CHANNEL_LAUNCH_WORDS = 4 };
/* The limit of words and data of one submission. Each piece of data counts rounded up to
 * SOFT_LAUNCH_ALIGN. */
enum { CHANNEL_ROOM_BYTES = 256 << 10 };

bool fence_is_done(struct fence fence);
/* Waits without the api lock (releases it meanwhile if the caller holds it once). Returns the error of the
 * context if it has one: its fences are never completed. */
CUresult fence_wait(struct fence fence);

/* ---- context.c */
enum { CONTEXT_PRINT_BYTES = 1 << 20 };
struct context {
	struct gpu *gpu;
	bool is_primary, is_gone;
	unsigned flags, api_version;
	uint64_t id;
	uint32_t space, group, notifier_memory; /* handles */
	volatile struct soft_notifier *notifier;
	struct soft_print *print; /* NULL until a module prints */
	CUresult error;		  /* sticky */
	bool is_assertion_told;	  /* of it, or of a context beside it */
	struct channel *channels;
	struct stream *streams;
	struct stream *null_stream; /* made with the context */
	struct module *modules;
	struct green *green;	 /* not NULL: the context of a green context */
	struct heap *heap;	 /* memory.c: for small allocations */
	struct staging *staging; /* copy_stage.c: transfers of pageable memory */
	struct context *next;	 /* all_contexts */
	struct context_limits {
		size_t stack, print, heap, pending_launches, l2_fetch, l2_persisting;
	} limits;
	unsigned waiters; /* threads in fence_wait */
	struct low notifier_low, print_low;
	struct context *parent; /* whose address space it shares; NULL: its own */
	const uint64_t *sms;	/* SM mask of its streams; NULL: all */
	CUfunc_cache cache_config;
	uint32_t next_tls; /* context-local storage, for the runtime (export.c) */
};
extern struct context *all_contexts;
/* The context of the calling thread. Returns CUDA_ERROR_INVALID_CONTEXT, the sticky error, or 0. */
CUresult context_current(struct context **context);
/* Whether the context exists. */
bool context_is(const struct context *context);
bool context_has_id(const struct context *context,
		    uint64_t id); /* and is not a new one at the same address */
/* Read the notifier; set and return the sticky error. */
CUresult context_check(struct context *context);
void context_set_error(struct context *context, CUresult error); /* needs no lock */
/* Write the output of kernels to the program's stdout. Called after every synchronisation. */
void context_print(struct context *context);
CUresult context_synchronize(struct context *context);
CUresult context_new(struct gpu *gpu, unsigned flags, struct context **context);
CUresult context_new_primary(struct gpu *gpu, unsigned flags); /* gpu->primary */
struct context *context_primary_place(struct gpu *gpu);	       /* NULL: out of memory */
/* A context for a green context: it shares the address space, the channel group and thus the faults of its
 * parent, and uses only these SMs (the caller owns the mask). Freed before its parent. */
CUresult context_new_beside(struct context *parent, unsigned flags, const uint64_t *sms,
			    struct context **context);
/* Waits for all work, unless the context has an error. */
void context_free(struct context *context);

/* ---- stream.c */
struct capture; /* graph_capture.c */
enum { STREAM_PRIORITY_GREATEST = -5 };
struct stream {
	struct context *context;
	struct channel *channel;
	unsigned flags; /* CU_STREAM_NON_BLOCKING */
	int priority;
	uint64_t id;
	/* is_destroyed: kept until the null stream need not wait for it */
	bool is_null, is_per_thread, is_destroyed;
	struct capture *capture; /* not NULL: work is recorded, not submitted */
	const uint64_t *sms;	 /* SM mask; NULL: all */
	struct green *green;
	int sync_policy, sync_domain; /* stored and returned only */
	uint64_t null_waited; /* fence value of this stream's channel that the null stream has waited for */
	uint64_t waited_null; /* fence value of the null stream's channel that this stream has waited for */
	struct stream *next;  /* context::streams */
};
/* The stream of a handle: 0 and CU_STREAM_LEGACY are the null stream, CU_STREAM_PER_THREAD is the thread's
 * own stream. Checks the handle. */
CUresult stream_find(CUstream handle, struct stream **stream);
/* Handle 0 is the per-thread stream. The generated wrappers of the *_ptsz and *_ptds functions set it during
 * a call. */
extern _Thread_local bool default_is_per_thread;
CUresult stream_new(struct context *context, unsigned flags, int priority, const uint64_t *sms,
		    struct stream **stream);
void stream_free(struct stream *stream);
void stream_destroy(struct stream *stream); /* its work continues; freed when that is done */
/* Begin a submission on the stream's channel, and wait in stream order: the null stream waits for all
 * blocking streams of the context, and they wait for it. Use this instead of channel_begin. */
CUresult stream_begin(struct stream *stream, uint32_t words, uint32_t bytes);
struct fence stream_end(struct stream *stream);
struct fence stream_fence(struct stream *stream); /* of all work so far, including that order */
bool stream_is_idle(struct stream *stream);	  /* the same, without a wait */
CUresult stream_synchronize(struct stream *stream);
/* Call a function on the host in stream order; later work waits until it returns. Called without the lock, on
 * a thread of the library. */
CUresult stream_host(struct stream *stream, void (*function)(void *), void *argument);
/* The same with a status argument; also called if the context has an error. */
CUresult stream_call_back(struct stream *stream, CUstreamCallback function, void *argument);
/* Call `step` on that thread, with the lock, when the stream has reached the call, and again at each *next, until it returns
 * true. Then `end` is called, also if the context is destroyed before. */
CUresult stream_steps(struct stream *stream, bool (*step)(void *argument, struct fence *next),
		      void (*end)(void *argument), void *argument);
void host_functions_forget(struct context *context); /* functions not yet called are dropped */

/* ---- op.c: all operations of a stream. A public function makes an op and calls stream_do: on a capturing
 * stream the op becomes a node of the graph, otherwise it is submitted. A graph keeps ops in its nodes. */
enum op_kind {
	OP_EMPTY,
	OP_KERNEL,
	OP_COPY,
	OP_FILL,
	OP_HOST,
	OP_RECORD,
	OP_WAIT,
	OP_ALLOC,
	OP_FREE,
	OP_VALUES,
	OP_GRAPH, /* a child graph */
	OP_CONDITION,
	OP_KINDS,
};
struct function;
struct op_kernel {
	struct function *function;
	uint32_t grid[3], threads[3], dynamic_shared_bytes;
	bool is_cooperative;
	uint8_t *params; /* param_bytes of the function, packed; owned by the op */
};
/* Always three-dimensional; lines of `width` bytes. Any host memory is allowed. */
struct op_copy {
	uint64_t src, dst;
	struct context *src_context, *dst_context;	     /* NULL: the stream's; for peer copies */
	uint64_t src_pitch, dst_pitch, src_slice, dst_slice; /* bytes per line, bytes per plane */
	uint64_t width, height, depth;
};
struct op_fill {
	uint64_t dst, pitch, width, height; /* width in elements */
	uint32_t value, element_bytes;	    /* 1, 2 or 4 */
};
struct op_host {
	void (*function)(void *);
	void *argument;
};
struct op_event {
	struct event *event;
	unsigned flags;
};
struct op_alloc {
	uint64_t address, bytes;
	CUmemoryPool pool;
};
struct op_values {
	uint32_t count;
	CUstreamBatchMemOpParams *list; /* owned by the op */
};
struct condition;
struct op_condition { /* of a conditional node */
	struct condition *condition;
	CUgraphConditionalNodeType type;
	unsigned count;
	struct graph **bodies; /* owned by the op */
};
struct op {
	enum op_kind kind;
	union {
		struct op_kernel kernel;
		struct op_copy copy;
		struct op_fill fill;
		struct op_host host;
		struct op_event event;
		struct op_alloc alloc;
		struct op_values values;
		struct graph *child; /* owned by the op */
		struct op_condition condition;
	};
};
CUresult op_clone(const struct op *from, struct op *to);
void op_free(struct op *op);					/* frees what the op owns */
CUresult stream_do(struct stream *stream, const struct op *op); /* the caller keeps the op */
CUresult op_submit(struct stream *stream, const struct op *op);
/* Implemented, in order, in launch.c, copy.c, copy.c, stream.c, event.c, event.c, pool_graph.c, pool.c,
 * value.c, graph_launch.c */
CUresult op_submit_kernel(struct stream *stream, const struct op_kernel *kernel);
CUresult op_submit_copy(struct stream *stream, const struct op_copy *copy);
CUresult op_submit_fill(struct stream *stream, const struct op_fill *fill);
CUresult op_submit_record(struct stream *stream, struct event *event);
CUresult op_submit_wait(struct stream *stream, struct event *event);
CUresult op_submit_alloc(struct stream *stream, const struct op_alloc *alloc);
CUresult op_submit_free(struct stream *stream, const struct op_alloc *alloc);
CUresult op_submit_values(struct stream *stream, const struct op_values *values);
CUresult op_submit_graph(struct stream *stream, struct graph *graph);
/* graph_capture.c: add a node for an op of a capturing stream. */
CUresult capture_op(struct stream *stream, const struct op *op);
/* graph_capture.c: event records and waits during capture. *is_mine false: no capture is involved, the caller
 * continues. */
CUresult capture_record(struct stream *stream, struct event *event, bool *is_mine);
CUresult capture_wait(struct stream *stream, struct event *event, bool *is_mine);
/* Called by functions that are unsafe during capture (synchronisation, cudaMalloc and the like). If a capture
 * forbids the call, invalidates the capture and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; else returns
 * 0. */
CUresult capture_forbids(void);
/* A wait for or query of a stream is forbidden while it captures, in every mode. Call before
 * capture_forbids. */
CUresult capture_forbids_stream(struct stream *stream);
CUresult capture_forbids_context(struct context *context); /* a wait for all its streams, likewise */
/* A query of or wait for an event that was recorded in a capture is forbidden. Call before
 * capture_forbids. */
CUresult capture_forbids_event(struct event *event);
/* Called by stream_do for a stream that does not capture: the legacy stream would wait for those that do. */
CUresult capture_forbids_implicit(struct stream *stream);
/* Called before an event or a stream is freed. */
void capture_forget_event(struct event *event);
void capture_forget_stream(struct stream *stream);
/* graph.c, graph_condition.c: for op_clone and op_free of OP_GRAPH and OP_CONDITION. */
CUresult graph_clone(const struct graph *from, struct graph **to);
void graph_free(struct graph *graph);
CUresult op_clone_condition(const struct op_condition *from, struct op_condition *to);
void op_free_condition(struct op_condition *op);

/* ---- event.c */
struct event {
	struct context *context;
	unsigned flags;
	struct fence fence;    /* of the last record; channel NULL: never recorded, which counts as done */
	uint64_t time_address; /* 16 bytes: payload, timestamp */
	volatile uint64_t *time;
	uint64_t sequence; /* payload of the last record */
	unsigned uses;	   /* ops and graphs that use it */
	bool is_destroyed;
	struct event *next, **place; /* list of all in event.c; the pointer to this entry */
	struct capture *capture;     /* recorded in a capture … */
	void *capture_mark;	     /* … with these dependencies (graph_capture.c) */
};
CUresult event_find(CUevent handle, struct event **event); /* checks the handle */
void event_keep(struct event *event);			   /* used by op_clone */
void event_drop(struct event *event);			   /* used by op_free */
void events_free(struct context *context);

/* ---- module.c and function.c */
struct module {
	struct context *context;
	char *text; /* PTX */
	size_t length;
	struct ptx_module *ptx;
	uint32_t code;	       /* handle */
	uint64_t *variables;   /* addresses, in ptx_variable_at's order */
	struct range *block;   /* their memory, or NULL … */
	struct range *managed; /* … and that of managed variables, unless a library owns it */
	uint32_t variable_count, function_count;
	struct function *functions; /* of entries, in ptx_kernel_at's order */
	struct library *library;    /* owner, or NULL */
	struct module *next;	    /* context::modules */
};
struct function { /* CUfunction */
	struct module *module;
	const struct ptx_kernel *kernel;
	uint32_t index; /* ptx_kernel_at */
	uint32_t max_dynamic_shared_bytes;
	int carveout, cache_config;
};
/* Load PTX text or a fatbin that holds PTX, detected by the first bytes. `length` 0: the image has its length
 * (PTX ends with NUL). */
CUresult module_load(struct context *context, const void *image, size_t length, unsigned option_count,
		     CUjit_option *options, void **values, struct module **module);
void module_free(struct module *module);
/* A CUfunction, or a CUkernel: then its function in the current context. */
CUresult function_find(CUfunction handle, struct function **function);

/* ---- memory.c and host.c: also used by modules */
CUresult memory_new_device(struct context *context, uint64_t bytes, struct range **range);
CUresult memory_free_device(struct range *range);
/* Host memory that the GPU accesses at the same address. */
CUresult memory_new_host(struct context *context, uint64_t bytes, enum range_kind kind, unsigned flags,
			 struct range **range);
CUresult memory_free_host(struct range *range);
/* For context_new and context_free. memory_attach maps the memory of the GPU (pools, cuMemMap) into a new
 * context. memory_detach frees all memory and ranges of a context: after its streams and modules, before its
 * address space and channels. */
CUresult memory_attach(struct context *context);
void memory_detach(struct context *context);
/* Called after every synchronisation: pools release memory above their threshold. */
void memory_settle(struct context *context);

/* ---- copy_shape.c: convert the public structure, also for graphs */
CUresult copy_from_3d(const CUDA_MEMCPY3D *shape, struct op_copy *copy);

/* ---- pool_graph.c: memory of OP_ALLOC nodes. The address is assigned when the node is made; memory is
 * mapped there at the first submission, and stays until it is trimmed. Reference counted: one reference of
 * the op it was made for; op_clone and op_free of OP_ALLOC change the count. */
CUresult graph_memory_new(struct context *context, uint64_t bytes, uint64_t *address);
void graph_memory_keep(uint64_t address);
void graph_memory_drop(uint64_t address);
bool graph_memory_is_live(uint64_t address); /* allocated by a launch, and not yet freed */

/* ---- table.c: generated from src/cuda: all symbols by name */
struct entry {
	const char *name; /* as exported: cuMemAlloc_v2 */
	void *function;
	bool is_missing; /* returns CUDA_ERROR_NOT_SUPPORTED */
};
const struct entry *entry_find(const char *name);

/* ---- export.c: tables that the CUDA runtime requests by uuid */
CUresult export_find(const CUuuid *id, const void **table);
/* storage.c: call the runtime's destructors for a context. Called before the context is freed, while it is
 * still valid. */
void export_context_gone(struct context *context);

#endif

/* cuda: the software GPU's libcuda.so.1. Public functions (cu*) check their arguments and turn them into work for
 * streams; a stream is a channel of the GPU; what reaches the GPU is commands in a ring, as from the real library.
 * It lives in other people's programs: it never prints (but for what kernels print), never exits, never changes errno,
 * signals or locale, and every function returns a CUresult. Everything here is private to the room.
 *
 * Locks: api_lock (one, recursive) is taken by every public function that touches shared state, and is not held
 * while waiting for the GPU or calling back into the program. */
#ifndef BELFRY_SOFT_CUDA_CORE_H
#define BELFRY_SOFT_CUDA_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/abi.h"
#include "soft/cuda/api.h"
#include "soft/ptx/ptx.h"

#define EXPORT __attribute__((visibility("default")))

struct context;
struct stream;
struct channel;
struct graph;
struct op;

/* ---- lock.c: entering and leaving public functions */
void api_lock(void);
void api_unlock(void);
/* First in every public function that needs an initialised library; takes the lock. Returns from the caller with the
 * reason otherwise: not initialised, a forked child. LEAVE releases the lock and returns. errno is kept as it was. */
CUresult api_enter(void);
CUresult api_leave(CUresult result);
/* Give the lock up altogether before waiting or calling out, however often this thread holds it, and take it again
 * as often. */
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

/* ---- port.c: the driver, as its client. One client a process; one device object a GPU */
struct gpu {
	unsigned index;			      /* CUdevice: its place in port.gpus */
	unsigned minor;			      /* of its file: its place in the machine */
	uint32_t device, subdevice, doorbell; /* handles */
	int file;			      /* nvidiaN */
	volatile uint32_t *bell;
	struct soft_shape_params shape;
	CUuuid uuid;
	char name[64];
	struct context *primary;
	/* Where it lies, active or not: its handle never changes. The runtime makes it current before it claims it. */
	struct context *primary_place;
	unsigned primary_uses, primary_flags;
};
struct port {
	bool is_open;
	pid_t pid;   /* whose it is: not a forked child's */
	int control; /* nvidiactl */
	uint32_t client;
	unsigned gpu_count;
	struct gpu gpus[SOFT_GPUS_MAX];
};
extern struct port port;
CUresult port_open(void); /* finds the software GPU, or starts it; what cuInit does */
uint32_t port_new_handle(void);
/* The driver's status as a CUDA error; a dead driver is CUDA_ERROR_DEVICE_UNAVAILABLE. */
CUresult port_alloc(uint32_t parent, uint32_t *handle, uint32_t class_id, void *params, uint32_t size);
CUresult port_free(uint32_t parent, uint32_t handle);
CUresult port_control(uint32_t object, uint32_t cmd, void *params, uint32_t size);
/* Memory objects: of the GPU, or of the host (then `at` receives where it is mapped here; at a given address if
 * *at is not NULL on entry). */
CUresult port_memory(struct gpu *gpu, uint64_t bytes, bool is_vidmem, uint32_t *handle);
CUresult port_map(struct gpu *gpu, uint32_t memory, uint64_t bytes, void **at);
void port_unmap(struct gpu *gpu, uint32_t memory, uint64_t bytes, void *at);
CUresult port_map_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t offset, uint64_t bytes,
		      uint64_t address, bool is_writable);
CUresult port_unmap_gpu(struct gpu *gpu, uint32_t space, uint32_t memory, uint64_t address);
bool port_is_dead(void); /* the driver has gone away */
uint64_t port_memory_total(struct gpu *gpu,
			   uint64_t *free_bytes); /* as this program is told; free may be NULL */

/* ---- address.c: which addresses are what. Device memory gets addresses that nothing else in the process has */
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
	struct gpu *gpu;	 /* where it lies, or where it was made */
	struct context *context; /* in which it was made; NULL: of no one */
	uint32_t memory;	 /* handle */
	uint64_t memory_offset;	 /* of base in it */
	uint64_t id;		 /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	uint32_t flags;		 /* as given to the function that made it */
	CUmemoryPool pool;	 /* or NULL */
	void *owner;		 /* for the file that made it */
};
CUresult address_reserve(uint64_t bytes, uint64_t align, uint64_t *address);
void address_release(uint64_t address, uint64_t bytes);
struct range *range_add(const struct range *range); /* a copy of it; NULL: out of memory */
void range_remove(struct range *range);
struct range *range_find(uint64_t address); /* the one that holds it, or NULL: pageable host memory */
/* Every context sees host memory; those that exist, and those to come. */
CUresult range_map_everywhere(struct range *range);
void range_unmap_everywhere(struct range *range);
CUresult ranges_map_in(struct context *context); /* all of these, in a new one */

/* ---- low.c: host memory that the GPU sees below 1 TiB, where rings, commands and fences must lie */
struct low {
	struct context *context;
	uint32_t memory; /* handle */
	uint64_t bytes, address;
	uint8_t *at;
};
CUresult low_new(struct context *context, uint64_t bytes, struct low *low);
void low_free(struct low *low);

/* ---- channel.c: a ring, and the commands it points to */
struct fence { /* done when the channel has got this far */
	struct channel *channel;
	uint64_t value; /* 0: nothing to wait for */
};
struct channel {
	struct context *context;
	uint32_t handle, token;
	uint64_t submitted; /* fence value of the last submission */
	volatile uint64_t *done;
	struct channel *next;	     /* context::channels */
	struct channel_state *state; /* channel.c's own: memory, ring, command space */
};
/* Channels are kept for reuse; their fences count on. A mask of SMs belongs to the user. */
CUresult channel_take(struct context *context, const uint64_t *sms, struct channel **channel);
void channel_give_back(struct channel *channel);

/* Commands for one submission are written between begin and end, under the api lock. begin makes sure of room for
 * `words` words and `bytes` of data, and waits for the GPU if need be (only what was submitted before can hold it up).
 * end appends a release of the fence, fills in the ring entry and rings. */
CUresult channel_begin(struct channel *channel, uint32_t words, uint32_t bytes);
void channel_put(struct channel *channel, uint32_t word);
void channel_method(struct channel *channel, uint32_t subchannel, uint32_t method, uint32_t value);
/* Room for data that commands refer to: where to write it, and its GPU address (SOFT_LAUNCH_ALIGN). Lives until the
 * submission is done. */
void *channel_data(struct channel *channel, uint32_t bytes, uint64_t *address);
struct fence channel_end(struct channel *channel);
void channel_ring(struct channel *channel); /* look again: what an acquire waits for was written here */
void channels_free(struct context *context);
void channels_finish(struct context *context); /* it has an error: whoever waits for it elsewhere goes on */
/* Parts of submissions. */
void channel_wait_for(struct channel *channel,
		      struct fence fence); /* no-op if it is the channel's own, or done */
void channel_release(struct channel *channel, uint64_t address, uint64_t payload, bool is_64bit,
		     bool has_timestamp);
void channel_acquire(struct channel *channel, uint64_t address, uint64_t payload, uint32_t operation,
		     bool is_64bit);
enum { CHANNEL_WAIT_WORDS = 6, CHANNEL_RELEASE_WORDS = 6, CHANNEL_COPY_WORDS = 16, CHANNEL_LAUNCH_WORDS = 4 };
/* One submission's words and data at most; each piece of data counts as rounded up to SOFT_LAUNCH_ALIGN. */
enum { CHANNEL_ROOM_BYTES = 256 << 10 };

bool fence_is_done(struct fence fence);
/* Waits without the api lock (and gives it up meanwhile if the caller holds it once). The context's error if it has
 * one: a fence of a context with an error never comes. */
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
	struct channel *channels;
	struct stream *streams;
	struct stream *null_stream; /* made with the context */
	struct module *modules;
	struct green *green;	 /* not NULL: this is the context of a green context */
	struct heap *heap;	 /* memory.c: what small allocations are cut from */
	struct staging *staging; /* copy_stage.c: the way between pageable memory and the GPU */
	struct context *next;	 /* all_contexts */
	struct context_limits {
		size_t stack, print, heap, pending_launches, l2_fetch, l2_persisting;
	} limits;
	unsigned waiters; /* threads in fence_wait */
	struct low notifier_low, print_low;
	struct context *parent; /* whose address space it shares, or NULL: its own */
	const uint64_t *sms;	/* that its streams may use, or NULL: all */
	CUfunc_cache cache_config;
	uint32_t next_tls; /* … of cuCtx…: context-local storage, for the runtime (export.c) */
};
extern struct context *all_contexts;
/* The calling thread's; CUDA_ERROR_INVALID_CONTEXT, the sticky error, or 0. */
CUresult context_current(struct context **context);
/* Whether this is a context that exists. */
bool context_is(const struct context *context);
bool context_has_id(const struct context *context,
		    uint64_t id); /* the very one, not another at its address */
/* Look at the notifier; set and return the sticky error. */
CUresult context_check(struct context *context);
void context_set_error(struct context *context, CUresult error); /* also without the lock */
/* Write out what kernels have printed so far, to the program's stdout. After every synchronisation. */
void context_print(struct context *context);
CUresult context_synchronize(struct context *context);
CUresult context_new(struct gpu *gpu, unsigned flags, struct context **context);
CUresult context_new_primary(struct gpu *gpu, unsigned flags); /* gpu->primary */
struct context *context_primary_place(struct gpu *gpu);	       /* NULL: out of memory */
/* One beside it: the same address space, the same group and so the same faults, only those SMs (the caller keeps the
 * mask). For green contexts. Freed before its parent. */
CUresult context_new_beside(struct context *parent, unsigned flags, const uint64_t *sms,
			    struct context **context);
/* Drops the error's consequences, not the error: waits for all work if there is none. */
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
	bool is_null, is_per_thread, is_destroyed; /* destroyed: until the null stream need not wait for it */
	struct capture *capture;		   /* not NULL: what is done here is recorded, not done */
	const uint64_t *sms;			   /* mask, or NULL: all */
	struct green *green;
	int sync_policy, sync_domain; /* told back, not used */
	uint64_t null_waited;	      /* how far of this stream's channel the null stream has waited for */
	uint64_t waited_null;	      /* how far of the null stream's channel it has waited for */
	struct stream *next;	      /* context::streams */
};
/* The stream a handle means: 0 and CU_STREAM_LEGACY the null stream, CU_STREAM_PER_THREAD the thread's own. Handles
 * are looked up, never trusted. */
CUresult stream_find(CUstream handle, struct stream **stream);
/* As a thread's default (set by the *_ptsz and *_ptds forms in generated wrappers around a call). */
extern _Thread_local bool default_is_per_thread;
CUresult stream_new(struct context *context, unsigned flags, int priority, const uint64_t *sms,
		    struct stream **stream);
void stream_free(struct stream *stream);
void stream_destroy(struct stream *stream); /* its work goes on; freed when that is done */
/* Begin a submission on the stream's channel and first wait for what stream order asks for: the null stream waits for
 * all blocking streams of the context and they for it. Use instead of channel_begin. */
CUresult stream_begin(struct stream *stream, uint32_t words, uint32_t bytes);
struct fence stream_end(struct stream *stream);
struct fence stream_fence(struct stream *stream); /* of everything so far, with that order */
CUresult stream_synchronize(struct stream *stream);
/* A function to be called on the host when the stream gets there; what comes after waits until it has returned. Called
 * without the lock, on a thread of ours. */
CUresult stream_host(struct stream *stream, void (*function)(void *), void *argument);
/* The same with the status that callbacks are told: called also if the context has an error. */
CUresult stream_call_back(struct stream *stream, CUstreamCallback function, void *argument);
void host_functions_forget(struct context *context); /* those that were not called yet never are */

/* ---- op.c: everything a stream can be told to do. A public function makes one and calls stream_do: on a capturing
 * stream it becomes a node of the graph, otherwise it is submitted. A graph keeps ops in its nodes. */
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
	OP_KINDS,
};
struct function;
struct op_kernel {
	struct function *function;
	uint32_t grid[3], threads[3], dynamic_shared_bytes;
	bool is_cooperative;
	uint8_t *params; /* function's param_bytes of them, packed; owned by the op */
};
/* Always in three dimensions; lines of `width` bytes. Host memory may be any. */
struct op_copy {
	uint64_t src, dst;
	struct context *src_context, *dst_context; /* NULL: the stream's; for peer copies */
	uint64_t src_pitch, dst_pitch, src_slice,
		dst_slice; /* bytes from line to line, from plane to plane */
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
	};
};
CUresult op_clone(const struct op *from, struct op *to);
void op_free(struct op *op);					/* what it owns */
CUresult stream_do(struct stream *stream, const struct op *op); /* the caller keeps the op */
CUresult op_submit(struct stream *stream, const struct op *op);
/* Who submits what: launch.c, copy.c, copy.c, stream.c, event.c, event.c, pool_graph.c, pool.c, value.c,
 * graph_launch.c */
CUresult op_submit_kernel(struct stream *stream, const struct op_kernel *kernel);
CUresult op_submit_copy(struct stream *stream, const struct op_copy *copy);
CUresult op_submit_fill(struct stream *stream, const struct op_fill *fill);
CUresult op_submit_record(struct stream *stream, struct event *event);
CUresult op_submit_wait(struct stream *stream, struct event *event);
CUresult op_submit_alloc(struct stream *stream, const struct op_alloc *alloc);
CUresult op_submit_free(struct stream *stream, const struct op_alloc *alloc);
CUresult op_submit_values(struct stream *stream, const struct op_values *values);
CUresult op_submit_graph(struct stream *stream, struct graph *graph);
/* graph_capture.c: the stream is capturing: make a node of it. */
CUresult capture_op(struct stream *stream, const struct op *op);
/* graph_capture.c: record and wait on events while capturing; *is_mine false: not a matter of capture, go on. */
CUresult capture_record(struct stream *stream, struct event *event, bool *is_mine);
CUresult capture_wait(struct stream *stream, struct event *event, bool *is_mine);
/* An unsafe call (synchronisation, cudaMalloc and the like) while a capture that forbids it is under way: invalidates
 * it and returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; else 0. */
CUresult capture_forbids(void);
/* Waiting for or asking about this very stream: never while it captures, whatever the mode. Before capture_forbids. */
CUresult capture_forbids_stream(struct stream *stream);
CUresult capture_forbids_context(struct context *context); /* waiting for all its streams, likewise */
/* Asking about an event, or waiting for it here: not one recorded in a capture. Before capture_forbids. */
CUresult capture_forbids_event(struct event *event);
/* Work for a stream that does not capture (stream_do asks): the legacy stream would wait for those that do. */
CUresult capture_forbids_implicit(struct stream *stream);
/* They are about to go. */
void capture_forget_event(struct event *event);
void capture_forget_stream(struct stream *stream);
/* graph.c: for op_clone and op_free of OP_GRAPH. */
CUresult graph_clone(const struct graph *from, struct graph **to);
void graph_free(struct graph *graph);

/* ---- event.c */
struct event {
	struct context *context;
	unsigned flags;
	struct fence fence;    /* of its last record; channel NULL: never recorded, which counts as done */
	uint64_t time_address; /* 16 bytes: payload, timestamp */
	volatile uint64_t *time;
	uint64_t sequence; /* payload of the last record */
	unsigned uses;	   /* ops and graphs that keep it */
	bool is_destroyed;
	struct event *next, **place; /* event.c's list of all; what points to it there */
	struct capture *capture;     /* recorded in a capture … */
	void *capture_mark;	     /* … with these dependencies (graph_capture.c) */
};
CUresult event_find(CUevent handle, struct event **event); /* looked up, never trusted */
void event_keep(struct event *event);			   /* op_clone does */
void event_drop(struct event *event);			   /* op_free does */
void events_free(struct context *context);

/* ---- module.c and function.c */
struct module {
	struct context *context;
	char *text; /* PTX */
	size_t length;
	struct ptx_module *ptx;
	uint32_t code;	       /* handle */
	uint64_t *variables;   /* addresses, in ptx_variable_at's order */
	struct range *block;   /* where they lie, or NULL … */
	struct range *managed; /* … and those that the host sees, unless they are a library\'s */
	uint32_t variable_count, function_count;
	struct function *functions; /* of entries, in ptx_kernel_at's order */
	struct library *library;    /* that it was made for, or NULL */
	struct module *next;	    /* context::modules */
};
struct function { /* CUfunction */
	struct module *module;
	const struct ptx_kernel *kernel;
	uint32_t index; /* ptx_kernel_at */
	uint32_t max_dynamic_shared_bytes;
	int carveout, cache_config;
};
/* From PTX text or any fatbin that holds PTX, by its first bytes. `length` 0: the image tells (PTX ends with NUL). */
CUresult module_load(struct context *context, const void *image, size_t length, unsigned option_count,
		     CUjit_option *options, void **values, struct module **module);
void module_free(struct module *module);
/* A CUfunction, or a CUkernel (then that of the current context). */
CUresult function_find(CUfunction handle, struct function **function);

/* ---- memory.c and host.c: used by modules, too */
CUresult memory_new_device(struct context *context, uint64_t bytes, struct range **range);
CUresult memory_free_device(struct range *range);
/* Host memory that the GPU sees at the same address. */
CUresult memory_new_host(struct context *context, uint64_t bytes, enum range_kind kind, unsigned flags,
			 struct range **range);
CUresult memory_free_host(struct range *range);
/* For context_new and context_free: memory that belongs to the GPU (pools, cuMemMap) is seen in a new context as well;
 * with a context goes all memory made in it, and its ranges: after its streams and modules, before its address space
 * and channels. */
CUresult memory_attach(struct context *context);
void memory_detach(struct context *context);
/* After every synchronisation: pools give back what they hold past their threshold. */
void memory_settle(struct context *context);

/* ---- copy_shape.c: what the public structure means, for graphs as well; its errors. */
CUresult copy_from_3d(const CUDA_MEMCPY3D *shape, struct op_copy *copy);

/* ---- pool_graph.c: memory of OP_ALLOC nodes. It has an address from when the node is made; memory is put there when
 * the node is first submitted, and stays until trimmed. Counted: once for the op it was made for, and by op_clone and
 * op_free of OP_ALLOC. */
CUresult graph_memory_new(struct context *context, uint64_t bytes, uint64_t *address);
void graph_memory_keep(uint64_t address);
void graph_memory_drop(uint64_t address);
bool graph_memory_is_live(uint64_t address); /* allocated by a launch, and not freed since */

/* ---- table.c: generated from names.txt and the signatures: every symbol by name */
struct entry {
	const char *name; /* as exported: cuMemAlloc_v2 */
	void *function;
	bool is_missing; /* answers CUDA_ERROR_NOT_SUPPORTED */
};
const struct entry *entry_find(const char *name);

/* ---- export.c: what the CUDA runtime asks for by uuid */
CUresult export_find(const CUuuid *id, const void **table);
/* storage.c: before a context is freed, while it can still be asked about: what the runtime kept with it. */
void export_context_gone(struct context *context);

#endif

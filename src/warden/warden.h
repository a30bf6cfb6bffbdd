/* warden: handles the driver calls of the programs of one vGPU. The calls arrive as seccomp notifications. The warden makes
 * them on private copies of their arguments, through files of its own. It registers the programs' channels with the gate.
 * It never decides which vGPU runs.
 *
 * Threads: any thread may call any function here, with these exceptions. warden_work and warden_audit are called by one and
 * the same thread. The thread that calls warden_new must live until warden_free, because the proxies die with it. Nothing is
 * called after warden_free. A warden has one lock. A driver call may be made under it, but nothing that could wait for a
 * program. warden_close and warden_open do not take it: they take as long as the gate takes. Wardens share the device and
 * the gate only, and block neither. */
#ifndef BELFRY_WARDEN_H
#define BELFRY_WARDEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "gate/gate.h"
#include "warden/continued.h"
#include "warden/device.h"
#include "warden/pool.h"

struct warden;

/* Hooks, called before a request of a program is granted. They are called under the warden's lock, so they must not wait for
 * a thread that may wait for that lock. */
struct warden_mem_ask {
	pid_t pid;
	uint64_t bytes, used_bytes, most_bytes;
	uint64_t
		limit_bytes; /* 0: the whole GPU. Of a vGPU without a limit: the memory that is not promised to others */
	uint64_t gpu_bytes;
};
struct warden_ctx_ask {
	pid_t pid;
	uint32_t contexts;     /* existing channel groups */
	uint64_t timeslice_us; /* answer: of the new channel group, until another is set; 0: unchanged */
	int interleave;	       /* answer: likewise; -1: unchanged */
};
struct warden_hooks {
	/* Memory that fits. False: the program gets an out-of-memory error. */
	bool (*mem_alloc)(void *context, const struct warden_mem_ask *ask);
	/* Memory that does not fit. True: the caller tries to free some. The program waits until warden_room_made is called,
	 * with or without success; then memory that does not fit is refused. */
	bool (*make_room)(void *context, const struct warden_mem_ask *ask);
	/* A channel group. False: the program gets an error. */
	bool (*ctx_init)(void *context, struct warden_ctx_ask *ask);
	/* A report, not a question: the process was told that there is no memory for it. */
	void (*mem_refused)(void *context, pid_t pid, uint64_t bytes);
	/* A report, not a question: the driver has ended a channel group of this process; `code` is the Xid. */
	void (*fault)(void *context, pid_t pid, uint32_t code);
	/* A report for tests: the kernel is about to make this call itself, because of this entry of the list. NULL: the call is
	 * not on the list and is refused. Called without the lock. */
	void (*continued)(void *context, const struct continued_call *call,
			  const struct continued_entry *entry);
	void *context;
};

enum { WARDEN_PERMITS = 64, WARDEN_UNKNOWNS = 64, WARDEN_DOMAIN_BYTES = 256 };

struct warden_options {
	uint64_t mem_bytes; /* 0: the memory that is not promised to others */
	struct pool *pool;  /* the GPU's memory; outlives the warden. NULL: this warden may use all of it */
	uint64_t timeslice_us;	   /* 0: as the program sets it */
	int interleave;		   /* 0..2; -1: as the program sets it */
	struct warden_hooks hooks; /* NULL functions are not called */
	/* Controls that are not on the allowlist and that the operator permits. */
	uint32_t permits[WARDEN_PERMITS];
	unsigned permit_count;
};

/* Access to a program's descriptors and memory where the supervisor may not trace the program (Yama allows only ancestors).
 * Both return a descriptor, which the warden closes, or -errno. They are called without the warden's lock, by the thread in
 * warden_work, and not after the run has ended. */
struct warden_reach {
	/* A descriptor of a process, or of a thread with a table of its own. */
	int (*get_fd)(void *context, pid_t pid, int fd);
	/* /proc/PID/mem, for reading and writing. */
	int (*open_memory)(void *context, pid_t pid);
	void *context;
};

/* The device and the gate outlive the warden. */
struct warden *warden_new(struct device *device, struct gate *gate, const struct warden_options *options,
			  struct bf_error *err);
void warden_free(struct warden *warden); /* with its runs; ends no process */

/* Add the programs that share one seccomp listener. The warden owns the listener, also on failure. `run` is a number that
 * the caller chooses and that no other run of the warden has. reach is copied; NULL: the supervisor may trace the programs. */
int warden_add_run(struct warden *warden, uint32_t run, int listener, const struct warden_reach *reach,
		   struct bf_error *err);
/* Kill every process of the run that has made a driver call, and close the listener: calls that wait for an answer, and
 * later calls, fail with ENOSYS. Of a run that has ended already only the processes are killed. */
void warden_end_run(struct warden *warden, uint32_t run, const char *why);
/* The last process with the filter of the run has ended, or is ending: close the listener, and kill no process. */
void warden_drop_run(struct warden *warden, uint32_t run);

/* Kill every process that has made a driver call. */
void warden_end_processes(struct warden *warden, const char *why);
/* Whether any process has made a driver call and lives. */
bool warden_has_processes(struct warden *warden);
/* The run of a process that has made a driver call and lives; 0: it is no such process of this vGPU. */
uint32_t warden_run_of(struct warden *warden, pid_t pid);
/* The process ID under which the driver counts all clients, memory and channels of the vGPU. */
pid_t warden_owner(const struct warden *warden);
/* The gate of this vGPU. It lives as long as the warden. Only the warden may change its state. */
struct gate_vgpu *warden_gate(struct warden *warden);

/* Poll this for reading (an epoll descriptor), then call warden_work. */
int warden_fd(const struct warden *warden);
/* Handle all pending events. False if no run is left; the ends of the last processes may still have to be handled. */
bool warden_work(struct warden *warden);
/* Compare the ledger with the driver's figures, and kill the programs if they have more memory than the ledger says. To be
 * called once a second. */
void warden_audit(struct warden *warden);

/* Call the fault hook for faults that were not reported yet. warden_audit does that, too. */
void warden_tell_faults(struct warden *warden);
void warden_try_tell_faults(struct warden *warden); /* does nothing while another thread has the lock */

/* Close and open the gate. */
void warden_close(struct warden *warden);
void warden_open(struct warden *warden);
/* Stop running kernels by disabling the channels, and resume them. While the vGPU is stopped, its driver calls wait. */
int warden_stop(struct warden *warden, struct bf_error *err);
int warden_resume(struct warden *warden, struct bf_error *err);
int warden_set_timeslice(struct warden *warden, uint64_t us, struct bf_error *err);
int warden_set_interleave(struct warden *warden, int level, struct bf_error *err);
/* Also changes what the pool has promised. */
int warden_set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err);
void warden_set_permits(struct warden *warden, const uint32_t *controls, unsigned count);
/* The shared domain of the software GPU that the programs may join from now on: the real path of the folder that they have in
 * CUDA_MPS_PIPE_DIRECTORY. Empty: none. Programs that have joined a domain stay in it. -ENAMETOOLONG if the path does not fit
 * into WARDEN_DOMAIN_BYTES. */
int warden_set_domain_folder(struct warden *warden, const char *folder, struct bf_error *err);
void warden_room_made(struct warden *warden); /* see warden_hooks */
/* The warden of the MPS server of this vGPU's domain; NULL: none. Programs of the same user may duplicate objects of its
 * clients, but no channels and no doorbells. It must be replaced before that warden is freed. A lender has no lender. */
void warden_set_lender(struct warden *warden, struct warden *lender);

/* The GPU time of the vGPU: the sum over all channel groups that it has or ever had. Groups with turns of their own never
 * run at the same time, and groups of one shared domain divide its time by their work, so the sum is exclusive.
 * The sum never decreases. The time of a group since the last call is lost if its process ends without freeing the group.
 * -ENOTSUP if the device does not report it. */
int warden_gpu_time(struct warden *warden, uint64_t *gpu_ns);
/* When the vGPU's channel groups had completed all their work, since the last call and as far as the device has recorded it,
 * ordered by the ends. Returns how many; 0 if the device does not record it, or while a driver call of the vGPU is in
 * progress. */
unsigned warden_done(struct warden *warden, struct device_done *to, unsigned room);
/* Whether the GPU has completed all work that was passed on for this vGPU. While the gate is not open, WARDEN_IS_DONE stays
 * true. Cheap if nothing was passed on since it was last true; idle.c says what it costs otherwise. Does not wait for a
 * driver call of the vGPU that is in progress: then it returns WARDEN_CANNOT_TELL. */
enum warden_progress { WARDEN_IS_DONE, WARDEN_IS_BUSY, WARDEN_CANNOT_TELL };
enum warden_progress warden_progress(struct warden *warden);

/* A control that was refused because it is not on the allowlist. */
struct warden_unknown {
	uint32_t control;
	uint64_t count;
};

#define WARDEN_REPORT_PROCESSES 1024
struct warden_report {
	uint64_t mem_limit_bytes, mem_used_bytes, mem_most_bytes, mem_managed_bytes;
	uint64_t mem_named_bytes,
		mem_driver_bytes; /* counted once for each handle: by the ledger, by the driver */
	uint64_t timeslice_us;
	int interleave;
	enum gate_state gate;
	uint32_t channels, processes;
	uint64_t calls, refusals;
	uint64_t continued; /* calls that the kernel made itself: mappings, and the program's own pages */
	uint64_t unknown;   /* controls that were refused because they are not on the allowlist */
	struct warden_unknown unknowns[WARDEN_UNKNOWNS]; /* the first of them; count 0 ends the list */
	uint64_t rings, forwards;			 /* of this vGPU */
	uint64_t strange, swept, gate_cpu_ns;		 /* of the whole gate */
	struct {
		pid_t pid;
		uint64_t used_bytes;
	} process[WARDEN_REPORT_PROCESSES];
};
void warden_report(struct warden *warden, struct warden_report *report);

#endif

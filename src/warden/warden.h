/* warden: stands between the programs of one vGPU and the kernel driver. Their driver calls arrive as seccomp
 * notifications and are made here, on private copies of their arguments and through files of the warden's own.
 * It never decides who runs when: it makes the channels known to the gate, and does as it is told.
 *
 * Any thread may call anything here, but warden_work and warden_audit one at a time, and warden_free the last. A warden
 * has one lock. A call of the driver's may be made under it, but nothing that could wait for a program. warden_hold and
 * warden_open do not need it: they take as long as the gate takes. Wardens have nothing in common but the device and the
 * gate, and hold neither up. */
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

/* Asked before a program gets what it would get. Called under the warden's lock: whoever answers must not wait for anybody
 * who may wait for that. */
struct warden_mem_ask {
	pid_t pid;
	uint64_t bytes, used_bytes, most_bytes;
	uint64_t
		limit_bytes; /* 0: the whole card. Without a limit of its own, what is not promised to others */
	uint64_t gpu_bytes;
};
struct warden_ctx_ask {
	pid_t pid;
	uint32_t contexts;     /* channel groups that there are already */
	uint64_t timeslice_us; /* answers: of the new one, until others are set; 0: as it would be */
	int interleave;	       /* likewise; -1: as it would be */
};
struct warden_hooks {
	/* Memory that fits. False: the program is told that there is none. */
	bool (*mem_alloc)(void *context, const struct warden_mem_ask *ask);
	/* Memory that does not fit. True: it is being seen to, the program waits, and warden_room_made is called whatever
	 * comes of it; then what does not fit is refused. */
	bool (*make_room)(void *context, const struct warden_mem_ask *ask);
	/* A channel group. False: the program is told that there is no room for one. */
	bool (*ctx_init)(void *context, struct warden_ctx_ask *ask);
	/* Not a question: the driver had to end a channel group of this process, for that reason (an Xid). */
	void (*fault)(void *context, pid_t pid, uint32_t code);
	/* Not a question either: the kernel is about to make this call itself, by that entry of the list; NULL: it is not on
	 * the list, and is refused. Called without the lock. For tests. */
	void (*continued)(void *context, const struct continued_call *call,
			  const struct continued_entry *entry);
	void *context;
};

enum { WARDEN_PERMITS = 64, WARDEN_UNKNOWNS = 64 };

struct warden_options {
	uint64_t mem_bytes; /* 0: what is not promised to others */
	struct pool *pool;  /* the card's memory, which outlives the warden; NULL: it is all for this one */
	uint64_t timeslice_us;	   /* 0: as the program asks */
	int interleave;		   /* 0..2; -1: as the program asks */
	struct warden_hooks hooks; /* no functions: nobody is asked */
	/* Controls that are not known to be harmless and that the operator permits. */
	uint32_t permits[WARDEN_PERMITS];
	unsigned permit_count;
};

/* How to come by a program's descriptors and memory where the supervisor may not trace the program (Yama lets only an
 * ancestor do that). Called under the warden's lock; both return a descriptor that is the warden's to close, or -errno.
 * Not called any more once the run is over. */
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

/* Programs that share one seccomp listener, which is taken over, also on failure. `run` is the caller's number for it,
 * which no other run of the warden has. reach NULL: the supervisor may trace the programs; otherwise it is copied. */
int warden_add_run(struct warden *warden, uint32_t run, int listener, const struct warden_reach *reach,
		   struct bf_error *err);
/* Kill every process of it that has made a driver call, and close its listener: calls that wait for an answer, and any
 * that are made later, fail with ENOSYS. A run that is over, or never was, is left alone but for its processes. */
void warden_end_run(struct warden *warden, uint32_t run, const char *why);

/* Kill every process that has made a driver call. */
void warden_end_processes(struct warden *warden, const char *why);
/* Whether any process of it is known. */
bool warden_has_processes(struct warden *warden);
/* The process that the driver knows the vGPU by: all of its clients, memory and channels are this one's. */
pid_t warden_owner(const struct warden *warden);
/* What the gate has of this vGPU, as long as the warden lives. To be held and opened by the warden only. */
struct gate_vgpu *warden_gate(struct warden *warden);

/* Poll this for reading (an epoll descriptor), then call warden_work. */
int warden_fd(const struct warden *warden);
/* Handle what is there. False once no run is left; the ends of their last processes may still be to be handled. */
bool warden_work(struct warden *warden);
/* Compare the ledger with the driver's figures, and end who has more than it was given. Once a second. */
void warden_audit(struct warden *warden);

/* Tell of faults that nobody was told of yet (warden_hooks). It is done by itself, but within a second at worst. */
void warden_tell_faults(struct warden *warden);
void warden_try_tell_faults(struct warden *warden); /* unless it is busy, and sees for itself */

/* Close the gate; open it. */
void warden_hold(struct warden *warden);
void warden_open(struct warden *warden);
/* Stop what runs, in mid-kernel; let it run again. While stopped, driver calls wait. */
int warden_stop(struct warden *warden, struct bf_error *err);
int warden_resume(struct warden *warden, struct bf_error *err);
int warden_set_timeslice(struct warden *warden, uint64_t us, struct bf_error *err);
int warden_set_interleave(struct warden *warden, int level, struct bf_error *err);
/* What the pool has promised changes with it. */
int warden_set_mem(struct warden *warden, uint64_t bytes, struct bf_error *err);
void warden_set_permits(struct warden *warden, const uint32_t *controls, unsigned count);
void warden_room_made(struct warden *warden); /* see warden_hooks */

/* How long the vGPU has had the GPU: the sum over all channel groups that it has or ever had, of the time that each
 * held the GPU. Groups take turns, so of groups with a turn each the sum is time that nobody else had; groups that were
 * put in one shared domain have each the whole time of the domain, and it is counted for each. Never runs backwards.
 * What a group has had since the last time it was asked for is lost if its process ends without freeing it. -ENOTSUP
 * where the device cannot tell. */
int warden_gpu_time(struct warden *warden, uint64_t *gpu_ns);
/* The turns that its channel groups have had since this was last asked, as far as the device remembers them, in order of
 * their ends. How many; 0 where the device does not tell, or while a driver call of the vGPU's is under way. */
unsigned warden_turns(struct warden *warden, struct device_turn *to, unsigned room);
/* Whether the GPU has done everything that was passed on for this vGPU, as of now; it stays true while the gate is
 * closed. Cheap where nothing was passed on since it was last found done; idle.c says what it costs otherwise. Does
 * not wait for a driver call of the vGPU's that is under way: then it cannot tell. */
enum warden_progress { WARDEN_IS_DONE, WARDEN_IS_BUSY, WARDEN_CANNOT_TELL };
enum warden_progress warden_progress(struct warden *warden);

/* A control that was refused because nothing is known of it. */
struct warden_unknown {
	uint32_t control;
	uint64_t count;
};

enum warden_gate { WARDEN_OPEN, WARDEN_HELD, WARDEN_STOPPED };
#define WARDEN_REPORT_PROCESSES 1024
struct warden_report {
	uint64_t mem_limit_bytes, mem_used_bytes, mem_most_bytes, mem_managed_bytes;
	uint64_t mem_named_bytes, mem_driver_bytes; /* once for each name: by the ledger, and by the driver */
	uint64_t timeslice_us;
	int interleave;
	enum warden_gate gate;
	uint32_t channels, processes;
	uint64_t calls, refusals;
	uint64_t continued; /* calls that the kernel made itself: maps, and pages of the program's */
	uint64_t unknown;   /* controls that were refused because nothing is known of them */
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

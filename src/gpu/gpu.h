/* The GPU server: one physical GPU, its vGPUs, and the programs on them. What its files share; nobody else includes
 * this.
 *
 * Threads: the main one answers requests; the turner carries out what sched decides; each vGPU with programs has a
 * worker that serves their driver calls; the loader is there while the kernel looks at a policy.
 * gpu::lock guards everything here but what is said to be one thread's own. Slow things are not done under it: a vGPU that
 * is in use without the lock is pinned, and not removed.
 * gpu::policy_lock is for those who hold a warden's lock and so must not wait for gpu::lock: it guards which policies there
 * are, what they are told of the configuration, and what faults are to be told. It is the last to be taken, and nothing is
 * waited for under it. */
#ifndef BELFRY_GPU_H
#define BELFRY_GPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/loop.h"
#include "client/protocol.h"
#include "gate/gate.h"
#include "gpu/burst.h"
#include "gpu/hall.h"
#include "sched/sched.h"
#include "warden/turns.h"
#include "warden/warden.h"

struct gpu;
struct vgpu;
struct seat;
struct follower;
struct decision;
struct load;

/* One belfry run. */
struct run {
	struct vgpu *vgpu;
	uint32_t number;
	int sock; /* its connection, a talker's */
	uid_t uid;
	int32_t front_pid, program_pid;
	char program[64];
	_Atomic bool is_ending; /* the worker is not to wait for its steward */
	bool has_status;	/* the client has said how the program ended: */
	int status;		/* as of waitpid(2) */
	struct run *next;	/* vgpu::runs */
};

enum { VGPU_FAULTS = 8, VGPU_REFUSALS = 8 };

/* A program came to grief on the GPU. */
struct fault {
	uint64_t at_ns;
	pid_t pid;
	uint32_t code; /* an Xid */
};

/* A policy has refused a program something, or has proposed for it what cannot be had. */
struct refusal {
	enum belfry_hook hook;
	enum sched_decider decider;
	uint32_t clamps; /* enum sched_clamp; 0: it was refused */
	size_t size;
	union {
		struct belfry_mem_alloc mem;
		struct belfry_ctx_init ctx;
	} ctx;
};

/* What the operator has asked for. */
enum vgpu_order { VGPU_FREE, VGPU_HELD, VGPU_STOPPED };

struct vgpu {
	struct gpu *gpu;
	char name[SPEC_NAME_MAX + 1];
	struct spec spec; /* changes under both locks */
	uid_t owner;
	uint32_t domain; /* sched's number of its domain; 0: one of its own. See domains.c */
	bool is_ephemeral;
	struct warden *warden; /* from its first run on */
	struct sched_vgpu *sched;
	struct run *runs;
	unsigned run_count, pins;
	uint64_t made_s, runs_ever; /* CLOCK_REALTIME */
	enum vgpu_order order;
	uint64_t open_ns; /* when a hold ends by itself; 0: not */

	/* The worker. */
	pthread_t worker;
	bool has_worker;
	int worker_wake; /* an eventfd */
	_Atomic bool worker_ends, worker_has_ended;

	/* The turner's view: see turner.c. */
	bool is_told_waiting, is_told_running, is_quiet;
	struct burst burst; /* what runs now, and its wait at the gate */
	uint64_t burst_ns;  /* when the first of it was passed on */
	uint64_t usual_ns;  /* how long such a burst usually takes from then on, smoothed */
	uint64_t probe_ns;  /* when to ask next whether it is done */
	uint64_t probes;
	uint64_t came_ns;		 /* since when it has work, waiting or not; 0: it has none */
	bool is_told_here, is_told_held; /* see work.c */
	/* The meter's: see meter.c. */
	bool has_run; /* since the meter last settled */
	uint64_t seen_gpu_ns, seen_held_ns, residence_ns;
	uint32_t track;		     /* in traces: never used again */
	uint64_t id;		     /* sched's, for those who may outlive its sched_vgpu */
	struct seat *seat;	     /* its own policy; NULL: none. Changes under both locks */
	_Atomic uint64_t wants_room; /* bytes that a program waits for; see room.c */
	/* See faults.c. */
	struct fault new_faults[VGPU_FAULTS];	    /* not told yet: under policy_lock, as is their number */
	struct refusal new_refusals[VGPU_REFUSALS]; /* likewise: see consult.c */
	unsigned new_fault_count, new_refusal_count;
	uint64_t fault_count; /* ever */
	struct fault last_fault;
	/* Limits that programs have met and that belfryd was not told of: see events.c. */
	struct {
		_Atomic bool has_memory, has_time;
		uint64_t memory_ns, time_ns; /* the main thread's: not told again before then */
		uint64_t told_ns;	     /* of the time that the limit has cost; under the lock */
		uint64_t memory, bytes;	     /* refusals, and the last of them: under policy_lock */
		pid_t pid;
	} limited;

	struct vgpu *next; /* gpu::vgpus */
};

/* A connection. */
struct talker {
	int sock; /* -1: free */
	struct gpu *gpu;
	struct loop_source *source;
	uint32_t events;	 /* that the source waits for */
	LIST_ENTRY(talker) next; /* gpu::talkers */
	struct ucred who;
	uint64_t until_ns; /* when it is dropped if nothing came; 0: it may wait */
	struct vgpu *vgpu; /* of a run that is to be started */
	struct run *run;
	bool is_ephemeral; /* that vGPU was made for the run */
	bool is_loading;   /* a policy, for this one: */
	char load_name[SPEC_NAME_MAX + 1];
	bool waits_for_load; /* it is being looked at */
	/* Its answer, which waits until belfryd has saved what it is about. */
	struct protocol_reply *unsaved;
	uint32_t unsaved_op, ticket;
	struct follower *follower;
};

enum {
	GPU_TALKERS_MAX = 4096,
	GPU_TALKERS_OF_ONE = 1024, /* of one user who is neither root nor ours */
	GPU_TALKERS_SPARE = 64,	   /* for those two */
	GPU_TRACE_EVENTS = 1 << 16,
};

enum trace_kind {
	TRACE_OPEN,
	TRACE_CLOSE,
	TRACE_STOP,
	TRACE_RESUME,
	TRACE_WAIT,
	TRACE_RUN,
	TRACE_DONE,
	TRACE_SLICE,
	TRACE_SET,
	TRACE_HERE,
	TRACE_GONE,
	TRACE_FAULT,
};
struct trace_event {
	uint64_t at_ns, value;
	uint32_t track;
	enum trace_kind kind;
};
struct trace_name {
	uint32_t track;
	uid_t owner;
	char name[SPEC_NAME_MAX + 1];
};
struct trace {
	struct trace_event *events;
	uint64_t count; /* ever */
	struct trace_name *names;
	size_t name_count, name_room;
};

struct gpu {
	struct protocol_gpu which;
	struct settings settings; /* changes under both locks */
	struct device *device;
	struct gate *gate;
	struct pool *pool;   /* the device's memory: what is promised to whom */
	struct turns *turns; /* NULL: the device does not tell */
	struct sched *sched;
	pthread_mutex_t lock;
	pthread_cond_t unpinned;
	struct vgpu *vgpus;
	unsigned vgpu_count, run_count;
	uint32_t next_run, next_track, next_domain;
	uint64_t started_ns;
	uint64_t past_gpu_ns; /* used by vGPUs that are gone */
	uint64_t meter_ns;    /* when the meter last looked */
	uint64_t turns_ns;    /* when it last read whose turns it was */
	bool meter_was_busy, meter_has_records;
	bool has_busy;
	_Atomic bool was_used;	/* since busy.c looked */
	unsigned strange_turns; /* since then, of nobody we know */
	struct trace trace;
	struct device_load busy; /* when it was last looked at, if has_busy: see busy.c */
	char time_source[128];
	pthread_mutex_t policy_lock;
	struct seat *seat; /* the GPU's policy; NULL: the built-in. Changes under both locks */
	uint64_t seats;	   /* ever; the main thread's own */
	struct {
		struct decision *ring; /* from the first policy on */
		uint64_t count;	       /* ever */
	} decisions;
	struct follower *followers;
	void *follow_entry; /* room for one record_entry, while anybody follows */

	pthread_t turner;
	bool has_turner;
	int turner_wake;		   /* an eventfd: the gate's poller and the main thread write to it */
	uint64_t turner_want, turner_seen; /* how often it was waited for, and has been around since */
	pthread_cond_t turned;
	_Atomic bool is_ending;
	const char *why; /* it ends; NULL: it was told to */

	/* The main thread's own. */
	int hall, listen_fd, signal_fd, main_wake; /* main_wake: an eventfd */
	char socket[108];
	unsigned filters_floor; /* see inside_floor() */
	struct loop *loop;
	struct loop_source *hall_source;
	struct talker *talker_slots; /* GPU_TALKERS_MAX */
	LIST_HEAD(, talker) talkers; /* those in use */
	struct load *loads; /* objects of policies, in the order they came in; the first is being looked at */
	uint64_t busy_due_ns; /* when to look how busy the GPU is; 0: not before somebody uses it */
	bool is_busy_untold;  /* the device cannot tell */
	struct device_sensors sensors;
	uint64_t sensed_ns; /* when they were last asked; 0: not yet */
	bool hall_is_gone;
	uint32_t last_ticket;
	uint32_t events_lost; /* since belfryd last took one */
};

static inline void gpu_lock(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
}

static inline void gpu_unlock(struct gpu *gpu)
{
	pthread_mutex_unlock(&gpu->lock);
}

/* What it has on the GPU stands still, and cannot be completed. */
static inline bool vgpu_is_stopped(const struct vgpu *vgpu)
{
	return vgpu->warden && gate_is_stopped(warden_gate(vgpu->warden));
}

/* Root, and the user we run as. */
static inline bool is_ruler(const struct ucred *who)
{
	return who->uid == 0 || who->uid == geteuid();
}

/* server.c */
bool gpu_has_traps(const struct gpu *gpu); /* doorbells have breakpoints, by the settings */
void gpu_watch_hall(struct gpu *gpu);	   /* gpu::hall is another descriptor; before the old one is closed */
void gpu_wake(struct gpu *gpu);		   /* the main thread, from any other: a worker has ended */

/* hall.c: belfryd */
void gpu_hall_hear(struct gpu *gpu);
void gpu_hall_tell_vgpu(struct gpu *gpu, const struct vgpu *vgpu);
void gpu_hall_tell_gone(struct gpu *gpu, const struct vgpu *vgpu, const struct hall_account *account);
void gpu_hall_tell_refused(struct gpu *gpu, const char *name, const char *why, bool is_clients);
void gpu_hall_tell_use(struct gpu *gpu);
void gpu_hall_tell_done(struct gpu *gpu, const char *name);
bool gpu_hall_ask_save(struct gpu *gpu, uint32_t ticket);	      /* false: belfryd is not there */
bool gpu_hall_tell_event(struct gpu *gpu, const struct event *event); /* false: it cannot take it now */
void gpu_hall_tell_all(struct gpu *gpu);			      /* READY, and every vGPU */
void gpu_hall_tell_failed(int hall, const char *why);
int gpu_hall_listen(struct gpu *gpu, struct bf_error *err);
void gpu_hall_accept(struct gpu *gpu);

/* vgpus.c: called with the lock held, and return with it */
struct vgpu *vgpu_find(const struct gpu *gpu, const char *name);
struct vgpu *vgpu_by_id(const struct gpu *gpu, uint64_t id); /* 0: nobody's */
struct vgpu *vgpu_create(struct gpu *gpu, const char *name, const struct spec *spec, uid_t owner,
			 bool is_ephemeral, struct bf_error *err);
int vgpu_set(struct vgpu *vgpu, const struct spec *spec, uint32_t parts, struct bf_error *err);
/* Ends its runs. May let go of the lock for a while; nobody finds the vGPU any more meanwhile. */
void vgpu_remove(struct vgpu *vgpu, const char *why);
bool vgpu_may_use(const struct vgpu *vgpu, uid_t uid);
bool vgpu_may_change(const struct vgpu *vgpu, uid_t uid);
void vgpu_pin(struct vgpu *vgpu);
void vgpu_unpin(struct vgpu *vgpu);
int vgpu_order(struct vgpu *vgpu, enum protocol_op op, uint64_t for_us, struct bf_error *err);
/* Holds that end by themselves, and when the first does; 0: none. The main thread's. */
void vgpus_end_holds(struct gpu *gpu, uint64_t now_ns);
uint64_t vgpus_due_ns(const struct gpu *gpu);
uint64_t gpu_reserved_bytes(const struct gpu *gpu, const struct vgpu *but);

/* domains.c: with the lock */
/* Whether a vGPU of that owner may be put in the domain: not if another user's vGPUs are in it and it is not public. */
int domain_check(const struct gpu *gpu, const char *domain, uid_t owner, struct bf_error *err);
/* For sched: the number of the domain of that name for a vGPU of that owner, `self` if it exists already. */
uint32_t domain_number(struct gpu *gpu, const struct vgpu *self, const char *domain, uid_t owner);
void domains_renumber(struct gpu *gpu); /* the list of public domains has changed */

/* runs.c */
int run_start(struct talker *talker, const struct protocol_started *started, int listener,
	      struct bf_error *err);
/* Its connection is closed, or is to be, with a word to the client. */
void run_end(struct run *run, const char *why);
void vgpu_end_worker(struct vgpu *vgpu); /* without the lock */
void vgpus_reap_workers(struct gpu *gpu);

/* requests.c */
void talker_work(struct gpu *gpu, struct talker *talker);
void talker_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *request);
/* belfryd has saved what the ticket was given for, or could not; NULL: it has gone, and no answer waits any longer. */
void talkers_watch(struct gpu *gpu); /* wait for what each connection may send */
void talkers_saved(struct gpu *gpu, const struct hall_message *message);
struct talker *talker_add(struct gpu *gpu, int sock, const struct ucred *who, struct bf_error *err);
void talker_drop(struct gpu *gpu, struct talker *talker);

/* turner.c */
int turner_start(struct gpu *gpu, struct bf_error *err);
void turner_end(struct gpu *gpu);
void turner_wake(struct gpu *gpu); /* from any thread */
/* Wait until it has acted upon what is so now, a second at the most. With the lock, which is let go meanwhile. */
void turner_wait(struct gpu *gpu);
/* A burst of its work was done. With the lock. */
void turner_took(struct vgpu *vgpu, const struct burst_span *span);
/* A program has come or the last one has gone, or somebody outside holds it. With the lock. */
void turner_note(struct vgpu *vgpu);

/* meter.c: with the lock; lets go of it for the asking */
void meter_look(struct gpu *gpu, uint64_t now_ns);
uint64_t meter_next_ns(const struct gpu *gpu);
/* When one vGPU's submissions were done, from a device that tells it. */
void meter_take_done(struct vgpu *vgpu, const struct device_done *done, unsigned count);
/* A burst may have ended, and the next begun, between two looks: the last record tells. The next one came by until_ns. */
void meter_split_burst(struct vgpu *vgpu, uint64_t until_ns);
/* Whose turns it has been, up to now. */
void meter_read_turns(struct gpu *gpu);

/* busy.c: the main thread's, without the lock */
void busy_look(struct gpu *gpu, uint64_t now_ns);
void busy_used(struct gpu *gpu); /* from any thread: somebody uses the GPU */

/* work.c: what those who record are told. With the lock */
void work_came(struct vgpu *vgpu, uint64_t came_ns);
/* What had come was done then; next_ns: since when there is more already, or 0. */
void work_done(struct vgpu *vgpu, uint64_t end_ns, uint64_t next_ns);
void work_note(struct vgpu *vgpu);  /* programs have come or gone, or somebody outside holds it */
void work_read(struct gpu *gpu);    /* what is counted was brought up to date */
void work_share(struct vgpu *vgpu); /* it is new, or was changed */
void work_setup(struct gpu *gpu);   /* the configuration or the policy is another */

/* policy.c */
/* What is asked about policies: `body`, if there is one, is the answer's. With the lock, which may be let go for a while. */
void policy_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		    char **body, size_t *bytes, struct bf_error *err);
/* From now on it is told of decisions. False: it cannot be. Without the lock. */
bool policy_follow(struct gpu *gpu, struct talker *talker, const struct protocol_request *request);

/* load.c: the main thread's, without the lock */
/* The object has come, for a talker that is loading. It is answered when it was looked at, or now if that fails. */
int policy_came(struct gpu *gpu, struct talker *talker, const struct protocol_policy *message, int file,
		struct bf_error *err);
/* What the configuration says takes the GPU's place, as soon as it was looked at. */
void policy_configure(struct gpu *gpu);
/* What one that was killed has left pinned is removed. Once its socket is ours. */
void policies_begin(const struct gpu *gpu);

/* loader.c: likewise */
void loader_reap(struct gpu *gpu); /* those that were looked at take their places */
void loader_wait(struct gpu *gpu); /* for all of them */
void loader_end(struct gpu *gpu);  /* nobody wants them any more */

/* seat.c */
/* Those that are out are let go of; and all of them. The main thread's, without the lock. */
void policies_reap(struct gpu *gpu);
void policies_end(struct gpu *gpu);
/* Who decides about a vGPU, or on the GPU: its own policy, the GPU's, or "built-in". One that is out does not. */
const char *policy_name_of(const struct gpu *gpu, const struct vgpu *vgpu);
/* BELFRY_HOOK_VGPU_INIT, _EXIT or _SET, for the GPU's policy and the vGPU's own. With the lock. */
void policy_tell(struct vgpu *vgpu, enum belfry_hook hook);
void policy_leave(struct vgpu *vgpu); /* it is being removed. With the lock, which is let go for a while */

/* consult.c: what the vGPU's warden asks. Called under the warden's lock, and so without gpu::lock. */
struct warden_hooks policy_hooks(struct vgpu *vgpu);
void refusals_tell(struct gpu *gpu); /* the main thread's, without the lock */

/* report.c, explain.c, trace.c: text to be freed; NULL: out of memory. With the lock. */
char *gpu_report(struct gpu *gpu, const char *name, size_t *bytes);
char *gpu_explain(struct vgpu *vgpu, size_t *bytes);
/* NULL: of all vGPUs, with the decisions about them; otherwise of that user's. */
char *gpu_trace_text(struct gpu *gpu, const uid_t *owner, size_t *bytes);
void gpu_trace(struct vgpu *vgpu, enum trace_kind kind, uint64_t at_ns, uint64_t value);
int trace_open(struct trace *trace);
void trace_close(struct trace *trace);
void trace_name(struct vgpu *vgpu);

/* events.c: what belfryd is to tell people. The main thread's, with the lock, but where it says otherwise */
void gpu_event(struct gpu *gpu, const struct vgpu *vgpu,
	       struct event *event); /* vgpu NULL: of the GPU; then without the lock, too */
void event_run_started(const struct run *run);
void event_run_ended(const struct run *run, const char *why); /* NULL: by itself */
void event_order(struct vgpu *vgpu, enum protocol_op op);
void event_fault(struct vgpu *vgpu, const struct fault *fault);
void event_policy(struct gpu *gpu, const struct vgpu *vgpu, enum event_kind kind, const char *policy,
		  const char *text);
void limit_memory(struct vgpu *vgpu, pid_t pid, uint64_t bytes); /* under the warden's lock, without ours */
void limit_time(struct vgpu *vgpu);				 /* the turner's, with the lock */
void limits_tell(struct gpu *gpu, uint64_t now_ns);		 /* without the lock */
uint64_t limits_due_ns(const struct gpu *gpu);			 /* 0: nothing is to be told */
void limits_end(struct vgpu *vgpu);				 /* it is being removed */

/* room.c: the main thread's, without the lock */
void rooms_make(struct gpu *gpu);

/* faults.c */
/* Under the warden's lock, and so without gpu::lock. */
void fault_came(struct vgpu *vgpu, pid_t pid, uint32_t code);
void faults_find(struct gpu *gpu);	/* the device says that there is one: likewise the main thread's */
void faults_tell(struct gpu *gpu);	/* the main thread's, without the lock */
void faults_end(struct vgpu *vgpu);	/* it is being removed. With the lock */
void faults_log(struct vgpu *vgpu);	/* it was, and its warden, too: what was found last is only logged */
const char *fault_words(uint32_t code); /* what an Xid means; NULL: it is not a common one */

struct sched_options gpu_sched_options(const struct gpu *gpu);
struct sched_share gpu_sched_share(const struct spec *spec, uint32_t domain);

#endif

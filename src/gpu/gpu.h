/* The GPU server: one physical GPU, its vGPUs, and their programs. Shared by the files of this module only.
 *
 * Threads: the main thread answers requests. The turner carries out what sched decides. Each vGPU with programs has a
 * worker, which serves their driver calls. The loader exists while the kernel verifies a policy.
 * gpu::lock guards everything here except what is marked as one thread's own. Slow operations are not done under it:
 * a vGPU that is used without the lock is pinned, and is not removed while it is pinned.
 * gpu::policy_lock is for threads that hold a warden's lock and so must not wait for gpu::lock. It guards which
 * policies there are, the configuration that they receive (gpu::settings, vgpu::spec), and the faults, refusals and
 * memory limits that are not reported yet. It is the last lock to be taken, and no thread waits for anything under
 * it. */
#ifndef BELFRY_GPU_H
#define BELFRY_GPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
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
struct mps;
struct lease_domain;
struct lease_holder;
struct vgpu_probes;
struct attached_probe;
struct attached;
struct json_object;

/* One belfry run. */
struct run {
	struct vgpu *vgpu;
	uint32_t number;
	int sock; /* the connection, which is a talker's */
	uid_t uid;
	int32_t front_pid, program_pid;
	char program[64];
	_Atomic bool is_ending;	   /* the worker must not wait for the steward */
	bool has_status;	   /* the client has sent the exit status of the program */
	int status;		   /* as of waitpid(2); valid if has_status */
	struct mps *mps;	   /* the MPS server of its domain, which it has taken; NULL: none */
	bool has_lost_mps;	   /* that server has ended since */
	bool has_probes;	   /* its programs load modules through the library that can insert probes */
	struct attached *attached; /* NULL: the program was started by belfry */
	struct run *next;	   /* vgpu::runs */
};

enum { VGPU_FAULTS = 8, VGPU_REFUSALS = 8 };

/* A fault of a program on the GPU. */
struct fault {
	uint64_t at_ns;
	pid_t pid;
	uint32_t code; /* an Xid */
};

/* A policy has refused a program's request, or has proposed values that are not possible. */
struct refusal {
	enum belfry_hook hook;
	enum sched_decider decider;
	uint32_t clamps; /* enum sched_clamp; 0: the request was refused */
	size_t size;
	union {
		struct belfry_mem_alloc mem;
		struct belfry_ctx_init ctx;
	} ctx;
};

/* Whether sched decides about the gate, or an order does. A vGPU that is stopped may also be held: see vgpu::holds. */
enum vgpu_order { VGPU_FREE, VGPU_HELD, VGPU_STOPPED };
/* Why the gate is held closed. */
enum vgpu_hold {
	VGPU_HOLD_OPERATOR = 1, /* belfry hold; may expire */
	VGPU_HOLD_LEASE = 2,	/* a process has not given back SMs: see lease_late.c */
};

struct vgpu {
	struct gpu *gpu;
	char name[SPEC_NAME_MAX + 1];
	struct spec spec; /* changes under both locks */
	uid_t owner;
	uint32_t domain; /* sched's number of the domain; 0: a domain of its own. See domains.c */
	bool is_ephemeral;
	bool is_hidden;	       /* of an MPS server: belfryd does not know it, and so no client can name it */
	struct warden *warden; /* NULL before the first run */
	struct sched_vgpu *sched;
	struct run *runs;
	unsigned run_count, pins;
	uint64_t made_s, runs_ever; /* made_s: CLOCK_REALTIME */
	enum vgpu_order order;
	unsigned holds;	  /* enum vgpu_hold, a mask; after a stop they apply again */
	uint64_t open_ns; /* when the operator's hold expires; 0: never */

	pthread_t worker;
	bool has_worker;
	int worker_wake; /* an eventfd */
	_Atomic bool worker_ends, worker_has_ended;
	/* See lease.h. */
	_Atomic bool is_lease_idle; /* the main thread regards it as idle, and is told when it has work */
	struct lease_holder *lease; /* its programs' leases; NULL: they have none. Main thread only */
	uint64_t lease_moves, lease_fell_back; /* total */
	uint64_t request_ns; /* when a program last reported the time of a request (lease_page.c); 0: never */
	struct vgpu_probes *probing; /* see probes.h; NULL: none. Main thread only */

	/* The turner's: see turner.c. */
	bool is_told_waiting, is_told_running, is_quiet;
	struct burst burst; /* the current burst, including its wait at the gate */
	uint64_t burst_ns;  /* when its first submission was passed on */
	uint64_t usual_ns;  /* smoothed duration of a burst from burst_ns on */
	uint64_t probe_ns;  /* when to ask next whether the burst is done */
	uint64_t probes;
	uint64_t came_ns;		 /* since when it has work, waiting or running; 0: it has none */
	bool is_told_here, is_told_held; /* see work.c */
	/* The meter's: see meter.c. */
	bool has_run; /* since the meter last settled */
	uint64_t seen_gpu_ns, seen_held_ns, residence_ns;
	uint32_t track;		     /* in traces; never reused */
	uint64_t id;		     /* sched's ID, for records that may outlive its sched_vgpu */
	struct seat *seat;	     /* its own policy; NULL: none. Changes under both locks */
	_Atomic uint64_t wants_room; /* bytes that a program waits for; see room.c */
	/* See faults.c. */
	struct fault new_faults[VGPU_FAULTS]; /* not reported yet; policy_lock guards these and the counts */
	struct refusal new_refusals[VGPU_REFUSALS]; /* likewise: see consult.c */
	unsigned new_fault_count, new_refusal_count;
	uint64_t fault_count; /* total */
	struct fault last_fault;
	/* Limits that programs have reached and that are not reported to belfryd yet: see events.c. */
	struct {
		_Atomic bool has_memory, has_time;
		uint64_t memory_ns, time_ns; /* main thread only: no report before this time */
		uint64_t told_ns;	/* the part of the limited time that was reported; under the lock */
		uint64_t memory, bytes; /* number of refusals, size of the last one; under policy_lock */
		pid_t pid;
	} limited;

	struct vgpu *next; /* gpu::vgpus */
};

/* A connection. */
struct talker {
	int sock; /* -1: unused */
	struct gpu *gpu;
	struct loop_source *source;
	uint32_t events;	 /* that the source waits for */
	LIST_ENTRY(talker) next; /* gpu::talkers */
	struct ucred who;
	uint64_t until_ns; /* when the connection is dropped if it sends nothing; 0: never */
	struct vgpu *vgpu; /* of a run that is not started yet, or of run */
	struct run *run;
	bool was_asked;	   /* belfryd has passed its first request; later ones have not been checked by it */
	bool is_ephemeral; /* the vGPU was created for the run */
	bool is_own;	   /* a process of belfryd, which may have filters of its own */
	bool is_attaching; /* the next message has the listener of an attached run */
	bool is_loading;   /* the next message is a policy, for load_name */
	bool is_probing;   /* no: it is a probe */
	bool wants_probes; /* of a run that is not started yet: PROTOCOL_PROBES */
	struct vgpu_probes *dump; /* the answer waits for a dump of these; NULL: it does not */
	char load_name[SPEC_NAME_MAX + 1];
	struct mps *mps;     /* of a run that is not started yet */
	bool waits_for_mps;  /* the answer waits until that server is ready */
	uint64_t asked_ns;   /* since when */
	bool waits_for_load; /* the policy is being verified */
	char now_shared[SPEC_NAME_MAX +
			1]; /* the domain that its request has made a shared one; empty: none */
	/* The answer, which waits until belfryd has saved the change. */
	struct protocol_reply *unsaved;
	uint32_t unsaved_op, ticket;
	struct follower *follower;
};

enum {
	GPU_TALKERS_MAX = 4096,
	GPU_TALKERS_OF_ONE = 1024, /* for one user other than root and the user of belfryd */
	GPU_TALKERS_SPARE = 64,	   /* reserved for root and the user of belfryd */
	GPU_MPS_MAX = 64,	   /* shared domains with programs */
	GPU_MPS_OF_ONE = 16,	   /* for one user */
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
	uint64_t count; /* total */
	struct trace_name *names;
	size_t name_count, name_room;
};

struct gpu {
	struct protocol_gpu which;
	struct settings settings; /* changes under both locks */
	struct device *device;
	struct gate *gate;
	struct pool *pool;   /* the memory of the device, and what is promised to vGPUs */
	struct turns *turns; /* NULL: the device has no context switch records */
	struct sched *sched;
	pthread_mutex_t lock;
	pthread_cond_t unpinned;
	struct vgpu *vgpus;
	unsigned vgpu_count, run_count;
	uint32_t next_run, next_track, next_domain, next_mps;
	uint64_t started_ns;
	uint64_t past_gpu_ns; /* of vGPUs that were removed */
	uint64_t meter_ns;    /* when the meter last measured */
	uint64_t turns_ns;    /* when it last read the context switch records */
	bool meter_was_busy, meter_has_records;
	bool has_busy;
	_Atomic bool was_used;	/* since busy.c last read the counters */
	unsigned strange_turns; /* turns of unknown processes since the meter last measured */
	struct trace trace;
	struct device_load busy; /* the last values, if has_busy: see busy.c */
	char time_source[128];
	pthread_mutex_t policy_lock;
	struct seat *seat; /* the GPU's policy; NULL: the built-in. Changes under both locks */
	uint64_t seats;	   /* total; main thread only */
	struct {
		struct decision *ring; /* allocated with the first policy */
		uint64_t count;	       /* total */
	} decisions;
	struct follower *followers;
	void *follow_entry; /* buffer for one record_entry, while there are followers */

	pthread_t turner;
	bool has_turner;
	int turner_wake;		   /* an eventfd; the gate's poller and the main thread write to it */
	uint64_t turner_want, turner_seen; /* calls of turner_wait(), and those of them that are served */
	pthread_cond_t turned;
	_Atomic bool is_ending;
	const char *why; /* why the server ends; NULL: it was asked to */

	/* Main thread only. */
	int hall, listen_fd, signal_fd, main_wake; /* main_wake: an eventfd */
	char socket[108];
	unsigned filters_floor; /* see inside_floor() */
	struct loop *loop;
	struct loop_source *hall_source;
	struct talker *talker_slots;	  /* GPU_TALKERS_MAX */
	LIST_HEAD(, talker) talkers;	  /* those in use */
	LIST_HEAD(, mps) mps;		  /* MPS servers */
	LIST_HEAD(, lease_domain) leases; /* of their domains */
	struct loop_source *probe_source;
	uint64_t probes_rest_ns; /* no connection for probes is accepted before this time; 0: they are */
	uint64_t next_dump;	 /* ticket */
	uint64_t mirror_at_ns;	 /* the next round of copies of probes for policies */
	char probe_socket[108];	 /* for the libraries in programs; empty: there is none */
	int probe_listener;
	uint32_t next_probe;
	struct load *loads;   /* policies and probes; the first is being verified, then those of root */
	uint64_t busy_due_ns; /* when to read the utilization next; 0: when the GPU is used again */
	bool is_busy_untold;  /* the device does not report its utilization */
	struct device_sensors sensors;
	uint64_t sensed_ns; /* when the sensors were last read; 0: never */
	bool hall_is_gone, has_dump_done;
	uint32_t last_ticket;
	uint32_t events_lost; /* since belfryd last accepted an event */
};

static inline void gpu_lock(struct gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
}

static inline void gpu_unlock(struct gpu *gpu)
{
	pthread_mutex_unlock(&gpu->lock);
}

/* The work of a stopped vGPU on the GPU cannot complete. */
static inline bool vgpu_is_stopped(const struct vgpu *vgpu)
{
	return vgpu->warden && gate_is_stopped(warden_gate(vgpu->warden));
}

/* server.c */
bool gpu_has_traps(const struct gpu *gpu); /* whether the settings permit breakpoints on doorbells */
void gpu_watch_hall(
	struct gpu *gpu);	/* gpu::hall is another descriptor; called before the old one is closed */
void gpu_wake(struct gpu *gpu); /* wakes the main thread; for any other thread */

/* hall.c: messages to and from belfryd */
void gpu_hall_hear(struct gpu *gpu);
void gpu_hall_tell_vgpu(struct gpu *gpu, const struct vgpu *vgpu);
void gpu_hall_tell_gone(struct gpu *gpu, const struct vgpu *vgpu, const struct hall_account *account);
void gpu_hall_tell_refused(struct gpu *gpu, const struct protocol_request *request, const char *why,
			   bool is_clients);
void gpu_hall_tell_use(struct gpu *gpu);
void gpu_hall_tell_done(struct gpu *gpu, const struct protocol_request *request, bool is_clients);
bool gpu_hall_ask_save(struct gpu *gpu, uint32_t ticket);	      /* false: belfryd is gone */
bool gpu_hall_tell_event(struct gpu *gpu, const struct event *event); /* false: it cannot be sent now */
void gpu_hall_tell_all(struct gpu *gpu); /* HALL_READY, and HALL_VGPU for each vGPU */
void gpu_hall_tell_failed(int hall, const char *why);
int gpu_hall_listen(struct gpu *gpu, struct bf_error *err);
void gpu_hall_accept(struct gpu *gpu);

/* vgpus.c: called with the lock held, and return with it held */
struct vgpu *vgpu_find(const struct gpu *gpu, const char *name);
struct vgpu *vgpu_by_id(const struct gpu *gpu, uint64_t id); /* id 0: NULL */
enum vgpu_flag {
	VGPU_IS_EPHEMERAL = 1, /* removed with its last run */
	VGPU_IS_HIDDEN = 2,
};
struct vgpu *vgpu_create(struct gpu *gpu, const char *name, const struct spec *spec, uid_t owner,
			 unsigned flags, struct bf_error *err);
int vgpu_set(struct vgpu *vgpu, const struct spec *spec, uint32_t parts, struct bf_error *err);
/* Ends its runs and frees it. Releases the lock for a while. */
void vgpu_remove(struct vgpu *vgpu, const char *why);
bool vgpu_may_use(const struct vgpu *vgpu, uid_t uid);
bool vgpu_may_change(const struct vgpu *vgpu, uid_t uid);
void vgpu_pin(struct vgpu *vgpu);
void vgpu_unpin(struct vgpu *vgpu);
int vgpu_order(struct vgpu *vgpu, enum protocol_op op, uint64_t for_us, struct bf_error *err);
void vgpu_hold_lease(struct vgpu *vgpu, bool is_held); /* VGPU_HOLD_LEASE. Releases the lock for a while */
/* End the holds that have expired; when the first one expires, 0: none. Main thread only. */
void vgpus_end_holds(struct gpu *gpu, uint64_t now_ns);
uint64_t vgpus_due_ns(const struct gpu *gpu);
uint64_t gpu_reserved_bytes(const struct gpu *gpu, const struct vgpu *but);

/* domains.c: with the lock */
/* Whether a vGPU of that owner may join the domain: not if it has vGPUs of another user and is not public. */
int domain_check(const struct gpu *gpu, const char *domain, uid_t owner, struct bf_error *err);
/* For sched: the number of the domain of that name for a vGPU of that owner. self: that vGPU, if it exists already. */
uint32_t domain_number(struct gpu *gpu, const struct vgpu *self, const char *domain, uid_t owner);
void domains_renumber(struct gpu *gpu); /* public_domains has changed */
/* Whether the domain of that owner is shared: one of its vGPUs has --sm, and all its programs share a GPU context. The
 * vGPUs of another owner in a public domain do not belong to it. */
bool domain_is_shared(const struct gpu *gpu, const char *domain, uid_t owner);
bool vgpu_is_shared(const struct vgpu *vgpu);
/* Whether the SMs that the vGPUs of the domain request are at most all of them. self: that vGPU, if it exists already. */
int domain_check_sm(const struct gpu *gpu, const struct vgpu *self, const struct spec *spec, uid_t owner,
		    struct bf_error *err);

/* runs.c */
int run_start(struct talker *talker, const struct protocol_started *started, int listener,
	      struct bf_error *err);
/* Start the run of an MPS server: a process and its descendants, below `root`. Takes the listener. Without the lock. */
struct run *run_start_server(struct vgpu *vgpu, pid_t root, pid_t program, int listener,
			     struct bf_error *err);
/* End a run and its connection. why: sent to the client; NULL: the client has closed the connection. With the lock,
 * which is released for a while. */
void run_end(struct run *run, const char *why);
void vgpu_end_worker(struct vgpu *vgpu); /* without the lock */
void vgpus_reap_workers(struct gpu *gpu);

/* Begin a run on the vGPU. Takes the listener, and the run unless this fails. Below `root` are the processes that the
 * software GPU serves through this server only. Without the lock. */
int run_begin(struct run *run, pid_t root, int listener, const struct warden_reach *reach,
	      struct bf_error *err);

/* attach.c: runs of processes that belfry has not started. Main thread only, except attached_put_json and attached_name */
/* Whether the client may attach processes to the vGPU. With the lock. */
int attach_check(const struct talker *talker, const struct vgpu *vgpu, struct bf_error *err);
/* Takes the listener. Without the lock. */
int attach_start(struct talker *talker, const struct protocol_attached *message, int listener,
		 struct bf_error *err);
/* Called at the end of the run; the processes are killed if is_killed. Frees it. NULL is ignored. */
void attached_end(struct gpu *gpu, struct attached *attached, bool is_killed);
const char *attached_kind(const struct attached *attached); /* "container", "pod", "job" */
const char *attached_id(const struct attached *attached);
void attached_put_json(struct json_object *to, const struct run *run);
void attached_say(FILE *to, const struct run *run); /* a sentence for explain */

/* mps.c: the MPS servers of shared domains. Main thread only */
struct mps_owner {
	uid_t uid;
	gid_t gid;
};
/* Take the server of the vGPU's domain, and start it if it does not run. The caller drops it. Check mps_is_ready(); if it is
 * not, talkers_served() follows. With or without the lock. */
struct mps *mps_take(struct vgpu *vgpu, const struct mps_owner *owner, struct bf_error *err);
void mps_drop(struct mps *mps);
bool mps_is_ready(const struct mps *mps);
bool mps_is_of(const struct mps *mps, const struct vgpu *vgpu); /* of its domain */
const char *mps_folder_of(const struct mps *mps);
const char *mps_last_end(const struct mps *mps); /* of a server that has ended by itself; empty: it has not */
/* The warden of the MPS server of the vGPU's domain; NULL: there is none, or the vGPU is its own. */
struct warden *mps_warden_of(const struct vgpu *vgpu);
void mps_lend(struct gpu *gpu); /* servers or domains have changed: tell the wardens. Without the lock */
void mps_look(struct gpu *gpu, uint64_t now_ns); /* without the lock */
uint64_t mps_due_ns(const struct gpu *gpu);	 /* 0: never */
void mps_end(struct gpu *gpu);			 /* all of them; without the lock */

/* mps_program.c */
bool mps_needs_program(const struct gpu *gpu);
struct mps_start;
int mps_program_find(const struct gpu *gpu, struct mps_start *start,
		     struct bf_error *err); /* control, devices */

/* mps_folder.c */
void mps_folders_begin(const struct gpu *gpu); /* removes all, also those that a killed server has left */
/* Make the folder of server `number`. is_marked: with the file by which the software GPU's libcuda knows a domain. `to` has
 * MPS_FOLDER_BYTES. *listener: the socket for leases in it, if it was made. */
int mps_folder_make(const struct gpu *gpu, uint32_t number, const struct mps_owner *owner, bool is_marked,
		    char *to, int *listener, struct bf_error *err);
void mps_folder_remove(const char *path);

/* lease.c: SM leases of the programs of shared domains. Main thread only */
/* Listen for the processes of the runs that have taken this MPS server. Takes the listener. */
struct lease_domain *lease_domain_new(struct gpu *gpu, const struct mps *mps, int listener,
				      struct bf_error *err);
void lease_domain_free(
	struct lease_domain *domain); /* with its leases; without the lock if it has any. NULL is ignored */
void leases_look(struct gpu *gpu, uint64_t now_ns); /* without the lock */
uint64_t leases_due_ns(const struct gpu *gpu);	    /* 0: never */
void lease_changed(const struct vgpu *vgpu);	    /* its share has changed */
void lease_leave(struct vgpu *vgpu);		    /* it is being removed. With the lock */
void lease_stir(struct vgpu *vgpu);		    /* it has work. The turner's, with the lock */

/* lease_report.c: main thread only */
struct json_object *lease_json(const struct vgpu *vgpu); /* NULL: no process has a lease */
void lease_say(FILE *to, const struct vgpu *vgpu);
void lease_say_hold(FILE *to, const struct vgpu *vgpu); /* why its gate is closed */

/* probes.c: probes of vGPUs. Main thread only */
/* Requests about the probes of a vGPU, by its owner or root. *body, if set, is the body of the answer. With the lock. */
void probe_request(struct talker *talker, struct vgpu *vgpu, const struct protocol_request *request,
		   char **body, size_t *bytes, struct bf_error *err);
void probes_leave(struct vgpu *vgpu); /* it is being removed. With the lock */
/* The probe of a message, without its object. NULL: err. */
struct attached_probe *probe_load_new(const struct protocol_probe *message, struct bf_error *err);

/* probes_link.c */
void probes_begin(struct gpu *gpu); /* listen */
void probes_end(struct gpu *gpu);
void probes_look_link(struct gpu *gpu, uint64_t now_ns);

/* probes_dump.c */
void probes_drop_dump(struct talker *talker);	    /* the client is gone */
void probes_look(struct gpu *gpu, uint64_t now_ns); /* without the lock */
void probes_watch_again(struct gpu *gpu);	    /* a policy was loaded or unloaded; with the lock */
uint64_t probes_due_ns(const struct gpu *gpu);	    /* 0: never */

/* requests.c */
/* The answer to PROTOCOL_PROBE_DUMP. Without the lock. */
void talker_dumped(struct gpu *gpu, struct talker *talker, const struct bf_error *err, const char *body,
		   size_t bytes, uint64_t start_ns);
/* The MPS server is ready, or err says why it is not: answer the runs that wait for it. */
void talkers_served(struct gpu *gpu, const struct mps *mps, const struct bf_error *err);
void talker_work(struct gpu *gpu, struct talker *talker);
void talker_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *request);
void talkers_watch(struct gpu *gpu); /* sets the events that each connection is watched for */
/* belfryd's answer to HALL_SAVE. NULL: belfryd is gone, and all waiting answers are sent. */
void talkers_saved(struct gpu *gpu, const struct hall_message *message);
struct talker *talker_add(struct gpu *gpu, int sock, const struct ucred *who, struct bf_error *err);
void talker_drop(struct gpu *gpu, struct talker *talker);

/* turner.c */
int turner_start(struct gpu *gpu, struct bf_error *err);
void turner_end(struct gpu *gpu);
void turner_wake(struct gpu *gpu); /* from any thread */
/* Wait until the turner has acted on the current state, at most one second. With the lock, which is released
 * meanwhile. */
void turner_wait(struct gpu *gpu);
/* A burst is done. With the lock. */
void turner_took(struct vgpu *vgpu, const struct burst_span *span);
/* A run has started, the last run has ended, or the operator's order has changed. With the lock. */
void turner_note(struct vgpu *vgpu);

/* meter.c: with the lock, which is released while the device is read */
void meter_look(struct gpu *gpu, uint64_t now_ns);
uint64_t meter_next_ns(const struct gpu *gpu);
/* Records of completed submissions, from a device that has them. */
void meter_take_done(struct vgpu *vgpu, const struct device_done *done, unsigned count);
/* If the last record ends the burst and the next burst began by until_ns, count the former as done. */
void meter_split_burst(struct vgpu *vgpu, uint64_t until_ns);
/* Read the context switch records up to now. */
void meter_read_turns(struct gpu *gpu);

/* busy.c: main thread only, without the lock */
void busy_look(struct gpu *gpu, uint64_t now_ns);
void busy_used(struct gpu *gpu); /* from any thread: a vGPU uses the GPU */

/* work.c: records for followers that want work. With the lock */
void work_came(struct vgpu *vgpu, uint64_t came_ns);
/* The work was done at end_ns. next_ns: since when there is more; 0: there is none. */
void work_done(struct vgpu *vgpu, uint64_t end_ns, uint64_t next_ns);
void work_note(struct vgpu *vgpu);  /* as turner_note() */
void work_read(struct gpu *gpu);    /* the counters were updated */
void work_share(struct vgpu *vgpu); /* the vGPU is new, or its spec has changed */
void work_setup(struct gpu *gpu);   /* the configuration or the GPU's policy has changed */

/* policy.c */
/* Requests about policies. *body, if set, is the body of the answer. With the lock, which may be released for a
 * while. */
void policy_request(struct gpu *gpu, struct talker *talker, const struct protocol_request *request,
		    char **body, size_t *bytes, struct bf_error *err);
/* Send decisions to the talker from now on. False: it failed. Without the lock. */
bool policy_follow(struct gpu *gpu, struct talker *talker, const struct protocol_request *request);

/* load.c: main thread only, without the lock */
/* The policy object of a talker that is loading has arrived. 0: the talker is answered after verification. Otherwise
 * the caller answers. */
int policy_came(struct gpu *gpu, struct talker *talker, const struct protocol_policy *message, int file,
		struct bf_error *err);
/* The same for a probe. */
int probe_came(struct gpu *gpu, struct talker *talker, const struct protocol_probe *message, int file,
	       struct bf_error *err);
/* Load the configured policy for the GPU, or unload the policy if none is configured. A policy decides once it is
 * verified. */
void policy_configure(struct gpu *gpu);
/* Remove the pins that a killed server has left. Called once this server owns the socket. */
void policies_begin(const struct gpu *gpu);

/* loader.c: main thread only, without the lock */
void loader_reap(struct gpu *gpu); /* installs the policies that are verified */
void loader_wait(struct gpu *gpu); /* until all loads are done */
void loader_end(struct gpu *gpu);  /* drops all loads */

/* seat.c */
/* Release the policies that are out; release all policies. Main thread only, without the lock. */
void policies_reap(struct gpu *gpu);
void policies_end(struct gpu *gpu);
/* The policy that decides about a vGPU, or about the GPU if vgpu is NULL: its own, the GPU's, or "built-in". A policy
 * that is out does not decide. */
const char *policy_name_of(const struct gpu *gpu, const struct vgpu *vgpu);
/* BELFRY_HOOK_VGPU_INIT, _EXIT or _SET, for the GPU's policy and the vGPU's own. With the lock. */
void policy_tell(struct vgpu *vgpu, enum belfry_hook hook);
void policy_leave(struct vgpu *vgpu); /* on removal. With the lock, which is released for a while */

/* consult.c: called by the vGPU's warden, under the warden's lock, and so without gpu::lock. */
struct warden_hooks policy_hooks(struct vgpu *vgpu);
void refusals_tell(struct gpu *gpu); /* main thread only, without the lock */

/* report.c, explain.c, trace.c: return text to be freed; NULL: out of memory. With the lock. */
bool gpu_uuid_text(const struct gpu *gpu, char *to, size_t room); /* "GPU-..."; false: it has none */
char *gpu_report(struct gpu *gpu, const char *name, size_t *bytes);
char *gpu_explain(struct vgpu *vgpu, size_t *bytes);
/* owner NULL: all vGPUs, and the decisions about them; otherwise the vGPUs of that user. */
char *gpu_trace_text(struct gpu *gpu, const uid_t *owner, size_t *bytes);
void gpu_trace(struct vgpu *vgpu, enum trace_kind kind, uint64_t at_ns, uint64_t value);
int trace_open(struct trace *trace);
void trace_close(struct trace *trace);
void trace_name(struct vgpu *vgpu);

/* events.c: events for belfryd. Main thread only, with the lock, unless noted otherwise */
void gpu_event(struct gpu *gpu, const struct vgpu *vgpu,
	       struct event *event); /* vgpu NULL: an event of the GPU; then also without the lock */
void event_run_started(const struct run *run);
void event_run_ended(const struct run *run, const char *why); /* NULL: the program ended by itself */
void event_order(struct vgpu *vgpu);			      /* what the operator has ordered */
void event_mps_ended(struct vgpu *vgpu, const char *text);
void event_lease(struct vgpu *vgpu, const char *text); /* its gate was closed or opened */
void event_fault(struct vgpu *vgpu, const struct fault *fault);
void event_policy(struct gpu *gpu, const struct vgpu *vgpu, enum event_kind kind, const char *policy,
		  const char *text);
void limit_memory(struct vgpu *vgpu, pid_t pid, uint64_t bytes); /* under the warden's lock, not gpu::lock */
void limit_time(struct vgpu *vgpu);				 /* the turner's, with the lock */
void limits_tell(struct gpu *gpu, uint64_t now_ns);		 /* without the lock */
uint64_t limits_due_ns(const struct gpu *gpu);			 /* 0: nothing to report */
void limits_end(struct vgpu *vgpu);				 /* the vGPU is being removed */

/* room.c: main thread only, without the lock */
void rooms_make(struct gpu *gpu);

/* faults.c */
/* Under the warden's lock, and so without gpu::lock. */
void fault_came(struct vgpu *vgpu, pid_t pid, uint32_t code);
void faults_find(struct gpu *gpu);	/* the device reports a fault; main thread only, without the lock */
void faults_tell(struct gpu *gpu);	/* main thread only, without the lock */
void faults_end(struct vgpu *vgpu);	/* the vGPU is being removed. With the lock */
void faults_log(struct vgpu *vgpu);	/* the warden is freed: log the last faults only */
const char *fault_words(uint32_t code); /* what an Xid means; NULL: not a common one */

struct sched_options gpu_sched_options(const struct gpu *gpu);
struct sched_share gpu_sched_share(const struct spec *spec, uint32_t domain);

#endif

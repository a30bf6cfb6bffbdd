/* What the files of this room share. Private to the room. */
#ifndef BELFRY_WARDEN_STATE_H
#define BELFRY_WARDEN_STATE_H

#include <linux/seccomp.h>
#include <pthread.h>

#include "warden/ledger.h"
#include "warden/warden.h"

/* A doorbell page that a program rings in place of the GPU's. */
struct doorbell {
	uint32_t client, object; /* the program's own, for which it stands */
	volatile uint32_t *page;
	uint64_t bytes;
	struct gate_bell *bell;
	struct doorbell *next; /* process::doorbells */
};

/* Memory of ours at a descriptor where the program has a device file: its mmap finds the memory. The file
 * comes back when the program uses the descriptor again. */
struct standin {
	int as_fd;
	int real_fd;  /* the program's file, held by us meanwhile */
	dev_t device; /* of the memory */
	ino_t inode;
	struct standin *next; /* process::standins */
};

/* The program was told that a doorbell is ready to be mapped through this file. */
struct expected_map {
	int fd;
	uint32_t client, object;
	uint64_t bytes;
	struct expected_map *next; /* process::expected */
};

struct process {
	struct warden *warden;
	uint64_t serial;
	uint32_t run; /* run::number */
	pid_t pid;
	int pidfd;
	struct warden_reach reach; /* of its run; no functions: directly */
	int memory_fd;		   /* /proc/PID/mem by reach.open_memory, or -1 */
	bool is_ending;		   /* we killed it */
	struct gate_program *gate;
	struct doorbell *doorbells;
	struct standin *standins;
	struct expected_map *expected;
	uint64_t managed_bytes;
	unsigned surplus_seen; /* audits in a row that found more memory than was given */
	struct process *next;  /* warden::processes */
};

/* An RM client. It lives as long as its control file, which may outlive the process that made it. */
struct client {
	uint32_t handle;
	pid_t pid;	/* of the process that made it: the driver counts under this number */
	int control_fd; /* in that process, when last seen */
	uint32_t device, subdevice;
	struct client *next; /* warden::clients */
};

/* Kept with a ledger object of kind CHANNEL. */
struct channel {
	struct client *client;
	struct process *process; /* whose bells ring it; gone when gate is NULL */
	struct view *view;
	struct device_view page; /* what the GPU reads */
	struct view *notifier;	 /* where the driver writes that it had to end the channel; NULL: not known */
	bool is_fault_told;
	struct gate_channel *gate;
	uint32_t token;
	uint64_t idle_at; /* what had been passed on when it was last found to have nothing to do: idle.c */
};

/* A program's USERD memory, seen from here; several channels keep theirs in one. */
struct view {
	uint32_t client, memory;
	struct device_view seen;
	unsigned users;
	struct view *next; /* warden::views */
};

/* A root allocation that was let through, and that no client has come of yet. */
struct passed_root {
	pid_t pid;
	uint64_t since_ns;
	struct passed_root *next; /* warden::roots */
};

/* Kept with a ledger object of kind GROUP, from when there is something to keep. */
struct group {
	bool is_fault_told;
	uint64_t had_ns;
	uint64_t timeslice_us; /* its own, from its beginning on; 0: none */
	int interleave;	       /* likewise; -1: none */
};

/* Programs with one listener. Records go when it is over. */
struct run {
	uint32_t number;
	uint64_t serial;
	int listener;
	struct warden_reach reach;
	bool has_hidden;  /* a program of it hides its files, and that was said */
	struct run *next; /* warden::runs */
};

struct deferred {
	struct seccomp_notif request;
	bool has_asked;	       /* for room, and waits for that */
	struct run *run;       /* on whose listener it is answered */
	struct deferred *next; /* warden::deferred */
};

struct warden {
	int epoll; /* an event's data is the serial of a run or of a process: no two ever have the same */
	struct device *device;
	struct gate *gate;
	struct gate_vgpu *gate_vgpu;

	pthread_mutex_t lock; /* of what follows */
	uint64_t last_serial;
	struct run *runs;
	struct ledger *ledger;
	struct warden_options options;
	struct process *processes;
	struct client *clients;
	struct view *views;
	struct passed_root *roots;
	struct deferred *deferred, **deferred_end;
	bool is_silent; /* its driver does not say whether a channel has work */
	uint32_t channels, next_page_handle;
	uint64_t calls, refusals, audits;
	uint64_t gone_groups_ns; /* that groups had which are no more */

	/* Of is_held and is_stopped, and of moving the gate as they say. Held for as long as the gate takes and no longer;
	 * taken after `lock`. is_stopped changes only under both, so that either is enough to read it. */
	pthread_mutex_t turn_lock;
	bool is_held, is_stopped;
};

/* One notification, as far as it is understood. */
struct site {
	struct warden *warden;
	struct run *run;
	const struct seccomp_notif *request;
	struct process *process;
	int fd; /* the file the call is made on, in the program */
	enum device_file file;
	int unseen; /* why the file cannot be looked at, or 0 */
	struct rm_call call;
	uint64_t arg_at;
	uint8_t arg[RM_ARG_MAX];
	bool is_untold;	   /* a result could not be written to the program's memory */
	bool has_reopened; /* its memory_fd: once is enough */
	bool has_asked;	   /* for room: likewise */
};

enum answer_kind {
	ANSWER_PASS,   /* let the kernel do it */
	ANSWER_RETURN, /* value is the call's result, or -errno */
	ANSWER_LATER, /* none now: kept until the vGPU is resumed or room was made, or nobody waits for it any more */
};
struct answer {
	enum answer_kind kind;
	long value;
};
#define PASS ((struct answer){ ANSWER_PASS, 0 })
#define RETURN(rc) ((struct answer){ ANSWER_RETURN, (rc) })

/* All of what follows is called under warden::lock. */

/* run.c */
struct run *run_by_serial(const struct warden *warden, uint64_t serial);
/* Its listener has hung up, or is to be closed. */
void run_gone(struct warden *warden, struct run *run);

/* warden.c */
/* Have an epoll event of `fd` say this serial. */
int warden_watch(struct warden *warden, int fd, uint64_t *serial);

/* process.c */
struct process *process_of(struct warden *warden, const struct run *run, pid_t tid);
void process_gone(struct warden *warden, struct process *process);
bool process_has_exited(const struct process *process);
void process_end(struct process *process, const char *why);
/* What the kernel knows of a file by itself: a file system of the program's own (FUSE) need not let us ask, nor ever answer.
 * 0, or why it cannot be looked at. */
int file_look(int folder, const char *path, struct stat *st);
/* Whether it lives and its files cannot be looked at. */
bool process_hides(const struct process *process);
/* The run is over: what it had to reach its processes is not to be used any more. */
void process_cut(struct process *process);
/* A descriptor of the process, or of a thread of it with a table of its own, held by us; -errno. */
int process_get_fd(const struct process *process, pid_t tid, int fd);
/* The program's own file, held by us; -errno. Looks in the calling thread's table. */
int site_take_file(const struct site *site, int fd);
/* The program's memory: 0, or -EFAULT if not all of it could be moved. */
int site_peek(struct site *site, uint64_t at, void *to, size_t bytes);
int site_poke(struct site *site, uint64_t at, const void *from, size_t bytes);
struct process *process_by_pid(const struct warden *warden, pid_t pid);

/* client.c */
struct client *client_find(const struct warden *warden, uint32_t handle);
/* The record for the client a call names, made if need be. NULL: out of memory. */
struct client *client_seen(struct site *site);
/* The client's control file, held by us; -errno: -ENOENT if nobody has it, anything else if that cannot be told. */
int client_take_control(struct warden *warden, struct client *client);
void client_gone(struct warden *warden, struct client *client);
/* Whether a control file, held by us, speaks for this client. */
bool client_owns_file(struct warden *warden, const struct client *client, int file);
/* Whether nobody holds its control file any more. */
bool client_is_gone(struct warden *warden, struct client *client);
/* Drop clients whose control file is closed, and pay for imports whose owner is gone. */
void warden_reconcile(struct warden *warden);
/* A control on an object of the client's, through its own control file: 0, -errno, or the driver's status. */
int client_control(struct warden *warden, struct client *client, uint32_t object, uint32_t cmd, void *params,
		   uint32_t size);
/* How long a group of the client's has had the GPU; device_ops::time_of must be there. */
int client_group_time(struct warden *warden, struct client *client, uint32_t group, uint64_t *gpu_ns);
/* Any call that names the client, the same way; *status is where the driver's status is in the argument. */
int client_call(struct warden *warden, struct client *client, uint32_t nr, void *arg, uint32_t size,
		const uint32_t *status);
uint64_t warden_driver_bytes(struct warden *warden, pid_t pid);
struct ledger_sum warden_ledger_sum(const struct warden *warden, pid_t pid);

/* call.c: one handler a verb */
struct answer site_call(struct site *site);
struct answer site_refuse(struct site *site, uint32_t status, const char *why);
/* Tell the program the driver's status, as the driver would. */
struct answer site_status(struct site *site, uint32_t status);
/* The driver's status in our copy of the argument. */
uint32_t site_status_of(const struct site *site);
/* Make the call the program asked for, with our copy of the argument, and write it back. `params` replaces the
 * program's parameters, and what changed in it goes back to where they came from. -errno if no call was made. */
int site_perform(struct site *site, void *params, uint32_t params_size);

/* Write back only what changed: the driver copies out exactly the structure it knows, and so do we, even where we do
 * not know its size. */
int site_poke_changes(struct site *site, uint64_t at, const uint8_t *before, const uint8_t *after,
		      size_t bytes);
/* The program's parameters, in a buffer with room to spare; NULL: none, or *rc says why not. */
uint8_t *site_take_params(struct site *site, uint32_t *size, int *rc);

/* Take back what the driver has just made for the program: it cannot be kept, or not be noted. */
void site_undo(struct site *site);

/* carry.c */
struct answer site_carry(struct site *site);
struct answer site_carry_mmap(struct site *site);

/* channel.c */
struct answer site_alloc_channel(struct site *site, uint8_t *params, uint32_t size);
void channel_gone(struct warden *warden, struct ledger_object *object);
/* A process ends, but channels it made live on with a client that another process holds. */
void channels_leave_gate(struct warden *warden, struct process *process);
void channel_learn_token(struct warden *warden, struct client *client, uint32_t handle);
int warden_set_channels(struct warden *warden, bool is_disabled, struct bf_error *err);

/* doorbell.c */
struct answer site_map_doorbell(struct site *site);
/* Whether this mmap is one that site_map_doorbell prepared; and that mmap. */
bool site_expects_doorbell(struct site *site, uint64_t bytes);
struct answer site_mmap_doorbell(struct site *site, uint64_t bytes);
/* The program has freed the object, or its process has ended. */
void doorbell_gone(struct warden *warden, uint32_t client, uint32_t object);
void doorbells_gone(struct process *process);

/* managed.c */
struct answer site_mmap_managed(struct site *site, uint64_t bytes);
/* Look again at the managed memory of those who have some. */
void warden_refresh_managed(struct warden *warden);
/* Of all, and end who has too much. */
void warden_audit_managed(struct warden *warden);

/* standin.c */
/* Put `memory` where the program's descriptor is, for the mmap that is waiting for our answer. */
int standin_put(struct site *site, int memory);
/* Put the program's own file back. True if it was not there. */
bool standin_restore(struct site *site, const struct stat *st);
bool standin_is(const struct warden *warden, const struct stat *st);
void standins_gone(struct process *process);

/* root.c: the one allocation that must pass */
struct answer site_alloc_root(struct site *site);
/* A call names a client that is not known: if the driver agrees, it is known from now on. */
void site_meet_client(struct site *site);
/* A client has come of a root that was let through. Returns the process that made it. */
pid_t root_answered(struct warden *warden, pid_t pid);
void roots_audit(struct warden *warden);
void roots_gone(struct warden *warden);

/* told.c */
struct answer site_told(struct site *site);
bool told_is_mine(uint32_t control);

/* hooks.c */
/* Memory that does not fit: whether the call waits for room, with ANSWER_LATER. */
bool site_waits_for_room(struct site *site, uint64_t bytes);
bool site_defer(const struct site *site); /* warden.c */
bool site_may_have(struct site *site, uint64_t bytes);
bool site_may_begin(struct site *site, struct warden_ctx_ask *ask);

/* faults.c */
/* Look at every channel; and at one that is about to go. */
void warden_look_for_faults(struct warden *warden);
void channel_look_for_fault(struct warden *warden, struct ledger_object *object);

/* group.c */
struct group *group_get(struct ledger_object *object); /* NULL: out of memory */
/* What was answered for a group that is there now. */
void group_begin(struct ledger_object *object, const struct warden_ctx_ask *ask);
/* The timeslice, or the level, of the whole vGPU is set from now on. */
void groups_forget_own(struct warden *warden, bool is_timeslice);
struct answer site_group_control(struct site *site);
int warden_apply_group(struct warden *warden, struct client *client, uint32_t group);
/* Ask how long the client's groups have had the GPU: they may be about to go. */
void groups_ask_time(struct warden *warden, struct client *client);
void group_gone(struct warden *warden, struct ledger_object *object);

#endif

/* What the files of this module share. Private to the module.
 *
 * Who may change what: the records of programs (processes, files, clients, maps) are made and freed by the thread in
 * warden_work alone, under the lock; other threads read them under the lock. So that thread may keep a pointer to a
 * record while it does not hold the lock, which it must not hold while it touches a program: its memory, its descriptors,
 * its entries in /proc that may wait. */
#ifndef BELFRY_WARDEN_STATE_H
#define BELFRY_WARDEN_STATE_H

#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rm/tables.h"
#include "warden/hand.h"
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

/* The program was told that something is ready to be mapped through this descriptor. */
struct expected_map {
	int fd;		/* in the program */
	uint64_t bytes; /* of a doorbell: exactly */
	bool is_doorbell;
	uint32_t client, object;
	int prepared;		   /* the driver's file that maps it; -1 for a doorbell */
	struct expected_map *next; /* process::expected */
};

/* A file of ours at a descriptor of the program's, put there for one mmap. The program's own file is kept, so that it
 * is not closed by that. */
struct standin {
	int as_fd;
	int kept_fd;
	struct standin *next; /* process::standins */
};

enum { PROCESS_FILES = 1024 };

struct process {
	struct warden *warden;
	uint64_t serial;
	uint32_t run; /* run::number */
	pid_t pid;
	int64_t uid; /* its effective user when it was met */
	int pidfd;
	struct warden_reach reach; /* of its run; no functions: directly */
	int memory_fd;		   /* /proc/PID/mem, or -1 */
	bool is_ending;		   /* we killed it */
	uint64_t managed_serial;   /* of the managed-memory file that it maps; 0: it has mapped none */
	uint64_t event_files[PROCESS_FILES /
			     64]; /* its descriptors of a GPU's file that events were asked for on: bits */
	struct gate_program *gate;
	struct doorbell *doorbells;
	struct standin *standins;
	struct expected_map *expected;
	uint64_t managed_bytes;
	struct process *next; /* warden::processes */
};

/* Memory that is kept by something other than an object: an export in a file, a mapping in a managed-memory space. */
struct kept_block {
	struct ledger_block *block; /* NULL: a range of addresses, without a mapping */
	uint64_t base, bytes;	    /* of a mapping, or of a range */
	uint32_t index;		    /* of an export */
	struct kept_block *next;
};

/* A device file as a program has it. What the program has is the reading end of a pipe, which takes no driver's call;
 * the driver's file is ours. So nothing that the program does with its descriptor, or whom it gives it to, reaches the
 * driver but through us; and the pipe tells when the last copy of it is closed. */
struct devfile {
	uint64_t serial;       /* of the pipe */
	uint64_t event_serial; /* of the driver's file, once the program has asked for events on it; 0: not */
	dev_t device;	       /* of the pipe, as is the inode */
	uint64_t inode;
	int pipe_fd;		 /* our end: an error is reported when the other end is closed */
	int fd;			 /* the driver's file */
	enum device_file kind;	 /* CONTROL or MANAGED */
	bool is_shown;		 /* the driver's file was put into a program for an mmap */
	bool is_linked;		 /* CONTROL: others are registered with it, and keep it open in the driver */
	uint64_t linked_to;	 /* the serial of the file that it is registered with itself; 0: none */
	struct kept_block *kept; /* CONTROL: exports; MANAGED: external mappings */
	uint64_t left_bytes; /* MANAGED: mapped by processes that have ended; others may share their memory */
	struct devfile *next; /* warden::files */
};

/* An RM client. It lives as long as its control file. */
struct client {
	uint32_t handle;
	pid_t pid;   /* of the process that made it */
	int64_t uid; /* of that process */
	struct devfile *file;
	uint32_t device;
	uint32_t subdevice;  /* through which its channels are stopped; 0: it has none, and no channels */
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

/* A program's memory, seen from here; several channels keep their USERD in one. */
struct view {
	uint32_t client, memory;
	struct ledger_block *block; /* kept as long as we see it; NULL: not device memory */
	struct device_view seen;
	unsigned users;
	struct view *next; /* warden::views */
};

/* Kept with a ledger object of kind GROUP, from when there is something to keep. */
struct group {
	bool is_fault_told;
	uint64_t had_ns;
	uint64_t turns_seen;   /* see warden_turns */
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
	int epoll; /* an event's data is the serial of a run, a process or a file: no two ever have the same */
	int wake;  /* an eventfd: deferred calls are to be looked at again */
	struct device *device;
	struct gate *gate;
	struct gate_vgpu *gate_vgpu;
	struct hand *owner; /* makes the clients: the driver knows the vGPU by its number */
	/* Touches programs. Replaced, by the thread in warden_work, when a program has kept it waiting too long; so that
	 * others may stop it, it is changed under the lock. */
	struct hand *arm;

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t idle;  /* busy_run has changed */
	uint64_t last_serial;
	struct run *runs;
	struct run *busy_run; /* in use by the thread in warden_work, and so not to be freed */
	struct ledger *ledger;
	struct warden_options options;
	struct process *processes;
	pid_t last_tid; /* of last_process: process.c */
	struct process *last_process;
	struct devfile *files;
	unsigned descriptors,
		descriptors_max; /* of ours that its programs have us hold, and how many there may be */
	struct client *clients;
	struct view *views;
	struct deferred *deferred, **deferred_end;
	bool is_silent; /* its driver does not say whether a channel has work */
	uint32_t channels, next_page_handle;
	unsigned surplus_seen; /* audits in a row that found more memory than was given */
	uint64_t calls, refusals, unknown, continued;
	uint64_t gone_groups_ns; /* that groups had which are no more */
	struct warden_unknown unknowns[WARDEN_UNKNOWNS];

	/* Of is_held and is_stopped, and of moving the gate as they say. Held for as long as the gate takes and no longer;
	 * taken after `lock`. is_stopped changes only under both, so that either is enough to read it. */
	pthread_mutex_t turn_lock;
	bool is_held, is_stopped;
};

/* A piece of the program's memory, as it was when it was fetched and as it shall be. */
struct copy {
	uint64_t at;
	uint32_t bytes;
	uint8_t *now, *before; /* one allocation, with room to spare behind `now` */
};

enum { SITE_LISTS = 3 };

/* One notification: fetched without the lock, decided under it, stored without it. */
struct site {
	struct warden *warden;
	struct run *run;
	const struct seccomp_notif *request;
	struct process *process;
	int fd; /* the file the call is made on, in the program */
	enum device_file kind;
	int unseen;	      /* why the file cannot be looked at, or 0 */
	struct devfile *file; /* kinds CONTROL and MANAGED */
	bool is_in_place;     /* the driver's own file of it is at `fd` already */
	int gpu_fd;	      /* kind GPU: the program's own file, held for this call; -1 */
	struct rm_call call;
	const struct rm_control *control;  /* of a control: what is known of it; NULL: nothing */
	bool is_permitted;		   /* nothing is known of it, and it may be made all the same */
	const struct rm_uvm_call *managed; /* of a call of the managed-memory device's */
	struct copy arg, params, lists[SITE_LISTS];
	uint32_t rights[16];
	int named_fd; /* a file that the call names, in the program; -1: none */
	enum device_file named_kind;
	struct devfile *named; /* that file, if it is one of ours */
	int put_fd;	       /* a file of ours to be put at `fd` before the mmap goes on; -1: none */
	bool is_put;	       /* it is there */
	bool has_reopened;     /* its memory_fd: once is enough */
	bool has_asked;	       /* for room: likewise */
};

enum answer_kind {
	ANSWER_PASS,   /* let the kernel do it */
	ANSWER_RETURN, /* value is the call's result, or -errno */
	ANSWER_MAKE, /* make the call as it is, without the lock: it changes nothing that the lock is for, and may take long */
	ANSWER_LATER, /* none now: kept until the vGPU is resumed or room was made, or nobody waits for it any more */
};
struct answer {
	enum answer_kind kind;
	long value;
};
#define PASS ((struct answer){ ANSWER_PASS, 0 })
#define RETURN(rc) ((struct answer){ ANSWER_RETURN, (rc) })
#define MAKE ((struct answer){ ANSWER_MAKE, 0 })

/* Names of ours in a program's client. Libraries begin theirs at 0x5c000000 (recorded); programs cannot use these. */
enum {
	OWN_HANDLE_FIRST = 0x5bf00000,
	OWN_HANDLE_LAST = 0x5bffffff,
};
static inline bool is_own_handle(uint32_t handle)
{
	return handle >= OWN_HANDLE_FIRST && handle <= OWN_HANDLE_LAST;
}

/* What follows is called under warden::lock, unless it says otherwise. */

/* warden.c */
/* Have an epoll event of `fd` say this serial. */
int warden_watch(struct warden *warden, int fd, uint64_t *serial);
/* Whether that many more of our descriptors may be held for the vGPU's programs; and some fewer are. */
bool warden_take_descriptors(struct warden *warden, unsigned count);
void warden_give_descriptors(struct warden *warden, unsigned count);
void warden_wake(struct warden *warden);       /* the thread in warden_work: with or without the lock */
bool site_is_waiting(const struct site *site); /* for our answer; with or without the lock */
bool site_defer(const struct site *site);

/* run.c */
struct run *run_by_serial(const struct warden *warden, uint64_t serial);
/* Its listener has hung up, or is to be closed. */
void run_gone(struct warden *warden, struct run *run);

/* process.c */
struct process *process_of(struct warden *warden, const struct run *run, pid_t tid);
void process_gone(struct warden *warden, struct process *process);
bool process_has_exited(const struct process *process);
void process_end(struct process *process, const char *why);
struct process *process_by_pid(const struct warden *warden, pid_t pid);
/* The run is over: what it had to reach its processes is not to be used any more. */
void process_cut(struct process *process);

/* touch.c: without the lock. Everything here goes through warden::arm, with a limit: a program that keeps it waiting is
 * ended. */
/* What the kernel knows of a file by itself: a file system of the program's own (FUSE) is not asked. 0, or why not. */
int file_look(int folder, const char *path, struct stat *st);
/* The program's own file, held by us; -errno, also if it is not a device's or a pipe. Looks in the calling thread's
 * table. */
int site_take_file(struct site *site, int fd);
/* The program's memory: 0, or -EFAULT if not all of it could be moved. */
int site_peek(struct site *site, uint64_t at, void *to, size_t bytes);
int site_poke(struct site *site, uint64_t at, const void *from, size_t bytes);
/* Put a file of ours at a descriptor of the program's. */
int site_set_fd(const struct site *site, int file, int as);
/* The same at a descriptor that was free: its number, or -errno. */
int site_give_fd(const struct site *site, int file, bool is_cloexec);
/* The beginning of a path in the program's memory. */
int site_peek_path(struct site *site, uint64_t at, char *to, size_t room);
/* A file of /proc/PID, whole: to be freed; NULL if it cannot be had, or has more bytes. */
char *process_read(struct process *process, const char *name, size_t most_bytes);

/* fetch.c: without the lock */
int site_fetch_managed(struct site *site); /* a call of the managed-memory device's */
/* Take what the call names out of the program's memory, and the files it names. 0, or the call's -errno. */
int site_fetch(struct site *site);
/* Write back what has changed. */
int site_store(struct site *site);
void site_drop(struct site *site); /* what was fetched; any time */

/* file.c */
struct devfile *devfile_by_serial(const struct warden *warden, uint64_t serial);
/* Which of our files is at a descriptor of the program's; *kind says what is there. Without the lock. 0, or why it cannot
 * be looked at. */
int site_look(struct site *site, int fd, enum device_file *kind, struct devfile **file);
bool site_is_in_place(const struct site *site); /* whether the driver's own file is at site::fd */
/* Put one of ours where the program has a device file that it opened itself. Without the lock. NULL: *rc says why. */
struct devfile *site_adopt(struct site *site, int fd, enum device_file kind, int *rc);
/* The program opens a file: whether it is one of the device's, by its name; and give it one of ours. Without the lock. */
int site_look_at_path(struct site *site, enum device_file *kind);
struct answer site_open(struct site *site, enum device_file kind);
/* The program has asked for events on it; there is one; the program has fetched one. */
void devfile_watch_events(struct warden *warden, struct devfile *file);
void devfile_event(struct devfile *file);
void devfile_take_event(struct warden *warden, struct devfile *file);
/* The last copy of it is closed. Takes and lets go of the lock. */
void devfile_gone(struct warden *warden, struct devfile *file);
/* Keep a block for an export or a mapping; let go of what was kept for mappings that begin there. */
int devfile_keep(struct devfile *file, const struct kept_block *what);
/* Nothing is mapped in that range any more, of whatever was mapped there. */
void devfile_unmapped(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes);
void devfile_unkeep(struct devfile *file, struct ledger *ledger); /* what was kept last */
void devfile_drop(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes);
const struct kept_block *devfile_export(const struct devfile *file, uint32_t index);

/* client.c */
struct client *client_find(const struct warden *warden, uint32_t handle);
/* Another client that a call names. Users of one vGPU do not share objects: the driver would let them, since all clients
 * of a vGPU are one process's. */
struct client *client_of_user(const struct site *site, uint32_t handle);
bool client_has_room(const struct warden *warden);	       /* for one more */
struct client *client_add(struct site *site, uint32_t handle); /* NULL: out of memory */
void client_gone(struct warden *warden, struct client *client);
/* A control on an object of the client's, through its own control file: 0, -errno, or the driver's status. */
int client_control(struct warden *warden, struct client *client, uint32_t object, uint32_t cmd, void *params,
		   uint32_t size);
/* How long a group of the client's has had the GPU; device_ops::time_of must be there. */
int client_group_time(struct warden *warden, struct client *client, uint32_t group, uint64_t *gpu_ns);
/* Any call that names the client, the same way; *status is where the driver's status is in the argument. */
int client_call(struct warden *warden, struct client *client, uint32_t nr, void *arg, uint32_t size,
		const uint32_t *status);
uint64_t warden_driver_bytes(struct warden *warden);
uint64_t warden_named_bytes(const struct warden *warden);
uint64_t process_named_bytes(const struct process *process);
bool process_has_class(const struct process *process, uint32_t class_id);

/* call.c: one handler a verb */
struct answer site_call(struct site *site);
struct answer site_refuse(struct site *site, uint32_t status, const char *why);
/* Tell the program the driver's status, as the driver would. */
struct answer site_status(struct site *site, uint32_t status);
/* The driver's status in our copy of the argument. */
uint32_t site_status_of(const struct site *site);
/* Make the call the program asked for, with our copies of everything. -errno if no call was made. */
int site_perform(struct site *site);
/* Likewise, as the process that owns the client: the driver takes some calls from no other. */
int site_perform_as_owner(struct site *site);
/* Take back what the driver has just made for the program: it cannot be kept, or not be noted. */
void site_undo(struct site *site);

/* memory.c */
/* Whether an object that the ledger does not know is pages of the program's own, by what the driver says. */
bool client_has_own_pages(struct warden *warden, uint32_t client, uint32_t handle);
/* Whether there is such an object, by what the driver says; true where it cannot be told. */
bool client_has_object(struct warden *warden, struct client *client, uint32_t handle);
/* How much device memory the call asks for; 0: none. With or without the lock. */
uint64_t site_bytes_wanted(const struct site *site);
struct answer site_alloc_vidmem(struct site *site);
struct answer site_duplicate(struct site *site);
struct answer site_export(struct site *site);
struct answer site_import(struct site *site);
struct answer site_export_info(struct site *site);

/* control.c */
/* Whether a control that is not in the table may be made all the same. Without the lock. */
bool site_permits(const struct site *site);
struct answer site_control_call(struct site *site);

/* channel.c */
struct answer site_alloc_channel(struct site *site);
void channel_gone(struct warden *warden, struct ledger_object *object);
bool client_has_channels(const struct warden *warden, const struct client *client);
/* A process ends, but channels it made live on with a client that another process holds. */
void channels_leave_gate(struct warden *warden, struct process *process);
/* The client's channels are about to go: nothing is to be passed on for them. */
void client_leave_gate(struct warden *warden, const struct client *client);
void channel_learn_token(struct warden *warden, struct client *client, uint32_t handle);
int warden_set_channels(struct warden *warden, bool is_disabled, struct bf_error *err);

/* map.c */
bool site_is_doorbell(const struct site *site, uint32_t memory);
struct answer site_map_memory(struct site *site);
struct answer site_mmap(struct site *site, uint64_t bytes);
void expected_gone(struct process *process);
/* The object is gone: the driver would map its memory all the same. */
void expected_forget(struct warden *warden, uint32_t client, uint32_t object);

/* doorbell.c */
/* Memory for the doorbell that was expected here; -errno. */
int doorbell_open(struct process *process, const struct expected_map *expected);
/* The program has freed the object, or its process has ended. */
void doorbell_gone(struct warden *warden, uint32_t client, uint32_t object);
void doorbells_gone(struct process *process);

/* managed.c */
int managed_perform(struct site *site); /* with or without the lock */
struct answer site_managed_call(struct site *site);
struct answer site_mmap_managed(struct site *site, uint64_t bytes);
/* Look again at what the processes have mapped, and end who has too much. Without the lock. */
void warden_audit_managed(struct warden *warden);
void managed_left(struct process *process); /* it has ended */
/* So much is wanted, as a mapping or as device memory: look again at what is mapped if there is no room for it. Without
 * the lock. */
void site_refresh_managed(struct site *site, uint64_t bytes);

/* standin.c */
/* Put site::put_fd where the program's descriptor is, for the mmap that is waiting for our answer. Without the lock. */
int standin_put(struct site *site);
void standins_gone(struct process *process);

/* told.c */
struct answer site_told(struct site *site);

/* hooks.c */
/* Memory that does not fit: whether the call waits for room, with ANSWER_LATER. */
bool site_waits_for_room(struct site *site, uint64_t bytes);
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

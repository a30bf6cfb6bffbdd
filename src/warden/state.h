/* Shared by the files of this module, and private to it.
 *
 * Only the thread in warden_work makes and frees the records of programs (processes, files, clients, maps), and it does so
 * under warden::lock. Other threads read them under the lock. So the thread in warden_work may keep a pointer to a record
 * while it does not hold the lock. It must not hold the lock while it accesses a program: the program's memory, its
 * descriptors, and its files in /proc that may block. */
#ifndef BELFRY_WARDEN_STATE_H
#define BELFRY_WARDEN_STATE_H

#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "rm/tables.h"
#include "warden/ledger.h"
#include "warden/proxy.h"
#include "warden/warden.h"

#define DOORBELL_NAME "belfry-doorbell" /* of its memory file */
enum { DOORBELL_TRAP_TRIES = 5 };

/* A page that a program writes to in place of the GPU's doorbell page. */
struct doorbell {
	uint32_t client, object; /* the doorbell object that it replaces */
	volatile uint32_t *page;
	uint64_t bytes, inode; /* of the memory file */
	struct gate_bell *bell;
	unsigned traps;		   /* breakpoints on it (trap.c); 0: none */
	unsigned trap_tries;	   /* attempts to set them; DOORBELL_TRAP_TRIES: no more */
	LIST_ENTRY(doorbell) next; /* process::doorbells */
};

/* A mapping that the driver has prepared: the program's next mmap of this descriptor makes it. */
struct expected_map {
	int fd;		/* in the program */
	uint64_t bytes; /* of a doorbell: the only size that may be mapped */
	bool is_doorbell;
	uint32_t client, object;
	int prepared;		       /* the driver's file that maps it; -1 for a doorbell */
	LIST_ENTRY(expected_map) next; /* process::expected */
};

/* A file of the warden that replaces a descriptor of the program for one mmap. The program's own file is kept open. */
struct standin {
	int as_fd;
	int kept_fd;
	LIST_ENTRY(standin) next; /* process::standins */
};

enum { PROCESS_FILES = 1024 };

struct process {
	struct warden *warden;
	uint64_t serial;
	uint32_t run; /* run::number */
	pid_t pid;
	int64_t uid; /* its effective user at its first call */
	int pidfd;
	struct warden_reach reach; /* of its run; NULL functions: accessed directly */
	int memory_fd;		   /* /proc/PID/mem, or -1 */
	bool is_ending;		   /* the warden killed it */
	uint64_t managed_serial;   /* of the managed-memory file that it maps; 0: none */
	uint64_t event_files[PROCESS_FILES /
			     64]; /* a bit for each descriptor of a GPU file that has events enabled */
	struct gate_program *gate;
	LIST_HEAD(, doorbell) doorbells;
	LIST_HEAD(, standin) standins;
	LIST_HEAD(, expected_map) expected;
	uint64_t managed_bytes;
	LIST_ENTRY(process) next; /* warden::processes */
};

/* A reference to memory that is not an object: an export in a file, or a mapping in a managed-memory space. */
struct kept_block {
	struct ledger_block *block; /* NULL: a reserved address range without a mapping */
	uint64_t base, bytes;	    /* of the mapping or the range */
	uint32_t index;		    /* of an export */
	LIST_ENTRY(kept_block) next;
};

/* A device file that a program has opened. The program has the reading end of a pipe, which accepts no driver call; the
 * warden has the driver's file. So the program, or a process to which it passes the descriptor, reaches the driver through
 * the warden only. The pipe reports when the last copy of the reading end is closed. */
struct devfile {
	uint64_t serial;       /* of the pipe */
	uint64_t event_serial; /* of the driver's file, once the program has enabled events on it; 0: not */
	dev_t device;	       /* of the pipe, as is the inode */
	uint64_t inode;
	int pipe_fd;	       /* the writing end: poll reports an error when the reading end is closed */
	int fd;		       /* the driver's file */
	enum device_file kind; /* CONTROL or MANAGED */
	bool is_shown;	       /* the driver's file was put into a program for an mmap */
	bool is_linked;	    /* CONTROL: other files are registered with it and keep it open in the driver */
	uint64_t linked_to; /* the serial of the file with which it is registered; 0: none */
	LIST_HEAD(, kept_block) kept; /* CONTROL: exports; MANAGED: external mappings */
	uint64_t
		left_bytes; /* MANAGED: mapped by processes that have ended; the memory may be shared with others */
	LIST_ENTRY(devfile) next; /* warden::files */
};

/* An RM client. It lives as long as its control file. */
struct client {
	uint32_t handle;
	pid_t pid;   /* of the process that made it */
	int64_t uid; /* of that process */
	struct devfile *file;
	uint32_t device;
	uint32_t
		subdevice; /* its channels are stopped through this object; 0: there is none, and there are no channels */
	LIST_ENTRY(client) next; /* warden::clients */
};

/* Attached to a ledger object of kind CHANNEL. */
struct channel {
	struct client *client;
	struct process *process; /* whose doorbells ring it; not valid if gate is NULL */
	struct view *view;
	struct device_view page; /* the USERD page that the GPU reads */
	struct view *notifier;	 /* where the driver writes an error that ends the channel; NULL: not known */
	bool is_fault_told;
	struct gate_channel *gate;
	uint32_t token;
	uint64_t idle_at; /* the count of submissions passed on when it was last found idle: idle.c */
};

/* A mapping of a program's memory in the GPU server. Several channels may have their USERD in one memory object. */
struct view {
	uint32_t client, memory;
	struct ledger_block *block; /* referenced while it is mapped; NULL: not device memory */
	struct device_view seen;
	unsigned users;
	LIST_ENTRY(view) next; /* warden::views */
};

/* Attached to a ledger object of kind GROUP when it is first needed. */
struct group {
	bool is_fault_told;
	uint64_t had_ns;
	uint64_t done_taken;   /* see warden_done */
	uint64_t timeslice_us; /* set by the ctx_init hook; 0: none */
	int interleave;	       /* likewise; -1: none */
};

/* The programs of one seccomp listener. */
struct run {
	uint32_t number;
	uint64_t serial;
	int listener;
	struct warden_reach reach;
	bool has_hidden;      /* a program of it is not dumpable, and that was logged */
	LIST_ENTRY(run) next; /* warden::runs */
};

struct deferred {
	struct seccomp_notif request;
	bool has_asked;		     /* it waits for memory: the make_room hook was called */
	struct run *run;	     /* answered on this run's listener */
	STAILQ_ENTRY(deferred) next; /* warden::deferred */
};

struct warden {
	int epoll; /* an event's data is the serial of a run, a process or a file; serials are never reused */
	int wake;  /* an eventfd: deferred calls must be handled again */
	struct device *device;
	struct gate *gate;
	struct gate_vgpu *gate_vgpu;
	struct proxy *owner; /* makes the RM clients: the driver knows the vGPU by this process ID */
	/* Accesses the memory and descriptors of programs. The thread in warden_work replaces it, under the lock, when a
	 * program has not answered in time. Any thread that has the lock may stop it. */
	struct proxy *access;

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t idle;  /* signalled when busy_run changes */
	uint64_t last_serial;
	LIST_HEAD(, run) runs;
	struct run *busy_run; /* used by the thread in warden_work: must not be freed */
	struct ledger *ledger;
	struct warden *lender; /* its lock may be taken under this one; NULL: none */
	struct warden_options options;
	/* The shared domain that its programs may join; empty: none. */
	char domain_folder[WARDEN_DOMAIN_BYTES];
	bool has_refused_domain; /* and that was logged */
	LIST_HEAD(, process) processes;
	pid_t last_tid; /* of last_process: process.c */
	struct process *last_process;
	LIST_HEAD(, devfile) files;
	unsigned descriptors, descriptors_max; /* that the warden holds for its programs, and their limit */
	LIST_HEAD(, client) clients;
	LIST_HEAD(, view) views;
	STAILQ_HEAD(, deferred) deferred;
	bool is_silent; /* the driver does not report whether a channel has work */
	uint32_t channels, next_page_handle;
	unsigned
		surplus_seen; /* consecutive audits in which the driver counted more memory than the ledger */
	uint64_t calls, refusals, unknown, continued;
	uint64_t gone_groups_ns; /* GPU time of groups that were freed */
	struct warden_unknown unknowns[WARDEN_UNKNOWNS];
};

/* A copy of a piece of the program's memory: as it was fetched, and as it is to be stored. */
struct copy {
	uint64_t at;
	uint32_t bytes;
	uint8_t *now, *before; /* one allocation, with padding behind `now` */
};

enum { SITE_LISTS = 3 };

/* One notification. Its arguments are fetched without the lock, the decision is made under it, and the results are stored
 * without it. */
struct site {
	struct warden *warden;
	struct run *run;
	const struct seccomp_notif *request;
	struct process *process;
	int fd; /* the descriptor of the call, in the program */
	enum device_file kind;
	int unseen;	      /* the error if the file cannot be examined, or 0 */
	struct devfile *file; /* kinds CONTROL and MANAGED */
	bool is_in_place;     /* the driver's file is at `fd` already */
	int gpu_fd;	      /* kind GPU: a copy of the program's descriptor for this call; -1: none */
	struct rm_call call;
	const struct rm_control *control;  /* of a control: its entry in the allowlist; NULL: none */
	bool is_permitted;		   /* it is not in the allowlist, and the operator permits it */
	const struct rm_uvm_call *managed; /* of a call to the managed-memory device */
	struct copy arg, params, lists[SITE_LISTS];
	uint32_t rights[16];
	int named_fd; /* a descriptor in the call's arguments, in the program; -1: none */
	enum device_file named_kind;
	struct devfile *named; /* that file, if it is one of the warden's */
	int put_fd;	       /* a file to be put at `fd` before the mmap continues; -1: none */
	bool is_put;	       /* put_fd is at `fd` */
	bool is_of_root;       /* the call makes a channel, and the process is root of the host */
	bool has_reopened;     /* memory_fd was opened again for this call, which is done once */
	bool has_asked;	       /* the make_room hook was called for this call, which is done once */
};

enum answer_kind {
	ANSWER_CONTINUE, /* the kernel makes the call */
	ANSWER_RETURN,	 /* value is the call's result, or -errno */
	ANSWER_MAKE, /* make the call without the lock: it changes nothing that the lock protects, and may take long */
	ANSWER_LATER, /* no answer now: the call is deferred until the vGPU is resumed or memory was freed, or its caller is gone */
};
struct answer {
	enum answer_kind kind;
	long value;
};
#define CONTINUE ((struct answer){ ANSWER_CONTINUE, 0 })
#define RETURN(rc) ((struct answer){ ANSWER_RETURN, (rc) })
#define LATER ((struct answer){ ANSWER_LATER, 0 })
#define MAKE ((struct answer){ ANSWER_MAKE, 0 })

/* Handles of the warden's own objects in a program's client. Libraries begin theirs at 0x5c000000 (recorded). Programs cannot
 * use the warden's. */
enum {
	OWN_HANDLE_FIRST = 0x5bf00000,
	OWN_HANDLE_LAST = 0x5bffffff,
};
static inline bool is_own_handle(uint32_t handle)
{
	return handle >= OWN_HANDLE_FIRST && handle <= OWN_HANDLE_LAST;
}

/* The functions below are called under warden::lock, unless a comment says otherwise. */

/* warden.c */
/* Watch `fd` with epoll under a new serial. */
int warden_watch(struct warden *warden, int fd, uint64_t *serial);
/* Count descriptors that the warden holds for the vGPU's programs. False: that would exceed the limit. */
bool warden_take_descriptors(struct warden *warden, unsigned count);
void warden_give_descriptors(struct warden *warden, unsigned count);
/* Have the thread in warden_work handle deferred calls. With or without the lock. */
void warden_wake(struct warden *warden);

/* serve.c */
/* Whether the caller still waits for the answer. With or without the lock. */
bool site_is_waiting(const struct site *site);
bool site_defer(const struct site *site);

/* run.c */
struct run *run_by_serial(const struct warden *warden, uint64_t serial);
/* Close the listener and free the run. */
void run_gone(struct warden *warden, struct run *run);

/* process.c */
struct process *process_of(struct warden *warden, const struct run *run, pid_t tid);
void process_gone(struct warden *warden, struct process *process);
bool process_has_exited(const struct process *process);
void process_end(struct process *process, const char *why);
struct process *process_by_pid(const struct warden *warden, pid_t pid);
/* The run has ended: its warden_reach must not be used any more. */
void process_cut(struct process *process);

/* access.c: called without the lock. All accesses go through warden::access and have a time limit. A program that exceeds it is
 * killed. */
/* The attributes of a file that the kernel has cached: a FUSE file system of the program is not asked. 0 or -errno. */
int file_look(int folder, const char *path, struct stat *st);
/* A copy of the program's descriptor, from the calling thread's descriptor table; -errno, also if it is neither a device file
 * nor a pipe. */
int site_take_file(struct site *site, int fd);
/* Read and write the program's memory: 0, or -EFAULT if not all bytes could be copied. */
int site_peek(struct site *site, uint64_t at, void *to, size_t bytes);
int site_poke(struct site *site, uint64_t at, const void *from, size_t bytes);
/* Install a file at this descriptor of the program. */
int site_set_fd(const struct site *site, int file, int as);
/* Install a file at a free descriptor: its number, or -errno. */
int site_give_fd(const struct site *site, int file, bool is_cloexec);
/* The beginning of a path in the program's memory. */
int site_peek_path(struct site *site, uint64_t at, char *to, size_t room);
/* Make a system call about the process: what it returns. */
long process_access(struct process *process, long nr, const uint64_t args[6]);
/* The contents of a file in /proc/PID, to be freed; NULL if it cannot be read or is larger. */
char *process_read(struct process *process, const char *name, size_t most_bytes);

/* fetch.c: called without the lock */
/* Copy the arguments of a call, and take the files that it names. 0, or the call's -errno. */
int site_fetch(struct site *site);
int site_fetch_managed(struct site *site); /* a call to the managed-memory device */
/* Write the bytes that have changed back to the program. */
int site_store(struct site *site);
void site_drop(struct site *site); /* free the copies */

/* file.c */
struct devfile *devfile_by_serial(const struct warden *warden, uint64_t serial);
/* What a descriptor of the program refers to: *kind, and *file if it is one of the warden's. Without the lock. 0, or the error
 * if it cannot be examined. */
int site_look(struct site *site, int fd, enum device_file *kind, struct devfile **file);
bool site_is_in_place(const struct site *site); /* whether the driver's own file is at site::fd */
/* Replace a device file that the program opened itself by a pipe. Without the lock. NULL: *rc is the error. */
struct devfile *site_adopt(struct site *site, int fd, enum device_file kind, int *rc);
/* An open call of the program: whether its path names a device file, and the pipe in its place. Without the lock. */
int site_look_at_path(struct site *site, enum device_file *kind);
struct answer site_open(struct site *site, enum device_file kind);
/* The program enables events on the file; an event is pending; the program has fetched an event. */
void devfile_watch_events(struct warden *warden, struct devfile *file);
void devfile_event(struct devfile *file);
void devfile_take_event(struct warden *warden, struct devfile *file);
/* The last copy is closed. Called without the lock. */
void devfile_gone(struct warden *warden, struct devfile *file);
/* Add a reference for an export or a mapping; drop those of mappings that begin in this range. */
int devfile_keep(struct devfile *file, const struct kept_block *what);
/* The range is unmapped: mappings that overlap it are trimmed or dropped. */
void devfile_unmapped(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes);
void devfile_unkeep(struct devfile *file, struct ledger *ledger); /* drop the newest reference */
void devfile_drop(struct devfile *file, struct ledger *ledger, uint64_t base, uint64_t bytes);
const struct kept_block *devfile_export(const struct devfile *file, uint32_t index);

/* client.c */
struct client *client_find(const struct warden *warden, uint32_t handle);
/* Another client that a call names; NULL if it belongs to another user. The driver would let users of one vGPU share objects,
 * because all clients of a vGPU belong to one process. */
struct client *client_of_user(const struct site *site, uint32_t handle);
/* Whether the client handle at this offset of a copy is 0, or client_of_user finds it. True if the offset is
 * negative or outside the copy. */
bool site_names_known_client(const struct site *site, const struct copy *copy, int at);
bool client_has_room(const struct warden *warden);	       /* whether another client may be made */
struct client *client_add(struct site *site, uint32_t handle); /* NULL: out of memory */
void client_gone(struct warden *warden, struct client *client);
/* Make a control on an object of the client, through its control file: 0, -errno, or the driver's status. */
int client_control(struct warden *warden, struct client *client, uint32_t object, uint32_t cmd, void *params,
		   uint32_t size);
/* The GPU time of a channel group; only if device_ops::time_of is set. */
int client_group_time(struct warden *warden, struct client *client, uint32_t group, uint64_t *gpu_ns);
/* Make any other call that names the client; `status` points to the driver's status in the argument. */
int client_call(struct warden *warden, struct client *client, uint32_t nr, void *arg, uint32_t size,
		const uint32_t *status);
uint64_t warden_driver_bytes(struct warden *warden);
uint64_t warden_named_bytes(const struct warden *warden);
uint64_t process_named_bytes(const struct process *process);
bool process_has_class(const struct process *process, uint32_t class_id);

/* call.c: one handler for each kind of driver call */
struct answer site_call(struct site *site);
struct answer site_refuse(struct site *site, uint32_t status, const char *why);
/* Return a driver status to the program. */
struct answer site_status(struct site *site, uint32_t status);
/* The driver's status in the copy of the argument. */
uint32_t site_status_of(const struct site *site);
/* Make the program's call with the copies. -errno if no call was made. */
int site_perform(struct site *site);
/* Likewise through the owner proxy: the driver accepts some calls only from the process that owns the client. */
int site_perform_as_owner(struct site *site);
/* Free the object that the driver has just made for the program, because the warden cannot record it. */
void site_undo(struct site *site);

/* memory.c */
/* Whether an object that is not in the ledger consists of the program's own pages, according to the driver. */
bool client_has_own_pages(struct warden *warden, uint32_t client, uint32_t handle);
/* Whether the driver knows such an object; true if the driver cannot tell. */
bool client_has_object(struct warden *warden, struct client *client, uint32_t handle);
/* The device memory that the call asks for; 0: none. With or without the lock. */
uint64_t site_bytes_wanted(const struct site *site);
struct answer site_alloc_vidmem(struct site *site);
struct answer site_duplicate(struct site *site);
struct answer site_borrow(struct site *site); /* lend.c: of a client that is not the vGPU's */
struct answer site_export(struct site *site);
struct answer site_import(struct site *site);
struct answer site_export_info(struct site *site);

/* control.c */
/* Whether the operator permits a control that is not in the allowlist. Without the lock. */
bool site_permits(const struct site *site);
struct answer site_control_call(struct site *site);

/* channel.c */
/* Before the caller is known to be waiting still: without no_new_privs, as in a job, another thread can execute a setuid
 * program while the call is handled. The process is root then, and the channel would be that of another process. */
void site_fetch_user(struct site *site);
struct answer site_alloc_channel(struct site *site);
void channel_gone(struct warden *warden, struct ledger_object *object);
bool client_has_channels(const struct warden *warden, const struct client *client);
/* A process ends. Channels that it made remain if another process has the file of their client. */
void channels_leave_gate(struct warden *warden, struct process *process);
/* The client's channels are about to be freed: remove them from the gate. */
void client_leave_gate(struct warden *warden, const struct client *client);
void channel_learn_token(struct warden *warden, struct client *client, uint32_t handle);
int warden_set_channels(struct warden *warden, bool is_disabled, struct bf_error *err);

/* map.c */
bool site_is_doorbell(const struct site *site, uint32_t memory);
struct answer site_map_memory(struct site *site);
struct answer site_mmap(struct site *site, uint64_t bytes);
void expected_gone(struct process *process);
/* The object is freed. The driver would still make a mapping that was prepared before. */
void expected_forget(struct warden *warden, uint32_t client, uint32_t object);

/* doorbell.c */
/* Make the memory for a doorbell mapping: a descriptor, or -errno. */
int doorbell_open(struct process *process, const struct expected_map *expected);
/* The program has freed the object, or its process has ended. */
void doorbell_gone(struct warden *warden, uint32_t client, uint32_t object);
void doorbells_gone(struct process *process);

/* trap.c */
/* Set breakpoints on doorbells that have none yet. Without the lock, by the thread in warden_work. */
void warden_set_traps(struct warden *warden);

/* managed.c */
int managed_perform(struct site *site); /* with or without the lock */
struct answer site_managed_call(struct site *site);
struct answer site_mmap_managed(struct site *site, uint64_t bytes);
/* Read again what the processes have mapped, and kill one that has mapped too much. Without the lock. */
void warden_audit_managed(struct warden *warden);
void managed_left(struct process *process); /* it has ended */
/* Before a mapping or an allocation of `bytes`: read again what is mapped if there is no room for it. Without the lock. */
void site_refresh_managed(struct site *site, uint64_t bytes);

/* standin.c */
/* Install site::put_fd at the program's descriptor, for the mmap that waits for the answer. Without the lock. */
int standin_put(struct site *site);
void standins_gone(struct process *process);

/* answers.c */
struct answer site_answer_query(struct site *site);

/* hooks.c */
/* Memory does not fit: whether the call is deferred until some is freed (ANSWER_LATER). */
bool site_waits_for_room(struct site *site, uint64_t bytes);
bool site_may_allocate(struct site *site, uint64_t bytes);
bool site_may_add_group(struct site *site, struct warden_ctx_ask *ask);
void site_tell_refused(struct site *site, uint64_t bytes); /* counts refused memory and calls the hook */

/* faults.c */
/* Report new faults of all channels, and of one that is about to be freed. */
void warden_look_for_faults(struct warden *warden);
void channel_look_for_fault(struct warden *warden, struct ledger_object *object);

/* group.c */
struct group *group_get(struct ledger_object *object); /* NULL: out of memory */
/* Apply the answer of the ctx_init hook to the new group. */
void group_begin(struct ledger_object *object, const struct warden_ctx_ask *ask);
/* The timeslice or interleave level of the vGPU was set: it replaces those of the groups. */
void groups_forget_own(struct warden *warden, bool is_timeslice);
struct answer site_group_control(struct site *site);
int warden_apply_group(struct warden *warden, struct client *client, uint32_t group);
/* Read the GPU time of the client's groups, which may be about to be freed. */
void groups_ask_time(struct warden *warden, struct client *client);
void group_gone(struct warden *warden, struct ledger_object *object);

#endif

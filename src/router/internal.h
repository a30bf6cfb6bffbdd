/* The internal interface of the router. Included by its files only. */
#ifndef BELFRY_ROUTER_INTERNAL_H
#define BELFRY_ROUTER_INTERNAL_H

#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/loop.h"
#include "router/router.h"

#define ROUTER_MS 1000000ull
#define ROUTER_S 1000000000ull
#define ROUTER_NEVER UINT64_MAX

enum {
	ROUTER_CLIENTS_MAX = 1024,  /* with the requests that wait for a GPU server */
	ROUTER_CLIENTS_OF_ONE = 64, /* of one user other than root and the user of belfryd */
	ROUTER_PARTING_MAX = 256,   /* connections that have received their last answer */
	ROUTER_PARTING_OF_ONE = 16, /* of one user other than root and the user of belfryd */
	ROUTER_ASKS_MAX = 1024,	    /* waiting for one GPU server */
	ROUTER_SERVERS_MAX = 64,
	ROUTER_VGPUS_MAX = CONFIG_STATE_VGPUS_MAX,
	ROUTER_STARTS = 5, /* of one server within a minute */
	ROUTER_ALL_PARTS = SPEC_ALL,
	ROUTER_EVENTS_KEPT = 1024,
	ROUTER_FOLLOWERS_MAX = 64,
	ROUTER_FOLLOWERS_OF_ONE = 8, /* of one user other than root and the user of belfryd */
	ROUTER_COMMANDS_MAX = 4,     /* running at once */
	ROUTER_COMMANDS_WAIT = 64,
	ROUTER_TOTALS_MAX = 1024,
};

/* A request in progress: a client's, with its connection, or one of belfryd's own. */
struct router_ask {
	TAILQ_ENTRY(router_ask) next; /* router_server.asks or sent */
	struct router_server *server; /* NULL: it does not wait for one */
	struct loop_source *source;   /* while it waits: reports that the client has closed its connection */
	uint64_t asked_ns;	      /* since when it waits */
	struct hall_message message;
	int fd;		  /* the client's connection, owned; -1: belfryd's own request */
	bool is_own;	  /* belfryd's own; fd of a client's is -1 as well once it was sent */
	bool holds_name;  /* the name is reserved for it, or claimed */
	bool is_awaiting; /* it waits for this server, and may still go to another */
	uint64_t serial;  /* SET: of the vGPU in whose quota it is counted; 0: in none */
};

TAILQ_HEAD(router_asks, router_ask);

enum router_phase {
	ROUTER_OFF,	 /* no process */
	ROUTER_FINDING,	 /* connected to a server that was left running; no HALL_READY yet, however long */
	ROUTER_STARTING, /* started; no HALL_READY yet */
	ROUTER_HEARING,	 /* left running; not all of its vGPUs are received yet */
	ROUTER_READY,
	ROUTER_LEAVING, /* it has closed the connection; its process is about to end */
};

/* The times of the last starts. */
struct router_starts {
	uint64_t at_ns[ROUTER_STARTS];
	unsigned next;
};

struct router_server {
	struct router_server *next; /* router.servers */
	struct router *router;
	struct protocol_gpu gpu;
	char label[32]; /* "GPU 0", "GPU soft:0" */
	char path[108]; /* where the next belfryd finds it */
	bool is_listed; /* the configuration names it: it always runs (unless private) */
	bool has_soft;	/* belfryd starts its software GPU */
	/* The mode of the folder above gpu.folder before other users were let through; 0: it was not changed. */
	mode_t mode_above;
	bool any_driver; /* a request has asked for it */
	enum router_phase phase;
	int sock, pidfd; /* -1: none */
	struct loop_source *sock_source, *pidfd_source;
	pid_t pid;	      /* a child of this process; 0: not a child */
	bool was_ready;	      /* this process */
	bool was_found;	      /* it was left running, and has not been ready yet */
	bool has_failed;      /* failure says why; requests do not wait for it */
	uint32_t to_hear;     /* vGPUs that it has not reported yet */
	uint64_t deadline_ns; /* of the phase */
	uint64_t retry_ns;    /* when to start it again; ROUTER_NEVER: when it is asked for */
	uint64_t failed_ns;
	struct router_starts starts;
	struct hall_gpu use;
	struct router_asks asks;
	unsigned ask_count;
	unsigned own_queued;	 /* belfryd's own requests among them */
	struct router_asks sent; /* belfryd's own requests and SETs of clients, until the server answers */
	unsigned own_sent;	 /* belfryd's own among them */
	bool was_asking;	 /* see router_note_asking() */
	bool is_flushing;
	bool is_blocked;     /* its socket takes no message now */
	uint64_t unblock_ns; /* is_blocked: when to try again; ROUTER_NEVER: the socket reports it */
	uint64_t ready_ns;   /* ROUTER_READY: since when */
	uint32_t *tickets;   /* of HALL_SAVE, answered when the state is saved */
	unsigned ticket_count, ticket_room;
	char failure[512]; /* why it does not run */
};

enum router_vgpu_phase {
	ROUTER_LOST, /* to be created again */
	ROUTER_RESERVED,
	ROUTER_THERE,
};

struct router_vgpu {
	struct router_vgpu *next; /* router.vgpus */
	char name[SPEC_NAME_MAX + 1];
	enum router_vgpu_phase phase;
	struct router_server *server; /* NULL: its GPU is not served now */
	struct protocol_gpu gpu;
	struct spec spec;
	uid_t uid;
	bool is_ephemeral, is_from_config;
	bool is_kept;	 /* saved, and created again if its server dies */
	uint64_t serial; /* tells it from earlier vGPUs of its name */
	bool is_sent;	 /* ROUTER_RESERVED or is_claimed: the server has the request, and answers it */
	/* SETs that the server has not answered yet: how many, the largest values, and which parts. */
	unsigned sets;
	uint64_t asked_mem_bytes, asked_ppm;
	uint32_t asked_parts;
	/* It goes with its run, and its server has a request for the same name: see server_of_ending_run(). If the run has
	 * ended, the name is reserved for that request. */
	bool is_claimed, claim_is_run;
	uid_t claim_uid;
	struct spec claim_spec;
};

/* A change of the configuration that was refused. It is tried again until it succeeds or is no longer wanted. */
struct router_pending {
	struct router_pending *next; /* router.pending */
	char name[SPEC_NAME_MAX + 1];
	enum protocol_op op; /* PROTOCOL_CREATE, PROTOCOL_SET or PROTOCOL_REMOVE */
	struct spec spec;    /* PROTOCOL_SET: the values of these parts */
	uint32_t parts;
	char why[384]; /* the last refusal */
};

struct router_client {
	LIST_ENTRY(router_client) next; /* router.clients */
	struct router *router;
	int fd;
	struct loop_source *source;
	struct ucred who;
	uint64_t deadline_ns;
	bool is_parting; /* it has received its last answer; further messages are ignored */
};

/* A client that receives events. */
struct router_follower {
	LIST_ENTRY(router_follower) next; /* router.events.followers */
	struct router *router;
	int fd;
	struct loop_source *source;
	uid_t uid;
	char name[SPEC_NAME_MAX + 1], gpu[24]; /* empty: all */
	uint64_t lost;			       /* events dropped and not reported to it yet */
	bool is_blocked; /* there are such events: the loop waits until its socket has room */
};

/* A running command of the configuration, for one event. */
struct router_command {
	struct router *router;
	pid_t pid; /* 0: not running */
	int pidfd;
	struct loop_source *source;
	uint64_t until_ns;
};

/* Complaints about commands. */
enum router_complaint {
	ROUTER_IS_FULL,
	ROUTER_HAS_FAILED,
	ROUTER_CANNOT_START,
	ROUTER_IS_LATE,
	ROUTER_COMPLAINTS,
};

struct router_commands {
	struct router_command running[ROUTER_COMMANDS_MAX];
	struct event *queue; /* ROUTER_COMMANDS_WAIT; allocated with the first event */
	unsigned first, waiting;
	uint64_t started, failed, dropped;
	uint64_t complained_ns[ROUTER_COMPLAINTS]; /* when each was last logged */
};

/* What removed vGPUs of one owner and name have used. */
struct router_total {
	uid_t uid;
	char name[SPEC_NAME_MAX + 1];
	uint64_t gpu_ns, waited_ns, mem_most_bytes, runs, vgpus;
};

struct router_totals {
	struct router_total *list; /* ROUTER_TOTALS_MAX; allocated with the first entry */
	unsigned count;
	char path[256];		/* the accounting file; empty: none */
	uint64_t inode, offset; /* the part of it that is counted */
	uint64_t save_ns;	/* ROUTER_NEVER: nothing to save */
	int failed;		/* -errno of the last failure that was logged */
};

/* Names of users that are looked up for a reload. */
struct router_lookup {
	struct names names;
	int fd; /* the answers; -1: no reload waits for any */
	struct loop_source *fd_source, *pidfd_source;
	struct router_ask *ask; /* the client that waits for the reload; NULL: it was a signal */
	pid_t pid;
	int pidfd; /* of the helper, until it has ended; -1: none */
	uint64_t until_ns;
	char *text; /* the answers so far */
	size_t used;
};

/* The process belfry-metrics. */
struct router_metrics {
	pid_t pid; /* 0: not running */
	int pidfd;
	struct loop_source *source;
	bool is_told_to_end;
	uint64_t kill_ns;  /* when to kill it; ROUTER_NEVER: not */
	uint64_t start_ns; /* when to start it */
	int failed;	   /* errno of the last start that failed, which was logged */
	struct router_starts starts;
};

/* The process that receives the listeners of containers. */
struct router_oci {
	struct router *router;
	pid_t pid; /* 0: not running */
	int pidfd;
	struct loop_source *source;
	uint64_t start_ns; /* when to start it */
	struct router_starts starts;
	char path[108]; /* of its socket */
};

struct router {
	struct router_options options;
	struct config config;
	char socket[108], state_path[128];
	int lock_fd, listen_fd, wake_fd;
	struct loop *loop;
	struct loop_source *listen_source;
	bool is_settled; /* every server of the start is ready or has failed */
	bool is_ending, is_reload_due;
	bool is_making; /* create vGPUs of the configuration once the servers have made the other changes */
	uint64_t making_until_ns; /* then they are created in any case */
	bool was_asked;		  /* a client has made a request */
	unsigned filters_floor;	  /* see inside_floor() */
	struct router_server *servers;
	struct router_vgpu *vgpus;
	unsigned vgpu_count;
	uint64_t last_serial; /* of a vGPU */
	LIST_HEAD(, router_client) clients;
	unsigned client_count;
	uint64_t accept_after_ns; /* out of descriptors until then; 0: not */
	uint64_t save_ns;	  /* ROUTER_NEVER: nothing to save */
	int save_errno;		  /* of the last failure that was logged */
	struct {
		struct router_ask *ask; /* the request that waits for the end; NULL: none */
		uint64_t until_ns;
		unsigned refused; /* changes since the configuration was read */
		char why[512];	  /* the first refusal */
	} reloading;
	struct router_lookup lookup;
	struct router_pending *pending;
	uint64_t pending_ns; /* when to try again */
	uint64_t idle_since_ns;
	struct router_metrics metrics;
	struct router_oci oci;
	struct {
		struct event *ring;   /* ROUTER_EVENTS_KEPT, by number; allocated with the first event */
		uint64_t count, lost; /* totals; lost: by GPU servers */
		uint64_t of_kind[EVENT_KINDS];
		LIST_HEAD(, router_follower) followers;
		unsigned follower_count;
	} events;
	struct router_commands commands;
	struct router_totals totals;
};

/* router.c: the start is over once no server is coming any more. */
void router_check_settled(struct router *router);
/* Whether GPU servers continue with their programs when belfryd exits. */
bool router_carries(const struct router *router);
/* router_config_reload() and everything around it. */
int router_reload_now(struct router *router, struct bf_error *err);
/* The configuration was read again, or not: answer the client, or notify systemd if `ask` is NULL. */
void router_reload_done(struct router *router, struct router_ask *ask, const struct bf_error *err);

/* socket.c: the path, the lock, the listening socket. */
int router_socket_name(struct router *router, struct bf_error *err);
int router_socket_take(struct router *router, struct bf_error *err);
/* Set its mode and group according to config.access. */
int router_socket_access(const struct router *router, struct bf_error *err);
/* Likewise for belfryd's own software GPU, whose files the programs of other users open. */
void router_soft_access(const struct router *router, struct router_server *server);
/* Accept no more clients. Clients in the queue receive EAGAIN. */
void router_socket_close(struct router *router);

/* clients.c */
/* Take clients from router.listen_fd. LOOP_LAST: connections that were closed before are not counted any more. */
bool router_clients_listen(struct router *router);
/* Close the connections whose deadline has passed. */
void router_clients_sweep(struct router *router, uint64_t now_ns);
uint64_t router_clients_due(const struct router *router);
/* Send all of them a last answer, and wait a moment until they have closed their connections. */
void router_clients_end(struct router *router);
/* Send a last answer. The connection stays until the client closes it, for a short time: if it were closed with an
 * unread request, the answer would be lost. If there are many such connections, it is closed at once. */
void router_client_part(struct router *router, int fd, int code, const char *text);
void router_reply(int fd, int code, const char *text, const char *name, const char *body);
/* End a request that was not sent to a server: with an answer, or a line in the log. Frees it. */
void router_refuse(struct router *router, struct router_ask *ask, const struct bf_error *why);
void router_answer(struct router *router, struct router_ask *ask, const char *body);

/* dispatch.c: decides what happens to a request. Takes the ask, as do the functions below. */
void router_dispatch(struct router *router, struct router_ask *ask);
struct router_ask *router_ask_new(const struct protocol_request *request, const struct ucred *who, int fd);
/* Make a request of belfryd's own about a vGPU. */
void router_ask_own(struct router *router, enum protocol_op op, const struct router_vgpu *vgpu,
		    uint32_t parts);
/* name: also where the configuration has this vGPU; "": of no vGPU. */
char *router_hello(const struct router *router, const char *name);

/* server_list.c */
bool router_server_is_of(const struct router_server *server, const struct protocol_gpu *gpu);
struct router_server *router_server_find(struct router *router, const struct protocol_gpu *gpu);
struct router_server *router_server_add(struct router *router, const struct protocol_gpu *gpu,
					struct bf_error *err);
void router_server_name(const struct router *router, struct router_server *server); /* label and path */
/* Free the servers that are not needed any more. */
void router_servers_sweep(struct router *router, uint64_t now_ns);
void router_server_free(struct router *router, struct router_server *server);

/* servers.c */
/* Unless it runs: find the server running, or start it. False: requests cannot wait for it; server->failure says why. */
bool router_server_begin(struct router *router, struct router_server *server);
bool router_server_is_coming(const struct router_server *server);
/* Close the connection. */
void router_server_hang_up(struct router_server *server);
void router_server_forget_process(struct router_server *server);
void router_server_tick(struct router *router, struct router_server *server, uint64_t now_ns);
uint64_t router_server_due(const struct router_server *server);
struct hall_message router_message(const struct router *router, enum hall_kind kind);
void router_servers_adopt(struct router *router);
/* Note why the server does not run: in the log, as an event and in server->failure. */
void router_server_failed(struct router *router, struct router_server *server, const char *text);
/* The connection is closed, or its messages are of another version. */
void router_server_lost(struct router *router, struct router_server *server, bool is_other_version);
/* Whether another start is allowed now, which is then counted. Otherwise *again_ns is the time of the next one. */
bool router_may_start(struct router_starts *starts, uint64_t now_ns, uint64_t *again_ns);

/* hear.c: receive a bounded number of messages. */
void router_server_hear(struct router *router, struct router_server *server);
void router_server_ready(struct router *router, struct router_server *server);

/* asks.c: the requests that wait for a server. Send the request, now or when the server is ready. */
void router_server_ask(struct router *router, struct router_server *server, struct router_ask *ask);
/* Dispatch the request again once the server is ready or has failed. */
void router_server_await(struct router *router, struct router_server *server, struct router_ask *ask);
/* Send as much of the queue as the server accepts. */
void router_server_flush(struct router *router, struct router_server *server);
/* Refuse all waiting requests, or dispatch them again. */
void router_server_fail_asks(struct router *router, struct router_server *server);
int router_server_send(struct router_server *server, const struct hall_message *message);
/* The server takes messages again: its socket reports it, or the time has come to try. */
void router_server_unblock(struct router_server *server);
/* Refuse the requests that a server has not taken in time, and when that is due next. */
void router_asks_expire(struct router *router, struct router_server *server, uint64_t now_ns);
uint64_t router_asks_due(const struct router_server *server);
/* Whether requests of belfryd's own are in progress: of the server, and of any. */
bool router_server_is_asking(const struct router_server *server);
bool router_is_asking(const struct router *router);
/* The server has answered a request of router_server.sent: HALL_DONE or HALL_REFUSED. */
void router_sent_answered(struct router *router, struct router_server *server,
			  const struct hall_message *message);
/* The server has died: note the changes of belfryd's own that it has not answered as pending. */
void router_sent_lost(struct router *router, struct router_server *server);
/* Set router_server.was_asking of all servers. Of several changes, the first would be an obstacle to the others. */
void router_note_asking(struct router *router);

/* vgpus.c: the table. */
struct router_vgpu *router_vgpu_find(const struct router *router, const char *name);
struct router_vgpu *router_vgpu_add(struct router *router, const char *name, struct bf_error *err);
void router_vgpu_drop(struct router *router, struct router_vgpu *vgpu);
void router_vgpu_told(struct router *router, struct router_server *server,
		      const struct hall_message *message);
void router_vgpu_gone(struct router *router, struct router_server *server, const char *name);
void router_vgpu_refused(struct router *router, struct router_server *server,
			 const struct hall_message *message);
/* Its server has died. */
void router_vgpus_lost(struct router *router, const struct router_server *server);
void router_vgpus_remake(struct router *router, struct router_server *server);
bool router_vgpus_any(const struct router *router, const struct router_server *server);
/* Whether any vGPU must be created again on this server. */
bool router_vgpus_wait(const struct router *router, const struct router_server *server);
struct router_room router_server_room(const struct router *router, const struct router_server *server);

/* configure.c: the configuration. */
int router_config_start(struct router *router, struct bf_error *err);
/* Called once this process has the socket: start servers, and read the saved state. */
void router_config_begin(struct router *router);
void router_config_settled(struct router *router);
void router_config_tick(struct router *router, uint64_t now_ns);
int router_config_reload(struct router *router, struct bf_error *err);
/* Requests of belfryd's own: create a vGPU of the configuration, and change one. */
void router_config_make(struct router *router, const struct config_vgpu *from);
void router_config_set(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec);

/* reload.c: answer once the GPU servers have applied the new configuration. Takes the ask. */
void router_reload_await(struct router *router, struct router_ask *ask);
void router_reload_refused(struct router *router, const char *name, const char *why);
void router_reload_tick(struct router *router, uint64_t now_ns);
/* lookup.c: read the configuration again, once its names are looked up. ask NULL: for a signal. Takes the ask. Not called
 * while router_lookup_waits(). */
void router_lookup_begin(struct router *router, struct router_ask *ask);
bool router_lookup_waits(const struct router *router);
void router_lookup_tick(struct router *router, uint64_t now_ns);
void router_lookup_end(struct router *router);

/* pending.c: refused changes of the configuration, which are tried again. */
/* A request of belfryd's own was refused: log it, note it for a waiting reload, and add it to the pending changes. */
void router_pending_refused(struct router *router, const struct protocol_request *request, const char *label,
			    const char *why);
/* The server reports that a vGPU exists or has changed. Called before vgpu->spec changes. */
void router_pending_told(struct router *router, const struct router_vgpu *vgpu, const struct spec *spec);
/* The configuration was read again: drop the changes that it does not want any more. `before` may be NULL. */
void router_pending_renew(struct router *router, const struct config *before);
/* Apply the pending change of the vGPU to *spec. */
void router_pending_merge(const struct router *router, const char *name, struct spec *spec);
void router_pending_tick(struct router *router, uint64_t now_ns);
uint64_t router_pending_due(const struct router *router);
struct json_object;
struct json_object *router_pending_json(const struct router *router);
void router_pending_free(struct router *router);

/* save.c: the saved state. */
void router_state_changed(struct router *router);
int router_state_save(struct router *router, struct bf_error *err);
/* Save if a client waits for it, and answer HALL_SAVE. */
void router_state_settle(struct router *router);

/* quota.c: whether the user may have a vGPU of this spec, in addition or instead of another; and whether one may be
 * changed. */
int router_quota_check(const struct router *router, uid_t uid, const struct spec *spec,
		       const struct router_vgpu *instead_of, struct bf_error *err);
/* The change counts from now on, before its server reports it, until router_quota_settled(). */
int router_quota_set(struct router *router, struct router_vgpu *vgpu, struct router_ask *ask,
		     struct bf_error *err);
/* The SET was answered or dropped. */
void router_quota_settled(const struct router *router, const struct router_ask *ask);

/* account.c: a vGPU is removed, and the message says what it has used. */
void router_account(struct router *router, const struct router_server *server,
		    const struct hall_message *message);

/* totals.c */
void router_totals_count(struct router *router, const struct hall_message *message, bool is_ephemeral);
/* A line was appended to the accounting file. st: its status now. */
void router_totals_written(struct router *router, const struct stat *st);
/* Use the accounting file of the configuration. */
void router_totals_follow(struct router *router);
void router_totals_save(struct router *router); /* if there is anything to save */
char *router_totals_text(const struct router *router);
void router_totals_end(struct router *router);

/* events.c */
void router_event(struct router *router, const struct event *event);
void router_event_server(struct router *router, enum event_kind kind, const struct router_server *server,
			 const char *text);
void router_event_config(struct router *router, const struct bf_error *why); /* NULL: it was read */
void router_event_vgpu(struct router *router, enum event_kind kind, const struct router_vgpu *vgpu,
		       const char *text);
/* A vGPU was changed from `before`; NULL: it was created. */
void router_event_spec(struct router *router, const struct router_vgpu *vgpu, const struct spec *before);
void router_event_gone(struct router *router, const struct router_server *server,
		       const struct hall_message *message);
/* PROTOCOL_EVENTS. Takes the ask. */
void router_events_follow(struct router *router, struct router_ask *ask);
void router_events_end(struct router *router);

/* commands.c: the command that the configuration names for events. */
void router_commands_begin(struct router *router);
void router_command_add(struct router *router, const struct event *event);
void router_commands_tick(struct router *router, uint64_t now_ns);
uint64_t router_commands_due(const struct router *router);
void router_commands_end(struct router *router);

/* oci.c: belfry-oci-listener */
const char *router_oci_socket(const struct router *router); /* NULL: none */
uint64_t router_oci_due(const struct router *router);
void router_oci_tick(struct router *router, uint64_t now_ns);
void router_oci_settle(struct router *router); /* the configuration was read again */
void router_oci_end(struct router *router);
/* Whether belfry-oci-listener has started the process. It has the filters of belfryd's service. */
bool router_oci_is_parent(const struct router *router, pid_t pid);

/* metrics.c */
void router_metrics_tick(struct router *router, uint64_t now_ns);
uint64_t router_metrics_due(const struct router *router);
/* End it without waiting. The next tick after its end starts it again, if it is configured. Also resets the limit of
 * starts, which counts for one configuration. */
void router_metrics_end(struct router *router);
/* Wait until it has ended, for a short time. */
void router_metrics_wait(struct router *router);

/* child.c: a pidfd of a child that was just started. If there is none, the end of the child would not be noticed: it is
 * killed, and the result is -errno. */
int router_child_open(pid_t pid, struct bf_error *err);

#endif
